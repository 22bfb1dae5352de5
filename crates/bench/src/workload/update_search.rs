//! `update-search`: half of the transactions overwrite a row, half read one.

use super::rows::{Random, Sizes, check_rows, fill, write_key};
use super::{Client, Done, Filling, Step, Workload};
use crate::engine::{Store, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// Updates and searches of existing rows, the micro-benchmark of Son, Yeom and Han (2017), Fig. 5b.
///
/// Each transaction takes one row, all equally likely, and a coin decides whether it overwrites or reads it. The write
/// is blind; the search is a single read outside of a transaction.
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

    fn about(&self) -> String {
        let Sizes { key_bytes, value_bytes } = self.sizes;
        format!("{} rows, {key_bytes}-byte keys, {value_bytes}-byte values", self.rows)
    }

    fn tables(&self) -> &'static [&'static str] {
        &["rows"]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["update", "search"]
    }

    fn loaded_bytes(&self) -> u64 {
        self.rows * self.sizes.row_bytes()
    }

    fn bytes_per_operation(&self) -> u64 {
        self.sizes.row_bytes() / 2
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let mut key = vec![0; self.sizes.key_bytes];
        let mut value = vec![0; self.sizes.value_bytes];
        fill(store, self.rows, self.sizes.row_bytes(), filling, |row, open| {
            write_key(&mut key, row);
            Random::new(row).fill(&mut value);
            open.put(0, &key, &value)
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

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        check_rows(store, 0, "rows", self.rows)
    }

    fn live_bytes(&self, _: &Done) -> Option<u64> {
        Some(self.loaded_bytes())
    }
}

struct UpdateSearchClient {
    rows: u64,
    random: Random,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client for UpdateSearchClient {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        write_key(&mut self.key, self.random.below(self.rows));
        if self.random.below(2) == 0 {
            return match session.get(0, &self.key, &mut self.value)? {
                true => Ok(Step::Done(1)),
                false => Err(missing(&self.key)),
            };
        }
        self.random.fill(&mut self.value);
        session.write(|open| open.put(0, &self.key, &self.value).map(|()| Verdict::Commit))?;
        Ok(Step::Done(0))
    }
}

/// The error for a missing row that was loaded, and that no transaction leaves deleted.
pub(super) fn missing(key: &[u8]) -> Error {
    Error::engine("searching", format!("the row {} is not there", String::from_utf8_lossy(key)))
}
