//! Reads around the page cache.

use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use super::file::read_fully;
use crate::DIRECT_BYTES;

/// Addresses, offsets and lengths of direct reads are multiples of this many bytes.
const ALIGNMENT: usize = DIRECT_BYTES;

/// The most bytes of one direct read, which bounds the buffer.
const CHUNK: usize = 1 << 20;

/// A second descriptor of a file, opened when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Direct {
    descriptor: OnceLock<Option<OwnedFd>>,
    /// Set once a read was refused although the open was not.
    refused: AtomicBool,
}

impl Direct {
    /// Reads at `offset` until `buf` is full or the file ends.
    pub(super) fn read_at(&self, cached: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if let Some(descriptor) = self.descriptor(cached)?
            && !self.refused.load(Ordering::Relaxed)
        {
            match read_aligned(descriptor, buf, offset) {
                Err(Errno::INVAL | Errno::OPNOTSUPP) => self.refused.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        if let Some(len) = NonZeroU64::new(buf.len() as u64) {
            rustix::fs::fadvise(cached, offset, Some(len), Advice::DontNeed)?;
        }
        read_fully(cached, buf, offset)
    }

    /// The second descriptor; `None` if the file system has no direct reads. A process without a free descriptor gets
    /// an error: that says nothing about the file system.
    fn descriptor(&self, cached: &OwnedFd) -> Result<Option<&OwnedFd>, Errno> {
        if self.descriptor.get().is_none() {
            let opened = match reopen(cached, OFlags::RDONLY) {
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => return Err(errno),
                opened => opened.ok(),
            };
            return Ok(self.descriptor.get_or_init(|| opened).as_ref());
        }
        Ok(self.descriptor.get().and_then(Option::as_ref))
    }
}

/// Opens the same file again, by descriptor: the path may belong to another file by now.
pub(super) fn reopen(cached: &OwnedFd, access: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", cached.as_raw_fd());
    rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
}

fn read_aligned(descriptor: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let misaligned = buf.as_ptr().align_offset(ALIGNMENT) != 0 || !buf.len().is_multiple_of(ALIGNMENT);
    if !misaligned && offset.is_multiple_of(ALIGNMENT as u64) {
        return read_to_end(descriptor, buf, offset);
    }
    let mut filled = 0;
    let mut bounce = Bounce::new((buf.len() + 2 * ALIGNMENT).min(CHUNK));
    while filled < buf.len() {
        let at = offset + filled as u64;
        let skip = (at % ALIGNMENT as u64) as usize;
        let window = bounce.window();
        let wanted = (skip + buf.len() - filled).next_multiple_of(ALIGNMENT).min(window.len());
        let got = read_to_end(descriptor, &mut window[..wanted], at - skip as u64)?;
        let useful = got.saturating_sub(skip).min(buf.len() - filled);
        buf[filled..filled + useful].copy_from_slice(&window[skip..skip + useful]);
        filled += useful;
        if got < wanted {
            break;
        }
    }
    Ok(filled)
}

/// Reads into an aligned buffer until it is full or the file ends. A count that is not a multiple of the alignment
/// means the end of the file, so every read starts at an aligned offset.
fn read_to_end(descriptor: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buf.len() {
        match rustix::io::pread(descriptor, &mut buf[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => {
                filled += count;
                if !count.is_multiple_of(ALIGNMENT) {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// An aligned buffer, cut from a larger one.
struct Bounce {
    bytes: Vec<u8>,
    len: usize,
}

impl Bounce {
    fn new(len: usize) -> Bounce {
        let len = len.next_multiple_of(ALIGNMENT);
        Bounce { bytes: vec![0; len + ALIGNMENT], len }
    }

    fn window(&mut self) -> &mut [u8] {
        let start = self.bytes.as_ptr().align_offset(ALIGNMENT);
        &mut self.bytes[start..start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn unaligned_reads_go_through_an_aligned_buffer() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let flags = OFlags::RDWR | OFlags::CREATE;
        let path: &Path = &dir.path().join("f");
        let cached = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).expect("create");
        let bytes: Vec<u8> = (0..2_500_000u32).map(|i| (i / 5 % 251) as u8).collect();
        let mut written = 0;
        while written < bytes.len() {
            written += rustix::io::pwrite(&cached, &bytes[written..], written as u64).expect("write");
        }
        let Ok(descriptor) = reopen(&cached, OFlags::RDONLY) else {
            eprintln!("skipped: the file system refuses O_DIRECT");
            return;
        };
        for (offset, len) in [(0, 4_096), (1, 4_095), (4_095, 2), (5_000, 2_400_000), (2_499_990, 100)] {
            let mut buf = vec![0; len];
            let count = read_aligned(&descriptor, &mut buf, offset as u64).expect("accepted");
            assert_eq!(count, len.min(bytes.len() - offset), "{len} bytes at {offset}");
            assert!(buf[..count] == bytes[offset..offset + count], "{len} bytes at {offset}");
        }
    }
}
