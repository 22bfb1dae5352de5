//! What a checkpoint, and a close, put into the superblock.

use fulgurite_log::CommitLog;
use fulgurite_types::Lsn;

use super::{Boundary, Checkpointer, Shared};
use crate::Result;
use crate::error::OrError;
use crate::superblock::Superblock;

impl Checkpointer {
    /// Notes in the superblock where the closed log ends: the next open need not search beyond.
    pub fn note_clean_close(&mut self) -> Result<()> {
        let Shared { log, clock, reads, .. } = &self.shared;
        let end = log.watermarks();
        let next = Superblock {
            epoch: log.epoch(),
            durable: end.durable_csn,
            clock_ms: clock.shown_ms(reads.now_ms()),
            clock_step: clock.step(),
            closed_at: end.written,
            ..self.current()
        };
        self.put_superblock(next)?;
        self.kept.noted_again();
        let needed = self.needed();
        let mut space = self.shared.space.lock();
        space.accounts.install_again();
        space.retire(needed, &self.shared.log.bulk_boundary());
        space.give_back()
    }

    pub(super) fn write_superblock(&mut self, checkpoint: Lsn, at: &Boundary) -> Result<()> {
        let Shared { log, clock, reads, .. } = &self.shared;
        // Trees may have commits after `covered`, which are agreed: an opening must find them agreed, too.
        log.mark_agreed().or_error()?;
        let next = Superblock {
            epoch: log.epoch(),
            checkpoint,
            replay: at.replay,
            covered: at.covered,
            durable: log.durable_csn(),
            clock_ms: clock.shown_ms(reads.now_ms()),
            clock_step: clock.step(),
            closed_at: Lsn::NULL,
            ..self.current()
        };
        self.put_superblock(next)?;
        self.kept.noted(at.kept);
        Ok(())
    }

    /// Writes the superblock, unless another process has written it. Then the log is poisoned: a commit acknowledged
    /// from now on would be missing in the database that the other process continues (INV-DIR-3).
    fn put_superblock(&mut self, next: Superblock) -> Result<()> {
        let Shared { files, log, pipeline, superblock, .. } = &self.shared;
        let mut superblock = superblock.lock();
        if let Some(epoch) = superblock.foreign_epoch()? {
            tracing::error!(path = %files.path.display(), %epoch, "another process has begun an epoch in this database");
            log.poison(
                "another process has opened this database and begun an epoch of its own, in which commits that were \
                 acknowledged here since are not",
            );
            files.check_open()?;
            return pipeline.check_log();
        }
        superblock.write(next)
    }
}
