//! Counts the rows of a load that replace what is stored under their key, at little cost: in most loads no row does.
//!
//! A key above all keys of the table replaces nothing. Of others a filter of the load's own keys says most often that
//! none of them was this one: if the table was empty before the load, that settles it. What is left is looked up, in a
//! table that had entries without reading the disk: a load must not become as slow as reads at random.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use fulgurite::Table;
use fulgurite::limits::KEY_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_64;

use super::acknowledge::NOT_DURABLE_MAX;

type Hashes = HashSet<u64, BuildHasherDefault<Identity>>;

/// Counts for one table.
pub(super) struct Replaced {
    /// No key of the table is greater; `None`: it is empty.
    last_key: Option<Vec<u8>>,
    was_empty: bool,
    /// The keys of this load, committed or not.
    seen: Filter,
    /// Hashes of the keys in the open transaction.
    open: Hashes,
    /// Those of the last commits, oldest first: a read of the table finds a row once it is durable.
    recent: VecDeque<Hashes>,
    count: u64,
    unknown: u64,
}

impl Replaced {
    pub fn new(table: &Table) -> Replaced {
        let last =
            table.range(..).and_then(|mut range| Ok(range.next_entry_back()?.map(|(key, _)| key.to_vec())));
        // A last entry that cannot be read is no reason to refuse a load: then every key is looked up.
        let last_key = last.unwrap_or_else(|_| Some(vec![0xff; KEY_BYTES_MAX]));
        let was_empty = last_key.is_none();
        let (seen, open, recent) = (Filter::default(), Hashes::default(), VecDeque::new());
        Replaced { last_key, was_empty, seen, open, recent, count: 0, unknown: 0 }
    }

    /// Takes note of a row with this key, which the open transaction took.
    pub fn note(&mut self, table: &Table, key: &[u8]) {
        let hash = xxh3_64(key);
        let is_open = !self.open.insert(hash);
        if self.last_key.as_deref().is_none_or(|last| key > last) {
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            return self.seen.insert(hash);
        }
        let may_be_seen = self.seen.may_contain(hash);
        if may_be_seen && (is_open || self.recent.iter().any(|hashes| hashes.contains(&hash))) {
            self.count += 1;
        } else if may_be_seen || !self.was_empty {
            let found = match self.was_empty && !self.seen.is_overfull() {
                true => table.get(key),
                false => table.try_get(key),
            };
            match found {
                Ok(found) => self.count += u64::from(found.is_some()),
                // It would be a read from disk, or one that fails: the load does not need it.
                Err(_) => self.unknown += 1,
            }
        }
        self.seen.insert(hash);
    }

    /// The open transaction was committed.
    pub fn committed(&mut self) {
        let reused = match self.recent.len() < NOT_DURABLE_MAX {
            true => Hashes::default(),
            false => self.recent.pop_front().unwrap_or_default(),
        };
        self.recent.push_back(std::mem::replace(&mut self.open, reused));
        self.open.clear();
    }

    /// How many rows replaced something.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether [`Replaced::count`] is all of them.
    pub fn is_exact(&self) -> bool {
        self.unknown == 0
    }
}

/// Passes a hash through.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only hashes are put in");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A Bloom filter that grows: hashes that were put in are found, others seldom.
#[derive(Default)]
struct Filter {
    /// Each twice as large as the one before.
    layers: Vec<Vec<u64>>,
    /// How many hashes the last layer takes before there is another one.
    room: usize,
}

impl Filter {
    const FIRST_WORDS: usize = 1 << 13;
    /// 64 MiB; all layers have twice that.
    const WORDS_MAX: usize = 1 << 23;
    /// Of a layer, for each hash; at four bits set for each, about one in fifty others is found by mistake.
    const BITS_PER_HASH: usize = 12;

    fn insert(&mut self, hash: u64) {
        if self.room == 0 && !self.is_overfull() {
            let words = self.layers.last().map_or(Self::FIRST_WORDS, |last| last.len() * 2);
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
        for n in 0..300_000 {
            filter.insert(hash(n));
        }
        assert!(filter.layers.len() > 2 && !filter.is_overfull());
        assert!((0..300_000).all(|n| filter.may_contain(hash(n))));
        let mistakes = (300_000..600_000).filter(|n| filter.may_contain(hash(*n))).count();
        assert!(mistakes < 30_000, "{mistakes}");
    }
}
