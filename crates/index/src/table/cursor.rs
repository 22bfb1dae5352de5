//! The merging cursor over a table's memtables and base.

use std::sync::Arc;

use fulgurite_types::KeySpan;

use super::passed::{Passed, unseen_since};
use super::{ReadPoint, Table, is_seen};
use crate::base::{Base, BaseCursor, IndexError, Io};
use crate::memtables::MemtableCursor;
use crate::range_delete::RangeState;
use crate::version::{Pinned, VersionRef};

/// After how many steps a cursor checks whether the list of memtables was replaced. If so, it seeks again; that also
/// releases tree nodes that were replaced.
const ROWS_PER_LOOK: u32 = 1024;

/// Walks the keys that a reader sees, in both directions, while other threads write and merge.
///
/// After a seek or a step it is at an entry or at the end; a step from the end stays there. After an error it is at the
/// end.
pub struct Cursor<S: Base> {
    table: Arc<Table<S>>,
    at: ReadPoint,
    io: Io,
    /// Sought before `base` (INV-IDX-1). Maintenance may take its list back.
    memtables: MemtableCursor,
    base: S::Cursor,
    /// Taken before `memtables` was sought (INV-IDX-6).
    ranges: RangeState,
    source: Source,
    forward: bool,
    rows_until_look: u32,
    /// Where to seek when the cursor takes a new view: the start of the keys to come or, backward, their end. Kept for
    /// its allocation.
    resume_at: Vec<u8>,
    passed: Passed,
}

/// Which of the two cursors are at the current key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Memtables,
    Base,
    Both,
    End,
}

/// Whether the reader sees the nearest version.
enum Seen {
    Yes,
    /// Nor does any reader at or above this read point, unless the key is written.
    No(ReadPoint),
    /// Range tombstones were removed since the view was taken: it may still have versions that they hid.
    Unknown,
}

impl<S: Base> Cursor<S> {
    pub(super) fn new(table: Arc<Table<S>>, at: ReadPoint, io: Io) -> Cursor<S> {
        let ranges = table.range_deletes.state();
        let memtables = table.memtables.cursor(at.csn);
        let base = table.base.cursor_with(at.csn, io);
        Cursor {
            table,
            at,
            io,
            memtables,
            base,
            ranges,
            source: Source::End,
            forward: true,
            rows_until_look: ROWS_PER_LOOK,
            resume_at: Vec::new(),
            passed: Passed::default(),
        }
    }

    /// Keys beyond these are not asked for: a key there that it comes to may be one that the reader does not see, and it may be at the end
    /// instead. So it need not pass all that was written there since.
    pub fn set_limits(&mut self, limits: Arc<KeySpan>) {
        self.memtables.set_limits(limits.clone());
        self.base.set_limits(limits);
    }

    /// The reader's CSN and time.
    pub fn read_point(&self) -> ReadPoint {
        self.at
    }

    /// Moves to the first key at or after `start`.
    pub fn seek(&mut self, start: &[u8]) -> Result<(), IndexError> {
        self.take_view();
        self.at_end_on_error(|cursor| {
            cursor.seek_both(start)?;
            cursor.find_visible()
        })
    }

    /// Moves to the last key before `end`; `None`: to the last key of all.
    pub fn seek_back(&mut self, end: Option<&[u8]>) -> Result<(), IndexError> {
        self.take_view();
        self.at_end_on_error(|cursor| {
            cursor.seek_both_back(end)?;
            cursor.find_visible()
        })
    }

    /// Moves to the next key.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor that walks both ways and may fail is no iterator"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<(), IndexError> {
        self.step(true)
    }

    /// Moves to the previous key.
    #[inline]
    pub fn prev(&mut self) -> Result<(), IndexError> {
        self.step(false)
    }

    /// Moves to the end, which is after the last key and before the first one.
    pub fn end(&mut self) {
        self.source = Source::End;
    }

    /// The current key; `None` at the end.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        if self.source == Source::Base {
            self.base.key()
        } else if self.source == Source::End {
            None
        } else {
            self.memtables.key()
        }
    }

    /// The current key and version; `None` at the end.
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], VersionRef<'_>)> {
        if self.source == Source::Base {
            self.base.key().map(|key| (key, self.base.version()))
        } else if self.source == Source::End {
            None
        } else {
            self.memtables.key().map(|key| (key, self.memtables.version()))
        }
    }

    /// The current key, pinned.
    ///
    /// # Panics
    /// At the end.
    pub fn pinned_key(&self) -> Pinned {
        match self.source {
            Source::End => panic!("the cursor is at the end"),
            Source::Base => self.base.pinned_key(),
            Source::Memtables | Source::Both => self.memtables.pinned_key(),
        }
    }

    /// The current version.
    ///
    /// # Panics
    /// At the end.
    #[inline]
    pub fn version(&self) -> VersionRef<'_> {
        if self.source == Source::Base {
            self.base.version()
        } else {
            assert!(self.source != Source::End, "the cursor is at the end");
            self.memtables.version()
        }
    }

    /// The current version's payload, pinned.
    ///
    /// # Panics
    /// At the end.
    pub fn pinned_payload(&self) -> Pinned {
        match self.source {
            Source::End => panic!("the cursor is at the end"),
            Source::Base => self.base.pinned_payload(),
            Source::Memtables | Source::Both => self.memtables.pinned_payload(),
        }
    }

    /// After an error: the keys of the node that could not be read. `None` if the last seek or step succeeded.
    pub fn unread(&self) -> Option<KeySpan> {
        self.base.unread()
    }

    /// After an error: continues after the node that could not be read, in the direction of the failed move.
    ///
    /// Entries of the memtables among the unread keys are not skipped: they are newer than the node's. Fails like a
    /// step if the neighbour cannot be read either; then it may be called again.
    pub fn skip_unread(&mut self) -> Result<(), IndexError> {
        // The failed move left the memtables' cursor in the right position: that cursor moves first, and cannot fail.
        self.at_end_on_error(|cursor| {
            cursor.base.skip_unread(cursor.forward)?;
            cursor.passed.restart();
            cursor.find_visible()
        })
    }

    /// Before a seek, which takes the list of memtables (INV-IDX-6).
    fn take_view(&mut self) {
        self.ranges = self.table.range_deletes.state();
        self.passed.restart();
    }

    fn step(&mut self, forward: bool) -> Result<(), IndexError> {
        if self.source == Source::End {
            return Ok(());
        }
        self.at_end_on_error(|cursor| {
            cursor.rows_until_look -= 1;
            let look = cursor.rows_until_look == 0;
            if look {
                cursor.rows_until_look = ROWS_PER_LOOK;
            }
            if forward == cursor.forward && (!look || cursor.table.memtables.is_current(&cursor.memtables)) {
                cursor.step_cursors()?;
            } else {
                cursor.step_by_key(forward)?;
            }
            cursor.find_visible()
        })
    }

    #[inline]
    fn at_end_on_error(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let result = work(self);
        if result.is_err() {
            self.source = Source::End;
        }
        result
    }

    /// Advances the cursors that are at the current key.
    #[inline]
    fn step_cursors(&mut self) -> Result<(), IndexError> {
        if matches!(self.source, Source::Memtables | Source::Both) && self.memtables.step().is_err() {
            return self.step_by_key(self.forward);
        }
        if matches!(self.source, Source::Base | Source::Both) {
            if self.forward { self.base.next()? } else { self.base.prev()? }
        }
        Ok(())
    }

    /// Continues after the current key in the current memtables and base: in the other direction, after the list was
    /// taken back, or when the check in `step` finds a newer list. The base cursor is sought again, too (INV-IDX-1).
    #[cold]
    #[inline(never)]
    fn step_by_key(&mut self, forward: bool) -> Result<(), IndexError> {
        self.save_key(forward);
        self.seek_saved(forward)
    }

    /// The list of memtables first, then the base (INV-IDX-1).
    fn seek_both(&mut self, start: &[u8]) -> Result<(), IndexError> {
        self.forward = true;
        self.table.order_memtables(self.io)?;
        self.table.memtables.seek(&mut self.memtables, start);
        self.base.seek(start)
    }

    /// Like [`Cursor::seek_both`], to the last key before `end`.
    fn seek_both_back(&mut self, end: Option<&[u8]>) -> Result<(), IndexError> {
        self.forward = false;
        self.table.order_memtables(self.io)?;
        self.table.memtables.seek_back(&mut self.memtables, end);
        self.base.seek_back(end)
    }

    /// Saves the current key, or the key after it.
    fn save_key(&mut self, after: bool) {
        let mut saved = std::mem::take(&mut self.resume_at);
        saved.clear();
        saved.extend_from_slice(self.key().expect("the cursor is at an entry"));
        if after {
            saved.push(0);
        }
        self.resume_at = saved;
    }

    /// Seeks both cursors to the first key at or after the saved one or, backward, to the last key before it.
    fn seek_saved(&mut self, forward: bool) -> Result<(), IndexError> {
        let saved = std::mem::take(&mut self.resume_at);
        let result = if forward { self.seek_both(&saved) } else { self.seek_both_back(Some(&saved)) };
        self.resume_at = saved;
        result
    }

    /// From the positions of the two cursors, moves to the first key that the reader sees.
    #[inline]
    fn find_visible(&mut self) -> Result<(), IndexError> {
        loop {
            self.source = self.nearest();
            if self.source == Source::End {
                return Ok(());
            }
            match self.judge() {
                Seen::Yes => {
                    if self.passed.has_begun() {
                        self.record_passed();
                        self.passed.restart();
                    }
                    return Ok(());
                }
                Seen::No(_) if self.is_beyond_limits() => {
                    self.record_passed();
                    self.passed.restart();
                    self.source = Source::End;
                    return Ok(());
                }
                Seen::No(since) => self.pass(since)?,
                Seen::Unknown => self.look_again()?,
            }
        }
    }

    /// Whether the nearest key is none of those that are asked for.
    fn is_beyond_limits(&self) -> bool {
        let (Some(limits), Some(key)) = (self.memtables.limits(), self.key()) else { return false };
        if self.forward { !limits.ends_after(key) } else { limits.starts_after(key) }
    }

    #[inline(always)]
    fn nearest(&self) -> Source {
        if self.memtables.is_at_end() {
            return if self.base.key().is_some() { Source::Base } else { Source::End };
        }
        let (Some(recent), Some(merged)) = (self.memtables.key(), self.base.key()) else {
            return Source::Memtables;
        };
        match recent.cmp(merged) {
            std::cmp::Ordering::Equal => Source::Both,
            order if order.is_lt() == self.forward => Source::Memtables,
            _ => Source::Base,
        }
    }

    #[inline]
    fn judge(&self) -> Seen {
        let version = self.version();
        let state = self.table.range_deletes.state();
        if state == self.ranges && state.is_empty() {
            let live = version.is_live_at(self.at.now_ms);
            return if live { Seen::Yes } else { Seen::No(unseen_since(version, None)) };
        }
        let key = self.key().expect("the cursor is at an entry");
        let deleted = self.table.range_deletes.covering(key, self.at.csn);
        if !is_seen(version, deleted, self.at.now_ms) {
            Seen::No(unseen_since(version, deleted))
        } else if self.ranges.same_removals(self.table.range_deletes.state()) {
            Seen::Yes
        } else {
            Seen::Unknown
        }
    }

    /// Moves past a key that the reader does not see: to the next one, or to the end of a range that is recorded as
    /// empty for this reader (INV-IDX-9).
    #[inline(never)]
    fn pass(&mut self, since: ReadPoint) -> Result<(), IndexError> {
        if self.passed.asks() && self.table.memtables.empty_ranges().in_use() {
            let mut past = std::mem::take(&mut self.resume_at);
            let key = self.key().expect("the cursor is at an entry");
            let found = self.table.memtables.empty_ranges().pass(key, self.at, self.forward, &mut past);
            self.resume_at = past;
            if found {
                self.passed.continue_from(&self.resume_at);
                return self.seek_saved(self.forward);
            }
        }
        let key = match self.source {
            Source::Base => self.base.key(),
            _ => self.memtables.key(),
        };
        let key = key.expect("the cursor is at an entry");
        let is_long = self.passed.add(key, self.forward, since);
        self.step_cursors()?;
        if is_long {
            self.source = self.nearest();
            self.record_passed();
        }
        Ok(())
    }

    /// Records the run of unseen keys that ends before the current key, for later cursors. It ends at the limits, too: what the memtables
    /// have beyond these may have been left out.
    fn record_passed(&mut self) {
        if self.source == Source::End || !self.passed.is_long() {
            return;
        }
        let mut edge = self.key().expect("the cursor is at an entry").to_vec();
        if !self.forward {
            edge.push(0);
        }
        let limit = self
            .memtables
            .limits()
            .and_then(|asked| if self.forward { asked.end.as_deref() } else { Some(&*asked.start) });
        if let Some(limit) = limit
            && (if self.forward { *limit < *edge } else { *limit > *edge })
        {
            edge = limit.to_vec();
        }
        let range = self.passed.take(edge, self.forward);
        // To be certain it would have versions linked.
        if self.table.order_memtables(self.io).is_ok() {
            self.table.memtables.record_empty(range, self.at.csn);
        }
    }

    /// Takes a new view at the current key: range tombstones first, then the list of memtables, then the base
    /// (INV-IDX-6, INV-IDX-1).
    fn look_again(&mut self) -> Result<(), IndexError> {
        self.save_key(!self.forward);
        self.ranges = self.table.range_deletes.state();
        self.seek_saved(self.forward)
    }
}

impl<S: Base> Drop for Cursor<S> {
    fn drop(&mut self) {
        self.table.memtables.leave(&mut self.memtables);
    }
}

impl<S: Base> std::fmt::Debug for Cursor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("at", &self.at).field("source", &self.source).finish_non_exhaustive()
    }
}
