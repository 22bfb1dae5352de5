//! An open directory of the machine: a descriptor, and names relative to it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

use super::file::RealFile;
use crate::{DeviceInfo, Dir, DirEntry, DiskError, File, LockMode, Locking, OpenOptions, Process};

#[derive(Debug)]
pub(super) struct RealDir {
    descriptor: OwnedFd,
    path: PathBuf,
    /// The process that opened it: a child of `fork()` must not change names.
    process: Process,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl RealDir {
    pub(super) fn open(path: &Path) -> io::Result<RealDir> {
        let descriptor = retry_on_intr(|| rustix::fs::open(path, DIRECTORY, Mode::empty()))
            .map_err(|e| DiskError::wrap("open", path, e))?;
        // If the working directory was removed, messages show the path as given.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        Ok(RealDir { descriptor, path, process: Process::current() })
    }

    /// An error of an operation on the directory itself.
    fn failed(&self, operation: &'static str) -> impl Fn(Errno) -> io::Error + '_ {
        move |errno| DiskError::wrap(operation, &self.path, errno)
    }

    /// An error of an operation on a name in it.
    fn failed_at(&self, operation: &'static str, name: &str) -> impl Fn(Errno) -> io::Error + '_ {
        let path = self.path.join(name);
        move |errno| DiskError::wrap(operation, &path, errno)
    }

    fn entry(&self, name: &std::ffi::CStr) -> io::Result<Option<DirEntry>> {
        let shown = name.to_string_lossy();
        let status = match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failed_at("stat", &shown)(errno)),
        };
        let is_dir = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
        let len = if is_dir { 0 } else { u64::try_from(status.st_size).unwrap_or(0) };
        Ok(Some(DirEntry { name: shown.into_owned(), is_dir, len }))
    }
}

impl Dir for RealDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let (operation, flags) = match options {
            OpenOptions::Read => ("open", OFlags::RDONLY),
            OpenOptions::Write => ("open", OFlags::RDWR),
            OpenOptions::CreateNew => ("create", OFlags::RDWR | OFlags::CREATE | OFlags::EXCL),
        };
        if options == OpenOptions::CreateNew {
            self.process.check(operation, &self.path)?;
        }
        let mode = Mode::from_raw_mode(0o644);
        let opened =
            retry_on_intr(|| rustix::fs::openat(&self.descriptor, name, flags | OFlags::CLOEXEC, mode));
        let descriptor = opened.map_err(self.failed_at(operation, name))?;
        Ok(Arc::new(RealFile::new(descriptor, &self.path.join(name), self.process)))
    }

    fn open_dir(&self, name: &str) -> io::Result<Arc<dyn Dir>> {
        let opened = retry_on_intr(|| rustix::fs::openat(&self.descriptor, name, DIRECTORY, Mode::empty()));
        let descriptor = opened.map_err(self.failed_at("open", name))?;
        Ok(Arc::new(RealDir { descriptor, path: self.path.join(name), process: self.process }))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        self.process.check("mkdir", &self.path)?;
        rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(0o777))
            .map_err(self.failed_at("mkdir", name))
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.descriptor).map_err(self.failed("readdir"))? {
            let entry = entry.map_err(self.failed("readdir"))?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                entries.extend(self.entry(name)?);
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.process.check("rename", &self.path)?;
        let dir = &self.descriptor;
        let renamed = match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_and_unlink(dir, from, to),
            other => other,
        };
        let failed_from = self.failed_at("rename", if renamed == Err(Errno::EXIST) { to } else { from });
        renamed.map_err(failed_from)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.process.check("unlink", &self.path)?;
        rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()).map_err(self.failed_at("unlink", name))
    }

    fn sync(&self) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::fsync(&self.descriptor)).map_err(self.failed("fsync"))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let status =
            retry_on_intr(|| rustix::fs::fstatvfs(&self.descriptor)).map_err(self.failed("statvfs"))?;
        // Some file systems (the kernel's own, FUSE, network ones) count no blocks at all: that does not mean full.
        if status.f_blocks == 0 {
            return Ok(u64::MAX);
        }
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn device(&self) -> io::Result<DeviceInfo> {
        super::device::device(&self.descriptor).map_err(self.failed("statfs"))
    }

    fn lock(&self, name: &str, mode: LockMode) -> io::Result<Locking> {
        super::lock::lock(&self.descriptor, &self.path, name, mode)
    }
}

/// A rename that replaces nothing, for file systems without `RENAME_NOREPLACE`: first links the new name, which fails
/// if it is taken. A crash between the two calls leaves the file with both names.
fn link_and_unlink(dir: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    match rustix::fs::linkat(dir, from, dir, to, AtFlags::empty()) {
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => return look_and_rename(dir, from, to),
        other => other?,
    }
    rustix::fs::unlinkat(dir, from, AtFlags::empty())
}

/// For file systems without links, too. Replaces a file that is created between the two calls: the caller's lock
/// prevents that.
fn look_and_rename(dir: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    match rustix::fs::statat(dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rustix::fs::renameat(dir, from, dir, to),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_the_flag_replaces_nothing_either() {
        for rename in [link_and_unlink, look_and_rename] {
            let temporary = tempfile::tempdir().expect("a temporary directory");
            let dir = RealDir::open(temporary.path()).expect("open");
            dir.open("a", OpenOptions::CreateNew).expect("create").write_at(b"a", 0).expect("write");
            dir.open("b", OpenOptions::CreateNew).expect("create");
            assert_eq!(rename(&dir.descriptor, "a", "b"), Err(Errno::EXIST));
            assert_eq!(rename(&dir.descriptor, "nowhere", "c"), Err(Errno::NOENT));
            rename(&dir.descriptor, "a", "c").expect("free");
            let names: Vec<_> =
                dir.list().expect("list").into_iter().map(|entry| (entry.name, entry.len)).collect();
            assert_eq!(names, [("b".to_owned(), 0), ("c".to_owned(), 1)]);
        }
    }
}
