//! A table: memtables over a base, and the range tombstones that hide versions of both.

mod cursor;
mod len_estimate;
mod newest;
mod passed;

#[cfg(all(test, not(feature = "shuttle")))]
mod cases;
#[cfg(test)]
mod map_base;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
#[cfg(all(test, not(feature = "shuttle")))]
mod threads;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_types::sync::{FairMutex, yield_now};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId, hash_key};

pub use cursor::Cursor;
pub use newest::{Newest, Recent};

use crate::LoadFor;
use crate::base::{Base, BaseCursor as _, IndexError, Io, MergeSource, OutOfLineValues, PruneRules};
use crate::memory::{COUNTS_BYTES, TableCharge};
use crate::memtables::{Block, Memtables, RecoveredBatch};
use crate::range_delete::{RangeDeletes, Readers};
use crate::version::{Version, VersionRef};

/// How a table keeps its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Values of at most this many bytes go into leaf entries when they are merged; longer ones stay in the log.
    pub inline_max: usize,
}

/// The CSN and time that a reader's transaction fixed when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPoint {
    /// The reader sees each key's newest version at or below this CSN.
    pub csn: Csn,
    /// Its time, in milliseconds since 1970-01-01 UTC, against which versions expire.
    pub now_ms: u64,
}

/// An ordered map of byte keys to versions.
///
/// A reader passes a CSN up to which every commit is applied. Except in [`Table::get_newest`], it keeps a snapshot
/// registered at that CSN while it reads, so that the versions that it sees are not pruned.
pub struct Table<S: Base> {
    id: TableId,
    options: TableOptions,
    memtables: Memtables,
    range_deletes: Arc<RangeDeletes>,
    base: S,
    /// Held by the thread that merges a memtable, or purges: one at a time does either, in steps.
    merging: FairMutex<()>,
    /// How many versions of the oldest memtable are merged, while a merge goes on. Written by that thread, after it made their leaves
    /// dirty.
    merged_versions: AtomicU64,
    /// Set under that lock.
    merging_has_ended: AtomicBool,
    _charge: TableCharge,
}

/// How many bytes of leaves one step of a merge rebuilds, or a purge looks at: the base is locked for a fraction of a
/// millisecond. Schedules switch threads after each leaf.
const STEP_BYTES: usize = if cfg!(feature = "shuttle") { 1 } else { 64 << 10 };

impl<S: Base> Table<S> {
    /// What it takes beside its base, its memtables, and the ranges that were deleted.
    const BYTES: usize = size_of::<Table<S>>() + size_of::<RangeDeletes>() + 2 * COUNTS_BYTES;

    /// An empty table over `base`.
    pub fn new(id: TableId, base: S, options: TableOptions) -> Table<S> {
        let memory = base.memory();
        Table {
            id,
            options,
            memtables: Memtables::counted_in(memory.clone()),
            range_deletes: Arc::new(RangeDeletes::counted_in(memory.clone())),
            base,
            merging: FairMutex::new(()),
            merged_versions: AtomicU64::new(0),
            merging_has_ended: AtomicBool::new(false),
            _charge: TableCharge::new(&memory, Self::BYTES),
        }
    }

    /// The table's number.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// How it keeps its values.
    pub fn options(&self) -> TableOptions {
        self.options
    }

    /// The table's memtables.
    pub fn memtables(&self) -> &Memtables {
        &self.memtables
    }

    /// The table's base.
    pub fn base(&self) -> &S {
        &self.base
    }

    /// The table's range tombstones.
    pub fn range_deletes(&self) -> &Arc<RangeDeletes> {
        &self.range_deletes
    }

    /// Ends merging and purging: waits for the thread that does either; later calls do nothing. For a table that is
    /// gone.
    pub fn end_merging(&self) {
        let _held = self.merging.lock();
        self.merging_has_ended.store(true, Ordering::Relaxed);
        self.memtables.leave_all();
    }

    /// Whether [`Table::end_merging`] was called.
    pub fn merging_has_ended(&self) -> bool {
        self.merging_has_ended.load(Ordering::Relaxed)
    }

    /// Prunes a range of the base, in steps.
    pub fn purge(&self, range: KeySpan<&[u8]>, rules: &PruneRules) -> Result<(), IndexError> {
        self.purge_while(range, rules, Err, || true).map(|_| ())
    }

    /// The same while it `goes_on`, which it asks after each step; returns the key from which to continue, `None` at the end of the
    /// range. `skips` gets the error of a node that cannot be read: if it returns `Ok`, the purge goes on behind that node.
    pub fn purge_while<E>(
        &self,
        range: KeySpan<&[u8]>,
        rules: &PruneRules,
        mut skips: impl FnMut(IndexError) -> Result<(), E>,
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, E> {
        let _held = self.merging.lock();
        if self.merging_has_ended() {
            return Ok(None);
        }
        let mut start = range.start.to_vec();
        let mut step = |start: &[u8]| {
            let step = KeySpan::new(start, range.end);
            self.base.purge_some(step, rules, STEP_BYTES).or_else(|error| {
                skips(error)?;
                let after = self.unread_at(start).and_then(|unread| unread.end);
                Ok(after.filter(|end| range.ends_after(end)).map(Vec::from))
            })
        };
        while let Some(next) = step(&start)? {
            start = next;
            if !goes_on() {
                return Ok(Some(start));
            }
            self.base.memory().wait_for_room(LoadFor::Merge);
        }
        Ok(None)
    }

    /// The keys of the node that leads to `key` and cannot be read.
    fn unread_at(&self, key: &[u8]) -> Option<KeySpan> {
        let mut cursor = self.base.cursor(Csn::MAX);
        cursor.seek(key).err()?;
        cursor.unread().filter(|unread| unread.contains(key))
    }

    /// The value of `key` that the reader sees: its newest version at or below the CSN, unless that is a tombstone, is
    /// expired, or is hidden by a range tombstone. `hash` is the key's [`fulgurite_types::hash_key`].
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, at: ReadPoint, io: Io) -> Result<Option<Version>, IndexError> {
        let deleted = self.range_deletes.covering(key, at.csn);
        let found = match self.memtables.get(key, hash, at.csn) {
            None => self.base.get(key, at.csn, io)?,
            found => found,
        };
        Ok(found.filter(|version| is_seen(version.borrowed(), deleted, at.now_ms)))
    }

    /// The newest value of `key`, for a single read without a registered snapshot. `memtables_at` is a CSN up to which
    /// everything is applied and may be shown, taken after the read began.
    ///
    /// Linearizable. (1) The memtables have a version at or below `memtables_at`: it is the newest such version, and
    /// the read takes effect at the moment when `memtables_at` was taken. If range tombstones at or below
    /// `memtables_at` were dropped in favour of newer ones since, `memtables_at` moves up to those, and the read takes
    /// effect when readers could see them. (2) They have none: the base is read at [`Csn::MAX`]. Everything in the base
    /// is applied, cannot be undone, and may be shown. If the version found is newer than `memtables_at`, it was merged
    /// after `memtables_at` was taken, so its commit became visible during the read, and the read takes effect at that
    /// moment. A range tombstone newer than `memtables_at` took effect later still, or its effect is seen already.
    ///
    /// A result of `None` is right only if no pruning used a horizon or a time taken after `memtables_at`: it may have
    /// removed the key's version in favour of a newer one that this read does not see. The caller checks that.
    ///
    /// Reading the base at `memtables_at` instead would be wrong: no snapshot protects the versions at `memtables_at`
    /// from pruning. Merging a newer version may remove the one at `memtables_at`, and the read would find neither.
    #[inline]
    pub fn get_newest(
        &self,
        key: &[u8],
        hash: u64,
        memtables_at: Csn,
        now_ms: u64,
        io: Io,
    ) -> Result<Option<Version>, IndexError> {
        let (memtables_at, deleted) = self.range_deletes.covering_at_or_after(key, memtables_at);
        let found = match self.memtables.get(key, hash, memtables_at) {
            None => self.base.get(key, Csn::MAX, io)?,
            found => found,
        };
        Ok(found.filter(|version| is_seen(version.borrowed(), deleted, now_ms)))
    }

    /// The CSN of the newest write to `key` (version, tombstone or range tombstone), if it is newer than `than`.
    ///
    /// Reads the base only if `than` is below [`Memtables::merged`]. A write that was pruned together with everything
    /// that it replaced is not found: for a reader at `than`, whose snapshot is registered, it changed nothing.
    pub fn newest_csn(&self, key: &[u8], hash: u64, than: Csn, io: Io) -> Result<Option<Csn>, IndexError> {
        let deleted = self.range_deletes.newest_covering(key);
        let (recent, merged) = self.memtables.newest_csn_and_merged(key, hash);
        let written = if recent.is_none() && than < merged { self.base.newest_csn(key, io)? } else { recent };
        Ok(written.max(deleted).filter(|&csn| csn > than))
    }

    /// Whether anything in the range was written after `than`. Reads the base only if `than` is below
    /// [`Memtables::merged`].
    pub fn any_newer_in_range(&self, range: KeySpan<&[u8]>, than: Csn, io: Io) -> Result<bool, IndexError> {
        if self.range_deletes.any_newer_in_range(range, than) {
            return Ok(true);
        }
        if !self.memtables.empty_ranges().in_use() {
            return self.any_newer_version(range, than, io);
        }
        // For a reader, a range that was empty at `than` and still is was not written.
        for rest in self.memtables.empty_ranges().outside(range, than) {
            if self.any_newer_version(rest.borrowed(), than, io)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn any_newer_version(&self, range: KeySpan<&[u8]>, than: Csn, io: Io) -> Result<bool, IndexError> {
        self.order_memtables(io)?;
        let (newer, merged) = self.memtables.any_newer_in_range_and_merged(range, than);
        if newer || than >= merged {
            return Ok(newer);
        }
        self.base.any_newer_in_range(range, than, io)
    }

    /// Before a walk over the memtables: fails where that would wait for their order, or make much of it, and may not (INV-IDX-17).
    fn order_memtables(&self, io: Io) -> Result<(), IndexError> {
        if io != Io::MemoryOnly {
            self.memtables.order();
        } else if !self.memtables.try_order() {
            return Err(IndexError::Unordered);
        }
        Ok(())
    }

    /// Makes a commit's versions visible to readers at or above its CSN; see [`Memtables::apply`].
    ///
    /// # Panics
    /// If the commit is at or below [`Memtables::merged`].
    pub fn apply(&self, block: Block, csn: Csn, body_lsn: Lsn) {
        debug_assert_eq!(block.table(), self.id);
        self.memtables.apply(block, csn, body_lsn);
    }

    /// Applies replayed operations; see [`Memtables::apply_recovered`].
    ///
    /// # Panics
    /// If they do not all belong to one memtable.
    pub fn apply_recovered(&self, batch: RecoveredBatch) {
        self.memtables.apply_recovered(batch);
    }

    /// Makes a commit's range delete visible.
    pub fn apply_range_delete(&self, keys: KeySpan<&[u8]>, csn: Csn, readers: &Readers) {
        self.range_deletes.insert(keys, csn, readers);
    }

    /// Freezes the mutable memtable; see [`Memtables::freeze`].
    pub fn freeze(&self, boundary: Csn) -> bool {
        self.memtables.freeze(boundary)
    }

    /// Merges the oldest memtable if it is immutable and its boundary is at or below `rules.horizon`: first merges it
    /// into the base, in steps, then drops it (INV-IDX-1). Returns whether it did. After an error the memtable is still
    /// there, and the merge may be repeated.
    pub fn merge_oldest(&self, rules: &PruneRules) -> Result<bool, IndexError> {
        self.merge_oldest_while(rules, || true)
    }

    /// The same while it `goes_on`, which it asks after each step. If it ends before, the memtable is still there, as after
    /// an error.
    pub fn merge_oldest_while(
        &self,
        rules: &PruneRules,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, IndexError> {
        self.merge_oldest_reporting(rules, &(), goes_on)
    }

    /// The same, which reports after each step the values that it left in the log, while the memtable still has them.
    pub fn merge_oldest_reporting(
        &self,
        rules: &PruneRules,
        values: &impl OutOfLineValues,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, IndexError> {
        let _held = self.merging.lock();
        if self.merging_has_ended() {
            return Ok(false);
        }
        let Some(memtable) = self.memtables.oldest_immutable() else { return Ok(false) };
        if memtable.boundary() > rules.horizon {
            return Ok(false);
        }
        {
            let merged = MergedVersions(&self.merged_versions);
            let mut source = memtable.merge_source(self.options.inline_max);
            while source.peek_key().is_some() {
                self.base.merge_some(&mut source, rules, STEP_BYTES)?;
                merged.0.store(source.taken(), Ordering::Release);
                source.report(values, |key| !self.memtables.newer_contain(key, hash_key(self.id, key)));
                if !goes_on() {
                    return Ok(false);
                }
                self.base.memory().wait_for_room(LoadFor::Merge);
                // Where all processors are busy, a commit whose write has ended gets one now, not at the system's next
                // tick, which may be milliseconds away.
                yield_now();
            }
        }
        self.memtables.drop_oldest(&memtable);
        drop(memtable);
        self.memtables.reclaim();
        Ok(true)
    }

    /// How many versions the memtables hold that are not merged yet; at least so many.
    pub fn unmerged_versions(&self) -> u64 {
        let versions = self.memtables.entries();
        versions.saturating_sub(self.merged_versions.load(Ordering::Acquire))
    }

    /// About the bytes of the oldest memtable that are not merged yet, if it is immutable.
    pub fn unmerged_bytes_of_oldest(&self) -> u64 {
        let Some(oldest) = self.memtables.oldest_immutable() else { return 0 };
        let (bytes, versions) = (oldest.bytes(), oldest.entries().max(1));
        let left = versions.saturating_sub(self.merged_versions.load(Ordering::Relaxed));
        u64::try_from(u128::from(bytes) * u128::from(left) / u128::from(versions)).unwrap_or(bytes)
    }

    /// A cursor over the keys that the reader sees; it is not at an entry yet. The reader's snapshot must stay
    /// registered while the cursor is used.
    pub fn cursor(self: &Arc<Self>, at: ReadPoint) -> Cursor<S> {
        self.cursor_with(at, Io::Allowed)
    }

    /// The same, with [`Io::MemoryOnly`] one that fails with [`IndexError::WouldBlock`] instead of reading from the store.
    pub fn cursor_with(self: &Arc<Self>, at: ReadPoint, io: Io) -> Cursor<S> {
        Cursor::new(self.clone(), at, io)
    }
}

/// Whether a reader sees a value in this version. Older versions are not seen in any case.
#[inline]
fn is_seen(version: VersionRef<'_>, deleted: Option<Csn>, now_ms: u64) -> bool {
    version.is_live_at(now_ms) && deleted.is_none_or(|deleted| version.csn >= deleted)
}

/// While it lives, a merge goes on, and counts what it has merged: the next one begins with the first version again.
struct MergedVersions<'t>(&'t AtomicU64);

impl Drop for MergedVersions<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl<S: Base> fmt::Debug for Table<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("id", &self.id)
            .field("memtables", &self.memtables)
            .finish_non_exhaustive()
    }
}
