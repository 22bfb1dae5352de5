//! Poison, the flag that ends all writing: set once, never cleared.

use crate::error::{LogError, PoisonCause};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Set when a write or sync failed, or a commit died between its reservation and the end of its fill (INV-LOG-7).
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<Arc<PoisonCause>>);

impl Poison {
    pub fn cause(&self) -> Option<Arc<PoisonCause>> {
        self.0.get().cloned()
    }

    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub fn check(&self) -> Result<(), LogError> {
        match self.cause() {
            Some(cause) => Err(LogError::Poisoned(cause)),
            None => Ok(()),
        }
    }

    /// Sets the flag, unless it is set already, and returns the poison as an error.
    pub fn set(&self, what: &'static str, file: Option<(&Path, io::Error)>) -> LogError {
        let (path, source) = match file {
            Some((path, source)) => (Some(path.to_owned()), Some(source)),
            None => (None, None),
        };
        let cause = self.0.get_or_init(|| {
            tracing::error!(what, ?path, ?source, "the log is poisoned");
            Arc::new(PoisonCause { what, path, source })
        });
        LogError::Poisoned(Arc::clone(cause))
    }
}
