//! Keys, values and random numbers.

use std::fmt;

use super::Filling;
use crate::engine::{Ended, Mode, Range, Store, Transaction, Verdict};
use crate::retrying_session::RetryingSession;
use crate::{Error, Result};

/// A commit of the filling has about this many bytes.
const BATCH_BYTES: u64 = 64 << 10;

/// How long keys and values are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sizes {
    /// Every key.
    pub key_bytes: usize,
    /// Every value.
    pub value_bytes: usize,
}

impl Sizes {
    /// The shortest key: enough for the number of any row.
    pub const KEY_BYTES_MIN: usize = 12;
    /// The longest key that all engines take.
    pub const KEY_BYTES_MAX: usize = 480;
    /// The longest value.
    pub const VALUE_BYTES_MAX: usize = 1 << 20;

    pub(crate) fn row_bytes(self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-byte keys, {}-byte values", self.key_bytes, self.value_bytes)
    }
}

/// Writes the number `row` over all of `key`, in decimal with leading zeros: keys are in the order of the numbers.
pub(crate) fn write_key(key: &mut [u8], row: u64) {
    let mut rest = row;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Pseudorandom numbers (SplitMix64), the same for the same seed.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed.wrapping_mul(0xd134_2543_de82_ef95) }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Commits these rows, many at a time, and settles the store; `row` puts all entries of a row.
pub(crate) fn fill(
    store: &dyn Store,
    rows: std::ops::Range<u64>,
    row_bytes: u64,
    filling: &mut Filling<'_>,
    mut row: impl FnMut(u64, &mut dyn Transaction) -> Result<()>,
) -> Result<()> {
    let batch = (BATCH_BYTES / row_bytes.max(1)).max(1);
    let mut session = store.session()?;
    let mut session = RetryingSession::new(&mut *session, 0);
    let mut first = rows.start;
    while first < rows.end {
        let end = (first + batch).min(rows.end);
        session.write(|open| {
            (first..end).try_for_each(|number| row(number, open))?;
            Ok(Verdict::Commit)
        })?;
        first = end;
        if !filling((first - rows.start) as f64 / (rows.end - rows.start) as f64) {
            return Err(Error::Interrupted);
        }
    }
    drop(session);
    store.settle()
}

/// Shows all entries of a table to `visit` in one transaction, in the order of their keys, when there is no writer.
///
/// # Errors
/// The error of `visit`, or the engine's.
pub fn read_all(
    store: &dyn Store,
    table: usize,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let ended = store.session()?.transact(Mode::Read, &mut |transaction| {
        transaction.scan(Range::all(table), &mut |key, value| visit(key, value).map(|()| true))?;
        Ok(Verdict::Commit)
    })?;
    match ended {
        Ended::Conflict => Err(Error::engine("checking", "a scan conflicted without a writer")),
        _ => Ok(()),
    }
}

/// Counts the entries of a table by reading them, when there is no writer.
///
/// # Errors
/// The engine's error.
pub fn count_rows(store: &dyn Store, table: usize) -> Result<u64> {
    let mut rows = 0;
    read_all(store, table, |_, _| {
        rows += 1;
        Ok(())
    })?;
    Ok(rows)
}

/// An error unless `table` holds `expected` entries.
pub(crate) fn check_rows(store: &dyn Store, table: usize, name: &str, expected: u64) -> Result<()> {
    expect_rows(name, count_rows(store, table)?, expected)
}

/// An error unless the number of entries found in a table is the expected one.
pub(crate) fn expect_rows(name: &str, found: u64, expected: u64) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::Wrong(format!("the table `{name}` holds {found} rows instead of {expected}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers() {
        let mut keys = [0, 9, 10, 99, 12_345_678_901].map(|row| {
            let mut key = [0; 12];
            write_key(&mut key, row);
            key
        });
        assert_eq!(&keys[4], b"012345678901");
        assert!(keys.is_sorted());
        keys.reverse();
        assert!(!keys.is_sorted());
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.below(10) as usize] = true;
            assert!((3..=5).contains(&random.within(3, 5)));
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert_eq!(seen, [true; 10]);
    }
}
