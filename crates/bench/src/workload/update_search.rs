//! `update-search`: half of the transactions overwrite a row, half look for one.

use super::rows::{Random, preload, write_key};
use super::{Choice, Client, Sizes, Workload};
use crate::engine::{Store, Transaction};
use crate::{Error, Result};

/// Updates and searches of existing rows, the micro-benchmark of Son, Yeom and Han (2017), Fig. 5b.
///
/// Each transaction takes one row, all being equally likely, and a coin decides whether it overwrites it or looks for
/// it. The overwriting is blind; the search is a single read outside of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct UpdateSearch {
    sizes: Sizes,
    rows: u64,
}

impl UpdateSearch {
    /// 20-byte keys, 100-byte values.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 100 };

    /// The workload on `rows` rows, at least one, of that size.
    pub fn new(sizes: Sizes, rows: u64) -> UpdateSearch {
        UpdateSearch { sizes, rows }
    }
}

impl Workload for UpdateSearch {
    fn name(&self) -> &'static str {
        "update-search"
    }

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn preloaded(&self) -> u64 {
        self.rows
    }

    fn tables(&self) -> &'static [&'static str] {
        &["rows"]
    }

    fn preload(&self, store: &dyn Store) -> Result<()> {
        let mut key = vec![0; self.sizes.key_bytes];
        let mut value = vec![0; self.sizes.value_bytes];
        preload(store, self.rows, self.sizes, |row, transaction| {
            write_key(&mut key, row);
            Random::new(row).fill(&mut value);
            transaction.put(0, &key, &value)
        })
    }

    fn client(&self, thread: u32, _: u32) -> Box<dyn Client> {
        Box::new(UpdateSearchClient {
            rows: self.rows,
            random: Random::new(u64::from(thread) << 32),
            key: vec![0; self.sizes.key_bytes],
            value: vec![0; self.sizes.value_bytes],
        })
    }

    fn rows_after(&self, _: u64) -> Vec<u64> {
        vec![self.rows]
    }

    fn bytes_per_transaction(&self) -> u64 {
        self.sizes.row_bytes() / 2
    }
}

struct UpdateSearchClient {
    rows: u64,
    random: Random,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client for UpdateSearchClient {
    fn choose(&mut self) -> Choice {
        write_key(&mut self.key, self.random.below(self.rows));
        if self.random.below(2) == 0 {
            return Choice::Search;
        }
        self.random.fill(&mut self.value);
        Choice::Commit
    }

    fn search(&mut self, store: &dyn Store) -> Result<()> {
        match store.search(0, &self.key)? {
            true => Ok(()),
            false => Err(missing(&self.key)),
        }
    }

    fn statements(&mut self, transaction: &mut dyn Transaction) -> Result<()> {
        transaction.put(0, &self.key, &self.value)
    }
}

/// A row that was preloaded and is never deleted for good is not there.
pub(super) fn missing(key: &[u8]) -> Error {
    Error::engine("searching", format!("the row {} is not there", String::from_utf8_lossy(key)))
}
