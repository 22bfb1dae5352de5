//! SIGINT and SIGTERM: the first asks to end soon, the second ends at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use fulgurite::env::{Env, RealEnv};

use crate::failure::Failure;

static ASKED: AtomicBool = AtomicBool::new(false);
static LEFTOVERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Has signals remembered instead of ending the process.
pub(crate) fn listen() -> Result<(), Failure> {
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            remove_leftovers();
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::new(format!("listening for signals: {error}")))
}

/// Whether a signal has asked to end.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Has a file removed also when the second signal ends the process.
pub(crate) fn remove_at_exit(path: &Path) {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_path_buf());
}

/// Most often there is nothing left of them, and nobody to tell otherwise.
fn remove_leftovers() {
    for path in LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = RealEnv::new().disk().remove(&path);
    }
}
