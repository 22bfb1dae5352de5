//! The log's errors, and what the caller may conclude from each.

use fulgurite_env::is_disk_full;
use fulgurite_types::Csn;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of the log. After any but [`LogError::Poisoned`] the log is as it was before the call.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// The file system refused an operation that recorded commits do not depend on, or opening failed. Remove the
    /// cause; trying again is safe.
    Io {
        /// What was attempted.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is no room for a segment. Nothing was logged; free space and try again.
    NoSpace {
        /// The segment or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Durable data differs from what was written. Restore it from a copy.
    Damaged(Box<Damage>),
    /// A write or a sync failed earlier, or a thread died in the middle of a commit. Commits that were not acknowledged
    /// may be durable or not; reopen the database to learn it.
    Poisoned(Arc<PoisonCause>),
    /// The request is larger than the log takes. Split it.
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// Its size in bytes.
        bytes: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// The log does not reach back that far. Start from a copy that is newer.
    TooOld {
        /// The CSN after which frames were asked for.
        after: Csn,
        /// The oldest such CSN that can be served.
        oldest: Csn,
    },
    /// The call was wrong in itself; fix the caller.
    Usage(String),
    /// A staging file is not what the options say. Nothing was changed.
    Staging(String),
    /// Another node of the cluster leads, or none: nothing was logged. Commit on the leader.
    NotLeader,
    /// The log was closed before a quorum was known to have this commit: it may be one of the cluster's or none, and opening the log
    /// again may tell.
    NotAgreed,
    /// The log was closed.
    Closed,
    /// The receiver of recovered frames refused one.
    Sink {
        /// The frame's CSN.
        csn: Csn,
        /// Its reason.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Where a file differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The byte offset in it.
    pub offset: u64,
    /// The first and the last commit that are known to be lost.
    pub csns: Option<(Csn, Csn)>,
    /// The damage, in words.
    pub what: String,
}

/// Why a log is poisoned.
#[derive(Debug)]
pub struct PoisonCause {
    /// What failed.
    pub what: &'static str,
    /// The file, if one was involved.
    pub path: Option<PathBuf>,
    /// What the operating system said.
    pub source: Option<io::Error>,
}

impl LogError {
    /// Names action and path of a failed call; a full disk becomes [`LogError::NoSpace`].
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> LogError {
        let path = path.to_owned();
        if is_disk_full(&source) {
            return LogError::NoSpace { path, source };
        }
        LogError::Io { action, path, source }
    }

    pub(crate) fn damaged(
        path: &Path,
        offset: u64,
        csns: Option<(Csn, Csn)>,
        what: impl Into<String>,
    ) -> LogError {
        LogError::Damaged(Box::new(Damage { path: path.to_owned(), offset, csns, what: what.into() }))
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at byte {}: {}", self.path.display(), self.offset, self.what)?;
        match self.csns {
            Some((first, last)) => write!(f, "; commits {first} to {last} are lost"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PoisonCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if let Some(path) = &self.path {
            write!(f, " of {}", path.display())?;
        }
        match &self.source {
            Some(source) => write!(f, " failed: {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io { action, path, source } => {
                write!(f, "could not {action} {}: {source}; remove the cause and try again", path.display())
            }
            LogError::NoSpace { path, source } => {
                write!(
                    f,
                    "no room for {}: {source}; nothing was logged, free space and try again",
                    path.display()
                )
            }
            LogError::Damaged(damage) => {
                write!(f, "{damage}; restore the file from a copy")
            }
            LogError::Poisoned(cause) => write!(
                f,
                "the log takes no more commits ({cause}); the outcome of commits that were not acknowledged is \
                 unknown, reopen the database to learn it"
            ),
            LogError::TooLarge { what, bytes, max } => {
                write!(f, "{what} of {bytes} bytes is above the limit of {max} bytes; split it")
            }
            LogError::TooOld { after, oldest } => write!(
                f,
                "the frames after commit {after} are no longer in the log, which serves those after {oldest}; start \
                 from a newer copy"
            ),
            LogError::Usage(what) => write!(f, "the log was called wrongly: {what}"),
            LogError::Staging(what) => write!(f, "{what}"),
            LogError::NotLeader => {
                write!(f, "this node does not lead its cluster; nothing was logged, commit on the leader")
            }
            LogError::NotAgreed => {
                write!(
                    f,
                    "the log was closed before a quorum was known to have the commit; its outcome is unknown"
                )
            }
            LogError::Closed => write!(f, "the log is closed; reopen the database"),
            LogError::Sink { csn, source } => {
                write!(f, "the frame of commit {csn} could not be replayed: {source}")
            }
        }
    }
}

impl Error for LogError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LogError::Io { source, .. } | LogError::NoSpace { source, .. } => Some(source),
            LogError::Sink { source, .. } => Some(source.as_ref()),
            LogError::Poisoned(cause) => cause.source.as_ref().map(|source| source as _),
            _ => None,
        }
    }
}
