//! Identifies the process, and distinguishes it from the parent that it was forked from.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::DiskError;

/// The process in which a value was made. A child of `fork()` has a copy of its parent's memory and none of its
/// threads. A value that must not be used there holds a `Process` and checks [`Process::is_current`].
///
/// The check costs two loads from memory that is never written: the process's mark is in a page that the kernel fills
/// with zeros in a child (`MADV_WIPEONFORK`, Linux 4.14). On an older kernel it asks for the process id each time. A
/// child of `vfork()`, or a thread, shares the memory and counts as the same process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    page: Option<&'static AtomicU64>,
    mark: u64,
}

/// The last mark used. A child inherits it, so its own mark differs from all of its ancestors'.
static LAST_MARK: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The calling process.
    pub fn current() -> Process {
        static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
        let page = *PAGE.get_or_init(wiped_page);
        let mark = match page {
            Some(page) => match page.load(Ordering::Acquire) {
                0 => {
                    let fresh = LAST_MARK.fetch_add(1, Ordering::Relaxed) + 1;
                    let set = page.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
                    set.map_or_else(|other| other, |_| fresh)
                }
                mark => mark,
            },
            None => process_id(),
        };
        Process { page, mark }
    }

    /// Whether the calling process is this one.
    #[inline]
    pub fn is_current(&self) -> bool {
        match self.page {
            Some(page) => page.load(Ordering::Relaxed) == self.mark,
            None => process_id() == self.mark,
        }
    }
}

impl Process {
    /// Fails if the calling process is a different one.
    pub(crate) fn check(&self, operation: &'static str, path: &Path) -> io::Result<()> {
        if self.is_current() {
            return Ok(());
        }
        let why = io::Error::other("opened in another process, of which this one is a fork");
        Err(DiskError::wrap(operation, path, why))
    }
}

#[cold]
fn process_id() -> u64 {
    u64::from(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs())
}

/// A page that is zero in each new process; never unmapped. `None` if the kernel has no such pages.
fn wiped_page() -> Option<&'static AtomicU64> {
    // The kernel rounds up to whole pages.
    let bytes = 4096;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
    let page = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }.ok()?;
    // SAFETY: the range is exactly the mapping from above, which nothing refers to yet.
    if unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above; it is not used again.
        let _ = unsafe { rustix::mm::munmap(page, bytes) };
        return None;
    }
    // SAFETY: the page is aligned, zero (a valid value), writable, mapped until the process ends, and accessed only as
    // this atomic number.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_the_current_one() {
        let (one, other) = (Process::current(), Process::current());
        assert!(one.is_current() && other.is_current());
        assert_eq!(one.mark, other.mark);
        assert_ne!(one.mark, 0);
    }

    #[test]
    fn a_mark_of_another_process_is_not_current() {
        let current = Process::current();
        assert!(!Process { mark: current.mark + 1, ..current }.is_current());
        assert!(Process { page: None, mark: process_id() }.is_current());
        assert!(!Process { page: None, mark: process_id() + 1 }.is_current());
    }
}
