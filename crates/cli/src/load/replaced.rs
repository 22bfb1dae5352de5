//! Counts the rows of a load that replace what is stored under their key, at little cost: in most loads no row does.
//!
//! A key above all keys of the table replaces nothing. Of others a filter of the load's own keys says most often that
//! none of them was this one: if the table was empty before the load, that settles it. What is left is looked up, in a
//! table that had entries without reading the disk: a load must not become as slow as reads at random.

use fulgurite::limits::KEY_BYTES_MAX;
use fulgurite::{Table, Transaction};
use xxhash_rust::xxh3::xxh3_64;

/// Counts for one table.
pub(super) struct Replaced {
    /// No key that was there before the load is greater; `None`: there was none.
    table_last: Option<Vec<u8>>,
    /// The greatest key of the load.
    own_last: Option<Vec<u8>>,
    /// The keys of the load.
    seen: Filter,
    replaced: u64,
    unknown: u64,
}

/// What was under the key of a row.
#[derive(Clone, Copy)]
pub(super) enum Found {
    Nothing,
    Something,
    /// Looking would have cost too much, or failed: the load does not need it.
    Unknown,
}

impl Replaced {
    pub fn new(table: &Table) -> Replaced {
        let last =
            table.range(..).and_then(|mut range| Ok(range.next_entry_back()?.map(|(key, _)| key.to_vec())));
        // A last entry that cannot be read is no reason to refuse a load: then every key is looked up.
        let table_last = last.unwrap_or_else(|_| Some(vec![0xff; KEY_BYTES_MAX]));
        let seen = Filter::default();
        Replaced { table_last, own_last: None, seen, replaced: 0, unknown: 0 }
    }

    /// Looks what is under the key of a row that `transaction` is about to take.
    pub fn look(&mut self, transaction: &mut Transaction, table: &Table, key: &[u8]) -> Found {
        let may_be_own = self.may_be_own(key);
        let was_there = self.table_last.as_deref().is_some_and(|last| key <= last);
        if !may_be_own && !was_there {
            return Found::Nothing;
        }
        // The transaction sees its own rows and those of commits that are on their way; the table, what is durable.
        let found = match may_be_own && !self.seen.is_overfull() {
            true => transaction.get(table, key),
            false => table.try_get(key),
        };
        match found {
            Ok(Some(_)) => Found::Something,
            Ok(None) if may_be_own && self.seen.is_overfull() => Found::Unknown,
            Ok(None) => Found::Nothing,
            Err(_) => Found::Unknown,
        }
    }

    /// The row was taken.
    pub fn count(&mut self, found: Found) {
        match found {
            Found::Nothing => {}
            Found::Something => self.replaced += 1,
            Found::Unknown => self.unknown += 1,
        }
    }

    /// Whether an earlier row of the load may have had this key; now one has.
    fn may_be_own(&mut self, key: &[u8]) -> bool {
        let hash = xxh3_64(key);
        let is_greatest = self.own_last.as_deref().is_none_or(|last| key > last);
        if is_greatest {
            let last = self.own_last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        let may_be_own = !is_greatest && self.seen.may_contain(hash);
        self.seen.insert(hash);
        may_be_own
    }

    /// How many rows replaced something.
    pub fn rows(&self) -> u64 {
        self.replaced
    }

    /// Whether [`Replaced::rows`] is all of them.
    pub fn is_exact(&self) -> bool {
        self.unknown == 0
    }
}

/// A Bloom filter that grows: hashes that were put in are found, others seldom.
#[derive(Default)]
struct Filter {
    /// Each eight times as large as the one before.
    layers: Vec<Vec<u64>>,
    /// How many hashes the last layer takes before there is another one.
    room: usize,
}

impl Filter {
    /// 1 MiB.
    const FIRST_WORDS: usize = 1 << 17;
    /// 64 MiB.
    const WORDS_MAX: usize = 1 << 23;
    /// Of a layer, for each hash; at four bits set for each, about one in a hundred others is found by mistake.
    const BITS_PER_HASH: usize = 16;

    fn insert(&mut self, hash: u64) {
        if self.room == 0 && !self.is_overfull() {
            let words = self.layers.last().map_or(Self::FIRST_WORDS, |last| last.len() * 8);
            self.layers.push(vec![0; words]);
            self.room = words * 64 / Self::BITS_PER_HASH;
        }
        self.room = self.room.saturating_sub(1);
        if let Some(layer) = self.layers.last_mut() {
            let word = word_of(layer.len(), hash);
            layer[word] |= bits_of(hash);
        }
    }

    fn may_contain(&self, hash: u64) -> bool {
        let bits = bits_of(hash);
        self.layers.iter().any(|layer| layer[word_of(layer.len(), hash)] & bits == bits)
    }

    /// Whether it holds more than it was made for, and finds too much.
    fn is_overfull(&self) -> bool {
        self.room == 0 && self.layers.last().is_some_and(|layer| layer.len() >= Self::WORDS_MAX)
    }
}

/// `len` is a power of two.
fn word_of(len: usize, hash: u64) -> usize {
    hash as usize & (len - 1)
}

/// Four bits of a word, by the upper bits of the hash.
fn bits_of(hash: u64) -> u64 {
    (1 << (hash >> 58)) | (1 << (hash >> 52 & 63)) | (1 << (hash >> 46 & 63)) | (1 << (hash >> 40 & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_forgets_nothing_and_finds_little_else() {
        let mut filter = Filter::default();
        let hash = |n: u64| xxh3_64(&n.to_be_bytes());
        for n in 0..600_000 {
            filter.insert(hash(n));
        }
        assert!(filter.layers.len() == 2 && !filter.is_overfull());
        assert!((0..600_000).all(|n| filter.may_contain(hash(n))));
        let mistakes = (600_000..1_200_000).filter(|n| filter.may_contain(hash(*n))).count();
        assert!(mistakes < 12_000, "{mistakes}");
    }
}
