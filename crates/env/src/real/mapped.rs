//! Mapped files of the machine.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{
    FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstat, fstatfs, fsync, open,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::bus_error::Watch;
use super::device;
use super::dir::RealDir;
use super::filesystem::Magic;
use super::write_back::{WriteBack, caches_are_kept};
use crate::mapped::{LINE_BYTES, check_len, lines, lost_page, word_index};
use crate::{Dir as _, DiskError, MappedFile, MemoryMedium, OpenOptions, Process};

/// A mapping of a whole file.
#[derive(Debug)]
struct RealMapped {
    start: NonNull<u8>,
    len: usize,
    medium: MemoryMedium,
    write_back: WriteBack,
    is_writable: bool,
    path: PathBuf,
    /// A child of it does not have the mapping.
    process: Process,
    /// Notices lost pages.
    watch: Option<Watch>,
    /// Holds the lock of the file, until it is released.
    file: Mutex<Option<OwnedFd>>,
}

// SAFETY: the memory belongs to no thread; the users of the trait agree which thread accesses which bytes.
unsafe impl Send for RealMapped {}
// SAFETY: as above.
unsafe impl Sync for RealMapped {}

/// Creates a file of `bytes` zeros, with all of its space, and maps it. It is removed again if that fails.
pub(super) fn create(path: &Path, bytes: u64) -> io::Result<Arc<dyn MappedFile>> {
    let failed = |operation: &'static str| move |error: Errno| DiskError::wrap(operation, path, error);
    check_len(path, bytes)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = retry_on_intr(|| open(path, flags, Mode::from_raw_mode(0o644))).map_err(failed("create"))?;
    let bytes = whole_pages(&file, bytes).map_err(failed("statfs"))?;
    let made = retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes))
        .map_err(failed("fallocate"))
        .and_then(|()| map(file, path, bytes, OpenOptions::Write))
        .and_then(|mapped| {
            if let Some(file) = &*mapped.file.lock() {
                retry_on_intr(|| fsync(file)).map_err(failed("fsync"))?;
            }
            sync_parent(path)?;
            Ok(mapped)
        });
    if made.is_err() {
        let _ = rustix::fs::unlink(path);
    }
    Ok(Arc::new(made?))
}

/// As many bytes as the pages have that a file of `bytes` takes: those of hugetlbfs are long, and mapped as a whole.
fn whole_pages(file: &OwnedFd, bytes: u64) -> Result<u64, Errno> {
    let file_system = retry_on_intr(|| fstatfs(file))?;
    let page = u64::try_from(file_system.f_bsize).unwrap_or(0);
    let is_memory = Magic::new(file_system.f_type).is_memory();
    Ok(if is_memory && page > 0 { bytes.next_multiple_of(page) } else { bytes })
}

/// Maps a file that exists.
pub(super) fn open_existing(path: &Path, options: OpenOptions) -> io::Result<Arc<dyn MappedFile>> {
    let failed = |operation: &'static str| move |error: Errno| DiskError::wrap(operation, path, error);
    let is_writable = options != OpenOptions::Read;
    let flags = if is_writable { OFlags::RDWR } else { OFlags::RDONLY } | OFlags::CLOEXEC;
    let file = retry_on_intr(|| open(path, flags, Mode::empty())).map_err(failed("open"))?;
    let status = fstat(&file).map_err(failed("stat"))?;
    let bytes = u64::try_from(status.st_size).unwrap_or(0);
    check_len(path, bytes)?;
    if is_writable {
        // A hole would end the process with SIGBUS where the file system has no space for it.
        retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes)).map_err(failed("fallocate"))?;
    }
    Ok(Arc::new(map(file, path, bytes, options)?))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    RealDir::open(parent)?.sync()
}

/// Takes the lock of a file: one process writes to it, or several read it.
fn lock(file: &OwnedFd, path: &Path, is_writable: bool) -> io::Result<()> {
    let operation = if is_writable {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match retry_on_intr(|| flock(file, operation)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let what = "another process, or another database of this one, has it open";
            Err(DiskError::wrap("flock", path, io::Error::new(io::ErrorKind::WouldBlock, what)))
        }
        Err(errno) => Err(DiskError::wrap("flock", path, errno)),
    }
}

fn map(file: OwnedFd, path: &Path, bytes: u64, options: OpenOptions) -> io::Result<RealMapped> {
    let failed = |error: Errno| DiskError::wrap("mmap", path, error);
    lock(&file, path, options != OpenOptions::Read)?;
    let file_system = Magic::new(retry_on_intr(|| fstatfs(&file)).map_err(failed)?.f_type);
    let len = usize::try_from(bytes).map_err(io::Error::other)?;
    let is_writable = options != OpenOptions::Read;
    let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let map = |flags: MapFlags| {
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let mapped = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file.as_fd(), 0) };
        mapped.map(|start| NonNull::new(start.cast::<u8>()).expect("a mapping is not at address 0"))
    };
    let (medium, start) = if file_system.is_memory() {
        (MemoryMedium::Volatile, map(MapFlags::SHARED).map_err(failed)?)
    } else {
        // The kernel refuses it unless all that makes stores durable is the processor's: no write of the file system's own records
        // about the file, and no virtual device that the host would have to flush.
        match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(start) => (MemoryMedium::Persistent, start),
            Err(errno) => return Err(refused(path, &file_system.name(), errno)),
        }
    };
    let mut mapped = RealMapped {
        start,
        len,
        medium,
        write_back: WriteBack::Nothing,
        is_writable,
        path: path.into(),
        process: Process::current(),
        watch: None,
        file: Mutex::new(None),
    };
    // SAFETY: the range is exactly the mapping from above.
    unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontFork) }.map_err(failed)?;
    if medium == MemoryMedium::Persistent {
        mapped.write_back = instruction(&file, path)?;
    }
    let watch = Watch::new(start.as_ptr(), len).map_err(|error| DiskError::wrap("sigaction", path, error))?;
    mapped.watch = Some(watch);
    *mapped.file.lock() = Some(file);
    Ok(mapped)
}

/// How stores to a file in persistent memory are made durable.
fn instruction(file: &OwnedFd, path: &Path) -> io::Result<WriteBack> {
    if device::directory(file).is_some_and(|device| caches_are_kept(&device)) {
        return Ok(WriteBack::Nothing);
    }
    let unknown = || {
        let what =
            "no instruction of this processor is known that writes its caches back to persistent memory";
        DiskError::wrap("mmap", path, io::Error::new(io::ErrorKind::Unsupported, what))
    };
    WriteBack::of_processor().ok_or_else(unknown)
}

fn refused(path: &Path, file_system: &str, errno: Errno) -> io::Error {
    let what = format!(
        "stores to a file of {file_system} there cannot be made durable by the processor alone (MAP_SYNC: {errno}): it takes \
         persistent memory with a file system that is mounted with DAX, or tmpfs, which survives the process only"
    );
    DiskError::wrap("mmap", path, io::Error::new(io::ErrorKind::Unsupported, what))
}

impl RealMapped {
    fn word(&self, offset: usize) -> &AtomicU64 {
        let index = word_index(offset, self.len);
        // SAFETY: the word is in the mapping, and aligned because that is; the users of the trait access it with other instructions
        // only while no thread uses it as a word.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u64>().add(index)) }
    }

    fn check_writable(&self) {
        assert!(self.is_writable, "{} was opened for reading", self.path.display());
    }
}

impl MappedFile for RealMapped {
    fn medium(&self) -> MemoryMedium {
        self.medium
    }

    fn len(&self) -> usize {
        self.len
    }

    fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn store_word(&self, offset: usize, word: u64) {
        self.check_writable();
        self.word(offset).store(word.to_le(), Ordering::Release);
    }

    fn load_word(&self, offset: usize) -> u64 {
        u64::from_le(self.word(offset).load(Ordering::Acquire))
    }

    fn write_back(&self, range: Range<usize>) -> io::Result<()> {
        self.check_writable();
        let lines = lines(&range, self.len);
        if self.write_back != WriteBack::Nothing {
            // SAFETY: the lines are in the mapping, whose length is a multiple of theirs; the processor has the instruction.
            unsafe {
                self.write_back.begin(self.start.as_ptr().add(lines.start * LINE_BYTES), lines.len());
            }
        }
        Ok(())
    }

    fn release(&self) {
        let Some(file) = self.file.try_lock().and_then(|mut file| file.take()) else { return };
        if self.process.is_current() {
            // A child that has the descriptor, too, would keep the lock.
            let _ = retry_on_intr(|| flock(&file, FlockOperation::Unlock));
        }
    }

    fn fence(&self) -> io::Result<()> {
        if self.medium == MemoryMedium::Persistent {
            self.write_back.end();
        }
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        match self.watch.as_ref().and_then(Watch::lost) {
            Some(at) => Err(DiskError::wrap("access", &self.path, lost_page(at))),
            None => Ok(()),
        }
    }
}

impl Drop for RealMapped {
    fn drop(&mut self) {
        self.release();
        self.watch = None;
        // In a child the range is free, or has something else by now.
        if !self.process.is_current() {
            return;
        }
        // SAFETY: the range is exactly the mapping, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
