//! Merging and checkpoints, which move data from the memtables to disk: when they run, under which lock, and how long
//! committers wait for them.
//!
//! A thread of the background does each ([`crate::background`]); neither keeps the other from its work. Merging takes
//! one memtable of each table in turn. A checkpoint merges the memtables at or below its boundary, and no others, however
//! fast committers freeze more of them. Its lock, [`Engine::checkpointer`], is held over a whole checkpoint; what else
//! changes the disk takes [`Engine::space`], which is held for moments.
//!
//! Committers are slowed before they are stopped ([`crate::throttle`]): while a table has more than half of the memtables
//! that it may have, while the log has outgrown its share, and while there is much garbage. They stop for the memtables only.

use fulgurite_log::{CommitLog, LogError};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fulgurite_types::{Csn, limits};
use smallvec::SmallVec;

use crate::catalog::TableState;
use crate::checkpoint::CheckpointReport;
use crate::checkpoint::growth::LogBytes;
use crate::commit::following::QUORUM_WAIT;
use crate::commit::quiet::is_in_callback;
use crate::engine::Engine;
use crate::error::OrError;
use crate::latency::Waited;
use crate::merger::{MEMTABLES_SLOW, freeze_if_grown, freeze_if_still, has_too_many_memtables};
use crate::progress::Failures;
use crate::throttle::{Pressure, Throttle};
use crate::{Error, Result};

/// A shorter wait is left out: the next commit makes up for it.
const SLEEP_NS_MIN: u64 = 50_000;

/// Where committers are slowed, one that must not wait commits while those before it wait for less than this: those behind it wait
/// for it.
const AHEAD_NS_MAX: u64 = 2_000_000;

/// A commit of no more than this waits for a checkpoint once, [`crate::checkpoint::pacing`] says how long at most.
const SMALL_BYTES: u64 = 64 << 10;

/// A commit that waits for a checkpoint looks at it again after this time.
const SLICE_NS: u64 = 20_000_000;

/// How often a transaction that waits for another one's excess to be covered looks.
const EXCESS_LOOK: Duration = Duration::from_millis(20);

/// How often opening tries to free the segments that a checkpoint retired.
const FREEING_ROUNDS: u32 = 8;

/// The result of one round of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Some work was done.
    pub worked: bool,
    /// Some work has to wait for other threads.
    pub left: bool,
}

impl Engine {
    /// Slows a committer that writes about `bytes` to each of some tables while background work is behind, and stops it
    /// while one of them has too many memtables, which bounds memory.
    pub fn wait_for_maintenance<'t>(
        &self,
        tables: impl Iterator<Item = &'t TableState> + Clone,
        bytes: usize,
    ) -> Result<()> {
        if self.pacing.pressure(&self.growth).is_some() {
            self.slow_for_checkpoint((bytes * tables.clone().count()) as u64)?;
        }
        self.wait_for_memtables()?;
        if self.memtables_are_many()
            || tables.clone().any(|table| table.index.memtables().count() > MEMTABLES_SLOW)
        {
            self.slow_for_merging(tables, bytes)
        } else {
            Ok(())
        }
    }

    /// Whether a committer that writes about `bytes` to each of some tables would have to wait in [`Engine::wait_for_maintenance`] or
    /// [`Engine::wait_for_excess`]. If not, it has had its turn where committers are slowed.
    pub fn has_to_wait<'t>(
        &self,
        tables: impl Iterator<Item = &'t TableState> + Clone,
        bytes: usize,
    ) -> bool {
        if self.memtables_have_to_be_merged()
            || self.has_to_wait_for_excess(bytes)
            || tables.clone().any(|table| self.has_too_many_memtables(table))
        {
            // Where merging fails a thread that waits says why.
            if !self.progress.merging.is_failing() {
                let until_ns = self.env.clock().monotonic_ns() + 2 * AHEAD_NS_MAX;
                self.pacing.slowed_until_ns.fetch_max(until_ns, Relaxed);
            }
            return true;
        }
        if !self.options.background || is_in_callback() {
            return false;
        }
        let bytes_of_all = (bytes * tables.clone().count()) as u64;
        let pressure = self.pacing.pressure(&self.growth);
        let of_checkpoint =
            pressure.map(|(_, pressure)| (&self.pacing.throttle, pressure.cost_ns(bytes_of_all)));
        let are_many = self.memtables_are_many();
        let of_merging = tables.filter(|table| {
            let count = table.index.memtables().count();
            count > MEMTABLES_SLOW || (are_many && count > 1)
        });
        let of_merging = of_merging
            .map(|table| (&table.throttle, self.merging_pressure(table, are_many).cost_ns(bytes as u64)));
        let queues: SmallVec<[(&Throttle, u64); 4]> = of_checkpoint.into_iter().chain(of_merging).collect();
        !self.goes_ahead(&queues)
    }

    /// Whether a commit that must not wait may go ahead of those behind it, in each of some queues with what it has to take there.
    fn goes_ahead(&self, queues: &[(&Throttle, u64)]) -> bool {
        if queues.is_empty() {
            return true;
        }
        let now_ns = self.env.clock().monotonic_ns();
        let goes = queues.iter().all(|(queue, cost_ns)| queue.lets_ahead(now_ns, *cost_ns, AHEAD_NS_MAX));
        for (queue, cost_ns) in queues {
            if goes {
                queue.take_ahead(now_ns, *cost_ns);
            }
            self.pacing.slowed_until_ns.fetch_max(queue.until_ns(), Relaxed);
        }
        goes
    }

    /// How long it takes until a commit that must not wait is not refused because committers are slowed, as far as it is known.
    pub fn commit_delay(&self) -> Duration {
        let until_ns = self.pacing.slowed_until_ns.load(Relaxed);
        if until_ns == 0 {
            return Duration::ZERO;
        }
        let ahead_ns = until_ns.saturating_sub(self.env.clock().monotonic_ns());
        if ahead_ns == 0 {
            // Another thread may have set it again.
            _ = self.pacing.slowed_until_ns.compare_exchange(until_ns, 0, Relaxed, Relaxed);
        }
        if ahead_ns < AHEAD_NS_MAX {
            return Duration::ZERO;
        }
        Duration::from_nanos(ahead_ns - AHEAD_NS_MAX / 2)
    }

    /// How fast commits to a table may be; less if the memtables of all are many.
    fn merging_pressure(&self, table: &TableState, are_many: bool) -> Pressure {
        let mut pressure = self.merger.pressure(table, self.memtable_bytes_max());
        if are_many {
            pressure.room_bytes = pressure.room_bytes.min(self.memtable_room());
        }
        pressure
    }

    /// Looks again now and then: the checkpoint may have ended. A commit that is not large waits once: others that are made to wait
    /// while it sleeps add nothing to that.
    #[cold]
    fn slow_for_checkpoint(&self, bytes: u64) -> Result<()> {
        let (mut waited_ns, mut last) = (0, None);
        while let Some((cause, pressure)) = self.pacing.pressure(&self.growth) {
            let rest_ns = pressure.cost_ns(bytes).saturating_sub(waited_ns);
            if waited_ns > 0 && rest_ns < SLEEP_NS_MIN {
                break;
            }
            let slept_ns = self.wait_turn(rest_ns, || {
                self.pacing
                    .pressure(&self.growth)
                    .is_some_and(|(_, pressure)| pressure.cost_ns(bytes) > waited_ns)
            });
            if slept_ns > 0 {
                (waited_ns, last) = (waited_ns + slept_ns, Some(cause));
            }
            if slept_ns == 0 || bytes <= SMALL_BYTES {
                break;
            }
            self.check_writable()?;
        }
        if let Some(cause) = last {
            self.pipeline.stopwatch().waited(cause, waited_ns);
        }
        Ok(())
    }

    /// Waits for the turn of a commit that has to take `cost_ns`, as long as it `has_to`; returns how long that was.
    fn wait_turn(&self, cost_ns: u64, has_to: impl Fn() -> bool) -> u64 {
        let clock = self.env.clock();
        let turn_ns = clock.monotonic_ns();
        let mut until_ns = turn_ns;
        let mut slept_ns = self.slow_down(|now_ns| {
            let wait_ns = self.pacing.throttle.take(now_ns, cost_ns);
            until_ns = now_ns + wait_ns;
            wait_ns.min(SLICE_NS)
        });
        while slept_ns > 0 && has_to() {
            let rest_ns = until_ns.saturating_sub(clock.monotonic_ns());
            if rest_ns < SLEEP_NS_MIN {
                break;
            }
            clock.sleep(Duration::from_nanos(rest_ns.min(SLICE_NS)));
            slept_ns = clock.monotonic_ns().saturating_sub(turn_ns);
        }
        slept_ns
    }

    /// Slows a committer once, for the table that is furthest behind.
    #[cold]
    fn slow_for_merging<'t>(
        &self,
        tables: impl Iterator<Item = &'t TableState> + Clone,
        bytes: usize,
    ) -> Result<()> {
        let are_many = self.memtables_are_many();
        let turn = |table: &TableState, now_ns| {
            table.throttle.take(now_ns, self.merging_pressure(table, are_many).cost_ns(bytes as u64))
        };
        let is_slow = |table: &&TableState| {
            let count = table.index.memtables().count();
            count > MEMTABLES_SLOW || (are_many && count > 1)
        };
        let waited_ns = self.slow_down(|now_ns| {
            tables.clone().filter(is_slow).map(|table| turn(table, now_ns)).max().unwrap_or(0)
        });
        if waited_ns > 0 {
            self.pipeline.stopwatch().waited(Waited::Merging, waited_ns);
        }
        for table in tables.filter(|table| self.has_too_many_memtables(table)) {
            self.wait_for_merging(table)?;
        }
        Ok(())
    }

    /// Sleeps as long as `turn` says; returns how long that was, 0 if it did not. A callback does not sleep: it may run on a
    /// thread of the log.
    #[cold]
    fn slow_down(&self, turn: impl FnOnce(u64) -> u64) -> u64 {
        if is_in_callback() || !self.options.background {
            return 0;
        }
        let clock = self.env.clock();
        let start_ns = clock.monotonic_ns();
        let wait_ns = turn(start_ns);
        if wait_ns < SLEEP_NS_MIN {
            return 0;
        }
        clock.sleep(Duration::from_nanos(wait_ns));
        clock.monotonic_ns().saturating_sub(start_ns)
    }

    /// A transaction of about `bytes` that has an excess waits while no checkpoint covers a whole share of it (INV-CKPT-8):
    /// a checkpoint is due then. It does not wait where checkpoints fail.
    pub fn wait_for_excess(&self, bytes: usize) -> Result<()> {
        if !self.has_to_wait_for_excess(bytes) {
            return Ok(());
        }
        let clock = self.env.clock();
        let start_ns = clock.monotonic_ns();
        while self.has_to_wait_for_excess(bytes) {
            self.check_writable()?;
            self.wakeups.wake_checkpointer();
            clock.sleep(EXCESS_LOOK);
        }
        let waited_ns = clock.monotonic_ns().saturating_sub(start_ns);
        self.pipeline.stopwatch().waited(Waited::Checkpoint, waited_ns);
        Ok(())
    }

    fn has_to_wait_for_excess(&self, bytes: usize) -> bool {
        let growth = &self.growth;
        LogBytes::of_list(bytes as u64, 0, growth.share()).excess > 0
            && self.options.background
            && !is_in_callback()
            && growth.uncovered().excess >= growth.share()
            && !self.progress.checkpointing.is_failing()
    }

    pub fn has_too_many_memtables(&self, table: &TableState) -> bool {
        has_too_many_memtables(table, self.memtable_bytes_max())
    }

    #[cold]
    fn wait_for_merging(&self, table: &TableState) -> Result<()> {
        let start_ns = self.env.clock().monotonic_ns();
        while self.has_too_many_memtables(table) {
            self.check_writable()?;
            if table.dropped().is_some() {
                // The merger may have given the table up, and validation refuses the commit.
                break;
            }
            if !self.options.background {
                return self.merge_table(table);
            }
            if is_in_callback() {
                return self.merge_in_callback(table);
            }
            if table.merging_failed.load(std::sync::atomic::Ordering::Acquire) {
                // The merger would not end this wait; a merge here returns the reason to the caller.
                self.merge_table(table)?;
            }
            self.check_pause()?;
            self.check_quorum_since(start_ns)?;
            self.wakeups.wake_merger();
            self.merger.wait_if(|| self.has_too_many_memtables(table));
        }
        let waited_ns = self.env.clock().monotonic_ns().saturating_sub(start_ns);
        self.pipeline.stopwatch().waited(Waited::Merging, waited_ns);
        Ok(())
    }

    /// Fails if a commit has waited for merging since `start_ns`, and what keeps memtables from being merged is that no quorum has them.
    pub fn check_quorum_since(&self, start_ns: u64) -> Result<()> {
        self.pipeline.check_quorum_since(start_ns)
    }

    /// A callback must not wait for a thread of the database: it may run on the merger, or on the log's flusher.
    fn merge_in_callback(&self, table: &TableState) -> Result<()> {
        let boundary = table.index.memtables().oldest_immutable().map(|memtable| memtable.boundary());
        if let Some(boundary) = boundary {
            self.pipeline.wait_horizon_or_no_quorum(boundary, QUORUM_WAIT, &*self.env)?;
        }
        self.merge_table(table)
    }

    fn merge_table(&self, table: &TableState) -> Result<()> {
        let _quiet = self.pipeline.quiet();
        self.check_open()?;
        self.merger.merge(table, &*self.reads, Csn::MAX).map(|_| ())
    }

    /// Merges one immutable memtable of each table that has one at or below the horizon, which nothing can undo; true if
    /// there was one. If a table cannot be merged, the others still are.
    pub fn merge_all(&self) -> Result<bool> {
        let _quiet = self.pipeline.quiet();
        self.check_open()?;
        let mut outcome = Ok(false);
        let pauses = || self.merging_pauses();
        for table in self.tables.active().all() {
            if pauses() {
                self.want_checkpoint();
                return outcome.and_then(|merged| self.check_pause().map(|()| merged));
            }
            let merged = self.merger.merge_next(&table, &*self.reads, Csn::MAX, pauses);
            if matches!(merged, Ok(true)) {
                self.pacing.slowed_until_ns.store(0, Relaxed);
            }
            outcome = match (outcome, merged) {
                (Ok(before), Ok(merged)) => Ok(before | merged),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        outcome
    }

    /// Whether the merger pauses until a checkpoint is written (INV-MEM-2).
    fn merging_pauses(&self) -> bool {
        self.memory.index.needs_checkpoint() && self.room.is_short() && !self.room.is_writing()
    }

    /// Fails if the merger pauses, and checkpoints fail: no commit waits for it then.
    pub fn check_pause(&self) -> Result<()> {
        if !self.merging_pauses() || !self.progress.checkpointing.is_failing() {
            return Ok(());
        }
        let dirty = self.memory.index.dirty_bytes();
        let path = self.files.path.display();
        let what = format!(
            "{path} has no room for {dirty} bytes of changed nodes, which take the memory for merges"
        );
        Err(Error::NoSpace { what })
    }

    /// Writes a checkpoint: afterwards opening replays only the commits since it began. One that runs already goes on at
    /// full speed, and this one begins after it.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        let _hurry = self.pacing.hurry();
        self.paced_checkpoint()
    }

    /// The same at its own pace.
    fn paced_checkpoint(&self) -> Result<CheckpointReport> {
        let _quiet = self.pipeline.quiet();
        let mut checkpointer = self.checkpointer.lock();
        self.check_open()?;
        let written = checkpointer.checkpoint(&self.merger);
        self.room.checkpoint_ended();
        let report = written?;
        // The checkpointer's thread frees the segments that this checkpoint retired. A failed checkpoint must not wake it:
        // if that thread itself wrote it, it would retry without a pause.
        self.wakeups.wake_checkpointer();
        Ok(report)
    }

    fn checkpoint_is_due(&self) -> bool {
        self.checkpointer.try_lock().is_some_and(|checkpointer| {
            checkpointer.bound_segments();
            // Both take the wish.
            self.memory.take_wanted() | self.merger.purging.take_wanted() || checkpointer.is_due()
        })
    }

    /// Gives the retired segments that no reader uses back to the log; true if some are left.
    pub fn free_retired(&self) -> Result<bool> {
        let mut space = self.space.lock();
        self.check_open()?;
        space.give_back()?;
        Ok(space.has_retiring())
    }

    /// Frees retired segments; the log keeps of them the files that its reserve for a full disk lacks.
    fn reclaim(&self) -> Result<()> {
        self.free_retired()?;
        match self.log.fill_reserve() {
            Err(LogError::NoSpace { .. }) => Ok(()),
            filled => filled.or_error(),
        }
    }

    /// Whether an immutable memtable is left, because the horizon has not passed it.
    fn merging_waits(&self) -> bool {
        self.tables.active().all().iter().any(|table| table.index.memtables().oldest_immutable().is_some())
    }

    /// One round of merging.
    pub fn merge_round(&self) -> Result<Round> {
        let outcome = self.try_merge_round();
        self.note(&self.progress.merging, &outcome);
        outcome
    }

    fn try_merge_round(&self) -> Result<Round> {
        if let Some(why) = self.log.poisoned() {
            self.pipeline.fail_tickets(&why.to_string());
        }
        self.hooks.reached("maintenance");
        let active = self.tables.active().all();
        for table in &active {
            freeze_if_grown(table, &self.pipeline, self.memtable_bytes_max());
            if self.memory.index.has_much_to_link() {
                table.index.memtables().link_ahead();
            }
        }
        self.freeze_largest(&active);
        let may_be_still = self.freeze_still(&active);
        drop(active);
        let worked = self.merge_all()?;
        self.tables.active().drop_quiet();
        Ok(Round { worked, left: may_be_still || self.merging_waits() || self.has_unflushed() })
    }

    /// Freezes the memtables that commits do not change any more. Returns whether others may come to that. Where nodes are
    /// evicted, a merge would read leaves, and press others out.
    fn freeze_still(&self, tables: &[Arc<TableState>]) -> bool {
        let is_in_memory = self.memory.index.batches() == 0;
        let now_ns = self.env.clock().monotonic_ns();
        let waiting = |table: &&Arc<TableState>| freeze_if_still(table, &self.pipeline, now_ns);
        is_in_memory && tables.iter().filter(waiting).count() > 0
    }

    /// One round of the work that changes the disk: freeing, the look at the free space, and a checkpoint if one is due.
    pub fn checkpoint_round(&self) -> Result<Round> {
        let outcome = self.try_checkpoint_round();
        self.note(&self.progress.checkpointing, &outcome);
        outcome
    }

    fn try_checkpoint_round(&self) -> Result<Round> {
        let freed = self.free_retired();
        let looked = self.room.look();
        let worked = self.log.poisoned().is_none() && self.checkpoint_is_due();
        if worked {
            self.paced_checkpoint().inspect_err(|_| self.merger.purging.want_checkpoint())?;
        }
        let purged = if self.log.poisoned().is_none() { self.purge_round() } else { Ok(false) };
        // Commits that are not flushed yet may make a checkpoint due once they are.
        let left = freed? || purged? || self.has_unflushed() || self.is_collecting();
        looked.map(|()| Round { worked, left })
    }

    /// Whether a checkpoint has moved something that another one frees.
    fn is_collecting(&self) -> bool {
        self.checkpointer.try_lock().is_some_and(|checkpointer| checkpointer.is_collecting())
    }

    /// Whether there are commits that the log has not flushed; an idle log flushes all of them.
    fn has_unflushed(&self) -> bool {
        self.pipeline.stable() < self.pipeline.newest()
    }

    fn note(&self, failures: &Failures, outcome: &Result<Round>) {
        if !matches!(outcome, Err(Error::Closed)) {
            failures.round_ended(outcome.as_ref().err(), || self.now_ms());
        }
    }

    /// One round of all background work, on this thread.
    pub fn maintain(&self) -> Result<bool> {
        let log = self.log.maintain();
        let applied = self.apply_round()?.worked;
        // Runs even if no segment could be made: it frees segments.
        let merged = self.merge_round()?.worked;
        // No other thread commits meanwhile: there is nothing to spread a checkpoint over.
        let _hurry = self.pacing.hurry();
        let written = self.checkpoint_round()?.worked;
        let evicted = self.evict_round()?.worked;
        Ok(log.or_error()? | applied | merged | written | evicted | self.merger.purging.goes_on())
    }

    /// Finds the segments that earlier lives left dead. Called while no tree has records that the checkpoint does not name,
    /// and no reader exists: a segment that the checkpoint does not need is dead (INV-REC-1).
    pub fn retire_before_serving(&self) {
        _ = self.room.look();
        let needed = self.checkpointer.lock().needed();
        self.space.lock().retire_before_serving(needed);
    }

    /// The last step of opening, before the database serves: frees the segments that earlier lives left dead, and pays
    /// an overdue debt. Serving needs neither, so a full disk or damage does not fail it.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`].
    pub fn pay_debt_of_former_lives(&self) -> Result<()> {
        let is_overdue = {
            let checkpointer = self.checkpointer.lock();
            let lacks_reserve = self.log.reserve_bytes()
                < self.log.options().reserve_segments as u64 * u64::from(limits::SEGMENT_BYTES_MIN);
            checkpointer.is_overdue(lacks_reserve)
        };
        if !is_overdue {
            return Ok(());
        }
        let path = self.files.path.display();
        tracing::info!(%path, "former lives left much to replay: writing a checkpoint first");
        // A segment of the log is freed when neither copy of the superblock needs it: hence two checkpoints. The second
        // writes no records.
        let outcome = self
            .reclaim()
            .and_then(|()| self.checkpoint())
            .and_then(|_| self.checkpoint())
            .and_then(|_| (0..FREEING_ROUNDS).try_for_each(|_| self.reclaim()));
        if let Err(error) = outcome {
            self.check_writable()?;
            tracing::warn!(%error, %path, "no checkpoint could be written while opening");
        }
        _ = self.room.look();
        Ok(())
    }

    /// A close begins: from [`Options::close_timeout`](crate::Options::close_timeout) on merges give up.
    pub fn bound_merging(&self) {
        let unmerged_bytes = self.tables.active().sum(|table| table.index.memtables().bytes());
        self.merger.give_up_after(self.options.close_timeout, unmerged_bytes);
    }

    /// The checkpoint of a close, unless merging takes too long.
    fn last_checkpoint(&self) -> Result<()> {
        let outcome = self.checkpoint();
        if matches!(outcome, Err(Error::Closed)) && self.merger.gives_up() {
            let log_bytes = self.growth.uncovered().total();
            let path = self.files.path.display();
            tracing::info!(%path, log_bytes, "closing without a checkpoint: the next opening replays the log");
            return Ok(());
        }
        if let Err(error @ (Error::NoQuorum { .. } | Error::NotLeader { .. })) = &outcome {
            let path = self.files.path.display();
            tracing::info!(%path, %error, "closing without a checkpoint: the next opening replays the log");
            return Ok(());
        }
        outcome.map(|_| ())
    }

    /// Closes the database: writes a last checkpoint, closes the log, and notes its end in the superblock. The caller
    /// has stopped the merger.
    pub fn close_once(&self) -> Result<()> {
        if self.options.read_only {
            self.files.close();
            self.files.unlock();
            return Ok(());
        }
        let outcome = if self.log.poisoned().is_none() { self.last_checkpoint() } else { Ok(()) };
        {
            // Waits for a running checkpoint; a later one reads the flag under the lock.
            let _checkpointer = self.checkpointer.lock();
            let _space = self.space.lock();
            self.files.close();
        }
        self.merger.end();
        self.pipeline.begin_close();
        let closed = self.log.close().or_error().and_then(|()| self.checkpointer.lock().note_clean_close());
        if let Err(error) = self.log.release_staging(closed.is_ok()) {
            tracing::warn!(%error, "the staging file was not given up");
        }
        self.files.unlock();
        // Runs callbacks, which may open the database again.
        self.pipeline.fail_tickets("the database was closed before the commit was known to be durable");
        outcome.and(closed)
    }
}
