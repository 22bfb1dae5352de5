//! What a leader knows of the other nodes, and the tickets of commits for which a quorum is too much ([`Acks::Local`]) or not enough
//! ([`Acks::All`]).
//!
//! A ticket at `Local` waits in `here` until its commit is durable on this node, then, like any other, for the commits that its transaction
//! read. One at `All` waits like any other until a quorum has its commit, then in `everywhere` until all have it, or its time is over.

use super::Pipeline;
use super::ticket::{Ticket, TicketState};
use super::tickets::Tickets;
use crate::latency::Timed;
use crate::memory_charge::MemoryCharge;
use crate::{Acks, Error, Result};
use fulgurite_log::CommitLog;
use fulgurite_types::Csn;
use fulgurite_types::sync::{AtomicBool, Mutex, Ordering, fence};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How often a committer that waits for all looks.
const ALL_LOOK: Duration = Duration::from_micros(200);

/// The other nodes, at a leader.
pub(super) struct Others {
    /// The newest commit that each is known to have durably.
    durable: Mutex<BTreeMap<u32, Csn>>,
    /// Tickets at `Local`, by their commits.
    here: Tickets,
    /// Tickets at `All` whose commits a quorum has, by these.
    everywhere: Tickets,
    /// Until when those up to a commit wait, in order.
    deadlines: Mutex<VecDeque<(u64, Csn)>>,
    /// No replica will be heard of any more.
    has_ended: AtomicBool,
}

impl Others {
    pub fn new() -> Others {
        Others {
            durable: Mutex::default(),
            here: Tickets::new(),
            everywhere: Tickets::new(),
            deadlines: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    pub fn count_in(&self, memory: &Arc<MemoryCharge>) {
        self.here.count_in(memory.clone());
        self.everywhere.count_in(memory.clone());
    }

    /// Ends what waits: the log has failed, or is being closed.
    pub fn end(&self, why: &str) {
        self.here.end(why);
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// How many nodes have a commit, this one among them, and how many there are.
    fn have(&self, csn: Csn) -> (usize, usize) {
        let durable = self.durable.lock();
        (1 + durable.values().filter(|noted| **noted >= csn).count(), 1 + durable.len())
    }

    /// The newest commit that all have.
    fn everywhere_csn(&self) -> Csn {
        self.durable.lock().values().min().copied().unwrap_or(Csn::MAX)
    }
}

impl<L: CommitLog> Pipeline<L> {
    /// This node leads: the others are these.
    pub fn set_others(&self, nodes: &[u32]) {
        *self.others.durable.lock() = nodes.iter().map(|node| (*node, Csn::ZERO)).collect();
    }

    /// Another node has all commits up to this one durably.
    pub fn note_other(&self, node: u32, csn: Csn) {
        if let Some(noted) = self.others.durable.lock().get_mut(&node) {
            *noted = csn.max(*noted);
        }
        fence(Ordering::SeqCst);
        if !self.others.everywhere.is_empty()
            && self.others.everywhere.first() <= self.others.everywhere_csn()
        {
            self.complete_tickets();
        }
    }

    /// The other nodes, at a leader, and the newest commit that each is known to have durably.
    pub fn others(&self) -> Vec<(u32, Csn)> {
        self.others.durable.lock().iter().map(|(node, csn)| (*node, *csn)).collect()
    }

    /// Returns when all nodes have a commit that a quorum has.
    ///
    /// # Errors
    /// [`Error::ReplicasBehind`]: not in its time, or no other node will be heard of any more.
    pub(super) fn wait_everywhere(&self, csn: Csn) -> Result<()> {
        let (have, want) = self.await_others(csn, || false);
        if have == want { Ok(()) } else { Err(Error::ReplicasBehind { csn, have, want }) }
    }

    /// Waits for that, until `is_over` at most. Returns how many nodes have the commit, and how many there are.
    fn await_others(&self, csn: Csn, is_over: impl Fn() -> bool) -> (usize, usize) {
        let begin_ns = self.stopwatch().now_ns();
        loop {
            let (have, want) = self.others.have(csn);
            let waited_ns = self.stopwatch().now_ns().saturating_sub(begin_ns);
            if have == want
                || self.hears_no_other()
                || is_over()
                || Duration::from_nanos(waited_ns) >= self.following.quorum_wait
            {
                return (have, want);
            }
            self.stopwatch().sleep(ALL_LOOK);
        }
    }

    /// Whether no other node will be heard of any more: this one failed, is being closed, or was deposed.
    fn hears_no_other(&self) -> bool {
        self.others.has_ended.load(Ordering::SeqCst)
            || self.log.poisoned().is_some()
            || self.log.refused_after().is_some()
    }

    /// A ticket for commit `csn` at `Local`, which is visible. It completes when that is durable here, and all commits up to `needs` are stable.
    pub(super) fn ticket_here(self: &Arc<Self>, csn: Csn, needs: Csn, timed: Timed) -> Ticket {
        let pipeline = Arc::downgrade(self);
        let ticket = TicketState::new(csn, needs, Some(timed), pipeline);
        self.others.here.add_until(csn, ticket.clone());
        fence(Ordering::SeqCst);
        if csn <= self.log.durable_here_csn() || self.is_refused(csn) {
            self.complete_tickets();
        }
        if let Some(why) = self.log.poisoned() {
            self.fail_tickets(&why.to_string());
        }
        Ticket::of(ticket)
    }

    /// Goes on with the tickets at `Local` whose commits are durable here.
    pub(super) fn report_here(&self) {
        if self.others.here.is_empty() {
            return;
        }
        if let Some(last) = self.log.refused_after() {
            self.others.here.take_after(last).iter().for_each(|ticket| ticket.refuse());
        }
        let ripe = self.others.here.take(|| self.log.durable_here_csn());
        for ticket in &ripe.complete {
            if ticket.due() <= self.acknowledgeable() {
                self.complete(ticket, self.stopwatch.now_ns());
            } else {
                self.tickets.add(ticket.clone());
            }
        }
        ripe.report_failed();
    }

    /// A quorum has the commits of these tickets at `All`.
    pub(super) fn await_everywhere(&self, tickets: Vec<Arc<TicketState>>) {
        let Some(last) = tickets.iter().map(|ticket| ticket.csn()).max() else { return };
        let limit = self.following.quorum_wait;
        let until_ns =
            self.stopwatch.now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        for ticket in tickets {
            self.others.everywhere.add_until(ticket.csn(), ticket);
        }
        self.others.deadlines.lock().push_back((until_ns, last));
    }

    /// Completes the tickets at `All` whose commits all nodes have, and ends those whose time is over.
    pub(super) fn report_everywhere(&self) {
        let Others { everywhere, deadlines, .. } = &self.others;
        if everywhere.is_empty() {
            return;
        }
        // One that was added here finds what was noted before; one that notes more finds it (INV-TXN-10).
        fence(Ordering::SeqCst);
        let now_ns = self.stopwatch.now_ns();
        let have_all = everywhere.take(|| self.others.everywhere_csn());
        have_all.complete.iter().for_each(|ticket| self.complete(ticket, now_ns));
        let mut over = Csn::ZERO;
        let next_ns = {
            let (mut deadlines, had) = (deadlines.lock(), self.others.everywhere_csn());
            let is_past = |(until_ns, csn): &mut (u64, Csn)| *until_ns <= now_ns || *csn <= had;
            while let Some((_, csn)) = deadlines.pop_front_if(is_past) {
                over = over.max(csn);
            }
            deadlines.front().map(|(until_ns, _)| *until_ns)
        };
        if self.hears_no_other() {
            over = Csn::MAX;
        }
        for ticket in everywhere.take(|| over).complete {
            self.end_everywhere(&ticket, self.others.have(ticket.csn()));
        }
        if let Some(next_ns) = next_ns.filter(|_| !everywhere.is_empty()) {
            // Callbacks may have taken long.
            let left_ns = next_ns.saturating_sub(self.stopwatch.now_ns());
            self.log.request_completion_within(Duration::from_nanos(left_ns));
        }
    }

    /// Waits for what a ticket waits for, and completes it.
    pub(super) fn finish_ticket(&self, ticket: &TicketState) {
        let (csn, acks) = (ticket.csn(), ticket.acks());
        let is_here = match acks {
            Acks::Local => self.log.wait_durable_here(csn).map_err(|error| self.unknown(csn, error)),
            Acks::Quorum | Acks::All => Ok(()),
        };
        if is_here.and_then(|()| self.wait(ticket.due())).is_err() {
            if self.is_refused(csn.max(ticket.due())) {
                ticket.refuse();
            }
            return;
        }
        if acks == Acks::All {
            self.end_everywhere(ticket, self.await_others(csn, || ticket.is_complete()));
        } else {
            self.complete(ticket, self.stopwatch.now_ns());
        }
    }

    /// Ends a ticket at `All` whose commit so many nodes have, of so many.
    fn end_everywhere(&self, ticket: &TicketState, (have, want): (usize, usize)) {
        if have == want {
            self.complete(ticket, self.stopwatch.now_ns());
        } else {
            ticket.fall_behind((have, want));
        }
    }
}
