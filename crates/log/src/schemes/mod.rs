//! How waiting commits share writes and flushes: one file per scheme, one option to choose.

mod aggregated;
mod combined;
mod own_lsn;

use fulgurite_types::Csn;
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::durability::FlushScheme;
use crate::error::LogError;
use crate::stats::add;
use fulgurite_types::sync::MutexGuard;

/// Bounds on delaying a write so that other commits can join it. The delay is at most one write's time, this time, and
/// this many turns.
pub(crate) const GATHER_NS: u64 = 60_000;
pub(crate) const GATHER_TURNS: u32 = 256;

/// A scheme. All number, fill and write groups in the same way. They differ in which thread writes, which flushes, and
/// which commits a flush acknowledges.
pub(crate) trait Scheme: Send + Sync {
    /// Makes `csn` durable, or waits for the thread that does.
    fn wait(&self, core: &Core, csn: Csn) -> Result<(), LogError>;

    /// Writes and flushes the filled groups, or waits for the thread that does. With `barrier` the device is flushed,
    /// whatever the groups' levels. False if there was nothing to do.
    fn flush(&self, core: &Core, barrier: bool) -> Result<bool, LogError>;
}

/// The scheme that the options name.
pub(crate) fn scheme(name: FlushScheme) -> Box<dyn Scheme> {
    match name {
        FlushScheme::OwnLsn => Box::new(own_lsn::OwnLsn),
        FlushScheme::Aggregated => Box::new(aggregated::Aggregated::default()),
        FlushScheme::Combined => Box::new(combined::Combined::default()),
    }
}

/// A flush in progress. It poisons the log if the flushing thread panics. Once writing has ended it wakes all waiters,
/// because no flush will cover them.
///
/// `is_done` says whether the flush panicked, not `std::thread::panicking()`: a commit in a destructor flushes while
/// its thread unwinds from a panic that has nothing to do with the log.
struct Flushing<'a> {
    core: &'a Core,
    is_done: bool,
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        let core = self.core;
        if !self.is_done {
            let _ = core.poison.set("a flush panicked", None);
        }
        if core.poison.is_set() || core.ended.load(Ordering::SeqCst) {
            core.parking.wake_all();
        }
        if core.poison.is_set() {
            core.request_completion();
        }
    }
}

/// A commit's group: its sequence number, and its last commit.
#[derive(Clone, Copy)]
struct Own {
    sequence: u64,
    last_csn: Csn,
}

fn check_reserved(csn: Csn, newest: Csn) -> Result<(), LogError> {
    if csn <= newest {
        return Ok(());
    }
    Err(LogError::Usage(format!("commit {csn} was awaited, but {newest} is the newest one")))
}

impl Core {
    /// Runs the section of a flush that must not end in the middle, see [`Flushing`].
    fn flushing<R>(&self, flush: impl FnOnce() -> R) -> R {
        let mut flushing = Flushing { core: self, is_done: false };
        let result = flush();
        flushing.is_done = true;
        result
    }

    /// Fails if there is no such commit.
    pub fn check_reserved(&self, csn: Csn) -> Result<(), LogError> {
        check_reserved(csn, self.reserved_csn())
    }

    /// The group of a commit, closed. `None` if it is durable.
    fn close_group_of(&self, csn: Csn) -> Result<Option<Own>, LogError> {
        let mut groups = self.groups();
        check_reserved(csn, groups.next_csn(&self.ring).prev())?;
        if let Some(group) = groups.close_group_of(csn, &self.ring) {
            return Ok(Some(Own { sequence: group.sequence, last_csn: group.last_csn() }));
        }
        drop(groups);
        let progress = self.progress.lock();
        Ok(progress.group_of(csn).map(|group| Own { sequence: group.sequence, last_csn: group.last_csn }))
    }

    /// Writes groups, each with a call of its own, until the group of `last_csn` is written: the first half of a
    /// buffered scheme's flush.
    fn write_up_to(&self, last_csn: Csn) -> Result<(), LogError> {
        self.flushing(|| {
            let mut writer = self.writer.lock();
            while self.progress.lock().newest < last_csn {
                self.write_buffered(&mut writer)?;
            }
            Ok(())
        })
    }

    /// Flushes everything that was written before the call, and returns the last group of it. The caller holds the sync
    /// lock.
    fn sync_buffered(&self) -> Result<u64, LogError> {
        self.flushing(|| {
            let (last, segment) = {
                let progress = self.progress.lock();
                (progress.last, progress.segment.clone())
            };
            self.poison.check()?;
            if let Some(segment) = segment {
                self.sync(&segment)?;
            }
            Ok(last)
        })
    }

    /// Takes the sync lock.
    fn sync_lock(&self) -> MutexGuard<'_, ()> {
        if let Some(lock) = self.syncing.try_lock() {
            add(&self.stats.sync_locks, 1);
            return lock;
        }
        let clock = self.env.clock();
        let start = clock.monotonic_ns();
        let lock = self.syncing.lock();
        add(&self.stats.sync_lock_ns, clock.monotonic_ns().saturating_sub(start));
        add(&self.stats.sync_locks, 1);
        lock
    }

    /// Declares groups durable that a sync under `lock` covered, releases the lock, wakes their waiters, and completes.
    fn end_sync(&self, lock: MutexGuard<'_, ()>, up_to: u64) {
        let before = self.durable_csn();
        self.raise_durable(up_to);
        self.raise_synced();
        drop(lock);
        self.wake_durable(before);
        self.complete(before);
    }

    /// Wakes the waiters of commits that became durable since `before`.
    fn wake_durable(&self, before: Csn) {
        add(&self.stats.wakes, self.parking.wake_range(before, self.durable_csn()));
    }

    /// Calls the completer if `durable` rose since `before`. The caller holds no lock and leads no flush.
    fn complete(&self, before: Csn) {
        if self.durable_csn() > before {
            self.call_completer();
        }
    }

    /// Writes and flushes everything that is filled, for the buffered schemes.
    fn flush_buffered(&self) -> Result<bool, LogError> {
        let wrote = self.flushing(|| self.write_buffered(&mut self.writer.lock()))?;
        let lock = self.sync_lock();
        if !wrote && self.progress.lock().newest <= self.durable_csn() {
            return Ok(false);
        }
        let last = self.sync_buffered()?;
        self.end_sync(lock, last);
        Ok(true)
    }

    /// Sleeps until `csn` is durable: another thread flushes it.
    fn flush_wait(&self, csn: Csn) -> Result<(), LogError> {
        if self.durable_csn() >= csn {
            return Ok(());
        }
        add(&self.stats.flush_waits, 1);
        let start = self.env.clock().monotonic_ns();
        // A group that was written before writing ended is still flushed.
        let is_closed = || self.ended.load(Ordering::SeqCst) && self.progress.lock().newest < csn;
        let is_over = || self.durable_csn() >= csn || self.poison.is_set() || is_closed();
        while self.durable_csn() < csn {
            self.poison.check()?;
            if is_closed() {
                return Err(LogError::Closed);
            }
            add(&self.stats.parks, u64::from(self.parking.park(csn, is_over)));
        }
        add(&self.stats.flush_wait_ns, self.env.clock().monotonic_ns().saturating_sub(start));
        Ok(())
    }
}
