//! The only user of files, clocks, threads and randomness. Everything above reaches the outside through [`Env`], so
//! that one implementation is the machine ([`RealEnv`]) and another a simulation ([`SimEnv`]) in which a disk can
//! tear, reorder, lose and fail whatever a disk may.
//!
//! A disk promises exactly this, and the simulation nothing more:
//! - a write is *complete* when the call returns, and complete is not durable;
//! - [`File::sync_data`] makes durable every write to the file that was complete when it was called, and its length;
//! - [`File::write_at_dsync`] makes durable the bytes it wrote, and the length if they changed it, *nothing else*; so
//!   does [`File::write_direct`] when told to sync;
//! - a name that was created, renamed or removed is durable after [`Disk::sync_dir`] of its directory;
//! - until then a power cut leaves any subset, at 512 bytes, in any order; a killed process loses nothing complete;
//! - a crash of the operating system leaves everything that the *device* has, and of the rest what a power cut may
//!   leave: a complete direct write is in the device where the length that a sync covered reaches, a buffered one only
//!   after a sync. A power cut treats the two alike, unless the device's cache is known to be power-safe: then it
//!   leaves what a crash of the operating system leaves;
//! - a failed sync says nothing about what is durable, and the next one that succeeds does not either.
//!
//! An error of a disk names the operation and the path; its [`io::ErrorKind`] is the one of the operating system, and
//! [`raw_os_error`] gives the number (see [`DiskError`]).

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

mod aligned;
mod device;
mod error;
mod real;
pub mod sim;
mod thread;

pub use aligned::{AlignedBuf, DIRECT_BYTES};
pub use device::DeviceInfo;
pub use error::{DiskError, raw_os_error};
pub use real::RealEnv;
pub use sim::SimEnv;

/// The outside world: one value, handed down from whoever opens a database.
pub trait Env: fmt::Debug + Send + Sync + 'static {
    /// Files and directories.
    fn disk(&self) -> &dyn Disk;
    /// Time.
    fn clock(&self) -> &dyn Clock;
    /// A number that nobody can predict: database identities, skip list heights.
    fn random_u64(&self) -> u64;
    /// Starts a named thread. Fails if the operating system refuses one.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Joiner>>;
}

/// A started thread.
pub trait Joiner: Send + Sync {
    /// Waits for its end; true if it returned, false if it panicked.
    fn join(self: Box<Self>) -> bool;
}

/// Wall and monotonic time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970-01-01 UTC. May jump in both directions.
    fn wall_ms(&self) -> u64;
    /// Nanoseconds since some fixed point. Never runs back.
    fn monotonic_ns(&self) -> u64;
    /// Blocks the calling thread.
    fn sleep(&self, duration: Duration);
}

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a directory and its parents; fine if it exists. Durable after the parent was synced.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Opens a file.
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;
    /// The names (not paths) of the entries of a directory, sorted, with their kinds and lengths.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// How many bytes an unprivileged process may still write below `path`; `u64::MAX` where the file system does not
    /// say, which those do that count no blocks.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// What is known of the file system and the device below `path`. What is not known is no error.
    fn device(&self, path: &Path) -> io::Result<DeviceInfo>;
    /// Takes an exclusive lock on the file `path`, creating it; it ends with the value, or with the process.
    /// `Ok(None)` if somebody else holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;
}

/// A held lock; dropping it lets go.
pub trait Lock: fmt::Debug + Send + Sync {}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name without the directory. A name that is not UTF-8 is given with replacement characters.
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

    /// Like [`File::read_at`], but what the device holds rather than what the page cache believes: after a failed sync
    /// the two may differ for good. Writes that the kernel still has to write back go to the device first, so a kill
    /// hides nothing; they are not durable by that. Falls back to dropping the cache first where the file system
    /// refuses direct reads.
    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` at `offset`, extending the file if need be.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes the pieces one behind the other at `offset`, in one system call where the kernel takes it.
    fn write_vectored_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` and returns when exactly these bytes are durable.
    fn write_at_dsync(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` around the page cache, in one system call where the kernel takes it; with `sync`, returns
    /// when exactly these bytes are durable, and the length if they changed it. Buffered writes of the same bytes that
    /// are still to be written back go first, so the newest state is the last on its way.
    ///
    /// Fails with [`io::ErrorKind::Unsupported`] where [`File::takes_direct_writes`] is false. A failed write may have
    /// written any part.
    ///
    /// # Panics
    ///
    /// Unless the address and the length of `buf` and `offset` are multiples of [`DIRECT_BYTES`]: take the memory from
    /// an [`AlignedBuf`].
    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()>;

    /// Whether the file system takes direct writes to this file and passes them to a device; some accept them and
    /// buffer them, which counts as no. False if the file was opened for reading. Changes nothing.
    fn takes_direct_writes(&self) -> bool;

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
