//! `ycsb-a` to `ycsb-f`: the core workloads of YCSB.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::choose::{Chooser, fnv1a_64};
use super::rows::{Random, Sizes, expect_rows, write_key};
use super::sealed::{Seal, Writes, check_seals, expect_row, fill_sealed, missing};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::engine::{Needs, Range, Store, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// The core workloads of YCSB (Cooper, Silberstein, Tam, Ramakrishnan and Sears, SoCC 2010, Table 2).
///
/// The key of record n is `user` and the FNV-1a hash of n without its sign, in decimal with leading zeros: 23 bytes, so
/// that consecutive records are spread over the table. The value represents all ten fields of 100 bytes. An operation
/// does one of
///
/// * read: a single read of a record, outside of a transaction;
/// * update: writes a record as a whole, blindly;
/// * insert: writes the next record that is not there yet;
/// * scan: reads 1 to 100 records, each length equally likely, from a record on, in a transaction that reads;
/// * read-modify-write: reads a record and writes it as a whole, in one transaction.
///
/// The choice of the record is Zipfian (0.99) over the loaded ones, with the popular ones spread among them; in
/// [`Mix::D`] it is Zipfian from the newest one down. A record counts as present when its insert and all inserts before
/// it were acknowledged. Two things differ from YCSB: an update writes all fields rather than one, and Zipfian scans of
/// [`Mix::E`] begin at loaded records only, though they pass over the inserted ones.
#[derive(Clone, Debug)]
pub struct Ycsb {
    mix: Mix,
    records: u64,
    value_bytes: usize,
    chooser: Chooser,
    inserted: Arc<Inserted>,
}

/// The core workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum Mix {
    /// Update heavy: half reads, half updates.
    A,
    /// Read mostly: 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// Read latest: 95 % reads, most of them of the newest records, and 5 % inserts.
    D,
    /// Short ranges: 95 % scans, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

impl Mix {
    /// All of them.
    pub const ALL: [Mix; 6] = [Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F];

    /// How many of a hundred operations are of the first kind.
    fn first_percent(self) -> u64 {
        match self {
            Mix::A | Mix::F => 50,
            Mix::B | Mix::D | Mix::E => 95,
            Mix::C => 100,
        }
    }

    fn kinds(self) -> &'static [&'static str] {
        match self {
            Mix::A | Mix::B => &["read", "update"],
            Mix::C => &["read"],
            Mix::D => &["read", "insert"],
            Mix::E => &["scan", "insert"],
            Mix::F => &["read", "read-modify-write"],
        }
    }

    fn inserts(self) -> bool {
        matches!(self, Mix::D | Mix::E)
    }
}

/// The second kind of a mix; the first is that of most reads.
const SECOND: usize = 1;
const SCAN_RECORDS_MAX: u64 = 100;
const USER: &[u8] = b"user";
pub(super) const KEY_BYTES: usize = USER.len() + 19;

impl Ycsb {
    /// Ten fields of 100 bytes.
    pub const VALUE_BYTES: usize = 1000;
    /// The shortest value, in bytes.
    pub const VALUE_BYTES_MIN: usize = Seal::VALUE_BYTES_MIN;

    /// The workload on `records` loaded records, at least one, with values of `value_bytes`.
    pub fn new(mix: Mix, records: u64, value_bytes: usize) -> Ycsb {
        let chooser = match mix {
            Mix::D => Chooser::latest(records),
            _ => Chooser::scrambled(records),
        };
        Ycsb { mix, records, value_bytes, chooser, inserted: Arc::new(Inserted::new(records)) }
    }

    /// How many records are loaded.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Fills these records into a store, and settles it.
    pub(super) fn fill_records(
        &self,
        store: &dyn Store,
        records: std::ops::Range<u64>,
        filling: &mut Filling<'_>,
    ) -> Result<()> {
        fill_sealed(store, self.sizes(), records, filling, write_user)
    }

    /// The number of a record.
    pub(super) fn choose(&mut self, random: &mut Random) -> u64 {
        self.chooser.next(random, self.inserted.acknowledged())
    }

    fn sizes(&self) -> Sizes {
        Sizes { key_bytes: KEY_BYTES, value_bytes: self.value_bytes }
    }

    fn inserts_of(&self, done: &Done) -> u64 {
        if self.mix.inserts() { done.kinds[SECOND] } else { 0 }
    }
}

pub(super) fn write_user(key: &mut [u8], record: u64) {
    key[..USER.len()].copy_from_slice(USER);
    write_key(&mut key[USER.len()..], (fnv1a_64(record) as i64).unsigned_abs());
}

impl Workload for Ycsb {
    fn shape(&self) -> Shape {
        let percent = self.mix.first_percent();
        let shares: Vec<String> = (self.mix.kinds().iter().zip([percent, 100 - percent]))
            .map(|(kind, percent)| format!("{percent} % {kind}"))
            .collect();
        let choice = match self.chooser {
            Chooser::Scrambled { .. } => "zipfian",
            Chooser::Latest(_) => "latest",
        };
        Shape {
            name: format!("ycsb-{:?}", self.mix).to_lowercase(),
            about: format!("{} records, {}, {}, {choice}", self.records, self.sizes(), shares.join(", ")),
            tables: &["usertable"],
            needs: Needs { transactions: self.mix == Mix::F, ..Needs::default() },
            kinds: self.mix.kinds(),
            loaded_bytes: self.records * self.sizes().row_bytes(),
            bytes_per_operation: self.sizes().row_bytes() * (100 - percent) / 100,
            ..Shape::default()
        }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        self.inserted.restart(self.records);
        self.fill_records(store, 0..self.records, filling)
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let mut client = YcsbClient {
            workload: self.clone(),
            random: Random::new(u64::from(thread) << 32),
            writes: Writes::of(thread),
            key: vec![0; KEY_BYTES],
            value: vec![0; self.value_bytes],
        };
        Box::new(move |session| client.step(session))
    }

    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        let mut expected = [0; KEY_BYTES];
        let mut loaded = 0;
        let found = check_seals(store, 0, "usertable", |key, seal| {
            write_user(&mut expected, seal.row);
            loaded += u64::from(seal.row < self.records);
            key == expected && (self.mix.inserts() || seal.row < self.records)
        })?;
        if loaded != self.records {
            return Err(Error::Wrong(format!("{loaded} of the {} loaded records are there", self.records)));
        }
        let expected = done.map_or(found, |done| self.records + self.inserts_of(done));
        expect_rows("usertable", found, expected)
    }

    fn live_bytes(&self, done: &Done) -> Option<u64> {
        Some((self.records + self.inserts_of(done)) * self.sizes().row_bytes())
    }
}

struct YcsbClient {
    workload: Ycsb,
    random: Random,
    writes: Writes,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl YcsbClient {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        let mix = self.workload.mix;
        if self.random.below(100) < mix.first_percent() {
            let record = self.choose();
            match mix {
                Mix::E => self.scan(session, record)?,
                _ => self.read(session, record)?,
            }
            return Ok(Step::Done(0));
        }
        match mix {
            Mix::D | Mix::E => self.insert(session)?,
            Mix::F => self.modify(session)?,
            Mix::A | Mix::B | Mix::C => {
                let record = self.choose();
                self.write(session, record)?;
            }
        }
        Ok(Step::Done(SECOND))
    }

    /// Chooses a record, and puts its key into `self.key`.
    fn choose(&mut self) -> u64 {
        let record = self.workload.choose(&mut self.random);
        write_user(&mut self.key, record);
        record
    }

    fn read(&mut self, session: &mut RetryingSession<'_>, record: u64) -> Result<()> {
        let found = session.get(0, &self.key, &mut self.value)?;
        if !found && self.may_be_unseen(session, record) {
            return Ok(());
        }
        expect_row(found, &self.key, &self.value, record)
    }

    /// With tickets an insert may be acknowledged before it is visible to other threads.
    fn may_be_unseen(&self, session: &RetryingSession<'_>, record: u64) -> bool {
        record >= self.workload.records && session.tickets() > 0
    }

    fn scan(&mut self, session: &mut RetryingSession<'_>, record: u64) -> Result<()> {
        let wanted = self.random.within(1, SCAN_RECORDS_MAX);
        let is_first = session.read(|open| {
            let (mut is_first, mut seen) = (false, 0);
            open.scan(Range::forward(0, Some(&self.key)), &mut |key, _| {
                if seen == 0 {
                    is_first = key == self.key;
                }
                seen += 1;
                Ok(seen < wanted)
            })?;
            Ok(is_first)
        })?;
        // A scan must begin with the record of its start key.
        if is_first || self.may_be_unseen(session, record) { Ok(()) } else { Err(missing(&self.key)) }
    }

    fn insert(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let record = self.workload.inserted.begin();
        write_user(&mut self.key, record);
        self.write(session, record)?;
        self.workload.inserted.acknowledge(record);
        Ok(())
    }

    fn write(&mut self, session: &mut RetryingSession<'_>, record: u64) -> Result<()> {
        self.value.resize(self.workload.value_bytes, 0);
        Seal { row: record, write: self.writes.next() }.write_over(&mut self.value);
        session.write(|open| open.put(0, &self.key, &self.value).map(|()| Verdict::Commit))?;
        Ok(())
    }

    fn modify(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let record = self.choose();
        let write = self.writes.next();
        session.write(|open| {
            let found = open.get_for_update(0, &self.key, &mut self.value)?;
            expect_row(found, &self.key, &self.value, record)?;
            Seal { row: record, write }.write_over(&mut self.value);
            open.put(0, &self.key, &self.value)?;
            Ok(Verdict::Commit)
        })?;
        Ok(())
    }
}

/// The records that are inserted, by all threads together. Reads may choose those below [`Inserted::acknowledged`].
#[derive(Debug)]
struct Inserted {
    next: AtomicU64,
    acknowledged: AtomicU64,
    /// Acknowledged ones, with earlier ones that are not acknowledged yet.
    early: Mutex<BTreeSet<u64>>,
}

impl Inserted {
    fn new(records: u64) -> Inserted {
        let next = AtomicU64::new(records);
        Inserted { next, acknowledged: AtomicU64::new(records), early: Mutex::default() }
    }

    /// Resets it for a new store with `records` loaded ones.
    fn restart(&self, records: u64) {
        self.early.lock().clear();
        self.next.store(records, Ordering::Relaxed);
        self.acknowledged.store(records, Ordering::Release);
    }

    fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn acknowledge(&self, record: u64) {
        let mut early = self.early.lock();
        early.insert(record);
        let mut acknowledged = self.acknowledged.load(Ordering::Relaxed);
        while early.remove(&acknowledged) {
            acknowledged += 1;
        }
        self.acknowledged.store(acknowledged, Ordering::Release);
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;

    fn small(mix: Mix) -> Ycsb {
        Ycsb::new(mix, 300, 100)
    }

    #[test]
    fn all_mixes_leave_what_they_should() {
        for mix in Mix::ALL {
            for threads in [1, 4] {
                let (_, done) = Bed::checked(small(mix), threads, 400);
                assert_eq!(done.operations(), u64::from(threads) * 400);
                let first = done.kinds[0] * 100 / done.operations();
                assert!(first.abs_diff(mix.first_percent()) < 8, "{mix:?} has {first} % of its first kind");
            }
        }
    }

    #[test]
    fn a_workload_serves_several_stores() {
        let workload = small(Mix::D);
        for _ in 0..2 {
            let bed = Bed::new(workload.clone());
            let (done, _) = bed.run(2, 200);
            bed.check(Some(&done)).expect("the records of this store");
            assert_eq!(workload.live_bytes(&done), Some((300 + done.kinds[1]) * 123));
        }
    }

    #[test]
    fn a_record_that_is_lost_or_foreign_is_noticed() {
        let (bed, done) = Bed::checked(small(Mix::E), 1, 100);
        let mut key = [0; KEY_BYTES];
        let mut value = vec![0; 100];
        write_user(&mut key, 300 + done.kinds[SECOND]);
        Seal { row: 300 + done.kinds[SECOND], write: 1 }.write_over(&mut value);
        bed.tamper(|open| open.put(0, &key, &value));
        assert!(bed.check(Some(&done)).is_err(), "one record too many");
        bed.check(None).expect("the number of inserts is unknown");

        write_user(&mut key, 5);
        bed.tamper(|open| open.put(0, &key, &value));
        assert!(bed.check(None).is_err(), "the value of another record");
        bed.tamper(|open| open.delete(0, &key));
        assert!(bed.check(None).is_err(), "a loaded record is gone");
    }

    #[test]
    fn inserts_count_in_their_order() {
        let inserted = Inserted::new(10);
        assert_eq!([(); 3].map(|()| inserted.begin()), [10, 11, 12]);
        inserted.acknowledge(11);
        assert_eq!(inserted.acknowledged(), 10);
        inserted.acknowledge(10);
        assert_eq!(inserted.acknowledged(), 12);
        inserted.restart(4);
        assert_eq!((inserted.acknowledged(), inserted.begin()), (4, 4));
    }
}
