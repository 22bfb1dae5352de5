//! Compares eviction policies on traces of reads, with leaves as the unit: the figures of "The policy" in `docs/memory.md`.
//!
//! `cargo run --release -p fulgurite-index --example eviction_policies [-- LEAVES STEPS SEED]` prints, for caches of 10, 25
//! and 50 % of the leaves, the hit rate of each policy in percent, cold misses included. The same arguments print the same
//! table. All evict as Fulgurite does, a batch at a time, but the optimum and `one by one`: eviction begins when a sixteenth
//! of the cache is left, and ends when an eighth is. Inner nodes are not counted, and leaves that changed are evicted like
//! others.

mod policies;
mod traces;

use policies::{Clock, Order, Policy, Ranked, Rules, S3Fifo};
use traces::{Kind, Maker, Step, TRACES};

/// Sizes of the cache, in percent of the leaves.
const CACHES: [u32; 3] = [10, 25, 50];

/// How many leaves may be in memory when eviction begins, and when it ends.
#[derive(Clone, Copy)]
struct Limits {
    begin: usize,
    end: usize,
}

/// How a column chooses what to evict.
enum Choice {
    Optimum,
    Lru,
    S3Fifo,
    Clock(Rules),
}

/// A column of the table.
struct Column {
    name: &'static str,
    /// Whether it evicts one leaf at a time.
    is_exact: bool,
    choice: Choice,
}

const fn column(name: &'static str, choice: Choice) -> Column {
    Column { name, is_exact: false, choice }
}

/// The clock without the two rules that Fulgurite has.
const TWO_CHANCES: Rules = Rules::TWO_CHANCES;

/// Policies, then a clock with one difference each, but the last, which has two: Fulgurite's.
const COLUMNS: [Column; 15] = [
    Column { is_exact: true, ..column("optimum", Choice::Optimum) },
    column("LRU", Choice::Lru),
    column("clock", Choice::Clock(Rules { order: Order::Load, loaded: 1, read: |_| 1, ..TWO_CHANCES })),
    column("S3-FIFO", Choice::S3Fifo),
    column("two chances", Choice::Clock(TWO_CHANCES)),
    Column { is_exact: true, ..column("one by one", Choice::Clock(TWO_CHANCES)) },
    column("load order", Choice::Clock(Rules { order: Order::Load, ..TWO_CHANCES })),
    column("no probation", Choice::Clock(Rules { loaded: 2, ..TWO_CHANCES })),
    column("one chance", Choice::Clock(Rules { read: |_| 1, ..TWO_CHANCES })),
    column("three chances", Choice::Clock(Rules { read: |_| 3, ..TWO_CHANCES })),
    column("two reads", Choice::Clock(Rules { free_reads: 1, ..TWO_CHANCES })),
    column("ghosts", Choice::Clock(Rules { has_ghosts: true, ..TWO_CHANCES })),
    column("late marks", Choice::Clock(Rules { marks_late: true, ..TWO_CHANCES })),
    column("new first", Choice::Clock(Rules { takes_new_first: true, ..TWO_CHANCES })),
    column("Fulgurite", Choice::Clock(Rules { marks_late: true, takes_new_first: true, ..TWO_CHANCES })),
];

impl Column {
    fn policy(&self, steps: &[Step], slots: usize, leaves_max: usize) -> Box<dyn Policy> {
        match self.choice {
            Choice::Optimum => Box::new(Ranked::optimum(steps, slots)),
            Choice::Lru => Box::new(Ranked::lru(steps, slots)),
            Choice::S3Fifo => Box::new(S3Fifo::new(slots, leaves_max)),
            Choice::Clock(rules) => Box::new(Clock::new(slots, leaves_max, rules)),
        }
    }

    /// Runs a trace; returns the rates of all reads, and of those of the hot set.
    fn run(&self, steps: &[Step], limits: Limits) -> (Rate, Rate) {
        let Limits { begin, end } = limits;
        let end = if self.is_exact { begin } else { end };
        let slots = steps.iter().map(|step| step.leaf as usize + 1).max().unwrap_or(0);
        let mut policy = self.policy(steps, slots, begin);
        let mut is_resident = vec![false; slots];
        let mut residents = 0;
        let (mut all, mut hot) = (Rate::default(), Rate::default());
        for (at, &Step { leaf, kind }) in steps.iter().enumerate() {
            let is_hit = std::mem::replace(&mut is_resident[leaf as usize], kind != Kind::Drop);
            match kind {
                Kind::Drop if is_hit => {
                    policy.forget(leaf);
                    residents -= 1;
                    continue;
                }
                Kind::Drop => continue,
                _ if is_hit => policy.read(leaf, at),
                _ => {
                    policy.load(leaf, at);
                    residents += 1;
                    if kind == Kind::Merge {
                        policy.read(leaf, at);
                    }
                }
            }
            if kind != Kind::New {
                all.count(is_hit);
            }
            if kind == Kind::Hot {
                hot.count(is_hit);
            }
            if residents > begin {
                while residents > end {
                    let evicted = policy.evict() as usize;
                    assert!(
                        std::mem::replace(&mut is_resident[evicted], false),
                        "it evicts what is in memory"
                    );
                    residents -= 1;
                }
            }
        }
        (all, hot)
    }
}

/// Reads, and those that found their leaf in memory.
#[derive(Clone, Copy, Default)]
struct Rate {
    reads: u64,
    hits: u64,
}

impl Rate {
    fn count(&mut self, is_hit: bool) {
        self.reads += 1;
        self.hits += u64::from(is_hit);
    }

    fn percent(self) -> f64 {
        100.0 * self.hits as f64 / self.reads as f64
    }
}

fn print(what: &str, cache: u32, rates: &[Rate]) {
    print!("| {what} | {cache} % |");
    rates.iter().for_each(|rate| print!(" {:.1} |", rate.percent()));
    println!();
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let leaves = u32::try_from(args.next().unwrap_or(4_000)).expect("a number of leaves");
    let steps = args.next().unwrap_or(500_000) as usize;
    let seed = args.next().unwrap_or(1);
    assert!(leaves >= 400 && steps >= 1, "a tenth of the leaves is a cache of at least 40");
    print!("| trace | cache |");
    COLUMNS.iter().for_each(|column| print!(" {} |", column.name));
    println!("\n|---|---|{}", "---|".repeat(COLUMNS.len()));
    let mut sums = [0.0; COLUMNS.len()];
    for (name, make) in TRACES {
        for percent in CACHES {
            let cache = leaves * percent / 100;
            let steps = make(Maker::new(leaves, steps, cache / 2, seed));
            let limits = Limits { begin: (cache * 15 / 16) as usize, end: (cache * 14 / 16) as usize };
            let (all, hot): (Vec<Rate>, Vec<Rate>) =
                COLUMNS.iter().map(|column| column.run(&steps, limits)).unzip();
            assert!(all.iter().all(|rate| rate.hits <= all[0].hits), "{name}: better than the optimum");
            print(name, percent, &all);
            if hot[0].reads > 0 {
                print(&format!("{name}: hot reads alone"), percent, &hot);
            }
            sums.iter_mut().zip(&all).for_each(|(sum, rate)| *sum += rate.percent());
        }
    }
    print!("| mean of all reads | |");
    sums.iter().for_each(|sum| print!(" {:.1} |", sum / (TRACES.len() * CACHES.len()) as f64));
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hits of a column on reads, in a cache of so many leaves that evicts one at a time.
    fn hits(name: &str, leaves: impl Iterator<Item = u32>, cache: usize) -> u64 {
        let steps: Vec<Step> = leaves.map(|leaf| Step { leaf, kind: Kind::Read }).collect();
        let column = COLUMNS.iter().find(|column| column.name == name).unwrap();
        column.run(&steps, Limits { begin: cache, end: cache }).0.hits
    }

    #[test]
    fn a_loop_one_leaf_larger_than_the_cache() {
        let reads = || (0..5_000).map(|n| n % 101);
        assert_eq!((hits("LRU", reads(), 100), hits("clock", reads(), 100)), (0, 0));
        // After the first round it misses once for every hundred hits, and drops the leaf that it just read.
        assert_eq!(hits("optimum", reads(), 100), 5_000 - 101 - (5_000 - 101) / 101);
    }

    #[test]
    fn a_cache_that_holds_all_leaves_misses_each_once() {
        for column in &COLUMNS {
            assert_eq!(hits(column.name, (0..5_000).map(|n| n * 7 % 101), 101), 5_000 - 101);
        }
    }

    #[test]
    fn each_evicts_what_it_should() {
        // LRU evicts 1 for 2; the optimum 2, at once.
        let reads = || [0, 1, 0, 2, 0, 1].into_iter();
        assert_eq!((hits("LRU", reads(), 2), hits("optimum", reads(), 2)), (2, 3));
        // S3-FIFO remembers 0 when it comes back, and the scan passes through the small queue.
        let reads = || [0].into_iter().chain(1..30).chain([0]).chain(40..80).chain([0]);
        assert_eq!((hits("S3-FIFO", reads(), 20), hits("LRU", reads(), 20)), (1, 0));
        // One read more than that which loaded it keeps a leaf for two rounds of the hand.
        let reads = || [0, 0].into_iter().chain(1..12).chain([0]);
        assert_eq!((hits("two chances", reads(), 4), hits("LRU", reads(), 4)), (2, 1));
    }
}
