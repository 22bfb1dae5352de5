//! Ending readers: snapshots, scans and transactions that are older than [`Options::max_snapshot_age`] keep no versions
//! and no segments any more, and their next step fails ([`Error::SnapshotTooOld`]).
//!
//! No thread watches the ages, because nothing needs the versions gone before something is pruned. A pruner (in a merge,
//! a purge, a checkpoint) ends the old readers first, whether or not they ever make another step; and each step of a
//! reader looks at its own age (a scan's every eighth, which is cheaper: until something is pruned, its entries are right). INV-TXN-15 ([`crate::snapshots`]) says why a reader that is in the middle of a step then
//! returns no wrong result.
//!
//! A single operation of a table, and the definition of one, are never ended, nor is a commit once it has begun.
//!
//! [`Options::max_snapshot_age`]: crate::Options::max_snapshot_age

use std::time::Duration;

use fulgurite_log::CommitLog;
use fulgurite_types::Csn;

use crate::reads::Reads;
use crate::snapshots::SnapshotGuard;
use crate::{Error, Result};

impl<L: CommitLog> Reads<L> {
    /// Registers a snapshot as [`Reads::snapshot`] does, for a reader of the program's: it is ended when it is too old.
    pub fn ending_snapshot(&self, csn: impl Fn() -> Csn) -> SnapshotGuard {
        let guard = self.snapshot(csn);
        if self.age_ns_max == u64::MAX { guard } else { guard.may_end(self.env.clock().monotonic_ns()) }
    }

    /// Ends the readers that are too old.
    pub fn end_old(&self) {
        if self.age_ns_max == u64::MAX {
            return;
        }
        let ended = self.snapshots.end_older(self.env.clock().monotonic_ns(), self.age_ns_max);
        if ended > 0 {
            let max_age = Duration::from_nanos(self.age_ns_max);
            let path = self.files.path.display();
            tracing::warn!(%path, ended, ?max_age, "readers older than max_snapshot_age were ended");
        }
    }

    /// Begins a step of a reader.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`].
    #[inline]
    pub fn begin_step(&self, guard: &SnapshotGuard) -> Result<()> {
        match guard.begun_ns() {
            None => Ok(()),
            Some(begun_ns) => self.check_age(guard, begun_ns),
        }
    }

    #[inline(never)]
    fn check_age(&self, guard: &SnapshotGuard, begun_ns: u64) -> Result<()> {
        if self.env.clock().monotonic_ns().saturating_sub(begun_ns) > self.age_ns_max {
            self.snapshots.end_guard(guard);
        }
        self.end_step(guard, Ok(()))
    }

    /// Ends a step with its outcome, unless the reader was ended meanwhile: then the outcome, also that there is nothing,
    /// or that something is damaged, may be wrong (INV-TXN-15).
    #[inline]
    pub fn end_step<T>(&self, guard: &SnapshotGuard, outcome: Result<T>) -> Result<T> {
        if guard.has_ended() { Err(self.too_old(guard)) } else { outcome }
    }

    /// A whole step. `work` reads everything that it returns.
    #[inline]
    pub fn step<T>(&self, guard: &SnapshotGuard, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.begin_step(guard)?;
        self.end_step(guard, work())
    }

    /// Begins a commit, which is not ended any more.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`].
    pub fn begin_commit(&self, guard: &SnapshotGuard) -> Result<()> {
        self.begin_step(guard)?;
        if guard.keep() { Ok(()) } else { Err(self.too_old(guard)) }
    }

    #[cold]
    fn too_old(&self, guard: &SnapshotGuard) -> Error {
        let now_ns = self.env.clock().monotonic_ns();
        let age = Duration::from_nanos(now_ns.saturating_sub(guard.begun_ns().unwrap_or(now_ns)));
        Error::SnapshotTooOld { age, max_age: Duration::from_nanos(self.age_ns_max) }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[path = "reader_age_tests.rs"]
mod tests;
