//! The ranges of a table that a transaction has read, sorted; ranges that overlap or touch become one.

use std::collections::BTreeMap;
use std::ops::Bound;

use fulgurite_types::KeySpan;

use crate::Result;
use crate::key_range::GivenRange;
use crate::write_set::Budget;

/// Ranges by their first key; they neither overlap nor touch, and none is empty.
#[derive(Default)]
pub(crate) struct ReadRanges {
    map: BTreeMap<Box<[u8]>, Rest>,
    bytes: usize,
}

/// A range without its first key; see [`GivenRange`].
struct Rest {
    end: Option<Box<[u8]>>,
    starts_after_key: bool,
    ends_with_key: bool,
}

/// Memory of an entry in a map node, of which about half is used, and of two allocations.
const OVERHEAD_BYTES: usize = 2 * size_of::<(Box<[u8]>, Rest)>() + 32;

/// About how many bytes of memory a range takes.
fn memory(span: KeySpan<&[u8]>) -> usize {
    OVERHEAD_BYTES + span.start.len() + span.end.map_or(0, <[u8]>::len)
}

fn range_of<'r>(start: &'r [u8], rest: &'r Rest) -> GivenRange<'r> {
    let &Rest { ref end, starts_after_key, ends_with_key } = rest;
    GivenRange { span: KeySpan::new(start, end.as_deref()), starts_after_key, ends_with_key }
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
    pub fn iter(&self) -> impl Iterator<Item = GivenRange<'_>> {
        self.map.iter().map(|(start, rest)| range_of(start, rest))
    }

    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.map.is_empty() && self.find(key)
    }

    #[inline(never)]
    fn find(&self, key: &[u8]) -> bool {
        let last = self.map.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        last.is_some_and(|(start, rest)| range_of(start, rest).span.contains(key))
    }

    /// The ranges that overlap or touch a given one, the last one first.
    fn touching<'r>(&'r self, span: KeySpan<&'r [u8]>) -> impl Iterator<Item = GivenRange<'r>> {
        let last = span.end.map_or(Bound::Unbounded, Bound::Included);
        let before = self.map.range::<[u8], _>((Bound::Unbounded, last)).rev();
        let before = before.map(|(start, rest)| range_of(start, rest));
        before.take_while(move |range| range.span.touches(&span))
    }

    fn last_touching(&self, span: KeySpan<&[u8]>) -> Option<Box<[u8]>> {
        self.touching(span).next().map(|own| own.span.start.into())
    }

    /// The intersections with a range.
    pub fn common<'r>(&'r self, range: GivenRange<'r>) -> impl Iterator<Item = GivenRange<'r>> {
        let common = self.touching(range.span).map(move |own| range.intersection(own));
        common.filter(|range| !range.span.is_empty())
    }

    /// Adds a range. Fails, changing nothing, if the ranges would exceed the budget.
    pub fn add(&mut self, range: GivenRange<'_>, budget: Budget) -> Result<()> {
        if range.span.is_empty() {
            return Ok(());
        }
        let (mut joined, mut count, mut freed) = (range, 0, 0);
        let mut starts_there = false;
        for own in self.touching(range.span) {
            if own.span.covers(&range.span) {
                return Ok(());
            }
            joined = joined.union(own);
            starts_there = own.span.start <= range.span.start;
            (count, freed) = (count + 1, freed + memory(own.span));
        }
        let bytes = self.bytes - freed + memory(joined.span);
        budget.check(bytes)?;
        let GivenRange { span, starts_after_key, ends_with_key } = joined;
        let KeySpan { start, end } = span.owned();
        // A range that only ends later keeps its map entry.
        if count > 1 || !starts_there {
            while let Some(key) = self.last_touching(range.span) {
                self.map.remove(&key);
            }
        }
        self.map.insert(start, Rest { end, starts_after_key, ends_with_key });
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::key_range::{given, span_of};

    type Bounds<'b> = (Bound<&'b [u8]>, Bound<&'b [u8]>);

    fn add(ranges: &mut ReadRanges, bounds: Bounds<'_>, budget: Budget) -> Result<()> {
        ranges.add(given(&bounds, &span_of(&bounds)?), budget)
    }

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
        ranges.iter().map(|range| memory(range.span)).sum()
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
                let before = format!("{:?}", ranges.iter().collect::<Vec<_>>());
                match add(&mut ranges, range, Budget::new(max)) {
                    Ok(()) => model.push(range),
                    Err(_) => {
                        let after = format!("{:?}", ranges.iter().collect::<Vec<_>>());
                        assert_eq!(before, after, "what was refused changed something");
                    }
                }
                assert!(ranges.bytes() <= max && ranges.bytes() == expected_bytes(&ranges));
                for key in &keys {
                    let expected = model.iter().any(|range| has(*range, key));
                    assert_eq!(ranges.contains(key), expected, "{key:?}");
                    assert_eq!(ranges.iter().any(|range| has(range.bounds(), key)), expected, "{key:?}");
                }
                let all: Vec<_> = ranges.iter().map(|range| range.span).collect();
                assert!(all.is_sorted_by(|a, b| a.end.is_some_and(|end| end < b.start)), "{all:?}");
                assert!(all.iter().all(|span| !span.is_empty()), "{all:?}");
            }
            let other = range(other);
            let span = span_of(&other).unwrap();
            let common: Vec<_> = if span.is_empty() { Vec::new() } else { ranges.common(given(&other, &span)).collect() };
            for key in &keys {
                let expected = ranges.contains(key) && has(other, key);
                assert_eq!(common.iter().filter(|range| has(range.bounds(), key)).count(), usize::from(expected), "{key:?}");
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
        read.iter().rev().for_each(|range| add(&mut ranges, *range, ALL).unwrap());
        assert_eq!(ranges.iter().map(GivenRange::bounds).collect::<Vec<_>>(), read);
    }

    #[test]
    fn ranges_that_become_one_give_their_memory_back() {
        let mut ranges = ReadRanges::default();
        let key = |n: u16| n.to_be_bytes();
        for n in 0..1000 {
            add(&mut ranges, (Bound::Included(&key(2 * n)), Bound::Excluded(&key(2 * n + 1))), ALL).unwrap();
        }
        let all = ranges.bytes();
        // The budget is used up, but joining two ranges takes none of it.
        add(&mut ranges, (Bound::Included(&key(1)), Bound::Excluded(&key(2))), Budget::new(all)).unwrap();
        assert_eq!((ranges.iter().count(), ranges.bytes()), (999, all - all / 1000));
        add(&mut ranges, (Bound::Unbounded, Bound::Unbounded), Budget::new(all)).unwrap();
        assert_eq!((ranges.iter().count(), ranges.bytes()), (1, OVERHEAD_BYTES));
    }
}
