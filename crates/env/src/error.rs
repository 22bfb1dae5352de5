//! Errors that say which operation failed on which path.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What an [`io::Error`] of a [`Disk`](crate::Disk), [`File`](crate::File) or lock holds inside.
///
/// The outer error has the kind of the operating system's error and prints `operation path: reason`. Its
/// `raw_os_error()` is `None`, because the standard library keeps either a number or a message: use
/// [`raw_os_error`](crate::raw_os_error()), or `get_ref()` and a downcast to this type.
#[derive(Debug)]
pub struct DiskError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl DiskError {
    /// Wraps `source`, keeping its kind.
    pub(crate) fn wrap(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> io::Error {
        let source = source.into();
        io::Error::new(source.kind(), DiskError { operation, path: path.to_path_buf(), source })
    }

    /// The operation, in the words of the operating system: `open`, `pwrite`, `fdatasync`.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The path the file had when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error as it came from the operating system.
    pub fn os_error(&self) -> &io::Error {
        &self.source
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.path.display(), self.source)
    }
}

impl Error for DiskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// The operating system's number of an error (`EIO` is 5, `ENOSPC` 28), whether it is wrapped in a [`DiskError`] or
/// not. `None` if the error did not come from a system call.
pub fn raw_os_error(error: &io::Error) -> Option<i32> {
    let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref::<DiskError>());
    error.raw_os_error().or_else(|| wrapped.and_then(|inner| inner.source.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_number_and_path_survive_the_wrapping() {
        let error = DiskError::wrap("pwrite", Path::new("/db/log"), io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(raw_os_error(&error), Some(28));
        assert!(error.to_string().starts_with("pwrite /db/log: "), "{error}");
    }

    #[test]
    fn a_bare_error_keeps_its_number() {
        assert_eq!(raw_os_error(&io::Error::from_raw_os_error(5)), Some(5));
        assert_eq!(raw_os_error(&io::Error::other("no number")), None);
    }
}
