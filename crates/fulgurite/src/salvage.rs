//! A scan of a damaged table: it continues after a range that it cannot read, and names that range.

use std::ops::Bound;
use std::time::SystemTime;

use fulgurite_types::{KeySpan, key_after};

use crate::key_range::GivenRange;
use crate::scan::Range;
use crate::{Error, Result, Value};

/// An item of a [`Salvage`].
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::Salvaged;
///
/// let stock = db.table("stock")?;
/// stock.put("lamps", "7")?;
/// let mut items = db.snapshot().salvage(&stock, ..)?;
/// assert!(matches!(items.next(), Some(Ok(Salvaged::Entry { key, .. })) if key == "lamps"));
/// assert!(items.next().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Salvaged {
    /// An entry, as a scan gives it.
    Entry {
        /// The key.
        key: Value,
        /// Its value.
        value: Value,
        /// When it expires; `None`: never.
        expires_at: Option<SystemTime>,
    },
    /// A range of the table that cannot be read.
    LeftOut(LeftOut),
}

/// A range of a table that a [`Salvage`] left out.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::Salvaged;
///
/// let stock = db.table("stock")?;
/// for item in db.snapshot().salvage(&stock, ..)? {
///     if let Salvaged::LeftOut(left_out) = item? {
///         eprintln!("not readable: {:?}: {}", left_out.keys, left_out.error);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeftOut {
    /// The keys that the range may have had: those of one node of the tree, or one key whose value is damaged. Recent
    /// versions of these keys, which are not in the tree yet, are returned all the same.
    pub keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Why it cannot be read.
    pub error: Error,
}

/// The entries of a table in key order at one snapshot, without those that cannot be read: made by
/// [`Snapshot::salvage`](crate::Snapshot::salvage).
///
/// A damaged leaf leaves out its keys, a damaged internal node those of all leaves below it, a damaged value that is
/// stored outside its leaf that key. [`Error::Damaged`] and [`Error::Io`] leave a range out; any other error ends the
/// iteration.
///
/// ```
/// use fulgurite::{Database, Options, Salvaged};
///
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = Database::open(&dir.path().join("data"), Options::default())?;
/// let stock = db.table("stock")?;
/// stock.put(b"apples", b"7")?;
/// for item in db.snapshot().salvage(&stock, ..)? {
///     match item? {
///         Salvaged::Entry { key, value, .. } => println!("{key:?} = {value:?}"),
///         Salvaged::LeftOut(part) => eprintln!("left out {:?}: {}", part.keys, part.error),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Salvage {
    range: Range<'static>,
    /// The keys that were asked for, and the form of their bounds; see [`GivenRange`].
    asked: KeySpan,
    starts_after_key: bool,
    ends_with_key: bool,
    /// The range that was named last: a scan that seeks its position again meets the same node a second time.
    named: Option<KeySpan>,
}

impl Salvage {
    pub(crate) fn new(range: Range<'static>, asked: GivenRange<'_>) -> Salvage {
        let GivenRange { span, starts_after_key, ends_with_key } = asked;
        Salvage { range, asked: span.owned(), starts_after_key, ends_with_key, named: None }
    }

    /// The keys that were asked for and not read, with bounds as the caller gave them.
    fn left_out(&self, unread: &KeySpan) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let Salvage { asked, starts_after_key, ends_with_key, .. } = self;
        let asked = GivenRange {
            span: asked.borrowed(),
            starts_after_key: *starts_after_key,
            ends_with_key: *ends_with_key,
        };
        let is_one_key = unread.end.as_ref().is_some_and(|end| *end == key_after(&unread.start));
        let unread = GivenRange { ends_with_key: is_one_key, ..GivenRange::new(unread.borrowed()) };
        let (start, end) = asked.intersection(unread).bounds();
        let start = if start == Bound::Unbounded { Bound::Included(&[][..]) } else { start };
        (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec))
    }

    fn next_or_left_out(&mut self) -> Result<Option<Salvaged>> {
        loop {
            let error = match self.range.next_kept() {
                Ok(entry) => {
                    return Ok(entry.map(|(key, value, expires_at)| Salvaged::Entry {
                        key,
                        value,
                        expires_at,
                    }));
                }
                Err(error @ (Error::Damaged { .. } | Error::Io { .. })) => error,
                Err(error) => return Err(error),
            };
            let Some(unread) = self.range.unread() else { return Err(error) };
            self.range.pass_unread();
            if self.named.as_ref() == Some(&unread) {
                continue;
            }
            let keys = self.left_out(&unread);
            self.named = Some(unread);
            return Ok(Some(Salvaged::LeftOut(LeftOut { keys, error })));
        }
    }
}

impl Iterator for Salvage {
    type Item = Result<Salvaged>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_or_left_out().transpose()
    }
}
