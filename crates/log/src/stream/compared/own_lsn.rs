//! The baseline: each group's flushing thread syncs for itself.

use super::{Buffered, CommitStream};
use crate::error::LogError;
use fulgurite_types::Csn;

/// Group commit as WiredTiger has it, after Son, Yeom and Han (2017), section 2.
///
/// 1. The first member of a group that asks for durability closes the group. One member becomes its flushing thread,
///    the others wait until their commit is durable.
/// 2. The flushing thread writes its group through the page cache, and the filled groups before it.
/// 3. It takes the sync lock. If its own last commit is durable by now, it is done.
/// 4. It syncs, and declares durable only what *it* asked for. It does not know of the groups that others wrote before
///    the sync began, so they sync again.
///
/// INV-LOG-1 holds because the write of step 2 had completed when the sync of step 4 began. In the paper the last
/// thread to fill a group flushes it; here the first to ask does, after all have filled.
pub(super) fn wait(buffered: &Buffered, stream: &CommitStream, csn: Csn) -> Result<(), LogError> {
    let Some(own) = stream.close_group_of(csn)? else { return Ok(()) };
    if !stream.groups.claim(own.sequence) {
        return stream.wait_for_flusher(csn);
    }
    buffered.write_up_to(stream, own.last_csn)?;
    let lock = buffered.sync_lock(stream);
    if stream.durable_csn() < own.last_csn {
        stream.sync_written()?;
        buffered.end_sync(stream, lock, own.sequence);
    }
    Ok(())
}
