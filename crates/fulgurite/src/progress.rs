//! The progress of maintenance and its last errors, kept apart from the lock of maintenance, which a checkpoint holds
//! for as long as it takes: readers do not wait.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::Error;
use crate::collection::Collected;
use crate::space::Space;
use crate::space::view::{SpaceStats, Viewed};

/// The last error of maintenance: of merging, of eviction, of a checkpoint, of purging, of freeing segments, or of asking for the free space.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintenanceError {
    /// What failed, and why.
    pub what: String,
    /// When it failed last, in milliseconds since 1970-01-01 UTC.
    pub at_ms: u64,
    /// How many rounds in a row have failed, each of which tried again. 0: a later round succeeded.
    pub rounds: u64,
}

/// How long a kind of work took, since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkTimes {
    /// All of it, in nanoseconds.
    pub total_ns: u64,
    /// The last time, in nanoseconds.
    pub last_ns: u64,
    /// The longest time, in nanoseconds.
    pub max_ns: u64,
}

/// Counts a kind of work and its times.
#[derive(Default)]
pub(crate) struct Work {
    count: AtomicU64,
    total_ns: AtomicU64,
    last_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Work {
    /// Counts one more piece of work, which took `ns`.
    pub fn done(&self, ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.total_ns.fetch_add(ns, Relaxed);
        self.last_ns.store(ns, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub fn times(&self) -> WorkTimes {
        WorkTimes {
            total_ns: self.total_ns.load(Relaxed),
            last_ns: self.last_ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
        }
    }
}

/// The progress of maintenance, for [`Stats`](crate::Stats).
#[derive(Default)]
pub(crate) struct Progress {
    /// The newest CSN that the last checkpoint covers.
    pub covered: AtomicU64,
    /// Bytes on disk that the last checkpoint refers to.
    pub live_bytes: AtomicU64,
    /// Bytes of keys and their newest values in it; [`u64::MAX`]: unknown.
    pub data_bytes: AtomicU64,
    /// The first segment that replay would need.
    pub replay_segment: AtomicU32,
    /// The segments as they were last looked at.
    space: Mutex<SpaceStats>,
    /// Memtables merged into their tables' bases.
    pub merges: Work,
    /// The bytes of the memtables that were merged.
    pub merged_bytes: AtomicU64,
    pub checkpoints: Work,
    pub collected: Collected,
    pub merging: Failures,
    /// Of checkpoints, of freeing segments, of asking for the free space.
    pub checkpointing: Failures,
    /// Of writing leaves to evict them.
    pub evicting: Failures,
    /// Of purging what range tombstones hide.
    pub purging: Failures,
}

/// The failures of rounds of one kind of work.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Option<MaintenanceError>>);

impl Progress {
    /// Why the segments are on disk; as it was found last if another thread has the space.
    pub fn space_of(&self, space: &Mutex<Space>, viewed: &Viewed<'_>) -> SpaceStats {
        if let Some(space) = space.try_lock() {
            *self.space.lock() = space.view(viewed);
        }
        self.space.lock().clone()
    }

    /// The last error; one of work that still fails, if there is one.
    pub fn last_error(&self) -> Option<MaintenanceError> {
        let kinds = [&self.merging, &self.checkpointing, &self.evicting, &self.purging];
        let errors = kinds.map(Failures::last);
        errors.into_iter().flatten().max_by_key(|error| (error.rounds > 0, error.at_ms))
    }
}

impl Failures {
    /// Whether the last round failed.
    pub fn is_failing(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|error| error.rounds > 0)
    }

    fn last(&self) -> Option<MaintenanceError> {
        self.0.lock().clone()
    }

    /// A round ended. The first of several failures in a row is reported as an event.
    pub fn round_ended(&self, error: Option<&Error>, now_ms: impl FnOnce() -> u64) {
        let mut last = self.0.lock();
        match (error, &mut *last) {
            (None, None) => {}
            (None, Some(last)) => last.rounds = 0,
            (Some(error), _) => {
                let rounds = last.as_ref().map_or(0, |last| last.rounds) + 1;
                *last = Some(MaintenanceError { what: error.to_string(), at_ms: now_ms(), rounds });
                match error {
                    _ if rounds > 1 => {}
                    // Expected of a replica: it goes on once a leader, or a quorum, is there.
                    Error::NoQuorum { .. } | Error::NotLeader { .. } => {
                        tracing::info!(%error, "maintenance waits, it will be tried again");
                    }
                    _ => tracing::error!(%error, "maintenance failed, it will be tried again"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Missing;

    #[test]
    fn the_last_error_stays_and_shows_whether_a_later_round_succeeded() {
        let progress = Progress::default();
        progress.merging.round_ended(None, || 1);
        assert_eq!(progress.last_error(), None);
        progress.merging.round_ended(Some(&Error::Closed), || 2);
        progress.merging.round_ended(Some(&Error::WouldBlock(Missing::Node)), || 3);
        let what = Error::WouldBlock(Missing::Node).to_string();
        let error = MaintenanceError { what, at_ms: 3, rounds: 2 };
        assert_eq!(progress.last_error(), Some(error.clone()));
        progress.merging.round_ended(None, || 4);
        assert_eq!(progress.last_error(), Some(MaintenanceError { rounds: 0, ..error }));
    }

    #[test]
    fn an_error_that_lasts_comes_before_a_newer_one_that_is_over() {
        let progress = Progress::default();
        progress.checkpointing.round_ended(Some(&Error::WouldBlock(Missing::Node)), || 1);
        progress.merging.round_ended(Some(&Error::Closed), || 2);
        assert_eq!(progress.last_error().map(|error| error.at_ms), Some(2));
        progress.merging.round_ended(None, || 3);
        assert_eq!(progress.last_error().map(|error| error.at_ms), Some(1));
        progress.checkpointing.round_ended(None, || 4);
        assert_eq!(progress.last_error().map(|error| error.at_ms), Some(2));
    }

    #[test]
    fn times_add_up() {
        let work = Work::default();
        [5, 9, 2].into_iter().for_each(|ns| work.done(ns));
        assert_eq!(work.count(), 3);
        assert_eq!(work.times(), WorkTimes { total_ns: 16, last_ns: 2, max_ns: 9 });
    }
}
