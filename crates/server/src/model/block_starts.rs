//! Where blocks of sorted sets begin, as far as threads have looked that up.
//!
//! It may be wrong: the row that a start leads to says where its block ends. So no thread takes care that it is right, and a
//! transaction that did not happen does no harm.

use std::collections::BTreeSet;

use parking_lot::RwLock;

use super::tables::TableKey;

/// When there are so many, all are forgotten.
const STARTS_MAX: usize = 16 << 10;

/// A longer key is not remembered, so that all of them take less than 2 MiB.
const KEY_BYTES_MAX: usize = 64;

/// Keys of rows of blocks.
#[derive(Default)]
pub(crate) struct BlockStarts(RwLock<BTreeSet<TableKey>>);

impl BlockStarts {
    /// The last one at or before a key of its collection.
    pub fn at_or_before(&self, key: &TableKey) -> Option<TableKey> {
        let starts = self.0.read();
        let last = starts.range::<TableKey, _>(..=key).next_back()?;
        (last[..8] == key[..8]).then(|| last.clone())
    }

    pub fn learn(&self, start: &TableKey) {
        if start.len() > KEY_BYTES_MAX {
            return;
        }
        let mut starts = self.0.write();
        if starts.len() >= STARTS_MAX {
            starts.clear();
        }
        starts.insert(start.clone());
    }

    pub fn forget(&self, start: &TableKey) {
        self.0.write().remove(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_start_of_a_collection_before_a_key_is_found_and_long_ones_are_not_kept() {
        let starts = BlockStarts::default();
        let key = |id: u64, rest: &[u8]| TableKey::from_vec([&id.to_be_bytes()[..], rest].concat());
        for start in [key(1, b"b"), key(2, b"d"), key(2, b"f"), key(2, &[b'e'; 57])] {
            starts.learn(&start);
        }
        let found = |id, rest: &[u8]| starts.at_or_before(&key(id, rest)).map(|start| start[8..].to_vec());
        assert_eq!(found(2, b"g"), Some(b"f".to_vec()));
        assert_eq!(found(2, b"f"), Some(b"f".to_vec()));
        assert_eq!(found(2, b"ez"), Some(b"d".to_vec()));
        assert_eq!((found(2, b"c"), found(3, b"a"), found(1, b"a")), (None, None, None));
        starts.forget(&key(2, b"d"));
        assert_eq!(found(2, b"ez"), None);
    }

    #[test]
    fn their_number_is_bounded() {
        let starts = BlockStarts::default();
        for number in 0..3 * STARTS_MAX as u64 {
            starts.learn(&TableKey::from_slice(&number.to_be_bytes()));
            assert!(starts.0.read().len() <= STARTS_MAX);
        }
    }
}
