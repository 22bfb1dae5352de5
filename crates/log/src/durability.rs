//! Durability levels of commits, and the schemes by which commits share a flush.

use std::time::Duration;

/// How durable a commit must be before it is acknowledged.
///
/// Acknowledged commits that survive:
///
/// | level | killed process | crash of the operating system | power cut |
/// |---|---|---|---|
/// | `Sync` | all | all | all |
/// | `NoBarrier` | all | all | all, if the device's cache is power-safe as was asserted |
/// | `Staged`, persistent memory | all | all | all |
/// | `Staged`, volatile memory | all | all up to the last flush of the log | the same |
/// | `Async` | all but those of the last `interval` and two writes | the same | the same |
/// | `None` | all up to the last write of the log | all up to its last flush | the same |
///
/// The survivors are always a prefix of the commits, in their order: no level loses a commit and keeps a later one.
/// Levels may be mixed; a group that several commits share is written at the highest level among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The commit requests no flush. It becomes durable with the next commit that does, when the log buffer fills up,
    /// when the log falls idle, with a checkpoint, or at the close.
    None,
    /// Acknowledged at once. The log thread begins to make it durable within `interval`.
    Async {
        /// How long a commit may stay in memory.
        interval: Duration,
    },
    /// Acknowledged when the device has the data, without a flush of the device's cache. Only where the device reports
    /// that it has no volatile cache, or where the operator asserts that its cache survives a power cut.
    NoBarrier,
    /// Acknowledged when the data is staged ([`StagingOptions`](crate::StagingOptions)). In persistent memory that is durable, and the
    /// same as `Sync`, which is staged there, too; in volatile memory it survives a killed process, and no power cut.
    Staged,
    /// Acknowledged when the data survives a power cut.
    #[default]
    Sync,
}

impl Durability {
    /// Whether the acknowledgement waits until the commit is durable. One that is staged in persistent memory is `Sync`.
    pub fn waits(self) -> bool {
        matches!(self, Durability::NoBarrier | Durability::Sync)
    }
}

/// How commits that wait for durability share writes and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushScheme {
    /// One thread of each group writes it, takes the sync lock, and syncs unless its own LSN is durable already. It
    /// then declares durable only its own LSN, not all that the sync covered. The baseline of Son, Yeom and Han (2017),
    /// as WiredTiger has it. Buffered writes.
    OwnLsn,
    /// The scheme of Son, Yeom and Han (2017): the winner of the sync lock takes all queued requests, syncs once for
    /// the largest LSN among them, and completes them all. Buffered writes.
    Aggregated,
    /// A committer that finds no leader leads at once: one direct, data-synchronous write of all filled groups, for all
    /// waiters.
    #[default]
    Combined,
}

impl FlushScheme {
    /// All of them, the baseline first.
    pub const ALL: [FlushScheme; 3] = [FlushScheme::OwnLsn, FlushScheme::Aggregated, FlushScheme::Combined];

    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            FlushScheme::OwnLsn => "own-lsn",
            FlushScheme::Aggregated => "aggregated",
            FlushScheme::Combined => "combined",
        }
    }
}

/// What a committer does while another thread writes for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// It sleeps until it is woken.
    Block,
    /// It yields for up to twice the measured time of a write, then sleeps: less waking, more switching. It pays where
    /// many threads commit on few processors. If few wait, or while other programs keep the processors busy, it sleeps
    /// at once.
    #[default]
    SpinThenBlock,
}

impl Waiting {
    /// The name that options and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Waiting::Block => "block",
            Waiting::SpinThenBlock => "spin-then-block",
        }
    }
}
