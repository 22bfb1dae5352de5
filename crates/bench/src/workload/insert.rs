//! `insert`: each transaction writes one row with a new key.

use super::rows::{Random, write_key};
use super::{Choice, Client, Sizes, Workload};
use crate::Result;
use crate::engine::{Store, Transaction};

/// Single inserts into an empty table, the micro-benchmark of Son, Yeom and Han (2017), Fig. 5a and Table 1.
///
/// The threads take turns at the end of the key space: the n-th row of thread t of T has the key n * T + t in decimal.
/// The write is blind: it does not look whether the key is there, as an insert of WiredTiger does not by default.
#[derive(Clone, Copy, Debug)]
pub struct Insert {
    sizes: Sizes,
}

impl Insert {
    /// 20-byte keys, 100-byte values.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 100 };

    /// Inserts of that size.
    pub fn new(sizes: Sizes) -> Insert {
        Insert { sizes }
    }
}

impl Workload for Insert {
    fn name(&self) -> &'static str {
        "insert"
    }

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn preloaded(&self) -> u64 {
        0
    }

    fn tables(&self) -> &'static [&'static str] {
        &["rows"]
    }

    fn preload(&self, _: &dyn Store) -> Result<()> {
        Ok(())
    }

    fn client(&self, thread: u32, threads: u32) -> Box<dyn Client> {
        Box::new(InsertClient {
            next: thread.into(),
            step: threads.into(),
            random: Random::new(thread.into()),
            key: vec![0; self.sizes.key_bytes],
            value: vec![0; self.sizes.value_bytes],
        })
    }

    fn rows_after(&self, transactions: u64) -> Vec<u64> {
        vec![transactions]
    }

    fn bytes_per_transaction(&self) -> u64 {
        self.sizes.row_bytes()
    }
}

struct InsertClient {
    next: u64,
    step: u64,
    random: Random,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client for InsertClient {
    fn choose(&mut self) -> Choice {
        write_key(&mut self.key, self.next);
        self.next += self.step;
        self.random.fill(&mut self.value);
        Choice::Commit
    }

    fn search(&mut self, _: &dyn Store) -> Result<()> {
        unreachable!("this workload never chooses a search")
    }

    fn statements(&mut self, transaction: &mut dyn Transaction) -> Result<()> {
        transaction.put(0, &self.key, &self.value)
    }
}
