//! How far a commit has come when it is acknowledged, and by which scheme commits share a flush.

use std::time::Duration;

/// How far a commit must have come before it is acknowledged.
///
/// What is left of the commits that were acknowledged:
///
/// | level | killed process | crash of the operating system | power cut |
/// |---|---|---|---|
/// | `Sync` | all | all | all |
/// | `NoBarrier` | all | all | all, if the device's cache is power-safe as was asserted |
/// | `Async` | all but those of the last `interval` and two writes | the same | the same |
/// | `None` | all up to the last write of the log | all up to its last flush | the same |
///
/// What is left is always a prefix of the commits, in their order: no level can lose a commit and keep a later one.
/// Levels may be mixed; a group that several commits share is written at the highest level among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Nobody asks for a flush: the commit becomes durable with the next one that does ask, when the log buffer fills
    /// up, when the log falls idle, with a checkpoint, or at the close.
    None,
    /// Acknowledged at once. The log thread begins to make it durable within `interval`.
    Async {
        /// How long a commit may stay in memory.
        interval: Duration,
    },
    /// Acknowledged when the device has the data, without a flush of the device's cache. Only where the device says that
    /// it has no volatile cache, or where the operator asserts that its cache survives a power cut.
    NoBarrier,
    /// Acknowledged when the data is in persistent memory. Refused until staging exists.
    Staged,
    /// Acknowledged when the data survives a power cut.
    #[default]
    Sync,
}

impl Durability {
    /// Whether the acknowledgement waits for a write.
    pub fn waits(self) -> bool {
        matches!(self, Durability::NoBarrier | Durability::Staged | Durability::Sync)
    }
}

/// How commits that wait for durability share writes and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushScheme {
    /// One thread of each group writes it, takes the sync lock, and syncs unless its own place is durable already; it
    /// then declares durable what it asked for itself, not all that the sync covered. The baseline of Son, Yeom and Han
    /// (2017), as WiredTiger has it. Buffered writes.
    OwnLsn,
    /// The scheme of Son, Yeom and Han (2017): the winner of the sync lock takes all requests that were queued, syncs
    /// once for the largest place among them, and completes them all. Buffered writes.
    Aggregated,
    /// Whoever finds nobody writing leads at once: one direct, data-synchronous write of everything that is filled,
    /// for everybody who waits.
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

/// What a committer does while somebody else writes for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// It sleeps until it is woken.
    Block,
    /// It gives the processor away for as long as a write was measured to take, then sleeps: less waking, more
    /// switching. It pays where many threads commit on few processors. While other programs keep the processors busy it
    /// sleeps at once.
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
