//! A table's memtables hold its recent versions: every commit, and every replayed commit, is applied here and nowhere
//! else.
//!
//! The list of memtables is short. Each memtable holds the versions of one CSN interval in a concurrent ordered map
//! that only grows. The merger merges the oldest memtable into the base as a whole and then drops it as a whole. So no
//! entry is ever removed singly, and only the list needs protection from reclamation.
//!
//! Invariants:
//!
//! - **INV-IDX-1** *(list first, base second)*: a reader takes the list of memtables before it reads the base, and the
//!   merger drops a memtable only after the base has all its versions. So the reader finds a version in the list, in
//!   the base, or in both. A cursor uses the list that it took before it sought its base cursor, up to the last entry
//!   that it was lent from that list, even if maintenance has taken the list back meanwhile (INV-IDX-10, `cursor_slot.rs`).
//! - **INV-IDX-2** *(one memtable for a commit)*: memtables cover disjoint, adjacent CSN intervals `(start, boundary]`,
//!   newest first, and a version is in the memtable whose interval contains its CSN. So the first memtable that has a
//!   version of a key at or below a CSN has the newest one.
//! - **INV-IDX-3** *(immutable means complete)*: no commit above a boundary gets its CSN before `freeze` with that
//!   boundary has returned, and a memtable is merged only when every commit up to its boundary is applied and none of
//!   them can be undone. So a merged memtable is complete, and no version arrives in a dropped one.
//! - **INV-IDX-4** *(nodes stay)*: a node is written before it is in the index of the keys, and linked later; from then on only its
//!   links change. Its block
//!   lives as long as its memtable and as any version read from it.
//! - **INV-IDX-5** *(lower links first)*: a node is linked level by level from the bottom, each link by a
//!   compare-and-exchange that expects the successor stored in the node. So level 0 is always complete and sorted, and
//!   each level is a subset of the one below it.
//! - **INV-IDX-6** *(range tombstones first)*: a reader looks up the range tombstones before it takes the list of
//!   memtables, or checks afterwards that none was removed meanwhile; one is removed only when memtables and base hold
//!   nothing that it hides. So a reader never sees a version that a range tombstone at or below its CSN hides.
//! - **INV-IDX-7** *(found before linked)*: a version is in the index of its memtable's keys before a thread may link it, and
//!   its commit is applied only after both: it is in the index, and among the blocks that are to be linked.
//! - **INV-IDX-8** *(each reader's newest)*: a range tombstone that covers a key may be dropped in favour of a newer
//!   one only if [its CSN, the newer one's) contains no snapshot, no CSN of a read that begins later, and no boundary
//!   of an incomplete checkpoint. Without the last condition a crash could lose the newer one, and what the older one
//!   hid would come back. A read without a snapshot that began before moves up to the newer one's CSN, which readers
//!   could see when the older one was dropped.
//! - **INV-IDX-9** *(empty means empty)*: no reader at or above the CSN of a range that is recorded as empty sees a key
//!   in it; see `empty_ranges.rs`.
//! - **INV-IDX-17** *(in order before walked)*: versions are linked in order when that is first needed. A walk over a memtable
//!   begins only when all that were adopted before are linked; a commit that is applied meanwhile has a greater CSN than the walk sees.
//!   A merge needs no links: its memtable is complete (INV-IDX-3), and it sorts all versions of that for itself.
//! - **INV-IDX-10** *(lent entries stay)*: the entries lent to a cursor stay valid until it asks the memtables again;
//!   see `cursor_slot.rs`.

mod block;
mod cursor;
mod cursor_slot;
mod empty_ranges;
mod key_index;
mod linking;
#[cfg(all(test, not(feature = "shuttle")))]
mod linking_tests;
mod list;
mod memtable;
mod merge_source;
mod node;
mod recovered;
mod sample;
mod shared;
mod skip_list;

use std::fmt;
use std::ptr;
use std::sync::Arc;

use crossbeam_epoch as epoch;
use fulgurite_types::{Csn, KeySpan, Lsn};
use parking_lot::Mutex;
use smallvec::SmallVec;

pub use block::{Block, BlockBuilder, BlockOp, BlockRef};
pub use cursor::{MemtableCursor, TakenBack};
pub use memtable::Memtable;
pub use merge_source::MemtableSource;
pub use recovered::{RecoveredBatch, RecoveredBuilder, RecoveredOp};

use crate::version::Version;
use cursor_slot::CursorSlots;
pub(crate) use empty_ranges::{EmptyRange, EmptyRanges};
use linking::AT_ONCE_MAX;
pub(crate) use linking::{MUCH, MUCH_UNWALKED};
use list::{CurrentList, MemtableList};

use crate::memory::IndexMemory;

/// The memtables of a table: its recent versions.
pub struct Memtables {
    list: CurrentList,
    /// Dropped memtables that a reader may still use. Maintenance frees them, so that no reader frees a million blocks.
    /// The lock also serializes replacing the list.
    retired: Mutex<Vec<Arc<Memtable>>>,
    empty_ranges: EmptyRanges,
    /// The slots of the cursors over these memtables.
    slots: CursorSlots,
}

impl Memtables {
    /// One empty, mutable memtable.
    pub fn new() -> Memtables {
        Memtables::counted_in(Arc::default())
    }

    /// Like [`Memtables::new`]; their memory counts in `memory`, until the last reader has dropped what it holds of them.
    pub fn counted_in(memory: Arc<IndexMemory>) -> Memtables {
        Memtables::with(0, memory)
    }

    /// Like [`Memtables::new`], with an index for about `keys` keys from the start.
    pub fn with_capacity(keys: u64) -> Memtables {
        Memtables::with(keys, Arc::default())
    }

    fn with(keys: u64, memory: Arc<IndexMemory>) -> Memtables {
        let first = Arc::new(Memtable::first(keys, &memory));
        Memtables {
            list: CurrentList::new(MemtableList::new(vec![first])),
            retired: Mutex::new(Vec::new()),
            empty_ranges: EmptyRanges::default(),
            slots: CursorSlots::counted_in(memory),
        }
    }

    /// Makes a commit's versions visible to readers at or above its CSN. Does not fail. Allocates only a larger index of the keys,
    /// which it does without if memory is short, and the bounds of empty ranges that it cuts. Several threads may apply
    /// at once, in any order.
    ///
    /// # Panics
    /// If the commit is at or below [`Memtables::merged`] (INV-IDX-3).
    pub fn apply(&self, block: Block, csn: Csn, body_lsn: Lsn) {
        self.list.with(|list| list.of_commit(csn).apply(block, csn, body_lsn, &self.empty_ranges));
    }

    /// Applies replayed operations.
    ///
    /// # Panics
    /// If they do not all belong to one memtable: recovery freezes only between batches.
    pub fn apply_recovered(&self, batch: RecoveredBatch) {
        let (csn_min, csn_max) = batch.csn_range();
        if batch.is_empty() {
            return;
        }
        self.list.with(|list| {
            let memtable = list.of_commit(csn_min);
            assert!(csn_max <= memtable.boundary(), "INV-IDX-2: the batch spans memtables");
            memtable.apply_recovered(batch, &self.empty_ranges);
        });
    }

    /// Freezes the mutable memtable at `boundary` and starts another. No commit above `boundary` may get its CSN before
    /// this has returned (INV-IDX-3). Commits at or below it may still be applied; each goes into the memtable whose
    /// interval contains its CSN (INV-IDX-2).
    ///
    /// Freezes even if the memtable is empty, because a commit at or below `boundary` may be about to be applied to it.
    /// Returns false only if the newest memtable already starts at or above `boundary`.
    pub fn freeze(&self, boundary: Csn) -> bool {
        let retired = self.retired.lock();
        let list = self.list.keep();
        let newest = list.newest();
        if boundary <= newest.start() {
            return false;
        }
        newest.close(boundary);
        let opened = Arc::new(newest.next(boundary));
        let memtables = std::iter::once(opened).chain(list.newest_first().iter().cloned()).collect();
        self.list.replace(MemtableList::new(memtables));
        drop(retired);
        true
    }

    /// The newest version of `key` at or below `at`, tombstones and expired versions included.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, at: Csn) -> Option<Version> {
        self.list.with(|list| list.find(key, hash, at).map(|node| node.version()))
    }

    /// The same; whether the hashes of their keys alone rule out that a memtable has a version of `key`, whatever its CSN; and
    /// [`Memtables::merged`] at the moment of that look-up.
    pub fn look_up(&self, key: &[u8], hash: u64, at: Csn) -> (Option<Version>, bool, Csn) {
        self.list.with(|list| match list.may_contain(hash) {
            false => (None, true, list.merged()),
            true => (list.find(key, hash, at).map(|node| node.version()), false, list.merged()),
        })
    }

    /// Whether a memtable may have a version of `key`, as far as their hashes tell; `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.list.with(|list| list.may_contain(hash))
    }

    /// Starts loading what [`Memtables::get`] reads for each of these keys, with their hashes; keeps those of which no memtable has a
    /// version, as far as the hashes tell.
    pub(crate) fn prefetch(&self, keys: &mut PrefetchedKeys<'_>) {
        self.list.with(|list| {
            for memtable in list.newest_first() {
                keys.iter().for_each(|(_, hash)| memtable.prefetch_key(*hash));
            }
            for memtable in list.newest_first() {
                keys.retain(|(_, hash)| !memtable.prefetch_version(*hash));
            }
        });
    }

    /// Whether one that is newer than the oldest one has a version of `key`.
    pub(crate) fn newer_contain(&self, key: &[u8], hash: u64) -> bool {
        self.list.with(|list| {
            let (_, newer) = list.newest_first().split_last().expect("there is always one");
            newer.iter().any(|memtable| memtable.find(key, hash, Csn::MAX).is_some())
        })
    }

    /// The CSN of the newest version of `key`.
    pub fn newest_csn(&self, key: &[u8], hash: u64) -> Option<Csn> {
        self.newest_csn_and_merged(key, hash).0
    }

    /// The CSN of the newest version of `key`, and [`Memtables::merged`] at the moment of that look-up.
    pub fn newest_csn_and_merged(&self, key: &[u8], hash: u64) -> (Option<Csn>, Csn) {
        self.list.with(|list| (list.find(key, hash, Csn::MAX).map(|node| node.csn()), list.merged()))
    }

    /// Whether a version in the range is newer than `than`.
    pub fn any_newer_in_range(&self, range: KeySpan<&[u8]>, than: Csn) -> bool {
        self.order();
        self.any_newer_in_range_and_merged(range, than).0
    }

    /// Whether a version in the range is newer than `than`, among those applied before [`Memtables::order`]; and [`Memtables::merged`] at
    /// the moment of that look-up.
    pub(crate) fn any_newer_in_range_and_merged(&self, range: KeySpan<&[u8]>, than: Csn) -> (bool, Csn) {
        self.list.with(|list| {
            let mut recent = list.newest_first().iter().filter(|memtable| than < memtable.boundary());
            (recent.any(|memtable| cursor::any_newer(memtable, range, than)), list.merged())
        })
    }

    /// Before a walk: links the rest, or waits for a thread that does (INV-IDX-17).
    #[inline]
    pub fn order(&self) {
        if self.note_walk() > 0 {
            self.link_ahead();
        }
    }

    /// Links the rest, so that the next walk need not. For maintenance.
    pub fn link_ahead(&self) {
        // Counted, and not epoch-pinned: it may take a while.
        let list = self.list.keep();
        list.newest_first().iter().for_each(|memtable| memtable.link());
    }

    /// The same if many are left, but for the oldest memtable, which is being merged: fewer are many if the table was walked not long ago.
    #[inline]
    pub fn link_much(&self) {
        let newer = |list: &MemtableList| {
            let (_, newer) = list.newest_first().split_last().expect("there is always one");
            newer.iter().map(|memtable| memtable.unlinked()).sum::<u64>()
        };
        let (is_walked, unlinked) = self.list.with(|list| (list.newest().is_walked(), newer(list)));
        if unlinked >= if is_walked { MUCH } else { MUCH_UNWALKED } {
            let list = self.list.keep();
            let (_, newer) = list.newest_first().split_last().expect("there is always one");
            newer.iter().for_each(|memtable| memtable.link());
        }
    }

    /// Before a walk that must not wait: links the rest if that is done at once, as few versions are left and no other thread links them.
    /// Returns whether it is.
    pub(crate) fn try_order(&self) -> bool {
        let unlinked = self.note_walk();
        unlinked == 0
            || unlinked <= AT_ONCE_MAX
                && self.list.with(|list| list.newest_first().iter().all(|memtable| memtable.try_order()))
    }

    /// A walk begins; returns how many versions are not linked in order.
    #[inline]
    fn note_walk(&self) -> u64 {
        self.list.with(|list| {
            list.newest().note_walk();
            list.newest_first().iter().map(|memtable| memtable.unlinked()).sum()
        })
    }

    /// The ranges that are recorded as empty.
    pub(crate) fn empty_ranges(&self) -> &EmptyRanges {
        &self.empty_ranges
    }

    /// Records a range as empty that a reader at `at` has found empty, unless a key was written there after `at`
    /// (INV-IDX-9).
    pub(crate) fn record_empty(&self, range: EmptyRange, at: Csn) {
        let span: KeySpan = range.span().owned();
        if !self.empty_ranges.announce(range) {
            return;
        }
        // Counted, and not epoch-pinned: the look-up may take a while.
        let list = self.list.keep();
        list.newest_first().iter().for_each(|memtable| memtable.order());
        let mut recent = list.newest_first().iter().filter(|memtable| at < memtable.boundary());
        let is_written = at < list.merged()
            || recent.any(|memtable| cursor::any_newer_value(memtable, span.borrowed(), at));
        self.empty_ranges.finish(is_written);
    }

    /// Versions at or below this CSN are in the base only.
    pub fn merged(&self) -> Csn {
        self.list.with(MemtableList::merged)
    }

    /// The oldest memtable, if it is immutable: the next to be merged.
    pub fn oldest_immutable(&self) -> Option<Arc<Memtable>> {
        self.list.with(|list| {
            let closed = list.newest_first().len() > 1;
            closed.then(|| list.oldest().clone())
        })
    }

    /// The table is gone: none of them will be merged.
    pub(crate) fn leave_all(&self) {
        let list = self.list.keep();
        list.newest_first().iter().for_each(|memtable| memtable.leave());
    }

    /// Drops the oldest memtable, which was merged into the base (INV-IDX-1, INV-IDX-3).
    ///
    /// # Panics
    /// If `memtable` is not the oldest, or is still mutable.
    pub fn drop_oldest(&self, memtable: &Arc<Memtable>) {
        let mut retired = self.retired.lock();
        let list = self.list.keep();
        let (kept, oldest) = list.newest_first().split_at(list.newest_first().len() - 1);
        assert!(
            !kept.is_empty() && Arc::ptr_eq(&oldest[0], memtable),
            "only the oldest immutable one is dropped"
        );
        memtable.leave();
        retired.push(memtable.clone());
        self.list.replace(MemtableList::new(kept.to_vec()));
    }

    /// Takes dropped memtables back from cursors and frees those that no reader uses any more; returns how many bytes
    /// are still held. Maintenance calls it from time to time; [`crate::table::Table::merge_oldest`] does.
    pub fn reclaim(&self) -> u64 {
        self.slots.take_back(self.merged());
        for _ in 0..3 {
            epoch::pin().flush();
        }
        let retired: Vec<_> = std::mem::take(&mut *self.retired.lock());
        // Only `retired` can make a new reference to a memtable that is in no list, so a count of one is final.
        let (unused, used): (Vec<_>, Vec<_>) =
            retired.into_iter().partition(|memtable| Arc::strong_count(memtable) == 1);
        let held = used.iter().map(|memtable| memtable.bytes()).sum();
        self.retired.lock().extend(used);
        drop(unused);
        held
    }

    /// A cursor that sees each key's newest version at or below `at`; it is at the end until it is sought.
    pub fn cursor(&self, at: Csn) -> MemtableCursor {
        MemtableCursor::new(self.slots.take(), at)
    }

    /// Moves a cursor over these memtables, in their current list, to the first key at or after `start`, after [`Memtables::order`].
    #[inline]
    pub fn seek(&self, cursor: &mut MemtableCursor, start: &[u8]) {
        cursor.seek(&self.list, start);
    }

    /// Moves a cursor over these memtables, in their current list, to the last key before `end`; `None`: to the last
    /// key of all.
    #[inline]
    pub fn seek_back(&self, cursor: &mut MemtableCursor, end: Option<&[u8]>) {
        cursor.seek_back(&self.list, end);
    }

    /// Leaves a cursor's slot to a later cursor. A cursor that is dropped without this makes the next one cost more.
    #[inline]
    pub(crate) fn leave(&self, cursor: &mut MemtableCursor) {
        if let Some(slot) = cursor.take_slot() {
            self.slots.leave(slot);
        }
    }

    /// Whether a cursor was sought in the current list. May be wrongly true for a cursor whose list was taken back.
    #[inline]
    pub(crate) fn is_current(&self, cursor: &MemtableCursor) -> bool {
        cursor.was_sought_in(self.list.as_ptr())
    }

    /// How many bytes of memory the memtables take, without dropped ones.
    pub fn bytes(&self) -> u64 {
        self.list.with(|list| list.newest_first().iter().map(|memtable| memtable.bytes()).sum())
    }

    /// Whether nothing was ever applied to the mutable memtable.
    pub fn newest_is_empty(&self) -> bool {
        self.list.with(|list| list.newest().is_empty())
    }

    /// How many bytes of memory the mutable memtable takes.
    pub fn newest_bytes(&self) -> u64 {
        self.list.with(|list| list.newest().bytes())
    }

    /// How many versions the memtables hold.
    pub fn entries(&self) -> u64 {
        self.list.with(|list| list.newest_first().iter().map(|memtable| memtable.entries()).sum())
    }

    /// How many memtables there are; at least the mutable one.
    pub fn count(&self) -> usize {
        self.list.with(|list| list.newest_first().len())
    }
}

impl Default for Memtables {
    fn default() -> Memtables {
        Memtables::new()
    }
}

impl fmt::Debug for Memtables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.list.keep();
        f.debug_list().entries(list.newest_first()).finish()
    }
}

/// So many searches are prefetched at once: what they load fits the processor's first cache, and it has no more loads at a time.
pub(crate) const PREFETCHED_MAX: usize = 16;

/// Keys with their hashes.
pub(crate) type PrefetchedKeys<'k> = SmallVec<[(&'k [u8], u64); PREFETCHED_MAX]>;

/// A cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Starts loading the two cache lines of a node.
#[inline]
pub(crate) fn prefetch_two_lines<T>(node: &T) {
    let start = ptr::from_ref(node).cast::<u8>();
    prefetch(start);
    prefetch(start.wrapping_add(LINE_BYTES));
}

/// Starts loading the memory at `address` into the cache; has no other effect.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless, and SSE belongs to every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
