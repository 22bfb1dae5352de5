//! Counts the file operations of the whole process. It defines the functions of the C library for reads, writes and
//! syncs; each counts and makes the system call. An executable that calls [`counts`] is linked with them, and exports
//! them, so that shared libraries find them before those of the C library.
//!
//! Only regular files count, and syncs of anything. A file that is written through a mapping counts when it is synced.
//! Direct system calls, such as Fulgurite's, are not counted, nor are the streams of the C library.
//!
//! The kind of a descriptor is asked of the kernel once, and cleared when the descriptor is opened or closed.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use fulgurite_bench::{IoCounters, IoCounts};
use libc::{iovec, mode_t, off_t, size_t, ssize_t};

/// Descriptors from here on are not tracked.
const DESCRIPTORS: usize = 1 << 16;

const _: () = assert!(size_of::<off_t>() == 8 && size_of::<usize>() == 8, "offsets go into one register");

/// The kind of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Unknown = 0,
    /// No regular file.
    Other = 1,
    File = 2,
    /// A regular file whose writes return when they are durable.
    SyncedFile = 3,
}

/// The [`Kind`] of each descriptor.
static KINDS: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(Kind::Unknown as u8) }; DESCRIPTORS];
/// Where the last write through each descriptor ended.
static ENDS: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

static COUNTERS: IoCounters = IoCounters::new();

/// The file operations of the process since it began, through the C library.
pub fn counts() -> IoCounts {
    COUNTERS.counts()
}

/// A descriptor within the tables.
#[derive(Clone, Copy)]
struct Descriptor {
    fd: c_int,
    index: usize,
}

impl Descriptor {
    fn of(fd: c_int) -> Option<Descriptor> {
        let index = usize::try_from(fd).ok().filter(|index| *index < DESCRIPTORS)?;
        Some(Descriptor { fd, index })
    }

    fn forget(self) {
        KINDS[self.index].store(Kind::Unknown as u8, Relaxed);
    }

    fn kind(self) -> Kind {
        match KINDS[self.index].load(Relaxed) {
            1 => Kind::Other,
            2 => Kind::File,
            3 => Kind::SyncedFile,
            _ => self.look(),
        }
    }

    #[cold]
    fn look(self) -> Kind {
        // SAFETY: `stat` is plain data, for which zeros are valid.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills in `stat`, or says that there is no such descriptor.
        if unsafe { libc::fstat(self.fd, &mut stat) } != 0 {
            return Kind::Other;
        }
        // SAFETY: this only reads flags.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFL) };
        let kind = match (stat.st_mode & libc::S_IFMT == libc::S_IFREG, flags & libc::O_DSYNC != 0) {
            (false, _) => Kind::Other,
            (true, false) => Kind::File,
            (true, true) => Kind::SyncedFile,
        };
        ENDS[self.index].store(0, Relaxed);
        KINDS[self.index].store(kind as u8, Relaxed);
        kind
    }

    /// The offset of the next read or write without an offset of its own.
    fn position(self) -> u64 {
        // SAFETY: this moves nothing.
        let at = unsafe { libc::lseek(self.fd, 0, libc::SEEK_CUR) };
        at.max(0) as u64
    }
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Makes a call that returns when data is durable, and counts it if it succeeds.
fn synced(call: impl FnOnce() -> c_long) -> c_long {
    let began_ns = now_ns();
    let result = call();
    if result >= 0 {
        COUNTERS.sync(now_ns() - began_ns);
    }
    result
}

/// Makes a call that reads, and counts it if it reads from a file.
fn read_from(fd: c_int, call: impl FnOnce() -> c_long) -> ssize_t {
    let result = call();
    let is_file = Descriptor::of(fd).is_some_and(|descriptor| descriptor.kind() != Kind::Other);
    if let (Ok(bytes), true) = (u64::try_from(result), is_file) {
        COUNTERS.read(bytes);
    }
    result as ssize_t
}

/// Makes a call that writes, at `offset` or (negative) at the file's position, and counts it if it writes to a file.
fn write_to(fd: c_int, offset: off_t, is_synced: bool, call: impl FnOnce() -> c_long) -> ssize_t {
    let descriptor = Descriptor::of(fd).map(|descriptor| (descriptor, descriptor.kind()));
    let Some((descriptor, kind @ (Kind::File | Kind::SyncedFile))) = descriptor else {
        return call() as ssize_t;
    };
    let result = match is_synced || kind == Kind::SyncedFile {
        true => synced(call),
        false => call(),
    };
    if let Ok(bytes) = u64::try_from(result) {
        let begin = u64::try_from(offset).unwrap_or_else(|_| descriptor.position().saturating_sub(bytes));
        COUNTERS.write(&ENDS[descriptor.index], begin, bytes);
    }
    result as ssize_t
}

fn opened(result: c_long) -> c_int {
    if let Some(descriptor) = Descriptor::of(result as c_int) {
        descriptor.forget();
    }
    result as c_int
}

/// Makes a system call: the C library's `syscall` sets `errno` as its wrappers do. All arguments fit into registers.
macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: these are the arguments of the caller of the C function, and meeting its contract is that caller's
        // duty.
        unsafe { libc::syscall(libc::$number $(, $argument)*) }
    };
}

/// Defines functions of the C library under several names.
macro_rules! define {
    ($(fn [$($name:ident)+] $arguments:tt -> $result:ty $body:block)+) => {
        $($(
            // SAFETY: the function does what the C library's of this name does.
            #[unsafe(no_mangle)]
            extern "C" fn $name $arguments -> $result $body
        )+)+
    };
}

define! {
    fn [fsync] (fd: c_int) -> c_int {
        synced(|| call!(SYS_fsync, fd)) as c_int
    }

    fn [fdatasync] (fd: c_int) -> c_int {
        synced(|| call!(SYS_fdatasync, fd)) as c_int
    }

    fn [msync] (begin: *mut c_void, len: size_t, flags: c_int) -> c_int {
        let call = || call!(SYS_msync, begin, len, flags);
        let result = if flags & libc::MS_SYNC != 0 { synced(call) } else { call() };
        result as c_int
    }

    fn [read] (fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
        read_from(fd, || call!(SYS_read, fd, buf, len))
    }

    fn [pread pread64] (fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
        read_from(fd, || call!(SYS_pread64, fd, buf, len, offset))
    }

    fn [readv] (fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
        read_from(fd, || call!(SYS_readv, fd, pieces, count))
    }

    fn [preadv preadv64] (fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        read_from(fd, || call!(SYS_preadv, fd, pieces, count, offset, 0))
    }

    fn [preadv2 preadv64v2] (fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        read_from(fd, || call!(SYS_preadv2, fd, pieces, count, offset, 0, flags))
    }

    fn [write] (fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
        write_to(fd, -1, false, || call!(SYS_write, fd, buf, len))
    }

    fn [pwrite pwrite64] (fd: c_int, buf: *const c_void, len: size_t, offset: off_t) -> ssize_t {
        write_to(fd, offset, false, || call!(SYS_pwrite64, fd, buf, len, offset))
    }

    fn [writev] (fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
        write_to(fd, -1, false, || call!(SYS_writev, fd, pieces, count))
    }

    fn [pwritev pwritev64] (fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        write_to(fd, offset, false, || call!(SYS_pwritev, fd, pieces, count, offset, 0))
    }

    fn [pwritev2 pwritev64v2] (fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        let is_synced = flags & libc::RWF_DSYNC != 0 || flags & libc::RWF_SYNC != 0;
        write_to(fd, offset, is_synced, || call!(SYS_pwritev2, fd, pieces, count, offset, 0, flags))
    }

    // The C library's functions take the mode as a variable argument: in the same register if it is given, unused if
    // not.
    fn [open open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened(call!(SYS_openat, libc::AT_FDCWD, path, flags, mode as c_uint))
    }

    fn [openat openat64] (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened(call!(SYS_openat, dir, path, flags, mode as c_uint))
    }

    fn [close] (fd: c_int) -> c_int {
        if let Some(descriptor) = Descriptor::of(fd) {
            descriptor.forget();
        }
        call!(SYS_close, fd) as c_int
    }
}
