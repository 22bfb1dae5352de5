//! How much memory the trees, the cached values and the memtables of a store take: counted from allocation to release, not as long as a tree or a table
//! points to it. A leaf that left its tree counts while a value, a cursor or a reader's epoch holds it.
//!
//! And the budget that they share with what else the store counts in it. Eviction begins somewhat below the budget
//! ([`IndexMemory::is_tight`]), and ends further below. Above it those wait that load nodes, or build them
//! ([`IndexMemory::wait_for_room`]).
//!
//! **INV-MEM-1.** *No thread waits for memory that only it, or a thread that waits for it, can give back.* A wait ends when there is room,
//! when eviction has found nothing to give back, and in any case after [`WAIT_MAX`]: so whatever is held over it, all go on. A
//! reader holds no lock and no epoch over it; a merge holds the lock for merging of its table, which eviction does not take.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_epoch as epoch;
use crossbeam_utils::CachePadded;
use fulgurite_types::TableId;
use fulgurite_types::sync::{Condvar, Mutex};

use crate::node_loads::{LoadCounters, LoadFor, MemoryWaits, NodeLoads};

/// What the allocator adds to a reference-counted allocation: both counts.
pub(crate) const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// How long a thread waits for memory at most, in naps.
const WAIT_MAX: Duration = Duration::from_millis(100);
const NAPS: u32 = 10;

/// Eviction begins when the rest of the budget is one part in so many, and ends when it is twice that.
const REST_SHARE: usize = 16;

/// Many nodes are dirty when they have this part of the budget.
const DIRTY_SHARE: usize = 4;

/// Work that can be done later ends when this part of the used bytes is beyond the budget.
const EXCEEDED_SHARE: usize = 8;

/// While more than this part of all nodes in memory were not read since they were loaded, eviction takes only those.
const UNREAD_SHARE: isize = 4;

/// Called when memory is tight.
type Waker = Box<dyn Fn() + Send + Sync>;

/// A monotonic clock, in nanoseconds.
type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// The memory of a store's trees and of the memtables over them, in bytes, and its budget.
#[derive(Default)]
pub struct IndexMemory {
    nodes: AtomicUsize,
    values: AtomicUsize,
    placed: AtomicUsize,
    dirty: AtomicUsize,
    slots: AtomicUsize,
    memtables: AtomicUsize,
    /// Of those of memtables: what will not be merged any more.
    left_memtables: AtomicUsize,
    /// How many versions of memtables are not linked in order; those of tables that are walked count more.
    unlinked: AtomicUsize,
    tables: AtomicUsize,
    tombstones: AtomicUsize,
    others: AtomicUsize,
    superseded: AtomicI64,
    /// How many nodes are in slots of trees.
    in_memory: AtomicIsize,
    /// How many of them are leaves that were not read since they were loaded.
    unread: AtomicIsize,
    /// How many batches of evictions have begun: readers compare it with that of a leaf's load.
    batches: CachePadded<AtomicU32>,
    /// When a purge of a leaf of any tree is due, as far as it is known.
    due: EarliestDue,
    /// About now, in seconds since 1970; 0: not known.
    now_s: AtomicU32,
    /// The tables whose trees may have something to evict ([`crate::btree`]).
    evictable: Mutex<BTreeSet<TableId>>,
    /// Bytes of the records that eviction has written.
    evicted_bytes: AtomicU64,
    counters: LoadCounters,
    budget: Budget,
    secret: AtomicU64,
}

/// The earliest of some times, in seconds since 1970; 0: none.
#[derive(Debug, Default)]
pub(crate) struct EarliestDue(AtomicU32);

impl EarliestDue {
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds a time.
    pub fn learn(&self, due: u32) {
        let is_earlier = |known: u32| (due != 0 && (known == 0 || due < known)).then_some(due);
        _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_earlier);
    }

    /// Removes all.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

struct Budget {
    bytes: AtomicUsize,
    /// Whether eviction may give something back.
    gives: AtomicBool,
    /// See [`IndexMemory::needs_checkpoint`].
    needs_checkpoint: AtomicBool,
    waiting: Mutex<()>,
    /// Signalled when eviction gave something back, or found that it cannot.
    changed: Condvar,
    waker: OnceLock<Waker>,
    clock: OnceLock<Clock>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            bytes: AtomicUsize::new(usize::MAX),
            gives: AtomicBool::new(false),
            needs_checkpoint: AtomicBool::new(false),
            waiting: Mutex::new(()),
            changed: Condvar::new(),
            waker: OnceLock::new(),
            clock: OnceLock::new(),
        }
    }
}

/// About the bytes of a record while it is read.
const READ_BYTES: usize = 8 << 10;

/// A node that is read from disk, until it is charged itself.
pub(crate) struct ReadCharge<'a>(&'a IndexMemory);

impl Drop for ReadCharge<'_> {
    fn drop(&mut self) {
        self.0.nodes.fetch_sub(READ_BYTES, Ordering::Relaxed);
    }
}

impl fmt::Debug for IndexMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexMemory")
            .field("nodes", &self.node_bytes())
            .field("values", &self.value_bytes())
            .field("lent", &self.lent_bytes())
            .field("dirty", &self.dirty_bytes())
            .field("slots", &self.slot_bytes())
            .field("memtables", &self.memtable_bytes())
            .field("tables", &self.table_bytes())
            .field("tombstones", &self.tombstone_bytes())
            .field("others", &self.others)
            .field("budget", &self.budget_bytes())
            .finish()
    }
}

impl IndexMemory {
    /// All nodes, in trees or not.
    pub fn node_bytes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Values that were read from the log, cached or not.
    pub fn value_bytes(&self) -> usize {
        self.values.load(Ordering::Relaxed)
    }

    /// Nodes and values that no tree or cache has any more, or not yet: values, cursors, readers and merges hold them.
    pub fn lent_bytes(&self) -> usize {
        (self.node_bytes() + self.value_bytes()).saturating_sub(self.placed.load(Ordering::Relaxed))
    }

    /// Nodes that are to be written, and those above them.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// The slots of all nodes below the resident ones, and what they remember of their records.
    pub fn slot_bytes(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    /// What memtables hold, with the indexes of their keys, merged ones that are still read too, and commits' versions that readers hold.
    pub fn memtable_bytes(&self) -> usize {
        self.memtables.load(Ordering::Relaxed)
    }

    /// Those of them that merging will give back: not what was merged and is still read, nor that of tables that are gone.
    pub fn mergeable_bytes(&self) -> usize {
        self.memtable_bytes().saturating_sub(self.left_memtables.load(Ordering::Relaxed))
    }

    /// The state of tables, empty or not, with their empty memtables: what no merge and no eviction gives back.
    pub fn table_bytes(&self) -> usize {
        self.tables.load(Ordering::Relaxed)
    }

    /// Range tombstones.
    pub fn tombstone_bytes(&self) -> usize {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// What else is counted in the budget: its owner adds and subtracts.
    pub fn others(&self) -> &AtomicUsize {
        &self.others
    }

    /// All that is counted.
    pub fn used_bytes(&self) -> usize {
        let of_trees = self.node_bytes() + self.slot_bytes();
        let of_memtables = self.memtable_bytes() + self.table_bytes() + self.tombstone_bytes();
        of_trees + self.value_bytes() + of_memtables + self.others.load(Ordering::Relaxed)
    }

    /// The budget; `usize::MAX` unless [`IndexMemory::set_budget`] was called.
    pub fn budget_bytes(&self) -> usize {
        self.budget.bytes.load(Ordering::Relaxed)
    }

    /// Sets the budget, in bytes.
    pub fn set_budget(&self, bytes: usize) {
        self.budget.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Has `waker` called, without a lock of a tree, when a node is going to be loaded or built while memory is tight. Only
    /// the first call counts.
    pub fn set_waker(&self, waker: impl Fn() + Send + Sync + 'static) {
        _ = self.budget.waker.set(Box::new(waker));
    }

    /// Has waits measured by `now_ns`, a monotonic clock. Only the first call counts.
    pub fn set_clock(&self, now_ns: impl Fn() -> u64 + Send + Sync + 'static) {
        _ = self.budget.clock.set(Box::new(now_ns));
    }

    /// Chooses by this number where keys are in the indexes of memtables that are allocated from now on: keys whose
    /// hashes differ come into one line by chance only.
    pub fn set_secret(&self, secret: u64) {
        self.secret.store(secret, Ordering::Relaxed);
    }

    pub(crate) fn secret(&self) -> u64 {
        self.secret.load(Ordering::Relaxed)
    }

    /// Whether eviction has to give something back.
    pub fn is_tight(&self) -> bool {
        let budget = self.budget_bytes();
        self.used_bytes() > budget - budget / REST_SHARE && self.evictable_bytes() > 0
    }

    /// Whether so many more bytes leave as much of the budget free as eviction would.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        let budget = self.budget_bytes();
        self.used_bytes().saturating_add(bytes) <= budget - budget / REST_SHARE * 2
    }

    /// How many bytes eviction has to give back before it ends.
    pub fn excess_bytes(&self) -> usize {
        let budget = self.budget_bytes();
        let excess = self.used_bytes().saturating_sub(budget - budget / REST_SHARE * 2);
        excess.min(self.evictable_bytes())
    }

    /// Nodes of trees beyond the part of the budget that they keep whatever else is counted: where values of the program
    /// have the rest, each read would evict what the next one needs.
    fn evictable_bytes(&self) -> usize {
        self.placed.load(Ordering::Relaxed).saturating_sub(self.budget_bytes() / REST_SHARE)
    }

    /// About now, in seconds since 1970; 0: not known.
    pub(crate) fn now_s(&self) -> u32 {
        self.now_s.load(Ordering::Relaxed)
    }

    /// Tells about now, in seconds since 1970.
    pub fn set_now_s(&self, now_s: u32) {
        self.now_s.store(now_s, Ordering::Relaxed);
    }

    /// When a purge of a leaf of any tree is due, in seconds since 1970, as far as it is known; 0: not at all.
    pub fn purge_due(&self) -> u32 {
        self.due.get()
    }

    /// A purge of a leaf is due at that time; 0: none is.
    pub fn learn_purge_due(&self, due: u32) {
        self.due.learn(due);
    }

    /// Forgets that time: all trees are asked anew, and what they learn meanwhile counts.
    pub fn forget_purge_due(&self) {
        self.due.forget();
    }

    /// The first table after `last`, by number, whose tree may have something to evict; `None`: the first of all. A tree that has
    /// nothing in memory, or only what a checkpoint has to write first, is not among them: a round over thousands of
    /// tables costs what it may give back.
    pub fn next_evictable(&self, last: Option<TableId>) -> Option<TableId> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.evictable.lock().range((from, Bound::Unbounded)).next().copied()
    }

    pub(crate) fn evictable(&self) -> &Mutex<BTreeSet<TableId>> {
        &self.evictable
    }

    /// A batch of evictions begins: leaves that were loaded before count as read if they are read from now on.
    pub fn begin_batch(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// How many batches of evictions have begun.
    #[inline]
    pub fn batches(&self) -> u32 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Whether many leaves in memory were not read since they were loaded: eviction takes those first, and the marks of the
    /// others are left alone.
    pub fn has_many_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > self.in_memory.load(Ordering::Relaxed) / UNREAD_SHARE
    }

    /// Has eviction begin if memory is tight.
    pub fn look(&self) {
        if self.is_tight()
            && let Some(waker) = self.budget.waker.get()
        {
            waker();
        }
    }

    /// Whether more than the budget is used, and many nodes are dirty, which eviction may write only while a checkpoint is written.
    pub fn needs_checkpoint(&self) -> bool {
        self.budget.needs_checkpoint.load(Ordering::Relaxed)
            && self.used_bytes() > self.budget_bytes()
            && self.has_many_dirty()
    }

    /// Eviction may write dirty nodes only while a checkpoint is written, and none is; or not.
    pub fn set_needs_checkpoint(&self, needs: bool) {
        self.budget.needs_checkpoint.store(needs, Ordering::Relaxed);
    }

    /// Eviction gave something back, or found that it cannot.
    pub fn set_gives(&self, gives: bool) {
        self.budget.gives.store(gives, Ordering::Relaxed);
        drop(self.budget.waiting.lock());
        self.budget.changed.notify_all();
    }

    /// Waits while more than the budget is used, and eviction gives something back (INV-MEM-1).
    #[inline]
    pub fn wait_for_room(&self, cause: LoadFor) {
        if self.is_tight() {
            self.wait_while_over(cause);
        }
    }

    /// Whether more than the budget is used, and eviction can give it back: not what the program holds.
    fn is_over(&self) -> bool {
        self.used_bytes() > self.budget_bytes()
            && self.evictable_bytes() > 0
            && self.budget.gives.load(Ordering::Relaxed)
    }

    /// Whether an eighth of the used bytes is beyond the budget, and many nodes are dirty: work that makes others dirty, and can be
    /// done later, ends.
    pub fn is_exceeded(&self) -> bool {
        let (used, budget) = (self.used_bytes(), self.budget_bytes());
        used - used / EXCEEDED_SHARE > budget && self.has_many_dirty()
    }

    /// Whether dirty nodes have so much of the budget that they are written although clean ones could be given back.
    pub fn has_many_dirty(&self) -> bool {
        self.dirty_bytes() > self.budget_bytes() / DIRTY_SHARE
    }

    #[cold]
    fn wait_while_over(&self, cause: LoadFor) {
        self.look();
        if !self.is_over() {
            return;
        }
        let now_ns = || self.budget.clock.get().map_or(0, |now_ns| now_ns());
        let start_ns = now_ns();
        let mut naps = 0;
        while naps < NAPS && now_ns().saturating_sub(start_ns) < WAIT_MAX.as_nanos() as u64 {
            self.look();
            // What left its tree may wait for nothing but an epoch that advances.
            epoch::pin().flush();
            let mut waiting = self.budget.waiting.lock();
            if !self.is_over() {
                break;
            }
            // Each step of eviction signals: only a nap that nothing ended counts.
            let nap = self.budget.changed.wait_for(&mut waiting, WAIT_MAX / NAPS);
            naps += u32::from(nap.timed_out());
        }
        self.counters.waited(cause, now_ns().saturating_sub(start_ns));
    }

    /// The bytes of records that eviction has written, so that it could drop the nodes.
    pub fn bytes_written_to_evict(&self) -> u64 {
        self.evicted_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn count_written_to_evict(&self, bytes: u64) {
        self.evicted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The waits for memory.
    pub fn waits(&self) -> MemoryWaits {
        self.counters.waits()
    }

    /// The nodes that were loaded from disk.
    pub fn node_loads(&self) -> NodeLoads {
        self.counters.loads()
    }

    /// Versions that merges have left in leaves although newer ones of their keys replaced them: for open snapshots, or until
    /// their leaf is merged again.
    pub fn superseded_versions(&self) -> u64 {
        u64::try_from(self.superseded.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn superseded(&self) -> &AtomicI64 {
        &self.superseded
    }

    /// A node is read from disk: its record counts as a node meanwhile.
    pub(crate) fn begin_read(&self) -> ReadCharge<'_> {
        self.nodes.fetch_add(READ_BYTES, Ordering::Relaxed);
        ReadCharge(self)
    }

    /// A node was loaded from disk.
    pub(crate) fn count_load(&self, cause: LoadFor) {
        self.counters.loaded(cause);
    }

    pub(crate) fn in_memory(&self) -> &AtomicIsize {
        &self.in_memory
    }

    pub(crate) fn unread(&self) -> &AtomicIsize {
        &self.unread
    }

    pub(crate) fn values(&self) -> &AtomicUsize {
        &self.values
    }

    pub(crate) fn placed(&self) -> &AtomicUsize {
        &self.placed
    }

    pub(crate) fn dirty(&self) -> &AtomicUsize {
        &self.dirty
    }

    pub(crate) fn slots(&self) -> &AtomicUsize {
        &self.slots
    }

    pub(crate) fn memtables(&self) -> &AtomicUsize {
        &self.memtables
    }

    pub(crate) fn unlinked(&self) -> &AtomicUsize {
        &self.unlinked
    }

    /// Whether memtables have many versions that are not linked in order: [`crate::memtables::Memtables::link_ahead`].
    #[inline]
    pub fn has_much_to_link(&self) -> bool {
        self.unlinked.load(Ordering::Relaxed) as u64 >= crate::memtables::MUCH_UNWALKED
    }

    pub(crate) fn left_memtables(&self) -> &AtomicUsize {
        &self.left_memtables
    }

    pub(crate) fn tombstones(&self) -> &AtomicUsize {
        &self.tombstones
    }
}

/// Shorter buffers have no size classes, ...
const CLASSED_BYTES_LEAST: usize = 1 << 10;
/// ... nor have longer ones.
const CLASSED_BYTES_MOST: usize = 64 << 10;

/// The length of a buffer for `len` bytes: eight classes between two powers of two. Where each leaf has a length of its own,
/// the hole that one leaves in the heap does not fit the next one, and the heap grows although leaves come and go.
///
/// What is longer than 64 KiB is left as it is: the allocator maps such buffers apart.
pub fn size_class(len: usize) -> usize {
    let has_class = (CLASSED_BYTES_LEAST..=CLASSED_BYTES_MOST).contains(&len);
    if has_class { len.next_multiple_of(len.next_power_of_two() / 16) } else { len }
}

/// The bytes in a buffer of their size class.
pub(crate) fn in_size_class(bytes: Vec<u8>) -> Vec<u8> {
    let class = size_class(bytes.len());
    if bytes.capacity() == class {
        return bytes;
    }
    let mut buffer = Vec::with_capacity(class);
    buffer.extend_from_slice(&bytes);
    buffer
}

/// Bytes of a node, charged until this is dropped.
pub(crate) struct Charge {
    memory: Arc<IndexMemory>,
    bytes: usize,
}

impl Charge {
    pub fn new(memory: &Arc<IndexMemory>, bytes: usize) -> Charge {
        memory.nodes.fetch_add(bytes, Ordering::Relaxed);
        Charge { memory: Arc::clone(memory), bytes }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.nodes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of the state of a table, charged until this is dropped.
pub struct TableCharge {
    memory: Arc<IndexMemory>,
    bytes: usize,
}

impl TableCharge {
    /// Charges so many bytes.
    pub fn new(memory: &Arc<IndexMemory>, bytes: usize) -> TableCharge {
        memory.tables.fetch_add(bytes, Ordering::Relaxed);
        TableCharge { memory: Arc::clone(memory), bytes }
    }
}

impl Drop for TableCharge {
    fn drop(&mut self) {
        self.memory.tables.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step of eviction wakes those that wait: they had gone on after ten steps, however far above the budget.
    #[test]
    fn a_wait_outlasts_the_steps_of_eviction() {
        let memory = IndexMemory::default();
        memory.set_budget(1000);
        memory.placed.store(1000, Ordering::Relaxed);
        memory.others.store(2000, Ordering::Relaxed);
        memory.set_gives(true);
        let steps = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                memory.wait_for_room(LoadFor::Read);
                steps.load(Ordering::Relaxed)
            });
            while !waits.is_finished() {
                if steps.fetch_add(1, Ordering::Relaxed) == 50 {
                    memory.others.store(0, Ordering::Relaxed);
                }
                memory.set_gives(true);
                std::thread::park_timeout(Duration::from_micros(200));
            }
            assert!(waits.join().unwrap() > 50);
        });
        assert_eq!(memory.waits().reads, 1);
    }

    #[test]
    fn buffers_are_an_eighth_longer_than_their_bytes_at_most() {
        let mut classes = std::collections::BTreeSet::new();
        for len in 0..100_000 {
            let class = size_class(len);
            assert!(class >= len && (class - len) * 8 < len.max(1), "{len} {class}");
            classes.insert(class).then(|| assert_eq!(size_class(class), class));
        }
        assert_eq!(classes.range(4097..=8192).count(), 8);
        assert_eq!(in_size_class(vec![7; 7400]).capacity(), 7680);
        assert_eq!(in_size_class(vec![7; 7400]), vec![7; 7400]);
    }
}
