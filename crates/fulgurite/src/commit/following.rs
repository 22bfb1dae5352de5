//! Commits that another node numbered: how they become visible here, and when this node may commit itself.
//!
//! The log of each opening begins as a follower's (`docs/replication.md`). While a node follows, one thread at a time applies the commits
//! that are agreed and durable here, in the order of their numbers, and no committer is admitted.
//!
//! - INV-REP-6: while a node follows, `visible` is the last applied commit, and every memtable that is frozen ends at `visible`: both happen
//!   under one lock. So no boundary of a merge or of a checkpoint lies above `agreed`, and neither waits for a quorum.
//! - INV-REP-7: a leader admits no commit before all commits in its log are visible. Otherwise a commit would be validated without them, and
//!   of two writes to one key the later one would not see the first.
//!
//! A node follows until it leads, and a node that led is opened again before it follows: so this ends once in an opening.

use super::quiet::is_in_callback;
use super::{Pipeline, Unfinished};
use crate::{Error, Result};
use fulgurite_env::Env;
use fulgurite_log::{CommitLog, Log, Role, Signal};
use fulgurite_types::Csn;
use fulgurite_types::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// How long a checkpoint waits for a quorum after the last commit that was agreed.
pub(crate) const QUORUM_WAIT: Duration = Duration::from_secs(1);

/// So long while commits go on to be agreed: a quorum that is slow, and always a second behind, would keep every checkpoint from its end.
pub(crate) const QUORUM_WAIT_MAX: Duration = Duration::from_secs(30);

/// How often it looks.
const QUORUM_LOOK: Duration = Duration::from_micros(200);

/// No leader is known.
const UNKNOWN: u64 = u64::MAX;

/// Whether a node follows.
pub(super) struct Following {
    is_on: AtomicBool,
    /// Held over the apply of a commit and the raise of `visible`, or while a boundary is chosen.
    applying: Mutex<()>,
    /// The node that leads, as far as this one has heard.
    leader: AtomicU64,
    /// Wakes the thread that applies.
    applier: Arc<Signal>,
    /// How long a committer waits for a quorum, and one at `All` for the other nodes once a quorum has its commit.
    pub(super) quorum_wait: Duration,
}

impl Following {
    /// Of a node that does not follow yet.
    pub fn new(quorum_wait: Duration) -> Following {
        Following {
            quorum_wait,
            is_on: AtomicBool::new(false),
            applying: Mutex::new(()),
            leader: AtomicU64::new(UNKNOWN),
            applier: Arc::default(),
        }
    }
}

impl<L: CommitLog> Pipeline<L> {
    /// Called before the database serves: commits come from another node.
    pub fn begin_following(&self) {
        self.following.is_on.store(true, Ordering::SeqCst);
    }

    /// Whether commits come from another node.
    #[inline]
    pub fn is_following(&self) -> bool {
        self.following.is_on.load(Ordering::SeqCst)
    }

    /// Wakes the thread that applies commits.
    pub fn applier(&self) -> &Arc<Signal> {
        &self.following.applier
    }

    /// Another node leads, or this one, which may have nothing to apply before it admits commits.
    pub fn note_leader(&self, node: u32) {
        if self.following.leader.swap(node.into(), Ordering::Relaxed) != u64::from(node) {
            self.applier().wake();
        }
    }

    /// The error of a commit that another node has to make.
    pub fn not_leader(&self) -> Error {
        Error::NotLeader { leader: u32::try_from(self.following.leader.load(Ordering::Relaxed)).ok() }
    }

    /// Fails while commits come from another node.
    #[inline]
    pub(super) fn check_leads(&self) -> Result<()> {
        if self.is_following() { Err(self.not_leader()) } else { Ok(()) }
    }

    /// Waits for a quorum: nothing above `agreed` leaves the memory, so commits stop at a limit. At once if it must not wait.
    #[cold]
    pub(super) fn wait_for_quorum(&self, may_wait: bool) -> Result<()> {
        // A callback may run on the thread that brings the acknowledgements.
        let limit = if may_wait && !is_in_callback() { self.following.quorum_wait } else { Duration::ZERO };
        match self.log.wait_quorum(limit) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::NoQuorum { waited: limit }),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Fails before anything is written ahead for a commit that could not be made now: chunks take space until their transaction ends.
    pub fn check_may_write_ahead(&self) -> Result<()> {
        self.check_leads()?;
        if self.log.has_quorum_for_chunks() { Ok(()) } else { self.wait_for_quorum(true) }
    }

    /// The time up to which expired values may be removed: that of the newest agreed commit; on a single node any.
    pub fn agreed_time_ms(&self) -> u64 {
        self.log.agreed_time_ms().unwrap_or(u64::MAX)
    }

    /// Fails if a committer has waited since `begin_ns`, for as long as one may, and visible commits cannot be merged because no quorum has them.
    pub fn check_quorum_since(&self, begin_ns: u64) -> Result<()> {
        let waited = Duration::from_nanos(self.stopwatch().now_ns().saturating_sub(begin_ns));
        let limit = self.following.quorum_wait;
        if limit.is_zero() || waited < limit || self.stable() >= self.visible() {
            return Ok(());
        }
        Err(if self.log.refused_after().is_some() { self.not_leader() } else { Error::NoQuorum { waited } })
    }

    /// Whether a commit with this number did not happen: this node led, and the cluster has it not.
    pub(super) fn is_refused(&self, csn: Csn) -> bool {
        self.log.refused_after().is_some_and(|last| csn > last)
    }

    /// Applies the commit after `visible`, which is agreed and durable here, and makes it visible.
    pub fn follow(&self, csn: Csn, apply: impl FnOnce()) {
        let quiet = self.quiet();
        let unfinished = Unfinished(self);
        let applying = self.following.applying.lock();
        assert_eq!(csn, self.visible().next(), "INV-REP-6: a commit is applied out of order");
        apply();
        self.numbers.synchronous.fetch_max(csn.0, Ordering::SeqCst);
        self.visible.store(csn.0, Ordering::SeqCst);
        drop(applying);
        std::mem::forget(unfinished);
        self.wake_waiters();
        drop(quiet);
    }
}

impl Pipeline<Log> {
    /// Runs `work` with a CSN at which memtables may be frozen: commits up to there have their numbers, and those after it are not applied yet.
    /// It has to be short, and must not call the log.
    pub fn at_boundary<R>(&self, work: impl FnOnce(Csn) -> R) -> R {
        if self.is_following() {
            let _applying = self.following.applying.lock();
            if self.is_following() {
                return work(self.visible());
            }
        }
        self.log.at_reserved(work)
    }

    /// Returns when the horizon has passed `csn`. In a replicated log it waits for a quorum, but no longer than [`QUORUM_WAIT`] after the last agreed
    /// commit, nor than `most`: the caller holds what others need.
    pub fn wait_horizon_or_no_quorum(&self, csn: Csn, most: Duration, env: &dyn Env) -> Result<()> {
        if self.log.role().is_none() {
            return self.wait_horizon(csn);
        }
        if self.horizon() >= csn {
            return Ok(());
        }
        self.log.flush_entries().map_err(|error| self.refused(error))?;
        let clock = env.clock();
        let mut patience = Patience::new(clock.monotonic_ns(), most);
        loop {
            let (horizon, now_ns) = (self.horizon(), clock.monotonic_ns());
            if horizon >= csn {
                return Ok(());
            }
            self.check_log()?;
            // Without threads of the log, no acknowledgement comes while this thread waits.
            if patience.is_over(horizon, now_ns) || !self.log.options().background {
                return Err(Error::NoQuorum { waited: patience.waited(now_ns) });
            }
            clock.sleep(QUORUM_LOOK);
        }
    }

    /// Whether this node leads, and has applied all: the log takes commits of others no more, and those of this node not yet.
    pub fn may_serve(&self) -> bool {
        matches!(self.log.role(), Some(Role::Leader { .. })) && self.visible() == self.log.reserved_csn()
    }

    /// Admits commits if this node leads and all commits in its log are visible (INV-REP-7). Returns whether it does.
    pub fn begin_serving(&self, before: impl FnOnce()) -> bool {
        if !self.is_following() {
            return false;
        }
        let _applying = self.following.applying.lock();
        if !self.may_serve() {
            return false;
        }
        before();
        self.following.is_on.store(false, Ordering::SeqCst);
        true
    }
}

/// How long a thread waits for a quorum.
struct Patience {
    begin_ns: u64,
    most: Duration,
    /// When the horizon rose last, and to what.
    rose_ns: u64,
    horizon: Csn,
}

impl Patience {
    fn new(now_ns: u64, most: Duration) -> Patience {
        Patience { begin_ns: now_ns, most, rose_ns: now_ns, horizon: Csn::ZERO }
    }

    fn waited(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.begin_ns))
    }

    /// Whether it waits no longer, with the horizon here.
    fn is_over(&mut self, horizon: Csn, now_ns: u64) -> bool {
        if horizon > self.horizon {
            (self.rose_ns, self.horizon) = (now_ns, horizon);
        }
        let still = Duration::from_nanos(now_ns.saturating_sub(self.rose_ns));
        still >= QUORUM_WAIT || self.waited(now_ns) >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_quorum_is_waited_for_while_it_goes_on() {
        const MS: u64 = 1_000_000;
        let mut patience = Patience::new(5 * MS, QUORUM_WAIT_MAX);
        for step in 1..33 {
            assert!(!patience.is_over(Csn(step), (5 + step * 900) * MS), "step {step}");
        }
        assert!(!patience.is_over(Csn(32), (5 + 32 * 900 + 999) * MS));
        assert!(patience.is_over(Csn(32), (5 + 32 * 900 + 1_000) * MS), "it stands");
        assert!(patience.is_over(Csn(33), 30_005 * MS), "it takes too long");
        assert_eq!(patience.waited(30_005 * MS), QUORUM_WAIT_MAX);
        let mut patience = Patience::new(0, QUORUM_WAIT_MAX);
        assert!(!patience.is_over(Csn(7), 0) && patience.is_over(Csn(7), 1_000 * MS));
    }
}
