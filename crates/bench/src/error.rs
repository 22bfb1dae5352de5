//! Errors that end a benchmark early.

use std::fmt;
use std::path::PathBuf;

/// The result of a step of a benchmark.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a benchmark could not continue. `Display` is a sentence.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The engine under measurement failed.
    Engine {
        /// The operation that failed.
        what: String,
        /// The engine's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The benchmark's own files, directories or threads failed.
    Io {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The largest run may not fit on the disk: nothing was started.
    NoSpace {
        /// The directory for the databases.
        dir: PathBuf,
        /// The free space there.
        free_bytes: u64,
        /// The space that the largest run may need.
        needed_bytes: u64,
    },
    /// The store does not hold what was committed into it: the figures are worthless, and the engine is broken. The
    /// text is the difference.
    Wrong(String),
    /// A transaction conflicted with another and was undone: for statements, which return it.
    Conflict,
    /// The engine cannot do this.
    Unsupported(&'static str),
    /// The engine does not do this here, with these settings: not a failure. The text is the reason.
    Refused(String),
    /// The error of a run's process, in its words.
    Remote(String),
    /// The watcher ended the benchmark.
    Interrupted,
    /// A thread or a process of the benchmark ended in a panic or was killed.
    Died,
}

impl Error {
    /// The error of a write in a transaction that reads.
    pub const READ_ONLY: Error = Error::Unsupported("writes in a transaction that reads");

    /// An engine's error, with the operation that failed.
    pub fn engine(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::Engine { what: what.into(), source: source.into() }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Engine { what, source } => write!(f, "{what}: {source}"),
            Error::Io { what, source } => write!(f, "{what}: {source}"),
            Error::NoSpace { dir, free_bytes, needed_bytes } => write!(
                f,
                "{} has {} MiB free, and the largest run may take {} MiB: give another directory, or fewer \
                 transactions, seconds or rows",
                dir.display(),
                free_bytes >> 20,
                needed_bytes >> 20
            ),
            Error::Wrong(what) => write!(f, "after the run {what}: the figures are void"),
            Error::Conflict => f.write_str("the transaction conflicted with another: run it again"),
            Error::Unsupported(what) => write!(f, "the engine has no {what}"),
            Error::Remote(what) | Error::Refused(what) => f.write_str(what),
            Error::Interrupted => f.write_str("interrupted"),
            Error::Died => write!(f, "a thread or process of the benchmark died: its message is above"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Engine { source, .. } => Some(&**source),
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
