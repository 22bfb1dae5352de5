//! The thread that merges and checkpoints, and when it has something to do.
//!
//! It sleeps until it is woken (INV-LOG-15 says why no wake is lost), and while commits come it looks every [`TICK`]. What
//! gives it work wakes it:
//! - a commit, or a part of a transaction that is written ahead: [`Core::stir`], one load of a word while it is awake;
//! - a committer that waits for merging: [`Core::wait_for_merging`];
//! - a checkpoint on another thread, which leaves segments to be freed;
//! - closing.
//!
//! What it cannot finish at once, because the log's thread has to flush first, or a reader to leave, it looks at again
//! after a [`TICK`]; what failed, later each time. A log that has failed leaves it nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_env::Joiner;
use fulgurite_log::{Signal, Sleep};
use fulgurite_types::Csn;

use crate::core::Core;
use crate::error::OrError;
use crate::{Error, Result};

/// How often the thread looks for work while commits come, or while it waits for others to end theirs.
const TICK: Duration = Duration::from_millis(10);

/// How long it rests at most after a round that failed.
const RETRY_MAX: Duration = Duration::from_millis(320);

/// The running thread.
pub(crate) struct Background {
    core: Arc<Core>,
    thread: Box<dyn Joiner>,
}

/// What the thread is woken with.
#[derive(Default)]
pub(crate) struct Wakeups {
    signal: Signal,
    /// Parts that transactions wrote ahead.
    parts: AtomicU64,
    stop: AtomicBool,
}

impl Wakeups {
    /// There is work that cannot wait for the end of a nap, or that the look of the thread does not find.
    pub fn wake(&self) {
        self.signal.wake();
    }
}

impl Background {
    pub fn start(core: &Arc<Core>) -> Result<Background> {
        let body = core.clone();
        let thread = core
            .env
            .spawn("fulgurite-merge", Box::new(move || run(&body)))
            .map_err(|error| Error::io("starting a thread", error))?;
        Ok(Background { core: core.clone(), thread })
    }

    /// Ends the thread after the work that it is doing.
    pub fn stop(self) {
        self.core.wakeups.stop.store(true, Ordering::SeqCst);
        self.core.wakeups.wake();
        if !self.thread.join() {
            tracing::error!("the merger panicked");
        }
    }
}

const DIED: &str = "the merger panicked";

/// Ends all writing unless it is forgotten: the thread died of a panic, nothing merges any more, and committers would
/// wait for it for ever.
struct Dying<'a>(&'a Core);

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        self.0.log.poison(DIED);
        self.0.pipeline.fail_tickets(DIED);
    }
}

/// What one round of maintenance came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Round {
    /// Something was done.
    worked: bool,
    /// Something is left that has to wait for others.
    left: bool,
}

fn run(core: &Core) {
    let dying = Dying(core);
    let stopped = || core.wakeups.stop.load(Ordering::SeqCst);
    let mut retry = TICK;
    while !stopped() {
        let seen = core.activity();
        let sleep = match core.maintain_tables() {
            Ok(Round { worked: true, .. }) => continue,
            _ if core.log.poisoned().is_some() => Sleep::Rest,
            Ok(round) => {
                retry = TICK;
                if round.left { Sleep::Nap(TICK) } else { Sleep::Rest }
            }
            Err(_) => {
                retry = (2 * retry).min(RETRY_MAX);
                Sleep::Nap(retry)
            }
        };
        core.wakeups.signal.sleep(|| match sleep {
            _ if stopped() => Sleep::No,
            // More may come, and need not wake the thread each time.
            Sleep::Rest if core.activity() != seen => Sleep::Nap(TICK),
            sleep => sleep,
        });
    }
    std::mem::forget(dying);
}

impl Core {
    /// What tells whether there may be more to do than the last time: it changes before [`Core::stir`] is called.
    fn activity(&self) -> (Csn, u64) {
        (self.pipeline.newest(), self.wakeups.parts.load(Ordering::SeqCst))
    }

    /// A commit was numbered: the thread that rests looks whether that makes something due.
    #[inline]
    pub fn stir(&self) {
        self.wakeups.signal.wake_resting();
    }

    /// A transaction writes a part ahead, which takes space before any commit does.
    pub fn stir_for_part(&self) {
        self.wakeups.parts.fetch_add(1, Ordering::SeqCst);
        self.stir();
    }

    /// One round of merging and checkpointing.
    fn maintain_tables(&self) -> Result<Round> {
        let outcome = self.maintenance_round();
        if !matches!(outcome, Err(Error::Closed)) {
            self.progress.round_ended(outcome.as_ref().err(), || self.now_ms());
        }
        outcome
    }

    /// Merging comes first and depends on nothing else: committers wait for it.
    fn maintenance_round(&self) -> Result<Round> {
        if let Some(why) = self.log.poisoned() {
            self.pipeline.fail_tickets(&why.to_string());
        }
        self.hooks.reached("maintenance");
        for table in self.catalog.all() {
            self.freeze_if_grown(&table);
        }
        let mut worked = self.merge_all()?;
        let freed = self.free_retired();
        let looked = self.look_at_room();
        if self.log.poisoned().is_none() && self.checkpoint_is_due() {
            self.checkpoint()?;
            worked = true;
        }
        // What is not flushed yet may make a checkpoint due when it is; an idle log flushes all of it.
        let left = freed? || self.merging_waits() || self.pipeline.stable() < self.pipeline.newest();
        looked.map(|()| Round { worked, left })
    }

    /// Whether a memtable is immutable that something could still undo.
    fn merging_waits(&self) -> bool {
        self.catalog.all().iter().any(|table| table.index.memtables().oldest_immutable().is_some())
    }

    /// One round of everything that threads do otherwise.
    pub fn maintain(&self) -> Result<bool> {
        let log = self.log.maintain();
        // Even if no segment could be made: this is what frees segments.
        let tables = self.maintain_tables();
        Ok(log.or_error()? | tables?.worked)
    }
}
