//! The directory of a benchmark, which is removed however the benchmark ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::env::Env;

use crate::{Error, Result};

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
