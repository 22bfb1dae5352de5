//! SIGINT and SIGTERM: the first asks to end soon, the second ends at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Has signals remembered instead of ending the process.
pub(crate) fn listen() -> Result<(), Failure> {
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::new(format!("listening for signals: {error}")))
}

/// Whether a signal has asked to end.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
