//! Locks between processes: `flock` on a directory and on a file in it.
//!
//! The lock on the directory excludes even a process that removed or replaced the file. The lock on the file works
//! where a file system does not lock directories (NFS), and its content names the process that holds it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat, fstat};
use rustix::io::{Errno, retry_on_intr};

use crate::{DiskError, Lock, LockHolder, LockMode, Locking, Process};

/// How often the file may be replaced between opening and locking it.
const REPLACED_MAX: u32 = 100;

/// Identifies a file or directory, independent of its name.
type FileId = (u64, u64);

/// The directories that this process has locked, so that it recognizes its own locks. A child of `fork()` inherits the
/// list, hence the `Process`.
static HELD: Mutex<Vec<(Process, FileId)>> = Mutex::new(Vec::new());

/// The list; `None` in a child that was forked while another thread held its lock.
fn held() -> Option<MutexGuard<'static, Vec<(Process, FileId)>>> {
    HELD.try_lock_for(Duration::from_secs(1))
}

/// The descriptors with which the locks were taken. A child of `fork()` shares them with its parent. A lock ends only
/// when both have closed theirs, or when one of them unlocks: the owner does, a child must not.
#[derive(Debug)]
struct RealLock {
    owner: Process,
    directory: FileId,
    descriptors: Vec<OwnedFd>,
}

impl Lock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        let mine =
            |(owner, directory): &(Process, FileId)| owner.is_current() && *directory == self.directory;
        if let Some(mut held) = held()
            && let Some(index) = held.iter().position(mine)
        {
            held.swap_remove(index);
        }
        for descriptor in &self.descriptors {
            // Closing them would unlock, too, but not while a child has them open.
            let _ = retry_on_intr(|| rustix::fs::flock(descriptor, FlockOperation::Unlock));
        }
    }
}

/// Locks the directory, and the file `name` in it.
pub(super) fn lock(directory: &OwnedFd, path: &Path, name: &str, mode: LockMode) -> io::Result<Locking> {
    let failed = |operation: &'static str| move |errno: Errno| DiskError::wrap(operation, path, errno);
    let id = file_id(&fstat(directory).map_err(failed("fstat"))?);
    // A descriptor of its own: the lock belongs to it, and ends with it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = retry_on_intr(|| rustix::fs::openat(directory, ".", flags, Mode::empty()));
    let own = own.map_err(failed("open"))?;
    let mut descriptors = Vec::new();
    match take(&own, mode) {
        Ok(true) => descriptors.push(own),
        Ok(false) => return Ok(Locking::Held(holder(directory, name, id, is_shared(&own, mode)))),
        // A file system that does not lock directories.
        Err(Errno::BADF | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::ISDIR) => {}
        Err(errno) => return Err(failed("flock")(errno)),
    }
    match lock_file(directory, path, name, mode)? {
        FileLock::Taken(file) => descriptors.push(file),
        FileLock::Held { is_shared } => return Ok(Locking::Held(holder(directory, name, id, is_shared))),
        FileLock::Missing => {}
    }
    let owner = Process::current();
    if let Some(mut held) = held() {
        held.push((owner, id));
    }
    Ok(Locking::Taken(Box::new(RealLock { owner, directory: id, descriptors })))
}

enum FileLock {
    Taken(OwnedFd),
    Held {
        is_shared: bool,
    },
    /// A shared lock creates no file.
    Missing,
}

/// Locks the file with this name. Another process may be removing it at the same time, and a lock on a file without a
/// name excludes nothing: so the name is checked after the lock.
fn lock_file(directory: &OwnedFd, path: &Path, name: &str, mode: LockMode) -> io::Result<FileLock> {
    let path = path.join(name);
    let failed = |operation: &'static str| {
        let path = &path;
        move |errno: Errno| DiskError::wrap(operation, path, errno)
    };
    let flags = match mode {
        LockMode::Exclusive => OFlags::RDWR | OFlags::CREATE,
        LockMode::Shared => OFlags::RDONLY,
    };
    let permissions = Mode::from_raw_mode(0o644);
    for _ in 0..REPLACED_MAX {
        let opened =
            retry_on_intr(|| rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, permissions));
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT) if mode == LockMode::Shared => return Ok(FileLock::Missing),
            // The open needs space only if it creates the file.
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => return Err(failed("create")(errno)),
            Err(errno) => return Err(failed("open")(errno)),
        };
        if !take(&file, mode).map_err(failed("flock"))? {
            return Ok(FileLock::Held { is_shared: is_shared(&file, mode) });
        }
        let locked = file_id(&fstat(&file).map_err(failed("fstat"))?);
        match rustix::fs::statat(directory, name, AtFlags::empty()) {
            Ok(named) if file_id(&named) == locked => {
                if mode == LockMode::Exclusive {
                    note_process(&file);
                }
                return Ok(FileLock::Taken(file));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("stat")(errno)),
        }
    }
    Err(failed("flock")(Errno::STALE))
}

/// Takes the lock of a descriptor; false if another descriptor has it, in this process or elsewhere.
fn take(descriptor: &OwnedFd, mode: LockMode) -> Result<bool, Errno> {
    let operation = match mode {
        LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        LockMode::Shared => FlockOperation::NonBlockingLockShared,
    };
    match retry_on_intr(|| rustix::fs::flock(descriptor, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Whether the lock that kept a descriptor from its own is shared: then a shared one can be had, for a moment. The
/// descriptor is this call's own, so that no lock of this process or of its parent is unlocked.
/// One that was let go meanwhile counts as shared: trying again is right for both.
fn is_shared(descriptor: &OwnedFd, refused: LockMode) -> bool {
    if refused == LockMode::Shared || take(descriptor, LockMode::Shared) != Ok(true) {
        return false;
    }
    // Closing it does not, if the process forked meanwhile.
    let _ = retry_on_intr(|| rustix::fs::flock(descriptor, FlockOperation::Unlock));
    true
}

fn file_id(status: &Stat) -> FileId {
    (status.st_dev, status.st_ino)
}

/// Writes the process id, so that an operator can find the lock's holder. A full disk must not prevent opening a
/// database, so failures are ignored.
fn note_process(descriptor: &OwnedFd) {
    let text = format!("{}\n", rustix::process::getpid().as_raw_nonzero());
    if rustix::fs::ftruncate(descriptor, 0).is_ok() {
        let _ = rustix::io::pwrite(descriptor, text.as_bytes(), 0);
    }
}

/// The known facts about the holder: the file has the id of the last process that locked it exclusively, which is gone if
/// the lock is shared.
fn holder(directory: &OwnedFd, name: &str, id: FileId, is_shared: bool) -> LockHolder {
    let mine = |(owner, held): &(Process, FileId)| owner.is_current() && *held == id;
    let this_process = held().is_some_and(|held| held.iter().any(mine));
    let mut holder = LockHolder { this_process, is_shared, pid: None, since_ms: None };
    if is_shared {
        return holder;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { return holder };
    let mut text = [0; 16];
    let count = rustix::io::pread(&file, &mut text, 0).unwrap_or(0);
    holder.pid = std::str::from_utf8(&text[..count]).ok().and_then(|text| text.trim().parse().ok());
    if let Ok(status) = fstat(&file) {
        let ms = i128::from(status.st_mtime) * 1000 + i128::from(status.st_mtime_nsec) / 1_000_000;
        holder.since_ms = u64::try_from(ms).ok();
    }
    holder
}
