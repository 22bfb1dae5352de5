//! `insert`: each transaction writes one row with a new key.

use super::rows::{Random, Sizes, check_rows, write_key};
use super::{Client, Done, Filling, Step, Workload};
use crate::Result;
use crate::engine::{Store, Verdict};
use crate::retrying_session::RetryingSession;

/// Single inserts into an empty table, the micro-benchmark of Son, Yeom and Han (2017), Fig. 5a and Table 1.
///
/// The threads take turns at the end of the key space: the n-th row of thread t of T has the key n * T + t in decimal.
/// The write is blind: it does not check whether the key exists, as WiredTiger's inserts do not by default.
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

    fn about(&self) -> String {
        format!("{}-byte keys, {}-byte values", self.sizes.key_bytes, self.sizes.value_bytes)
    }

    fn tables(&self) -> &'static [&'static str] {
        &["rows"]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["insert"]
    }

    fn loaded_bytes(&self) -> u64 {
        0
    }

    fn bytes_per_operation(&self) -> u64 {
        self.sizes.row_bytes()
    }

    fn fill(&self, store: &dyn Store, _: &mut Filling<'_>) -> Result<()> {
        store.settle()
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

    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()> {
        done.map_or(Ok(()), |done| check_rows(store, 0, "rows", done.operations()))
    }

    fn live_bytes(&self, done: &Done) -> Option<u64> {
        Some(done.operations() * self.sizes.row_bytes())
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
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        write_key(&mut self.key, self.next);
        self.next += self.step;
        self.random.fill(&mut self.value);
        session.write(|open| open.put(0, &self.key, &self.value).map(|()| Verdict::Commit))?;
        Ok(Step::Done(0))
    }
}
