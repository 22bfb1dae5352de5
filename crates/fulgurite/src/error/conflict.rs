//! The conflict that made a commit fail.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use fulgurite_types::Csn;

use super::readable;

/// A key or range that a transaction read, and that another transaction, which committed first, wrote.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::{Contended, Error};
///
/// let stock = db.table("stock")?;
/// let mut txn = db.begin();
/// txn.get(&stock, "lamps")?;
/// txn.put(&stock, "lamps", "6")?;
/// let winner = stock.put("lamps", "9")?;              // another commit, which is first
/// let Err(Error::Conflict(conflict)) = txn.commit() else { panic!("both wrote the key") };
/// assert_eq!(&*conflict.table, "stock");
/// assert_eq!(conflict.on, Contended::Key((*b"lamps").into()));
/// assert_eq!(conflict.csn, winner.csn);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The table.
    pub table: Arc<str>,
    /// The key, or the range.
    pub on: Contended,
    /// The newest commit that wrote the key; for a range, an upper bound of the newest one that wrote to it. It was
    /// visible before the error was returned, so a snapshot at or above it does not conflict with the same write again.
    /// 0 if the key has expired.
    pub csn: Csn,
}

/// What two transactions contended for.
///
/// ```
/// use fulgurite::Contended;
///
/// assert_eq!(Contended::Key((*b"lamps").into()).to_string(), "the key \"lamps\"");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contended {
    /// A key.
    Key(Box<[u8]>),
    /// A key that was live when it was read, and expired before the commit.
    Expired(Box<[u8]>),
    /// A range that was read, and that has a key which was written.
    Range {
        /// Its smallest key.
        start: Bound<Box<[u8]>>,
        /// Its greatest key.
        end: Bound<Box<[u8]>>,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { table, on, .. } = self;
        if let Contended::Expired(key) = on {
            return write!(
                f,
                "the key {} of table `{table}`, which was read, has expired since",
                readable(key)
            );
        }
        write!(f, "another transaction committed a write to {on} of table `{table}` first")
    }
}

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = match self {
            Contended::Key(key) | Contended::Expired(key) => return write!(f, "the key {}", readable(key)),
            Contended::Range { start, end } => (start, end),
        };
        f.write_str("a key in the range ")?;
        match start {
            Bound::Included(key) => write!(f, "[{}, ", readable(key))?,
            Bound::Excluded(key) => write!(f, "({}, ", readable(key))?,
            Bound::Unbounded => f.write_str("[start, ")?,
        }
        match end {
            Bound::Included(key) => write!(f, "{}]", readable(key)),
            Bound::Excluded(key) => write!(f, "{})", readable(key)),
            Bound::Unbounded => f.write_str("end)"),
        }
    }
}
