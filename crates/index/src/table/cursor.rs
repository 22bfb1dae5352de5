//! The merged ordered cursor over a table's delta and static part.

use std::ops::Bound;
use std::sync::Arc;

use super::passed::{Passed, unseen_since};
use super::{ReadPoint, Table, is_seen};
use crate::delta::DeltaCursor;
use crate::range_delete::RangeState;
use crate::static_part::{IndexError, KeySpan, StaticCursor, StaticPart};
use crate::version::{Pinned, VersionRef};

/// After how many steps a cursor looks whether generations were dropped meanwhile. It seeks anew then, and lets go of nodes
/// of the tree that were replaced, too.
const ROWS_PER_LOOK: u32 = 1024;

/// Walks the keys that a reader sees, in both directions, while others write and fold.
///
/// After a seek or a step it is at an entry or at the end; a step from the end stays there. After an error it is at the
/// end.
pub struct Cursor<S: StaticPart> {
    table: Arc<Table<S>>,
    at: ReadPoint,
    /// Sought before `static_part` (INV-IDX-1). Maintenance may take its generations back.
    delta: DeltaCursor,
    static_part: S::Cursor,
    /// Taken before `delta` was sought (INV-IDX-6).
    ranges: RangeState,
    place: Place,
    forward: bool,
    rows_until_look: u32,
    /// Where to seek to when the view is taken anew; kept for its memory.
    saved_key: Vec<u8>,
    passed: Passed,
}

/// Which of the two cursors are at the current key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Delta,
    Static,
    Both,
    End,
}

/// What a candidate turned out to be.
enum Seen {
    Yes,
    /// And no reader from there on sees it, unless it is written.
    No(ReadPoint),
    /// Range deletes were removed since the view was taken: what they hid may still be in it.
    Unknown,
}

impl<S: StaticPart> Cursor<S> {
    pub(super) fn new(table: Arc<Table<S>>, at: ReadPoint) -> Cursor<S> {
        let ranges = table.range_deletes.state();
        let delta = table.delta.cursor(at.csn);
        let static_part = table.static_part.cursor(at.csn);
        Cursor {
            table,
            at,
            delta,
            static_part,
            ranges,
            place: Place::End,
            forward: true,
            rows_until_look: ROWS_PER_LOOK,
            saved_key: Vec::new(),
            passed: Passed::default(),
        }
    }

    /// The reader's point.
    pub fn read_point(&self) -> ReadPoint {
        self.at
    }

    /// Moves to the first key at or after (`Included`), or after (`Excluded`), the bound.
    pub fn seek(&mut self, bound: Bound<&[u8]>) -> Result<(), IndexError> {
        self.start(bound, true)
    }

    /// Moves to the last key at or before (`Included`), or before (`Excluded`), the bound.
    pub fn seek_back(&mut self, bound: Bound<&[u8]>) -> Result<(), IndexError> {
        self.start(bound, false)
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

    /// Moves to the end, behind the last key as well as before the first one.
    pub fn end(&mut self) {
        self.place = Place::End;
    }

    /// The current key; `None` at the end.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        if self.place == Place::Static {
            self.static_part.key()
        } else if self.place == Place::End {
            None
        } else {
            self.delta.key()
        }
    }

    /// The current key and version; `None` at the end.
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], VersionRef<'_>)> {
        if self.place == Place::Static {
            self.static_part.key().map(|key| (key, self.static_part.version()))
        } else if self.place == Place::End {
            None
        } else {
            self.delta.key().map(|key| (key, self.delta.version()))
        }
    }

    /// The current key, pinned.
    ///
    /// # Panics
    /// At the end.
    pub fn pinned_key(&self) -> Pinned {
        match self.place {
            Place::End => panic!("the cursor is at the end"),
            Place::Static => self.static_part.pinned_key(),
            Place::Delta | Place::Both => self.delta.pinned_key(),
        }
    }

    /// The current version.
    ///
    /// # Panics
    /// At the end.
    #[inline]
    pub fn version(&self) -> VersionRef<'_> {
        if self.place == Place::Static {
            self.static_part.version()
        } else {
            assert!(self.place != Place::End, "the cursor is at the end");
            self.delta.version()
        }
    }

    /// The current version's payload, pinned.
    ///
    /// # Panics
    /// At the end.
    pub fn pinned_payload(&self) -> Pinned {
        match self.place {
            Place::End => panic!("the cursor is at the end"),
            Place::Static => self.static_part.pinned_payload(),
            Place::Delta | Place::Both => self.delta.pinned_payload(),
        }
    }

    /// After an error: the keys of the node that could not be read. `None` if the last seek or step succeeded.
    pub fn unread(&self) -> Option<KeySpan> {
        self.static_part.unread()
    }

    /// After an error: goes on behind the node that could not be read, in the direction of the move that failed.
    ///
    /// What the delta has of the unread keys is not passed over: it is newer than what the node has of them. Fails like
    /// a step does if the neighbour cannot be read either; then this works again.
    pub fn skip_unread(&mut self) -> Result<(), IndexError> {
        // The failed move left the delta's cursor where it belongs: that one moves first, and cannot fail.
        self.at_end_on_error(|cursor| {
            cursor.static_part.skip_unread(cursor.forward)?;
            cursor.passed.restart();
            cursor.settle()
        })
    }

    fn start(&mut self, bound: Bound<&[u8]>, forward: bool) -> Result<(), IndexError> {
        // Before the list of generations, which seeking takes (INV-IDX-6).
        self.ranges = self.table.range_deletes.state();
        self.passed.restart();
        self.at_end_on_error(|cursor| {
            cursor.seek_both(bound, forward)?;
            cursor.settle()
        })
    }

    fn step(&mut self, forward: bool) -> Result<(), IndexError> {
        if self.place == Place::End {
            return Ok(());
        }
        self.at_end_on_error(|cursor| {
            cursor.rows_until_look -= 1;
            let look = cursor.rows_until_look == 0;
            if look {
                cursor.rows_until_look = ROWS_PER_LOOK;
            }
            if forward == cursor.forward && (!look || cursor.table.delta.is_current(&cursor.delta)) {
                cursor.step_cursors()?;
            } else {
                cursor.step_by_key(forward)?;
            }
            cursor.settle()
        })
    }

    #[inline]
    fn at_end_on_error(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let result = work(self);
        if result.is_err() {
            self.place = Place::End;
        }
        result
    }

    /// Moves those cursors on that are at the current key.
    #[inline]
    fn step_cursors(&mut self) -> Result<(), IndexError> {
        if matches!(self.place, Place::Delta | Place::Both) && self.delta.step().is_err() {
            return self.step_by_key(self.forward);
        }
        if matches!(self.place, Place::Static | Place::Both) {
            if self.forward { self.static_part.next()? } else { self.static_part.prev()? }
        }
        Ok(())
    }

    /// Goes on behind the current key, in what delta and static part are now: the other way, or because the generations
    /// in which the delta's cursor was were folded, and then the static cursor does not go on from where it is either
    /// (INV-IDX-1).
    #[cold]
    #[inline(never)]
    fn step_by_key(&mut self, forward: bool) -> Result<(), IndexError> {
        self.save_key();
        self.seek_saved(forward, Bound::Excluded(()))
    }

    /// The list of generations first, then the static part (INV-IDX-1).
    fn seek_both(&mut self, bound: Bound<&[u8]>, forward: bool) -> Result<(), IndexError> {
        self.forward = forward;
        if forward {
            self.table.delta.seek(&mut self.delta, bound);
            self.static_part.seek(bound)
        } else {
            self.table.delta.seek_back(&mut self.delta, bound);
            self.static_part.seek_back(bound)
        }
    }

    fn save_key(&mut self) {
        let mut saved = std::mem::take(&mut self.saved_key);
        saved.clear();
        saved.extend_from_slice(self.key().expect("the cursor is at an entry"));
        self.saved_key = saved;
    }

    /// Seeks both cursors to the saved key.
    fn seek_saved(&mut self, forward: bool, bound: Bound<()>) -> Result<(), IndexError> {
        let saved = std::mem::take(&mut self.saved_key);
        let result = self.seek_both(bound.map(|()| &*saved), forward);
        self.saved_key = saved;
        result
    }

    /// From where the two cursors are, goes on to the first key that the reader sees.
    #[inline]
    fn settle(&mut self) -> Result<(), IndexError> {
        loop {
            self.place = self.nearest();
            if self.place == Place::End {
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
                Seen::No(since) => self.pass(since)?,
                Seen::Unknown => self.look_again()?,
            }
        }
    }

    #[inline(always)]
    fn nearest(&self) -> Place {
        if self.delta.is_at_end() {
            return if self.static_part.key().is_some() { Place::Static } else { Place::End };
        }
        let (Some(recent), Some(folded)) = (self.delta.key(), self.static_part.key()) else {
            return Place::Delta;
        };
        match recent.cmp(folded) {
            std::cmp::Ordering::Equal => Place::Both,
            order if order.is_lt() == self.forward => Place::Delta,
            _ => Place::Static,
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

    /// Moves on from a key that the reader does not see: to the next one, or past a range that is known to be empty for
    /// this reader (INV-IDX-9).
    #[inline(never)]
    fn pass(&mut self, since: ReadPoint) -> Result<(), IndexError> {
        if self.passed.asks() && self.table.delta.empty_ranges().in_use() {
            let mut place = std::mem::take(&mut self.saved_key);
            let key = self.key().expect("the cursor is at an entry");
            let found = self.table.delta.empty_ranges().pass(key, self.at, self.forward, &mut place);
            self.saved_key = place;
            if found {
                self.passed.continue_from(&self.saved_key);
                let bound = if self.forward { Bound::Included(()) } else { Bound::Excluded(()) };
                return self.seek_saved(self.forward, bound);
            }
        }
        let key = match self.place {
            Place::Static => self.static_part.key(),
            _ => self.delta.key(),
        };
        let key = key.expect("the cursor is at an entry");
        let is_part = self.passed.add(key, self.forward, since);
        self.step_cursors()?;
        if is_part {
            self.place = self.nearest();
            self.record_passed();
        }
        Ok(())
    }

    /// Records the run that the current key ends or interrupts, for later cursors.
    fn record_passed(&mut self) {
        let key = match self.place {
            Place::End => return,
            Place::Static => self.static_part.key(),
            Place::Delta | Place::Both => self.delta.key(),
        };
        let key = key.expect("the cursor is at an entry");
        if let Some(range) = self.passed.take(key, self.forward) {
            self.table.delta.record_empty(range, self.at.csn);
        }
    }

    /// Takes the view anew, at the key where the cursor is: range deletes first, then the list of generations, then the
    /// static part (INV-IDX-6, INV-IDX-1).
    fn look_again(&mut self) -> Result<(), IndexError> {
        self.save_key();
        self.ranges = self.table.range_deletes.state();
        self.seek_saved(self.forward, Bound::Included(()))
    }
}

impl<S: StaticPart> Drop for Cursor<S> {
    fn drop(&mut self) {
        self.table.delta.leave(&mut self.delta);
    }
}

impl<S: StaticPart> std::fmt::Debug for Cursor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("at", &self.at).field("place", &self.place).finish_non_exhaustive()
    }
}
