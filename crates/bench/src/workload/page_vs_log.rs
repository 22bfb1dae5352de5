//! `page-vs-log`: ten retrievals and updates a transaction, in five mixes.

use super::rows::{Random, Sizes, write_key};
use super::sealed::{Seal, Writes, check_sealed, expect_row, fill_sealed};
use super::{Client, Done, Filling, Step, Workload};
use crate::Result;
use crate::engine::{Needs, Store, Verdict};
use crate::retrying_session::{Open, RetryingSession};

/// The workloads A1 to A5 that FlashTKV compares page-based and sequential storage with (Table IV; measured in Fig. 5).
///
/// Each transaction does ten operations on pairs with random keys, all equally likely. An operation reads the pair, or
/// updates it by a blind write. The updates are spread evenly, so that of each hundred operations of a client exactly
/// as many are updates as the mix says. A transaction without updates, like all of [`Updates::A1`], is one that only
/// reads. The reads are in the same transaction as the updates. A transaction that conflicts with another is retried;
/// in the paper there is one thread, and no conflicts.
#[derive(Clone, Copy, Debug)]
pub struct PageVsLog {
    updates: Updates,
    sizes: Sizes,
    pairs: u64,
    bounded: bool,
}

/// The mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Updates {
    /// Retrievals only.
    A1,
    /// A quarter are updates.
    A2,
    /// Half are updates.
    A3,
    /// Three quarters are updates.
    A4,
    /// Updates only.
    A5,
}

impl Updates {
    /// All of them.
    pub const ALL: [Updates; 5] = [Updates::A1, Updates::A2, Updates::A3, Updates::A4, Updates::A5];

    fn percent(self) -> u64 {
        match self {
            Updates::A1 => 0,
            Updates::A2 => 25,
            Updates::A3 => 50,
            Updates::A4 => 75,
            Updates::A5 => 100,
        }
    }
}

const OPERATIONS: usize = 10;

impl PageVsLog {
    /// About 100 bytes a pair: the paper's have 10 GB for 100 million pairs.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 80 };
    /// The shortest value, in bytes.
    pub const VALUE_BYTES_MIN: usize = Seal::VALUE_BYTES_MIN;
    /// How many pairs the paper has, beside a buffer of 2 GB.
    pub const PAIRS_PAPER: u64 = 100_000_000;
    /// A hundredth of that: with a hundredth of the buffer, 20 MB, the same share of it is in memory.
    pub const PAIRS: u64 = PageVsLog::PAIRS_PAPER / 100;

    /// The workload on `pairs` pairs, at least one, of that size. If it is `bounded`, engines must keep to their memory
    /// limit, as the paper's do.
    pub fn new(updates: Updates, sizes: Sizes, pairs: u64, bounded: bool) -> PageVsLog {
        PageVsLog { updates, sizes, pairs, bounded }
    }
}

impl Workload for PageVsLog {
    fn name(&self) -> &'static str {
        match self.updates {
            Updates::A1 => "page-vs-log-a1",
            Updates::A2 => "page-vs-log-a2",
            Updates::A3 => "page-vs-log-a3",
            Updates::A4 => "page-vs-log-a4",
            Updates::A5 => "page-vs-log-a5",
        }
    }

    fn about(&self) -> String {
        let Sizes { key_bytes, value_bytes } = self.sizes;
        format!(
            "{} pairs, {key_bytes}-byte keys, {value_bytes}-byte values, {OPERATIONS} operations a transaction, \
             {} % updates{}",
            self.pairs,
            self.updates.percent(),
            if self.bounded { ", bounded memory" } else { "" }
        )
    }

    fn tables(&self) -> &'static [&'static str] {
        &["pairs"]
    }

    fn needs(&self) -> Needs {
        Needs { transactions: true, bounded_memory: self.bounded, ..Needs::default() }
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["transaction"]
    }

    fn loaded_bytes(&self) -> u64 {
        self.pairs * self.sizes.row_bytes()
    }

    fn bytes_per_operation(&self) -> u64 {
        OPERATIONS as u64 * self.sizes.row_bytes() * self.updates.percent() / 100
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        fill_sealed(store, self.sizes, self.pairs, filling)
    }

    fn client(&self, thread: u32, _: u32) -> Box<dyn Client> {
        Box::new(PageVsLogClient {
            workload: *self,
            random: Random::new(u64::from(thread) << 32),
            writes: Writes::of(thread),
            spread: 0,
            key: vec![0; self.sizes.key_bytes],
            value: vec![0; self.sizes.value_bytes],
        })
    }

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        check_sealed(store, "pairs", self.pairs)
    }

    fn live_bytes(&self, _: &Done) -> Option<u64> {
        Some(self.loaded_bytes())
    }
}

struct PageVsLogClient {
    workload: PageVsLog,
    random: Random,
    writes: Writes,
    /// The update that is due, in hundredths.
    spread: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Operation {
    Retrieve { pair: u64 },
    Update { pair: u64, write: u64 },
}

impl Client for PageVsLogClient {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        let operations = [(); OPERATIONS].map(|()| self.choose());
        if operations.iter().all(|operation| matches!(operation, Operation::Retrieve { .. })) {
            session.read(|open| self.run(open, &operations))?;
        } else {
            session.write(|open| self.run(open, &operations).map(|()| Verdict::Commit))?;
        }
        Ok(Step::Done(0))
    }
}

impl PageVsLogClient {
    fn choose(&mut self) -> Operation {
        let pair = self.random.below(self.workload.pairs);
        self.spread += self.workload.updates.percent();
        if self.spread < 100 {
            return Operation::Retrieve { pair };
        }
        self.spread -= 100;
        Operation::Update { pair, write: self.writes.next() }
    }

    fn run(&mut self, open: &mut Open<'_>, operations: &[Operation]) -> Result<()> {
        for operation in operations {
            match *operation {
                Operation::Retrieve { pair } => {
                    write_key(&mut self.key, pair);
                    let found = open.get(0, &self.key, &mut self.value)?;
                    expect_row(found, &self.key, &self.value, pair)?;
                }
                Operation::Update { pair, write } => {
                    write_key(&mut self.key, pair);
                    self.value.resize(self.workload.sizes.value_bytes, 0);
                    Seal { row: pair, write }.write_over(&mut self.value);
                    open.put(0, &self.key, &self.value)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{checked, tamper};

    fn small(updates: Updates) -> PageVsLog {
        PageVsLog::new(updates, PageVsLog::SIZES, 1000, false)
    }

    #[test]
    fn all_mixes_leave_all_pairs() {
        for updates in Updates::ALL {
            for threads in [1, 4] {
                let (_dir, _store, done) = checked(&small(updates), threads, 100);
                assert_eq!(done.kinds, [100 * u64::from(threads)]);
            }
        }
    }

    #[test]
    fn updates_are_as_many_as_the_mix_says() {
        for updates in Updates::ALL {
            let mut client = PageVsLogClient {
                workload: small(updates),
                random: Random::new(1),
                writes: Writes::of(0),
                spread: 0,
                key: Vec::new(),
                value: Vec::new(),
            };
            let is_update = |_: &u64| matches!(client.choose(), Operation::Update { .. });
            assert_eq!((0..10_000).filter(is_update).count() as u64, updates.percent() * 100);
        }
    }

    #[test]
    fn a_pair_that_is_lost_or_torn_is_noticed() {
        let workload = small(Updates::A3);
        let (_dir, store, done) = checked(&workload, 1, 10);
        let mut value = vec![0; 80];
        Seal { row: 3, write: 9 }.write_over(&mut value);
        tamper(&store, |open| open.put(0, b"00000000000000000003", &value));
        workload.check(&*store, Some(&done)).expect("a value of this pair");
        tamper(&store, |open| open.put(0, b"00000000000000000004", &value));
        assert!(workload.check(&*store, Some(&done)).is_err(), "the value of another pair");
        tamper(&store, |open| open.delete(0, b"00000000000000000004"));
        assert!(workload.check(&*store, Some(&done)).is_err(), "a pair is gone");
    }
}
