//! The machine's file system.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use super::file::RealFile;
use crate::{DeviceInfo, DirEntry, Disk, DiskError, File, Lock, OpenOptions};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    #[expect(clippy::disallowed_methods, reason = "this is the disk that others are told to use")]
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path).map_err(|e| DiskError::wrap("mkdir", path, e))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let flags = OFlags::CLOEXEC
            | match options {
                OpenOptions::Read => OFlags::RDONLY,
                OpenOptions::Write => OFlags::RDWR,
                OpenOptions::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            };
        let descriptor = retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)))
            .map_err(|e| DiskError::wrap("open", path, e))?;
        Ok(Arc::new(RealFile::new(descriptor, path)))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the disk that others are told to use")]
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let failed = |e| DiskError::wrap("readdir", path, e);
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(DiskError::wrap("stat", &entry.path(), e)),
            };
            let is_dir = metadata.is_dir();
            entries.push(DirEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_dir,
                len: if is_dir { 0 } else { metadata.len() },
            });
        }
        entries.sort();
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        rustix::fs::rename(from, to).map_err(|e| DiskError::wrap("rename", from, e))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        rustix::fs::unlink(path).map_err(|e| DiskError::wrap("unlink", path, e))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|e| DiskError::wrap("open", path, e))?;
        retry_on_intr(|| rustix::fs::fsync(&descriptor)).map_err(|e| DiskError::wrap("fsync", path, e))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let status =
            retry_on_intr(|| rustix::fs::statvfs(path)).map_err(|e| DiskError::wrap("statvfs", path, e))?;
        // Some file systems count no blocks at all (of the kernel's own, of FUSE, of networks): that is not a full one.
        if status.f_blocks == 0 {
            return Ok(u64::MAX);
        }
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn device(&self, path: &Path) -> io::Result<DeviceInfo> {
        super::device::device(path).map_err(|e| DiskError::wrap("statfs", path, e))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        super::lock::lock(path)
    }
}
