//! `mvcc-vs-lock`: writers that hold their rows, and readers that read the same rows or others.

use std::collections::BTreeMap;
use std::ops::Range;

use super::rows::{Random, Sizes, expect_rows, write_key};
use super::sealed::{Seal, check_seals, expect_row, fill_sealed};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Store, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// The workloads B1 to B3 that FlashTKV compares multiple versions and locks with (Table V; measured in Fig. 7).
///
/// The first of the threads write, at least one of them, and the others read. Writer w has a hundred pairs of its own,
/// those from 100 w on (fewer, if there are not enough for all writers), and each transaction overwrites all of them.
/// So no two writers conflict. Each operation of a reader reads one pair in a transaction that only reads; all pairs
/// from the first to the last of its range are equally likely. Each client does a fixed number of operations, and the
/// time until the last one is done is the result.
///
/// The paper does not say where the writers' pairs are, nor how many of them a transaction updates. Here they are at
/// the lower end, because only then do readers meet writers more often as the range becomes narrower: with ten writers,
/// all reads of [`Conflicts::B3`] are of pairs that are being written. And a transaction updates all of them, so that
/// the check can detect a transaction that took effect in part.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MvccVsLock {
    /// How much readers get in the way of writers.
    pub conflicts: Conflicts,
    /// The pairs, at least ten and as many as there are writers.
    pub pairs: u64,
    /// How long keys and values are: values at least 24.
    pub sizes: Sizes,
    /// How many of a hundred threads write, 0 to 100. At least one writes, and if there are two and this is below 100,
    /// at least one reads.
    pub writers_percent: u32,
    /// How many transactions each writer does.
    pub writes: u64,
    /// How many each reader does.
    pub reads: u64,
}

/// How much readers get in the way of writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conflicts {
    /// Little: readers take the first 8,000 of 10,000 pairs.
    B1,
    /// More: the first 4,000.
    B2,
    /// Much: the first 1,000.
    B3,
}

impl Conflicts {
    /// All of them.
    pub const ALL: [Conflicts; 3] = [Conflicts::B1, Conflicts::B2, Conflicts::B3];

    fn tenths_read(self) -> u64 {
        match self {
            Conflicts::B1 => 8,
            Conflicts::B2 => 4,
            Conflicts::B3 => 1,
        }
    }
}

const WRITE: usize = 0;
const READ: usize = 1;
/// Most pairs of a writer.
const PAIRS_OF_WRITER: u64 = 100;

impl MvccVsLock {
    /// The paper's pairs; half of the threads write.
    pub fn new(conflicts: Conflicts, writes: u64, reads: u64) -> MvccVsLock {
        let sizes = Sizes { key_bytes: 20, value_bytes: 80 };
        MvccVsLock { conflicts, pairs: 10_000, sizes, writers_percent: 50, writes, reads }
    }

    /// The pairs that readers take, from the first one on.
    fn pairs_read(&self) -> u64 {
        self.pairs * self.conflicts.tenths_read() / 10
    }

    fn writers(&self, threads: u32) -> u32 {
        let percent = self.writers_percent;
        let most = if percent < 100 { (threads - 1).max(1) } else { threads };
        ((u64::from(threads) * u64::from(percent)).div_ceil(100) as u32).clamp(1, most)
    }
}

impl Workload for MvccVsLock {
    fn shape(&self) -> Shape {
        let MvccVsLock { conflicts, pairs, sizes, writers_percent, writes, reads } = *self;
        let writers = u64::from(writers_percent.max(1));
        let [all_writes, all_reads] = [writes * writers, reads * (100 - writers)];
        Shape {
            name: match conflicts {
                Conflicts::B1 => "mvcc-vs-lock-b1",
                Conflicts::B2 => "mvcc-vs-lock-b2",
                Conflicts::B3 => "mvcc-vs-lock-b3",
            },
            about: format!(
                "{pairs} pairs, {sizes}, {writers_percent} % of the threads write {writes} times {PAIRS_OF_WRITER} pairs \
                 each, the others read {reads} of the first {} pairs each",
                self.pairs_read()
            ),
            tables: &["pairs"],
            kinds: &["write", "read"],
            loaded_bytes: pairs * sizes.row_bytes(),
            bytes_per_operation: PAIRS_OF_WRITER * sizes.row_bytes() * all_writes
                / (all_writes + all_reads).max(1),
            ..Shape::default()
        }
    }

    fn work(&self, threads: u32) -> Option<u64> {
        let writers = self.writers(threads);
        Some(u64::from(writers) * self.writes + u64::from(threads - writers) * self.reads)
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        fill_sealed(store, self.sizes, self.pairs, filling)
    }

    fn client(&self, thread: u32, threads: u32) -> Box<dyn Client> {
        let MvccVsLock { pairs, sizes, writes, reads, .. } = *self;
        let key = vec![0; sizes.key_bytes];
        let writers = self.writers(threads);
        if thread >= writers {
            return Box::new(Reader {
                left: reads,
                pairs: self.pairs_read(),
                random: Random::new(u64::from(thread) << 32),
                key,
                value: Vec::new(),
            });
        }
        let width = (pairs / u64::from(writers)).clamp(1, PAIRS_OF_WRITER);
        Box::new(Writer {
            number: thread.into(),
            done: 0,
            all: writes,
            pairs: u64::from(thread) * width..(u64::from(thread) + 1) * width,
            key,
            value: vec![0; sizes.value_bytes],
        })
    }

    /// All pairs are there, each with a value of its own. Those of a writer are all from one of its transactions; the
    /// numbers of these transactions add up to the acknowledged ones.
    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let MvccVsLock { pairs, sizes, .. } = *self;
        let mut written = BTreeMap::new();
        let mut key_of_pair = vec![0; sizes.key_bytes];
        let found = check_seals(store, "pairs", |key, seal| {
            if let Some(stamp) = Stamp::of(seal.write) {
                written.entry(stamp.writer).or_insert_with(Vec::new).push((seal.row, stamp));
            }
            write_key(&mut key_of_pair, seal.row);
            key == key_of_pair && seal.row < pairs
        })?;
        expect_rows("pairs", found, pairs)?;
        let mut transactions = 0;
        for (writer, pairs) in written {
            let stamp = pairs[0].1;
            transactions += stamp.transaction;
            let rows = writer * stamp.width..(writer + 1) * stamp.width;
            if !pairs.into_iter().eq(rows.map(|row| (row, stamp))) {
                return Err(Error::Wrong(format!("a transaction of writer {writer} is there in part only")));
            }
        }
        match done.map(|done| done.kinds[WRITE]) {
            Some(acknowledged) if acknowledged != transactions => Err(Error::Wrong(format!(
                "the writers did {acknowledged} transactions, and the pairs are of number {transactions}"
            ))),
            _ => Ok(()),
        }
    }
}

struct Writer {
    number: u64,
    /// Transactions.
    done: u64,
    all: u64,
    pairs: Range<u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The number of a pair's write, packed: the writer's number from 1 in the upper bits, then the number of its pairs (8
/// bits) and that of the transaction from 1 (32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    writer: u64,
    width: u64,
    transaction: u64,
}

impl Stamp {
    fn pack(self) -> u64 {
        (self.writer + 1) << 40 | self.width << 32 | self.transaction
    }

    /// `None` for a pair as it was loaded.
    fn of(write: u64) -> Option<Stamp> {
        let writer = (write >> 40).checked_sub(1)?;
        Some(Stamp { writer, width: write >> 32 & 0xff, transaction: write & 0xffff_ffff })
    }
}

impl Client for Writer {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        if self.done == self.all {
            return Ok(Step::End);
        }
        self.done += 1;
        let width = self.pairs.end - self.pairs.start;
        let write = Stamp { writer: self.number, width, transaction: self.done }.pack();
        session.write(|open| {
            for row in self.pairs.clone() {
                write_key(&mut self.key, row);
                Seal { row, write }.write_over(&mut self.value);
                open.put(0, &self.key, &self.value)?;
            }
            Ok(Verdict::Commit)
        })?;
        Ok(Step::Done(WRITE))
    }
}

struct Reader {
    /// Reads.
    left: u64,
    pairs: u64,
    random: Random,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client for Reader {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        if self.left == 0 {
            return Ok(Step::End);
        }
        self.left -= 1;
        let pair = self.random.below(self.pairs);
        write_key(&mut self.key, pair);
        session.read(|open| {
            let found = open.get(0, &self.key, &mut self.value)?;
            expect_row(found, &self.key, &self.value, pair)
        })?;
        Ok(Step::Done(READ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{checked, tamper};

    fn small(conflicts: Conflicts) -> MvccVsLock {
        MvccVsLock { pairs: 1000, ..MvccVsLock::new(conflicts, 20, 300) }
    }

    #[test]
    fn writers_and_readers_do_their_operations() {
        for conflicts in Conflicts::ALL {
            for (threads, done) in [(1, [20, 0]), (4, [40, 600])] {
                assert_eq!(checked(&small(conflicts), threads, u64::MAX).2.kinds, done);
            }
        }
    }

    #[test]
    fn threads_are_shared_out() {
        let writers = |writers_percent, threads| {
            MvccVsLock { writers_percent, ..small(Conflicts::B1) }.writers(threads)
        };
        assert_eq!([1, 2, 3, 4, 10].map(|threads| writers(50, threads)), [1, 1, 2, 2, 5]);
        assert_eq!([1, 2, 10].map(|threads| writers(0, threads)), [1, 1, 1]);
        assert_eq!([1, 2, 10].map(|threads| writers(99, threads)), [1, 1, 9]);
        assert_eq!([1, 2, 10].map(|threads| writers(100, threads)), [1, 2, 10]);
    }

    #[test]
    fn a_transaction_in_part_or_too_few_are_noticed() {
        let workload = small(Conflicts::B3);
        let (_dir, store, mut done) = checked(&workload, 4, 10);
        assert_eq!(done.kinds[WRITE], 20);
        done.kinds[WRITE] += 1;
        assert!(workload.check(&*store, Some(&done)).is_err(), "an acknowledged transaction is missing");
        let older = Stamp { writer: 1, width: 100, transaction: 9 };
        assert_eq!(Stamp::of(older.pack()), Some(older));
        for write in [older.pack(), 0] {
            let mut value = vec![0; 80];
            Seal { row: 199, write }.write_over(&mut value);
            tamper(&store, |open| open.put(0, b"00000000000000000199", &value));
            assert!(workload.check(&*store, None).is_err(), "a pair of an older transaction");
        }
        tamper(&store, |open| open.delete(0, b"00000000000000000999"));
        assert!(workload.check(&*store, None).is_err(), "a pair is gone");
    }
}
