//! The log thread: it calls the completer on request and flushes requested commits. Once the log is idle, it flushes
//! the other commits and writes a mark group.

use super::CommitStream;
use super::entries::Entries;
use super::leader::{GATHER_NS, GATHER_TURNS};
use crate::error::LogError;
use crate::signal::Sleep;
use crate::staging::Staging;
use crate::threads::{Dying, RETRY};
use fulgurite_types::sync::yield_now;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn run(stream: &Arc<CommitStream>) {
    let shared = &stream.shared;
    let dying = Dying(shared);
    while !shared.is_closed() {
        let result = stream.serve();
        if let Err(error) = &result {
            tracing::debug!(%error, "the log thread could not do its work; it tries again");
        }
        let failed = match result {
            Ok(true) => continue,
            Ok(false) => false,
            Err(_) => true,
        };
        shared.flusher.sleep(|| match stream.look() {
            _ if shared.is_completion_wanted() => Sleep::No,
            Sleep::No if failed && !shared.is_closed() => Sleep::Nap(RETRY),
            sleep => sleep,
        });
    }
    dying.live();
}

impl CommitStream {
    /// Calls the completer if that was requested, flushes requested commits, writes a mark group if the log is idle.
    /// Returns whether it wrote something.
    pub fn serve(self: &Arc<Self>) -> Result<bool, LogError> {
        self.shared.serve_completion();
        self.shared.check_usable()?;
        let flushed = self.flush_requested()?;
        Ok(self.idle_mark()? || flushed)
    }

    /// Makes everything that is reserved durable, and writes a durable mark that says so.
    pub fn flush_all(self: &Arc<Self>) -> Result<(), LogError> {
        match self.wait_durable(self.reserved_csn()) {
            Ok(()) | Err(LogError::NotLeader) => {}
            Err(error) => return Err(error),
        }
        match self.write_mark() {
            Ok(_) | Err(LogError::NoSpace { .. } | LogError::Io { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a mark group if no durable group names the newest agreed entry. Where there is no room for one, later groups do.
    pub fn mark_agreed(self: &Arc<Self>) -> Result<(), LogError> {
        let agreed = self.agreed_index();
        while self.progress.marked_agreed() < agreed {
            self.shared.check_usable()?;
            match self.write_mark() {
                // Groups that wait say it, too, and a staged mark is not durable yet.
                Ok(_) => self.flush_entries()?,
                Err(LogError::NoSpace { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How long the log thread may sleep (INV-LOG-15). It may sleep until it is woken if nothing is requested, now or
    /// for later, the newest durable mark has reached the durable CSN, and no group waits to be written.
    fn look(&self) -> Sleep {
        if self.shared.is_closed() {
            return Sleep::No;
        }
        if self.shared.poison.is_set() {
            return Sleep::Rest;
        }
        let now_ns = self.shared.now_ns();
        if self.requests.requested(now_ns).min(self.flushable_csn()) > self.durable_csn() {
            return Sleep::No;
        }
        let until = |due: u64| Sleep::Nap(Duration::from_nanos(due.saturating_sub(now_ns)));
        let due_ns = self.requests.due_ns().unwrap_or(u64::MAX).min(self.shared.completion_due_ns());
        let due = if due_ns == u64::MAX { Sleep::Rest } else { until(due_ns) };
        let is_idle = !self.is_mark_due() && self.groups.is_idle() && !self.is_staged();
        if is_idle { due } else { due.min(Sleep::Nap(self.until_mark(now_ns))) }
    }

    fn is_mark_due(&self) -> bool {
        self.progress.is_mark_due(self.entries.as_ref().map_or(0, Entries::agreed_index))
    }

    /// How long until the thread checks again whether the log is idle. Longer if the log has been idle and the thread
    /// could not act, as on a full disk.
    fn until_mark(&self, now_ns: u64) -> Duration {
        let idle = self.shared.options.mark_idle;
        let waited_ns = now_ns.saturating_sub(self.shared.io.busy_ns());
        if u128::from(waited_ns) > 2 * idle.as_nanos() { idle.max(RETRY) } else { idle }
    }

    fn flush_requested(&self) -> Result<bool, LogError> {
        let requested = self.requests.requested(self.shared.now_ns());
        if requested <= self.durable_csn() {
            return Ok(false);
        }
        let requested = requested.min(self.flushable_csn());
        if requested <= self.durable_csn() {
            return Ok(false);
        }
        self.gather_requests();
        self.wait_durable(requested)?;
        Ok(true)
    }

    /// Keeps at least the time of one write between two requested flushes: requests filed meanwhile share the second.
    /// The first of a burst does not wait.
    fn gather_requests(&self) {
        let end_ns = self.shared.io.busy_ns() + self.shared.io.average_ns().min(GATHER_NS);
        for _ in 0..GATHER_TURNS {
            if self.shared.now_ns() >= end_ns {
                break;
            }
            yield_now();
        }
    }

    /// Whether anything is staged that is not in its segment.
    fn is_staged(&self) -> bool {
        self.staging().is_some_and(Staging::holds_any)
    }

    /// Once the stream is idle: flushes commits that no thread requested, then writes one mark group, then drains the staged commits. A
    /// mark group adds no CSN, so none causes another. It is written only if no group waits to be written.
    fn idle_mark(self: &Arc<Self>) -> Result<bool, LogError> {
        let leftover = !self.groups.is_idle();
        if !self.is_mark_due() && !leftover && !self.is_staged() {
            return Ok(false);
        }
        let idle_ns = self.shared.now_ns().saturating_sub(self.shared.io.busy_ns());
        if u128::from(idle_ns) < self.shared.options.mark_idle.as_nanos() {
            return Ok(false);
        }
        if leftover && self.flush_numbered(false)? {
            return Ok(true);
        }
        Ok(self.write_mark()? || self.drain(false)?)
    }

    fn write_mark(self: &Arc<Self>) -> Result<bool, LogError> {
        if !self.is_mark_due() || !self.append_mark()? {
            return Ok(false);
        }
        self.flush(true)
    }
}
