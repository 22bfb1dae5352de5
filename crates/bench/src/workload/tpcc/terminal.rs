//! The terminal of a thread: it plays the cards of its deck.

use std::hint::black_box;

use super::super::rows::Random;
use super::customers::Choice;
use super::delivery::Delivery;
use super::new_order::NewOrder;
use super::order_status::OrderStatus;
use super::payment::Payment;
use super::populate::BEGIN_MS;
use super::random::{NAMES, Skews, last_name, shuffle};
use super::schema::{CustomerId, DISTRICTS, DistrictId};
use super::stock_level::StockLevel;
use super::{DELIVERY, NEW_ORDER, ORDER_STATUS, PAYMENT, STOCK_LEVEL, Scale};
use crate::Result;
use crate::retrying_session::RetryingSession;
use crate::workload::Step;

/// How many cards of each kind a deck has, in the order of the kinds.
const CARDS: [usize; 5] = [10, 10, 1, 1, 1];

/// A terminal: its warehouse and district, its deck, its random numbers.
pub(super) struct Terminal {
    pub scale: Scale,
    pub warehouse: u16,
    /// The district of its stock-levels.
    pub district: u8,
    pub random: Random,
    pub skews: Skews,
    deck: Deck,
    now_ms: u64,
    buffers: Buffers,
}

/// Buffers for reading and writing rows.
#[derive(Default)]
pub(super) struct Buffers {
    pub row: Vec<u8>,
    pub other: Vec<u8>,
    pub out: Vec<u8>,
    pub key: Vec<u8>,
}

impl Terminal {
    pub fn new(scale: Scale, thread: u32) -> Terminal {
        let warehouses = u32::from(scale.warehouses);
        Terminal {
            scale,
            warehouse: (thread % warehouses) as u16 + 1,
            district: (thread / warehouses % u32::from(DISTRICTS)) as u8 + 1,
            random: Random::new(super::SEED ^ u64::from(thread) << 32),
            skews: Skews::run(super::SEED),
            deck: Deck::new(),
            now_ms: BEGIN_MS,
            buffers: Buffers::default(),
        }
    }

    /// A time later than the last.
    pub fn tick(&mut self) -> u64 {
        self.now_ms += 1;
        self.now_ms
    }

    /// True in `cases` of `of` cases.
    pub fn chance(&mut self, cases: u64, of: u64) -> bool {
        self.random.below(of) < cases
    }

    /// Any district of a warehouse.
    pub fn any_district(&mut self, warehouse: u16) -> DistrictId {
        DistrictId { warehouse, district: self.random.within(1, DISTRICTS.into()) as u8 }
    }

    /// Another warehouse; this one if it is the only one.
    pub fn other_warehouse(&mut self) -> u16 {
        match self.random.below(u64::from(self.scale.warehouses.max(2)) - 1) as u16 + 1 {
            _ if self.scale.warehouses == 1 => self.warehouse,
            other if other < self.warehouse => other,
            other => other + 1,
        }
    }

    /// A customer of a district by number.
    pub fn any_customer(&mut self, home: DistrictId) -> CustomerId {
        let customer = self.skews.customer.pick(&mut self.random, 1, self.scale.customers_per_district);
        CustomerId { home, customer }
    }

    /// A customer of a district, six in ten by name and the others by number.
    pub fn choose_customer(&mut self, home: DistrictId) -> Choice {
        if !self.chance(60, 100) {
            return Choice::Number(self.any_customer(home));
        }
        let names = self.scale.customers_per_district.min(NAMES);
        Choice::Name(home, last_name(self.skews.name.pick(&mut self.random, 0, names - 1)))
    }

    /// Plays the next card.
    pub fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        let kind = self.deck.draw(&mut self.random);
        let committed = match kind {
            NEW_ORDER => {
                let input = NewOrder::pick(self);
                session.write(|open| input.run(open, &mut self.buffers))?
            }
            PAYMENT => {
                let input = Payment::pick(self);
                session.write(|open| input.run(open, &mut self.buffers))?
            }
            ORDER_STATUS => {
                let input = OrderStatus::pick(self);
                black_box(session.read(|open| input.run(open, &mut self.buffers))?);
                true
            }
            DELIVERY => {
                let input = Delivery::pick(self);
                session.write(|open| input.run(open, &mut self.buffers))?
            }
            _ => {
                let input = StockLevel::pick(self);
                black_box(session.read(|open| input.run(open, &mut self.buffers))?);
                true
            }
        };
        Ok(if committed { Step::Done(kind) } else { Step::RolledBack(kind) })
    }
}

const _: () = assert!(STOCK_LEVEL == CARDS.len() - 1);

/// Kinds in a random order, each as often as in the mix.
struct Deck {
    cards: Vec<usize>,
    drawn: usize,
}

impl Deck {
    fn new() -> Deck {
        let cards = CARDS.iter().enumerate().flat_map(|(kind, count)| std::iter::repeat_n(kind, *count));
        let cards: Vec<usize> = cards.collect();
        Deck { drawn: cards.len(), cards }
    }

    /// The next card; after the last one the deck is shuffled.
    fn draw(&mut self, random: &mut Random) -> usize {
        if self.drawn == self.cards.len() {
            self.drawn = 0;
            shuffle(random, &mut self.cards);
        }
        self.drawn += 1;
        self.cards[self.drawn - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deck_has_the_mix_exactly_and_in_any_order() {
        let mut random = Random::new(1);
        let mut deck = Deck::new();
        let decks = [(); 100].map(|()| [(); 23].map(|()| deck.draw(&mut random)));
        for drawn in &decks {
            let counts: Vec<usize> =
                (0..5).map(|kind| drawn.iter().filter(|card| **card == kind).count()).collect();
            assert_eq!(counts, CARDS);
        }
        assert!(decks.iter().filter(|drawn| **drawn == decks[0]).count() < 3);
    }

    #[test]
    fn terminals_are_spread_over_warehouses_and_districts() {
        let home = |warehouses, thread| {
            let terminal = Terminal::new(Scale::full(warehouses), thread);
            (terminal.warehouse, terminal.district)
        };
        assert_eq!([0, 1, 2, 3, 30].map(|thread| home(3, thread)), [(1, 1), (2, 1), (3, 1), (1, 2), (1, 1)]);
    }

    #[test]
    fn other_warehouses_are_others() {
        let mut terminal = Terminal::new(Scale::full(3), 1);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[usize::from(terminal.other_warehouse())] += 1;
        }
        assert!(seen[0] == 0 && seen[2] == 0 && seen[1] > 400 && seen[3] > 400, "{seen:?}");
        assert_eq!(Terminal::new(Scale::full(1), 5).other_warehouse(), 1);
    }
}
