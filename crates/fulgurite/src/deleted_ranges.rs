//! The ranges of a table that a transaction deletes.

use std::collections::BTreeMap;
use std::ops::Bound;

/// A range to delete: `[start, end)`; an `end` of `None` is the end of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeletedRange {
    pub start: Box<[u8]>,
    pub end: Option<Box<[u8]>>,
}

impl DeletedRange {
    pub fn covers(&self, key: &[u8]) -> bool {
        *self.start <= *key && self.end.as_deref().is_none_or(|end| key < end)
    }
}

/// Ranges that neither overlap nor touch: ends by starts.
#[derive(Default)]
pub(crate) struct DeletedRanges(BTreeMap<Box<[u8]>, Option<Box<[u8]>>>);

/// What [`DeletedRanges::add`] did.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The resulting range.
    pub range: DeletedRange,
    /// The earlier ranges that it replaced, the last one first.
    pub parts: Vec<DeletedRange>,
}

impl DeletedRanges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All ranges, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.0.iter().map(|(start, end)| (&**start, end.as_deref()))
    }

    /// The start and the end of the range that covers the key.
    #[inline]
    pub fn covering(&self, key: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        if self.0.is_empty() { None } else { self.find(key) }
    }

    #[inline(never)]
    fn find(&self, key: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        let (start, end) = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        end.as_deref().is_none_or(|end| key < end).then_some((&**start, end.as_deref()))
    }

    /// Adds a range that is not empty, joined with those that it overlaps or touches.
    pub fn add(&mut self, mut range: DeletedRange) -> Joined {
        let mut parts = Vec::new();
        loop {
            let upper = range.end.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let Some((start, end)) = self.0.range::<[u8], _>((Bound::Unbounded, upper)).next_back() else {
                break;
            };
            if end.as_deref().is_some_and(|end| *end < *range.start) {
                break;
            }
            let part = DeletedRange { start: start.clone(), end: end.clone() };
            self.0.remove(&part.start);
            if part.start < range.start {
                range.start.clone_from(&part.start);
            }
            let is_longer = match (&part.end, &range.end) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(end), Some(other)) => end > other,
            };
            if is_longer {
                range.end.clone_from(&part.end);
            }
            parts.push(part);
        }
        self.0.insert(range.start.clone(), range.end.clone());
        Joined { range, parts }
    }

    /// Undoes the last [`DeletedRanges::add`] that was not undone yet.
    pub fn undo(&mut self, joined: &Joined) {
        self.0.remove(&joined.range.start).expect("it was added last");
        self.0.extend(joined.parts.iter().map(|part| (part.start.clone(), part.end.clone())));
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn range((start, len): (u8, u8)) -> DeletedRange {
        let end = start.checked_add(len).map(|end| Box::from([end]));
        DeletedRange { start: Box::from([start]), end }
    }

    fn keys(ranges: &DeletedRanges) -> Vec<bool> {
        (0..=255).map(|key| ranges.covering(&[key]).is_some()).collect()
    }

    proptest::proptest! {
        #[test]
        fn joined_ranges_have_the_keys_of_all_and_are_taken_back_one_by_one(
            added in proptest::collection::vec((0u8..=255, 1u8..60), 0..20)
        ) {
            let mut ranges = DeletedRanges::default();
            let mut steps = Vec::new();
            for range in added.into_iter().map(range) {
                let before = keys(&ranges);
                let expected: Vec<bool> =
                    (0..=255).map(|key| before[usize::from(key)] || range.covers(&[key])).collect();
                steps.push((ranges.add(range), before));
                assert_eq!(keys(&ranges), expected);
                let all: Vec<_> = ranges.iter().collect();
                assert!(all.is_sorted_by(|(_, end), (start, _)| end.is_some_and(|end| end < *start)), "{all:?}");
            }
            for (joined, before) in steps.into_iter().rev() {
                ranges.undo(&joined);
                assert_eq!(keys(&ranges), before);
            }
            assert!(ranges.is_empty());
        }
    }
}
