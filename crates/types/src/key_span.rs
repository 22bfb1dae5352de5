//! Ranges of keys.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::limits::KEY_BYTES_MAX;

/// The keys at or after `start` and before `end`.
///
/// Keys are byte strings in bytewise order, so every range can be written so: the first key after `k` is `k` followed by
/// a zero byte ([`key_after`]). A range that starts after `k` starts at that key, and a range that ends with `k` ends
/// before it. After a key of the greatest length that is one byte longer than a key may be: it serves in memory, and
/// [`KeySpan::storable`] replaces it before a range is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeySpan<K = Box<[u8]>> {
    /// Its first key; empty: the first of all keys.
    pub start: K,
    /// The first key after it; `None`: it has all keys from `start` on.
    pub end: Option<K>,
}

/// The first key after `key`.
pub fn key_after(key: &[u8]) -> Box<[u8]> {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after.into()
}

impl<K: AsRef<[u8]>> KeySpan<K> {
    /// The keys at or after `start` and before `end`.
    pub fn new(start: K, end: Option<K>) -> KeySpan<K> {
        KeySpan { start, end }
    }

    /// The same range, borrowed.
    #[inline]
    pub fn borrowed(&self) -> KeySpan<&[u8]> {
        KeySpan { start: self.start.as_ref(), end: self.end.as_ref().map(AsRef::as_ref) }
    }

    /// Whether `key` is in it.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.starts_after(key) && self.ends_after(key)
    }

    /// Whether `key` is before its first key.
    #[inline]
    pub fn starts_after(&self, key: &[u8]) -> bool {
        let start = self.start.as_ref();
        // Comparing with no bytes at all is slow: `memcmp` reads masked bytes at a dangling pointer.
        !start.is_empty() && key < start
    }

    /// Whether `key` is before its end.
    #[inline]
    pub fn ends_after(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        !self.ends_after(self.start.as_ref())
    }

    /// Whether it has all keys of `other`, which is not empty.
    pub fn covers<L: AsRef<[u8]>>(&self, other: &KeySpan<L>) -> bool {
        !self.starts_after(other.start.as_ref()) && self.reaches(other)
    }

    /// Whether it ends where `other` ends, or after that.
    fn reaches<L: AsRef<[u8]>>(&self, other: &KeySpan<L>) -> bool {
        let end = other.end.as_ref();
        self.end.as_ref().is_none_or(|own| end.is_some_and(|end| end.as_ref() <= own.as_ref()))
    }

    /// Whether the two overlap, or one ends where the other starts. Neither is empty.
    pub fn touches<L: AsRef<[u8]>>(&self, other: &KeySpan<L>) -> bool {
        let (start, end) = (self.start.as_ref(), self.end.as_ref());
        end.is_none_or(|end| other.start.as_ref() <= end.as_ref())
            && other.end.as_ref().is_none_or(|end| start <= end.as_ref())
    }
}

impl<'k> KeySpan<&'k [u8]> {
    /// All keys.
    pub const ALL: KeySpan<&'static [u8]> = KeySpan { start: &[], end: None };

    /// The keys before `end`.
    pub fn before(end: &'k [u8]) -> KeySpan<&'k [u8]> {
        KeySpan { start: &[], end: Some(end) }
    }

    /// The keys at or after `start`.
    pub fn from(start: &'k [u8]) -> KeySpan<&'k [u8]> {
        KeySpan { start, end: None }
    }

    /// The same range with keys of its own.
    pub fn owned<K: From<&'k [u8]>>(self) -> KeySpan<K> {
        KeySpan { start: self.start.into(), end: self.end.map(K::from) }
    }

    /// The keys that both ranges have.
    pub fn intersection(self, other: KeySpan<&'k [u8]>) -> KeySpan<&'k [u8]> {
        let end = if self.reaches(&other) { other.end } else { self.end };
        KeySpan { start: self.start.max(other.start), end }
    }

    /// One range of two that touch.
    pub fn union(self, other: KeySpan<&'k [u8]>) -> KeySpan<&'k [u8]> {
        let end = if self.reaches(&other) { self.end } else { other.end };
        KeySpan { start: self.start.min(other.start), end }
    }

    /// Its keys before and after those of `hole`; `None`: it has none there.
    pub fn without(self, hole: KeySpan<&'k [u8]>) -> [Option<KeySpan<&'k [u8]>>; 2] {
        let before = self.intersection(KeySpan::before(hole.start));
        let after = hole.end.map(|start| self.intersection(KeySpan::from(start)));
        [Some(before), after].map(|span| span.filter(|span| !span.is_empty()))
    }
}

impl KeySpan {
    /// The keys between two bounds.
    pub fn of_bounds(start: Bound<&[u8]>, end: Bound<&[u8]>) -> KeySpan {
        let start = match start {
            Bound::Included(key) => key.into(),
            Bound::Excluded(key) => key_after(key),
            Bound::Unbounded => Box::default(),
        };
        let end = match end {
            Bound::Included(key) => Some(key_after(key)),
            Bound::Excluded(key) => Some(key.into()),
            Bound::Unbounded => None,
        };
        KeySpan { start, end }
    }

    /// The keys that start with `prefix`.
    pub fn with_prefix(prefix: &[u8]) -> KeySpan {
        KeySpan { start: prefix.into(), end: next_of_length(prefix.to_vec()) }
    }

    /// The range of the same keys whose ends are short enough to be stored; `None` if it has no key that a table can
    /// hold.
    pub fn storable(self) -> Option<KeySpan> {
        self.with_ends_up_to(KEY_BYTES_MAX)
    }

    fn with_ends_up_to(self, bytes_max: usize) -> Option<KeySpan> {
        // No key that a table can hold is between an end that is too long and the next shorter key after it.
        let shorten = |key: Box<[u8]>| {
            if key.len() <= bytes_max { Some(key) } else { next_of_length(key[..bytes_max].to_vec()) }
        };
        let span = KeySpan { start: shorten(self.start)?, end: self.end.and_then(shorten) };
        (!span.is_empty()).then_some(span)
    }
}

/// The first key after all keys that start with `key`, at most as long as it; `None` if there is none.
fn next_of_length(mut key: Vec<u8>) -> Option<Box<[u8]>> {
    while key.last() == Some(&0xff) {
        key.pop();
    }
    *key.last_mut()? += 1;
    Some(key.into())
}

/// So that the standard maps can be asked for it.
impl<K: AsRef<[u8]>> RangeBounds<[u8]> for KeySpan<K> {
    fn start_bound(&self) -> Bound<&[u8]> {
        Bound::Included(self.start.as_ref())
    }

    fn end_bound(&self) -> Bound<&[u8]> {
        self.end.as_ref().map_or(Bound::Unbounded, |end| Bound::Excluded(end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> fmt::Debug for KeySpan<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, ", self.start.as_ref().escape_ascii())?;
        match &self.end {
            Some(end) => write!(f, "{})", end.as_ref().escape_ascii()),
            None => f.write_str("end)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The greatest length of a bound; the checked keys are up to two bytes longer.
    const BOUND_BYTES_MAX: usize = 2;

    type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);
    type Keys = BTreeSet<Vec<u8>>;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(0xff)];
        prop::collection::vec(byte, 0..=BOUND_BYTES_MAX)
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            2 => key().prop_map(Bound::Included),
            2 => key().prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded)
        ]
    }

    fn all_keys(len_max: usize) -> Keys {
        let mut keys = vec![Vec::new()];
        let mut longest = keys.clone();
        for _ in 0..len_max {
            longest = longest
                .iter()
                .flat_map(|key| [0, 1, 0xff].map(|byte| [&key[..], &[byte]].concat()))
                .collect();
            keys.extend_from_slice(&longest);
        }
        keys.into_iter().collect()
    }

    fn span(bounds: &Bounds) -> KeySpan {
        KeySpan::of_bounds(as_slice(&bounds.0), as_slice(&bounds.1))
    }

    fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
        bound.as_ref().map(|key| &key[..])
    }

    fn is_between(bounds: &Bounds, key: &Vec<u8>) -> bool {
        RangeBounds::<Vec<u8>>::contains(bounds, key)
    }

    fn keys_of(bounds: &Bounds) -> Keys {
        all_keys(BOUND_BYTES_MAX + 2).into_iter().filter(|key| is_between(bounds, key)).collect()
    }

    fn keys_in(span: KeySpan<&[u8]>) -> Keys {
        all_keys(BOUND_BYTES_MAX + 2).into_iter().filter(|key| span.contains(key)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_span_has_the_keys_between_its_bounds(bounds in (bound(), bound())) {
            let (span, keys) = (span(&bounds), keys_of(&bounds));
            prop_assert_eq!(&keys_in(span.borrowed()), &keys);
            prop_assert_eq!(span.is_empty(), keys.is_empty());
            if !span.is_empty() {
                let found: Keys = all_keys(BOUND_BYTES_MAX + 2)
                    .iter()
                    .map(|key| Box::<[u8]>::from(&key[..]))
                    .collect::<BTreeSet<_>>()
                    .range::<[u8], _>(span.borrowed())
                    .map(|key| key.to_vec())
                    .collect();
                prop_assert_eq!(&found, &keys, "a map finds the same");
            }
            for key in all_keys(BOUND_BYTES_MAX + 1) {
                prop_assert_eq!(span.starts_after(&key), *key < *span.start);
                prop_assert_eq!(span.ends_after(&key), span.end.is_none() || span.end.as_deref() > Some(&key[..]));
            }
        }

        #[test]
        fn spans_combine_as_sets_do(one in (bound(), bound()), other in (bound(), bound())) {
            let (keys, others) = (keys_of(&one), keys_of(&other));
            let (one, other) = (span(&one), span(&other));
            let (one, other) = (one.borrowed(), other.borrowed());
            prop_assert_eq!(keys_in(one.intersection(other)), keys.intersection(&others).cloned().collect::<Keys>());
            prop_assume!(!one.is_empty() && !other.is_empty());
            prop_assert_eq!(one.covers(&other), others.is_subset(&keys));
            let pieces = one.without(other);
            let outside: Keys = pieces.iter().flatten().flat_map(|piece| keys_in(*piece)).collect();
            prop_assert_eq!(outside, keys.difference(&others).cloned().collect::<Keys>());
            prop_assert!(pieces.iter().flatten().all(|piece| !piece.is_empty()));
            let both: Keys = keys.union(&others).cloned().collect();
            let around = one.union(other);
            prop_assert_eq!(one.touches(&other), keys_in(around) == both, "{:?} {:?}", one, other);
            prop_assert!(around.covers(&one) && around.covers(&other));
        }

        #[test]
        fn a_stored_span_has_the_same_keys_that_a_table_can_hold(bounds in (bound(), bound())) {
            let can_hold = |key: &Vec<u8>| key.len() <= BOUND_BYTES_MAX;
            let expected: Keys = keys_of(&bounds).into_iter().filter(can_hold).collect();
            let Some(stored) = span(&bounds).with_ends_up_to(BOUND_BYTES_MAX) else {
                prop_assert!(expected.is_empty());
                return Ok(());
            };
            prop_assert!(stored.start.len() <= BOUND_BYTES_MAX);
            prop_assert!(stored.end.as_ref().is_none_or(|end| end.len() <= BOUND_BYTES_MAX));
            prop_assert_eq!(keys_in(stored.borrowed()).into_iter().filter(can_hold).collect::<Keys>(), expected);
        }

        #[test]
        fn a_prefix_is_the_span_of_the_keys_that_start_with_it(prefix in key()) {
            let span = KeySpan::with_prefix(&prefix);
            let expected: Keys =
                all_keys(BOUND_BYTES_MAX + 2).into_iter().filter(|key| key.starts_with(&prefix)).collect();
            prop_assert_eq!(keys_in(span.borrowed()), expected);
        }
    }
}
