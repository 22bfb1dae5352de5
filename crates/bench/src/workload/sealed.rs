//! Values that identify their row and their write, so that a store that swaps, tears or loses them is detected.

use std::ops::Range;

use super::Filling;
use super::rows::{Random, Sizes, fill, read_all};
use crate::engine::Store;
use crate::{Error, Result};

/// The content of a value: the row and the write in eight bytes each, lowest first; the rest of the value is derived
/// from the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    /// The row that the value belongs to.
    pub row: u64,
    /// The number of the write of the row: 0 for the filling.
    pub write: u64,
}

impl Seal {
    /// The shortest value: the row, the write, and eight bytes that are derived from them.
    pub const VALUE_BYTES_MIN: usize = 24;

    /// Writes over all of `value`.
    pub fn write_over(self, value: &mut [u8]) {
        value[..8].copy_from_slice(&self.row.to_le_bytes());
        value[8..16].copy_from_slice(&self.write.to_le_bytes());
        self.rest().fill(&mut value[16..]);
    }

    /// The content of a whole value; `None` if it is not as it was written.
    pub fn of(value: &[u8]) -> Option<Seal> {
        let seal = Seal { row: word(value, 0)?, write: word(value, 8)? };
        let mut rest = seal.rest();
        let is_whole = value[16..].chunks(8).all(|chunk| rest.next().to_le_bytes().starts_with(chunk));
        is_whole.then_some(seal)
    }

    fn rest(self) -> Random {
        Random::new(self.row.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.write)
    }
}

fn word(value: &[u8], at: usize) -> Option<u64> {
    value.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// An error unless the value found under `key` is one of `row`. It checks the value's head only: the checks after a run
/// read the whole value.
pub(crate) fn expect_row(found: bool, key: &[u8], value: &[u8], row: u64) -> Result<()> {
    match found {
        false => Err(missing(key)),
        true if word(value, 0) == Some(row) => Ok(()),
        true => Err(Error::engine(
            "searching",
            format!("{} has the value of another row", String::from_utf8_lossy(key)),
        )),
    }
}

/// The error for a missing row that was loaded, and that no transaction leaves deleted.
pub(crate) fn missing(key: &[u8]) -> Error {
    Error::engine("searching", format!("the row {} is not there", String::from_utf8_lossy(key)))
}

/// The writes of one thread, numbered so that no two writes of a run have the same number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes {
    next: u64,
}

impl Writes {
    /// Those of thread number `thread`.
    pub fn of(thread: u32) -> Writes {
        Writes { next: (u64::from(thread) + 1) << 40 }
    }

    pub fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Fills the table 0 with these rows, whose keys `write_key` writes, and settles the store.
pub(crate) fn fill_sealed(
    store: &dyn Store,
    sizes: Sizes,
    rows: Range<u64>,
    filling: &mut Filling<'_>,
    write_key: impl Fn(&mut [u8], u64),
) -> Result<()> {
    let mut key = vec![0; sizes.key_bytes];
    let mut value = vec![0; sizes.value_bytes];
    fill(store, rows, sizes.row_bytes(), filling, |row, open| {
        write_key(&mut key, row);
        Seal { row, write: 0 }.write_over(&mut value);
        open.put(0, &key, &value)
    })
}

/// Counts the entries of a table, whose name is `name`. An error if an entry is not whole, or if by `belongs` it is
/// under a wrong key.
pub(crate) fn check_seals(
    store: &dyn Store,
    table: usize,
    name: &str,
    mut belongs: impl FnMut(&[u8], Seal) -> bool,
) -> Result<u64> {
    let mut rows = 0;
    read_all(store, table, |key, value| {
        rows += 1;
        match Seal::of(value) {
            Some(seal) if belongs(key, seal) => Ok(()),
            seal => Err(Error::Wrong(format!(
                "the table `{name}` holds under {} what was never written there: {}",
                key.escape_ascii(),
                seal.map_or("bytes of no value".to_string(), |Seal { row, write }| {
                    format!("write {write} of row {row}")
                }),
            ))),
        }
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_its_row_and_write() {
        let mut value = vec![0; 99];
        let seal = Seal { row: 5, write: 7 };
        seal.write_over(&mut value);
        assert_eq!(Seal::of(&value), Some(seal));
        expect_row(true, b"5", &value, 5).expect("its own row");
        assert!(expect_row(true, b"6", &value, 6).is_err());
        assert!(expect_row(false, b"5", &value, 5).is_err());
        for at in 0..value.len() {
            value[at] ^= 1;
            assert_eq!(Seal::of(&value), None, "byte {at} is not guarded");
            value[at] ^= 1;
        }
        assert_eq!(Seal::of(&value[..15]), None);
    }

    #[test]
    fn no_two_writes_are_the_same() {
        let mut writes = Writes::of(0);
        let next = writes.next();
        assert!(next > 0);
        assert_ne!(next, writes.next());
        assert_ne!(next, Writes::of(1).next());
    }
}
