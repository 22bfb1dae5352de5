//! Errors that say which operation failed on which path.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The inner error of an [`io::Error`] of a [`Disk`](crate::Disk), [`File`](crate::File) or lock.
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

    /// The path that the file had when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The operating system's error.
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

/// Calls that allocate space, or make the operating system allocate what an earlier call deferred.
const ALLOCATING: [&str; 14] = [
    "create",
    "mkdir",
    "write",
    "pwrite",
    "pwritev",
    "pwritev2",
    "direct pwrite",
    "fdatasync",
    "fsync",
    "ftruncate",
    "fallocate",
    "rename",
    "unlink",
    "link",
];

/// Whether the error means that the disk, or the quota, is full. The number alone does not mean that: calls that
/// allocate no space on this disk may fail with it, too.
pub fn is_disk_full(error: &io::Error) -> bool {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref::<DiskError>());
    full && wrapped.is_none_or(|inner| ALLOCATING.contains(&inner.operation))
}

/// Whether the error means that the process, or the machine, has no file descriptor left: `EMFILE` or `ENFILE`.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(raw_os_error(error), Some(23 | 24))
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

    #[test]
    fn only_calls_that_allocate_find_the_disk_full() {
        let error = |operation, number| {
            DiskError::wrap(operation, Path::new("/db/LOCK"), io::Error::from_raw_os_error(number))
        };
        for number in [28, 122] {
            assert!(ALLOCATING.iter().all(|operation| is_disk_full(&error(operation, number))));
            for operation in ["flock", "open", "pread", "direct pread", "fstat", "statvfs", "readdir"] {
                assert!(!is_disk_full(&error(operation, number)), "{operation}");
            }
        }
        assert!(!is_disk_full(&error("pwrite", 5)));
        assert!(is_disk_full(&io::Error::from_raw_os_error(28)));
    }

    #[test]
    fn running_out_of_descriptors_is_recognized() {
        let error = |number| DiskError::wrap("open", Path::new("/db"), io::Error::from_raw_os_error(number));
        assert!(is_out_of_files(&error(23)) && is_out_of_files(&error(24)) && !is_out_of_files(&error(2)));
    }
}
