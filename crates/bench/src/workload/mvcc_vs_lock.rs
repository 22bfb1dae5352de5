//! `mvcc-vs-lock`: writers that hold their rows, and readers that read the same rows or others.

use std::collections::BTreeMap;

use super::rows::{Random, Sizes, expect_rows, write_key};
use super::sealed::{Seal, check_seals, expect_row, fill_sealed};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Store, Verdict};
use crate::{Error, Result};

/// The workloads B1 to B3 that FlashTKV compares multiple versions and locks with (Table V; measured in Fig. 7).
///
/// The first half of the threads write, at least one of them, and the others read. Writer w has a hundred pairs of its
/// own, those from 100 w on (fewer, if there are not enough for all writers), and each transaction overwrites all of
/// them. So no two writers conflict. Each operation of a reader reads one pair in a transaction that only reads; all
/// pairs from the first to the last of its range are equally likely. Each client does a fixed number of operations, and
/// the time until the last one is done is the result.
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
    /// How many transactions each writer does.
    pub writes: u64,
    /// How many each reader does.
    pub reads: u64,
}

/// How much readers get in the way of writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 80 };
/// Most pairs of a writer.
const PAIRS_OF_WRITER: u64 = 100;

impl MvccVsLock {
    /// The paper's pairs.
    pub fn new(conflicts: Conflicts, writes: u64, reads: u64) -> MvccVsLock {
        MvccVsLock { conflicts, pairs: 10_000, writes, reads }
    }

    /// The pairs that readers take, from the first one on.
    fn pairs_read(&self) -> u64 {
        self.pairs * self.conflicts.tenths_read() / 10
    }
}

/// How many of the threads write.
fn writers(threads: u32) -> u32 {
    threads.div_ceil(2)
}

impl Workload for MvccVsLock {
    fn shape(&self) -> Shape {
        let MvccVsLock { conflicts, pairs, writes, reads } = *self;
        Shape {
            name: format!("mvcc-vs-lock-{conflicts:?}").to_lowercase(),
            about: format!(
                "{pairs} pairs, {SIZES}, 50 % of the threads write {writes} times {PAIRS_OF_WRITER} pairs each, \
                 the others read {reads} of the first {} pairs each",
                self.pairs_read()
            ),
            tables: &["pairs"],
            kinds: &["write", "read"],
            loaded_bytes: pairs * SIZES.row_bytes(),
            bytes_per_operation: PAIRS_OF_WRITER * SIZES.row_bytes() * writes / (writes + reads).max(1),
            ..Shape::default()
        }
    }

    fn work(&self, threads: u32) -> Option<u64> {
        let writers = writers(threads);
        Some(u64::from(writers) * self.writes + u64::from(threads - writers) * self.reads)
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        fill_sealed(store, SIZES, 0..self.pairs, filling, write_key)
    }

    fn client(&self, thread: u32, threads: u32) -> Client {
        let writers = writers(threads);
        if thread >= writers {
            return self.reader(thread);
        }
        self.writer(thread.into(), (self.pairs / u64::from(writers)).clamp(1, PAIRS_OF_WRITER))
    }

    /// All pairs are there, each with a value of its own. Those of a writer are all from one of its transactions; the
    /// numbers of these transactions add up to the acknowledged ones.
    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let pairs = self.pairs;
        let mut written = BTreeMap::new();
        let mut key_of_pair = [0; SIZES.key_bytes];
        let found = check_seals(store, 0, "pairs", |key, seal| {
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

impl MvccVsLock {
    /// The writer of this number, which has `width` pairs.
    fn writer(&self, writer: u64, width: u64) -> Client {
        let (mut key, mut value) = ([0; SIZES.key_bytes], [0; SIZES.value_bytes]);
        let mut transactions = 1..=self.writes;
        Box::new(move |session| {
            let Some(transaction) = transactions.next() else { return Ok(Step::End) };
            let write = Stamp { writer, width, transaction }.pack();
            session.write(|open| {
                for row in writer * width..(writer + 1) * width {
                    write_key(&mut key, row);
                    Seal { row, write }.write_over(&mut value);
                    open.put(0, &key, &value)?;
                }
                Ok(Verdict::Commit)
            })?;
            Ok(Step::Done(WRITE))
        })
    }

    fn reader(&self, thread: u32) -> Client {
        let (mut left, pairs) = (self.reads, self.pairs_read());
        let mut random = Random::new(u64::from(thread) << 32);
        let (mut key, mut value) = ([0; SIZES.key_bytes], Vec::new());
        Box::new(move |session| {
            if left == 0 {
                return Ok(Step::End);
            }
            left -= 1;
            let pair = random.below(pairs);
            write_key(&mut key, pair);
            session.read(|open| {
                let found = open.get(0, &key, &mut value)?;
                expect_row(found, &key, &value, pair)
            })?;
            Ok(Step::Done(READ))
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;

    fn small(conflicts: Conflicts) -> MvccVsLock {
        MvccVsLock { pairs: 1000, ..MvccVsLock::new(conflicts, 20, 300) }
    }

    #[test]
    fn writers_and_readers_do_their_operations() {
        for conflicts in Conflicts::ALL {
            for (threads, done) in [(1, [20, 0]), (4, [40, 600])] {
                assert_eq!(Bed::checked(small(conflicts), threads, u64::MAX).1.kinds, done);
            }
        }
    }

    #[test]
    fn threads_are_shared_out() {
        assert_eq!([1, 2, 3, 4, 10].map(writers), [1, 1, 2, 2, 5]);
    }

    #[test]
    fn a_transaction_in_part_or_too_few_are_noticed() {
        let (bed, mut done) = Bed::checked(small(Conflicts::B3), 4, 10);
        assert_eq!(done.kinds[WRITE], 20);
        done.kinds[WRITE] += 1;
        assert!(bed.check(Some(&done)).is_err(), "an acknowledged transaction is missing");
        let older = Stamp { writer: 1, width: 100, transaction: 9 };
        assert_eq!(Stamp::of(older.pack()), Some(older));
        for write in [older.pack(), 0] {
            let mut value = vec![0; 80];
            Seal { row: 199, write }.write_over(&mut value);
            bed.tamper(|open| open.put(0, b"00000000000000000199", &value));
            assert!(bed.check(None).is_err(), "a pair of an older transaction");
        }
        bed.tamper(|open| open.delete(0, b"00000000000000000999"));
        assert!(bed.check(None).is_err(), "a pair is gone");
    }
}
