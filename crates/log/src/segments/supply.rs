//! The thread that makes segments, so that no requested flush waits until a segment is filled with zeros.

use crate::error::LogError;
use crate::signal::Sleep;
use crate::stream::CommitStream;
use crate::threads::{Dying, RETRY, RETRY_MAX};
use std::sync::Arc;

pub(crate) fn run(stream: &Arc<CommitStream>) {
    let shared = &stream.shared;
    let dying = Dying(shared);
    let mut retry = RETRY;
    while !shared.is_closed() {
        let result = supply(stream);
        if let Err(error) = &result {
            tracing::debug!(%error, "no segment could be made; it is tried again");
        }
        let failed = match result {
            Ok(true) => {
                retry = RETRY;
                continue;
            }
            Ok(false) => false,
            Err(_) => true,
        };
        shared.supplier.sleep(|| {
            if shared.is_closed() {
                Sleep::No
            } else if shared.poison.is_set() {
                Sleep::Rest
            } else if failed {
                Sleep::Nap(retry)
            } else if stream.is_short_of_segments() {
                Sleep::No
            } else {
                Sleep::Rest
            }
        });
        retry = if failed { (2 * retry).min(RETRY_MAX) } else { RETRY };
    }
    dying.live();
}

/// Makes segments ready, and removes unwanted files. Returns whether it did something.
pub(crate) fn supply(stream: &CommitStream) -> Result<bool, LogError> {
    let shared = &stream.shared;
    let segments = &stream.segments;
    shared.check_usable()?;
    if segments.is_nearly_full() && segments.keep_one_more(shared)? {
        return Ok(true);
    }
    let made = stream.make_ready();
    if matches!(made, Ok(true)) {
        return Ok(true);
    }
    // Also if the disk is full: that makes room.
    let removed = segments.remove_unwanted()?;
    Ok(made? || removed || segments.keep_one_more(shared)?)
}
