//! The recent part of a table: every commit, and every replayed one, applies here and nowhere else.
//!
//! A table has a short list of *memtables*, each with the versions of one CSN interval in a concurrent ordered map
//! that only grows. The merger takes the oldest memtable into the base as a whole and then drops it as a
//! whole, so that no entry is ever removed singly and readers need no protection but for the list.
//!
//! Invariants:
//!
//! - **INV-IDX-1** *(list first, base second)*: a reader takes the memtable list before it looks at the base,
//!   and the merger drops a memtable only after the base has all its versions. So a version is found
//!   in one of them, or in both. A cursor that has made its base cursor goes by the list that it took before: up to
//!   the last entry that it was lent from it, also when maintenance has taken the list back meanwhile (INV-IDX-10,
//!   `lent.rs`).
//! - **INV-IDX-2** *(one memtable for a commit)*: memtables cover disjoint, adjacent CSN intervals
//!   `(start, boundary]`, newest first, and a version lies in the memtable whose interval holds its CSN. So the first
//!   memtable with a version at or below a CSN has the newest one.
//! - **INV-IDX-3** *(immutable means complete)*: no commit above a boundary has a number before `freeze` with that boundary
//!   has returned, and a memtable is merged only when every commit up to its boundary is applied and none of them can
//!   be undone. So what is merged is complete, and nothing arrives in a dropped memtable.
//! - **INV-IDX-4** *(nodes stay)*: a node is written before it is linked, afterwards only its links change; its block
//!   lives as long as its memtable and as any version read from it.
//! - **INV-IDX-5** *(lower links first)*: a node is linked level by level from below, each link by compare-and-exchange
//!   against the successor that it was given. So level 0 is always complete and sorted, and each level is a part of the
//!   one below it.
//! - **INV-IDX-6** *(range deletes first)*: a reader asks the range deletes before it takes the memtable list, or
//!   checks afterwards that none was removed meanwhile; one is removed only when nothing that it hides is left in memtables
//!   and base. So a reader never sees what a range delete at or below its CSN hides.
//! - **INV-IDX-7** *(no false negatives)*: a version's filter bits are set before it is linked.
//! - **INV-IDX-9** *(empty means empty)*: no reader at or above the CSN of a range that is recorded as empty sees a key
//!   in it; see `empty_ranges.rs`.
//! - **INV-IDX-10** *(what is lent stays)*: see `lent.rs`.
//! - **INV-IDX-8** *(each reader's newest)*: a range delete that covers a key may be dropped for a newer one only if no
//!   snapshot, and no read that begins later, lies in [its CSN, the newer one's), and neither does the boundary of a
//!   checkpoint that is not complete: what is newer than that may be lost in a crash, and what the older one hides would
//!   come back. A read without a snapshot that began before moves up to the newer one's CSN, which could be shown when
//!   the older one went.

mod block;
mod cursor;
mod empty_ranges;
mod filter;
mod lent;
mod list;
mod memtable;
mod merge_source;
mod node;
mod recovered;
mod sample;
mod skip_list;
mod sync;

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crossbeam_epoch as epoch;
use fulgurite_types::{Csn, Lsn};
use parking_lot::Mutex;

pub use block::{Block, BlockBuilder, BlockOp, BlockRef};
pub use cursor::{MemtableCursor, TakenBack};
pub use memtable::Memtable;
pub use merge_source::MemtableSource;
pub use recovered::{RecoveredBatch, RecoveredBuilder, RecoveredOp};

use crate::version::Version;
pub(crate) use empty_ranges::{EmptyRange, EmptyRanges};
use lent::Slots;
use list::{ListCell, MemtableList};

/// Keys between two bounds.
pub type KeyRange<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// The recent, multi-version part of a table.
pub struct Memtables {
    list: ListCell,
    /// Dropped memtables that a reader may still look into, freed by whoever maintains the table, so that no reader
    /// frees a million blocks. Guards replacing the list, too.
    retired: Mutex<Vec<Arc<Memtable>>>,
    empty_ranges: EmptyRanges,
    /// What its cursors hold.
    slots: Slots,
}

impl Memtables {
    /// One empty, mutable memtable.
    pub fn new() -> Memtables {
        Memtables::with_capacity(0)
    }

    /// Like [`Memtables::new`], with a filter for about `entries` versions from the start.
    pub fn with_capacity(entries: u64) -> Memtables {
        let first = Arc::new(Memtable::new(Csn::ZERO, entries));
        Memtables {
            list: ListCell::new(MemtableList::new(vec![first])),
            retired: Mutex::new(Vec::new()),
            empty_ranges: EmptyRanges::default(),
            slots: Slots::default(),
        }
    }

    /// Makes a commit's versions visible to readers at or above its CSN. Neither allocates (but for a larger filter,
    /// and without memory for that it goes on) nor fails; several threads may apply at once, in any order.
    ///
    /// # Panics
    /// If the commit is older than what was merged (INV-IDX-3).
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

    /// Freezes the mutable memtable at `boundary` and begins another. No commit above `boundary` may get its number
    /// before this has returned; commits at or below it may still be applied, and go where they belong (INV-IDX-3).
    ///
    /// Always freezes, even if the memtable is empty, because a commit at or below `boundary` may be on its way to
    /// it; false only if the newest memtable already starts at or above `boundary`. An idle table is left alone with
    /// [`Memtables::freeze_if_written`].
    pub fn freeze(&self, boundary: Csn) -> bool {
        let retired = self.retired.lock();
        let list = self.list.keep();
        let newest = list.newest();
        if boundary <= newest.start() {
            return false;
        }
        newest.close(boundary);
        let opened = Arc::new(Memtable::new(boundary, newest.entries()));
        let memtables = std::iter::once(opened).chain(list.newest_first().iter().cloned()).collect();
        self.list.replace(MemtableList::new(memtables));
        drop(retired);
        true
    }

    /// Like [`Memtables::freeze`], but does nothing and returns false if the newest memtable is empty and nothing can
    /// arrive in it any more: `applied`, read before this call, is a CSN up to which all commits are applied, and
    /// reaches `boundary`. Then everything up to `boundary` is in immutable memtables and the base already.
    pub fn freeze_if_written(&self, boundary: Csn, applied: Csn) -> bool {
        let idle = applied >= boundary && self.list.with(|list| list.newest().is_empty());
        !idle && self.freeze(boundary)
    }

    /// The newest version of `key` at or below `at`, tombstones and expired versions included.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, at: Csn) -> Option<Version> {
        self.list.with(|list| list.find(key, hash, at).map(|node| node.version()))
    }

    /// The CSN of the newest version of `key`.
    pub fn newest_csn(&self, key: &[u8], hash: u64) -> Option<Csn> {
        self.newest_csn_and_merged(key, hash).0
    }

    /// The CSN of the newest version of `key`, and what was merged when that was looked up.
    pub fn newest_csn_and_merged(&self, key: &[u8], hash: u64) -> (Option<Csn>, Csn) {
        self.list.with(|list| (list.find(key, hash, Csn::MAX).map(|node| node.csn()), list.merged()))
    }

    /// Whether a version in the range is newer than `than`.
    pub fn any_newer_in_range(&self, range: KeyRange<'_>, than: Csn) -> bool {
        self.any_newer_in_range_and_merged(range, than).0
    }

    /// Whether a version in the range is newer than `than`, and what was merged when that was looked up.
    pub fn any_newer_in_range_and_merged(&self, range: KeyRange<'_>, than: Csn) -> (bool, Csn) {
        self.list.with(|list| {
            let mut recent = list.newest_first().iter().filter(|memtable| than < memtable.boundary());
            (recent.any(|memtable| cursor::any_newer(memtable, range, than)), list.merged())
        })
    }

    /// The ranges that are known to be empty.
    pub(crate) fn empty_ranges(&self) -> &EmptyRanges {
        &self.empty_ranges
    }

    /// Records that a range is empty, of which a reader at `at` has seen that it is for itself: unless it was written
    /// after `at` (INV-IDX-9).
    pub(crate) fn record_empty(&self, range: EmptyRange, at: Csn) {
        let (start, end) = (range.start.clone(), range.end.clone());
        if !self.empty_ranges.announce(range) {
            return;
        }
        let keys = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        // Kept, and not pinned: the look may take a while.
        let list = self.list.keep();
        let mut recent = list.newest_first().iter().filter(|memtable| at < memtable.boundary());
        let is_written =
            at < list.merged() || recent.any(|memtable| cursor::any_newer_value(memtable, keys, at));
        self.empty_ranges.finish(is_written);
    }

    /// Everything at or below is in the base only.
    pub fn merged(&self) -> Csn {
        self.list.with(MemtableList::merged)
    }

    /// The oldest memtable, if it is immutable: what is to be merged next.
    pub fn oldest_immutable(&self) -> Option<Arc<Memtable>> {
        self.list.with(|list| {
            let closed = list.newest_first().len() > 1;
            closed.then(|| list.oldest().clone())
        })
    }

    /// Drops the oldest memtable, which the base has taken over (INV-IDX-1, INV-IDX-3).
    ///
    /// # Panics
    /// If `memtable` is not the oldest, or still mutable.
    pub fn drop_oldest(&self, memtable: &Arc<Memtable>) {
        let mut retired = self.retired.lock();
        let list = self.list.keep();
        let (kept, oldest) = list.newest_first().split_at(list.newest_first().len() - 1);
        assert!(
            !kept.is_empty() && Arc::ptr_eq(&oldest[0], memtable),
            "only the oldest immutable one is dropped"
        );
        retired.push(memtable.clone());
        self.list.replace(MemtableList::new(kept.to_vec()));
    }

    /// Takes dropped memtables from cursors and frees those into which nobody looks any more; returns how many bytes
    /// are still held. Maintenance calls it now and then; [`crate::table::Table::merge_oldest`] does.
    pub fn reclaim(&self) -> u64 {
        self.slots.take_back(self.merged());
        for _ in 0..3 {
            epoch::pin().flush();
        }
        let retired: Vec<_> = std::mem::take(&mut *self.retired.lock());
        // Nobody but `retired` can make a new reference to a memtable that is in no list, so a count of one is final.
        let (unused, used): (Vec<_>, Vec<_>) =
            retired.into_iter().partition(|memtable| Arc::strong_count(memtable) == 1);
        let held = used.iter().map(|memtable| memtable.bytes()).sum();
        self.retired.lock().extend(used);
        drop(unused);
        held
    }

    /// A cursor that sees each key's newest version at or below `at`, at the end until it is sought.
    pub fn cursor(&self, at: Csn) -> MemtableCursor {
        MemtableCursor::new(self.slots.take(), at)
    }

    /// Moves a cursor over these memtables to the first key at or after (`Included`), or after (`Excluded`), the bound, in the
    /// current memtables.
    #[inline]
    pub fn seek(&self, cursor: &mut MemtableCursor, bound: Bound<&[u8]>) {
        cursor.seek(&self.list, bound);
    }

    /// Moves a cursor over these memtables to the last key at or before (`Included`), or before (`Excluded`), the bound, in the
    /// current memtables.
    #[inline]
    pub fn seek_back(&self, cursor: &mut MemtableCursor, bound: Bound<&[u8]>) {
        cursor.seek_back(&self.list, bound);
    }

    /// Leaves what a cursor over these memtables used to a later one. A cursor that is only dropped costs the next one more.
    #[inline]
    pub(crate) fn leave(&self, cursor: &mut MemtableCursor) {
        if let Some(slot) = cursor.take_slot() {
            self.slots.leave(slot);
        }
    }

    /// Whether a cursor was sought in the current memtables. May be wrong about one from which they were taken back.
    #[inline]
    pub(crate) fn is_current(&self, cursor: &MemtableCursor) -> bool {
        cursor.was_sought_in(self.list.as_ptr())
    }

    /// How many bytes of memory its memtables take, without those dropped.
    pub fn bytes(&self) -> u64 {
        self.list.with(|list| list.newest_first().iter().map(|memtable| memtable.bytes()).sum())
    }

    /// How many bytes of memory the mutable memtable takes.
    pub fn newest_bytes(&self) -> u64 {
        self.list.with(|list| list.newest().bytes())
    }

    /// How many versions its memtables hold.
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

/// Starts loading what is at `place` into the cache; changes nothing else.
#[inline]
fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless, and SSE belongs to every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
