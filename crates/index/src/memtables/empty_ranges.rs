//! Key ranges in which readers see no key, so that a cursor passes a run of deleted keys in one step.
//!
//! A queue leaves a tombstone for each key that was taken, until a memtable is merged, and longer while a snapshot is
//! open. A scan of its head would step over all of them, each time. So a cursor that has stepped over many keys that
//! its reader does not see records their range, and later cursors skip to its end.
//!
//! - **INV-IDX-9** *(empty means empty)*: no reader at or above a recorded range's `since` sees a key in it. A commit
//!   that writes a key there cuts the range after its block is among those to be linked, and before it counts as applied, hence before
//!   any reader at or above its CSN begins.
//!
//! A range that is empty for a reader stays empty at that reader's CSN. For later readers, the recorder must detect
//! every write above its CSN. It announces the range, then takes the list of memtables, has their versions linked, and reads
//! those in the range. Let W be a commit that writes a key there. W adds its block, executes a fence, and loads `in_use`; the
//! recorder stores `in_use`, executes a fence, and loads the list and the nodes. (1) W's load sees the announcement: W
//! marks the recording as written, or cuts the range if it is recorded by then. (2) It does not: then W's fence
//! precedes the recorder's, so the recorder's loads see W's links. It finds W's node, or W's memtable is already
//! merged, and the list says that more than the recorder's CSN is merged: nothing is recorded.
//!
//! A tombstone cuts nothing: an empty range stays empty. Only a write cuts a range, and a range is dropped only because
//! there are too many.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use fulgurite_types::{Csn, KeySpan, key_after};
use parking_lot::Mutex;

use crate::table::ReadPoint;

/// A look-up among more ranges than this is not worth its time.
const RANGES_MAX: usize = 256;

/// A range of keys that a cursor passed, and the readers for which it is empty.
#[derive(Debug)]
pub(crate) struct EmptyRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key after it.
    pub end: Vec<u8>,
    /// It is empty for readers with at least this CSN, and, if keys in it have expired, at least this time.
    pub since: ReadPoint,
    /// About how many unseen keys are in it.
    pub keys: u64,
}

impl EmptyRange {
    pub fn span(&self) -> KeySpan<&[u8]> {
        KeySpan::new(&self.start, Some(&self.end))
    }
}

struct Ending {
    end: Box<[u8]>,
    since: ReadPoint,
    keys: u64,
}

impl Ending {
    fn is_empty_for(&self, at: ReadPoint) -> bool {
        self.since.csn <= at.csn && self.since.now_ms <= at.now_ms
    }
}

#[derive(Default)]
struct Inner {
    /// Disjoint, by their first key.
    ranges: BTreeMap<Box<[u8]>, Ending>,
    /// The announced range, and whether a commit has written in it since.
    recording: Option<(EmptyRange, bool)>,
}

/// The recorded empty ranges of a table.
#[derive(Default)]
pub(crate) struct EmptyRanges {
    /// Whether a range is recorded or announced.
    in_use: AtomicBool,
    inner: Mutex<Inner>,
}

impl EmptyRanges {
    /// Whether a range is recorded or announced.
    #[inline]
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// Sets `past` to the end of the empty ranges around `key` that touch each other: forward, the first key after
    /// them; backward, the first key of the last of them. Returns false if `key` is in no range that is empty for the
    /// reader.
    pub fn pass(&self, key: &[u8], at: ReadPoint, forward: bool, past: &mut Vec<u8>) -> bool {
        let inner = self.inner.lock();
        let Some((start, ending)) = inner.around(key).filter(|(_, ending)| ending.is_empty_for(at)) else {
            return false;
        };
        let mut reached: &[u8] = if forward { &ending.end } else { start };
        if forward {
            while let Some(next) = inner.ranges.get(reached).filter(|next| next.is_empty_for(at)) {
                reached = &next.end;
            }
        } else {
            let before = inner.ranges.range::<[u8], _>(KeySpan::before(reached)).rev();
            for (start, _) in before.take_while({
                let mut reached = reached;
                move |(start, ending)| {
                    let touches = *ending.end == *reached && ending.is_empty_for(at);
                    reached = start;
                    touches
                }
            }) {
                reached = start;
            }
        }
        past.clear();
        past.extend_from_slice(reached);
        true
    }

    /// What a range has outside the recorded ranges that are empty for a reader at `csn`, at any time.
    pub fn outside(&self, range: KeySpan<&[u8]>, csn: Csn) -> Vec<KeySpan> {
        let at = ReadPoint { csn, now_ms: 0 };
        let mut outside = Vec::new();
        let mut rest = Some(range).filter(|range| !range.is_empty());
        let inner = self.inner.lock();
        if rest.is_some() {
            let start = inner.around(range.start).map_or(range.start, |(start, _)| start);
            let recorded = inner.ranges.range::<[u8], _>(KeySpan::new(start, range.end));
            for (start, ending) in recorded.filter(|(_, ending)| ending.is_empty_for(at)) {
                let Some(span) = rest else { break };
                let [before, after] = span.without(KeySpan::new(start, Some(&ending.end)));
                outside.extend(before.map(KeySpan::owned));
                rest = after;
            }
        }
        outside.extend(rest.map(KeySpan::owned));
        outside
    }

    /// Announces a range to be recorded; false if another one is announced, or if it overlaps a recorded one. The
    /// caller then checks whether it was written, and calls [`EmptyRanges::finish`].
    pub fn announce(&self, range: EmptyRange) -> bool {
        let mut inner = self.inner.lock();
        if inner.recording.is_some() || range.start >= range.end || inner.meets(&range) {
            return false;
        }
        inner.recording = Some((range, false));
        self.in_use.store(true, Ordering::Release);
        drop(inner);
        fence(Ordering::SeqCst);
        true
    }

    /// Records the announced range, unless `is_written` or a commit has reported a write in it.
    pub fn finish(&self, is_written: bool) {
        let mut inner = self.inner.lock();
        let (range, written_meanwhile) = inner.recording.take().expect("a range was announced");
        if !is_written && !written_meanwhile {
            inner.insert(range);
        }
        self.in_use.store(!inner.ranges.is_empty(), Ordering::Release);
    }

    /// Whether a commit must report the keys that it has written. Called after they are among those to be linked.
    #[inline]
    pub fn asks_for_writes(&self) -> bool {
        fence(Ordering::SeqCst);
        self.in_use()
    }

    /// Reports keys that a commit wrote and did not delete.
    pub fn written<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut inner = self.inner.lock();
        for key in keys {
            if let Some((range, is_written)) = &mut inner.recording {
                *is_written |= range.span().contains(key);
            }
            inner.cut(key);
        }
        self.in_use.store(inner.recording.is_some() || !inner.ranges.is_empty(), Ordering::Release);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.inner.lock().ranges.len()
    }
}

impl Inner {
    /// The range that contains `key`.
    fn around(&self, key: &[u8]) -> Option<(&[u8], &Ending)> {
        let before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        before.filter(|(_, ending)| *key < *ending.end).map(|(start, ending)| (&**start, ending))
    }

    fn meets(&self, range: &EmptyRange) -> bool {
        let before = self.ranges.range::<[u8], _>(KeySpan::before(&range.end)).next_back();
        before.is_some_and(|(_, ending)| *range.start < *ending.end)
    }

    /// Joins the range with adjacent ones that have no more keys than it. So there are few ranges, and the largest keep
    /// their `since`, which lets older readers use them.
    fn insert(&mut self, range: EmptyRange) {
        let EmptyRange { start, end, since, keys } = range;
        let (mut start, mut own) = (start.into_boxed_slice(), Ending { end: end.into(), since, keys });
        loop {
            let before = self.ranges.range::<[u8], _>(KeySpan::before(&start)).next_back();
            let joins = |other: &Ending, keys: u64| other.keys <= keys;
            if let Some((key, ending)) = before
                && ending.end == start
                && joins(ending, own.keys)
            {
                let key = key.clone();
                let ending = self.ranges.remove(&key).expect("it was just found");
                own.join(&ending);
                start = key;
                continue;
            }
            match self.ranges.get(&own.end) {
                Some(after) if joins(after, own.keys) => {
                    let after = self.ranges.remove(&own.end).expect("it was just found");
                    own.join(&after);
                    own.end = after.end;
                }
                _ => break,
            }
        }
        if self.ranges.len() >= RANGES_MAX {
            let smallest = self.ranges.iter().min_by_key(|(_, ending)| ending.keys);
            let smallest = smallest.map(|(start, _)| start.clone());
            smallest.and_then(|smallest| self.ranges.remove(&smallest));
        }
        self.ranges.insert(start, own);
    }

    /// A key was written: its range becomes two, or none if there would be too many.
    fn cut(&mut self, key: &[u8]) {
        let Some((start, _)) = self.around(key) else { return };
        let start: Box<[u8]> = start.into();
        let Ending { end, since, keys } = self.ranges.remove(&start).expect("it was just found");
        if self.ranges.len() + 2 > RANGES_MAX {
            return;
        }
        let after = key_after(key);
        let keys = keys.div_ceil(2);
        if after < end {
            self.ranges.insert(after, Ending { end, since, keys });
        }
        if *start < *key {
            self.ranges.insert(start, Ending { end: key.into(), since, keys });
        }
    }
}

impl Ending {
    fn join(&mut self, other: &Ending) {
        self.keys += other.keys;
        self.since.csn = self.since.csn.max(other.since.csn);
        self.since.now_ms = self.since.now_ms.max(other.since.now_ms);
    }
}

#[cfg(test)]
#[path = "empty_ranges_tests.rs"]
mod tests;
