//! `wisckey`: a given number of writes of large values under random keys.

use super::rows::{Random, Sizes, expect_rows, fill};
use super::sealed::{Seal, Writes, check_seals};
use super::{Client, Done, Filling, Step, Workload};
use crate::Result;
use crate::engine::{Store, Verdict};
use crate::retrying_session::RetryingSession;

/// The writes that WiscKey with a buffer in NVDIMM was measured with (Section 5.1 of that paper; Fig. 5 to 8): values
/// of 4 KiB under random keys of 8 bytes, each a transaction of its own, into a store that holds such pairs.
///
/// A write takes one of the loaded pairs, all equally likely, and overwrites it blindly. The paper does not say whether
/// its keys were new; here none is, so that the number of live bytes is known. The threads share the writes, and a
/// client is done after its share: the time until the last one is done is the result. The paper compares a sync for
/// each write with none: a level of the store.
#[derive(Clone, Copy, Debug)]
pub struct Wisckey {
    pairs: u64,
    writes: u64,
    value_bytes: usize,
}

const KEY_BYTES: usize = 8;

impl Wisckey {
    /// The writes of the paper.
    pub const WRITES: u64 = 262_144;
    /// 1 GiB of values. The paper loads 8 GB.
    pub const PAIRS: u64 = 262_144;
    /// The values of the paper, in bytes.
    pub const VALUE_BYTES: usize = 4096;
    /// The shortest value, in bytes.
    pub const VALUE_BYTES_MIN: usize = Seal::VALUE_BYTES_MIN;

    /// `writes` writes of all threads together over `pairs` loaded pairs, at least one, with values of `value_bytes`.
    pub fn new(pairs: u64, writes: u64, value_bytes: usize) -> Wisckey {
        Wisckey { pairs, writes, value_bytes }
    }

    fn pair_bytes(&self) -> u64 {
        Sizes { key_bytes: KEY_BYTES, value_bytes: self.value_bytes }.row_bytes()
    }
}

impl Default for Wisckey {
    fn default() -> Wisckey {
        Wisckey::new(Wisckey::PAIRS, Wisckey::WRITES, Wisckey::VALUE_BYTES)
    }
}

/// The key of a pair: no two have the same, because each step of [`Random::next`] is invertible.
fn key_of(pair: u64) -> [u8; KEY_BYTES] {
    Random::new(pair).next().to_be_bytes()
}

impl Workload for Wisckey {
    fn name(&self) -> &'static str {
        "wisckey"
    }

    fn about(&self) -> String {
        format!(
            "{} writes over {} pairs, {KEY_BYTES}-byte keys, {}-byte values",
            self.writes, self.pairs, self.value_bytes
        )
    }

    fn tables(&self) -> &'static [&'static str] {
        &["pairs"]
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["put"]
    }

    fn loaded_bytes(&self) -> u64 {
        self.pairs * self.pair_bytes()
    }

    fn bytes_per_operation(&self) -> u64 {
        self.pair_bytes()
    }

    fn work(&self, _: u32) -> Option<u64> {
        Some(self.writes)
    }

    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()> {
        let mut value = vec![0; self.value_bytes];
        fill(store, self.pairs, self.pair_bytes(), filling, |row, open| {
            Seal { row, write: 0 }.write_over(&mut value);
            open.put(0, &key_of(row), &value)
        })
    }

    fn client(&self, thread: u32, threads: u32) -> Box<dyn Client> {
        let [thread_u64, threads] = [thread, threads].map(u64::from);
        Box::new(WisckeyClient {
            left: self.writes / threads + u64::from(thread_u64 < self.writes % threads),
            pairs: self.pairs,
            random: Random::new(thread_u64 << 32),
            writes: Writes::of(thread),
            value: vec![0; self.value_bytes],
        })
    }

    fn check(&self, store: &dyn Store, _: Option<&Done>) -> Result<()> {
        let belongs = |key: &[u8], seal: Seal| seal.row < self.pairs && key == key_of(seal.row);
        let found = check_seals(store, "pairs", belongs)?;
        expect_rows("pairs", found, self.pairs)
    }

    fn live_bytes(&self, _: &Done) -> Option<u64> {
        Some(self.loaded_bytes())
    }
}

struct WisckeyClient {
    /// Writes.
    left: u64,
    pairs: u64,
    random: Random,
    writes: Writes,
    value: Vec<u8>,
}

impl Client for WisckeyClient {
    fn step(&mut self, session: &mut RetryingSession<'_>) -> Result<Step> {
        if self.left == 0 {
            return Ok(Step::End);
        }
        self.left -= 1;
        let row = self.random.below(self.pairs);
        Seal { row, write: self.writes.next() }.write_over(&mut self.value);
        session.write(|open| open.put(0, &key_of(row), &self.value).map(|()| Verdict::Commit))?;
        Ok(Step::Done(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{checked, tamper};

    fn small() -> Wisckey {
        Wisckey::new(200, 501, Wisckey::VALUE_BYTES)
    }

    #[test]
    fn all_threads_together_do_the_writes() {
        for threads in [1, 4] {
            let (_dir, _store, done) = checked(&small(), threads, u64::MAX);
            assert_eq!(done.kinds, [501]);
        }
    }

    #[test]
    fn a_pair_that_is_lost_or_torn_is_noticed() {
        let workload = small();
        let (_dir, store, done) = checked(&workload, 1, 10);
        let mut value = vec![0; Wisckey::VALUE_BYTES];
        Seal { row: 3, write: 9 }.write_over(&mut value);
        value[4000] ^= 1;
        tamper(&store, |open| open.put(0, &key_of(3), &value));
        assert!(workload.check(&*store, Some(&done)).is_err(), "a torn value");
        tamper(&store, |open| open.delete(0, &key_of(3)));
        assert!(workload.check(&*store, Some(&done)).is_err(), "a pair is gone");
    }
}
