//! `overwrite-steady`: random rows are overwritten for as long as the run takes.

use super::rows::{Random, Sizes, write_key};
use super::sealed::{Seal, Writes, check_sealed, fill_sealed};
use super::{Client, Done, Filling, Step, Workload};
use crate::Result;
use crate::engine::{Store, Verdict};
use crate::retrying_session::RetryingSession;

/// Overwrites of a fixed set of rows, as in `overwrite` of LevelDB's benchmark, until the run ends.
///
/// Each transaction overwrites one row, all equally likely, blindly and with a value of the same length. The live bytes
/// never change. So the size of the store on disk over time shows how much of it is garbage, and the rate shows the
/// cost of collecting it.
#[derive(Clone, Copy, Debug)]
pub struct OverwriteSteady {
    sizes: Sizes,
    rows: u64,
}

impl OverwriteSteady {
    /// 20-byte keys, 1,000-byte values.
    pub const SIZES: Sizes = Sizes { key_bytes: 20, value_bytes: 1000 };
    /// The shortest value, in bytes.
    pub const VALUE_BYTES_MIN: usize = Seal::VALUE_BYTES_MIN;

    /// Overwrites of `rows` rows, at least one, of that size.
    pub fn new(sizes: Sizes, rows: u64) -> OverwriteSteady {
        OverwriteSteady { sizes, rows }
    }
}

impl Workload for OverwriteSteady {
    fn name(&self) -> &'static str {
        "overwrite-steady"
    }

    fn about(&self) -> String {
        let Sizes { key_bytes, value_bytes } = self.sizes;
        format!("{} rows, {key_bytes}-byte keys, {value_bytes}-byte values", self.rows)
    }

    fn tables(&self) -> &'static [&'static str] {
        &["rows"]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["overwrite"]
    }

    fn loaded_bytes(&self) -> u64 {
        self.rows * self.sizes.row_bytes()
    }

    fn bytes_per_operation(&self) -> u64 {
        self.sizes.row_bytes()
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        fill_sealed(store, self.sizes, self.rows, filling)
    }

    fn client(&self, thread: u32, _: u32) -> Box<dyn Client> {
        Box::new(OverwriteSteadyClient {
            rows: self.rows,
            random: Random::new(u64::from(thread) << 32),
            writes: Writes::of(thread),
            key: vec![0; self.sizes.key_bytes],
            value: vec![0; self.sizes.value_bytes],
        })
    }

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        check_sealed(store, "rows", self.rows)
    }

    fn live_bytes(&self, _: &Done) -> Option<u64> {
        Some(self.loaded_bytes())
    }
}

struct OverwriteSteadyClient {
    rows: u64,
    random: Random,
    writes: Writes,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client for OverwriteSteadyClient {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        let row = self.random.below(self.rows);
        write_key(&mut self.key, row);
        Seal { row, write: self.writes.next() }.write_over(&mut self.value);
        session.write(|open| open.put(0, &self.key, &self.value).map(|()| Verdict::Commit))?;
        Ok(Step::Done(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{checked, tamper};

    #[test]
    fn all_rows_are_there_afterwards() {
        for threads in [1, 4] {
            let workload = OverwriteSteady::new(OverwriteSteady::SIZES, 300);
            let (_dir, _store, done) = checked(&workload, threads, 500);
            assert_eq!(done.kinds, [500 * u64::from(threads)]);
            assert_eq!(workload.live_bytes(&done), Some(300 * 1020));
        }
    }

    #[test]
    fn a_row_that_is_lost_torn_or_foreign_is_noticed() {
        let workload = OverwriteSteady::new(OverwriteSteady::SIZES, 300);
        let (_dir, store, done) = checked(&workload, 1, 10);
        let key = b"00000000000000000123";
        let mut value = vec![0; 1000];
        for (row, torn) in [(122, false), (123, true)] {
            Seal { row, write: 4 }.write_over(&mut value);
            value[999] ^= u8::from(torn);
            tamper(&store, |open| open.put(0, key, &value));
            assert!(workload.check(&*store, Some(&done)).is_err());
        }
        tamper(&store, |open| open.delete(0, key));
        assert!(workload.check(&*store, Some(&done)).is_err());
    }
}
