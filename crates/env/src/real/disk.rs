//! The machine's file system, by path.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::dir::RealDir;
use super::mapped;
use crate::{Dir, Disk, DiskError, MappedFile, OpenOptions};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    #[expect(clippy::disallowed_methods, reason = "this is the disk that others are told to use")]
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path).map_err(|e| DiskError::wrap("mkdir", path, e))
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(RealDir::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        rustix::fs::rename(from, to).map_err(|e| DiskError::wrap("rename", from, e))
    }

    fn create_mapped(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn MappedFile>> {
        mapped::create(path, bytes)
    }

    fn open_mapped(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn MappedFile>> {
        mapped::open_existing(path, options)
    }
}
