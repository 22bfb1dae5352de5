//! What a call that never waits would have had to wait for.

use std::fmt;

/// What kept a call that never waits from its result ([`Error::WouldBlock`](crate::Error::WouldBlock)): the form that waits
/// gets it.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::{Error, Missing};
///
/// let users = db.table("users")?;
/// users.put("alice", "1")?;
/// let alice = match users.try_get("alice") {
///     // From the disk: on another thread, if this one must not wait.
///     Err(Error::WouldBlock(Missing::Node | Missing::Value)) => users.get("alice")?,
///     other => other?,
/// };
/// # assert_eq!(alice.unwrap(), "1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// A node of a tree is not in memory: it has to be read from disk.
    Node,
    /// A value that is not in a leaf is not in memory: it has to be read from disk.
    Value,
    /// Room, in the log's buffer, a ready segment, the commit ring, or on the disk: earlier commits have to be written.
    Room,
    /// Merging, a checkpoint or garbage collection has to catch up with the commits.
    Merging,
    /// Chunks that the commit has to write ahead, before its frame.
    Chunks,
    /// Another commit holds a latch of a key or range: microseconds.
    Latch,
    /// Earlier commits have to be applied: microseconds; or, for a range, the versions of recent ones put in order: milliseconds, and up to
    /// a tenth of a second for the first range of a table that was only written.
    Order,
    /// Another thread is closing the database.
    Close,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Node => "a node that is not in memory",
            Missing::Value => "a value that is not in memory",
            Missing::Room => "room for the commit",
            Missing::Merging => "merging or a checkpoint",
            Missing::Chunks => "chunks to be written ahead",
            Missing::Latch => "a latch that another commit holds",
            Missing::Order => "earlier commits, or their order",
            Missing::Close => "the thread that is closing the database",
        })
    }
}
