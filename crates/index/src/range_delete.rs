//! The range deletes of a table: always resident, versioned like everything else.
//!
//! The key space is cut at the ends of the ranges into fragments; each fragment knows the CSNs of the deletes that
//! cover it, newest first, and shares the older ones with its neighbours. A range delete hides versions with a
//! smaller CSN; at an equal CSN the operation on the key wins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_base::Csn;
use parking_lot::RwLock;

type Key = Arc<[u8]>;

/// One range delete, as it was committed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeDelete {
    /// Which commit it belongs to.
    pub csn: Csn,
    /// The first key that it covers.
    pub start: Key,
    /// The first key behind it; `None`: it covers everything from `start` on.
    pub end: Option<Key>,
}

/// The CSNs that cover a fragment, newest first. Tails are shared, so that cutting a fragment costs nothing.
#[derive(Clone, Default)]
struct Chain(Option<Arc<Link>>);

struct Link {
    csn: Csn,
    older: Chain,
}

impl Chain {
    fn iter(&self) -> impl Iterator<Item = Csn> {
        std::iter::successors(self.0.as_deref(), |link| link.older.0.as_deref()).map(|link| link.csn)
    }

    /// The chain with `csn` in its place: at the front but for the few commits that were applied before an older one.
    fn with(&self, csn: Csn) -> Chain {
        let newer: Vec<Csn> = self.iter().take_while(|&covering| covering > csn).collect();
        let mut rest = self;
        for _ in &newer {
            rest = &rest.0.as_ref().expect("the chain has the links that were counted").older;
        }
        let mut chain = rest.clone();
        if rest.iter().next() != Some(csn) {
            chain = Chain(Some(Arc::new(Link { csn, older: chain })));
        }
        for &csn in newer.iter().rev() {
            chain = Chain(Some(Arc::new(Link { csn, older: chain })));
        }
        chain
    }
}

impl Drop for Chain {
    /// Not recursive: a chain may be longer than the stack is deep.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut link) = next.and_then(Arc::into_inner) {
            next = link.older.0.take();
        }
    }
}

struct Fragment {
    /// `None`: up to the end of the key space.
    end: Option<Key>,
    covering: Chain,
}

#[derive(Default)]
struct Ranges {
    committed: BTreeSet<RangeDelete>,
    /// Disjoint, by their first key.
    fragments: BTreeMap<Key, Fragment>,
}

/// The range deletes of a table.
#[derive(Default)]
pub struct RangeDeletes {
    ranges: RwLock<Ranges>,
    /// Bit 0: there are some. The bits above count the calls that removed any, and are raised before they do.
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

    /// Adds the range delete of `[start, end)`. A range without keys is left out, as is one that is there already.
    ///
    /// Costs O(log n + fragments that it meets).
    pub fn insert(&self, start: &[u8], end: Option<&[u8]>, csn: Csn) {
        if end.is_some_and(|end| end <= start) {
            return;
        }
        let range = RangeDelete { csn, start: start.into(), end: end.map(Key::from) };
        let mut ranges = self.ranges.write();
        if ranges.committed.insert(range.clone()) {
            ranges.cover(&range);
            self.state.fetch_or(1, Ordering::Release);
        }
    }

    /// The CSN of the newest range delete at or below `at` that covers `key`.
    #[inline]
    pub fn covering(&self, key: &[u8], at: Csn) -> Option<Csn> {
        if self.is_empty() {
            return None;
        }
        let ranges = self.ranges.read();
        ranges.fragment_of(key)?.covering.iter().find(|&csn| csn <= at)
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
        meeting.by_ref().take_while(|(start, _)| begins(start)).any(|(_, fragment)| {
            reaches(fragment) && fragment.covering.iter().next().is_some_and(|csn| csn > than)
        })
    }

    /// The range deletes up to a CSN, oldest first.
    pub fn list(&self, up_to: Csn) -> Vec<RangeDelete> {
        let ranges = self.ranges.read();
        ranges.committed.iter().take_while(|range| range.csn <= up_to).cloned().collect()
    }

    /// Removes range deletes, once nothing that they hide is left anywhere in the table (INV-IDX-6).
    pub fn remove(&self, unnecessary: &[RangeDelete]) {
        let mut ranges = self.ranges.write();
        let before = ranges.committed.len();
        for range in unnecessary {
            ranges.committed.remove(range);
        }
        if ranges.committed.len() == before {
            return;
        }
        self.state.fetch_add(2, Ordering::AcqRel);
        ranges.rebuild();
        if ranges.committed.is_empty() {
            self.state.fetch_and(!1, Ordering::AcqRel);
        }
    }

    /// How many range deletes there are.
    pub fn len(&self) -> usize {
        self.ranges.read().committed.len()
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

    fn cover(&mut self, range: &RangeDelete) {
        self.cut(&range.start);
        if let Some(end) = &range.end {
            self.cut(end);
        }
        let upper = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut gaps = Vec::new();
        let mut reached = Some(range.start.clone());
        for (start, fragment) in self.fragments.range_mut::<[u8], _>((Bound::Included(&*range.start), upper))
        {
            let gap_start = reached.expect("an unbounded fragment is the last one");
            if gap_start < *start {
                gaps.push((gap_start, Some(start.clone())));
            }
            fragment.covering = fragment.covering.with(range.csn);
            reached = fragment.end.clone();
        }
        if let Some(gap_start) = reached
            && range.end.as_ref().is_none_or(|end| gap_start < *end)
        {
            gaps.push((gap_start, range.end.clone()));
        }
        for (start, end) in gaps {
            self.fragments.insert(start, Fragment { end, covering: Chain::default().with(range.csn) });
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

    fn rebuild(&mut self) {
        self.fragments.clear();
        let committed = std::mem::take(&mut self.committed);
        for range in &committed {
            self.cover(range);
        }
        self.committed = committed;
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
