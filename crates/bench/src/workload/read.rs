//! `read`: single reads of random keys, some of which may be missing.

use super::rows::{Random, Sizes, expect_rows, fill, write_key};
use super::sealed::{Seal, check_seals, expect_row};
use super::{Client, Done, Filling, Step, Workload};
use crate::engine::Store;
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// DataPoint reads, as `readrandom` and `readmissing` of LevelDB's benchmark are.
///
/// Row n has the key 2n in decimal. Each operation is a single read outside of a transaction: of a row, all equally
/// likely, or, in a share of the operations, of the odd key after a row, which does not exist. So missing keys are
/// between existing ones, and only a filter or a lookup shows that they do not exist.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    sizes: Sizes,
    rows: u64,
    miss_percent: u64,
}

impl Read {
    /// 20-byte keys, 100-byte values.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 100 };
    /// The shortest value, in bytes.
    pub const VALUE_BYTES_MIN: usize = Seal::VALUE_BYTES_MIN;

    /// Reads of `rows` rows, at least one, of that size; `miss_percent` of a hundred, 0 to 100, find nothing.
    pub fn new(sizes: Sizes, rows: u64, miss_percent: u64) -> Read {
        Read { sizes, rows, miss_percent }
    }
}

const HIT: usize = 0;
const MISS: usize = 1;

impl Workload for Read {
    fn name(&self) -> &'static str {
        "read"
    }

    fn about(&self) -> String {
        let Sizes { key_bytes, value_bytes } = self.sizes;
        format!(
            "{} rows, {key_bytes}-byte keys, {value_bytes}-byte values, {} % misses",
            self.rows, self.miss_percent
        )
    }

    fn tables(&self) -> &'static [&'static str] {
        &["rows"]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["hit", "miss"]
    }

    fn loaded_bytes(&self) -> u64 {
        self.rows * self.sizes.row_bytes()
    }

    fn bytes_per_operation(&self) -> u64 {
        0
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let mut key = vec![0; self.sizes.key_bytes];
        let mut value = vec![0; self.sizes.value_bytes];
        fill(store, self.rows, self.sizes.row_bytes(), filling, |row, open| {
            write_key(&mut key, 2 * row);
            Seal { row, write: 0 }.write_over(&mut value);
            open.put(0, &key, &value)
        })
    }

    fn client(&self, thread: u32, _: u32) -> Box<dyn Client> {
        Box::new(ReadClient {
            workload: *self,
            random: Random::new(u64::from(thread) << 32),
            key: vec![0; self.sizes.key_bytes],
            value: Vec::new(),
        })
    }

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        let mut expected = vec![0; self.sizes.key_bytes];
        let found = check_seals(store, "rows", |key, seal| {
            write_key(&mut expected, seal.row.saturating_mul(2));
            key == expected && seal.row < self.rows && seal.write == 0
        })?;
        expect_rows("rows", found, self.rows)
    }

    fn live_bytes(&self, _: &Done) -> Option<u64> {
        Some(self.loaded_bytes())
    }
}

struct ReadClient {
    workload: Read,
    random: Random,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client for ReadClient {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        let row = self.random.below(self.workload.rows);
        let is_miss = self.random.below(100) < self.workload.miss_percent;
        write_key(&mut self.key, 2 * row + u64::from(is_miss));
        let found = session.get(0, &self.key, &mut self.value)?;
        match (is_miss, found) {
            (true, false) => Ok(Step::Done(MISS)),
            (true, true) => {
                let key = String::from_utf8_lossy(&self.key);
                Err(Error::engine(
                    "searching",
                    format!("the row {key} is there, though it was never written"),
                ))
            }
            (false, _) => expect_row(found, &self.key, &self.value, row).map(|()| Step::Done(HIT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{checked, tamper};

    #[test]
    fn reads_hit_and_miss_as_often_as_they_should() {
        for threads in [1, 4] {
            for (miss_percent, hits) in [(0, 100), (100, 0), (30, 70)] {
                let workload = Read::new(Read::SIZES, 500, miss_percent);
                let (_dir, _store, done) = checked(&workload, threads, 400);
                assert_eq!(done.operations(), 400 * u64::from(threads));
                assert!((done.kinds[HIT] * 100 / done.operations()).abs_diff(hits) < 8);
            }
        }
    }

    #[test]
    fn a_row_that_is_lost_or_changed_is_noticed() {
        let workload = Read::new(Read::SIZES, 500, 0);
        let (_dir, store, done) = checked(&workload, 1, 1);
        tamper(&store, |open| open.put(0, b"00000000000000000010", &[1; 100]));
        assert!(workload.check(&*store, Some(&done)).is_err());
        tamper(&store, |open| open.delete(0, b"00000000000000000010"));
        assert!(workload.check(&*store, Some(&done)).is_err());
    }

    #[test]
    fn a_client_notices_what_it_should_not_find() {
        let workload = Read::new(Read::SIZES, 1, 100);
        let (_dir, store, _) = checked(&workload, 1, 1);
        tamper(&store, |open| open.put(0, b"00000000000000000001", b"x"));
        let mut session = store.session().expect("a session");
        let mut session = RetryingSession::new(&mut *session, 0);
        assert!(workload.client(0, 1).step(&mut session).is_err());
    }
}
