//! Where blocks of sorted sets begin, as far as commands have looked that up.
//!
//! It may be wrong: the row that a start leads to says where its block ends. So no command takes care that it is right, and a
//! transaction that did not happen does no harm.

use std::collections::BTreeSet;

use parking_lot::RwLock;

use super::tables::TableKey;

/// So many are remembered.
const STARTS_MAX: usize = 16 << 10;

/// A longer key is not, so that all of them take less than 8 MiB.
const KEY_BYTES_MAX: usize = 256;

/// Keys of rows of blocks.
#[derive(Default)]
pub(crate) struct BlockStarts(RwLock<Starts>);

#[derive(Default)]
struct Starts {
    keys: BTreeSet<TableKey>,
    /// How many were learned.
    learned: u64,
}

impl Starts {
    /// Forgets one, of any collection: about as likely that of one as of another.
    fn forget_any(&mut self) {
        let id = |key: Option<&TableKey>| {
            key.and_then(|key| key.first_chunk()).map_or(0, |id| u64::from_be_bytes(*id))
        };
        let (first, last) = (id(self.keys.first()), id(self.keys.last()));
        let spread = self.learned.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let ids = u128::from(last - first) + 1;
        let from = first + ((u128::from(spread) * ids) >> 64) as u64;
        let from = TableKey::from_slice(&from.to_be_bytes());
        if let Some(key) = self.keys.range::<TableKey, _>(&from..).next().cloned() {
            self.keys.remove(&key);
        }
    }
}

impl BlockStarts {
    /// The last one at or before a key of its collection.
    pub fn at_or_before(&self, key: &TableKey) -> Option<TableKey> {
        let starts = self.0.read();
        let last = starts.keys.range::<TableKey, _>(..=key).next_back()?;
        (last[..8] == key[..8]).then(|| last.clone())
    }

    /// The last one before a key of its collection.
    pub fn before(&self, key: &TableKey) -> Option<TableKey> {
        let starts = self.0.read();
        let last = starts.keys.range::<TableKey, _>(..key).next_back()?;
        (last[..8] == key[..8]).then(|| last.clone())
    }

    pub fn learn(&self, start: &TableKey) {
        if start.len() > KEY_BYTES_MAX {
            return;
        }
        let mut starts = self.0.write();
        if starts.keys.len() >= STARTS_MAX {
            starts.forget_any();
        }
        starts.learned += 1;
        starts.keys.insert(start.clone());
    }

    pub fn forget(&self, start: &TableKey) {
        self.0.write().keys.remove(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_start_of_a_collection_before_a_key_is_found_and_long_ones_are_not_kept() {
        let starts = BlockStarts::default();
        let key = |id: u64, rest: &[u8]| TableKey::from_vec([&id.to_be_bytes()[..], rest].concat());
        for start in [key(1, b"b"), key(2, b"d"), key(2, b"f"), key(2, &[b'e'; 249])] {
            starts.learn(&start);
        }
        let found = |id, rest: &[u8]| starts.at_or_before(&key(id, rest)).map(|start| start[8..].to_vec());
        assert_eq!(found(2, b"g"), Some(b"f".to_vec()));
        assert_eq!(found(2, b"f"), Some(b"f".to_vec()));
        assert_eq!(found(2, b"ez"), Some(b"d".to_vec()));
        assert_eq!(starts.before(&key(2, b"f")), Some(key(2, b"d")));
        assert_eq!(starts.before(&key(2, b"d")), None);
        assert_eq!((found(2, b"c"), found(3, b"a"), found(1, b"a")), (None, None, None));
        starts.forget(&key(2, b"d"));
        assert_eq!(found(2, b"ez"), None);
    }

    #[test]
    fn their_number_is_bounded() {
        let starts = BlockStarts::default();
        let key = |number: u64| TableKey::from_slice(&(number % 7_000 * 1_000).to_be_bytes());
        let key = |number: u64| TableKey::from_vec([&key(number)[..], &number.to_be_bytes()].concat());
        let count = 4 * STARTS_MAX as u64;
        for number in 0..count {
            starts.learn(&key(number));
            assert!(starts.0.read().keys.len() <= STARTS_MAX);
        }
        // Those that were forgotten are of all collections.
        let known = (0..count).filter(|number| starts.at_or_before(&key(*number)) == Some(key(*number)));
        let ids: BTreeSet<u64> = known.map(|number| number % 7_000).collect();
        assert!(ids.len() > 5_000, "{}", ids.len());
    }
}
