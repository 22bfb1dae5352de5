//! What ends a benchmark early.

use std::fmt;
use std::path::PathBuf;

/// The result of a part of a benchmark.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a benchmark could not go on. `Display` is a sentence for people.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The engine under measurement failed.
    Engine {
        /// What was being done.
        what: String,
        /// What the engine said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The benchmark's own files, directories or threads failed.
    Io {
        /// What was being done.
        what: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The largest run may not fit the disk: nothing was started.
    NoSpace {
        /// Where the databases would lie.
        dir: PathBuf,
        /// What is free there.
        free_bytes: u64,
        /// What the largest run may take.
        needed_bytes: u64,
    },
    /// The tables do not hold what was committed into them: the figures are worthless, and the engine is broken.
    WrongRows {
        /// The table.
        table: String,
        /// Its rows, counted after the run.
        found: u64,
        /// The rows that the transactions left in it.
        expected: u64,
    },
    /// A thread of the benchmark ended in a panic.
    Died,
}

impl Error {
    /// An engine's error, with what was being done.
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
            Error::WrongRows { table, found, expected } => write!(
                f,
                "after the run the table `{table}` holds {found} rows instead of {expected}: the figures are void"
            ),
            Error::Died => write!(f, "a thread of the benchmark panicked: its message is above"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Engine { source, .. } => Some(&**source),
            Error::Io { source, .. } => Some(source),
            Error::NoSpace { .. } | Error::WrongRows { .. } | Error::Died => None,
        }
    }
}
