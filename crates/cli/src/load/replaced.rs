//! Counts the rows of a load that replace what is stored under their key, at little cost: in most loads no row does.
//!
//! A filter of the load's own keys says most often that none of them was this one: if the table had no key as great
//! before the load, that settles it. What is left is looked up, in a table that had entries without reading the disk: a
//! load must not become as slow as reads at random. Rows wait for that in batches, so that the processor fetches their
//! parts of the filter side by side.

use fulgurite::limits::KEY_BYTES_MAX;
use fulgurite::{Table, Transaction};
use xxhash_rust::xxh3::xxh3_64;

/// Counts for one table.
pub(super) struct Replaced {
    /// No key that was there before the load is greater; `None`: there was none.
    table_last: Option<Vec<u8>>,
    /// The keys of the load that were settled.
    seen: Filter,
    /// Hashes of the keys that wait, and where each key ends in `waiting_keys`.
    waiting: Vec<(u64, usize)>,
    waiting_keys: Vec<u8>,
    replaced: u64,
    unknown: u64,
}

impl Replaced {
    pub fn new(table: &Table) -> Replaced {
        let last =
            table.range(..).and_then(|mut range| Ok(range.next_entry_back()?.map(|(key, _)| key.to_vec())));
        // A last entry that cannot be read is no reason to refuse a load: then every key is looked up.
        let table_last = last.unwrap_or_else(|_| Some(vec![0xff; KEY_BYTES_MAX]));
        let (seen, waiting, waiting_keys) = (Filter::default(), Vec::new(), Vec::new());
        Replaced { table_last, seen, waiting, waiting_keys, replaced: 0, unknown: 0 }
    }

    /// Takes note of a row with this key.
    pub fn note(&mut self, key: &[u8]) {
        self.waiting_keys.extend_from_slice(key);
        self.waiting.push((xxh3_64(key), self.waiting_keys.len()));
    }

    /// Counts the rows noted since the last call. `transaction` does not see those rows, but all before
    /// them.
    pub fn settle(&mut self, table: &Table, transaction: &mut Transaction) {
        let (waiting, keys) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.waiting_keys));
        let mut start = 0;
        for (index, &(hash, end)) in waiting.iter().enumerate() {
            let key = &keys[start..end];
            start = end;
            let may_be_own = self.seen.insert(hash);
            let was_there = self.table_last.as_deref().is_some_and(|last| key <= last);
            if !may_be_own && !was_there {
                continue;
            }
            if may_be_own && waiting[..index].iter().any(|(earlier, _)| *earlier == hash) {
                self.replaced += 1;
                continue;
            }
            let is_overfull = self.seen.is_overfull();
            // The table shows what is durable, a transaction also commits that are on their way.
            let found = match may_be_own && !is_overfull {
                true => transaction.get(table, key),
                false => table.try_get(key),
            };
            match found {
                Ok(Some(_)) => self.replaced += 1,
                Ok(None) => self.unknown += u64::from(may_be_own && is_overfull),
                // It would be a read from disk, or one that fails: the load does not need it.
                Err(_) => self.unknown += 1,
            }
        }
        (self.waiting, self.waiting_keys) = (waiting, keys);
        self.waiting.clear();
        self.waiting_keys.clear();
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
    /// Of a layer, for each hash; at four bits set for each, about one in five hundred others is found by mistake.
    const BITS_PER_HASH: usize = 24;

    /// Puts a hash in; whether it may have been in already.
    #[inline]
    fn insert(&mut self, hash: u64) -> bool {
        let bits = bits_of(hash);
        if self.room == 0 && !self.is_overfull() {
            let words = self.layers.last().map_or(Self::FIRST_WORDS, |last| last.len() * 8);
            self.layers.push(vec![0; words]);
            self.room = words * 64 / Self::BITS_PER_HASH;
        }
        self.room = self.room.saturating_sub(1);
        let mut found = false;
        let layers = self.layers.len();
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let word = word_of(layer.len(), hash);
            found |= layer[word] & bits == bits;
            if index + 1 == layers {
                layer[word] |= bits;
            }
        }
        found
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
        let mistakes = (0..600_000).filter(|n| filter.insert(hash(*n))).count();
        assert!(mistakes < 6_000, "{mistakes}");
        assert!(filter.layers.len() == 2 && !filter.is_overfull());
        assert!((0..600_000).all(|n| filter.insert(hash(n))));
    }
}
