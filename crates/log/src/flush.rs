//! Who leads a flush, and who waits for it. The scheme is this file alone; what a leader does is `write.rs`.
//!
//! Whoever finds nobody leading leads at once: with one committing thread nobody waits and nobody is woken, there is
//! one write and one sync. Whoever finds a leader waits until it has finished; the first to wake that is not covered
//! leads next.

use crate::core::Core;
use crate::error::LogError;
use crate::log::Log;
use crate::stats::add;
use fulgurite_base::Csn;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Debug, Default)]
struct State {
    leading: bool,
    waiting: usize,
}

/// The hand-over of leadership.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    state: Mutex<State>,
    changed: Condvar,
}

/// Leadership: at most one exists (INV-LOG-6). Dropping it wakes everybody who waits, and then tells the completer if
/// `durable` rose.
pub(crate) struct Leadership<'a> {
    core: &'a Core,
    pub raised: Cell<bool>,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        if panics {
            self.core.poison.set("a flush panicked", None);
        }
        let flusher = &self.core.flusher;
        let mut state = flusher.state.lock();
        state.leading = false;
        if state.waiting > 0 {
            flusher.changed.notify_all();
        }
        drop(state);
        if self.raised.get() && !panics {
            let completer = self.core.completer.read().clone();
            if let Some(completer) = completer {
                completer();
            }
        }
    }
}

impl Core {
    /// Becomes the leader, unless there is one.
    pub fn try_lead(&self) -> Option<Leadership<'_>> {
        let mut state = self.flusher.state.lock();
        if state.leading {
            return None;
        }
        state.leading = true;
        Some(Leadership { core: self, raised: Cell::new(false) })
    }

    /// Leads; or waits until the present leader has finished and returns `None`. Returns `None` at once if
    /// `is_done`, which is asked under the lock, so that no hand-over is missed.
    fn lead_or_wait(&self, is_done: impl FnOnce() -> bool) -> Option<Leadership<'_>> {
        let mut state = self.flusher.state.lock();
        if is_done() {
            return None;
        }
        if !state.leading {
            state.leading = true;
            return Some(Leadership { core: self, raised: Cell::new(false) });
        }
        add(&self.stats.flush_waits, 1);
        state.waiting += 1;
        self.flusher.changed.wait(&mut state);
        state.waiting -= 1;
        None
    }

    /// Returns when `csn` is durable.
    pub fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        loop {
            if self.durable_csn() >= csn {
                return Ok(());
            }
            self.poison.check()?;
            if let Some(leadership) = self.lead_or_wait(|| self.durable_csn() >= csn) {
                let flushed = self.flush(&leadership)?;
                drop(leadership);
                if !flushed && self.durable_csn() < csn {
                    return Err(self.never_reserved(csn));
                }
            }
        }
    }

    /// Flushes what was reserved, and then ends flushing for good.
    pub fn flush_last(&self) -> Result<(), LogError> {
        loop {
            if let Some(leadership) = self.lead_or_wait(|| false) {
                while self.flush(&leadership)? {}
                self.ended.store(true, Ordering::Release);
                return Ok(());
            }
        }
    }

    fn never_reserved(&self, csn: Csn) -> LogError {
        let newest = self.slot().next_csn().prev();
        LogError::Usage(format!("commit {csn} was awaited, but {newest} is the newest one"))
    }

    /// Writes something, or waits for whoever does, so that buffers come back.
    pub fn flush_for_credit(&self) -> Result<(), LogError> {
        match self.lead_or_wait(|| false) {
            Some(leadership) => {
                if !self.flush(&leadership)? {
                    drop(leadership);
                    std::thread::yield_now();
                }
                Ok(())
            }
            None => self.check_usable(),
        }
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

    /// Asks for the commit to become durable, and returns at once: the log thread flushes (without one,
    /// [`Log::maintain`] does). The observer tells when it is done.
    pub fn request_durable(&self, csn: Csn) {
        if self.core.marks.requested_csn.fetch_max(csn.0, Ordering::AcqRel) < csn.0 {
            self.core.wake();
        }
    }

    /// Sets who is told that `durable` rose: called by the leader with the new durable CSN, in rising order, with no
    /// lock held, before those who wait are woken. It must not block, and must not wait for durability.
    pub fn set_observer(&self, observer: Box<dyn Fn(Csn) + Send + Sync>) {
        *self.core.observer.write() = Some(Arc::from(observer));
    }

    /// Sets who is called after leadership was handed over, if `durable` rose under it: on the thread that led, once
    /// others may flush and those who waited are woken. It may use the log.
    pub fn set_completer(&self, completer: Box<dyn Fn() + Send + Sync>) {
        *self.core.completer.write() = Some(Arc::from(completer));
    }
}
