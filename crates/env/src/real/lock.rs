//! Locks between processes: `flock` on a file.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::{DiskError, Lock};

/// Holds the descriptor: the kernel lets go when it is closed, at the latest when the process ends.
#[derive(Debug)]
struct RealLock {
    _descriptor: OwnedFd,
}

impl Lock for RealLock {}

/// Takes the lock, or `None` if another descriptor holds it, in this process or elsewhere.
pub(super) fn lock(path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let descriptor = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)))
        .map_err(|e| DiskError::wrap("open", path, e))?;
    match rustix::io::retry_on_intr(|| {
        rustix::fs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive)
    }) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(e) => return Err(DiskError::wrap("flock", path, e)),
    }
    note_process(&descriptor);
    Ok(Some(Box::new(RealLock { _descriptor: descriptor })))
}

/// Writes the process id for people who wonder who holds the lock. A full disk must not keep a database shut, so
/// failures are ignored.
fn note_process(descriptor: &OwnedFd) {
    let text = format!("{}\n", rustix::process::getpid().as_raw_nonzero());
    if rustix::fs::ftruncate(descriptor, 0).is_ok() {
        let _ = rustix::io::pwrite(descriptor, text.as_bytes(), 0);
    }
}
