//! The debt: the log that the next open would have to replay, and when it makes a checkpoint due. A *life* is the time
//! of one opening, until it is closed or dies.
//!
//! INV-CKPT-4: the log above the last checkpoint is bounded, however soon and often a process dies. The debt counts
//! from the last checkpoint, not from the start of the process, and opening takes over the log that it replayed. After
//! one death the database serves as soon as its log is replayed, and writes the checkpoint meanwhile. If that life dies
//! before the checkpoint, the same log is replayed a second time: then opening writes the checkpoint before it returns,
//! if the debt is [`OVERDUE`] times the amount that makes a checkpoint due. It also does so if the disk is nearly full.

use fulgurite_log::{LogError, RecoveryReport};
use fulgurite_types::limits;

use crate::engine::Engine;
use crate::error::OrError;
use crate::space::Space;
use crate::{Options, Result};

/// The least that 5 % of the live data count as: a small database does not write a checkpoint every few commits.
const CHECKPOINT_LOG_BYTES_MIN: u64 = 32 << 20;

/// This many lives without a checkpoint make one due: each life costs a segment and a link in the chain of epochs, even
/// if it wrote nothing.
const LIVES_MAX: u32 = 4;

/// How many times the due amount the debt has to be before opening itself writes the checkpoint: the checkpointer did
/// not finish one, life after life.
const OVERDUE: u32 = 2;

/// How often opening tries to free the segments that a checkpoint retired.
const FREEING_ROUNDS: u32 = 8;

/// The log above the last checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt {
    /// The bytes that this opening replayed, 0 once a checkpoint covers them.
    replayed_bytes: u64,
    /// How many lives wrote them.
    pub lives: u32,
    /// How many bytes the log had written in this life when the last checkpoint began.
    written_bytes_at_checkpoint: u64,
}

impl Debt {
    /// The debt that recovery found.
    pub fn recovered(report: &RecoveryReport) -> Debt {
        Debt { replayed_bytes: report.walked_bytes, lives: report.epochs, written_bytes_at_checkpoint: 0 }
    }

    pub fn replayed_bytes(&self) -> u64 {
        self.replayed_bytes
    }

    /// Counts from a checkpoint that began when the log had written `written_bytes` in this life.
    pub fn pay(&mut self, written_bytes: u64) {
        *self = Debt { written_bytes_at_checkpoint: written_bytes, ..Debt::default() };
    }

    fn is_due(&self, written_bytes: u64, due_bytes: u64) -> bool {
        self.is_times(written_bytes, due_bytes, 1)
    }

    /// Whether opening has to pay the debt: more than one life wrote it, so one of them began with some of it and died
    /// before it had paid.
    fn is_overdue(&self, due_bytes: u64) -> bool {
        self.lives > 1 && self.is_times(0, due_bytes, OVERDUE)
    }

    /// Whether the debt is `times` the amount that makes a checkpoint due.
    fn is_times(&self, written_bytes: u64, due_bytes: u64, times: u32) -> bool {
        let bytes = self.replayed_bytes + written_bytes.saturating_sub(self.written_bytes_at_checkpoint);
        bytes >= due_bytes.saturating_mul(times.into()) || self.lives >= LIVES_MAX * times
    }
}

/// How many bytes of log make a checkpoint due.
fn due_bytes(options: &Options, space: &Space) -> u64 {
    options.checkpoint_log_bytes.min((space.live_bytes() / 20).max(CHECKPOINT_LOG_BYTES_MIN))
}

impl Engine {
    /// Whether the log has grown enough for a checkpoint, or the disk is nearly full and one might free segments.
    pub fn checkpoint_is_due(&self) -> bool {
        let Some(maintenance) = self.maintenance.try_lock() else { return false };
        // A segment is freed only when the older copy of the superblock does not need it either: until that copy covers
        // everything, another checkpoint may free segments.
        let behind = maintenance.superblock.slots().map(|slot| slot.covered).min();
        if self.is_short_of_room() && behind.is_some_and(|behind| behind < self.pipeline.visible()) {
            return true;
        }
        let due_bytes = due_bytes(&self.options, &maintenance.space);
        maintenance.debt.is_due(self.log.stats().written_bytes, due_bytes)
    }

    /// The last step of opening, before the database serves: frees the segments that earlier lives left dead, and pays
    /// an overdue debt. Serving needs neither, so a full disk or damage does not fail it.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`].
    pub fn settle_former_lives(&self) -> Result<()> {
        _ = self.look_at_room();
        let is_overdue = {
            let mut maintenance = self.maintenance.lock();
            // No tree has changes in memory and no reader exists: a segment that the checkpoint does not need is dead.
            self.retire_dead_segments(&mut maintenance);
            let covered = maintenance.superblock.current().covered;
            let lacks_reserve = self.log.reserve_bytes()
                < self.log.options().reserve_segments as u64 * u64::from(limits::SEGMENT_BYTES_MIN);
            let lives = maintenance.debt.lives;
            let may_free = covered < self.pipeline.visible() || lives > 1 || (lives > 0 && lacks_reserve);
            let due_bytes = due_bytes(&self.options, &maintenance.space);
            maintenance.debt.is_overdue(due_bytes) || (self.is_short_of_room() && may_free)
        };
        if !is_overdue {
            return Ok(());
        }
        tracing::info!(path = %self.dir.display(), "former lives left much to replay: writing a checkpoint first");
        // A segment of the log is freed when neither copy of the superblock needs it: hence two checkpoints. The second
        // writes no records.
        let outcome = self
            .reclaim()
            .and_then(|()| self.checkpoint())
            .and_then(|_| self.checkpoint())
            .and_then(|_| (0..FREEING_ROUNDS).try_for_each(|_| self.reclaim()));
        if let Err(error) = outcome {
            self.check_writable()?;
            tracing::warn!(%error, path = %self.dir.display(), "no checkpoint could be written while opening");
        }
        _ = self.look_at_room();
        Ok(())
    }

    /// Frees retired segments; the log keeps of them the files that its reserve for a full disk lacks.
    fn reclaim(&self) -> Result<()> {
        self.free_retired()?;
        match self.log.fill_reserve() {
            Err(LogError::NoSpace { .. }) => Ok(()),
            filled => filled.or_error(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(walked_bytes: u64, epochs: u32) -> Debt {
        Debt::recovered(&RecoveryReport { walked_bytes, epochs, ..RecoveryReport::default() })
    }

    #[test]
    fn replayed_bytes_count() {
        let mut debt = recovered(60, 1);
        assert!(!debt.is_due(39, 100));
        assert!(debt.is_due(40, 100));
        debt.pay(40);
        assert!(!debt.is_due(139, 100));
        assert!(debt.is_due(140, 100));
    }

    #[test]
    fn lives_count_however_little_they_wrote() {
        assert!(!recovered(0, LIVES_MAX - 1).is_due(0, 100));
        assert!(recovered(0, LIVES_MAX).is_due(0, 100));
        assert!(!recovered(0, LIVES_MAX).is_overdue(100));
        assert!(recovered(0, LIVES_MAX * OVERDUE).is_overdue(100));
    }

    #[test]
    fn opening_pays_a_debt_that_an_earlier_life_began_with_and_did_not_pay() {
        assert!(recovered(100_000, 1).is_due(0, 100));
        assert!(!recovered(100_000, 1).is_overdue(100), "the first life after a crash serves at once");
        assert!(!recovered(199, 2).is_overdue(100));
        assert!(recovered(200, 2).is_overdue(100));
    }
}
