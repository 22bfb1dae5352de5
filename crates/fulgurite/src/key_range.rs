//! The types that name a range of keys.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use fulgurite_types::KeySpan;

use crate::Result;
use crate::write_set::check_key;

/// A range of keys: `..`, `"a".."b"`, `from..`, `..=to`, a pair of [`Bound`]s, with keys of any type that is
/// `AsRef<[u8]>`; or a reference to one.
///
/// Both ends of a range have one type, and byte strings of different lengths have different types: write
/// `"a".."bc"`, or `b"a".as_slice()..b"bc"`.
///
/// Implemented for these types only. A bound `RangeBounds<K>` of `std` would not do, because it leaves the `K` of `..`
/// undetermined.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use std::ops::Bound;
///
/// let t = db.table("t")?;
/// for key in ["a", "b", "c"] {
///     t.put(key, "")?;
/// }
/// assert_eq!(t.range(..)?.count(), 3);
/// assert_eq!(t.range("b"..)?.count(), 2);
/// assert_eq!(t.range("a"..="b")?.count(), 2);
/// assert_eq!(t.range((Bound::Excluded("a"), Bound::Unbounded))?.count(), 2);
/// # Ok(())
/// # }
/// ```
pub trait KeyRange: sealed::Sealed {
    /// The smallest key of the range, or the bound before it.
    fn start(&self) -> Bound<&[u8]>;

    /// The greatest key of the range, or the bound after it.
    fn end(&self) -> Bound<&[u8]>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! ranges_of_keys {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> sealed::Sealed for $range {}

        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn start(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::start_bound(self).map(AsRef::as_ref)
            }

            fn end(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::end_bound(self).map(AsRef::as_ref)
            }
        }
    )*};
}

ranges_of_keys!(Range<K>, RangeFrom<K>, RangeInclusive<K>, RangeTo<K>, RangeToInclusive<K>);

impl sealed::Sealed for RangeFull {}

impl KeyRange for RangeFull {
    fn start(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn end(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

impl<K: AsRef<[u8]>> sealed::Sealed for (Bound<K>, Bound<K>) {}

// One type for both ends: the other end determines the type of a `Bound::Unbounded`.
impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn start(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(AsRef::as_ref)
    }

    fn end(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(AsRef::as_ref)
    }
}

impl<R: KeyRange + ?Sized> sealed::Sealed for &R {}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn start(&self) -> Bound<&[u8]> {
        (**self).start()
    }

    fn end(&self) -> Bound<&[u8]> {
        (**self).end()
    }
}

/// The keys of a range. Fails for a bound that is longer than a key may be.
pub(crate) fn span_of(range: &impl KeyRange) -> Result<KeySpan> {
    for bound in [range.start(), range.end()] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            check_key(key)?;
        }
    }
    Ok(KeySpan::of_bounds(range.start(), range.end()))
}

/// The keys that start with `prefix`. Fails if it is longer than a key may be.
pub(crate) fn span_of_prefix(prefix: &[u8]) -> Result<KeySpan> {
    check_key(prefix)?;
    Ok(KeySpan::with_prefix(prefix))
}

/// A range of keys with the form in which its bounds were given, so that an error names those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenRange<'k> {
    pub span: KeySpan<&'k [u8]>,
    /// It was given to start after a key: the one before `span.start`.
    pub starts_after_key: bool,
    /// It was given to end with a key: the one before `span.end`.
    pub ends_with_key: bool,
}

impl<'k> GivenRange<'k> {
    /// A range that was given to start at a key and to end before one.
    pub fn new(span: KeySpan<&'k [u8]>) -> GivenRange<'k> {
        GivenRange { span, starts_after_key: false, ends_with_key: false }
    }

    /// The bounds as they were given.
    pub fn bounds(self) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
        let key_before = |key: &'k [u8]| &key[..key.len() - 1];
        let start = match self.span.start {
            start if self.starts_after_key => Bound::Excluded(key_before(start)),
            [] => Bound::Unbounded,
            start => Bound::Included(start),
        };
        let end = match self.span.end {
            Some(end) if self.ends_with_key => Bound::Included(key_before(end)),
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        (start, end)
    }

    /// The keys that both ranges have; a bound of both is in the form of `other`'s.
    pub fn intersection(self, other: GivenRange<'k>) -> GivenRange<'k> {
        self.bounds_from(other, self.span.intersection(other.span))
    }

    /// One range of two that touch; a bound of both is in the form of `other`'s.
    pub fn union(self, other: GivenRange<'k>) -> GivenRange<'k> {
        self.bounds_from(other, self.span.union(other.span))
    }

    fn bounds_from(self, other: GivenRange<'k>, span: KeySpan<&'k [u8]>) -> GivenRange<'k> {
        let first = if span.start == other.span.start { other } else { self };
        let last = if span.end == other.span.end { other } else { self };
        GivenRange { span, starts_after_key: first.starts_after_key, ends_with_key: last.ends_with_key }
    }
}

/// The form of a range's bounds, with its keys in `span`.
pub(crate) fn given<'k>(range: &impl KeyRange, span: &'k KeySpan) -> GivenRange<'k> {
    GivenRange {
        span: span.borrowed(),
        starts_after_key: matches!(range.start(), Bound::Excluded(_)),
        ends_with_key: matches!(range.end(), Bound::Included(_)),
    }
}
