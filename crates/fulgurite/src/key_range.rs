//! The types that name a range of keys.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

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
