//! Writes around the page cache.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags, fstatfs, statx};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::direct::reopen;
use super::file::write_fully;
use super::filesystem::Magic;
use crate::DIRECT_BYTES;

/// A second descriptor of a file, opened when it is first needed.
#[derive(Debug, Default)]
pub(super) struct DirectWriter {
    descriptor: OnceLock<OwnedFd>,
    /// Set once the kernel or the file system refused `RWF_DSYNC` on it.
    dsync_refused: AtomicBool,
}

impl DirectWriter {
    /// Writes all of `buf`; with `sync`, these bytes are durable afterwards. `OPNOTSUPP` if the file system takes no
    /// direct writes.
    pub(super) fn write(&self, cached: &OwnedFd, buf: &[u8], offset: u64, sync: bool) -> Result<(), Errno> {
        let descriptor = self.descriptor(cached)?;
        if sync && !self.dsync_refused.load(Ordering::Relaxed) {
            let written = write_fully(buf, offset, DIRECT_BYTES, |rest, at| {
                rustix::io::pwritev2(descriptor, &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC)
            });
            match written {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
                other => return other,
            }
        }
        match write_fully(buf, offset, DIRECT_BYTES, |rest, at| rustix::io::pwrite(descriptor, rest, at)) {
            Err(Errno::INVAL) => return Err(Errno::OPNOTSUPP),
            other => other?,
        }
        if sync {
            self.dsync_refused.store(true, Ordering::Relaxed);
            retry_on_intr(|| rustix::fs::fdatasync(cached))?;
        }
        Ok(())
    }

    /// Whether direct writes reach the device: the file system accepts them and does not silently buffer them. After a
    /// yes no write has to open anything.
    pub(super) fn takes_writes(&self, cached: &OwnedFd) -> Result<bool, Errno> {
        match self.descriptor(cached) {
            Ok(_) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::BADF) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The second descriptor. Refused if the first one is read-only: opening through `/proc` checks the rights to the
    /// file, not those of the descriptor.
    fn descriptor(&self, cached: &OwnedFd) -> Result<&OwnedFd, Errno> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor);
        }
        if !rustix::fs::fcntl_getfl(cached)?.contains(OFlags::RDWR) {
            return Err(Errno::BADF);
        }
        if !promised(cached) {
            return Err(Errno::OPNOTSUPP);
        }
        match retry_on_intr(|| reopen(cached, OFlags::RDWR)) {
            Ok(opened) => Ok(self.descriptor.get_or_init(|| opened)),
            // `NOENT`: there is no `/proc`. A file without a name gives another error.
            Err(Errno::INVAL | Errno::NOENT | Errno::ACCESS | Errno::PERM) => Err(Errno::OPNOTSUPP),
            Err(errno) => Err(errno),
        }
    }
}

/// Whether direct writes reach the device, without trying one. A kernel that reports the alignment of direct I/O also
/// reports whether there is any. On other kernels, only file systems known to pass on the direct writes that they
/// accept count as yes.
fn promised(cached: &OwnedFd) -> bool {
    let Ok(magic) = fstatfs(cached).map(|status| Magic::new(status.f_type)) else { return false };
    if magic.is_memory() {
        return false;
    }
    match statx(cached, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(status) if status.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            fits(status.stx_dio_mem_align) && fits(status.stx_dio_offset_align)
        }
        _ => magic.writes_directly(),
    }
}

/// Whether multiples of [`DIRECT_BYTES`] satisfy an alignment; 0 means that there is no direct I/O.
fn fits(alignment: u32) -> bool {
    alignment != 0 && DIRECT_BYTES.is_multiple_of(alignment as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alignment_fits_if_it_divides_the_block() {
        let fitting: Vec<u32> =
            [0, 1, 4, 512, 4_096, 8_192, 65_536].into_iter().filter(|a| fits(*a)).collect();
        assert_eq!(fitting, [1, 4, 512, 4_096]);
    }
}
