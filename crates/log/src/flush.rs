//! Asking for durability: now, soon, or in due time.

use crate::core::Core;
use crate::error::LogError;
use crate::log::Log;
use crate::sync::yield_now;
use fulgurite_types::Csn;
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

    /// Flushes what was reserved, and then ends writing for good.
    pub fn flush_last(&self) -> Result<(), LogError> {
        while self.scheme.flush(self, true)? {}
        // Whoever writes has the writer: nobody does any more when this has it, and who comes later is told.
        let writer = self.writer.lock();
        self.ended.store(true, SeqCst);
        drop(writer);
        self.parking.wake_all();
        Ok(())
    }

    /// Writes something, or waits for whoever does, so that buffers come back. The log's thread alone cannot be waited for: it
    /// may be in a user's callback, which may wait for this thread, or be this one.
    pub fn flush_for_credit(&self) -> Result<(), LogError> {
        if !self.scheme.flush(self, false)? {
            yield_now();
        }
        self.check_usable()
    }

    /// The background thread's work that is due at `now_ns`: the newest commit to make durable.
    pub fn requested(&self, now_ns: u64) -> Csn {
        let due = self.watermarks.due_ns.load(SeqCst);
        if due != 0 && due <= now_ns {
            // Who adds a commit after this sees that nothing is due, and says when.
            self.watermarks.due_ns.store(0, SeqCst);
            let csn = self.watermarks.due_csn.load(SeqCst);
            self.watermarks.requested_csn.fetch_max(csn, SeqCst);
        }
        Csn(self.watermarks.requested_csn.load(SeqCst))
    }
}

impl Log {
    /// Returns when the commit is durable, and causes the flush: leads it, or waits for whoever leads.
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

    /// Asks for the commit to become durable, and returns at once: the log thread flushes (without one,
    /// [`Log::maintain`] does). The observer tells when it is done.
    pub fn request_durable(&self, csn: Csn) {
        if self.core.watermarks.requested_csn.fetch_max(csn.0, SeqCst) < csn.0 {
            self.core.signal.wake_asleep();
        }
    }

    /// Asks for the commit to become durable at most `interval` from now, not counting the flush itself, and returns at
    /// once. The log thread flushes (without one, [`Log::maintain`] does).
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

    /// Sets who is told that `durable` rose: called by whoever flushes with the new durable CSN, in rising order,
    /// before those who wait are woken. It must not block, and must not wait for durability.
    pub fn set_observer(&self, observer: Box<dyn Fn(Csn) + Send + Sync>) {
        *self.core.observer.write() = Some(Arc::from(observer));
    }

    /// Asks for the completer to be called soon, by the log thread (without one, by [`Log::maintain`]), and returns at
    /// once: for a thread that holds a lock under which the completer must not run.
    pub fn request_completion(&self) {
        self.core.request_completion();
    }

    /// Sets the completer. It is called after the right to flush was handed over, if `durable` rose under it, on the
    /// thread that flushed, once others may and those who waited are woken; and by the log thread (without one, by
    /// [`Log::maintain`]) after the log was poisoned and after [`Log::request_completion`]. No lock of the log is held:
    /// it may use the log, and close it.
    pub fn set_completer(&self, completer: Box<dyn Fn() + Send + Sync>) {
        *self.core.completer.write() = Some(Arc::from(completer));
    }
}
