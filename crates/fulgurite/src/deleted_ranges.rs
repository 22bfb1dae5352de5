//! The ranges of a table that a transaction deletes.

use std::collections::BTreeMap;
use std::ops::Bound;

use fulgurite_types::KeySpan;

/// Ranges that neither overlap nor touch: ends by starts.
#[derive(Default)]
pub(crate) struct DeletedRanges(BTreeMap<Box<[u8]>, Option<Box<[u8]>>>);

/// What [`DeletedRanges::add`] did.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The resulting range.
    pub range: KeySpan,
    /// The earlier ranges that it replaced, the last one first.
    pub replaced: Vec<KeySpan>,
}

impl DeletedRanges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All ranges, in key order.
    pub fn iter(&self) -> impl Iterator<Item = KeySpan<&[u8]>> {
        self.0.iter().map(|(start, end)| KeySpan::new(&**start, end.as_deref()))
    }

    /// The range that has the key.
    #[inline]
    pub fn covering(&self, key: &[u8]) -> Option<KeySpan<&[u8]>> {
        if self.0.is_empty() { None } else { self.find(key) }
    }

    #[inline(never)]
    fn find(&self, key: &[u8]) -> Option<KeySpan<&[u8]>> {
        let (start, end) = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        Some(KeySpan::new(&**start, end.as_deref())).filter(|range| range.ends_after(key))
    }

    /// Adds a range that is not empty, joined with those that it overlaps or touches.
    pub fn add(&mut self, mut range: KeySpan) -> Joined {
        let mut replaced = Vec::new();
        loop {
            let last = range.end.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let before = self.0.range::<[u8], _>((Bound::Unbounded, last)).next_back();
            let own = before.map(|(start, end)| KeySpan::new(&**start, end.as_deref()));
            let Some(own) = own.filter(|own| own.touches(&range)).map(KeySpan::owned) else { break };
            self.0.remove(&own.start);
            range = range.borrowed().union(own.borrowed()).owned();
            replaced.push(own);
        }
        self.0.insert(range.start.clone(), range.end.clone());
        Joined { range, replaced }
    }

    /// Undoes the last [`DeletedRanges::add`] that was not undone yet.
    pub fn undo(&mut self, joined: &Joined) {
        self.0.remove(&joined.range.start).expect("it was added last");
        self.0.extend(joined.replaced.iter().map(|range| (range.start.clone(), range.end.clone())));
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn range((start, len): (u8, u8)) -> KeySpan {
        let end = start.checked_add(len).map(|end| Box::from([end]));
        KeySpan { start: Box::from([start]), end }
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
                    (0..=255).map(|key| before[usize::from(key)] || range.contains(&[key])).collect();
                steps.push((ranges.add(range), before));
                assert_eq!(keys(&ranges), expected);
                let all: Vec<_> = ranges.iter().collect();
                assert!(all.is_sorted_by(|a, b| a.end.is_some_and(|end| end < b.start)), "{all:?}");
            }
            for (joined, before) in steps.into_iter().rev() {
                ranges.undo(&joined);
                assert_eq!(keys(&ranges), before);
            }
            assert!(ranges.is_empty());
        }
    }
}
