//! The thread that folds and checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite_env::Joiner;
use parking_lot::{Condvar, Mutex};

use crate::core::Core;
use crate::{Error, Result};

/// How often the thread looks for work when nobody wakes it.
const TICK: Duration = Duration::from_millis(10);

/// The running thread.
pub(crate) struct Background {
    shared: Arc<Shared>,
    thread: Box<dyn Joiner>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Background {
    pub fn start(core: &Arc<Core>) -> Result<Background> {
        let shared = Arc::new(Shared::default());
        let (body_shared, body_core) = (shared.clone(), core.clone());
        let thread = core
            .env
            .spawn("fulgurite-absorb", Box::new(move || run(&body_core, &body_shared)))
            .map_err(|error| Error::io("starting a thread", error))?;
        Ok(Background { shared, thread })
    }

    /// Ends the thread after the work that it is doing.
    pub fn stop(self) {
        self.shared.stop.store(true, Ordering::Release);
        drop(self.shared.lock.lock());
        self.shared.wake.notify_all();
        if !self.thread.join() {
            tracing::error!("the folding thread panicked");
        }
    }
}

const DIED: &str = "the folding thread panicked";

/// Ends all writing unless it is forgotten: the thread died of a panic, nothing folds any more, and committers would
/// wait for it for ever.
struct Dying<'a>(&'a Core);

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        self.0.log.poison(DIED);
        self.0.pipeline.fail_tickets(DIED);
    }
}

fn run(core: &Core, shared: &Shared) {
    let dying = Dying(core);
    while !shared.stop.load(Ordering::Acquire) {
        if matches!(core.maintain_tables(), Ok(true)) {
            continue;
        }
        let mut lock = shared.lock.lock();
        if !shared.stop.load(Ordering::Acquire) {
            shared.wake.wait_for(&mut lock, TICK);
        }
    }
    std::mem::forget(dying);
}

impl Core {
    /// One round of folding and checkpointing; true if there was something to do.
    pub fn maintain_tables(&self) -> Result<bool> {
        let outcome = self.maintenance_round();
        if !matches!(outcome, Err(Error::Closed)) {
            self.progress.round_ended(outcome.as_ref().err(), || self.now_ms());
        }
        outcome
    }

    /// Folding comes first and depends on nothing else: committers wait for it.
    fn maintenance_round(&self) -> Result<bool> {
        if let Some(why) = self.log.poisoned() {
            self.pipeline.fail_tickets(&why.to_string());
        }
        self.hooks.reached("maintenance");
        for table in self.catalog.all() {
            self.rotate_if_grown(&table);
        }
        let mut worked = self.absorb()?;
        let freed = self.free_retired();
        let looked = self.look_at_room();
        if self.log.poisoned().is_none() && self.checkpoint_is_due() {
            self.checkpoint()?;
            worked = true;
        }
        freed.and(looked).map(|()| worked)
    }

    /// One round of everything that threads do otherwise.
    pub fn maintain(&self) -> Result<bool> {
        let log = self.log.maintain();
        // Even if no segment could be made: this is what frees segments.
        let tables = self.maintain_tables();
        Ok(log? | tables?)
    }
}
