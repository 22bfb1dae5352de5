//! The ranges of a table that a transaction has read, sorted; ranges that overlap or touch become one.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::Result;
use crate::write_set::Budget;

/// The start of a range: a key, and whether the range begins after that key. Tuples compare as starts do.
type Lower<'b> = (&'b [u8], bool);

/// The end of a range: whether it is unbounded, else a key, and whether the range ends after that key. Tuples compare
/// as ends do.
type Upper<'b> = (bool, &'b [u8], bool);

pub(crate) type Bounds<'b> = (Bound<&'b [u8]>, Bound<&'b [u8]>);

/// Ranges by start key; they neither overlap nor touch, and none is empty. At most one range has a given start key: a
/// range that begins before the key contains it, and touches one that begins after it.
#[derive(Default)]
pub(crate) struct ReadRanges {
    map: BTreeMap<Box<[u8]>, Rest>,
    bytes: usize,
}

/// A range without its start key.
struct Rest {
    /// Whether it begins after that key.
    is_behind: bool,
    end: Bound<Box<[u8]>>,
}

/// Memory of an entry in a map node, of which about half is used, and of two allocations.
const OVERHEAD_BYTES: usize = 2 * size_of::<(Box<[u8]>, Rest)>() + 32;

fn lower(start: Bound<&[u8]>) -> Lower<'_> {
    match start {
        Bound::Included(key) => (key, false),
        Bound::Excluded(key) => (key, true),
        Bound::Unbounded => (&[], false),
    }
}

fn upper(end: Bound<&[u8]>) -> Upper<'_> {
    match end {
        Bound::Included(key) => (false, key, true),
        Bound::Excluded(key) => (false, key, false),
        Bound::Unbounded => (true, &[], false),
    }
}

fn start_of((key, is_behind): Lower<'_>) -> Bound<&[u8]> {
    match (key, is_behind) {
        (key, true) => Bound::Excluded(key),
        ([], false) => Bound::Unbounded,
        (key, false) => Bound::Included(key),
    }
}

fn end_of((is_unbounded, key, is_behind): Upper<'_>) -> Bound<&[u8]> {
    match (is_unbounded, is_behind) {
        (true, _) => Bound::Unbounded,
        (false, true) => Bound::Included(key),
        (false, false) => Bound::Excluded(key),
    }
}

/// Whether a range that ends at `end` reaches one that begins at the other bound: they overlap or touch.
fn reaches(end: Upper<'_>, (key, is_behind): Lower<'_>) -> bool {
    end >= (false, key, is_behind)
}

fn is_empty((key, is_behind): Lower<'_>, end: Upper<'_>) -> bool {
    (false, key, is_behind) >= end
}

/// About how many bytes of memory a range takes.
fn memory((key, _): Lower<'_>, (_, end, _): Upper<'_>) -> usize {
    OVERHEAD_BYTES + key.len() + end.len()
}

impl Rest {
    fn upper(&self) -> Upper<'_> {
        upper(self.end.as_ref().map(|key| &**key))
    }
}

impl ReadRanges {
    /// About how many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// All ranges, in key order.
    pub fn iter(&self) -> impl Iterator<Item = Bounds<'_>> {
        self.map.iter().map(|(key, rest)| (start_of((key, rest.is_behind)), end_of(rest.upper())))
    }

    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.map.is_empty() && self.find(key)
    }

    #[inline(never)]
    fn find(&self, key: &[u8]) -> bool {
        // If a range begins right after this key, no earlier range reaches the key.
        let last = self.map.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        last.is_some_and(|(start, rest)| {
            (&**start, rest.is_behind) <= (key, false) && reaches(rest.upper(), (key, true))
        })
    }

    /// The ranges that overlap or touch a given one, the last one first.
    fn reached<'r>(&'r self, from: Lower<'r>, to: Upper<'r>) -> impl Iterator<Item = (Lower<'r>, Upper<'r>)> {
        let behind = if to.0 { Bound::Unbounded } else { Bound::Included(to.1) };
        let before = self.map.range::<[u8], _>((Bound::Unbounded, behind)).rev();
        let before = before.map(|(key, rest)| ((&**key, rest.is_behind), rest.upper()));
        // Only a range that begins after the key `to.1` may begin too late.
        before
            .skip_while(move |(start, _)| !reaches(to, *start))
            .take_while(move |(_, end)| reaches(*end, from))
    }

    fn last_reached(&self, from: Lower<'_>, to: Upper<'_>) -> Option<Box<[u8]>> {
        self.reached(from, to).next().map(|((key, _), _)| key.into())
    }

    /// The intersections with a range.
    pub fn common<'r>(&'r self, (start, end): Bounds<'r>) -> impl Iterator<Item = Bounds<'r>> {
        let (from, to) = (lower(start), upper(end));
        let parts = self.reached(from, to).map(move |(start, end)| (start.max(from), end.min(to)));
        parts
            .filter(|(start, end)| !is_empty(*start, *end))
            .map(|(start, end)| (start_of(start), end_of(end)))
    }

    /// Adds a range. Fails, changing nothing, if the ranges would exceed the budget.
    pub fn add(&mut self, (start, end): Bounds<'_>, budget: Budget) -> Result<()> {
        let (from, to) = (lower(start), upper(end));
        if is_empty(from, to) {
            return Ok(());
        }
        let (mut first, mut last, mut count, mut freed) = (from, to, 0, 0);
        let mut is_longer = false;
        for (start, end) in self.reached(from, to) {
            is_longer = start <= from;
            if is_longer && end >= to {
                return Ok(());
            }
            (first, last) = (first.min(start), last.max(end));
            (count, freed) = (count + 1, freed + memory(start, end));
        }
        let bytes = self.bytes - freed + memory(first, last);
        budget.check(bytes)?;
        let (start, is_behind) = (Box::<[u8]>::from(first.0), first.1);
        let rest = Rest { is_behind, end: end_of(last).map(Box::from) };
        // A range that only ends later keeps its map entry.
        if count > 1 || !is_longer {
            while let Some(key) = self.last_reached(from, to) {
                self.map.remove(&key);
            }
        }
        self.map.insert(start, rest);
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const ALL: Budget = Budget::new(usize::MAX);

    /// Keys of no, one and two bytes; the successor of a key is among them.
    fn key(n: u8) -> Vec<u8> {
        let (first, second) = (n / 4, n % 4);
        match second {
            _ if n == 0 => Vec::new(),
            0 => vec![first],
            _ => vec![first, second - 1],
        }
    }

    fn bound(key: &[u8], kind: u8) -> Bound<&[u8]> {
        match kind {
            0 => Bound::Unbounded,
            1..3 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    }

    fn has((start, end): Bounds<'_>, key: &[u8]) -> bool {
        std::ops::RangeBounds::<[u8]>::contains(&(start, end), key)
    }

    fn expected_bytes(ranges: &ReadRanges) -> usize {
        ranges.iter().map(|(start, end)| memory(lower(start), upper(end))).sum()
    }

    proptest::proptest! {
        #[test]
        fn joined_ranges_have_the_keys_of_all_that_were_read_and_no_others(
            added in proptest::collection::vec((0u8..200, 0u8..30, 0u8..6, 0u8..6), 0..30),
            other in (0u8..150, 0u8..100, 0u8..6, 0u8..6),
            max in 0usize..4000,
        ) {
            let keys: Vec<Vec<u8>> = (0..=255).map(key).collect();
            let range = |(start, len, from, to): (u8, u8, u8, u8)| {
                (bound(&keys[usize::from(start)], from), bound(&keys[usize::from(start + len)], to))
            };
            let (mut ranges, mut model) = (ReadRanges::default(), Vec::new());
            for range in added.into_iter().map(range) {
                let before: Vec<_> = ranges.iter().map(|(start, end)| (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec))).collect();
                match ranges.add(range, Budget::new(max)) {
                    Ok(()) => model.push(range),
                    Err(_) => {
                        let after: Vec<_> = ranges.iter().map(|(start, end)| (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec))).collect();
                        assert_eq!(before, after, "what was refused changed something");
                    }
                }
                assert!(ranges.bytes() <= max && ranges.bytes() == expected_bytes(&ranges));
                for key in &keys {
                    let expected = model.iter().any(|range| has(*range, key));
                    assert_eq!(ranges.contains(key), expected, "{key:?}");
                    assert_eq!(ranges.iter().any(|range| has(range, key)), expected, "{key:?}");
                }
                let all: Vec<_> = ranges.iter().collect();
                assert!(all.is_sorted_by(|(_, end), (start, _)| !reaches(upper(*end), lower(*start))), "{all:?}");
                assert!(all.iter().all(|(start, end)| !is_empty(lower(*start), upper(*end))), "{all:?}");
            }
            let other = range(other);
            let common: Vec<_> = ranges.common(other).collect();
            for key in &keys {
                let expected = ranges.contains(key) && has(other, key);
                assert_eq!(common.iter().filter(|range| has(**range, key)).count(), usize::from(expected), "{key:?}");
            }
        }
    }

    #[test]
    fn the_bounds_of_a_range_that_stays_alone_are_those_that_were_read() {
        let mut ranges = ReadRanges::default();
        let read: [Bounds<'_>; 4] = [
            (Bound::Unbounded, Bound::Excluded(b"a")),
            (Bound::Excluded(b"a"), Bound::Included(b"b")),
            (Bound::Included(b"c"), Bound::Excluded(b"d")),
            (Bound::Excluded(b"d"), Bound::Unbounded),
        ];
        read.iter().rev().for_each(|range| ranges.add(*range, ALL).unwrap());
        assert_eq!(ranges.iter().collect::<Vec<_>>(), read);
    }

    #[test]
    fn ranges_that_become_one_give_their_memory_back() {
        let mut ranges = ReadRanges::default();
        let key = |n: u16| n.to_be_bytes();
        for n in 0..1000 {
            ranges.add((Bound::Included(&key(2 * n)), Bound::Excluded(&key(2 * n + 1))), ALL).unwrap();
        }
        let all = ranges.bytes();
        // The budget is used up, but joining two ranges takes none of it.
        ranges.add((Bound::Included(&key(1)), Bound::Excluded(&key(2))), Budget::new(all)).unwrap();
        assert_eq!((ranges.iter().count(), ranges.bytes()), (999, all - all / 1000));
        ranges.add((Bound::Unbounded, Bound::Unbounded), Budget::new(all)).unwrap();
        assert_eq!((ranges.iter().count(), ranges.bytes()), (1, OVERHEAD_BYTES));
    }
}
