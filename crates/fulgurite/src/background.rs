//! The merger: the thread that merges and writes checkpoints, and when it has work.
//!
//! It sleeps until a waker wakes it (INV-LOG-15: no wake is lost); while commits arrive it looks for work every
//! [`TICK`]. The wakers are:
//! - a commit, or a transaction that writes chunks ahead: [`Wakeups::commit_numbered`], one load of a word while the merger is awake;
//! - a committer that waits for merging: [`Engine::wait_for_merging`];
//! - a checkpoint on another thread, which retires segments;
//! - the closer.
//!
//! Work that has to wait for a flush of the log or for a reader is tried again after a [`TICK`]. Work that failed is
//! tried again after a pause that doubles each time, up to [`RETRY_MAX`]. After the log has failed there is no work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite_env::Joiner;
use fulgurite_log::{CommitLog, Signal, Sleep};

use crate::engine::Engine;
use crate::maintenance::Round;
use crate::{Error, Result};

/// How often the merger looks for work while commits arrive, or while work has to wait for other threads.
const TICK: Duration = Duration::from_millis(10);

/// The longest pause after a round that failed.
const RETRY_MAX: Duration = Duration::from_millis(320);

/// The running thread.
pub(crate) struct Background {
    engine: Arc<Engine>,
    thread: Box<dyn Joiner>,
}

/// The signals to the merger.
#[derive(Default)]
pub(crate) struct Wakeups {
    signal: Signal,
    /// How many times transactions wrote chunks ahead.
    chunks: AtomicU64,
    stop: AtomicBool,
}

impl Wakeups {
    /// Wakes the merger for work that cannot wait for the end of a nap, or that its own look would not find.
    pub fn wake(&self) {
        self.signal.wake();
    }

    /// A commit got its CSN: wakes the merger if it rests, to look whether work is due.
    #[inline]
    pub fn commit_numbered(&self) {
        self.signal.wake_resting();
    }

    /// A transaction writes a chunk ahead, which takes space before any commit does.
    pub fn chunk_written(&self) {
        self.chunks.fetch_add(1, Ordering::SeqCst);
        self.signal.wake_resting();
    }
}

impl Background {
    pub fn start(engine: &Arc<Engine>) -> Result<Background> {
        let body = engine.clone();
        let thread = engine
            .env
            .spawn("fulgurite-merge", Box::new(move || run(&body)))
            .map_err(|error| Error::io("starting a thread", error))?;
        Ok(Background { engine: engine.clone(), thread })
    }

    /// Ends the thread after its current round.
    pub fn stop(self) {
        self.engine.wakeups.stop.store(true, Ordering::SeqCst);
        self.engine.wakeups.wake();
        if !self.thread.join() {
            tracing::error!("the merger panicked");
        }
    }
}

const PANICKED: &str = "the merger panicked";

/// Poisons the log unless it is forgotten: the merger panicked, nothing merges any more, and committers would wait for
/// it forever.
struct PoisonOnPanic<'a>(&'a Engine);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        self.0.log.poison(PANICKED);
        self.0.pipeline.fail_tickets(PANICKED);
    }
}

fn run(engine: &Engine) {
    let on_panic = PoisonOnPanic(engine);
    let stopped = || engine.wakeups.stop.load(Ordering::SeqCst);
    // Changes whenever there may be new work, before the merger is woken.
    let activity = || (engine.pipeline.newest(), engine.wakeups.chunks.load(Ordering::SeqCst));
    let mut retry = TICK;
    while !stopped() {
        let seen = activity();
        let sleep = match engine.maintain_tables() {
            Ok(Round { worked: true, .. }) => continue,
            _ if engine.log.poisoned().is_some() => Sleep::Rest,
            Ok(round) => {
                retry = TICK;
                if round.left { Sleep::Nap(TICK) } else { Sleep::Rest }
            }
            Err(_) => {
                retry = (2 * retry).min(RETRY_MAX);
                Sleep::Nap(retry)
            }
        };
        engine.wakeups.signal.sleep(|| match sleep {
            _ if stopped() => Sleep::No,
            // Commits arrive: nap, so that they need not wake the merger each time.
            Sleep::Rest if activity() != seen => Sleep::Nap(TICK),
            sleep => sleep,
        });
    }
    std::mem::forget(on_panic);
}
