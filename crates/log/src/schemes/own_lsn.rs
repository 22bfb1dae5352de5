//! The baseline: each group's flushing thread syncs for itself.

use super::Scheme;
use crate::core::Core;
use crate::error::LogError;
use fulgurite_types::Csn;

/// Group commit as WiredTiger has it, after Son, Yeom and Han (2017), section 2.
///
/// 1. The first of a group that asks for durability ends joining; one of the group becomes its flushing thread, the
///    others wait until their commit is durable.
/// 2. The flushing thread writes its group through the page cache, and what is filled before it.
/// 3. It takes the sync lock. If its own last commit is durable by now, it is done.
/// 4. It syncs, and declares durable what *it* asked for: not what others wrote before the sync began, because it does
///    not know of them. They sync again.
///
/// INV-LOG-1 holds because the write of 2 had completed when the sync of 4 began. The paper lets the last thread to
/// fill a group flush it; here it is the first to ask, after all have filled.
#[derive(Debug)]
pub(super) struct OwnLsn;

impl Scheme for OwnLsn {
    fn wait(&self, core: &Core, csn: Csn) -> Result<(), LogError> {
        let Some(own) = core.close_group_of(csn)? else { return Ok(()) };
        if !core.ring.claim(own.sequence) {
            return core.flush_wait(csn);
        }
        core.write_up_to(own.last_csn)?;
        let lock = core.sync_lock();
        if core.durable_csn() < own.last_csn {
            core.sync_buffered()?;
            core.end_sync(lock, own.sequence);
        }
        Ok(())
    }

    fn flush(&self, core: &Core, _barrier: bool) -> Result<bool, LogError> {
        core.flush_buffered()
    }
}
