//! Counts the rows of a load that replace an entry, at little cost: in most loads no row does.
//!
//! A filter of the load's own keys most often shows that a key is new to the load. If also the table had no key as
//! great before the load, the row replaces nothing. The remaining keys are looked up. In a table that had entries the
//! lookup does not read the disk: a load must not become as slow as random reads. If the table was empty, a thread does
//! the lookups batch by batch, so that the committing thread never waits for the filter's memory: each batch brings a
//! transaction that began before its commit. If it had entries, the newest entry decides, so the lookup happens before
//! the commit.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::env::{Env, Joiner};
use fulgurite::limits::KEY_BYTES_MAX;
use fulgurite::{Table, Transaction};
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::Failure;

/// Batches that wait to be counted.
const BATCHES_AHEAD: usize = 8;

/// Hashes whose words are brought into the cache at once.
const HASHES_AHEAD: usize = 32;

/// The keys of rows, in the order of the input.
#[derive(Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<usize>,
}

impl Keys {
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Rows of one table that one commit makes.
pub(super) struct Batch {
    pub table: Table,
    pub replaced: Arc<Mutex<Replaced>>,
    pub keys: Keys,
}

/// The thread that counts.
pub(super) struct Counter {
    batches: SyncSender<(Transaction, Vec<Batch>)>,
    /// Counted keys, for reuse of their memory: freed on the other thread it would return in pieces.
    counted: Receiver<Keys>,
    thread: Box<dyn Joiner>,
}

impl Counter {
    pub fn start(env: &Arc<dyn Env>) -> Result<Counter, Failure> {
        let (batches, receiver) = sync_channel(BATCHES_AHEAD);
        let (sender, counted) = channel();
        let thread = env
            .spawn("fulgurite-replaced", Box::new(move || count_all(&receiver, &sender)))
            .map_err(|error| Failure::new(format!("starting the thread that counts rows: {error}")))?;
        Ok(Counter { batches, counted, thread })
    }

    /// Room for the keys of the next commit.
    pub fn empty_keys(&self) -> Keys {
        self.counted.try_recv().unwrap_or_default()
    }

    /// Hands over the rows of the next commit. `before` began before it, and after the one before.
    pub fn count(&self, before: Transaction, batches: Vec<Batch>) -> Result<(), Failure> {
        let sent = self.batches.send((before, batches));
        sent.map_err(|_| Failure::new("the thread that counts rows has died"))
    }

    /// Waits until all is counted.
    pub fn finish(self) -> Result<(), Failure> {
        std::mem::drop(self.batches);
        match self.thread.join() {
            true => Ok(()),
            false => Err(Failure::new("the thread that counts rows has died")),
        }
    }
}

fn count_all(batches: &Receiver<(Transaction, Vec<Batch>)>, counted: &Sender<Keys>) {
    while let Ok((before, batches)) = batches.recv() {
        for Batch { table, replaced, mut keys } in batches {
            replaced.lock().unwrap_or_else(PoisonError::into_inner).count(&table, &keys, &before);
            keys.clear();
            // At the end of a load there is no receiver.
            let _ = counted.send(keys);
        }
    }
}

/// The state of one table.
pub(super) struct Replaced {
    /// No key that was there before the load is greater; `None`: there was none.
    table_last: Option<Vec<u8>>,
    /// The keys of the load that were counted.
    seen: Filter,
    replaced: u64,
    unknown: u64,
}

impl Replaced {
    pub fn new(table: &Table) -> Replaced {
        let last =
            table.range(..).and_then(|mut range| Ok(range.next_entry_back()?.map(|(key, _)| key.to_vec())));
        // A last entry that cannot be read is no reason to refuse a load: then every key is looked up.
        let table_last = last.unwrap_or_else(|_| Some(vec![0xff; KEY_BYTES_MAX]));
        Replaced { table_last, seen: Filter::default(), replaced: 0, unknown: 0 }
    }

    /// Counts rows with these keys. `before` does not see those rows, but all before them.
    pub fn count(&mut self, table: &Table, keys: &Keys, before: &Transaction) {
        let hashes: Vec<u64> = keys.iter().map(xxh3_64).collect();
        let mut by_hash = None;
        for ((index, key), &hash) in keys.iter().enumerate().zip(&hashes) {
            if index.is_multiple_of(HASHES_AHEAD) {
                self.seen.load(&hashes[index..hashes.len().min(index + HASHES_AHEAD)]);
            }
            let may_be_own = self.seen.insert(hash);
            let was_there = self.table_last.as_deref().is_some_and(|last| key <= last);
            if !may_be_own && !was_there {
                continue;
            }
            if may_be_own && by_hash.get_or_insert_with(|| ByHash::of(&hashes)).is_repeated(keys, hash, index)
            {
                self.replaced += 1;
                continue;
            }
            if may_be_own && self.seen.is_overfull() {
                self.unknown += 1;
                continue;
            }
            // The table shows durable commits only, a transaction also those that are not durable yet.
            let found = match may_be_own {
                true => before.get(table, key),
                false => table.try_get(key),
            };
            match found {
                Ok(Some(_)) => self.replaced += 1,
                Ok(None) => {}
                // The lookup would read from disk, or fail: the load does not need it.
                Err(_) => self.unknown += 1,
            }
        }
    }

    /// Whether the table had no entry before the load: then `before` has all entries to look up, and rows may be
    /// counted after their commit.
    pub fn was_empty(&self) -> bool {
        self.table_last.is_none()
    }

    /// How many rows replaced an entry.
    pub fn rows(&self) -> u64 {
        self.replaced
    }

    /// Whether [`Replaced::rows`] is all of them.
    pub fn is_exact(&self) -> bool {
        self.unknown == 0
    }
}

/// The keys of a batch, to be found by their hashes: made for the batches in which the filter finds something.
struct ByHash(Vec<(u64, usize)>);

impl ByHash {
    fn of(hashes: &[u64]) -> ByHash {
        let mut pairs: Vec<_> = hashes.iter().copied().zip(0..).collect();
        pairs.sort_unstable();
        ByHash(pairs)
    }

    /// Whether the key at `index` is also at an earlier one.
    fn is_repeated(&self, keys: &Keys, hash: u64, index: usize) -> bool {
        let first = self.0.partition_point(|&(other, _)| other < hash);
        let mut earlier = self.0[first..].iter().take_while(|&&pair| pair < (hash, index));
        earlier.any(|&(_, earlier)| keys.get(earlier) == keys.get(index))
    }
}

/// A Bloom filter that grows: it finds all hashes that were inserted, and seldom another.
#[derive(Default)]
struct Filter {
    /// Each eight times as large as the one before.
    layers: Vec<Vec<u64>>,
    /// How many hashes the last layer takes before the next is added.
    room: usize,
}

impl Filter {
    /// 1 MiB.
    const FIRST_WORDS: usize = 1 << 17;
    /// 64 MiB.
    const WORDS_MAX: usize = 1 << 23;
    /// Bits of a layer for each hash; with four bits set for each, about one in five hundred others is found by
    /// mistake.
    const BITS_PER_HASH: usize = 24;

    /// Brings the words of these hashes into the cache all at once: one by one, each would wait for memory.
    fn load(&self, hashes: &[u64]) {
        let words = hashes
            .iter()
            .flat_map(|&hash| self.layers.iter().map(move |layer| layer[word_of(layer.len(), hash)]));
        std::hint::black_box(words.fold(0, |all, word| all | word));
    }

    /// Inserts a hash; returns whether it may have been in the filter already.
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

    /// Whether the filter holds more hashes than it was made for, and has too many false positives.
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
    fn a_key_is_repeated_if_it_came_before_in_the_batch() {
        let mut keys = Keys::default();
        for key in ["a", "b", "a", "", "c", "", "a"] {
            keys.push(key.as_bytes());
        }
        // Two keys that are not equal have one hash.
        for hash in [|key: &[u8]| xxh3_64(key), |key: &[u8]| u64::from(key == b"a" || key == b"b")] {
            let hashes: Vec<u64> = keys.iter().map(hash).collect();
            let by_hash = ByHash::of(&hashes);
            let repeated: Vec<_> = (0..7).map(|i| by_hash.is_repeated(&keys, hashes[i], i)).collect();
            assert_eq!(repeated, [false, false, true, false, false, true, true]);
        }
    }

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
