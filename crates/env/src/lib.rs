//! The only user of files, clocks, threads and randomness. All other code reaches the outside through [`Env`]. One
//! implementation is the machine ([`RealEnv`]), the other a simulation ([`SimEnv`]) whose disk can tear, reorder, lose
//! and fail all that a real disk may.
//!
//! A disk promises exactly this, and the simulation nothing more:
//! - a write is *complete* when the call returns; complete is not durable;
//! - [`File::sync_data`] makes durable every write to the file that was complete when it was called, and its length;
//! - [`File::write_at_dsync`] makes durable the bytes that it wrote, and the length if they changed it, *nothing else*;
//!   so does [`File::write_direct`] with `sync`;
//! - a name that was created, renamed or removed is durable after [`Dir::sync`] of its directory;
//! - until then a power cut leaves any subset, in units of 512 bytes, in any order; a killed process loses nothing
//!   complete;
//! - a crash of the operating system leaves everything that the *device* has, and of the rest what a power cut may
//!   leave. A complete direct write is in the device up to the length that a sync covered, a buffered write only after
//!   a sync. A power cut treats the two alike, unless the device's cache is known to be power-safe: then it leaves what
//!   a crash of the operating system leaves;
//! - a failed sync says nothing about which writes are durable, and neither does the next one that succeeds.
//!
//! A disk's error names the operation and the path; its [`io::ErrorKind`] is the operating system's, and
//! [`raw_os_error`] returns the number (see [`DiskError`]).

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

mod aligned;
mod device;
mod error;
mod mapped;
mod real;
pub mod sim;
mod thread;

pub use aligned::{AlignedBuf, DIRECT_BYTES};
pub use device::DeviceInfo;
pub use error::{DiskError, is_disk_full, is_out_of_files, raw_os_error};
pub use mapped::{LINE_BYTES, MAPPED_BYTES, MappedFile, MemoryMedium, WORD_BYTES};
pub use real::{Allocator, Process, RealEnv, limit_arenas, limit_arenas_to, use_allocator};
pub use sim::SimEnv;

/// The memory that a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident bytes of its own, not of files.
    pub resident_bytes: u64,
    /// Bytes that the program has freed and the allocator has not given back, to be used again; some of them may not be
    /// resident. `None` if the allocator does not say.
    pub freed_bytes: Option<u64>,
}

/// How often threads of a process gave a processor up, since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSwitches {
    /// To wait for something.
    pub voluntary: u64,
    /// Because others had their turn.
    pub involuntary: u64,
}

/// The outside world: one value, passed down by the opener of a database.
pub trait Env: fmt::Debug + Send + Sync + 'static {
    /// Files and directories.
    fn disk(&self) -> &dyn Disk;
    /// Time.
    fn clock(&self) -> &dyn Clock;
    /// An unpredictable number: for database identities, skip list heights.
    fn random_u64(&self) -> u64;
    /// How much memory this process may use, if that is known.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }
    /// The memory that this process has, if that is known.
    fn process_memory(&self) -> Option<ProcessMemory> {
        None
    }
    /// The context switches of this process, if they are known.
    fn context_switches(&self) -> Option<ContextSwitches> {
        None
    }
    /// Has the allocator give memory back to the operating system that the program has freed, if more than `resident` bytes of its
    /// own are resident. Takes tens of milliseconds then; returns whether it did.
    fn trim_memory(&self, resident: u64) -> bool {
        let _ = resident;
        false
    }
    /// Has the other threads of the machine run first, where they compete with the calling one for processors, from now on.
    fn lower_priority(&self) {}
    /// Starts a named thread. Fails if the operating system refuses one.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>>;
}

/// A started thread.
pub trait Joiner: Send + Sync {
    /// Waits for its end; true if it returned, false if it panicked. A thread that joins itself does not wait, and the
    /// call returns true: the thread ends later, by itself.
    fn join(self: Box<Self>) -> bool;
}

/// Wall and monotonic time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970-01-01 UTC. May jump in both directions.
    fn wall_ms(&self) -> u64;
    /// Nanoseconds since a fixed point, including the time for which the machine was suspended. Never goes back.
    fn monotonic_ns(&self) -> u64;
    /// Blocks the calling thread.
    fn sleep(&self, duration: Duration);

    /// For a thread that is going to wait for events of the operating system, for `duration` at most: how long that is by the system's own
    /// clock. In simulation the time has passed when this returns, and it is none.
    fn before_events(&self, duration: Duration) -> Duration {
        duration
    }
}

/// A file system, by path.
///
/// A path is resolved at the call: after a directory was moved, or the working directory changed, it means something
/// else. A longer-lived user holds a [`Dir`].
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a directory and its parents; succeeds if it exists. Durable after the parent was synced.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Opens a directory.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Opens a file.
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let (dir, name) = self.parent(path)?;
        dir.open(name, options)
    }

    /// Creates a file of `bytes` zeros and maps it; [`MappedFile`] has the promises of its memory. All of its space is allocated, so
    /// that no store can fail, and its name is as durable as its content can be. `bytes` is a multiple of [`MAPPED_BYTES`] above 0.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken; [`io::ErrorKind::Unsupported`], with the reason, where the processor
    /// alone cannot make stores durable and the file system is none in memory; [`io::ErrorKind::InvalidInput`] for another length.
    /// Nothing was created.
    fn create_mapped(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn MappedFile>> {
        let _ = bytes;
        Err(DiskError::wrap("mmap", path, io::ErrorKind::Unsupported))
    }

    /// Maps a file that exists, as a whole; with [`OpenOptions::Read`] for reading.
    ///
    /// # Errors
    /// As [`Disk::create_mapped`], and [`io::ErrorKind::NotFound`].
    fn open_mapped(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn MappedFile>> {
        let _ = options;
        Err(DiskError::wrap("mmap", path, io::ErrorKind::Unsupported))
    }

    /// [`Dir::list`] of the directory `path`.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.open_dir(path)?.list()
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        dir.remove(name)
    }

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.open_dir(path)?.sync()
    }

    /// [`Dir::free_bytes`] of the directory `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.open_dir(path)?.free_bytes()
    }

    /// [`Dir::device`] of the directory `path`.
    fn device(&self, path: &Path) -> io::Result<DeviceInfo> {
        self.open_dir(path)?.device()
    }

    /// The directory that holds the file `path`, opened, and the name of the file in it.
    fn parent<'p>(&self, path: &'p Path) -> io::Result<(Arc<dyn Dir>, &'p str)> {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "this is no name of a file in UTF-8");
            return Err(DiskError::wrap("open", path, why));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((self.open_dir(parent.unwrap_or(Path::new(".")))?, name))
    }
}

/// An open directory: it stays the same directory even if its path or the working directory changes. Names are those of
/// entries directly in it.
pub trait Dir: fmt::Debug + Send + Sync {
    /// The absolute path that it had when it was opened. For messages only: another directory may have it by now.
    fn path(&self) -> &Path;
    /// Opens a file.
    fn open(&self, name: &str, options: OpenOptions) -> io::Result<Arc<dyn File>>;
    /// Opens a directory in it.
    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>>;
    /// Creates a directory; fails with [`io::ErrorKind::AlreadyExists`] if the name is taken. Durable after
    /// [`Dir::sync`].
    fn create_dir(&self, name: &str) -> io::Result<()>;
    /// The names (not paths) of the entries, sorted, with their kinds and lengths.
    fn list(&self) -> io::Result<Vec<DirEntry>>;
    /// Renames a file; fails with [`io::ErrorKind::AlreadyExists`] if `to` is taken. Durable after [`Dir::sync`]; on
    /// file systems without an atomic form of this a crash may leave the file with both names.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names in it durable.
    fn sync(&self) -> io::Result<()>;
    /// How many bytes an unprivileged process may still write to its file system; [`u64::MAX`] if the file system does
    /// not say how large it is.
    fn free_bytes(&self) -> io::Result<u64>;
    /// A description of the file system and the device below it. An unknown property is not an error.
    fn device(&self) -> io::Result<DeviceInfo>;
    /// Locks the directory, and the file `name` in it. The lock ends with the value, or with the process.
    ///
    /// [`LockMode::Exclusive`] creates the file and writes the process id into it. [`LockMode::Shared`] writes nothing,
    /// and does without the file if there is none. The lock on the directory excludes others even if the file is
    /// removed or replaced; the one on the file works on file systems that cannot lock directories. A child of `fork()`
    /// does not have the lock, and cannot release it.
    fn lock(&self, name: &str, mode: LockMode) -> io::Result<Locking>;
}

/// Which other locks a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Every other lock.
    Exclusive,
    /// Exclusive locks.
    Shared,
}

/// The result of an attempt to lock.
#[derive(Debug)]
pub enum Locking {
    /// The lock.
    Taken(Box<dyn Lock>),
    /// Another handle has a lock that excludes this one.
    Held(LockHolder),
}

/// A description of a lock's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Whether this process has locked the directory.
    pub this_process: bool,
    /// Whether the lock is shared: it excludes exclusive ones only, and several handles may have it.
    pub is_shared: bool,
    /// The last process that locked it exclusively, as it wrote into the file: a number in that process's namespace. `None`
    /// if the lock is shared: that process is gone.
    pub pid: Option<u32>,
    /// When it did so, in milliseconds since 1970-01-01 UTC; `None` if the lock is shared.
    pub since_ms: Option<u64>,
}

/// A held lock; dropping it releases it.
pub trait Lock: fmt::Debug + Send + Sync {}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name without the directory. A name that is not UTF-8 has replacement characters.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The length in bytes; 0 for a directory.
    pub len: u64,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOptions {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// For reading and writing; fails with [`io::ErrorKind::AlreadyExists`] if the name is taken.
    CreateNew,
}

/// An open file. All methods may be called from several threads at once.
pub trait File: fmt::Debug + Send + Sync {
    /// Reads at `offset` until `buf` is full or the file ends; returns the count.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Like [`File::read_at`], but reads what the device holds, not the page cache: after a failed sync the two may
    /// differ permanently. Dirty pages go to the device first, so a kill hides nothing; that does not make them
    /// durable. Falls back to dropping the cache first where the file system refuses direct reads.
    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` at `offset`, extending the file if necessary.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes the pieces one after the other at `offset`, in one system call where the kernel allows it.
    fn write_vectored_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` and returns when exactly these bytes are durable.
    fn write_at_dsync(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` around the page cache, in one system call where the kernel allows it. With `sync`, returns
    /// when exactly these bytes are durable, and the length if they changed it. Dirty pages with the same bytes are
    /// written back first, so the newest state reaches the device last.
    ///
    /// Fails with [`io::ErrorKind::Unsupported`] where [`File::takes_direct_writes`] is false. A failed write may have
    /// written any part.
    ///
    /// # Panics
    ///
    /// Unless the address and the length of `buf` and `offset` are multiples of [`DIRECT_BYTES`]: take the memory from
    /// an [`AlignedBuf`].
    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()>;

    /// Whether the file system takes direct writes to this file and passes them to a device; a file system that accepts
    /// and buffers them counts as no. False if the file was opened for reading. Changes nothing. Fails if this cannot
    /// be determined: for example, the process has no descriptor left for it. After a yes, writes need no further
    /// descriptor.
    fn takes_direct_writes(&self) -> io::Result<bool>;

    /// Makes durable every write that was complete at the call, and the length.
    fn sync_data(&self) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Allocates the first `bytes` of the file, and extends it to that length if it is shorter. The bytes that it has
    /// stay, and holes are filled; new ones read as zeros. After the next sync a write to this range finds its space.
    ///
    /// Fails with [`io::ErrorKind::Unsupported`] where the file system cannot do it without writing; nothing has
    /// changed then. After any other failure a part may be allocated.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// How many bytes of the disk the file takes, about: less than its length if it has holes.
    fn allocated_bytes(&self) -> io::Result<u64>;

    /// Gives the space from `offset`, a multiple of 4096, to the end of the file back to the file system. The length
    /// stays, the range reads as zeros, and a later write to it takes space again.
    ///
    /// Fails with [`io::ErrorKind::Unsupported`] where the file system has no holes; nothing has changed then.
    fn punch_hole_from(&self, offset: u64) -> io::Result<()>;

    /// Reads exactly `buf.len()` bytes; [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let wanted = buf.len();
        let got = self.read_at(buf, offset)?;
        if got == wanted {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("wanted {wanted} bytes at offset {offset}, the file ends after {got}"),
        ))
    }
}
