//! A table: a delta over a static part, and the range deletes that hide parts of both.

mod cursor;
mod len_estimate;
mod passed;

#[cfg(all(test, not(feature = "shuttle")))]
mod cases;
#[cfg(test)]
mod map_static;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
#[cfg(all(test, not(feature = "shuttle")))]
mod threads;

use std::fmt;
use std::sync::Arc;

use fulgurite_types::{Csn, Lsn, TableId};
use parking_lot::Mutex;

pub use cursor::Cursor;

use crate::delta::{Block, Delta, KeyRange, RecoveredBatch};
use crate::range_delete::{RangeDeletes, Readers};
use crate::static_part::{IndexError, PruneRules, StaticPart, TryError};
use crate::version::{Version, VersionRef};

/// How a table keeps its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Values of at most this many bytes go into leaf entries when they are folded; longer ones stay in the log.
    pub inline_max: usize,
}

/// What a reader's transaction fixed when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPoint {
    /// It sees each key's newest version at or below this.
    pub csn: Csn,
    /// Its time, in milliseconds since 1970-01-01 UTC, against which versions expire.
    pub now_ms: u64,
}

/// An ordered map of byte keys to versions.
///
/// A reader passes a CSN up to which every commit is applied, and, but for [`Table::get_newest`], keeps a snapshot
/// registered at that CSN while it reads, so that the versions it sees are not pruned.
pub struct Table<S: StaticPart> {
    id: TableId,
    options: TableOptions,
    delta: Delta,
    range_deletes: Arc<RangeDeletes>,
    static_part: S,
    /// Held by whoever changes the static part.
    maintenance: Mutex<()>,
}

impl<S: StaticPart> Table<S> {
    /// A table whose delta is empty.
    pub fn new(id: TableId, static_part: S, options: TableOptions) -> Table<S> {
        Table {
            id,
            options,
            delta: Delta::new(),
            range_deletes: Arc::new(RangeDeletes::new()),
            static_part,
            maintenance: Mutex::new(()),
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

    /// The recent part.
    pub fn delta(&self) -> &Delta {
        &self.delta
    }

    /// The part built for disk. Whoever changes it does so in [`Table::with_maintenance`].
    pub fn static_part(&self) -> &S {
        &self.static_part
    }

    /// The range deletes.
    pub fn range_deletes(&self) -> &Arc<RangeDeletes> {
        &self.range_deletes
    }

    /// Runs `work` while nobody else folds, images, evicts or relocates.
    pub fn with_maintenance<R>(&self, work: impl FnOnce(&S) -> R) -> R {
        let _held = self.maintenance.lock();
        work(&self.static_part)
    }

    /// The value of `key` that the reader sees: its newest version at or below the CSN, unless that is a tombstone, is
    /// expired, or is hidden by a range delete. `hash` is the key's [`fulgurite_types::hash_key`].
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, at: ReadPoint) -> Result<Option<Version>, IndexError> {
        let deleted = self.range_deletes.covering(key, at.csn);
        let found = match self.delta.get(key, hash, at.csn) {
            None => self.static_part.get(key, at.csn)?,
            found => found,
        };
        Ok(found.filter(|version| is_seen(version.borrowed(), deleted, at.now_ms)))
    }

    /// Like [`Table::get`], from memory only.
    #[inline]
    pub fn try_get(&self, key: &[u8], hash: u64, at: ReadPoint) -> Result<Option<Version>, TryError> {
        let deleted = self.range_deletes.covering(key, at.csn);
        let found = match self.delta.get(key, hash, at.csn) {
            None => self.static_part.try_get(key, at.csn)?,
            found => found,
        };
        Ok(found.filter(|version| is_seen(version.borrowed(), deleted, at.now_ms)))
    }

    /// The newest value of `key`, for a single read without a registered snapshot. `delta_at` is a CSN up to which
    /// everything is applied and may be shown, taken after the read began.
    ///
    /// Linearizable: the delta is read at `delta_at`, and its hit is the newest version at or below that; so the read
    /// happens at the moment when `delta_at` was taken, or, if range deletes at or below it were forgotten for newer
    /// ones since, at the moment when those could be shown. Without a hit, the static part is read at [`Csn::MAX`]. All
    /// that is there is applied and can never be undone, so it may be shown; if it is newer than `delta_at`, it was
    /// folded after the list of generations was taken, so its commit became visible during the read, and the read
    /// happens at that moment; a range delete newer than `delta_at` comes later still, or its effect is seen already.
    ///
    /// That there is none is the truth only if nothing was pruned by a horizon or a time that were taken after `delta_at`:
    /// what was there may have gone for a newer version that this does not see. The caller finds out.
    ///
    /// Reading the static part at `delta_at` instead would be wrong: no snapshot holds the versions at `delta_at` back
    /// from pruning, so when a newer version is folded the one at `delta_at` may go, and the read would find neither.
    #[inline]
    pub fn get_newest(
        &self,
        key: &[u8],
        hash: u64,
        delta_at: Csn,
        now_ms: u64,
    ) -> Result<Option<Version>, IndexError> {
        let (delta_at, deleted) = self.range_deletes.covering_at_or_after(key, delta_at);
        let found = match self.delta.get(key, hash, delta_at) {
            None => self.static_part.get(key, Csn::MAX)?,
            found => found,
        };
        Ok(found.filter(|version| is_seen(version.borrowed(), deleted, now_ms)))
    }

    /// Like [`Table::get_newest`], from memory only.
    #[inline]
    pub fn try_get_newest(
        &self,
        key: &[u8],
        hash: u64,
        delta_at: Csn,
        now_ms: u64,
    ) -> Result<Option<Version>, TryError> {
        let (delta_at, deleted) = self.range_deletes.covering_at_or_after(key, delta_at);
        let found = match self.delta.get(key, hash, delta_at) {
            None => self.static_part.try_get(key, Csn::MAX)?,
            found => found,
        };
        Ok(found.filter(|version| is_seen(version.borrowed(), deleted, now_ms)))
    }

    /// The CSN of the newest write to `key` (version, tombstone or range delete), if it is newer than `than`.
    ///
    /// Asks the static part only if `than` is below what is folded. A write that was pruned together with everything
    /// that it replaced is not found: for a reader at `than`, whose snapshot is registered, it changed nothing.
    pub fn newest_csn(&self, key: &[u8], hash: u64, than: Csn) -> Result<Option<Csn>, IndexError> {
        match self.newest_recent(key, hash, than) {
            Recent::Found(csn) => Ok(csn),
            Recent::AskStatic(deleted) => {
                let folded = self.static_part.newest_csn(key)?;
                Ok(deleted.max(folded).filter(|&csn| csn > than))
            }
        }
    }

    /// Like [`Table::newest_csn`], from memory only.
    pub fn try_newest_csn(&self, key: &[u8], hash: u64, than: Csn) -> Result<Option<Csn>, TryError> {
        match self.newest_recent(key, hash, than) {
            Recent::Found(csn) => Ok(csn),
            Recent::AskStatic(deleted) => {
                let folded = self.static_part.try_get(key, Csn::MAX)?.map(|version| version.csn);
                Ok(deleted.max(folded).filter(|&csn| csn > than))
            }
        }
    }

    fn newest_recent(&self, key: &[u8], hash: u64, than: Csn) -> Recent {
        let deleted = self.range_deletes.newest_covering(key);
        let (written, folded) = self.delta.newest_csn_and_folded(key, hash);
        if written.is_none() && than < folded {
            return Recent::AskStatic(deleted);
        }
        Recent::Found(written.max(deleted).filter(|&csn| csn > than))
    }

    /// Whether anything in the range was written after `than`.
    pub fn any_newer_in_range(&self, range: KeyRange<'_>, than: Csn) -> Result<bool, IndexError> {
        if self.range_deletes.any_newer_in_range(range, than) {
            return Ok(true);
        }
        if !self.delta.empty_ranges().in_use() {
            return self.any_newer_version(range, than);
        }
        // What was empty and is still was not written, as far as a reader can tell.
        for (start, end) in self.delta.empty_ranges().outside(range, than) {
            let part = (start.as_ref().map(|key| &key[..]), end.as_ref().map(|key| &key[..]));
            if self.any_newer_version(part, than)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn any_newer_version(&self, range: KeyRange<'_>, than: Csn) -> Result<bool, IndexError> {
        let (newer, folded) = self.delta.any_newer_in_range_and_folded(range, than);
        if newer || than >= folded {
            return Ok(newer);
        }
        self.static_part.any_newer_in_range(range, than)
    }

    /// Makes a commit's versions visible to readers at or above its CSN; see [`Delta::apply`].
    ///
    /// # Panics
    /// If the commit is older than what was folded.
    pub fn apply(&self, block: Block, csn: Csn, body_lsn: Lsn) {
        debug_assert_eq!(block.table(), self.id);
        self.delta.apply(block, csn, body_lsn);
    }

    /// Applies replayed operations; see [`Delta::apply_recovered`].
    ///
    /// # Panics
    /// If they do not all belong to one generation.
    pub fn apply_recovered(&self, batch: RecoveredBatch) {
        self.delta.apply_recovered(batch);
    }

    /// Makes a commit's range delete of `[start, end)`, or of everything from `start` on, visible.
    pub fn apply_range_delete(&self, start: &[u8], end: Option<&[u8]>, csn: Csn, readers: &Readers) {
        self.range_deletes.insert(start, end, csn, readers);
    }

    /// Closes the newest generation of the delta; see [`Delta::rotate`].
    pub fn rotate(&self, boundary: Csn) -> bool {
        self.delta.rotate(boundary)
    }

    /// Closes the newest generation of the delta unless it is idle; see [`Delta::rotate_if_written`].
    pub fn rotate_if_written(&self, boundary: Csn, applied: Csn) -> bool {
        self.delta.rotate_if_written(boundary, applied)
    }

    /// Folds the oldest generation if it is closed and its boundary is at or below `rules.horizon`: into the static part
    /// first, out of the delta last (INV-IDX-1). Returns whether it did. After an error the generation is still there,
    /// and the fold may be repeated.
    pub fn fold_oldest(&self, rules: &PruneRules) -> Result<bool, IndexError> {
        let _held = self.maintenance.lock();
        let Some(generation) = self.delta.oldest_closed() else { return Ok(false) };
        if generation.boundary() > rules.horizon {
            return Ok(false);
        }
        if !generation.is_empty() {
            self.static_part.fold(&mut generation.fold_source(self.options.inline_max), rules)?;
        }
        self.delta.drop_oldest(&generation);
        drop(generation);
        self.delta.reclaim();
        Ok(true)
    }

    /// A cursor over what the reader sees, not at an entry yet. The reader's snapshot stays registered while it is used.
    pub fn cursor(self: &Arc<Self>, at: ReadPoint) -> Cursor<S> {
        Cursor::new(self.clone(), at)
    }
}

enum Recent {
    Found(Option<Csn>),
    /// The static part may know more; with the newest covering range delete.
    AskStatic(Option<Csn>),
}

/// Whether a reader sees a value in this version. What is older is not seen in any case.
#[inline]
fn is_seen(version: VersionRef<'_>, deleted: Option<Csn>, now_ms: u64) -> bool {
    version.is_live_at(now_ms) && deleted.is_none_or(|deleted| version.csn >= deleted)
}

impl<S: StaticPart> fmt::Debug for Table<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("id", &self.id).field("delta", &self.delta).finish_non_exhaustive()
    }
}
