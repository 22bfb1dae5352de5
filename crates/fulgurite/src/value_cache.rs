//! A cache of the values that are not in leaves: FlashTKV's value nodes, in one budget with the nodes of trees, and under the
//! same clock, which visits it as it visits a tree ([`crate::eviction`]).
//!
//! Values that were read once are on probation: while they have more than a tenth of the cache, the hand passes all others by.
//! One that is read again stays when the hand comes, and is off probation from then on; so is one that comes back soon after
//! it went. So what a scan reads presses out what the scan read before. (S3-FIFO, Yang and others, SOSP 2023; its two queues
//! are one clock here, and its ghosts are fingerprints.)
//!
//! A value is found by the LSN of its first byte. **INV-VAL-1.** *A cached value is the one to which the version refers*: LSNs
//! are never used again, and a look-up compares the checksum, which covers table, key, bytes and CSN, with the version's. A
//! value that garbage collection moves has another LSN: its bytes are not found under the old one any more, and go.
//!
//! Of all threads that miss a value one reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use fulgurite_index::{Evicted, IndexMemory, ValueBytes, size_class};
use fulgurite_types::Lsn;
use hashbrown::HashTable;
use parking_lot::{Condvar, Mutex};

/// How many locks the cache has.
const SHARDS: usize = 64;

/// A value that is longer than this part of the budget is not cached.
const VALUE_SHARE: usize = 32;

/// For how many rounds of the clock a value stays that was read often.
const CHANCES_MAX: u8 = 3;

/// Values on probation have this part of the cache.
const PROBATION_SHARE: usize = 10;

/// A shard of fewer slots is not made smaller.
const SLOTS_LEAST: usize = 64;

/// The cached values of a database.
pub(crate) struct ValueCache {
    shards: Box<[CachePadded<Shard>]>,
    /// The shard that the hand is in.
    hand: AtomicUsize,
    bytes: Bytes,
    memory: Arc<IndexMemory>,
}

/// The bytes of the cached values.
#[derive(Default)]
struct Bytes {
    all: AtomicUsize,
    on_probation: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    slots: Mutex<Slots>,
    /// Signalled when a load ends.
    loaded: Condvar,
}

/// The slots of a shard. A value keeps its slot, so that the hand comes by all of them in turn.
#[derive(Default)]
struct Slots {
    by_lsn: HashTable<u32>,
    all: Vec<Slot>,
    free: Vec<u32>,
    /// Fingerprints of values that went while on probation, each at the index that its hash gives.
    ghosts: Vec<u32>,
    hand: usize,
    hits: u64,
    misses: u64,
}

struct Slot {
    lsn: Lsn,
    checksum: u32,
    /// For how many rounds of the clock it stays.
    chances: u8,
    on_probation: bool,
    /// The batch of evictions before which it was loaded: reads before the next one do not count.
    loaded_in: u32,
    /// `None` while it is being loaded, or the slot is free.
    value: Option<Arc<ValueBytes>>,
}

/// The result of a look-up.
pub(crate) enum Found<'a> {
    Value(Arc<ValueBytes>),
    /// The caller is to load the value.
    Absent(Load<'a>),
}

/// While it lives, no other thread loads the value.
pub(crate) struct Load<'a> {
    cache: &'a ValueCache,
    lsn: Lsn,
}

impl ValueCache {
    pub fn new(memory: Arc<IndexMemory>) -> ValueCache {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        ValueCache { shards, hand: AtomicUsize::new(0), bytes: Bytes::default(), memory }
    }

    pub fn memory(&self) -> &Arc<IndexMemory> {
        &self.memory
    }

    /// Whether values of so many bytes are cached.
    pub fn takes(&self, len: u64) -> bool {
        len <= (self.memory.budget_bytes() / VALUE_SHARE) as u64
    }

    /// The value whose first byte is at `lsn`, if it is in memory.
    pub fn get(&self, lsn: Lsn, checksum: u32) -> Option<Arc<ValueBytes>> {
        self.shard(lsn).slots.lock().find(lsn, checksum, self.memory.batches())
    }

    /// The same, or the right to load it. Waits while another thread loads it.
    pub fn get_or_load(&self, lsn: Lsn, checksum: u32) -> Found<'_> {
        let shard = self.shard(lsn);
        let mut slots = shard.slots.lock();
        while slots.is_loading(lsn) {
            shard.loaded.wait(&mut slots);
        }
        if let Some(value) = slots.find(lsn, checksum, self.memory.batches()) {
            return Found::Value(value);
        }
        slots.misses += 1;
        // With another checksum one of the two versions is damaged.
        slots.remove(lsn, &self.bytes);
        let on_probation = !slots.take_ghost(lsn);
        let loaded_in = self.memory.batches();
        slots.insert(Slot { lsn, checksum, chances: 0, on_probation, loaded_in, value: None });
        Found::Absent(Load { cache: self, lsn })
    }

    /// Puts a copy of a value in, on probation, if it is not there.
    pub fn offer(&self, lsn: Lsn, checksum: u32, bytes: &[u8]) {
        let copied = ValueBytes::filled(size_class(bytes.len()), &self.memory, |copy| {
            copy.extend_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(value) = copied;
        let mut slots = self.shard(lsn).slots.lock();
        if slots.index(lsn).is_some() {
            return;
        }
        let on_probation = !slots.take_ghost(lsn);
        let loaded_in = self.memory.batches();
        let mut slot = Slot { lsn, checksum, chances: 0, on_probation, loaded_in, value: None };
        slot.fill(&value, &self.bytes);
        slots.insert(slot);
    }

    /// Drops a value that no version refers to any more, unless it is being loaded.
    pub fn forget(&self, lsn: Lsn) {
        let mut slots = self.shard(lsn).slots.lock();
        if !slots.is_loading(lsn) {
            slots.remove(lsn, &self.bytes);
        }
    }

    /// How many look-ups found their value, and how many did not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for shard in &self.shards {
            let slots = shard.slots.lock();
            sum = (sum.0 + slots.hits, sum.1 + slots.misses);
        }
        sum
    }

    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.slots.lock().by_lsn.is_empty())
    }

    /// A step of the clock: looks at `slots` values at most, and ends once it gave `bytes` back.
    pub fn evict_some(&self, bytes: usize, slots: usize) -> Evicted {
        let mut evicted = Evicted::default();
        let mut looks = 0;
        while evicted.bytes < bytes && looks < slots && !evicted.is_round_over {
            let hand = self.hand.load(Ordering::Relaxed);
            let mut slots_of_shard = self.shards[hand].slots.lock();
            if slots_of_shard.hand < slots_of_shard.all.len() {
                slots_of_shard.visit(&self.bytes, &mut evicted);
                looks += 1;
                continue;
            }
            slots_of_shard.hand = 0;
            slots_of_shard.shrink();
            drop(slots_of_shard);
            let next = (hand + 1) % SHARDS;
            self.hand.store(next, Ordering::Relaxed);
            evicted.is_round_over = next == 0;
        }
        evicted
    }

    fn shard(&self, lsn: Lsn) -> &Shard {
        // The table of a shard uses the highest bits and the lowest ones.
        &self.shards[(hash(lsn) >> 32) as usize % SHARDS]
    }
}

/// All bits depend on all bits of the LSN, but for the lowest ones.
fn hash(lsn: Lsn) -> u64 {
    let product = lsn.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    product ^ (product >> 32)
}

fn fingerprint(lsn: Lsn) -> u32 {
    (hash(lsn) >> 32) as u32 | 1
}

impl Bytes {
    fn has_too_many_on_probation(&self) -> bool {
        self.on_probation.load(Ordering::Relaxed) > self.all.load(Ordering::Relaxed) / PROBATION_SHARE
    }
}

impl Slot {
    fn fill(&mut self, value: &Arc<ValueBytes>, bytes: &Bytes) {
        value.set_placed(true);
        bytes.all.fetch_add(value.memory_bytes(), Ordering::Relaxed);
        if self.on_probation {
            bytes.on_probation.fetch_add(value.memory_bytes(), Ordering::Relaxed);
        }
        self.value = Some(Arc::clone(value));
    }
}

impl Slots {
    fn index(&self, lsn: Lsn) -> Option<usize> {
        let found = self.by_lsn.find(hash(lsn), |&index| self.all[index as usize].lsn == lsn);
        found.map(|&index| index as usize)
    }

    fn is_loading(&self, lsn: Lsn) -> bool {
        self.index(lsn).is_some_and(|index| self.all[index].value.is_none())
    }

    fn find(&mut self, lsn: Lsn, checksum: u32, batch: u32) -> Option<Arc<ValueBytes>> {
        let index = self.index(lsn)?;
        let slot = &mut self.all[index];
        let value = slot.value.as_ref().filter(|_| slot.checksum == checksum)?;
        if !slot.on_probation || slot.loaded_in != batch {
            slot.chances = (slot.chances + 1).min(CHANCES_MAX);
        }
        self.hits += 1;
        Some(Arc::clone(value))
    }

    /// Puts a value into the slot that became free last: the hand has just passed it.
    fn insert(&mut self, slot: Slot) {
        let lsn = slot.lsn;
        let index = match self.free.pop() {
            Some(index) => {
                self.all[index as usize] = slot;
                index
            }
            None => {
                self.all.push(slot);
                (self.all.len() - 1) as u32
            }
        };
        self.by_lsn.insert_unique(hash(lsn), index, |&index| hash(self.all[index as usize].lsn));
    }

    /// Removes a value, or a load; returns its bytes.
    fn remove(&mut self, lsn: Lsn, bytes: &Bytes) -> usize {
        let Ok(entry) = self.by_lsn.find_entry(hash(lsn), |&index| self.all[index as usize].lsn == lsn)
        else {
            return 0;
        };
        let (index, _) = entry.remove();
        self.free.push(index);
        let slot = &mut self.all[index as usize];
        slot.lsn = Lsn::NULL;
        let Some(value) = slot.value.take() else { return 0 };
        bytes.all.fetch_sub(value.memory_bytes(), Ordering::Relaxed);
        if slot.on_probation {
            bytes.on_probation.fetch_sub(value.memory_bytes(), Ordering::Relaxed);
        }
        value.set_placed(false);
        value.memory_bytes()
    }

    /// The hand looks at one slot.
    fn visit(&mut self, bytes: &Bytes, evicted: &mut Evicted) {
        let slot = &mut self.all[self.hand];
        self.hand += 1;
        let Some(value) = &slot.value else { return };
        if slot.on_probation && slot.chances > 0 {
            (slot.on_probation, slot.chances) = (false, 0);
            bytes.on_probation.fetch_sub(value.memory_bytes(), Ordering::Relaxed);
            evicted.spared += 1;
            return;
        }
        if !slot.on_probation && (bytes.has_too_many_on_probation() || slot.chances > 0) {
            slot.chances = slot.chances.saturating_sub(u8::from(!bytes.has_too_many_on_probation()));
            evicted.spared += 1;
            return;
        }
        let (lsn, on_probation) = (slot.lsn, slot.on_probation);
        evicted.bytes += self.remove(lsn, bytes);
        evicted.nodes += 1;
        if on_probation {
            self.note_ghost(lsn);
        }
    }

    fn note_ghost(&mut self, lsn: Lsn) {
        let count = self.all.len().next_power_of_two();
        if self.ghosts.len() != count {
            self.ghosts = vec![0; count];
        }
        self.ghosts[hash(lsn) as usize % count] = fingerprint(lsn);
    }

    /// Whether the value went a short while ago.
    fn take_ghost(&mut self, lsn: Lsn) -> bool {
        let count = self.ghosts.len().max(1);
        let ghost = self.ghosts.get_mut(hash(lsn) as usize % count);
        ghost.is_some_and(|ghost| std::mem::take(ghost) == fingerprint(lsn))
    }

    /// Gives most free slots back if few are in use. The hand is at the beginning.
    fn shrink(&mut self) {
        if self.all.len() < SLOTS_LEAST || self.by_lsn.len() > self.all.len() / 4 {
            return;
        }
        self.all.retain(|slot| !slot.lsn.is_null());
        self.all.shrink_to_fit();
        self.free = Vec::new();
        self.by_lsn = HashTable::with_capacity(self.all.len());
        for (index, slot) in self.all.iter().enumerate() {
            let of = |&index: &u32| hash(self.all[index as usize].lsn);
            self.by_lsn.insert_unique(hash(slot.lsn), index as u32, of);
        }
    }
}

impl Load<'_> {
    /// Caches the value.
    pub fn finish(self, value: &Arc<ValueBytes>) {
        let ValueCache { bytes, .. } = self.cache;
        let mut slots = self.cache.shard(self.lsn).slots.lock();
        let index = slots.index(self.lsn).expect("this thread's load keeps its slot");
        slots.all[index].fill(value, bytes);
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        let ValueCache { bytes, .. } = self.cache;
        let shard = self.cache.shard(self.lsn);
        let mut slots = shard.slots.lock();
        if slots.is_loading(self.lsn) {
            slots.remove(self.lsn, bytes);
        }
        drop(slots);
        shard.loaded.notify_all();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lsn(n: u32) -> Lsn {
        Lsn::new(n / 1000 + 1, n % 1000 * 64)
    }

    fn load(cache: &ValueCache, n: u32) -> Arc<ValueBytes> {
        match cache.get_or_load(lsn(n), n) {
            Found::Value(value) => value,
            Found::Absent(load) => {
                let value = ValueBytes::new(vec![n as u8; 1000], cache.memory());
                load.finish(&value);
                value
            }
        }
    }

    fn cached(cache: &ValueCache, numbers: std::ops::Range<u32>) -> usize {
        numbers.filter(|n| cache.get(lsn(*n), *n).is_some()).count()
    }

    /// Evicts until `bytes` are charged.
    fn evict_to(cache: &ValueCache, bytes: usize) {
        cache.memory().begin_batch();
        let mut looks = 0;
        while cache.memory().value_bytes() > bytes {
            cache.evict_some(cache.memory().value_bytes() - bytes, 100);
            looks += 1;
            assert!(looks < 10_000, "{} of {bytes} bytes are left", cache.memory().value_bytes());
        }
    }

    #[test]
    fn values_that_are_read_again_outlive_those_that_are_read_once() {
        let cache = ValueCache::new(Arc::default());
        (0..1000).for_each(|n| _ = load(&cache, n));
        let all = cache.memory().value_bytes();
        assert!((1_000_000..1_200_000).contains(&all) && cache.memory().lent_bytes() == 0, "{all}");
        assert_eq!(cached(&cache, 0..500), 500);
        // A scan of four times as many, each read once, with the hot ones read meanwhile.
        for n in 1000..5000 {
            _ = load(&cache, n);
            _ = load(&cache, n % 500);
            evict_to(&cache, all);
        }
        assert!(cached(&cache, 0..500) > 475, "{}", cached(&cache, 0..500));
        // Nothing is read any more: all of them go.
        evict_to(&cache, 0);
        assert!(cache.is_empty() && cache.memory().lent_bytes() == 0);
    }

    #[test]
    fn what_a_reader_holds_is_charged_as_lent_until_it_drops_it() {
        let cache = ValueCache::new(Arc::default());
        let held = load(&cache, 1);
        evict_to(&cache, 2000);
        while !cache.is_empty() {
            _ = cache.evict_some(1, 100);
        }
        assert_eq!(cache.memory().lent_bytes(), held.memory_bytes());
        assert_eq!(cache.memory().value_bytes(), held.memory_bytes());
        drop(held);
        assert_eq!((cache.memory().value_bytes(), cache.memory().lent_bytes()), (0, 0));
        _ = load(&cache, 2);
        let memory = cache.memory().clone();
        drop(cache);
        assert_eq!((memory.value_bytes(), memory.lent_bytes()), (0, 0));
    }

    #[test]
    fn an_offered_value_goes_before_those_that_are_read_and_when_it_is_forgotten() {
        let cache = ValueCache::new(Arc::default());
        (0..100).for_each(|n| _ = load(&cache, n));
        cache.memory().begin_batch();
        (0..100).for_each(|n| _ = load(&cache, n));
        let all = cache.memory().value_bytes();
        for n in 100..300 {
            cache.offer(lsn(n), n, &[n as u8; 1000]);
        }
        assert_eq!((cached(&cache, 100..300), cache.memory().lent_bytes()), (200, 0));
        // Those that were not read again go first; the look-ups above counted as reads of one batch.
        evict_to(&cache, all);
        assert_eq!(cached(&cache, 0..100), 100);
        cache.forget(lsn(5));
        cache.forget(lsn(4000));
        assert_eq!(cached(&cache, 0..100), 99);
        let Found::Absent(loading) = cache.get_or_load(lsn(5), 5) else { panic!("it was forgotten") };
        cache.forget(lsn(5));
        cache.offer(lsn(5), 5, &[5; 1000]);
        loading.finish(&ValueBytes::new(vec![5; 1000], cache.memory()));
        assert_eq!(cached(&cache, 0..100), 100);
        evict_to(&cache, 0);
        assert!(cache.is_empty() && cache.memory().value_bytes() == 0);
    }

    #[test]
    fn another_checksum_is_another_value() {
        let cache = ValueCache::new(Arc::default());
        _ = load(&cache, 1);
        assert!(cache.get(lsn(1), 2).is_none());
        let Found::Absent(absent) = cache.get_or_load(lsn(1), 2) else { panic!("it is another value") };
        drop(absent);
        assert!(cache.get(lsn(1), 1).is_none() && cache.is_empty());
        assert_eq!(cache.memory().value_bytes(), 0);
    }

    #[test]
    fn threads_that_miss_one_value_share_its_load_and_a_failed_one_is_tried_again() {
        let cache = ValueCache::new(Arc::default());
        let Found::Absent(failing) = cache.get_or_load(lsn(1), 1) else { panic!("nothing is cached") };
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| load(&cache, 1).len())).collect();
            std::thread::park_timeout(Duration::from_millis(20));
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            drop(failing);
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap() == 1000));
        });
        assert_eq!(cache.hits_and_misses(), (3, 2));
    }

    #[test]
    fn slots_of_values_that_are_gone_are_given_back() {
        let cache = ValueCache::new(Arc::default());
        (0..20_000).for_each(|n| _ = load(&cache, n));
        evict_to(&cache, 100_000);
        let left: usize = cache.shards.iter().map(|shard| shard.slots.lock().by_lsn.len()).sum();
        let found = (0..20_000).filter(|n| cache.get(lsn(*n), *n).is_some()).count();
        assert_eq!(found, left);
        evict_to(&cache, 0);
        let slots: usize = cache.shards.iter().map(|shard| shard.slots.lock().all.len()).sum();
        assert!(slots <= SHARDS * SLOTS_LEAST, "{slots}");
    }
}
