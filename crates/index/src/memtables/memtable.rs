//! A memtable: the versions of one CSN interval.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fulgurite_types::{Csn, Lsn};
use smallvec::SmallVec;

use super::block::{self, Block, BlockHeader};
use super::empty_ranges::EmptyRanges;
use super::key_index::{Found, KeyIndex};
use super::linking::{self, AT_ONCE_MAX, COMPARISONS_A_LOOK, Linking};
use super::list::MEMTABLE_LIST_BYTES;
use super::merge_source::MemtableSource;
use super::node::NodeRef;
use super::recovered::RecoveredBatch;
use super::shared::Shared;
use super::skip_list::SkipList;
use crate::memory::{COUNTS_BYTES, IndexMemory, TableCharge};
use fulgurite_types::sync::AtomicPtr;

/// The versions of the commits in `(start, boundary]`, ordered by (key ascending, CSN descending).
pub struct Memtable {
    start: Csn,
    /// [`Csn::MAX`] while it is the newest one.
    boundary: AtomicU64,
    keys: KeyIndex,
    /// The newest of the blocks that it owns; each points to the one before it.
    blocks: AtomicPtr<BlockHeader>,
    /// Has the versions of those blocks that are linked, in order.
    list: SkipList,
    linking: Linking,
    memory: Arc<IndexMemory>,
    /// Its bytes when it was last noted that it left its table.
    left_bytes: AtomicUsize,
    _charge: TableCharge,
}

/// What an empty one takes beside the head of its list, with its place in the list of memtables. Counted with the table: each
/// table has one, and no merge gives it back.
const EMPTY_BYTES: usize = size_of::<Memtable>() + COUNTS_BYTES + MEMTABLE_LIST_BYTES;

/// So many keys at most tell what all share.
const SAMPLED_KEYS_MAX: usize = 64;

/// Fewer tell nothing.
const SAMPLED_KEYS_MIN: usize = 8;

/// A version so far behind its key's newest one is searched for in the ordered list, ...
const BEHIND_MAX: usize = 32;

/// ... or if that first has to be made, one so far behind.
const BEHIND_UNLINKED_MAX: usize = 4096;

// SAFETY: the blocks that the raw pointers point to are Send and Sync, owned by the memtable, and freed when it is
// dropped.
unsafe impl Send for Memtable {}
// SAFETY: as above; they are reached through atomics only.
unsafe impl Sync for Memtable {}

impl Memtable {
    /// The first one of a table, for about `entries` versions.
    pub(super) fn first(entries: u64, memory: &Arc<IndexMemory>) -> Memtable {
        Memtable::new(Csn::ZERO, entries, Shared::default(), Linking::after(None), memory)
    }

    /// The one after this, for commits above `start`: of about as many keys, which share what these do.
    pub(super) fn next(&self, start: Csn) -> Memtable {
        let linking = Linking::after(Some(&self.linking));
        Memtable::new(start, self.keys.keys(), self.sampled_shared(), linking, &self.memory)
    }

    /// What its keys share, as far as a sample of them tells. This runs under the lock that gives out numbers.
    fn sampled_shared(&self) -> Shared {
        let keys = self.keys.sample(SAMPLED_KEYS_MAX).map(NodeRef::key);
        let keys: SmallVec<[&[u8]; SAMPLED_KEYS_MAX]> = keys.collect();
        match (keys.iter().min(), keys.iter().max()) {
            (Some(first), Some(last)) if keys.len() >= SAMPLED_KEYS_MIN && first != last => {
                Shared::by(first, last)
            }
            _ => self.list.shared().clone(),
        }
    }

    fn new(
        start: Csn,
        entries: u64,
        shared: Shared,
        linking: Linking,
        memory: &Arc<IndexMemory>,
    ) -> Memtable {
        let list = SkipList::new(shared);
        let charge = TableCharge::new(memory, EMPTY_BYTES + list.head_bytes());
        Memtable {
            start,
            boundary: AtomicU64::new(Csn::MAX.0),
            keys: KeyIndex::new(entries, memory.secret()),
            blocks: AtomicPtr::new(ptr::null_mut()),
            list,
            linking,
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

    /// The newest block, with the provenance of all of it; null if there is none.
    #[inline]
    pub(super) fn newest_block(&self) -> *mut BlockHeader {
        self.blocks.load(Ordering::Acquire)
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

    /// How many bytes of memory its blocks and the index of its keys take, which grow with what it holds.
    pub fn bytes(&self) -> u64 {
        self.top().map_or(0, |block| block.bytes_total) + self.keys.bytes() as u64
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
        self.linking.uncount(&self.memory);
    }

    /// Takes ownership of a block, so that its nodes live as long as the memtable. Its versions are in the index of the keys first, and
    /// then among those to be linked (INV-IDX-7).
    fn adopt(&self, block: Block) -> NonNull<BlockHeader> {
        let (entries, block) = (block.entries(), block.into_raw());
        // SAFETY: from here on the memtable owns the block, which was stamped before.
        let nodes = unsafe { block::nodes(block) };
        self.keys.add(entries, nodes, self.memory.memtables());
        self.push(block);
        block
    }

    /// Adds a block, whose versions are in the index of the keys, to those to be linked.
    fn push(&self, block: NonNull<BlockHeader>) {
        // SAFETY: the memtable owns the block.
        let (entries, bytes) = unsafe { block::counts(block) };
        self.memory.memtables().fetch_add(bytes, Relaxed);
        self.linking.count(entries, &self.memory);
        let mut below = self.blocks.load(Ordering::Acquire);
        loop {
            // SAFETY: `below` is null or a block that the memtable owns; of `block` other threads use the nodes until the
            // exchange succeeds.
            unsafe {
                let totals = below.as_ref().map_or((0, 0), |b| (b.entries_total, b.bytes_total));
                (*block.as_ptr()).below = below;
                (*block.as_ptr()).entries_total = totals.0 + entries as u64;
                (*block.as_ptr()).bytes_total = totals.1 + bytes as u64;
            }
            match self.blocks.compare_exchange_weak(
                below,
                block.as_ptr(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return,
                Err(other) => below = other,
            }
        }
    }

    pub(super) fn apply(&self, mut block: Block, csn: Csn, body_lsn: Lsn, empty_ranges: &EmptyRanges) {
        debug_assert!(self.start < csn && csn <= self.boundary());
        if block.entries() == 0 {
            return;
        }
        block.stamp(csn, body_lsn, self.list.shared());
        let block = self.adopt(block);
        tell_written(block, empty_ranges);
    }

    pub(super) fn apply_recovered(&self, batch: RecoveredBatch, empty_ranges: &EmptyRanges) {
        let mut nodes = Vec::with_capacity(batch.len());
        let mut blocks = Vec::new();
        for mut block in batch.into_blocks() {
            block.set_prefixes(self.list.shared());
            let block = block.into_raw();
            blocks.push(block);
            // SAFETY: from here on the memtable owns the block, whose nodes are all written.
            nodes.extend(unsafe { block::nodes(block) });
        }
        // Each version of a key is newer than those before it: it need not be searched for among them.
        nodes.sort_by_key(|node| node.csn());
        self.keys.add(nodes.len(), nodes.into_iter(), self.memory.memtables());
        blocks.iter().for_each(|block| self.push(*block));
        blocks.into_iter().for_each(|block| tell_written(block, empty_ranges));
        // Now, all at once, on the thread that replays: the first reader would wait for it.
        self.link();
    }

    /// Before a walk: links the rest, or waits for a thread that does. All versions that were adopted before are in order then
    /// (INV-IDX-17).
    pub(super) fn order(&self) {
        self.note_walk();
        self.link();
    }

    /// The same without a walk.
    pub(super) fn link(&self) {
        self.linking.link(self, &self.list, &self.memory);
    }

    /// Before a walk that must not wait: whether all are linked, or could be at once, as no other thread links them.
    pub(super) fn try_order(&self) -> bool {
        self.linking.try_link(self, &self.list, &self.memory)
    }

    /// A walk begins, or is refused because too many versions are not linked.
    #[inline]
    pub(super) fn note_walk(&self) {
        self.linking.note_walk(&self.memory);
    }

    /// Whether the table is one that is walked.
    #[inline]
    pub(super) fn is_walked(&self) -> bool {
        self.linking.is_walked()
    }

    /// How many versions are not linked.
    pub(super) fn unlinked(&self) -> u64 {
        self.linking.unlinked(self)
    }

    /// Starts loading what [`Memtable::may_contain`] reads.
    #[inline]
    pub(super) fn prefetch_key(&self, hash: u64) {
        self.keys.prefetch(hash);
    }

    /// Starts loading what [`Memtable::find`] reads beside; returns whether the key may be there.
    #[inline]
    pub(super) fn prefetch_version(&self, hash: u64) -> bool {
        self.keys.prefetch_node(hash)
    }

    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.keys.may_contain(hash)
    }

    /// The newest version of `key` at or below `at`.
    #[inline]
    pub(super) fn find(&self, key: &[u8], hash: u64, at: Csn) -> Option<NodeRef<'_>> {
        match self.keys.find(key, hash, at, BEHIND_MAX) {
            Found::Version(node) => Some(node),
            Found::Absent => None,
            // All its versions are newer.
            _ if at <= self.start => None,
            Found::FarBehind | Found::Unknown => self.find_in_order(key, hash, at),
        }
    }

    #[cold]
    fn find_in_order(&self, key: &[u8], hash: u64, at: Csn) -> Option<NodeRef<'_>> {
        if self.unlinked() > AT_ONCE_MAX || !self.try_order() {
            match self.keys.find(key, hash, at, BEHIND_UNLINKED_MAX) {
                Found::Version(node) => return Some(node),
                Found::Absent => return None,
                Found::FarBehind | Found::Unknown => self.order(),
            }
        }
        let position = self.list.position(key, at);
        self.list.at_or_after(&position).filter(|node| node.has_key(position.prefix, key))
    }

    /// The versions that are linked: all that a reader sees after [`Memtable::order`].
    pub(super) fn list(&self) -> &SkipList {
        &self.list
    }

    /// Its versions, to be merged: only once all its commits are applied (INV-IDX-3). An inline payload longer than
    /// `inline_max` whose LSN is known becomes an encoded [`crate::OutOfLine`].
    pub fn merge_source(&self, inline_max: usize) -> MemtableSource<'_> {
        let is_nearly_linked = self.unlinked() <= AT_ONCE_MAX;
        let nodes = if is_nearly_linked {
            self.link();
            linking::all_linked(&self.list, self.entries() as usize)
        } else {
            linking::all_sorted(self)
        };
        MemtableSource::new(nodes, inline_max, &self.memory)
    }
}

/// Tells about values that were written into ranges that may be recorded as empty.
fn tell_written(block: NonNull<BlockHeader>, empty_ranges: &EmptyRanges) {
    if empty_ranges.asks_for_writes() {
        // SAFETY: a memtable, which lives for the call, owns the block; it was stamped before.
        let values = unsafe { block::nodes(block) }.filter(|node| !node.flags().is_tombstone());
        empty_ranges.written(values.map(NodeRef::key));
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.leave();
        self.memory.memtables().fetch_sub(self.keys.bytes(), Relaxed);
        self.memory.left_memtables().fetch_sub(self.keys.bytes(), Relaxed);
        // Maintenance drops memtables: others get the processor between blocks, as between the steps of a merge.
        let mut step = linking::in_turns();
        let mut next = *self.blocks.get_mut();
        while let Some(block) = NonNull::new(next) {
            // SAFETY: the memtable owns one reference to each of its blocks and alone follows `below`; it reads `below`
            // before it gives the reference back.
            unsafe {
                next = block.as_ref().below;
                block::release_counted(block, &self.memory);
            }
            step(COMPARISONS_A_LOOK);
        }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memtable(({}, {}], {} entries)", self.start, self.boundary(), self.entries())
    }
}
