//! SIGINT and SIGTERM: the first asks to end soon, a later one ends the process at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use fulgurite::env::{Env, RealEnv};

use crate::failure::Failure;

/// When the first signal came; 0: no signal yet.
static ASKED_NS: AtomicU64 = AtomicU64::new(0);
static LEFTOVERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A terminal that closes, or a program that ends a whole process group, sends several signals at once: those count as
/// one.
const AGAIN_NS: u64 = 500_000_000;

/// Makes signals set [`asked`] instead of ending the process.
pub(crate) fn listen() -> Result<(), Failure> {
    let env = RealEnv::new();
    let handler = move || {
        let now_ns = env.clock().monotonic_ns().max(1);
        let first = ASKED_NS.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first_ns| now_ns.saturating_sub(first_ns) > AGAIN_NS) {
            remove_leftovers();
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::new(format!("listening for signals: {error}")))
}

/// Whether a signal has asked to end.
pub(crate) fn asked() -> bool {
    ASKED_NS.load(Ordering::Relaxed) != 0
}

/// Has a file removed even if the second signal ends the process.
pub(crate) fn remove_at_exit(path: &Path) {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_path_buf());
}

/// Most often none of the files is left. Nothing is left to report a failure to.
fn remove_leftovers() {
    for path in LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = RealEnv::new().disk().remove(&path);
    }
}
