//! The open tickets, in the order of the CSNs that they wait for.

use std::collections::VecDeque;
use std::sync::Arc;

use fulgurite_types::Csn;

use super::ticket::TicketState;
use crate::memory_charge::MemoryCharge;
use fulgurite_types::sync::{AtomicU64, Mutex, Ordering};

/// What a ticket takes: its state, its entries in the queue, which may be half empty, and a callback.
const TICKET_BYTES: usize = size_of::<TicketState>() + 2 * size_of::<(Csn, Arc<TicketState>)>() + 80;

/// Tickets are charged in units of so many: the budget's counters are not touched for each, and never while few are open.
const UNIT: usize = 64;

/// The open tickets. Commits file theirs almost in order, so filing is usually an append, and completing takes tickets
/// from the front.
pub(super) struct Tickets {
    /// The smallest `due` of an open ticket; `u64::MAX` if none is open; 0 if tickets are open that have to fail.
    first: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Sorted by `due`, which comes first.
    queue: VecDeque<(Csn, Arc<TicketState>)>,
    /// Why no ticket completes any more.
    ended: Option<Arc<str>>,
    /// How many tickets are charged, and where.
    charged: usize,
    memory: Option<Arc<MemoryCharge>>,
}

impl Open {
    /// Charges for the tickets of the queue, exact to a unit.
    fn charge(&mut self) {
        let len = self.queue.len();
        if len >= self.charged + UNIT || len + UNIT <= self.charged {
            let before = std::mem::replace(&mut self.charged, len / UNIT * UNIT);
            if let Some(memory) = &self.memory {
                memory.change(before * TICKET_BYTES, self.charged * TICKET_BYTES);
            }
        }
    }
}

impl Tickets {
    pub fn new() -> Tickets {
        Tickets { first: AtomicU64::new(u64::MAX), open: Mutex::default() }
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.first.load(Ordering::SeqCst) == u64::MAX
    }

    /// Has the memory of open tickets counted.
    pub fn count_in(&self, memory: Arc<MemoryCharge>) {
        self.open.lock().memory = Some(memory);
    }

    /// Files a ticket. The caller checks afterwards whether the ticket is ripe already (INV-TXN-10).
    pub fn add(&self, ticket: Arc<TicketState>) {
        self.add_until(ticket.due(), ticket);
    }

    /// The same, with another CSN than the ticket's `due`.
    pub fn add_until(&self, due: Csn, ticket: Arc<TicketState>) {
        let mut open = self.open.lock();
        if let Some(why) = open.ended.clone() {
            drop(open);
            return ticket.fail(&why);
        }
        match open.queue.back() {
            Some((last, _)) if *last > due => {
                let index = open.queue.partition_point(|(other, _)| *other <= due);
                open.queue.insert(index, (due, ticket));
            }
            _ => open.queue.push_back((due, ticket)),
        }
        open.charge();
        self.note_first(&open);
    }

    fn note_first(&self, open: &Open) {
        let due = |(due, _): &(Csn, _)| if open.ended.is_some() { 0 } else { due.0 };
        let first = open.queue.front().map_or(u64::MAX, due);
        if self.first.load(Ordering::Relaxed) != first {
            self.first.store(first, Ordering::SeqCst);
        }
    }

    /// The smallest `due` of an open ticket, or a sentinel: see the field.
    pub fn first(&self) -> Csn {
        Csn(self.first.load(Ordering::SeqCst))
    }

    /// Removes the tickets that have an outcome; the caller completes or fails them. `reached` returns the CSN up to
    /// which all commits are durable and visible, and is called under the lock.
    pub fn take(&self, reached: impl FnOnce() -> Csn) -> Ripe {
        let mut open = self.open.lock();
        if open.queue.is_empty() {
            return Ripe::default();
        }
        let reached = reached();
        let count = open.queue.partition_point(|(due, _)| *due <= reached);
        let complete = open.queue.drain(..count).map(|(_, ticket)| ticket).collect();
        let why = open.ended.clone();
        let failed = if why.is_some() { std::mem::take(&mut open.queue) } else { VecDeque::new() };
        open.charge();
        self.note_first(&open);
        Ripe { complete, failed: failed.into_iter().map(|(_, ticket)| ticket).collect(), why }
    }

    /// Removes the tickets that wait for a commit after `last`: there is none, and never will be.
    pub fn take_after(&self, last: Csn) -> Vec<Arc<TicketState>> {
        let mut open = self.open.lock();
        let start = open.queue.partition_point(|(due, _)| *due <= last);
        let taken = open.queue.drain(start..).map(|(_, ticket)| ticket).collect();
        open.charge();
        self.note_first(&open);
        taken
    }

    /// From now on a ticket that is filed fails at once, with an unknown outcome. The next [`Tickets::take`] takes the
    /// open tickets: those that are durable and visible by then complete, the others fail.
    pub fn end(&self, why: &str) {
        let mut open = self.open.lock();
        open.ended.get_or_insert_with(|| why.into());
        self.note_first(&open);
    }
}

/// Tickets with an outcome.
#[derive(Default)]
pub(super) struct Ripe {
    pub complete: Vec<Arc<TicketState>>,
    /// Tickets whose outcome is unknown, because of `why`.
    failed: Vec<Arc<TicketState>>,
    why: Option<Arc<str>>,
}

impl Ripe {
    /// Fails the tickets whose outcome is unknown.
    pub fn report_failed(self) {
        if let Some(why) = self.why {
            self.failed.into_iter().for_each(|ticket| ticket.fail(&why));
        }
    }
}

impl Drop for Tickets {
    /// Fails the open tickets: nothing is left that could complete them.
    fn drop(&mut self) {
        self.end("the database was closed before the commit was known to be durable");
        self.take(|| Csn::ZERO).report_failed();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::AtomicUsize;

    use super::super::ticket::{Finish, Ticket};
    use super::*;
    use crate::Error;

    struct Never;

    impl Finish for Never {
        fn finish(&self, _: &TicketState) {}
    }

    fn file(tickets: &Tickets, csn: u64) -> Ticket {
        let state = TicketState::new(Csn(csn), Csn(csn), None, Weak::<Never>::new());
        tickets.add(state.clone());
        Ticket::of(state)
    }

    fn complete(tickets: &Tickets, csn: u64) {
        tickets.take(|| Csn(csn)).complete.iter().for_each(|ticket| assert!(ticket.complete()));
    }

    #[test]
    fn tickets_complete_in_any_form() {
        let tickets = Tickets::new();
        let (first, second) = (file(&tickets, 1), file(&tickets, 2));
        let called = Arc::new(AtomicUsize::new(0));
        let counter = called.clone();
        first.on_complete(move |result| {
            assert_eq!(result.unwrap().csn, Csn(1));
            counter.fetch_add(1, Ordering::Relaxed);
        });
        assert!(first.try_wait().is_none());
        complete(&tickets, 1);
        assert_eq!(called.load(Ordering::Relaxed), 1);
        assert_eq!(first.wait().unwrap().csn, Csn(1));
        assert!(second.try_wait().is_none());
        tickets.end("the disk is gone");
        assert_eq!(tickets.first(), Csn::ZERO);
        assert!(second.try_wait().is_none(), "completes later, on a thread that holds no lock");
        tickets.take(|| Csn(1)).report_failed();
        let error = second.wait().unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { csn: Csn(2), .. }));
        assert!(error.to_string().contains("the disk is gone"), "{error}");
        assert!(file(&tickets, 3).try_wait().is_some_and(|outcome| outcome.is_err()), "filed too late");
    }

    #[test]
    fn open_tickets_are_charged_to_a_unit_and_few_are_not() {
        let index = Arc::new(fulgurite_index::IndexMemory::default());
        let memory = MemoryCharge::new(&index);
        let tickets = Tickets::new();
        tickets.count_in(memory.clone());
        let charged = || (memory.bytes() / TICKET_BYTES, index.used_bytes() / TICKET_BYTES);
        let filed: Vec<Ticket> = (0..63).map(|csn| file(&tickets, csn)).collect();
        assert_eq!(charged(), (0, 0));
        let more: Vec<Ticket> = (63..1_000).map(|csn| file(&tickets, csn)).collect();
        assert_eq!(charged(), (960, 960));
        complete(&tickets, 35);
        assert_eq!(charged(), (960, 960));
        complete(&tickets, 499);
        assert_eq!(charged(), (448, 448));
        complete(&tickets, 1_000);
        assert_eq!(charged(), (0, 0));
        drop((filed, more));
    }

    #[test]
    fn tickets_that_are_filed_out_of_order_complete_in_order() {
        let tickets = Tickets::new();
        let filed: Vec<Ticket> = [4, 2, 6, 2, 5].map(|csn| file(&tickets, csn)).into();
        let complete_now = || -> Vec<u64> {
            filed.iter().filter(|ticket| ticket.try_wait().is_some()).map(|ticket| ticket.csn().0).collect()
        };
        for (reached, first, expected) in
            [(1, 2, &[][..]), (2, 4, &[2, 2]), (5, 6, &[4, 2, 2, 5]), (9, u64::MAX, &[4, 2, 6, 2, 5])]
        {
            complete(&tickets, reached);
            assert_eq!((tickets.first(), complete_now().as_slice()), (Csn(first), expected));
        }
    }
}
