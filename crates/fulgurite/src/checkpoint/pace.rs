//! When a checkpoint is due: by the *debt*, the log that the next open would have to replay. A *life* is the time of one
//! opening, until it is closed or dies.
//!
//! INV-CKPT-4: the log above the last checkpoint is bounded, however soon and often a process dies. The debt counts
//! from the last checkpoint, not from the start of the process, and opening takes over the log that it replayed. After
//! one death the database serves as soon as its log is replayed, and writes the checkpoint meanwhile. If that life dies
//! before the checkpoint, the same log is replayed a second time: then opening writes the checkpoint before it returns,
//! if the debt is [`OVERDUE`] times the amount that makes a checkpoint due. It also does so if the disk is nearly full.

use fulgurite_log::RecoveryReport;

use super::growth::LogBytes;

/// The least that makes one due: a small database does not write a checkpoint every few commits.
const LOG_BYTES_MIN: u64 = 16 << 20;

/// This many lives without a checkpoint make one due: each life costs a segment and a link in the chain of epochs, even
/// if it wrote nothing.
const LIVES_MAX: u32 = 4;

/// How many times the due amount the debt has to be before opening itself writes the checkpoint: the checkpointer did
/// not finish one, life after life.
const OVERDUE: u32 = 2;

/// The log above the last checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt {
    /// The log that this opening replayed, nothing once a checkpoint covers it.
    replayed: LogBytes,
    /// How many lives wrote them.
    pub lives: u32,
    /// The log of this life when the last checkpoint began.
    written_at_checkpoint: LogBytes,
}

impl Debt {
    /// The debt that recovery found; `lists` are the operations, and the operation lists in chunks, that it read.
    pub fn recovered(report: &RecoveryReport, lists: LogBytes) -> Debt {
        // A replicated log has more than is replayed, for nodes that were away.
        let (bytes, lives) = match report.last_entry.index {
            0 => (report.walked_bytes, report.epochs),
            _ => (report.uncovered_bytes, report.uncovered_epochs.max(1)),
        };
        let replayed = LogBytes { regular: bytes, ..LogBytes::default() } + lists;
        Debt { replayed, lives, written_at_checkpoint: LogBytes::default() }
    }

    /// Counts from a checkpoint that began when this life had written `written`.
    pub fn pay(&mut self, written: LogBytes) {
        *self = Debt { written_at_checkpoint: written, ..Debt::default() };
    }

    /// What is covered of the log of this life, less what was replayed and is not.
    pub fn covered(&self) -> LogBytes {
        self.written_at_checkpoint - self.replayed
    }

    /// What no checkpoint covers once this life has written `written`.
    pub fn uncovered(&self, written: LogBytes) -> LogBytes {
        written - self.covered()
    }

    /// Whether a checkpoint is due while so much log is not covered.
    pub fn is_due(&self, uncovered: LogBytes, due_bytes: u64) -> bool {
        self.is_times(uncovered, due_bytes, 1)
    }

    /// Whether opening has to pay the debt: more than one life wrote it, so one of them began with some of it and died
    /// before it had paid.
    pub fn is_overdue(&self, due_bytes: u64) -> bool {
        self.lives > 1 && self.is_times(self.uncovered(self.written_at_checkpoint), due_bytes, OVERDUE)
    }

    /// Whether the debt is `times` the amount that makes a checkpoint due.
    fn is_times(&self, uncovered: LogBytes, due_bytes: u64, times: u32) -> bool {
        uncovered.total() >= due_bytes.saturating_mul(times.into()) || self.lives >= LIVES_MAX * times
    }
}

/// How many bytes of log make a checkpoint due, as long as it has `unwritten_bytes` to write. `share` is
/// [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes).
///
/// Two prices are weighed. A checkpoint writes what is unwritten: the sooner it is repeated, the more often the same
/// leaves are written. Log costs space, and time when the database is opened after a crash. A checkpoint is due once
/// the log is as long as what it would write: so of a small database neither is written more than once for each byte
/// of the log, nor is the log much longer than its data. And it is due at half of the share at the latest, because it
/// spreads its writes over the growth of the other half.
pub(crate) fn due_bytes(share: u64, unwritten_bytes: u64) -> u64 {
    unwritten_bytes.max(LOG_BYTES_MIN).min(share / 2)
}

/// A segment of the log has at most this fraction of the log between two checkpoints, ...
const LOG_SHARE: u64 = 4;
/// ... or this one of the live data: a large database has few files, however seldom it is written.
const LIVE_SHARE: u64 = 256;

/// How long the segments of the log are to be.
///
/// A few segments are always there beside the live data: two to which the streams append, two that are ready, two to be
/// recycled. They may together be about as long as the log between two checkpoints, which is there anyway; so a small
/// database is small on disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentSize {
    /// The log above the checkpoint before, when the last one began; lowered by half at most by each, so that a checkpoint
    /// for a caller does not change the size, and files of the wrong size need not be replaced.
    log_bytes: u64,
}

impl SegmentSize {
    /// A checkpoint begins, `log_bytes` after the last one.
    pub fn checkpoint_began(&mut self, log_bytes: u64, share: u64) {
        self.log_bytes = log_bytes.min(share / 2).max(self.log_bytes / 2);
    }

    /// At most so many bytes, where a checkpoint is due after `due_bytes`.
    pub fn bytes_max(&self, due_bytes: u64, live_bytes: u64) -> u64 {
        (self.log_bytes.max(due_bytes) / LOG_SHARE).max(live_bytes / LIVE_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(walked_bytes: u64, epochs: u32) -> Debt {
        let report = RecoveryReport { walked_bytes, epochs, ..RecoveryReport::default() };
        Debt::recovered(&report, LogBytes::default())
    }

    fn written(regular: u64) -> LogBytes {
        LogBytes { regular, ..LogBytes::default() }
    }

    #[test]
    fn replayed_bytes_count() {
        let mut debt = recovered(60, 1);
        assert!(!debt.is_due(debt.uncovered(written(39)), 100));
        assert!(debt.is_due(debt.uncovered(written(40)), 100));
        debt.pay(written(40));
        assert!(!debt.is_due(debt.uncovered(written(139)), 100));
        assert!(debt.is_due(debt.uncovered(written(140)), 100));
    }

    /// INV-CKPT-8.
    #[test]
    fn operation_lists_in_chunks_count() {
        let report = RecoveryReport { walked_bytes: 60, epochs: 1, ..RecoveryReport::default() };
        let mut debt = Debt::recovered(&report, LogBytes { regular: 5, excess: 34, ops: 0 });
        assert!(
            !debt.is_due(debt.uncovered(written(0)), 100)
                && debt.is_due(debt.uncovered(LogBytes { regular: 0, excess: 1, ops: 0 }), 100)
        );
        debt.pay(LogBytes { regular: 10, excess: 1000, ops: 0 });
        assert!(!debt.is_due(debt.uncovered(LogBytes { regular: 59, excess: 1050, ops: 0 }), 100));
        assert!(debt.is_due(debt.uncovered(LogBytes { regular: 60, excess: 1050, ops: 0 }), 100));
    }

    #[test]
    fn lives_count_however_little_they_wrote() {
        assert!(!recovered(0, LIVES_MAX - 1).is_due(LogBytes::default(), 100));
        assert!(recovered(0, LIVES_MAX).is_due(LogBytes::default(), 100));
        assert!(!recovered(0, LIVES_MAX).is_overdue(100));
        assert!(recovered(0, LIVES_MAX * OVERDUE).is_overdue(100));
    }

    #[test]
    fn opening_pays_a_debt_that_an_earlier_life_began_with_and_did_not_pay() {
        let debt = recovered(100_000, 1);
        assert!(debt.is_due(debt.uncovered(written(0)), 100));
        assert!(!recovered(100_000, 1).is_overdue(100), "the first life after a crash serves at once");
        assert!(!recovered(199, 2).is_overdue(100));
        assert!(recovered(200, 2).is_overdue(100));
    }
    #[test]
    fn a_checkpoint_is_due_when_the_log_is_as_long_as_what_it_would_write() {
        const MIB: u64 = 1 << 20;
        for (unwritten, due) in [(0, 16), (10, 16), (50, 50), (128, 128), (5000, 128)] {
            assert_eq!(due_bytes(256 * MIB, unwritten * MIB), due * MIB);
        }
        assert_eq!(due_bytes(2 * MIB, 0), MIB);
    }
    #[test]
    fn segments_are_a_quarter_of_the_log_between_checkpoints_or_a_small_part_of_the_data() {
        const MIB: u64 = 1 << 20;
        let share = 256 * MIB;
        let mut size = SegmentSize::default();
        assert_eq!(size.bytes_max(16 * MIB, 10 * MIB), 4 * MIB, "a small database");
        assert_eq!(size.bytes_max(100 * MIB, 10 * MIB), 25 * MIB, "much is unwritten");
        assert_eq!(size.bytes_max(16 * MIB, 16 << 30), 64 * MIB, "a large one at rest");
        size.checkpoint_began(1000 * MIB, share);
        assert_eq!(size.bytes_max(16 * MIB, 0), 32 * MIB, "a load goes on after its checkpoint");
        size.checkpoint_began(0, share);
        assert_eq!(size.bytes_max(16 * MIB, 0), 16 * MIB, "a checkpoint for a caller");
        for _ in 0..8 {
            size.checkpoint_began(0, share);
        }
        assert_eq!(size.bytes_max(16 * MIB, 0), 4 * MIB);
    }
}
