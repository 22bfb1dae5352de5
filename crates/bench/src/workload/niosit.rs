//! `niosit`: the workloads of NIOSIT (Xiao and others, 2017): YCSB A and B, and connections that write 20 records and then read.

use super::rows::Random;
use super::sealed::expect_row;
use super::ycsb::{KEY_BYTES, Mix, Ycsb, write_user};
use super::{Client, Done, Filling, Shape, Step, Workload};
use crate::Result;
use crate::engine::{Store, Verdict};
use crate::workload::sealed::{Seal, Writes};

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum NiositLoad {
    /// Half of the operations are reads.
    A,
    /// 95 % are.
    B,
    /// 20 writes, then 1 to 100 reads, each number equally likely; again and again.
    Connection,
}

/// The records, keys and values of YCSB with 100-byte values, chosen alike. The store merges the first nine tenths of the records into its
/// base, and is given the last tenth after that.
///
/// A read may find nothing: a store may be asked for what its memtables hold. What it finds is a value of its record. The check at the
/// end finds all records.
#[derive(Clone)]
pub struct Niosit {
    load: NiositLoad,
    ycsb: Ycsb,
}

/// Writes of a connection.
const WRITES: u64 = 20;
/// The most reads after them.
const READS_MAX: u64 = 100;

/// The share of the records that are merged.
const MERGED_TENTHS: u64 = 9;

const READ: usize = 0;
const UPDATE: usize = 1;

impl Niosit {
    /// The bytes of a value.
    pub const VALUE_BYTES: usize = 100;

    /// On so many records.
    pub fn new(load: NiositLoad, records: u64) -> Niosit {
        let mix = if load == NiositLoad::B { Mix::B } else { Mix::A };
        Niosit { load, ycsb: Ycsb::new(mix, records, Niosit::VALUE_BYTES) }
    }
}

impl Workload for Niosit {
    fn shape(&self) -> Shape {
        let shape = self.ycsb.shape();
        let (name, about) = match self.load {
            NiositLoad::A => ("niosit-a", "50 % reads"),
            NiositLoad::B => ("niosit-b", "95 % reads"),
            NiositLoad::Connection => ("niosit-connection", "20 updates, then 1 to 100 reads"),
        };
        let about = format!("{} records, the last tenth not merged, {about}, zipfian", self.ycsb.records());
        Shape { name: name.into(), about, ..shape }
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let merged = self.ycsb.records() * MERGED_TENTHS / 10;
        self.ycsb.fill_records(store, 0..merged, filling)?;
        store.merge()?;
        self.ycsb.fill_records(store, merged..self.ycsb.records(), filling)
    }

    fn client(&self, thread: u32, _: u32) -> Client {
        let Niosit { load, mut ycsb } = self.clone();
        let (mut random, mut writes) = (Random::new(u64::from(thread) << 32), Writes::of(thread));
        let (mut key, mut value) = (vec![0; KEY_BYTES], vec![0; Niosit::VALUE_BYTES]);
        // Of a connection: what it still does of its round.
        let (mut writes_left, mut reads_left) = (WRITES, 0);
        Box::new(move |session| {
            let record = ycsb.choose(&mut random);
            write_user(&mut key, record);
            let is_read = match load {
                NiositLoad::A => random.below(100) < 50,
                NiositLoad::B => random.below(100) < 95,
                NiositLoad::Connection if writes_left > 0 => {
                    writes_left -= 1;
                    reads_left = random.within(1, READS_MAX);
                    false
                }
                NiositLoad::Connection => {
                    reads_left -= 1;
                    writes_left = if reads_left == 0 { WRITES } else { 0 };
                    true
                }
            };
            if is_read {
                if session.get(0, &key, &mut value)? {
                    expect_row(true, &key, &value, record)?;
                }
                return Ok(Step::Done(READ));
            }
            value.resize(Niosit::VALUE_BYTES, 0);
            Seal { row: record, write: writes.next() }.write_over(&mut value);
            session.write(|open| open.put(0, &key, &value).map(|()| Verdict::Commit))?;
            Ok(Step::Done(UPDATE))
        })
    }

    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        self.ycsb.check(store, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bed;

    #[test]
    fn clients_do_their_share_of_reads() {
        for (load, reads_percent) in [(NiositLoad::A, 50), (NiositLoad::B, 95)] {
            let (_, done) = Bed::checked(Niosit::new(load, 300), 2, 500);
            let percent = done.kinds[READ] * 100 / done.operations();
            assert!(percent.abs_diff(reads_percent) < 8, "{load:?}: {percent} % of reads");
        }
    }

    #[test]
    fn a_connection_writes_20_records_and_then_reads() {
        let workload = Niosit::new(NiositLoad::Connection, 300);
        let bed = Bed::new(workload.clone());
        let done = |steps| bed.run(1, steps).0.kinds;
        assert_eq!((done(20), done(21)), (vec![0, 20], vec![1, 20]));
        let kinds = done(20 + 100 + 20);
        assert!((40..=120).contains(&kinds[UPDATE]) && kinds[READ] >= 20, "{kinds:?}");
        bed.check(None).expect("all records");
    }
}
