//! A memtable: the versions of one CSN interval.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fulgurite_types::{Csn, Lsn};
use smallvec::SmallVec;

use super::PREFETCHED_MAX;
use super::block::{self, Block, BlockHeader};
use super::empty_ranges::EmptyRanges;
use super::filter::{Filter, FilterLevel};
use super::list::MEMTABLE_LIST_BYTES;
use super::merge_source::MemtableSource;
use super::node::{NodeRef, Position};
use super::recovered::RecoveredBatch;
use super::shared::Shared;
use super::skip_list::{Finger, SkipList};
use crate::memory::{COUNTS_BYTES, IndexMemory, TableCharge};
use fulgurite_types::sync::AtomicPtr;

/// The versions of the commits in `(start, boundary]`, ordered by (key ascending, CSN descending).
pub struct Memtable {
    start: Csn,
    /// [`Csn::MAX`] while it is the newest one.
    boundary: AtomicU64,
    list: SkipList,
    filter: Filter,
    /// The newest of the blocks that it owns; each points to the one before it.
    blocks: AtomicPtr<BlockHeader>,
    memory: Arc<IndexMemory>,
    /// Its bytes when it was last noted that it left its table.
    left_bytes: AtomicUsize,
    _charge: TableCharge,
}

/// What an empty one takes beside the head of its list, with its place in the list of memtables. Counted with the table: each
/// table has one, and no merge gives it back.
const EMPTY_BYTES: usize = size_of::<Memtable>() + COUNTS_BYTES + MEMTABLE_LIST_BYTES;

// SAFETY: the blocks that the raw pointers point to are Send and Sync, owned by the memtable, and freed when it is
// dropped.
unsafe impl Send for Memtable {}
// SAFETY: as above; they are reached through atomics only.
unsafe impl Sync for Memtable {}

impl Memtable {
    /// One for about `entries` versions, most of whose keys begin with `shared`.
    pub(super) fn new(start: Csn, entries: u64, shared: Shared, memory: &Arc<IndexMemory>) -> Memtable {
        let list = SkipList::new(shared);
        let charge = TableCharge::new(memory, EMPTY_BYTES + list.head_bytes());
        Memtable {
            start,
            boundary: AtomicU64::new(Csn::MAX.0),
            list,
            filter: Filter::new(entries),
            blocks: AtomicPtr::new(ptr::null_mut()),
            memory: Arc::clone(memory),
            left_bytes: AtomicUsize::new(0),
            _charge: charge,
        }
    }

    /// It holds the commits above this CSN.
    pub fn start(&self) -> Csn {
        self.start
    }

    /// It holds the commits up to this CSN; [`Csn::MAX`] while it is mutable.
    pub fn boundary(&self) -> Csn {
        Csn(self.boundary.load(Ordering::Acquire))
    }

    pub(super) fn close(&self, boundary: Csn) {
        self.boundary.store(boundary.0, Ordering::Release);
    }

    fn top(&self) -> Option<&BlockHeader> {
        // SAFETY: published blocks are initialised, live as long as the memtable, and are no longer written, except for
        // their atomic count.
        NonNull::new(self.blocks.load(Ordering::Acquire)).map(|block| unsafe { block.as_ref() })
    }

    /// How many versions it holds, including those that are being applied.
    pub fn entries(&self) -> u64 {
        self.top().map_or(0, |block| block.entries_total)
    }

    /// How many bytes of memory its blocks and its filter take, which grow with what it holds.
    pub fn bytes(&self) -> u64 {
        self.top().map_or(0, |block| block.bytes_total) + self.filter.bytes() as u64
    }

    /// Whether nothing was ever applied to it.
    pub fn is_empty(&self) -> bool {
        self.blocks.load(Ordering::Acquire).is_null()
    }

    /// It was merged, or will not be.
    pub(super) fn leave(&self) {
        let bytes = self.bytes() as usize;
        let before = self.left_bytes.swap(bytes, Relaxed);
        self.memory.left_memtables().fetch_add(bytes.wrapping_sub(before), Relaxed);
    }

    /// Takes ownership of a block, so that its nodes live as long as the memtable.
    fn adopt(&self, block: Block) -> NonNull<BlockHeader> {
        let (entries, bytes) = (block.entries() as u64, block.bytes() as u64);
        self.memory.memtables().fetch_add(bytes as usize, Relaxed);
        let block = block.into_raw();
        let mut below = self.blocks.load(Ordering::Acquire);
        loop {
            // SAFETY: `below` is null or a block that the memtable owns; only this thread accesses `block` until the
            // exchange succeeds.
            unsafe {
                let totals = below.as_ref().map_or((0, 0), |b| (b.entries_total, b.bytes_total));
                (*block.as_ptr()).below = below;
                (*block.as_ptr()).entries_total = totals.0 + entries;
                (*block.as_ptr()).bytes_total = totals.1 + bytes;
            }
            match self.blocks.compare_exchange_weak(
                below,
                block.as_ptr(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return block,
                Err(other) => below = other,
            }
        }
    }

    pub(super) fn apply(&self, mut block: Block, csn: Csn, body_lsn: Lsn, empty_ranges: &EmptyRanges) {
        debug_assert!(self.start < csn && csn <= self.boundary());
        let entries = block.entries();
        if entries == 0 {
            return;
        }
        block.stamp(csn, body_lsn, self.list.shared());
        let block = self.adopt(block);
        // SAFETY: the memtable owns the block now, and `stamp` is over.
        let (mut nodes, mut ahead) = unsafe { (block::nodes(block), block::nodes(block)) };
        let filter = self.filter.level(self.entries(), self.memory.memtables());
        let mut finger = self.list.finger();
        loop {
            let some: SmallVec<[NodeRef<'_>; PREFETCHED_MAX]> = ahead.by_ref().take(PREFETCHED_MAX).collect();
            let Some(last) = some.last() else { break };
            if entries > 1 && !self.list.is_near(&last.position(), &finger) {
                self.prefetch_insertions(&some, &filter);
            }
            for node in nodes.by_ref().take(some.len()) {
                self.link(node, &filter, &mut finger);
            }
        }
        if empty_ranges.asks_for_writes() {
            // SAFETY: as above.
            let values = unsafe { block::nodes(block) }.filter(|node| !node.flags().is_tombstone());
            empty_ranges.written(values.map(NodeRef::key));
        }
    }

    /// Starts loading what [`Memtable::link`] reads, where the thread knows no predecessor.
    fn prefetch_insertions(&self, nodes: &[NodeRef<'_>], filter: &FilterLevel<'_>) {
        let mut positions = SmallVec::<[Position<'_>; PREFETCHED_MAX]>::new();
        for node in nodes {
            filter.prefetch(node.hash_before_linking());
            if !self.list.has_predecessor(node.hash_before_linking()) {
                positions.push(node.position());
            }
        }
        self.list.prefetch(&positions, |_, _| {});
    }

    fn link<'a>(&'a self, node: NodeRef<'a>, filter: &FilterLevel<'_>, finger: &mut Finger<'a>) {
        let hash = node.hash_before_linking();
        filter.add(hash);
        if node.height() == 1
            && let Some(around) = self.list.around(hash, &node.position())
        {
            self.list.insert_between(node, around);
        } else {
            self.list.insert(node, finger);
        }
    }

    pub(super) fn apply_recovered(&self, batch: RecoveredBatch, empty_ranges: &EmptyRanges) {
        /// How many nodes ahead memory is prefetched.
        const AHEAD: usize = 16;
        let (blocks, order) = batch.into_blocks_and_order();
        for block in blocks {
            self.adopt(block);
        }
        let filter = self.filter.level(self.entries(), self.memory.memtables());
        let mut finger = self.list.finger();
        for (i, entry) in order.iter().enumerate() {
            if let Some(later) = order.get(i + 2 * AHEAD) {
                super::prefetch(later.node().as_ptr());
            }
            if let Some(later) = order.get(i + AHEAD) {
                // SAFETY: as below.
                filter.prefetch(unsafe { NodeRef::new(later.node()) }.hash_before_linking());
            }
            // SAFETY: the node is in a block that the memtable has adopted above. No other thread can reach it before it is
            // linked, and after its prefix only its links are still written.
            let node = unsafe {
                self.list.shared().set_prefix(entry.node());
                NodeRef::new(entry.node())
            };
            filter.add(node.hash_before_linking());
            self.list.insert(node, &mut finger);
        }
        if empty_ranges.asks_for_writes() {
            // SAFETY: as above.
            let nodes = order.iter().map(|entry| unsafe { NodeRef::new(entry.node()) });
            let values = nodes.filter(|node| !node.flags().is_tombstone());
            empty_ranges.written(values.map(NodeRef::key));
        }
    }

    /// Starts loading what [`Memtable::may_contain`] reads.
    #[inline]
    pub(super) fn prefetch_filter(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// Starts loading what [`Memtable::find`] reads for each of these keys, with their hashes.
    pub(super) fn prefetch<'k>(&self, keys: impl Iterator<Item = (&'k [u8], u64)>) {
        let (positions, hashes): (SmallVec<[_; PREFETCHED_MAX]>, SmallVec<[_; PREFETCHED_MAX]>) =
            keys.map(|(key, hash)| (self.list.position(key, Csn::MAX), hash)).unzip();
        self.list.prefetch(&positions, |index, before| self.list.note_predecessor(hashes[index], before));
    }

    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The newest version of `key` at or below `at`.
    pub(super) fn find(&self, key: &[u8], hash: u64, at: Csn) -> Option<NodeRef<'_>> {
        let position = self.list.position(key, at);
        let found = match self.list.around(hash, &position) {
            Some((_, next)) => next,
            None => self.list.search_and_note(hash, &position),
        };
        found.filter(|node| node.has_key(position.prefix, key))
    }

    pub(super) fn list(&self) -> &SkipList {
        &self.list
    }

    /// What its keys share, and so probably those of the next memtable.
    pub(super) fn shared_by_keys(&self) -> Shared {
        self.list.sampled_shared(self.entries())
    }

    /// Its versions, to be merged: only once all its commits are applied (INV-IDX-3). An inline payload longer than
    /// `inline_max` whose LSN is known becomes an encoded [`crate::OutOfLine`].
    pub fn merge_source(&self, inline_max: usize) -> MemtableSource<'_> {
        MemtableSource::new(self.list.first(), inline_max)
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.leave();
        self.memory.memtables().fetch_sub(self.filter.bytes(), Relaxed);
        self.memory.left_memtables().fetch_sub(self.filter.bytes(), Relaxed);
        let mut next = *self.blocks.get_mut();
        while let Some(block) = NonNull::new(next) {
            // SAFETY: the memtable owns one reference to each of its blocks and alone follows `below`; it reads `below`
            // before it gives the reference back.
            unsafe {
                next = block.as_ref().below;
                block::release_counted(block, &self.memory);
            }
        }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memtable(({}, {}], {} entries)", self.start, self.boundary(), self.entries())
    }
}
