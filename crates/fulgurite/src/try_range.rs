//! Ranges that are read from memory only, up to a limit, and say where to continue.

use std::ops::Bound;

use fulgurite_types::KeySpan;

use crate::key_range::span_of;
use crate::scan::{Direction, Range};
use crate::{Error, KeyRange, Missing, Result, Snapshot, Table, Value};

/// How much one call of [`Snapshot::try_range`] returns at most.
///
/// ```
/// use fulgurite::RangeLimits;
///
/// let limits = RangeLimits { entries: 100, ..RangeLimits::default() };
/// assert_eq!(limits.bytes, 1 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLimits {
    /// So many entries; 1,000 by default.
    pub entries: usize,
    /// It ends after the entry with which keys and values together have so many bytes or more; 1 MiB by default.
    pub bytes: usize,
}

impl Default for RangeLimits {
    fn default() -> RangeLimits {
        RangeLimits { entries: 1000, bytes: 1 << 20 }
    }
}

/// The bounds of a range: a [`KeyRange`].
pub type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What one call of [`Snapshot::try_range`] read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TryRange {
    /// The entries, in the order in which they were read.
    pub entries: Vec<(Value, Value)>,
    /// The range that was not read: where to continue. `None`: there is no more. After a limit was reached it may turn out
    /// to be empty.
    pub rest: Option<KeyBounds>,
    /// What the next entry would have had to wait for; `None` if the range or a limit ended the call. A thread that may wait
    /// gets it into memory: it reads the first entry of `rest` with [`Snapshot::range`].
    pub missing: Option<Missing>,
}

/// What a call reads, and from which end.
pub(crate) struct Asked<R> {
    pub range: R,
    pub span: KeySpan,
    pub direction: Direction,
    limits: RangeLimits,
}

impl Snapshot {
    /// The first entries of `range` in key order, from memory only: up to a limit, or to the first entry that would need a
    /// read from disk. The result says where to continue. Deleted keys that are passed count for no limit.
    ///
    /// # Errors
    /// Those of [`Snapshot::range`] and of its entries.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use std::ops::Bound;
    ///
    /// use fulgurite::RangeLimits;
    ///
    /// let users = db.table("users")?;
    /// for name in ["alice", "bob", "carol"] {
    ///     users.put(name, "1")?;
    /// }
    /// let snapshot = db.snapshot();
    /// let limits = RangeLimits { entries: 2, ..RangeLimits::default() };
    /// let mut names = Vec::new();
    /// let mut rest = Some((Bound::Unbounded, Bound::Unbounded));
    /// while let Some(range) = rest.take() {
    ///     let read = snapshot.try_range(&users, &range, limits)?;
    ///     names.extend(read.entries.into_iter().map(|(name, _)| name));
    ///     rest = read.rest;
    ///     if read.missing.is_some() && let Some(range) = &rest {
    ///         snapshot.range(&users, range)?.next().transpose()?;         // on a thread that may wait
    ///     }
    /// }
    /// assert_eq!(names, ["alice", "bob", "carol"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_range(&self, table: &Table, range: impl KeyRange, limits: RangeLimits) -> Result<TryRange> {
        self.try_read(table, Asked::new(range, limits, Direction::Forward)?)
    }

    /// The last entries of `range`, from its end: like [`Snapshot::try_range`] otherwise.
    ///
    /// # Errors
    /// Those of [`Snapshot::try_range`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::RangeLimits;
    ///
    /// let users = db.table("users")?;
    /// users.put("alice", "1")?;
    /// users.put("bob", "2")?;
    /// let read = db.snapshot().try_range_back(&users, .., RangeLimits::default())?;
    /// assert_eq!(read.entries[0].0, "bob");
    /// assert!(read.rest.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_range_back(
        &self,
        table: &Table,
        range: impl KeyRange,
        limits: RangeLimits,
    ) -> Result<TryRange> {
        self.try_read(table, Asked::new(range, limits, Direction::Backward)?)
    }

    fn try_read(&self, table: &Table, asked: Asked<impl KeyRange>) -> Result<TryRange> {
        let range = self.range_of(table, asked.span.clone())?;
        asked.read(range.in_memory(), |_, _| ())
    }
}

impl<R: KeyRange> Asked<R> {
    pub fn new(range: R, limits: RangeLimits, direction: Direction) -> Result<Asked<R>> {
        Ok(Asked { span: span_of(&range)?, range, limits, direction })
    }

    /// Reads up to the limits. Calls `seen` with each key that it returns and the time at which its version expires: 0 is never,
    /// and said of own writes.
    pub fn read(&self, mut range: Range<'_>, mut seen: impl FnMut(&[u8], u64)) -> Result<TryRange> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        while entries.len() < self.limits.entries && bytes < self.limits.bytes {
            match range.give(self.direction) {
                Ok(Some((key, value))) => {
                    bytes += key.len() + value.len();
                    seen(&key, range.version_expires_at_ms(self.direction));
                    entries.push((key, value));
                }
                Ok(None) => return Ok(TryRange { entries, rest: None, missing: None }),
                Err(Error::WouldBlock(missing)) => return Ok(self.ended(entries, Some(missing))),
                Err(error) => return Err(error),
            }
        }
        Ok(self.ended(entries, None))
    }

    fn ended(&self, entries: Vec<(Value, Value)>, missing: Option<Missing>) -> TryRange {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let (mut start, mut end) = (owned(self.range.start()), owned(self.range.end()));
        if let Some((last, _)) = entries.last() {
            let bound = match self.direction {
                Direction::Forward => &mut start,
                Direction::Backward => &mut end,
            };
            *bound = Bound::Excluded(last.to_vec());
        }
        TryRange { entries, rest: Some((start, end)), missing }
    }
}
