//! The range tombstones of a table: always resident, versioned like everything else.
//!
//! The ends of the ranges cut the key space into fragments. Each fragment has the CSNs of the range tombstones that
//! cover it, newest first. A range tombstone hides versions with a smaller CSN; at an equal CSN the operation on the
//! key wins.
//!
//! A fragment keeps only the CSNs that readers can tell apart ([`Readers`]), and neighbours with equal CSNs are one
//! fragment. So a table's memory grows with the number of distinct ranges and of open snapshots, not with the number of
//! range deletes: a queue that deletes `..k` with rising `k` has a handful of fragments.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use fulgurite_types::sync::{AtomicU64, Ordering, RwLock};
use fulgurite_types::{Csn, KeySpan};

use crate::memory::{COUNTS_BYTES, IndexMemory};

type Key = Arc<[u8]>;

/// A range tombstone: a range of keys that one operation deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// The commit that deleted it.
    pub csn: Csn,
    /// The keys that it covers.
    pub keys: KeySpan<Key>,
}

/// The CSNs at which a table is, or will be, read. Stays right over time: later readers are at or above `from`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// No read begins below it. It was read before `snapshots` (INV-TXN-1).
    pub from: Csn,
    /// The CSNs of open snapshots, ascending.
    pub snapshots: Vec<Csn>,
}

impl Readers {
    /// While a database is opened, no table is read before everything is replayed.
    pub const NONE_YET: Readers = Readers { from: Csn::MAX, snapshots: Vec::new() };

    fn any_in(&self, first: Csn, end: Csn) -> bool {
        let next = self.snapshots.partition_point(|snapshot| *snapshot < first);
        end > self.from || self.snapshots.get(next).is_some_and(|snapshot| *snapshot < end)
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

    /// Inserts `csn` in order: at the front, except for the few commits that are applied before an older one.
    fn add(&mut self, csn: Csn) {
        let index = self.0.partition_point(|covering| *covering > csn);
        if self.0.get(index) != Some(&csn) {
            self.0.insert(index, csn);
        }
    }

    /// Drops each CSN that a newer one replaces for every reader, and for `kept_at`; returns the newest CSN that
    /// replaced another (INV-IDX-8).
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

/// What a fragment takes of the nodes of the B-tree, which are between half full and full.
const FRAGMENT_BYTES: usize = 2 * size_of::<(Key, Fragment)>();

impl Fragment {
    /// What it takes of memory, with the key that it begins at.
    fn bytes(&self, start: &Key) -> usize {
        FRAGMENT_BYTES + key_bytes(start) + self.covering.0.capacity() * size_of::<Csn>()
    }
}

fn key_bytes(key: &Key) -> usize {
    COUNTS_BYTES + key.len()
}

#[derive(Default)]
struct Ranges {
    /// Disjoint, by their first key. A fragment that ends where the next one begins shares that key with it.
    fragments: BTreeMap<Key, Fragment>,
    /// The newest CSN at or below it stays in each fragment.
    kept_at: Csn,
    /// A CSN below it that a reader without a snapshot would have needed may have been dropped. Everything up to it was
    /// applied, and readers could see it, before that.
    compacted_to: Csn,
}

/// The range tombstones of a table.
#[derive(Default)]
pub struct RangeDeletes {
    ranges: RwLock<Ranges>,
    /// About the bytes of memory that they take, counted in `memory`, too. Written under the lock of `ranges`.
    bytes: AtomicUsize,
    memory: Arc<IndexMemory>,
    /// Bit 0: there is at least one. The other bits count removals, and are incremented before anything is removed.
    state: AtomicU64,
}

/// Whether there were range tombstones, and how many removals there had been, at one moment.
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

/// How many fragments are edited before the lock is released for readers.
const FRAGMENTS_PER_HOLD: usize = 256;

impl RangeDeletes {
    /// An empty set.
    pub fn new() -> RangeDeletes {
        RangeDeletes::default()
    }

    /// An empty set, whose memory counts in `memory`.
    pub fn counted_in(memory: Arc<IndexMemory>) -> RangeDeletes {
        RangeDeletes {
            ranges: RwLock::default(),
            bytes: AtomicUsize::new(0),
            memory,
            state: AtomicU64::new(0),
        }
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

    /// Adds a range tombstone, and drops older ones in its range that no reader can tell from it or from each other. A
    /// range without keys is left out.
    ///
    /// Costs O(log n) for each fragment that it overlaps, most of which it joins.
    pub fn insert(&self, keys: KeySpan<&[u8]>, csn: Csn, readers: &Readers) {
        if keys.is_empty() {
            return;
        }
        let keys: KeySpan<Key> = keys.owned();
        let mut ranges = self.ranges.write();
        self.counting(&mut ranges, &keys, |ranges| ranges.cover(&keys, csn, readers));
        self.state.fetch_or(1, Ordering::Release);
    }

    /// From now on, insertions leave [`RangeDeletes::list`] up to `at` exact. `at` is the boundary of a checkpoint that
    /// lists the range tombstones later; newer ones may not survive a crash.
    pub fn keep_at(&self, at: Csn) {
        self.ranges.write().kept_at = at;
    }

    /// The CSN of the newest range tombstone at or below `at` that covers `key`, for a reader that [`Readers`]
    /// included. For another `at` the result may be an older one, or none.
    #[inline]
    pub fn covering(&self, key: &[u8], at: Csn) -> Option<Csn> {
        if self.is_empty() {
            return None;
        }
        let ranges = self.ranges.read();
        ranges.fragment_of(key)?.covering.newest_at(at)
    }

    /// For a reader without a snapshot that wants to read at `at`: the CSN to read at, at or above `at`, and the newest
    /// range tombstone that covers `key` there. If everything up to `at` is applied and may be shown, so is everything
    /// up to the returned CSN.
    #[inline]
    pub fn covering_at_or_after(&self, key: &[u8], at: Csn) -> (Csn, Option<Csn>) {
        if self.is_empty() {
            return (at, None);
        }
        let ranges = self.ranges.read();
        let at = at.max(ranges.compacted_to);
        (at, ranges.fragment_of(key).and_then(|fragment| fragment.covering.newest_at(at)))
    }

    /// The CSN of the newest range tombstone that covers `key`.
    pub fn newest_covering(&self, key: &[u8]) -> Option<Csn> {
        self.covering(key, Csn::MAX)
    }

    /// Whether a range tombstone newer than `than` covers a key of the range.
    pub fn any_newer_in_range(&self, range: KeySpan<&[u8]>, than: Csn) -> bool {
        if self.is_empty() || range.is_empty() {
            return false;
        }
        let ranges = self.ranges.read();
        ranges.fragment_of(range.start).is_some_and(|first| first.covering.newest() > than)
            || ranges.fragments.range::<[u8], _>(range).any(|(_, other)| other.covering.newest() > than)
    }

    /// The ranges that a reader at `up_to` sees deleted by commits above `after`: disjoint, oldest first.
    pub fn list(&self, after: Csn, up_to: Csn) -> Vec<RangeDelete> {
        let ranges = self.ranges.read();
        let mut list: Vec<RangeDelete> = Vec::new();
        for (start, fragment) in &ranges.fragments {
            let Some(csn) = fragment.covering.newest_at(up_to).filter(|csn| *csn > after) else { continue };
            match list.last_mut() {
                Some(last) if last.csn == csn && last.keys.end.as_ref() == Some(start) => {
                    last.keys.end.clone_from(&fragment.end);
                }
                _ => list.push(RangeDelete { csn, keys: KeySpan::new(start.clone(), fragment.end.clone()) }),
            }
        }
        list.sort_unstable_by(|a, b| (a.csn, &a.keys.start).cmp(&(b.csn, &b.keys.start)));
        list
    }

    /// Removes the range tombstones up to `csn`. Memtables and base must hold nothing that they hide (INV-IDX-6).
    /// Releases the lock from time to time for readers and commits.
    pub fn drop_up_to(&self, csn: Csn) {
        let mut from = Some(Key::from([]));
        while let Some(key) = from {
            let mut ranges = self.ranges.write();
            let (edits, next) = ranges.to_drop(&key, csn);
            if !edits.is_empty() {
                self.state.fetch_add(2, Ordering::AcqRel);
                for keys in edits {
                    self.counting(&mut ranges, &keys, |ranges| ranges.drop_in(&keys, csn));
                }
                if ranges.fragments.is_empty() {
                    // The map would keep a node.
                    ranges.fragments = BTreeMap::new();
                    self.state.fetch_and(!1, Ordering::AcqRel);
                }
            }
            from = next;
        }
    }

    /// Changes fragments that overlap `keys`, or touch them, and counts what they take afterwards.
    fn counting(&self, ranges: &mut Ranges, keys: &KeySpan<Key>, change: impl FnOnce(&mut Ranges)) {
        let before = ranges.bytes_around(keys);
        change(ranges);
        let after = ranges.bytes_around(keys);
        for bytes in [&self.bytes, self.memory.tombstones()] {
            bytes.fetch_add(after, Ordering::Relaxed);
            bytes.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// How many fragments there are.
    pub fn len(&self) -> usize {
        self.ranges.read().fragments.len()
    }

    /// How many CSNs the fragments have in total.
    pub fn links(&self) -> usize {
        self.ranges.read().fragments.values().map(|fragment| fragment.covering.0.len()).sum()
    }
}

impl Drop for RangeDeletes {
    fn drop(&mut self) {
        self.memory.tombstones().fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

impl Ranges {
    /// What the fragments take that overlap `keys` or touch them.
    fn bytes_around(&self, keys: &KeySpan<Key>) -> usize {
        let before = (Bound::Unbounded, Bound::Excluded(&*keys.start));
        let first =
            self.fragments.range::<[u8], _>(before).next_back().map_or(&keys.start, |(first, _)| first);
        let mut rest =
            self.fragments.range::<[u8], _>((Bound::Included(&**first), Bound::Unbounded)).peekable();
        let mut bytes = 0;
        while let Some((start, fragment)) = rest.next() {
            if keys.end.as_ref().is_some_and(|end| start > end) {
                break;
            }
            bytes += fragment.bytes(start);
            if let Some(end) = &fragment.end
                && rest.peek().is_none_or(|(next, _)| *next != end)
            {
                bytes += key_bytes(end);
            }
        }
        bytes
    }

    fn fragment_of(&self, key: &[u8]) -> Option<&Fragment> {
        let (_, fragment) =
            self.fragments.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        fragment.end.as_deref().is_none_or(|end| key < end).then_some(fragment)
    }

    fn cover(&mut self, keys: &KeySpan<Key>, csn: Csn, readers: &Readers) {
        self.cut(&keys.start);
        if let Some(end) = &keys.end {
            self.cut(end);
        }
        let kept_at = self.kept_at;
        let mut compacted_to = self.compacted_to;
        let mut touched = Vec::new();
        let mut gaps = Vec::new();
        let mut reached = Some(keys.start.clone());
        for (start, fragment) in self.fragments.range_mut::<[u8], _>(keys.borrowed()) {
            let gap_start = reached.expect("an unbounded fragment is the last one");
            if gap_start < *start {
                gaps.push((gap_start, Some(start.clone())));
            }
            fragment.covering.add(csn);
            compacted_to = compacted_to.max(fragment.covering.compact(readers, kept_at).unwrap_or_default());
            touched.push(start.clone());
            reached = fragment.end.clone();
        }
        if let Some(gap_start) = reached
            && keys.ends_after(&gap_start)
        {
            gaps.push((gap_start, keys.end.clone()));
        }
        self.compacted_to = compacted_to;
        for (start, end) in gaps {
            touched.push(start.clone());
            self.fragments.insert(start, Fragment { end, covering: Covering(vec![csn]) });
        }
        for start in &touched {
            self.join_with_previous(start);
        }
        if let Some(end) = &keys.end {
            self.join_with_previous(end);
        }
    }

    /// Makes `key` the start of a fragment if it is inside one.
    fn cut(&mut self, key: &Key) {
        let mut before = self.fragments.range_mut::<[u8], _>((Bound::Unbounded, Bound::Excluded(&**key)));
        let Some((_, fragment)) = before.next_back() else { return };
        if fragment.end.as_ref().is_none_or(|end| key < end) {
            let end = fragment.end.replace(key.clone());
            let covering = fragment.covering.clone();
            self.fragments.insert(key.clone(), Fragment { end, covering });
        }
    }

    /// Joins the fragment that begins at `start`, if there is one, with the one that ends there, if no reader can tell
    /// them apart; else has them share the key.
    fn join_with_previous(&mut self, start: &Key) {
        let mut around = self.fragments.range::<[u8], _>((Bound::Unbounded, Bound::Included(&**start)));
        let (Some((own, fragment)), Some((previous, before))) = (around.next_back(), around.next_back())
        else {
            return;
        };
        if own != start || before.end.as_ref() != Some(start) {
            return;
        }
        let previous = previous.clone();
        if before.covering != fragment.covering {
            let own = own.clone();
            self.fragments.get_mut(&previous).expect("it was just found").end = Some(own);
            return;
        }
        let fragment = self.fragments.remove(start).expect("it was just found");
        self.fragments.get_mut(&previous).expect("it was just found").end = fragment.end;
    }

    /// The keys of the fragments that have a CSN at or below `csn`, among the next ones from `from` on; and the start
    /// of the fragment after those.
    fn to_drop(&self, from: &Key, csn: Csn) -> (Vec<KeySpan<Key>>, Option<Key>) {
        let mut rest = self.fragments.range::<[u8], _>((Bound::Included(&**from), Bound::Unbounded));
        let next = rest.by_ref().take(FRAGMENTS_PER_HOLD);
        let old =
            next.filter(|(_, fragment)| fragment.covering.0.last().is_some_and(|oldest| *oldest <= csn));
        let old = old.map(|(start, fragment)| KeySpan::new(start.clone(), fragment.end.clone())).collect();
        (old, rest.next().map(|(start, _)| start.clone()))
    }

    /// Drops the CSNs at or below `csn` of the fragment of `keys`.
    fn drop_in(&mut self, keys: &KeySpan<Key>, csn: Csn) {
        let start = &keys.start;
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

impl fmt::Debug for RangeDeletes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeDeletes({})", self.len())
    }
}

#[cfg(test)]
#[path = "range_delete_tests.rs"]
mod tests;
