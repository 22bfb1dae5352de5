//! Requests for durability: now, soon, or within an interval.

use crate::core::Core;
use crate::error::LogError;
use crate::log::Log;
use fulgurite_types::Csn;
use fulgurite_types::sync::yield_now;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

impl Core {
    /// Returns when `csn` is durable.
    pub fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        if self.durable_csn() >= csn {
            return Ok(());
        }
        self.poison.check()?;
        self.scheme.wait(self, csn)
    }

    /// Returns when a flush of the device covered `csn`.
    fn wait_synced(&self, csn: Csn) -> Result<(), LogError> {
        while self.synced_csn() < csn {
            self.poison.check()?;
            if !self.scheme.flush(self, true)? && self.synced_csn() < csn {
                self.check_reserved(csn)?;
                yield_now();
            }
        }
        Ok(())
    }

    /// Flushes everything that is reserved, then ends all writing.
    pub fn flush_last(&self) -> Result<(), LogError> {
        while self.scheme.flush(self, true)? {}
        // A thread writes only under this lock. Once this thread has it no other writes, and a later one reads `ended`.
        let writer = self.writer.lock();
        self.ended.store(true, SeqCst);
        drop(writer);
        self.parking.wake_all();
        Ok(())
    }

    /// Flushes, or waits for the thread that does, so that buffers come back. It must not wait for the log thread
    /// alone: that may be in a user's callback, which may wait for this thread, or be this thread.
    pub fn flush_for_credit(&self) -> Result<(), LogError> {
        if !self.scheme.flush(self, false)? {
            yield_now();
        }
        self.check_usable()
    }

    /// The newest commit that the log thread has to make durable at `now_ns`.
    pub fn requested(&self, now_ns: u64) -> Csn {
        let due = self.watermarks.due_ns.load(SeqCst);
        if due != 0 && due <= now_ns {
            // A thread that raises `due_csn` after the load below finds `due_ns` cleared, and sets it anew.
            self.watermarks.due_ns.store(0, SeqCst);
            let csn = self.watermarks.due_csn.load(SeqCst);
            self.watermarks.requested_csn.fetch_max(csn, SeqCst);
        }
        Csn(self.watermarks.requested_csn.load(SeqCst))
    }
}

impl Log {
    /// Returns when the commit is durable. The caller leads the flush, or waits for the leader.
    ///
    /// # Errors
    /// [`LogError::Poisoned`]: whether the commit is durable is unknown. [`LogError::Closed`]: it was reserved when the
    /// log was closing, and is not. [`LogError::Usage`]: it was never reserved.
    pub fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        self.core.wait_durable(csn)
    }

    /// Returns when a flush of the device covered the commit. The same as [`Log::wait_durable`] but where writes
    /// without a flush count as durable ([`crate::LogOptions::power_safe_cache`]).
    ///
    /// # Errors
    /// As [`Log::wait_durable`].
    pub fn wait_synced(&self, csn: Csn) -> Result<(), LogError> {
        self.core.wait_synced(csn)
    }

    /// Requests that the commit become durable, and returns at once: the log thread flushes (without one,
    /// [`Log::maintain`] does). The observer reports when it is done.
    pub fn request_durable(&self, csn: Csn) {
        if self.core.watermarks.requested_csn.fetch_max(csn.0, SeqCst) < csn.0 {
            self.core.signal.wake_asleep();
        }
    }

    /// Requests that the commit become durable at most `interval` from now, not counting the flush itself, and returns
    /// at once. The log thread flushes (without one, [`Log::maintain`] does).
    pub fn request_durable_within(&self, csn: Csn, interval: Duration) {
        let marks = &self.core.watermarks;
        marks.due_csn.fetch_max(csn.0, SeqCst);
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let due = self.core.env.clock().monotonic_ns().saturating_add(interval).max(1);
        let sooner = |set: u64| (set == 0 || due < set).then_some(due);
        if marks.due_ns.fetch_update(SeqCst, SeqCst, sooner).is_ok() {
            self.core.signal.wake_asleep();
        }
    }

    /// Sets the observer. The flushing thread calls it with each new durable CSN, in rising order, before it wakes the
    /// waiters. It must not block, and must not wait for durability.
    pub fn set_observer(&self, observer: Box<dyn Fn(Csn) + Send + Sync>) {
        *self.core.observer.write() = Some(Arc::from(observer));
    }

    /// Requests that the log thread (without one, [`Log::maintain`]) call the completer soon, and returns at once: for
    /// a thread that holds a lock under which the completer must not run.
    pub fn request_completion(&self) {
        self.core.request_completion();
    }

    /// Sets the completer. The flushing thread calls it if `durable` rose, after it gave up the right to flush and woke
    /// the waiters. The log thread (without one, [`Log::maintain`]) calls it after the log was poisoned and after
    /// [`Log::request_completion`]. The caller holds no lock of the log: the completer may use the log, and close it.
    pub fn set_completer(&self, completer: Box<dyn Fn() + Send + Sync>) {
        *self.core.completer.write() = Some(Arc::from(completer));
    }
}
