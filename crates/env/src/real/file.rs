//! An open file of the machine.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::direct::Direct;
use super::direct_write::DirectWriter;
use crate::aligned::assert_direct;
use crate::{DiskError, File, Process};

/// The most pieces that one `pwritev` takes (`IOV_MAX` of Linux).
const PIECES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct RealFile {
    descriptor: OwnedFd,
    path: PathBuf,
    process: Process,
    direct: Direct,
    direct_writer: DirectWriter,
    /// Set once the kernel or the file system refused `RWF_DSYNC`.
    dsync_refused: AtomicBool,
}

impl RealFile {
    pub(super) fn new(descriptor: OwnedFd, path: &Path, process: Process) -> RealFile {
        RealFile {
            descriptor,
            path: path.to_path_buf(),
            process,
            direct: Direct::default(),
            direct_writer: DirectWriter::default(),
            dsync_refused: AtomicBool::new(false),
        }
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Errno) -> io::Error + '_ {
        move |errno| DiskError::wrap(operation, &self.path, errno)
    }

    /// Fails in a child of the process that opened the file: the child does not know its parent's later writes.
    fn check_process(&self, operation: &'static str) -> io::Result<()> {
        self.process.check(operation, &self.path)
    }

    fn sync(&self) -> Result<(), Errno> {
        retry_on_intr(|| rustix::fs::fdatasync(&self.descriptor))
    }

    fn write_piece(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_fully(buf, offset, 1, |rest, at| rustix::io::pwrite(&self.descriptor, rest, at))
            .map_err(self.failed("pwrite"))
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_fully(&self.descriptor, buf, offset).map_err(self.failed("pread"))
    }

    fn read_at_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.direct.read_at(&self.descriptor, buf, offset).map_err(self.failed("direct pread"))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_process("pwrite")?;
        self.write_piece(buf, offset)
    }

    fn write_vectored_at(&self, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.check_process("pwritev")?;
        let mut offset = offset;
        for batch in pieces.chunks(PIECES_MAX) {
            let taken = retry_on_intr(|| rustix::io::pwritev(&self.descriptor, batch, offset))
                .map_err(self.failed("pwritev"))?;
            let mut skip = taken;
            for piece in batch {
                let rest = &piece[skip.min(piece.len())..];
                skip -= piece.len() - rest.len();
                let rest_at = offset + (piece.len() - rest.len()) as u64;
                self.write_piece(rest, rest_at)?;
                offset += piece.len() as u64;
            }
        }
        Ok(())
    }

    fn write_at_dsync(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_process("pwritev2")?;
        if !self.dsync_refused.load(Ordering::Relaxed) {
            let written = write_fully(buf, offset, 1, |rest, at| {
                rustix::io::pwritev2(&self.descriptor, &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC)
            });
            match written {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.dsync_refused.store(true, Ordering::Relaxed);
                }
                other => return other.map_err(self.failed("pwritev2")),
            }
        }
        self.write_piece(buf, offset)?;
        self.sync().map_err(self.failed("fdatasync"))
    }

    fn write_direct(&self, buf: &[u8], offset: u64, sync: bool) -> io::Result<()> {
        assert_direct(buf, offset);
        self.check_process("direct pwrite")?;
        let written = self.direct_writer.write(&self.descriptor, buf, offset, sync);
        written.map_err(self.failed("direct pwrite"))
    }

    fn takes_direct_writes(&self) -> io::Result<bool> {
        self.direct_writer.takes_writes(&self.descriptor).map_err(self.failed("direct open"))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync().map_err(self.failed("fdatasync"))
    }

    fn len(&self) -> io::Result<u64> {
        let status = rustix::fs::fstat(&self.descriptor).map_err(self.failed("fstat"))?;
        Ok(u64::try_from(status.st_size).unwrap_or(0))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_process("ftruncate")?;
        retry_on_intr(|| rustix::fs::ftruncate(&self.descriptor, len)).map_err(self.failed("ftruncate"))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.check_process("fallocate")?;
        retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, FallocateFlags::empty(), 0, bytes))
            .map_err(self.failed("fallocate"))
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let status = rustix::fs::fstat(&self.descriptor).map_err(self.failed("fstat"))?;
        Ok(u64::try_from(status.st_blocks).unwrap_or(0) * 512)
    }

    fn punch_hole_from(&self, offset: u64) -> io::Result<()> {
        self.check_process("fallocate")?;
        let len = self.len()?.saturating_sub(offset);
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, flags, offset, len))
            .map_err(self.failed("fallocate"))
    }
}

/// Reads until `buf` is full or the file ends.
pub(super) fn read_fully(descriptor: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buf.len() {
        match rustix::io::pread(descriptor, &mut buf[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Calls `write` until it took all of `buf`, in whole units of `unit` bytes: a unit that a call took in part is passed
/// again. A call that takes no unit without an error is an `EIO`.
pub(super) fn write_fully(
    mut buf: &[u8],
    mut offset: u64,
    unit: usize,
    mut write: impl FnMut(&[u8], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    while !buf.is_empty() {
        match write(buf, offset) {
            Ok(count) if count < unit => return Err(Errno::IO),
            Ok(count) => {
                let taken = count - count % unit;
                buf = &buf[taken..];
                offset += taken as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_interrupted_writes_are_continued() {
        let mut written = Vec::new();
        let mut calls = 0;
        write_fully(b"abcdefg", 10, 1, |rest, at| {
            calls += 1;
            if calls % 2 == 0 {
                return Err(Errno::INTR);
            }
            let taken = rest.len().min(3);
            written.push((at, rest[..taken].to_vec()));
            Ok(taken)
        })
        .expect("nothing fails for good");
        assert_eq!(written, [(10, b"abc".to_vec()), (13, b"def".to_vec()), (16, b"g".to_vec())]);
    }

    #[test]
    fn a_unit_that_was_written_in_part_is_written_again() {
        let mut calls = Vec::new();
        let mut results = [Ok(4_096 + 512), Err(Errno::INTR), Ok(8_192)].into_iter();
        write_fully(&[0; 12_288], 4_096, 4_096, |rest, at| {
            calls.push((at, rest.len()));
            results.next().expect("three calls")
        })
        .expect("nothing fails for good");
        assert_eq!(calls, [(4_096, 12_288), (8_192, 8_192), (8_192, 8_192)]);
    }

    #[test]
    fn a_write_that_gets_nowhere_is_an_error() {
        assert_eq!(write_fully(&[0; 4_096], 0, 4_096, |_, _| Ok(512)), Err(Errno::IO));
        assert_eq!(write_fully(&[0; 4_096], 0, 4_096, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(write_fully(&[], 0, 4_096, |_, _| Ok(0)), Ok(()));
    }

    #[test]
    fn a_full_disk_behind_a_short_write_is_an_error() {
        let mut calls = 0;
        let result = write_fully(b"abcdefg", 0, 1, |_, _| {
            calls += 1;
            if calls == 1 { Ok(3) } else { Err(Errno::NOSPC) }
        });
        assert_eq!(result, Err(Errno::NOSPC));
        assert_eq!(write_fully(b"abc", 0, 1, |_, _| Ok(0)), Err(Errno::IO));
    }
}
