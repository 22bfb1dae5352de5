//! The range deletes of a table: always resident, versioned like everything else.
//!
//! The key space is cut at the ends of the ranges into fragments; each fragment has the CSNs of the deletes that cover
//! it, newest first. A range delete hides versions with a smaller CSN; at an equal CSN the operation on the key wins.
//!
//! A fragment keeps only the CSNs that readers can tell apart ([`Readers`]), and neighbours with equal CSNs are one
//! fragment. So what a table holds grows with the ranges that were written in different places and with the open
//! snapshots, and not with the deletes: a queue that deletes `..k` with rising `k` has a handful of fragments.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_types::Csn;
use parking_lot::RwLock;

type Key = Arc<[u8]>;

/// A range of keys that were deleted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeDelete {
    /// Which commit deleted it.
    pub csn: Csn,
    /// The first key that it covers.
    pub start: Key,
    /// The first key behind it; `None`: it covers everything from `start` on.
    pub end: Option<Key>,
}

/// At which CSNs a table is, or will be, read. It stays right as time goes by: later readers are at or above `from`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// No read begins below it. Was read before `snapshots` (INV-TXN-1).
    pub from: Csn,
    /// The CSNs of open snapshots, ascending.
    pub snapshots: Vec<Csn>,
}

impl Readers {
    /// While a database is opened, nothing is read before everything is replayed.
    pub const NONE_YET: Readers = Readers { from: Csn::MAX, snapshots: Vec::new() };

    fn any_in(&self, first: Csn, behind: Csn) -> bool {
        let next = self.snapshots.partition_point(|snapshot| *snapshot < first);
        behind > self.from || self.snapshots.get(next).is_some_and(|snapshot| *snapshot < behind)
    }
}

/// The CSNs that cover a fragment, newest first; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Covering(Vec<Csn>);

impl Covering {
    fn newest(&self) -> Csn {
        self.0[0]
    }

    fn newest_at(&self, at: Csn) -> Option<Csn> {
        self.0.iter().copied().find(|csn| *csn <= at)
    }

    /// Enters `csn` in its place: at the front but for the few commits that were applied before an older one.
    fn add(&mut self, csn: Csn) {
        let place = self.0.partition_point(|covering| *covering > csn);
        if self.0.get(place) != Some(&csn) {
            self.0.insert(place, csn);
        }
    }

    /// Drops each CSN whose place a newer one takes for every reader, and for `kept_at`; returns the newest one that
    /// took another's place.
    fn compact(&mut self, readers: &Readers, kept_at: Csn) -> Option<Csn> {
        let mut newer = None;
        let mut took = None;
        self.0.retain(|&csn| {
            let Some(next) = newer.replace(csn) else { return true };
            let needed = readers.any_in(csn, next) || (csn <= kept_at && kept_at < next);
            if !needed {
                took = took.max(Some(next));
            }
            needed
        });
        took
    }
}

struct Fragment {
    /// `None`: up to the end of the key space.
    end: Option<Key>,
    covering: Covering,
}

#[derive(Default)]
struct Ranges {
    /// Disjoint, by their first key.
    fragments: BTreeMap<Key, Fragment>,
    /// What is the newest at or below it stays.
    kept_at: Csn,
    /// Below it a CSN may have been dropped that a reader without a snapshot would have needed; everything up to it was
    /// applied, and could be shown, before.
    compacted_to: Csn,
}

/// The range deletes of a table.
#[derive(Default)]
pub struct RangeDeletes {
    ranges: RwLock<Ranges>,
    /// Bit 0: there are some. The bits above count removals, and are raised before anything is removed.
    state: AtomicU64,
}

/// Whether there were range deletes, and how often some had been removed, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RangeState(u64);

impl RangeState {
    pub(crate) fn is_empty(self) -> bool {
        self.0 & 1 == 0
    }

    pub(crate) fn same_removals(self, other: RangeState) -> bool {
        self.0 >> 1 == other.0 >> 1
    }
}

/// So many fragments are edited before readers are let in between.
const FRAGMENTS_PER_HOLD: usize = 256;

impl RangeDeletes {
    /// None.
    pub fn new() -> RangeDeletes {
        RangeDeletes::default()
    }

    /// Whether there are none: one load.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.state().is_empty()
    }

    #[inline]
    pub(crate) fn state(&self) -> RangeState {
        RangeState(self.state.load(Ordering::Acquire))
    }

    /// Adds the range delete of `[start, end)`, and drops older ones in that range that no reader can tell from it or
    /// from each other. A range without keys is left out.
    ///
    /// Costs O(log n) for each fragment that it meets, most of which it joins.
    pub fn insert(&self, start: &[u8], end: Option<&[u8]>, csn: Csn, readers: &Readers) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let range = RangeDelete { csn, start: start.into(), end: end.map(Key::from) };
        let mut ranges = self.ranges.write();
        ranges.cover(&range, readers);
        self.state.fetch_or(1, Ordering::Release);
    }

    /// Whatever is inserted from now on, [`RangeDeletes::list`] up to `at` stays exact. A checkpoint whose boundary this
    /// is lists them later, and what is newer than its boundary may not survive a crash.
    pub fn keep_at(&self, at: Csn) {
        self.ranges.write().kept_at = at;
    }

    /// The CSN of the newest range delete at or below `at` that covers `key`, for a reader that [`Readers`] spoke of.
    /// For another `at` it may give an older one, or none.
    #[inline]
    pub fn covering(&self, key: &[u8], at: Csn) -> Option<Csn> {
        if self.is_empty() {
            return None;
        }
        let ranges = self.ranges.read();
        ranges.fragment_of(key)?.covering.newest_at(at)
    }

    /// For a reader without a snapshot that wants to read at `at`: where it reads, at or above `at`, and the newest range
    /// delete that covers `key` there. Everything up to there is applied and may be shown, if that is so for `at`.
    #[inline]
    pub fn covering_at_or_after(&self, key: &[u8], at: Csn) -> (Csn, Option<Csn>) {
        if self.is_empty() {
            return (at, None);
        }
        let ranges = self.ranges.read();
        let at = at.max(ranges.compacted_to);
        (at, ranges.fragment_of(key).and_then(|fragment| fragment.covering.newest_at(at)))
    }

    /// The CSN of the newest range delete that covers `key`.
    pub fn newest_covering(&self, key: &[u8]) -> Option<Csn> {
        self.covering(key, Csn::MAX)
    }

    /// Whether a range delete newer than `than` covers a key of the range.
    pub fn any_newer_in_range(&self, range: (Bound<&[u8]>, Bound<&[u8]>), than: Csn) -> bool {
        if self.is_empty() || is_without_keys(range) {
            return false;
        }
        let ranges = self.ranges.read();
        let first = match range.0 {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => ranges.first_meeting(key),
        };
        let from = first.map_or(Bound::Unbounded, |key| Bound::Included(key.clone()));
        let reaches = |fragment: &Fragment| match (range.0, &fragment.end) {
            (Bound::Unbounded, _) | (_, None) => true,
            (Bound::Included(key), Some(end)) => key < end,
            (Bound::Excluded(key), Some(end)) => key < end && !is_successor(key, end),
        };
        let begins = |start: &[u8]| match range.1 {
            Bound::Unbounded => true,
            Bound::Included(end) => start <= end,
            Bound::Excluded(end) => start < end,
        };
        let mut meeting =
            ranges.fragments.range::<[u8], _>((from.as_ref().map(|key| &**key), Bound::Unbounded));
        meeting
            .by_ref()
            .take_while(|(start, _)| begins(start))
            .any(|(_, fragment)| reaches(fragment) && fragment.covering.newest() > than)
    }

    /// What readers at `up_to` see deleted by commits above `after`: ranges that are apart, oldest first.
    pub fn list(&self, after: Csn, up_to: Csn) -> Vec<RangeDelete> {
        let ranges = self.ranges.read();
        let mut list: Vec<RangeDelete> = Vec::new();
        for (start, fragment) in &ranges.fragments {
            let Some(csn) = fragment.covering.newest_at(up_to).filter(|csn| *csn > after) else { continue };
            match list.last_mut() {
                Some(last) if last.csn == csn && last.end.as_ref() == Some(start) => {
                    last.end.clone_from(&fragment.end);
                }
                _ => list.push(RangeDelete { csn, start: start.clone(), end: fragment.end.clone() }),
            }
        }
        list.sort_unstable();
        list
    }

    /// Removes the range deletes up to `csn`, once nothing that they hide is left anywhere in the table (INV-IDX-6).
    /// Readers and commits get in between.
    pub fn drop_up_to(&self, csn: Csn) {
        let mut from = Some(Key::from([]));
        while let Some(key) = from {
            let mut ranges = self.ranges.write();
            let (edits, next) = ranges.to_drop(&key, csn);
            if !edits.is_empty() {
                self.state.fetch_add(2, Ordering::AcqRel);
                edits.into_iter().for_each(|start| ranges.drop_in(&start, csn));
                if ranges.fragments.is_empty() {
                    self.state.fetch_and(!1, Ordering::AcqRel);
                }
            }
            from = next;
        }
    }

    /// How many fragments there are.
    pub fn len(&self) -> usize {
        self.ranges.read().fragments.len()
    }

    /// How many CSNs all fragments have together.
    pub fn links(&self) -> usize {
        self.ranges.read().fragments.values().map(|fragment| fragment.covering.0.len()).sum()
    }
}

impl Ranges {
    fn fragment_of(&self, key: &[u8]) -> Option<&Fragment> {
        let (_, fragment) =
            self.fragments.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        fragment.end.as_deref().is_none_or(|end| key < end).then_some(fragment)
    }

    /// The start of the last fragment at or before `key`, or of the first one.
    fn first_meeting(&self, key: &[u8]) -> Option<&Key> {
        let mut before = self.fragments.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        before.next_back().map(|(start, _)| start)
    }

    fn cover(&mut self, range: &RangeDelete, readers: &Readers) {
        self.cut(&range.start);
        if let Some(end) = &range.end {
            self.cut(end);
        }
        let kept_at = self.kept_at;
        let mut compacted_to = self.compacted_to;
        let upper = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut touched = Vec::new();
        let mut gaps = Vec::new();
        let mut reached = Some(range.start.clone());
        for (start, fragment) in self.fragments.range_mut::<[u8], _>((Bound::Included(&*range.start), upper))
        {
            let gap_start = reached.expect("an unbounded fragment is the last one");
            if gap_start < *start {
                gaps.push((gap_start, Some(start.clone())));
            }
            fragment.covering.add(range.csn);
            compacted_to = compacted_to.max(fragment.covering.compact(readers, kept_at).unwrap_or_default());
            touched.push(start.clone());
            reached = fragment.end.clone();
        }
        if let Some(gap_start) = reached
            && range.end.as_ref().is_none_or(|end| gap_start < *end)
        {
            gaps.push((gap_start, range.end.clone()));
        }
        self.compacted_to = compacted_to;
        for (start, end) in gaps {
            touched.push(start.clone());
            self.fragments.insert(start, Fragment { end, covering: Covering(vec![range.csn]) });
        }
        for start in &touched {
            self.join_with_previous(start);
        }
        if let Some(end) = &range.end {
            self.join_with_previous(end);
        }
    }

    /// Makes `key` the start of a fragment if it lies inside one.
    fn cut(&mut self, key: &Key) {
        let mut before = self.fragments.range_mut::<[u8], _>((Bound::Unbounded, Bound::Excluded(&**key)));
        let Some((_, fragment)) = before.next_back() else { return };
        if fragment.end.as_ref().is_none_or(|end| key < end) {
            let end = fragment.end.replace(key.clone());
            let covering = fragment.covering.clone();
            self.fragments.insert(key.clone(), Fragment { end, covering });
        }
    }

    /// Makes one fragment of that which begins at `start`, if there is one, and the one that ends there, if no reader
    /// can tell them apart.
    fn join_with_previous(&mut self, start: &Key) {
        let mut around = self.fragments.range::<[u8], _>((Bound::Unbounded, Bound::Included(&**start)));
        let (Some((own, fragment)), Some((previous, before))) = (around.next_back(), around.next_back())
        else {
            return;
        };
        if own != start || before.end.as_ref() != Some(start) || before.covering != fragment.covering {
            return;
        }
        let previous = previous.clone();
        let fragment = self.fragments.remove(start).expect("it was just found");
        self.fragments.get_mut(&previous).expect("it was just found").end = fragment.end;
    }

    /// Of the next fragments from `from` on those that hold something up to `csn`, and where the ones after them begin.
    fn to_drop(&self, from: &Key, csn: Csn) -> (Vec<Key>, Option<Key>) {
        let mut rest = self.fragments.range::<[u8], _>((Bound::Included(&**from), Bound::Unbounded));
        let next = rest.by_ref().take(FRAGMENTS_PER_HOLD);
        let old =
            next.filter(|(_, fragment)| fragment.covering.0.last().is_some_and(|oldest| *oldest <= csn));
        let old = old.map(|(start, _)| start.clone()).collect();
        (old, rest.next().map(|(start, _)| start.clone()))
    }

    fn drop_in(&mut self, start: &Key, csn: Csn) {
        let fragment = self.fragments.get_mut(start).expect("it was just found");
        fragment.covering.0.retain(|covering| *covering > csn);
        if fragment.covering.0.is_empty() {
            self.fragments.remove(start);
            return;
        }
        let end = fragment.end.clone();
        self.join_with_previous(start);
        if let Some(end) = end {
            self.join_with_previous(&end);
        }
    }
}

/// Whether `key` followed by a zero byte, the next key after it, is `next`.
fn is_successor(key: &[u8], next: &[u8]) -> bool {
    next.strip_prefix(key) == Some(&[0])
}

fn is_without_keys(range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Excluded(start), Bound::Excluded(end)) => start >= end || is_successor(start, end),
        (Bound::Included(start), Bound::Excluded(end)) | (Bound::Excluded(start), Bound::Included(end)) => {
            start >= end
        }
        (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
        _ => false,
    }
}

impl fmt::Debug for RangeDeletes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeDeletes({})", self.len())
    }
}

#[cfg(test)]
#[path = "range_delete_tests.rs"]
mod tests;
