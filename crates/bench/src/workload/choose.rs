//! The choice of the item of an operation, skewed.
//!
//! The choices are those of YCSB (Cooper, Silberstein, Tam, Ramakrishnan and Sears, SoCC 2010), whose numbers
//! come from the generator of Gray, Sundaresan, Englert, Baclawski and Weinberger (SIGMOD 1994).

use super::rows::Random;

/// The skew of YCSB.
const THETA: f64 = 0.99;
/// The scrambled choice draws ranks of this many items, however many there are.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// This many terms of a zeta sum are added one by one; the rest of a longer one is an integral with corrections.
const TERMS: u64 = 10_000;

/// How items are chosen.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    /// Zipfian, with the popular items spread over the first `items`; items that are added later are not chosen.
    Scrambled { ranks: Zipfian, items: u64 },
    /// Zipfian from the newest item down.
    Latest(Zipfian),
}

impl Chooser {
    /// Popular items spread over `items`, at least one, by the hash of a Zipfian rank.
    pub fn scrambled(items: u64) -> Chooser {
        Chooser::Scrambled { ranks: Zipfian::new(SCRAMBLED_RANKS, THETA), items }
    }

    /// The newest item is the most popular, of `items` to begin with, at least one.
    pub fn latest(items: u64) -> Chooser {
        Chooser::Latest(Zipfian::new(items, THETA))
    }

    /// One of the items 0 to `items`, the last excluded: at least one, and never fewer than before.
    pub fn next(&mut self, random: &mut Random, items: u64) -> u64 {
        match self {
            Chooser::Scrambled { ranks, items } => fnv1a_64(ranks.next(random)) % *items,
            Chooser::Latest(ranks) => {
                ranks.grow(items);
                items - 1 - ranks.next(random)
            }
        }
    }
}

/// Ranks from 0: rank r is drawn in proportion to 1 / (r + 1)^theta. The first two ranks are drawn exactly so, the
/// others about so.
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    theta: f64,
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Over `items` ranks, at least one; `theta` is between 0 and 1.
    pub fn new(items: u64, theta: f64) -> Zipfian {
        let mut zipfian = Zipfian { theta, items: 0, zeta: 0.0, eta: 0.0 };
        zipfian.grow(items);
        zipfian
    }

    /// From now on there are `items` ranks, if that is more than before. Only the terms of the new ones are added.
    pub fn grow(&mut self, items: u64) {
        if items <= self.items {
            return;
        }
        self.zeta += zeta_between(self.items, items, self.theta);
        self.items = items;
        let least = (2.0 / items as f64).powf(1.0 - self.theta);
        self.eta = (1.0 - least) / (1.0 - zeta_of_two(self.theta) / self.zeta);
    }

    /// A rank.
    pub fn next(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let mass = unit * self.zeta;
        if mass < 1.0 || self.items == 1 {
            return 0;
        }
        if mass < zeta_of_two(self.theta) || self.items == 2 {
            return 1;
        }
        let share = (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        ((self.items as f64 * share) as u64).min(self.items - 1)
    }
}

fn zeta_of_two(theta: f64) -> f64 {
    1.0 + 0.5f64.powf(theta)
}

/// The sum of 1 / i^theta for the i above `from` and up to `to`. If many terms are left, the rest is summed by the
/// Euler-Maclaurin formula, to some twelve digits.
fn zeta_between(from: u64, to: u64, theta: f64) -> f64 {
    let term = |i: u64| (i as f64).powf(-theta);
    let end = to.min(from + TERMS);
    let mut sum: f64 = (from + 1..=end).map(term).sum();
    if end < to {
        let (low, high) = (end as f64, to as f64);
        let integral = (high.powf(1.0 - theta) - low.powf(1.0 - theta)) / (1.0 - theta);
        let slope = |x: f64| -theta * x.powf(-theta - 1.0);
        sum += integral + (term(to) - term(end)) / 2.0 + (slope(high) - slope(low)) / 12.0;
    }
    sum
}

/// The FNV-1a hash of the eight bytes of `number`, the lowest first.
pub(crate) fn fnv1a_64(number: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// How often each of `items` items is chosen.
    fn counts(chooser: &mut Chooser, items: u64) -> Vec<u64> {
        let mut random = Random::new(7);
        let mut counts = vec![0; items as usize];
        for _ in 0..DRAWS {
            counts[chooser.next(&mut random, items) as usize] += 1;
        }
        counts
    }

    /// `count` of all draws is `share`, give or take four standard deviations.
    fn assert_share(count: u64, share: f64) {
        let expected = DRAWS as f64 * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        let off = (count as f64 - expected).abs() / deviation;
        assert!(off < 4.0, "{count} draws instead of {expected:.0}: {off:.1} standard deviations");
    }

    #[test]
    fn zeta_sums_are_right() {
        // YCSB's constant for this many items.
        let known = 26.469_028_201_783_02;
        assert!((zeta_between(0, SCRAMBLED_RANKS, THETA) - known).abs() < 1e-6);
        let term_by_term: f64 = (1..=100_000u32).map(|i| f64::from(i).powf(-THETA)).sum();
        assert!((zeta_between(0, 100_000, THETA) - term_by_term).abs() < 1e-10);
        assert_eq!(zeta_between(0, 2, THETA), zeta_of_two(THETA));
    }

    #[test]
    fn the_newest_items_are_the_most_popular() {
        let zeta = zeta_between(0, 1000, THETA);
        let counts = counts(&mut Chooser::latest(1000), 1000);
        assert_share(counts[999], 1.0 / zeta);
        assert_share(counts[998], 0.5f64.powf(THETA) / zeta);
        let newest: u64 = counts[900..].iter().sum();
        let share = newest as f64 / DRAWS as f64;
        let theory = zeta_between(0, 100, THETA) / zeta;
        assert!((share - theory).abs() < 0.03, "the newest tenth has {share}, not {theory}");
    }

    #[test]
    fn scrambled_choices_have_hot_items_anywhere() {
        let items = 1000;
        let counts = counts(&mut Chooser::scrambled(items), items);
        let hottest = (0..items).max_by_key(|item| counts[*item as usize]).expect("items");
        assert_eq!(hottest, fnv1a_64(0) % items);
        // Beside the first rank, about one in `items` of the ten thousand million ranks has the same item.
        let first = 1.0 / zeta_between(0, SCRAMBLED_RANKS, THETA);
        let share = counts[hottest as usize] as f64 / DRAWS as f64;
        assert!((first..first + 0.004).contains(&share), "the hottest item has {share}, its rank {first}");
        let in_first_half: u64 = counts[..items as usize / 2].iter().sum();
        assert!((DRAWS / 3..DRAWS * 2 / 3).contains(&in_first_half));
        assert!(counts.iter().all(|count| *count > 0));
    }

    #[test]
    fn less_skew_is_drawn_as_theory_says() {
        let ranks = Zipfian::new(100, 0.5);
        let mut random = Random::new(3);
        let firsts = (0..DRAWS).filter(|_| ranks.next(&mut random) == 0).count() as u64;
        assert_share(firsts, 1.0 / zeta_between(0, 100, 0.5));
    }

    #[test]
    fn growing_is_like_starting_with_more() {
        let mut grown = Zipfian::new(1, THETA);
        for items in 2..=500 {
            grown.grow(items);
        }
        grown.grow(100_000);
        let new = Zipfian::new(100_000, THETA);
        assert!((grown.zeta - new.zeta).abs() < 1e-9 && (grown.eta - new.eta).abs() < 1e-9);
        grown.grow(10);
        assert_eq!(grown.items, 100_000);
    }

    #[test]
    fn choices_follow_the_number_of_items() {
        for chooser in [Chooser::scrambled(1), Chooser::latest(1)] {
            let mut chooser = chooser;
            let mut random = Random::new(1);
            for items in 1..2000 {
                assert!(chooser.next(&mut random, items) < items);
            }
        }
        let mut latest = Chooser::latest(1);
        latest.next(&mut Random::new(1), 1000);
        let counts = counts(&mut latest, 1000);
        assert_share(counts[999], 1.0 / zeta_between(0, 1000, THETA));
    }

    #[test]
    fn hashes_are_fnv() {
        // The offset basis times the eighth power of the prime.
        assert_eq!(fnv1a_64(0), 0xa8c7_f832_281a_39c5);
        assert_ne!(fnv1a_64(1), fnv1a_64(256));
    }
}
