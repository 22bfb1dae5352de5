//! The files of stores as a whole: their directory, their size on disk, and the page cache; and the files of reports.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::env::Env;
use rustix::fs::{Advice, Mode, OFlags, fadvise, fdatasync, open, syncfs};

use crate::{Error, Result};

/// The unit of the kernel's count of blocks.
const BLOCK_BYTES: u64 = 512;

/// Bytes that all files in `dir` and below take on the disk; holes take none. Files removed meanwhile count as absent.
pub(crate) fn disk_bytes(env: &Arc<dyn Env>, dir: &Path) -> Result<u64> {
    let mut sum = 0;
    each_file(env, dir, &mut |path| {
        sum += std::fs::symlink_metadata(path).map_or(0, |meta| meta.blocks() * BLOCK_BYTES);
        Ok(())
    })?;
    Ok(sum)
}

/// Has the kernel write back all files in `dir` and below and drop them from the page cache.
pub(crate) fn drop_from_page_cache(env: &Arc<dyn Env>, dir: &Path) -> Result<()> {
    each_file(env, dir, &mut |path| {
        let dropped = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).and_then(|file| {
            fdatasync(&file)?;
            fadvise(&file, 0, None, Advice::DontNeed)
        });
        dropped.map_err(|errno| {
            Error::io(format!("dropping {} from the page cache", path.display()))(errno.into())
        })
    })
}

/// Has the kernel write back the whole file system of `dir`, so that all writes until now count, and none of them
/// later.
pub(crate) fn write_back(dir: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let written = open(dir, flags, Mode::empty()).and_then(|dir| syncfs(&dir));
    written.map_err(|errno| Error::io(format!("writing back {}", dir.display()))(errno.into()))
}

fn each_file(env: &Arc<dyn Env>, dir: &Path, see: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    let entries = match env.disk().list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::io(format!("listing {}", dir.display())))?,
    };
    for entry in entries {
        let path = dir.join(&entry.name);
        match entry.is_dir {
            true => each_file(env, &path, see)?,
            false => see(&path)?,
        }
    }
    Ok(())
}

/// A directory that is removed with its content.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one in `dir`, which exists.
    pub fn create(env: &Arc<dyn Env>, dir: &Path) -> Result<Scratch> {
        let path = dir.join(format!("fulgurite-bench-{:016x}", env.random_u64()));
        let made = env.disk().create_dir_all(&path);
        made.map_err(Error::io(format!("making a directory for the databases in {}", dir.display())))?;
        Ok(Scratch { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it; an error if that fails.
    pub fn remove(self) -> Result<()> {
        remove(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An earlier error ends the benchmark, and is the one to report.
        let _ = remove(&self.path);
    }
}

/// Removes a directory; a missing one is no error.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Whether [`write_whole`] will work, as far as that can be known beforehand.
#[expect(clippy::disallowed_methods, reason = "reports are files of the user, not of a database")]
pub(crate) fn can_write(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    let temporary = unfinished(path);
    std::fs::write(&temporary, "").and_then(|()| std::fs::remove_file(&temporary))
}

/// Writes a file of the user, which gets its name when all of it is written.
#[expect(clippy::disallowed_methods, reason = "reports are files of the user, not of a database")]
pub(crate) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = unfinished(path);
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// The file's name until all of it is written.
fn unfinished(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.part", std::process::id()));
    temporary.into()
}
