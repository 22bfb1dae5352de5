//! A slot is the stable address of a node in memory: parents point to slots, and a slot's node can be replaced.
//!
//! A slot's word is one of
//! - the pointer of an `Arc<Leaf>`,
//! - the pointer of an `Arc<Inner>`, with [`INNER`] set,
//! - a number with [`ABSENT`] set: the node is on disk. The number counts the tree's evictions. A loader that another
//!   load, a change and another eviction overtook finds a different number, so its compare-exchange fails and it does
//!   not install what it read. A slot that left the tree has the number [`GONE`], and nothing is loaded into it.
//!
//! Any number of readers load nodes and install what they read from disk. Only the thread that holds the tree's
//! maintenance lock replaces and evicts nodes. A node that leaves its slot is dropped through the epoch: a pinned
//! reader keeps every node that it can reach.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use crossbeam_epoch::{self as epoch, Guard};
use fulgurite_types::{Lsn, TableId};
use parking_lot::{Mutex, MutexGuard};

use super::account::DiskState;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::prefetched;
use crate::memory::{COUNTS_BYTES, EarliestDue, IndexMemory};

const TAG_MASK: usize = 3;
const INNER: usize = 1;
const ABSENT: usize = 2;
const _: () = assert!(align_of::<Leaf>() > TAG_MASK && align_of::<Inner>() > TAG_MASK);

/// The word of a slot that left the tree: no eviction has this number.
const GONE: usize = usize::MAX & !TAG_MASK | ABSENT;

/// What a slot takes, whether its node is in memory or not.
const SLOT_BYTES: usize = size_of::<Slot>() + COUNTS_BYTES;

/// The node is newer than its record.
pub(crate) const DIRTY: u32 = 1;
/// A record, a relocation or a structure change below is newer than the node's record.
pub(crate) const DIRTY_BELOW: u32 = 2;
/// A reader read the node since the eviction clock last came by.
const REFERENCED: u32 = 4;
/// The slot left the tree; stale readers may still find it, and descend from the root again.
const RETIRED: u32 = 8;
/// Of an inner node: its record does not name exactly the newest records of its children, or that of an inner node below
/// it does not. Of a leaf: it has no record, or one that lacks what a pass has to write. A node above an outdated one is
/// outdated, and outdated nodes are dirty (INV-IDX-11).
pub(crate) const OUTDATED: u32 = 16;
/// A reader had read the node when the eviction clock last came by.
const SPARED: u32 = 32;
/// Of a leaf: it was not read since it was loaded, or only before the next batch of evictions began. One operation may
/// read the leaf that it loads several times: a merge does, and a scan that seeks for each page.
const UNREAD: u32 = 64;

/// A thread that has dropped so many bytes of nodes through the epoch since it last did so has the epoch advance. By itself that
/// is done for every 64 nodes, and every 128 times that a thread pins the epoch, which merges and evictions seldom do: at a small
/// budget that is half of it, and long leaves are more.
const FLUSH_BYTES: usize = 256 << 10;

/// So often what no reader holds is freed at once.
const FLUSHES: usize = 3;

thread_local! {
    /// Bytes of nodes that the thread has dropped since it last had the epoch advance.
    static DROPPED_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Drops a node when no reader that is pinned now is any more.
fn drop_through_epoch(node: Node) {
    let bytes = DROPPED_BYTES.get() + node.bytes();
    epoch::pin().defer(move || drop(node));
    DROPPED_BYTES.set(bytes);
    if bytes >= FLUSH_BYTES {
        flush_dropped();
    }
}

/// Has the epoch advance, so that the nodes that this thread has dropped are freed: also if it works on no tree any more.
pub(crate) fn flush_dropped() {
    DROPPED_BYTES.set(0);
    (0..FLUSHES).for_each(|_| epoch::pin().flush());
}

/// How many bytes of nodes the slots of one tree hold, and whether eviction has to look at them.
///
/// **INV-IDX-14.** *A tree that has a node which a step of eviction could give back, or spare, is listed
/// ([`IndexMemory::next_evictable`]), or is about to be listed by the thread that changed it, or to be looked at by one that evicts.* A
/// node becomes such when it comes into a slot, and when it becomes clean. The thread that does either then reads the flag,
/// after a fence, and lists the tree if it is not set. A step of eviction takes the tree off the list, which clears the flag,
/// then looks at the slots, after a fence, and lists the tree again unless it went over the whole tree and found nothing
/// ([`super::evict`]). So of both at least one sees what the other did.
#[derive(Debug)]
pub(crate) struct Residency {
    memory: Arc<IndexMemory>,
    table: TableId,
    /// Whether the tree is listed. Changes under the lock of the list.
    is_listed: AtomicBool,
    /// The earliest time when a purge of a leaf of the tree is due, in seconds since 1970, as far as it is known; 0: not at all.
    due: EarliestDue,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    all: AtomicUsize,
    /// Of the nodes that are dirty, or above a dirty one.
    dirty: AtomicUsize,
    /// How many slots of the tree have a node that is on disk only.
    absent: AtomicIsize,
    /// Whether the dirty nodes count in the memory of the store no more.
    has_left: AtomicBool,
}

impl Residency {
    /// That of a tree whose store counts the memory of all its trees in `memory`.
    pub(crate) fn new(table: TableId, memory: Option<&Arc<IndexMemory>>) -> Residency {
        let memory = memory.cloned().unwrap_or_default();
        Residency {
            memory,
            table,
            is_listed: AtomicBool::new(false),
            due: EarliestDue::default(),
            counts: Counts::default(),
        }
    }

    /// The earliest time when a purge of a leaf is due, in seconds since 1970, as far as it is known; 0: not at all.
    pub(crate) fn due(&self) -> u32 {
        self.due.get()
    }

    /// A purge is due at that time.
    pub(crate) fn learn_due(&self, due: u32) {
        self.due.learn(due);
        self.memory.learn_purge_due(due);
    }

    /// Forgets that time: the dues of all leaves are looked at, and learned, anew.
    pub(crate) fn forget_due(&self) {
        self.due.forget();
    }

    /// Lists the tree for eviction, unless it is listed. Called after a change (INV-IDX-14).
    pub(crate) fn list(&self) {
        fence(Ordering::SeqCst);
        if self.is_listed.load(Ordering::Relaxed) {
            return;
        }
        let mut evictable = self.memory.evictable().lock();
        if !self.counts.has_left.load(Ordering::Relaxed) && !self.is_listed.swap(true, Ordering::SeqCst) {
            evictable.insert(self.table);
        }
    }

    /// Takes the tree off that list. What changes from now on lists it again.
    pub(crate) fn unlist(&self) {
        // Without the lock, which a child of `fork` must not take, unless it is needed.
        if self.is_listed.load(Ordering::Relaxed) {
            let mut evictable = self.memory.evictable().lock();
            if self.is_listed.swap(false, Ordering::SeqCst) {
                evictable.remove(&self.table);
            }
        }
        fence(Ordering::SeqCst);
    }

    pub(crate) fn memory(&self) -> &Arc<IndexMemory> {
        &self.memory
    }

    /// The tree is gone, although references to it may be left: its dirty nodes will not be written.
    pub(crate) fn leave(&self) {
        if !self.counts.has_left.swap(true, Ordering::Relaxed) {
            self.memory.dirty().fetch_sub(self.dirty_bytes(), Ordering::Relaxed);
            self.unlist();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.counts.all.load(Ordering::Relaxed)
    }

    pub(crate) fn dirty_bytes(&self) -> usize {
        self.counts.dirty.load(Ordering::Relaxed)
    }

    /// The bytes of the clean nodes, if all nodes of the tree are in memory.
    pub(crate) fn clean_bytes(&self) -> Option<usize> {
        let is_whole = self.counts.absent.load(Ordering::Relaxed) <= 0;
        is_whole.then(|| self.bytes().saturating_sub(self.dirty_bytes()))
    }
}

/// An owned reference to a node.
#[derive(Clone)]
pub(crate) enum Node {
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
}

impl Node {
    /// A leaf, charged until its last holder drops it.
    pub(crate) fn leaf(mut leaf: Leaf, residency: &Residency) -> Node {
        leaf.charge_to(&residency.memory);
        Node::Leaf(Arc::new(leaf))
    }

    /// An inner node, charged until its last holder drops it.
    pub(crate) fn inner(mut inner: Inner, residency: &Residency) -> Node {
        inner.charge_to(&residency.memory);
        Node::Inner(Arc::new(inner))
    }

    /// How many bytes of memory it takes.
    fn bytes(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.charged_bytes(),
            Node::Inner(inner) => inner.charged_bytes(),
        }
    }

    /// The full record that a leaf was loaded from.
    fn full_record(&self) -> Option<Lsn> {
        match self {
            Node::Leaf(leaf) => leaf.origin().map(|origin| origin.full),
            Node::Inner(_) => None,
        }
    }

    fn into_word(self) -> *mut u8 {
        match self {
            Node::Leaf(leaf) => Arc::into_raw(leaf).cast_mut().cast(),
            Node::Inner(inner) => {
                Arc::into_raw(inner).cast_mut().cast::<u8>().map_addr(|address| address | INNER)
            }
        }
    }

    /// # Safety
    /// `word` comes from [`Node::into_word`] and is not used again.
    unsafe fn from_word(word: *mut u8) -> Node {
        if word.addr() & INNER == 0 {
            // SAFETY: without the tag the word is the pointer of a leaf from `Arc::into_raw`.
            Node::Leaf(unsafe { Arc::from_raw(word.cast::<Leaf>()) })
        } else {
            let inner = word.map_addr(|address| address & !TAG_MASK).cast::<Inner>();
            // SAFETY: with the tag removed the word is the pointer of an inner node from `Arc::into_raw`.
            Node::Inner(unsafe { Arc::from_raw(inner) })
        }
    }
}

/// A node borrowed by a pinned reader: it lives as long as both the reader's pin and the slot that the reader loaded it
/// from.
pub(crate) struct Ref<'a, T> {
    ptr: NonNull<T>,
    _lives: PhantomData<&'a T>,
}

impl<'a, T> Ref<'a, T> {
    #[inline]
    pub(crate) fn get(&self) -> &'a T {
        // SAFETY: only `Slot::load` makes a `Ref`, and it borrows slot and guard for 'a: the slot's count keeps the
        // node while it is in the slot; after it left, the guard keeps the epoch from dropping it.
        unsafe { self.ptr.as_ref() }
    }

    #[inline]
    pub(crate) fn to_arc(&self) -> Arc<T> {
        let ptr = self.ptr.as_ptr().cast_const();
        // SAFETY: `ptr` came from `Arc::into_raw`, and as in `get` the count is at least one during 'a.
        unsafe { Arc::increment_strong_count(ptr) };
        // SAFETY: this takes over the count that was just added.
        unsafe { Arc::from_raw(ptr) }
    }
}

/// The state in which [`Slot::load`] found the slot.
pub(crate) enum Loaded<'a> {
    Leaf(Ref<'a, Leaf>),
    Inner(Ref<'a, Inner>),
    Absent(Absent),
}

/// The node is on disk; the value identifies the eviction that put it there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent(*mut u8);

impl Absent {
    /// Whether the slot has left the tree.
    pub(crate) fn is_gone(self) -> bool {
        self.0.addr() == GONE
    }
}

/// A stable reference to a child. A read needs the first three fields: they are in one cache line.
#[repr(C)]
pub(crate) struct Slot {
    word: AtomicPtr<u8>,
    flags: AtomicU32,
    /// The batch of evictions before which the node was loaded.
    loaded_in: AtomicU32,
    lsn: AtomicU64,
    /// The segment of the full record; 0 if it is not known: the node was not loaded since its parent was.
    full_segment: AtomicU32,
    /// The bytes that the tree counts as dirty for it. Maintenance only: a reader that installs a node finds it clean.
    dirty_bytes: AtomicU32,
    charged: AtomicU32,
    /// When a purge of the leaf, or of one below, is due, in seconds since 1970; 0: never, as far as it is known.
    due: AtomicU32,
    residency: Arc<Residency>,
    disk: Mutex<Option<Box<DiskState>>>,
}

impl Slot {
    /// The slot of a node whose newest record is at `lsn`.
    pub(crate) fn on_disk(lsn: Lsn, residency: &Arc<Residency>) -> Slot {
        residency.counts.absent.fetch_add(1, Ordering::Relaxed);
        residency.memory.slots().fetch_add(SLOT_BYTES, Ordering::Relaxed);
        Slot {
            word: AtomicPtr::new(ptr::without_provenance_mut(ABSENT)),
            lsn: AtomicU64::new(lsn.0),
            flags: AtomicU32::new(0),
            full_segment: AtomicU32::new(0),
            dirty_bytes: AtomicU32::new(0),
            loaded_in: AtomicU32::new(0),
            charged: AtomicU32::new(0),
            due: AtomicU32::new(0),
            residency: Arc::clone(residency),
            disk: Mutex::new(None),
        }
    }

    /// The slot of a node that has no record yet.
    pub(crate) fn fresh(node: Node, residency: &Arc<Residency>) -> Slot {
        let slot = Slot::on_disk(Lsn::NULL, residency);
        slot.charge(node.bytes());
        slot.word.store(node.into_word(), Ordering::Release);
        slot.mark(DIRTY | OUTDATED);
        residency.list();
        slot
    }

    /// Loads the slot's word, and notes that for the eviction clock.
    #[inline]
    pub(crate) fn load<'a>(&'a self, guard: &'a Guard) -> Loaded<'a> {
        let loaded = self.load_unmarked(guard);
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & REFERENCED == 0 && !matches!(loaded, Loaded::Absent(_)) {
            self.mark_read(flags);
        }
        loaded
    }

    #[inline]
    fn load_unmarked<'a>(&'a self, _guard: &'a Guard) -> Loaded<'a> {
        let word = self.word.load(Ordering::Acquire);
        let tag = word.addr() & TAG_MASK;
        if tag == ABSENT {
            return Loaded::Absent(Absent(word));
        }
        if tag == INNER {
            let ptr = word.map_addr(|address| address & !TAG_MASK).cast::<Inner>();
            Loaded::Inner(Ref { ptr: NonNull::new(ptr).expect("an Arc's pointer"), _lives: PhantomData })
        } else {
            let ptr = word.cast::<Leaf>();
            Loaded::Leaf(Ref { ptr: NonNull::new(ptr).expect("an Arc's pointer"), _lives: PhantomData })
        }
    }

    /// Notes a read for the eviction clock.
    #[inline]
    fn mark_read(&self, flags: u32) {
        if flags & UNREAD != 0 {
            if self.loaded_in.load(Ordering::Relaxed) == self.residency.memory.batches() {
                return;
            }
            self.clear_unread();
        }
        self.flags.fetch_or(REFERENCED, Ordering::Relaxed);
    }

    fn set_unread(&self) {
        self.loaded_in.store(self.residency.memory.batches(), Ordering::Relaxed);
        if self.flags.fetch_or(UNREAD, Ordering::Relaxed) & UNREAD == 0 {
            self.residency.memory.unread().fetch_add(1, Ordering::Relaxed);
        }
    }

    fn clear_unread(&self) {
        if self.flags.fetch_and(!UNREAD, Ordering::Relaxed) & UNREAD != 0 {
            self.residency.memory.unread().fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The node, or the eviction that put it on disk.
    pub(crate) fn node(&self) -> Result<Node, Absent> {
        let guard = epoch::pin();
        match self.load(&guard) {
            Loaded::Leaf(leaf) => Ok(Node::Leaf(leaf.to_arc())),
            Loaded::Inner(inner) => Ok(Node::Inner(inner.to_arc())),
            Loaded::Absent(absent) => Err(absent),
        }
    }

    /// Like [`Slot::node`], without counting as a read for the eviction clock.
    pub(crate) fn node_unmarked(&self) -> Result<Node, Absent> {
        let guard = epoch::pin();
        match self.load_unmarked(&guard) {
            Loaded::Leaf(leaf) => Ok(Node::Leaf(leaf.to_arc())),
            Loaded::Inner(inner) => Ok(Node::Inner(inner.to_arc())),
            Loaded::Absent(absent) => Err(absent),
        }
    }

    pub(crate) fn is_resident(&self) -> bool {
        self.word.load(Ordering::Relaxed).addr() & TAG_MASK != ABSENT
    }

    /// Installs a node that was read from disk, unless the slot's word has changed since `absent` was loaded. Of all threads
    /// that load the node one calls this ([`super::loads`]).
    pub(crate) fn install(&self, absent: Absent, node: Node) -> bool {
        // All that others find with the node comes first: once it is in the slot, it may be evicted, or replaced.
        let before = self.charge(node.bytes());
        match node.full_record() {
            Some(full) => {
                self.set_full(full);
                self.set_unread();
            }
            // A walk that loads an inner node goes on below it.
            None => _ = self.flags.fetch_or(REFERENCED, Ordering::Relaxed),
        }
        let word = node.into_word();
        let old = self.word.compare_exchange(absent.0, word, Ordering::AcqRel, Ordering::Acquire);
        if old.is_ok() {
            if self.is_retired() {
                self.charge(0);
            }
            self.residency.list();
            return true;
        }
        self.charge(before);
        self.clear_unread();
        // SAFETY: the word was made above and did not get into the slot.
        drop(unsafe { Node::from_word(word) });
        false
    }

    /// Replaces the node. Maintenance only.
    pub(crate) fn replace(&self, node: Node) {
        let before = self.charge(node.bytes());
        self.swap(node.into_word());
        self.mark(DIRTY);
        if before == 0 {
            self.residency.list();
        }
    }

    /// Drops the node from memory; returns its bytes. Maintenance only; the node and everything below it is clean.
    pub(crate) fn evict(&self, evictions: usize) -> usize {
        assert!(!self.is_dirty(), "dirty nodes stay in memory");
        let bytes = self.charged.load(Ordering::Relaxed) as usize;
        *self.disk() = None;
        // First: once the slot is empty, a reader may load the node again, and charge it.
        self.charge(0);
        self.swap(ptr::without_provenance_mut(evictions << 2 | ABSENT));
        bytes
    }

    fn swap(&self, word: *mut u8) {
        let old = self.word.swap(word, Ordering::AcqRel);
        if old.addr() & TAG_MASK != ABSENT {
            // SAFETY: the slot owned the word's count, the word has left the slot, and no other thread takes the count
            // over.
            let node = unsafe { Node::from_word(old) };
            if let Node::Inner(inner) = &node {
                inner.leave();
                prefetched::note_change();
            }
            drop_through_epoch(node);
        }
    }

    /// Marks the slot as out of the tree, and drops its node: an inner node that a cursor keeps names hundreds of such slots.
    /// Maintenance only, after the inner node that names the slot has left the tree.
    pub(crate) fn retire(&self) {
        self.mark_retired();
        self.swap(ptr::without_provenance_mut(GONE));
    }

    /// Marks the slot as out of the tree; its node no longer counts as resident.
    fn mark_retired(&self) {
        let was_retired = self.flags.fetch_or(RETIRED, Ordering::Relaxed) & RETIRED != 0;
        self.charge(0);
        self.count_dirty(0);
        if let Ok(Node::Inner(inner)) = self.node() {
            inner.leave();
        }
        if !was_retired {
            self.residency.counts.absent.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Charges `bytes` instead of what was charged before, and returns that.
    fn charge(&self, bytes: usize) -> usize {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let old = self.charged.swap(bytes, Ordering::Relaxed);
        let change = (bytes as usize).wrapping_sub(old as usize);
        self.residency.counts.all.fetch_add(change, Ordering::Relaxed);
        self.residency.memory.placed().fetch_add(change, Ordering::Relaxed);
        let absent = isize::from(bytes == 0) - isize::from(old == 0);
        if absent != 0 {
            self.residency.counts.absent.fetch_add(absent, Ordering::Relaxed);
            self.residency.memory.in_memory().fetch_sub(absent, Ordering::Relaxed);
        }
        if bytes == 0 {
            self.clear_unread();
        }
        old as usize
    }

    fn count_dirty(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let old = self.dirty_bytes.swap(bytes, Ordering::Relaxed);
        let change = (bytes as usize).wrapping_sub(old as usize);
        self.residency.counts.dirty.fetch_add(change, Ordering::Relaxed);
        if !self.residency.counts.has_left.load(Ordering::Relaxed) {
            self.residency.memory.dirty().fetch_add(change, Ordering::Relaxed);
        }
    }

    /// The LSN of the newest record.
    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.lsn.load(Ordering::Acquire))
    }

    pub(crate) fn set_lsn(&self, lsn: Lsn) {
        self.lsn.store(lsn.0, Ordering::Release);
    }

    /// Whether the newest record, or the full record as far as it is known, is in one of `segments`.
    pub(crate) fn is_in(&self, segments: &BTreeSet<u32>) -> bool {
        let full = self.full_segment.load(Ordering::Relaxed);
        !self.lsn().is_null() && (segments.contains(&self.lsn().segment()) || segments.contains(&full))
    }

    /// Whether the full record may be the one at `lsn`: its segment is not known, or it is that one.
    pub(crate) fn may_have_full(&self, lsn: Lsn) -> bool {
        [0, lsn.segment()].contains(&self.full_segment.load(Ordering::Relaxed))
    }

    /// Notes where the full record is.
    pub(crate) fn set_full(&self, full: Lsn) {
        self.full_segment.store(full.segment(), Ordering::Relaxed);
    }

    /// When a purge is due, in seconds since 1970; 0: never, as far as it is known.
    pub(crate) fn due(&self) -> u32 {
        self.due.load(Ordering::Relaxed)
    }

    pub(crate) fn set_due(&self, due: u32) {
        self.due.store(due, Ordering::Relaxed);
        if due != 0 {
            self.residency.learn_due(due);
        }
    }

    /// The accounts of the newest record; `None` while the node is as it was loaded. Maintenance only, so the lock is
    /// uncontended.
    pub(crate) fn disk(&self) -> DiskGuard<'_> {
        DiskGuard { disk: self.disk.lock(), memory: &self.residency.memory, charged: 0 }.counted()
    }

    pub(crate) fn mark(&self, flags: u32) {
        self.flags.fetch_or(flags, Ordering::Relaxed);
        if flags & (DIRTY | DIRTY_BELOW) != 0 {
            self.count_dirty(self.charged.load(Ordering::Relaxed) as usize);
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.has(DIRTY | DIRTY_BELOW)
    }

    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flags != 0
    }

    /// Whether the slot left the tree.
    pub(crate) fn is_retired(&self) -> bool {
        self.has(RETIRED)
    }

    pub(crate) fn set_clean(&self) {
        self.flags.fetch_and(!(DIRTY | DIRTY_BELOW | OUTDATED), Ordering::Relaxed);
        self.count_dirty(0);
        self.residency.list();
    }

    /// Whether it is a leaf that was not read since it was loaded.
    pub(crate) fn is_unread(&self) -> bool {
        self.has(UNREAD)
    }

    /// Whether the eviction clock passes the node by: a reader read it since the clock was there last, or had read it
    /// then.
    pub(crate) fn take_chance(&self) -> bool {
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & REFERENCED != 0 {
            self.flags.fetch_or(SPARED, Ordering::Relaxed);
            self.flags.fetch_and(!REFERENCED, Ordering::Relaxed);
        } else if flags & SPARED != 0 {
            self.flags.fetch_and(!SPARED, Ordering::Relaxed);
        }
        flags & (REFERENCED | SPARED) != 0
    }
}

/// Access to what a slot remembers of its record. Its bytes are charged anew when it is dropped.
pub(crate) struct DiskGuard<'a> {
    disk: MutexGuard<'a, Option<Box<DiskState>>>,
    memory: &'a IndexMemory,
    charged: usize,
}

impl DiskGuard<'_> {
    fn bytes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.memory_bytes())
    }

    fn counted(mut self) -> Self {
        self.charged = self.bytes();
        self
    }
}

impl Drop for DiskGuard<'_> {
    fn drop(&mut self) {
        let change = self.bytes().wrapping_sub(self.charged);
        if change != 0 {
            self.memory.slots().fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Deref for DiskGuard<'_> {
    type Target = Option<Box<DiskState>>;

    fn deref(&self) -> &Self::Target {
        &self.disk
    }
}

impl DerefMut for DiskGuard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.disk
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.mark_retired();
        *self.disk() = None;
        self.residency.memory.slots().fetch_sub(SLOT_BYTES, Ordering::Relaxed);
        let word = *self.word.get_mut();
        if word.addr() & TAG_MASK != ABSENT {
            // SAFETY: the slot owns the word's count, and no `Ref` is left, because each borrows the slot.
            drop(unsafe { Node::from_word(word) });
        }
    }
}
