//! Steps 6 and 7: asking for durability, waiting for it, acknowledging commits, and errors after a failure.

use std::sync::Arc;

use fulgurite_log::{Durability, LogError};
use fulgurite_types::Csn;

use super::quiet::{is_in_callback, is_quiet};
use super::ticket::{Finish, Ticket, TicketState};
use super::watches::{WatchState, Watches};
use super::{BROKEN, Pipeline};
use crate::error::OrError;
use crate::latency::{Stopwatch, Timed};
use crate::{Acks, CsnRange, Error, Numbered, Result};
use fulgurite_log::CommitLog;
use fulgurite_types::sync::{Ordering, fence};

impl<L: CommitLog> Pipeline<L> {
    /// Measures how long commits take.
    pub fn stopwatch(&self) -> &Stopwatch {
        &self.stopwatch
    }

    /// Returns when `csn` and all before it are durable and visible.
    pub fn wait(&self, csn: Csn) -> Result<()> {
        self.log.wait_durable(csn).map_err(|error| self.unknown(csn, error))?;
        self.visible_or_broken(csn)
    }

    /// Returns when the horizon has passed `csn`, whatever the levels of the commits.
    pub fn wait_horizon(&self, csn: Csn) -> Result<()> {
        self.log.wait_synced(csn).map_err(|error| self.unknown(csn, error))?;
        self.visible_or_broken(csn)
    }

    /// Asks for the horizon to pass `csn`. The log's thread writes and syncs, and this returns at once. But if `csn`
    /// counts as durable and no flush of the device has covered it (`NoBarrier`, or staging in persistent memory), this causes the flush and waits for
    /// it.
    pub fn request_horizon(&self, csn: Csn) -> Result<()> {
        if self.stable() < csn {
            self.log.request_durable(csn);
        } else if self.floor() < csn {
            self.log.wait_synced(csn).or_error()?;
        }
        Ok(())
    }

    fn visible_or_broken(&self, csn: Csn) -> Result<()> {
        if self.wait_visible(csn) { Ok(()) } else { Err(self.outcome_unknown(csn, BROKEN.into())) }
    }

    /// Waits until a submitted commit may be acknowledged at its level. `needs` is at or above the newest commit above
    /// `Async` that it read.
    pub fn wait_acknowledged(&self, csn: Csn, needs: Csn, timed: Timed) -> Result<()> {
        let waits = timed.waits();
        self.request(csn, timed.level);
        self.log.wait_durable(if waits { csn } else { needs }).map_err(|error| self.unknown(csn, error))?;
        if waits {
            self.visible_or_broken(csn)?;
        } else {
            if timed.level.waits() {
                self.log.wait_durable_here(csn).map_err(|error| self.unknown(csn, error))?;
            }
            self.stage(csn, timed.level)?;
            self.check_acknowledgeable(csn)?;
            self.acknowledge(csn);
        }
        self.stopwatch.stop(csn, timed, self.stopwatch.now_ns());
        if timed.acks == Acks::All { self.wait_everywhere(csn) } else { Ok(()) }
    }

    /// A ticket for a submitted commit, which at every level is visible when this returns (INV-TXN-11). The commit is
    /// applied, but earlier ones may not be. None of those does I/O between its number and its apply (INV-TXN-3), so
    /// this waits for a few copies in memory at most.
    pub fn acknowledge_deferred(self: &Arc<Self>, csn: Csn, needs: Csn, timed: Timed) -> Result<Ticket> {
        if timed.waits() || timed.level.waits() {
            // The flush starts while this thread waits for `visible`. Where that is a copy in memory, it is made here.
            let staged = self.log.try_stage(csn).map_err(|error| self.unknown(csn, error))?;
            if !staged || csn > self.stable() {
                self.log.request_durable(csn);
            }
            self.visible_or_broken(csn)?;
            return Ok(match timed.waits() {
                true => self.ticket(csn, csn, Some(timed)),
                false => self.ticket_here(csn, needs, timed),
            });
        }
        self.request(csn, timed.level);
        self.stage(csn, timed.level)?;
        self.check_acknowledgeable(csn)?;
        if needs > self.acknowledgeable() {
            return Ok(self.ticket(csn, needs, Some(timed)));
        }
        self.acknowledge(csn);
        self.stopwatch.stop(csn, timed, self.stopwatch.now_ns());
        Ok(Ticket::done(csn))
    }

    /// The numbers of a submitted commit, with what its acknowledgement waits for. Waits for nothing. A commit at `Async` or `None`
    /// that waits for nothing is acknowledged.
    pub fn number(&self, csn: Csn, needs: Csn, level: Durability) -> Numbered {
        if level.waits() {
            return Numbered { csn, needs: csn, shows: Csn::ZERO };
        }
        self.request(csn, level);
        let is_staged = level != Durability::Staged || self.log.try_stage(csn).is_ok_and(|staged| staged);
        fence(Ordering::SeqCst);
        // As in `check_acknowledgeable`: the last flush may not cover it. An earlier commit that is not applied yet hides it from
        // readers, seldom and for a moment: then it is acknowledged when it is durable.
        let is_ending =
            self.closing.load(Ordering::SeqCst) || self.log.poisoned().is_some() || self.is_refused(csn);
        if is_ending || !is_staged || csn > self.visible() {
            return Numbered { csn, needs: csn, shows: csn };
        }
        if needs > self.acknowledgeable() {
            return Numbered { csn, needs, shows: csn };
        }
        self.acknowledge(csn);
        Numbered { csn, needs: Csn::ZERO, shows: csn }
    }

    /// Returns when a commit at `Staged` is staged: after a copy in memory, unless all buffers are full.
    fn stage(&self, csn: Csn, level: Durability) -> Result<()> {
        if level != Durability::Staged {
            return Ok(());
        }
        self.log.wait_staged(csn).map_err(|error| self.unknown(csn, error))
    }

    fn request(&self, csn: Csn, level: Durability) {
        if let Durability::Async { interval } = level {
            self.log.request_durable_within(csn, interval);
        }
    }

    /// Returns when a commit may be acknowledged before it is durable: it is visible, and becomes durable unless
    /// something fails. If the log has failed or is about to close, this waits until the commit is durable.
    ///
    /// The closer sets `closing`, then flushes for the last time. The committer fills its frame, then reads `closing`.
    /// Each has a sequentially consistent fence between the two. So if the committer finds `closing` unset, the closer
    /// finds the frame filled, and its last flush covers the commit.
    fn check_acknowledgeable(&self, csn: Csn) -> Result<()> {
        self.visible_or_broken(csn)?;
        fence(Ordering::SeqCst);
        if self.is_refused(csn) {
            return Err(self.not_leader());
        }
        if self.closing.load(Ordering::SeqCst) || self.log.poisoned().is_some() {
            return self.wait(csn);
        }
        Ok(())
    }

    /// Called right before a commit at `Async` or `None` is acknowledged: from now on reads whose results may leave the
    /// process show it (INV-TXN-6).
    fn acknowledge(&self, csn: Csn) {
        self.acknowledged.fetch_max(csn.0, Ordering::SeqCst);
    }

    /// The closer calls it before it closes the log: from now on no commit is acknowledged before it is durable.
    pub fn begin_close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    // Tickets.

    /// A ticket for commit `csn`, which completes when all commits up to `due` are durable and visible. `timed` is
    /// `None` if the transaction wrote nothing.
    pub fn ticket(self: &Arc<Self>, csn: Csn, due: Csn, timed: Option<Timed>) -> Ticket {
        let pipeline = Arc::downgrade(self);
        if due <= self.acknowledgeable() && timed.is_none() {
            return Ticket::done(csn);
        }
        let ticket = TicketState::new(csn, due, timed, pipeline);
        self.tickets.add(ticket.clone());
        self.log.request_durable(due);
        self.complete_ripe_tickets();
        if self.is_refused(due) {
            self.complete_tickets();
        }
        if let Some(why) = self.log.poisoned() {
            self.fail_tickets(&why.to_string());
        }
        Ticket::of(ticket)
    }

    /// The log calls it after a flush leader has handed over the lead, after a failure, and when asked
    /// ([`CommitLog::request_completion`]).
    pub(super) fn completer(&self) {
        match self.log.poisoned() {
            Some(why) => self.fail_tickets(&why.to_string()),
            None => self.complete_tickets(),
        }
    }

    /// Completes the tickets that have an outcome, and runs their callbacks. A thread that is quiet or inside a
    /// callback leaves that to the log's thread or, in a database without background threads, to the next maintenance
    /// (INV-TXN-12).
    pub(super) fn complete_tickets(&self) {
        if is_quiet() || is_in_callback() {
            self.log.request_completion();
            return;
        }
        self.report_to_tickets();
    }

    fn report_to_tickets(&self) {
        fence(Ordering::SeqCst);
        if self.watches.first() <= self.acknowledgeable() {
            Watches::wake(self.watches.take(|| self.acknowledgeable()));
        }
        if let Some(last) = self.log.refused_after() {
            self.tickets.take_after(last).iter().for_each(|ticket| ticket.refuse());
            Watches::wake(self.watches.take_after(last));
        }
        self.report_here();
        let mut ripe = self.tickets.take(|| self.acknowledgeable());
        if !ripe.complete.is_empty() {
            self.await_everywhere(
                ripe.complete.extract_if(.., |ticket| ticket.acks() == Acks::All).collect(),
            );
            let now_ns = self.stopwatch.now_ns();
            for ticket in &ripe.complete {
                self.complete(ticket, now_ns);
            }
        }
        ripe.report_failed();
        self.report_everywhere();
    }

    /// Called by a thread after it filed a ticket, and when it stops being quiet: a thread is quiet while it raises
    /// `visible` (INV-TXN-10). Wakes the watches, too.
    pub fn complete_ripe_tickets(&self) {
        fence(Ordering::SeqCst);
        if self.tickets.first().min(self.watches.first()) <= self.acknowledgeable() {
            self.complete_tickets();
        }
    }

    pub(super) fn complete(&self, ticket: &TicketState, now_ns: u64) {
        if ticket.timed().is_some() && self.is_refused(ticket.csn()) {
            return ticket.refuse();
        }
        let asynchronous = ticket.timed().filter(|timed| !timed.waits());
        if asynchronous.is_some() {
            self.acknowledge(ticket.csn());
        }
        if ticket.complete()
            && let Some(timed) = ticket.timed()
        {
            self.stopwatch.stop(ticket.csn(), timed, now_ns);
        }
    }

    /// Ends all open and later tickets, and all watches: the log has failed or was closed.
    pub fn fail_tickets(&self, why: &str) {
        self.tickets.end(why);
        self.others.end(why);
        self.watches.end();
        if is_quiet() {
            return self.log.request_completion();
        }
        // Also inside a callback: the callback may be closing the log, whose thread may then never run the completer.
        self.report_to_tickets();
    }

    // Watches.

    /// Adds a watch, which is not armed.
    pub fn add_watch(&self, watch: &Arc<WatchState>) {
        self.watches.add(watch.clone());
    }

    /// Removes a watch; a wake-up may still be on its way.
    pub fn remove_watch(&self, watch: &Arc<WatchState>) {
        self.watches.remove(watch);
    }

    /// Whether `csn` may be acknowledged. If not, has it made durable, and arms the watch for it.
    pub fn ask(&self, watch: &WatchState, csn: Csn) -> Result<bool> {
        if csn <= self.acknowledgeable() {
            return Ok(true);
        }
        // No request is above the commits that there are: those of later commits up to it would be no news to the log's thread.
        self.log.request_durable(csn.min(self.newest()));
        if self.is_refused(csn) {
            return Err(self.not_leader());
        }
        if !self.watches.arm(watch, csn) {
            return Err(self.ended());
        }
        fence(Ordering::SeqCst);
        if csn <= self.acknowledgeable() {
            self.watches.disarm(watch);
            return Ok(true);
        }
        if self.is_refused(csn) {
            self.watches.disarm(watch);
            return Err(self.not_leader());
        }
        if self.log.poisoned().is_some() {
            // The log's thread reports it, also to this watch: no wake-up runs inside this call.
            self.log.request_completion();
            return Err(self.ended());
        }
        Ok(false)
    }

    /// The CSN up to which commits above `Async` may be acknowledged.
    pub fn reached(&self) -> Csn {
        self.acknowledgeable()
    }

    /// Leads one flush, unless another thread does. True if it wrote something.
    pub fn lead(&self) -> Result<bool> {
        self.log.try_flush().map_err(|error| {
            if let LogError::Poisoned(_) = &error {
                self.fail_tickets(&error.to_string());
            }
            self.refused(error)
        })
    }

    /// Acknowledges a commit at `Async` or `None` whose `needs` are reached.
    pub fn acknowledge_numbered(&self, commit: Numbered) {
        if commit.needs <= self.acknowledgeable() && !self.is_refused(commit.csn) {
            self.acknowledge(commit.shows.min(self.visible()));
        }
    }

    /// Why no commit is acknowledged any more.
    fn ended(&self) -> Error {
        self.check_log().err().unwrap_or(Error::Closed)
    }

    // Failures.

    /// Fails if the log has failed.
    pub fn check_log(&self) -> Result<()> {
        match self.log.poisoned() {
            Some(why) => Err(Error::Poisoned { what: why.to_string(), at_risk: self.at_risk() }),
            None => Ok(()),
        }
    }

    /// If the log has failed: the commits that were acknowledged and may be lost.
    pub fn at_risk(&self) -> Option<CsnRange> {
        self.log.poisoned()?;
        let range =
            CsnRange { first: self.stable().next(), last: Csn(self.acknowledged.load(Ordering::SeqCst)) };
        (range.first <= range.last).then_some(range)
    }

    /// The error of an admission that the log refused.
    pub(super) fn refused(&self, error: LogError) -> Error {
        match Error::of_log(error) {
            Error::NotLeader { .. } => self.not_leader(),
            Error::Poisoned { what, .. } => Error::Poisoned { what, at_risk: self.at_risk() },
            other => other,
        }
    }

    fn outcome_unknown(&self, csn: Csn, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::OutcomeUnknown { csn, source, at_risk: self.at_risk() }
    }

    pub(super) fn unknown(&self, csn: Csn, error: LogError) -> Error {
        match error {
            LogError::Poisoned(_) | LogError::NotAgreed => {
                self.fail_tickets(&error.to_string());
                self.outcome_unknown(csn, Box::new(error))
            }
            LogError::NotLeader => self.not_leader(),
            LogError::Closed => {
                self.fail_tickets(&error.to_string());
                Error::Closed
            }
            other => Error::of_log(other),
        }
    }
}

impl<L: CommitLog> Finish for Pipeline<L> {
    fn finish(&self, ticket: &TicketState) {
        self.finish_ticket(ticket);
    }
}
