//! The errors of the simulated disk, with the kinds and numbers that Linux uses.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use crate::DiskError;

/// Numbers of Linux.
#[derive(Clone, Copy)]
pub(super) enum Errno {
    NoEntry = 2,
    Io = 5,
    BadDescriptor = 9,
    Exists = 17,
    NotADirectory = 20,
    IsADirectory = 21,
    NoSpace = 28,
    Unsupported = 95,
}

impl Errno {
    /// The error of an operation on a path.
    pub(super) fn on(self, operation: &'static str, path: &Path) -> io::Error {
        DiskError::wrap(operation, path, io::Error::from_raw_os_error(self as i32))
    }
}

#[derive(Debug)]
struct Crashed;

impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated machine has crashed")
    }
}

impl Error for Crashed {}

/// The error of every operation on a crashed machine.
pub(super) fn crashed() -> io::Error {
    io::Error::other(Crashed)
}

/// Whether the error, or one of its sources, means that the simulated machine has crashed.
pub fn is_crashed(error: &io::Error) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(inner) = source {
        if inner.is::<Crashed>() || inner.downcast_ref::<io::Error>().is_some_and(is_crashed) {
            return true;
        }
        source = inner.source();
    }
    false
}
