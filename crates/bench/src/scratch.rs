//! The directory of a benchmark: made, and removed whatever happens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::env::Env;

use crate::{Error, Result};

/// A directory that is removed with all that is in it.
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

    /// Removes it, and says whether that worked.
    pub fn remove(self) -> Result<()> {
        remove(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Something else failed before, and is what has to be heard of.
        let _ = remove(&self.path);
    }
}

/// Removes a directory; fine if it is not there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}
