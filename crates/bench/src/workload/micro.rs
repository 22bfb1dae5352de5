//! Operations on single rows of one table, in several mixes: `insert`, `update-search`, `read`, `overwrite-steady`,
//! `wisckey`, `page-vs-log`.

use serde::{Deserialize, Serialize};

use super::choose::Chooser;
use super::rows::{Random, Sizes, check_rows, expect_rows, fill, write_key};
use super::sealed::{Seal, Writes, check_seals, expect_row, missing};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Needs, Store, Transaction, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// Reads and blind writes of single rows, all rows equally likely, by a [`MicroMix`].
///
/// Keys are the numbers of the rows in decimal where the mix does not say otherwise. Values are sealed, but those of
/// [`MicroMix::Insert`] and [`MicroMix::UpdateSearch`] are random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Micro {
    /// How long keys and values are: sealed values at least [`Micro::VALUE_BYTES_MIN`].
    pub sizes: Sizes,
    /// The loaded rows, at least one.
    pub rows: u64,
    /// The operations.
    pub mix: MicroMix,
}

/// The operations of [`Micro`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MicroMix {
    /// Each transaction writes one row with a new key into a table that was empty: the micro-benchmark of Son, Yeom and
    /// Han (2017), Fig. 5a and Table 1. No row is loaded.
    ///
    /// The threads take turns at the end of the key space: the n-th row of thread t of T is row n * T + t. The write
    /// does not check whether the key exists, as WiredTiger's inserts do not by default.
    Insert,
    /// A coin decides whether a transaction overwrites a row or a single get reads it: the micro-benchmark of Son, Yeom
    /// and Han (2017), Fig. 5b.
    UpdateSearch,
    /// Single gets outside of any transaction, as `readrandom` and `readmissing` of LevelDB's benchmark are.
    ///
    /// Row n has the key 2n. A miss is a get of the odd key after a row, which does not exist. So missing keys are between
    /// existing ones, and only a filter or a lookup shows that they do not exist.
    Read {
        /// How many of a hundred find nothing, 0 to 100.
        miss_percent: u64,
    },
    /// Overwrites until the run ends, as `overwrite` of LevelDB's benchmark.
    ///
    /// The live bytes never change. So the size of the store on disk over time shows how much of it is garbage, and the
    /// rate shows the cost of collecting it.
    Overwrite {
        /// The rows of a transaction, at least one.
        batch: u64,
        /// Which rows.
        distribution: Distribution,
        /// The shortest value: those of the rows have from so many bytes to [`Sizes::value_bytes`], as many of twice a length as of the
        /// length. Each row keeps its own. None: all have the latter.
        least_value_bytes: Option<usize>,
    },
    /// The writes that WiscKey with a buffer in NVDIMM was measured with (Section 5.1 of that paper; Fig. 5 to 8): values
    /// of 4 KiB under random keys of 8 bytes, each a transaction of its own.
    ///
    /// The paper does not say whether its keys were new; here none is, so that the number of live bytes is known. The
    /// paper compares a sync for each write with none: a level of the store.
    WiscKey {
        /// Of all threads together: a client is done after its share, and the time until the last one is done is the
        /// result.
        writes: u64,
    },
    /// The workloads A1 to A5 that FlashTKV compares page-based and sequential storage with (Table IV; measured in Fig.
    /// 5): ten reads and blind writes a transaction.
    ///
    /// The updates are spread evenly, so that of each hundred operations of a client exactly as many are updates as
    /// [`Updates`] says. A transaction without updates is one that only reads. A transaction that conflicts with another
    /// is retried; in the paper there is one thread, and no conflicts.
    PageVsLog {
        /// The share of updates.
        updates: Updates,
        /// Whether engines must keep to their memory limit, as the paper's do.
        bounded: bool,
    },
}

/// How the rows of [`MicroMix::Overwrite`] are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Distribution {
    /// All of them equally likely.
    Uniform,
    /// As YCSB does: Zipfian with 0.99, the popular ones spread over all.
    Zipfian,
}

/// How many operations of [`MicroMix::PageVsLog`] are updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Updates {
    /// None.
    A1,
    /// A quarter.
    A2,
    /// Half.
    A3,
    /// Three quarters.
    A4,
    /// All.
    A5,
}

impl Updates {
    /// All of them.
    pub const ALL: [Updates; 5] = [Updates::A1, Updates::A2, Updates::A3, Updates::A4, Updates::A5];

    fn percent(self) -> u64 {
        25 * self as u64
    }
}

/// The operations of a transaction of [`MicroMix::PageVsLog`].
const OPERATIONS: usize = 10;

impl Micro {
    /// 20-byte keys, 100-byte values.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 100 };
    /// The shortest sealed value, in bytes.
    pub const VALUE_BYTES_MIN: usize = Seal::VALUE_BYTES_MIN;
    /// The writes of [`MicroMix::WiscKey`] in the paper.
    pub const WISCKEY_WRITES: u64 = 262_144;
    /// 1 GiB of values of [`MicroMix::WiscKey`]. The paper loads 8 GB.
    pub const WISCKEY_PAIRS: u64 = 262_144;
    /// A hundredth of the pairs of FlashTKV: with a hundredth of its buffer, 20 MB, the same share of them is in memory.
    pub const PAGE_VS_LOG_PAIRS: u64 = 1_000_000;

    /// Overwrites of single rows, all equally likely.
    pub const OVERWRITE: MicroMix =
        MicroMix::Overwrite { batch: 1, distribution: Distribution::Uniform, least_value_bytes: None };

    /// [`MicroMix::WiscKey`] on pairs of the paper's size.
    pub fn wisckey(rows: u64, writes: u64) -> Micro {
        let sizes = Sizes { key_bytes: 8, value_bytes: 4096 };
        Micro { sizes, rows, mix: MicroMix::WiscKey { writes } }
    }

    /// [`MicroMix::PageVsLog`] on pairs of about 100 bytes: the paper's have 10 GB for 100 million pairs.
    pub fn page_vs_log(updates: Updates, rows: u64, bounded: bool) -> Micro {
        let sizes = Sizes { key_bytes: 20, value_bytes: 80 };
        Micro { sizes, rows, mix: MicroMix::PageVsLog { updates, bounded } }
    }

    fn is_sealed(&self) -> bool {
        !matches!(self.mix, MicroMix::Insert | MicroMix::UpdateSearch)
    }

    /// The length of the values of a row.
    fn value_bytes(&self, row: u64) -> usize {
        let most = self.sizes.value_bytes;
        let MicroMix::Overwrite { least_value_bytes: Some(least), .. } = self.mix else { return most };
        let octaves = (most as f64 / least as f64).log2();
        let bytes = least as f64 * (octaves * Random::new(row ^ 0x5eed).unit()).exp2();
        (bytes as usize).clamp(least, most)
    }

    /// The bytes of all keys and values.
    fn loaded_bytes(&self) -> u64 {
        if !matches!(self.mix, MicroMix::Overwrite { least_value_bytes: Some(_), .. }) {
            return self.rows * self.sizes.row_bytes();
        }
        (0..self.rows).map(|row| (self.sizes.key_bytes + self.value_bytes(row)) as u64).sum()
    }

    fn write_key(&self, key: &mut [u8], row: u64) {
        match self.mix {
            MicroMix::Read { .. } => write_key(key, row.saturating_mul(2)),
            // No two rows have the same key, because each step of `Random::next` is invertible.
            MicroMix::WiscKey { .. } => key.copy_from_slice(&Random::new(row).next().to_be_bytes()),
            _ => write_key(key, row),
        }
    }
}

impl Workload for Micro {
    fn shape(&self) -> Shape {
        let Micro { sizes, rows, mix } = *self;
        let row_bytes = sizes.row_bytes();
        let rows_of = |name: &str, kinds, about, bytes_per_operation| Shape {
            name: name.to_string(),
            about,
            tables: &["rows"],
            kinds,
            loaded_bytes: self.loaded_bytes(),
            bytes_per_operation,
            ..Shape::default()
        };
        let plain = format!("{rows} rows, {sizes}");
        match mix {
            MicroMix::Insert => {
                Shape { loaded_bytes: 0, ..rows_of("insert", &["insert"], sizes.to_string(), row_bytes) }
            }
            MicroMix::UpdateSearch => rows_of("update-search", &["update", "search"], plain, row_bytes / 2),
            MicroMix::Read { miss_percent } => {
                rows_of("read", &["hit", "miss"], format!("{plain}, {miss_percent} % misses"), 0)
            }
            MicroMix::Overwrite { batch, distribution, least_value_bytes } => {
                let row_bytes = least_value_bytes.map_or(row_bytes, |_| self.loaded_bytes() / rows);
                let plain = least_value_bytes
                    .map_or(plain.clone(), |least| format!("{plain} at most, {least} at least"));
                let chosen = if distribution == Distribution::Uniform { "uniform" } else { "zipfian" };
                let about = format!("{plain}, {chosen}, {batch} rows a transaction");
                Shape {
                    is_steady: true,
                    ..rows_of("overwrite-steady", &["overwrite"], about, batch * row_bytes)
                }
            }
            MicroMix::WiscKey { writes } => {
                let about = format!("{writes} writes over {rows} pairs, {sizes}");
                Shape { tables: &["pairs"], ..rows_of("wisckey", &["put"], about, row_bytes) }
            }
            MicroMix::PageVsLog { updates, bounded } => {
                let percent = updates.percent();
                let memory = if bounded { ", bounded memory" } else { "" };
                let about = format!(
                    "{rows} pairs, {sizes}, {OPERATIONS} operations a transaction, {percent} % updates{memory}"
                );
                let name = format!("page-vs-log-{updates:?}").to_lowercase();
                Shape {
                    tables: &["pairs"],
                    needs: Needs { transactions: true, bounded_memory: bounded, ..Needs::default() },
                    ..rows_of(&name, &["transaction"], about, OPERATIONS as u64 * row_bytes * percent / 100)
                }
            }
        }
    }

    fn work(&self, _: u32) -> Option<u64> {
        if let MicroMix::WiscKey { writes } = self.mix { Some(writes) } else { None }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let rows = if self.mix == MicroMix::Insert { 0 } else { self.rows };
        let mut key = vec![0; self.sizes.key_bytes];
        let mut value = vec![0; self.sizes.value_bytes];
        fill(store, 0..rows, self.sizes.row_bytes(), filling, |row, open| {
            self.write_key(&mut key, row);
            value.resize(self.value_bytes(row), 0);
            match self.is_sealed() {
                true => Seal { row, write: 0 }.write_over(&mut value),
                false => Random::new(row).fill(&mut value),
            }
            open.put(0, &key, &value)
        })
    }

    fn client(&self, thread: u32, threads: u32) -> Client {
        let mut client = MicroClient::new(*self, thread, threads);
        Box::new(move |session| client.step(session))
    }

    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let table = self.shape().tables[0];
        let rows = match (self.mix, done) {
            (MicroMix::Insert, None) => return Ok(()),
            (MicroMix::Insert, Some(done)) => done.operations(),
            _ => self.rows,
        };
        if !self.is_sealed() {
            return check_rows(store, 0, table, rows);
        }
        let is_read_only = matches!(self.mix, MicroMix::Read { .. });
        let mut expected = vec![0; self.sizes.key_bytes];
        let found = check_seals(store, 0, table, |key, seal| {
            self.write_key(&mut expected, seal.row);
            key == expected && seal.row < self.rows && (seal.write == 0 || !is_read_only)
        })?;
        expect_rows(table, found, rows)
    }

    fn live_bytes(&self, done: &Done) -> Option<u64> {
        match self.mix {
            MicroMix::Insert => Some(done.operations() * self.sizes.row_bytes()),
            _ => Some(self.loaded_bytes()),
        }
    }
}

struct MicroClient {
    workload: Micro,
    random: Random,
    /// Of popular rows; none: all of them are equally likely.
    chooser: Option<Chooser>,
    writes: Writes,
    /// The next new row, and the number of threads that take turns.
    next: u64,
    threads: u64,
    /// Writes of [`MicroMix::WiscKey`].
    left: u64,
    /// The update of [`MicroMix::PageVsLog`] that is due, in hundredths.
    due: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A read of a row, or a write with its number.
#[derive(Clone, Copy)]
struct Operation {
    row: u64,
    write: Option<u64>,
}

impl MicroClient {
    fn new(workload: Micro, thread: u32, threads: u32) -> MicroClient {
        let (number, threads) = (u64::from(thread), u64::from(threads));
        let writes = workload.work(0).unwrap_or(0);
        let is_zipfian =
            matches!(workload.mix, MicroMix::Overwrite { distribution: Distribution::Zipfian, .. });
        MicroClient {
            workload,
            random: Random::new(number << 32),
            chooser: is_zipfian.then(|| Chooser::scrambled(workload.rows)),
            writes: Writes::of(thread),
            next: number,
            threads,
            left: writes / threads + u64::from(number < writes % threads),
            due: 0,
            key: vec![0; workload.sizes.key_bytes],
            value: vec![0; workload.sizes.value_bytes],
        }
    }

    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        match self.workload.mix {
            MicroMix::Insert => {
                self.next += self.threads;
                self.put(session, self.next - self.threads)
            }
            MicroMix::UpdateSearch => {
                let row = self.any_row();
                if self.random.below(2) != 0 {
                    return self.put(session, row);
                }
                self.workload.write_key(&mut self.key, row);
                match session.get(0, &self.key, &mut self.value)? {
                    true => Ok(Step::Done(1)),
                    false => Err(missing(&self.key)),
                }
            }
            MicroMix::Read { miss_percent } => self.read(session, miss_percent),
            MicroMix::WiscKey { .. } if self.left == 0 => Ok(Step::End),
            MicroMix::WiscKey { .. } => {
                self.left -= 1;
                let row = self.any_row();
                self.put(session, row)
            }
            MicroMix::Overwrite { batch, .. } => {
                session.write(|open| {
                    (0..batch).try_for_each(|_| self.overwrite(open)).map(|()| Verdict::Commit)
                })?;
                Ok(Step::Done(0))
            }
            MicroMix::PageVsLog { updates, .. } => {
                let operations = [(); OPERATIONS].map(|()| self.choose(updates));
                match operations.iter().all(|operation| operation.write.is_none()) {
                    true => session.read(|open| self.run(open, &operations))?,
                    false => {
                        session.write(|open| self.run(open, &operations).map(|()| Verdict::Commit))?;
                    }
                }
                Ok(Step::Done(0))
            }
        }
    }

    fn any_row(&mut self) -> u64 {
        match &mut self.chooser {
            None => self.random.below(self.workload.rows),
            Some(chooser) => chooser.next(&mut self.random, self.workload.rows),
        }
    }

    fn overwrite(&mut self, open: &mut dyn Transaction) -> Result<()> {
        let row = self.any_row();
        self.workload.write_key(&mut self.key, row);
        self.value.resize(self.workload.value_bytes(row), 0);
        Seal { row, write: self.writes.next() }.write_over(&mut self.value);
        open.put(0, &self.key, &self.value)
    }

    /// A blind write of a row: an operation of the first kind.
    fn put(&mut self, session: &mut RetryingSession<'_>, row: u64) -> Result<Step> {
        self.workload.write_key(&mut self.key, row);
        self.value.resize(self.workload.sizes.value_bytes, 0);
        match self.workload.is_sealed() {
            true => Seal { row, write: self.writes.next() }.write_over(&mut self.value),
            false => self.random.fill(&mut self.value),
        }
        session.write(|open| open.put(0, &self.key, &self.value).map(|()| Verdict::Commit))?;
        Ok(Step::Done(0))
    }

    fn read(&mut self, session: &mut RetryingSession<'_>, miss_percent: u64) -> Result<Step> {
        let row = self.any_row();
        let is_miss = self.random.below(100) < miss_percent;
        write_key(&mut self.key, 2 * row + u64::from(is_miss));
        let found = session.get(0, &self.key, &mut self.value)?;
        match (is_miss, found) {
            (true, false) => Ok(Step::Done(1)),
            (true, true) => {
                let key = String::from_utf8_lossy(&self.key);
                let what = format!("the row {key} is there, though it was never written");
                Err(Error::engine("searching", what))
            }
            (false, _) => expect_row(found, &self.key, &self.value, row).map(|()| Step::Done(0)),
        }
    }

    fn choose(&mut self, updates: Updates) -> Operation {
        let row = self.any_row();
        self.due += updates.percent();
        let is_update = self.due >= 100;
        self.due %= 100;
        Operation { row, write: is_update.then(|| self.writes.next()) }
    }

    fn run(&mut self, open: &mut dyn Transaction, operations: &[Operation]) -> Result<()> {
        for &Operation { row, write } in operations {
            self.workload.write_key(&mut self.key, row);
            if let Some(write) = write {
                self.value.resize(self.workload.sizes.value_bytes, 0);
                Seal { row, write }.write_over(&mut self.value);
                open.put(0, &self.key, &self.value)?;
            } else {
                let found = open.get(0, &self.key, &mut self.value)?;
                expect_row(found, &self.key, &self.value, row)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;

    fn read(rows: u64, miss_percent: u64) -> Micro {
        Micro { sizes: Micro::SIZES, rows, mix: MicroMix::Read { miss_percent } }
    }

    fn overwrite(batch: u64, distribution: Distribution) -> Micro {
        let sizes = Sizes { key_bytes: 20, value_bytes: 1000 };
        Micro { sizes, rows: 300, mix: MicroMix::Overwrite { batch, distribution, least_value_bytes: None } }
    }

    fn page_vs_log(updates: Updates) -> Micro {
        Micro::page_vs_log(updates, 1000, false)
    }

    /// Checks that a value of row 3 under the key of row 4, a torn value, and a missing row are noticed.
    fn notices_damage(workload: Micro) {
        let (bed, done) = Bed::checked(workload, 1, 10);
        let mut key = vec![0; workload.sizes.key_bytes];
        let mut value = vec![0; workload.sizes.value_bytes];
        for (row, of_row, is_torn) in [(3, 3, false), (4, 3, false), (4, 4, true)] {
            workload.write_key(&mut key, row);
            Seal { row: of_row, write: 9 }.write_over(&mut value);
            *value.last_mut().expect("a byte") ^= u8::from(is_torn);
            bed.tamper(|open| open.put(0, &key, &value));
            let is_good = row == of_row && !is_torn;
            assert_eq!(bed.check(Some(&done)).is_ok(), is_good, "{row} {of_row} {is_torn}");
        }
        bed.tamper(|open| open.delete(0, &key));
        assert!(bed.check(Some(&done)).is_err(), "a row is gone");
    }

    #[test]
    fn reads_hit_and_miss_as_often_as_they_should() {
        for threads in [1, 4] {
            for (miss_percent, hits) in [(0, 100), (100, 0), (30, 70)] {
                let (_, done) = Bed::checked(read(500, miss_percent), threads, 400);
                assert_eq!(done.operations(), 400 * u64::from(threads));
                assert!((done.kinds[0] * 100 / done.operations()).abs_diff(hits) < 8);
            }
        }
    }

    #[test]
    fn a_row_of_reads_that_is_lost_or_changed_is_noticed() {
        let (bed, done) = Bed::checked(read(500, 0), 1, 1);
        bed.tamper(|open| open.put(0, b"00000000000000000010", &[1; 100]));
        assert!(bed.check(Some(&done)).is_err());
        bed.tamper(|open| open.delete(0, b"00000000000000000010"));
        assert!(bed.check(Some(&done)).is_err());
    }

    #[test]
    fn a_client_notices_what_it_should_not_find() {
        let workload = read(1, 100);
        let (bed, _) = Bed::checked(workload, 1, 1);
        bed.tamper(|open| open.put(0, b"00000000000000000001", b"x"));
        assert!(bed.with_session(|session| bed.workload.client(0, 1)(session)).is_err());
    }

    #[test]
    fn all_rows_are_there_after_overwrites() {
        for (threads, batch, distribution) in [(1, 1, Distribution::Uniform), (4, 7, Distribution::Zipfian)] {
            let workload = overwrite(batch, distribution);
            let (_, done) = Bed::checked(workload, threads, 500);
            assert_eq!(done.kinds, [500 * u64::from(threads)]);
            assert_eq!(workload.live_bytes(&done), Some(300 * 1020));
            assert_eq!(workload.shape().bytes_per_operation, batch * 1020);
        }
    }

    #[test]
    fn popular_rows_are_overwritten_more_often() {
        let most = |distribution| {
            let mut client = MicroClient::new(overwrite(1, distribution), 0, 1);
            let mut counts = [0; 300];
            (0..30_000).for_each(|_| counts[client.any_row() as usize] += 1);
            counts.into_iter().max()
        };
        assert!(most(Distribution::Uniform) < Some(200) && most(Distribution::Zipfian) > Some(1000));
    }

    #[test]
    fn an_overwritten_row_that_is_lost_torn_or_foreign_is_noticed() {
        notices_damage(overwrite(3, Distribution::Uniform));
    }

    #[test]
    fn all_threads_together_do_the_writes() {
        for threads in [1, 4] {
            let (_, done) = Bed::checked(Micro::wisckey(200, 501), threads, u64::MAX);
            assert_eq!(done.kinds, [501]);
        }
    }

    #[test]
    fn a_pair_that_is_lost_or_torn_is_noticed() {
        notices_damage(Micro::wisckey(200, 501));
    }

    #[test]
    fn all_mixes_leave_all_pairs() {
        for updates in Updates::ALL {
            for threads in [1, 4] {
                let (_, done) = Bed::checked(page_vs_log(updates), threads, 100);
                assert_eq!(done.kinds, [100 * u64::from(threads)]);
            }
        }
    }

    #[test]
    fn updates_are_as_many_as_the_mix_says() {
        for updates in Updates::ALL {
            let mut client = MicroClient::new(page_vs_log(updates), 0, 1);
            let is_update = |_: &u64| client.choose(updates).write.is_some();
            assert_eq!((0..10_000).filter(is_update).count() as u64, updates.percent() * 100);
        }
    }

    #[test]
    fn a_pair_of_transactions_that_is_lost_or_foreign_is_noticed() {
        notices_damage(page_vs_log(Updates::A3));
    }
}
