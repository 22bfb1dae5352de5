//! The errors of a database: what the caller may believe after each, and what to do about it.

mod conflict;
mod convert;
mod damage;
mod missing;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fulgurite_env::{LockHolder, is_disk_full};
use fulgurite_log::Durability;
use fulgurite_types::Csn;

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

pub use self::conflict::{Conflict, Contended};
pub(crate) use self::convert::OrError;
pub use self::damage::Damage;
pub use self::missing::Missing;

/// The result of an operation on a database.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed. [`Error::kind`] says what to do; `Display` is a sentence for people.
///
/// After [`Error::OutcomeUnknown`] a commit may have happened. After every other error of a commit nothing of it
/// happened, and nothing of it will be there after a crash.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::{Error, ErrorKind};
///
/// let users = db.table("users")?;
/// users.insert("alice", "1")?;
/// let error = users.insert("alice", "2").unwrap_err();
/// assert!(matches!(&error, Error::KeyExists { key, .. } if **key == *b"alice"));
/// assert_eq!(error.kind(), ErrorKind::Request);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction committed a write to a key or range that this one read; the box names it. Nothing of this
    /// transaction happened. Run it again, or let [`Database::transact`](crate::Database::transact) do so: the commit
    /// that it conflicted with is visible by now.
    Conflict(Box<Conflict>),
    /// A key is longer than [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX). The operation did nothing.
    KeyTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A value is longer than [`VALUE_BYTES_MAX`](crate::limits::VALUE_BYTES_MAX). The operation did nothing.
    ValueTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A transaction reads and writes more than its memory budget holds, more than the other open transactions leave of
    /// a quarter of the database's, or more than fits one operation list of the log. The read, write or commit that
    /// returned this did nothing.
    TooLarge {
        /// The bytes of its keys, values in memory, reads and bookkeeping, or those of its operation list.
        bytes: usize,
        /// The budget, [`Options::transaction_bytes_max`](crate::Options::transaction_bytes_max); what other transactions
        /// leave of a quarter of [`Options::memory_bytes`](crate::Options::memory_bytes); or
        /// [`OPERATIONS_BYTES_MAX`](crate::limits::OPERATIONS_BYTES_MAX).
        max: usize,
    },
    /// An insert found the key present, and wrote nothing.
    KeyExists {
        /// The table.
        table: String,
        /// The key.
        key: Box<[u8]>,
    },
    /// There is no table of that name.
    UnknownTable {
        /// The name.
        name: String,
    },
    /// There is a table of that name already.
    TableExists {
        /// The name.
        name: String,
    },
    /// The table was dropped after this handle to it was made. Nothing was read or written.
    TableDropped {
        /// The name that it had.
        name: String,
    },
    /// The handle belongs to a table of another database, or of another opening of this one. Nothing happened.
    WrongDatabase {
        /// The table's name there.
        table: String,
    },
    /// A name that no table can have.
    BadTableName {
        /// The name.
        name: String,
        /// Why no table can have it.
        why: &'static str,
    },
    /// Options contradict each other or are out of range: every violation at once. No database was opened.
    BadOptions {
        /// One sentence for each.
        violations: Vec<String>,
    },
    /// The savepoint belongs to another transaction, or was rolled back. Nothing was undone.
    UnknownSavepoint,
    /// No commit has that number: it was never made, or a crash undid it before it was durable.
    UnknownCommit {
        /// The number.
        csn: Csn,
    },
    /// Another process has the database open, or this one has. No data was changed.
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that has it open, as far as it is known.
        holder: LockHolder,
    },
    /// The database was opened with [`Options::read_only`](crate::Options::read_only). Nothing happened.
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// This process is a child, by `fork()`, of the one that opened the database. Nothing happened in either: the
    /// handles of the parent work in the parent only, and dropping their copies in the child changes nothing. A child
    /// may open other databases, and this one after the parent has closed it, provided that no thread of the parent was
    /// using a database at the fork: a lock that such a thread held stays held in the child. Where that is not certain,
    /// start a new program (`exec`, `spawn`), as after `fork()` in any program with threads.
    Forked {
        /// The directory.
        path: PathBuf,
    },
    /// There is no database: the directory is missing, has other files, or is empty and may not become one. No data
    /// was changed.
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// A newer version wrote the database. No data was changed.
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The format version in it.
        found: u16,
        /// The newest that this program reads.
        supported: u16,
    },
    /// Data that was durable is damaged or missing: the box names the file, the offset and the commits. Nothing was
    /// changed. Restore the file from a copy.
    Damaged(Box<Damage>),
    /// Reading or writing failed. Nothing of a commit that returns this happened; the last checkpoint stays valid. (If
    /// the log fails while a commit is on its way, that commit returns [`Error::OutcomeUnknown`].)
    Io {
        /// What was being done.
        what: String,
        /// The operating system's error.
        source: Source,
    },
    /// The disk is full: nothing was written, and reads work. Free space, or delete data; then writes work again,
    /// without another open.
    NoSpace {
        /// What was being done.
        what: String,
    },
    /// This database cannot offer the level of durability that a transaction requested. The transaction keeps its
    /// level.
    UnsupportedDurability {
        /// The level.
        level: Durability,
        /// The reason, and what would change it.
        why: String,
    },
    /// Another node of the cluster commits, or none: this one follows, or led and was deposed. The transaction did not happen. Run it on the
    /// leader.
    NotLeader {
        /// The number of the node that leads, if this one has heard of it.
        leader: Option<u32>,
    },
    /// No quorum of the cluster is known to have what was committed last, for as long as this waited. Nothing of this operation happened; commits
    /// that were made before go on, and their outcome comes with a quorum.
    NoQuorum {
        /// How long it waited.
        waited: Duration,
    },
    /// The commit happened, and a quorum has it, so it stays; but not all replicas have it yet, as [`Acks::All`](crate::Acks::All) asked for.
    ReplicasBehind {
        /// The commit's number.
        csn: Csn,
        /// How many replicas are known to have it durably.
        have: usize,
        /// How many there are.
        want: usize,
    },
    /// The log failed while this commit was on its way. The commit happened wholly or not at all: the next open of the
    /// database decides, and that outcome is final. To learn it, read what the transaction wrote.
    OutcomeUnknown {
        /// The commit's number.
        csn: Csn,
        /// Why the log failed.
        source: Source,
        /// Commits that were acknowledged before it failed and may be lost ([`Stats::at_risk`](crate::Stats::at_risk)).
        at_risk: Option<CsnRange>,
    },
    /// The log failed earlier. Nothing of this operation happened; writes are refused, reads work. Open the database
    /// again.
    Poisoned {
        /// Why the log failed.
        what: String,
        /// Commits that were acknowledged before it failed and may be lost ([`Stats::at_risk`](crate::Stats::at_risk)).
        at_risk: Option<CsnRange>,
    },
    /// The result needs a wait or a read from disk, which a `try_` form, or a close in a callback, does not do. Nothing
    /// happened. The payload names the thing that is missing.
    WouldBlock(Missing),
    /// The database was closed, and the operation did not happen.
    Closed,
    /// The request cannot be served, and nothing of it happened; change it.
    Refused {
        /// The request, and the reason.
        what: String,
    },
    /// The snapshot, scan or transaction is older than
    /// [`Options::max_snapshot_age`](crate::Options::max_snapshot_age) and was ended, so that what only it sees need not be
    /// kept. The operation did nothing, no later one of that reader does, and its transaction does not commit: drop it. Begin
    /// again, with a new snapshot or transaction, or in smaller pieces; or open the database with a larger age.
    SnapshotTooOld {
        /// How old it is.
        age: Duration,
        /// How old it may become.
        max_age: Duration,
    },
    /// A retry loop gave up: the transaction conflicted every time, and nothing of it happened.
    TooManyConflicts {
        /// How often it ran.
        attempts: u32,
        /// The last conflict.
        last: Box<Conflict>,
    },
}

/// Commits, by their numbers.
///
/// ```
/// use fulgurite::{Csn, CsnRange};
///
/// assert_eq!(CsnRange { first: Csn(6), last: Csn(6) }.to_string(), "commit 6");
/// assert_eq!(CsnRange { first: Csn(6), last: Csn(9) }.to_string(), "commits 6 to 9");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsnRange {
    /// The first of them.
    pub first: Csn,
    /// The last of them.
    pub last: Csn,
}

impl fmt::Display for CsnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "commit {}", self.first),
            false => write!(f, "commits {} to {}", self.first, self.last),
        }
    }
}

/// What the caller should do about an [`Error`]. [`guide::errors`](crate::guide::errors) lists the errors of each kind.
///
/// ```
/// use fulgurite::{Error, ErrorKind};
///
/// /// What a server tells its client.
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::Request => 400,
///         ErrorKind::Retry => 409,
///         ErrorKind::Space => 507,
///         _ => 503,
///     }
/// }
/// assert_eq!(status(&Error::KeyTooLong { len: 70_000 }), 400);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Run the transaction again, or take a new snapshot.
    Retry,
    /// Change the request: it will never succeed as it is.
    Request,
    /// Free disk space.
    Space,
    /// Close the database and open it again.
    Reopen,
    /// Restore the damaged file from a copy.
    Restore,
    /// Look at the machine: permissions, disks, other processes.
    Environment,
}

impl Error {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Conflict { .. }
            | Error::WouldBlock(_)
            | Error::TooManyConflicts { .. }
            | Error::NotLeader { .. }
            | Error::NoQuorum { .. }
            | Error::SnapshotTooOld { .. } => ErrorKind::Retry,
            Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::TooLarge { .. }
            | Error::KeyExists { .. }
            | Error::UnknownTable { .. }
            | Error::TableExists { .. }
            | Error::TableDropped { .. }
            | Error::WrongDatabase { .. }
            | Error::BadTableName { .. }
            | Error::BadOptions { .. }
            | Error::UnknownSavepoint
            | Error::UnsupportedDurability { .. }
            | Error::Forked { .. }
            | Error::ReadOnly { .. }
            | Error::UnknownCommit { .. }
            | Error::NotADatabase { .. }
            | Error::Refused { .. } => ErrorKind::Request,
            Error::NoSpace { .. } => ErrorKind::Space,
            Error::OutcomeUnknown { .. } | Error::Poisoned { .. } | Error::Closed => ErrorKind::Reopen,
            Error::ReplicasBehind { .. } => ErrorKind::Environment,
            Error::Damaged { .. } => ErrorKind::Restore,
            Error::Locked { .. } | Error::NewerFormat { .. } | Error::Io { .. } => ErrorKind::Environment,
        }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Damage::new(what).into()
    }

    /// If it is damage, notes that something of commit `csn` is lost.
    pub(crate) fn of_commit(mut self, csn: Csn) -> Error {
        if let Error::Damaged(damage) = &mut self {
            damage.csns = Some(CsnRange { first: csn, last: csn });
        }
        self
    }

    pub(crate) fn io(what: impl Into<String>, error: std::io::Error) -> Error {
        let what = what.into();
        if is_disk_full(&error) {
            return Error::NoSpace { what };
        }
        Error::Io { what, source: Box::new(error) }
    }
}

fn fmt_locked(f: &mut fmt::Formatter<'_>, path: &Path, holder: &LockHolder) -> fmt::Result {
    let path = path.display();
    if holder.this_process {
        return write!(
            f,
            "the database in {path} is open in this process: use that handle or a clone of it, or close it first"
        );
    }
    if holder.is_shared {
        return write!(
            f,
            "the database in {path} is being read by other processes: try again when they have closed it"
        );
    }
    write!(f, "the database in {path} is open in another process")?;
    if let Some(pid) = holder.pid {
        write!(f, " (the file LOCK names number {pid})")?;
    }
    write!(f, ": close it there first")
}

fn fmt_read_only(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    write!(
        f,
        "the database in {} was opened to be read only: open it without read_only to write to it",
        path.display()
    )
}

fn fmt_gave_up(f: &mut fmt::Formatter<'_>, attempts: u32, last: &Conflict) -> fmt::Result {
    write!(f, "the transaction conflicted {attempts} times in a row, the last time: {last}")?;
    match last.on {
        Contended::Expired(_) => Ok(()),
        _ => write!(f, "; does the body write this table by a handle instead of the transaction?"),
    }
}

fn fmt_unknown(
    f: &mut fmt::Formatter<'_>,
    csn: Csn,
    source: &Source,
    at_risk: &Option<CsnRange>,
) -> fmt::Result {
    write!(f, "commit {csn} may or may not be durable, opening the database again will tell: ")?;
    write!(f, "{source}{}", Acknowledged(at_risk))
}

fn fmt_poisoned(f: &mut fmt::Formatter<'_>, what: &str, at_risk: &Option<CsnRange>) -> fmt::Result {
    write!(f, "writes are refused since the log failed, close the database and open it again: ")?;
    write!(f, "{what}{}", Acknowledged(at_risk))
}

fn fmt_no_quorum(f: &mut fmt::Formatter<'_>, waited: Duration) -> fmt::Result {
    write!(
        f,
        "no quorum of the cluster has what was committed before, after {waited:.1?}: nothing of this happened, try again"
    )
}

fn fmt_not_leader(f: &mut fmt::Formatter<'_>, leader: Option<u32>) -> fmt::Result {
    write!(f, "this node does not lead its cluster, and nothing happened: commit on ")?;
    match leader {
        Some(leader) => write!(f, "node {leader}, the last leader that it heard of"),
        None => write!(f, "the node that does"),
    }
}

fn fmt_too_old(f: &mut fmt::Formatter<'_>, age: Duration, max_age: Duration) -> fmt::Result {
    write!(
        f,
        "the snapshot, scan or transaction was ended: it is {age:.1?} old, and max_snapshot_age is {max_age:?}: begin again, \
         or open the database with a larger max_snapshot_age"
    )
}

fn fmt_forked(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    write!(
        f,
        "the database in {} was opened in another process, of which this one is a fork: open it after the fork, or \
         leave the work to the process that opened it",
        path.display()
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict(conflict) => write!(f, "{conflict}: run the transaction again"),
            Error::KeyTooLong { len } => {
                write!(f, "the key has {len} bytes, the longest allowed has {KEY_BYTES_MAX}")
            }
            Error::ValueTooLong { len } => {
                write!(f, "the value has {len} bytes, the longest allowed has {VALUE_BYTES_MAX}")
            }
            Error::TooLarge { bytes, max } => write!(
                f,
                "the transaction's entries and reads take {bytes} bytes and at most {max} are allowed, beside those of other \
                 open transactions: commit in smaller pieces, and read through a snapshot what the commit does not depend on"
            ),
            Error::KeyExists { table, key } => {
                write!(f, "table `{table}` already has the key {}", readable(key))
            }
            Error::UnknownTable { name } => write!(f, "there is no table `{name}`"),
            Error::TableExists { name } => {
                write!(f, "there is a table `{name}` already: open it, or choose another name")
            }
            Error::TableDropped { name } => write!(f, "table `{name}` was dropped: open or create it"),
            Error::WrongDatabase { table } => write!(
                f,
                "the handle to table `{table}` is of another database, or of another opening of this one: open the table here"
            ),
            Error::BadTableName { name, why } => write!(f, "`{name}` cannot be the name of a table: {why}"),
            Error::BadOptions { violations } => {
                write!(f, "the options do not fit: {}", violations.join("; "))
            }
            Error::UnknownSavepoint => {
                f.write_str("the savepoint is of another transaction, or was rolled back: nothing was undone")
            }
            Error::UnknownCommit { csn } => {
                write!(f, "there is no commit {csn}: it was never made, or a crash undid it")
            }
            Error::Locked { path, holder } => fmt_locked(f, path, holder),
            Error::Forked { path } => fmt_forked(f, path),
            Error::ReadOnly { path } => fmt_read_only(f, path),
            Error::NotADatabase { path, found } => {
                write!(f, "{} is not a Fulgurite database: {found}", path.display())
            }
            Error::NewerFormat { path, found, supported } => write!(
                f,
                "{} has format version {found}, this program reads up to {supported}: use a newer program",
                path.display()
            ),
            Error::Damaged(damage) => write!(f, "damaged data: {damage}"),
            Error::Io { what, source } => write!(f, "{what}: {source}"),
            Error::NoSpace { what } => {
                write!(f, "the disk is full: {what}; nothing was written: free space, then try again")
            }
            Error::UnsupportedDurability { level, why } => write!(f, "{level:?} is not possible: {why}"),
            Error::NotLeader { leader } => fmt_not_leader(f, *leader),
            Error::NoQuorum { waited } => fmt_no_quorum(f, *waited),
            Error::ReplicasBehind { csn, have, want } => {
                write!(f, "commit {csn} is agreed and stays, but only {have} of {want} replicas have it yet")
            }
            Error::OutcomeUnknown { csn, source, at_risk } => fmt_unknown(f, *csn, source, at_risk),
            Error::Poisoned { what, at_risk } => fmt_poisoned(f, what, at_risk),
            Error::WouldBlock(missing) => {
                write!(f, "the result has to wait for {missing}: use the form that waits")
            }
            Error::Closed => write!(f, "the database was closed: open it again"),
            Error::Refused { what } => write!(f, "the request cannot be served: {what}"),
            Error::SnapshotTooOld { age, max_age } => fmt_too_old(f, *age, *max_age),
            Error::TooManyConflicts { attempts, last } => fmt_gave_up(f, *attempts, last),
        }
    }
}

/// The end of a message: the commits that were acknowledged and may be lost.
struct Acknowledged<'a>(&'a Option<CsnRange>);

impl fmt::Display for Acknowledged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(range) => write!(f, "; acknowledged before it was durable, and perhaps lost: {range}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::OutcomeUnknown { source, .. } => Some(source.as_ref()),
            Error::Damaged(damage) => std::error::Error::source(&**damage),
            _ => None,
        }
    }
}

/// A key or other bytes in readable form: text in quotes, else hexadecimal; long ones are cut.
pub(crate) fn readable(bytes: &[u8]) -> String {
    const MAX: usize = 64;
    let (head, cut) = if bytes.len() > MAX { (&bytes[..MAX], "...") } else { (bytes, "") };
    match std::str::from_utf8(head) {
        Ok(text) if !text.chars().any(char::is_control) => format!("\"{text}{cut}\""),
        _ => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{hex}{cut}")
        }
    }
}
