//! The threads of an open database, and when they have work: the *merger* merges memtables, the *checkpointer* writes
//! checkpoints, frees segments, and looks at the free space, and one evicts nodes ([`crate::eviction`]). In a node of a cluster one more
//! applies what other nodes commit ([`crate::apply`]), and is woken by the log.
//!
//! Each sleeps until a waker wakes it (INV-LOG-15: no wake is lost); while commits arrive it looks for work every
//! [`TICK`]. The wakers are:
//! - a commit, or a transaction that writes chunks ahead: [`Wakeups::commit_numbered`], one load of a word for each thread
//!   that is awake;
//! - a committer that waits for merging: [`Engine::wait_for_maintenance`];
//! - a checkpoint on another thread, which retires segments;
//! - a reader or a merge that needs memory while it is tight, which wakes eviction;
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

/// How often a thread looks for work while commits arrive, or while work has to wait for other threads.
const TICK: Duration = Duration::from_millis(10);

/// The longest pause after a round that failed.
const RETRY_MAX: Duration = Duration::from_millis(320);

/// The running threads.
pub(crate) struct Background {
    engine: Arc<Engine>,
    threads: Vec<(&'static Worker, Box<dyn Joiner>)>,
}

/// One of the threads.
struct Worker {
    name: &'static str,
    signal: fn(&Engine) -> &Signal,
    round: fn(&Engine) -> Result<Round>,
    /// Whether it has work that no activity tells.
    has_work: fn(&Engine) -> bool,
    /// How long it rests at most.
    rest: fn(&Engine) -> Option<Duration>,
    /// Why nothing goes on once it has panicked.
    panicked: &'static str,
}

/// One more in a node of a cluster.
static APPLIER: Worker = Worker {
    name: "fulgurite-apply",
    signal: |engine| engine.pipeline.applier(),
    round: Engine::apply_round,
    has_work: Engine::has_to_apply,
    rest: |_| None,
    panicked: "the thread that applies commits of other nodes panicked",
};

static WORKERS: [Worker; 3] = [
    Worker {
        name: "fulgurite-merge",
        signal: |engine| &engine.wakeups.merger,
        round: Engine::merge_round,
        has_work: |_| false,
        rest: |_| None,
        panicked: "the merger panicked",
    },
    Worker {
        name: "fulgurite-check",
        signal: |engine| &engine.wakeups.checkpointer,
        round: Engine::checkpoint_round,
        has_work: |_| false,
        rest: Engine::rest_before_purge,
        panicked: "the checkpointer panicked",
    },
    Worker {
        name: "fulgurite-evict",
        signal: |engine| &engine.wakeups.evictor,
        round: Engine::evict_round,
        has_work: |_| false,
        rest: |_| None,
        panicked: "the thread that evicts nodes panicked",
    },
];

/// The signals to the threads.
#[derive(Default)]
pub(crate) struct Wakeups {
    merger: Signal,
    checkpointer: Signal,
    evictor: Signal,
    /// How many times transactions wrote chunks ahead.
    chunks: AtomicU64,
    stop: AtomicBool,
}

impl Wakeups {
    /// Wakes the merger for work that cannot wait for the end of a nap, or that its own look would not find.
    pub fn wake_merger(&self) {
        self.merger.wake();
    }

    /// The same, if it sleeps: its look finds the work.
    pub fn wake_sleeping_merger(&self) {
        self.merger.wake_asleep();
    }

    /// The same for the checkpointer.
    pub fn wake_checkpointer(&self) {
        self.checkpointer.wake();
    }

    /// The same for eviction, if it sleeps.
    pub fn wake_evictor(&self) {
        self.evictor.wake_asleep();
    }

    /// A commit got its CSN: wakes the threads that rest, to look whether work is due.
    #[inline]
    pub fn commit_numbered(&self) {
        self.merger.wake_resting();
        self.checkpointer.wake_resting();
    }

    /// A transaction writes a chunk ahead, which takes space before any commit does.
    pub fn chunk_written(&self) {
        self.chunks.fetch_add(1, Ordering::SeqCst);
        self.commit_numbered();
    }
}

impl Background {
    pub fn start(engine: &Arc<Engine>) -> Result<Background> {
        let mut background = Background { engine: engine.clone(), threads: Vec::new() };
        let applier = engine.pipeline.is_following().then_some(&APPLIER);
        for worker in WORKERS.iter().chain(applier) {
            let body = engine.clone();
            match engine.env.spawn(worker.name, Box::new(move || run(&body, worker))) {
                Ok(thread) => background.threads.push((worker, thread)),
                Err(error) => {
                    background.stop();
                    return Err(Error::io("starting a thread", error));
                }
            }
        }
        engine.memory.set_thread(true);
        Ok(background)
    }

    /// Ends the threads after their current rounds. A checkpoint that runs goes on at full speed.
    pub fn stop(self) {
        let wakeups = &self.engine.wakeups;
        wakeups.stop.store(true, Ordering::SeqCst);
        self.engine.memory.set_thread(false);
        let _hurry = self.engine.pacing.hurry();
        for (worker, _) in &self.threads {
            (worker.signal)(&self.engine).wake();
        }
        for (worker, thread) in self.threads {
            if !thread.join() {
                tracing::error!("{}", worker.panicked);
            }
        }
    }
}

/// Poisons the log unless it is forgotten: a thread panicked, its work ends, and committers would wait for it forever.
struct PoisonOnPanic<'a>(&'a Engine, &'a Worker);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        let PoisonOnPanic(engine, Worker { panicked, .. }) = self;
        engine.log.poison(panicked);
        engine.pipeline.fail_tickets(panicked);
    }
}

fn run(engine: &Engine, worker: &'static Worker) {
    let on_panic = PoisonOnPanic(engine, worker);
    let stopped = || engine.wakeups.stop.load(Ordering::SeqCst);
    // Changes whenever there may be new work, before the thread is woken.
    let activity = || (engine.pipeline.newest(), engine.wakeups.chunks.load(Ordering::SeqCst));
    let mut retry = TICK;
    while !stopped() {
        let seen = activity();
        let sleep = match (worker.round)(engine) {
            Ok(Round { worked: true, .. }) => continue,
            _ if engine.log.poisoned().is_some() => Sleep::Rest,
            Ok(round) => {
                retry = TICK;
                if round.left {
                    Sleep::Nap(TICK)
                } else {
                    (worker.rest)(engine).map_or(Sleep::Rest, Sleep::RestFor)
                }
            }
            Err(_) => {
                retry = (2 * retry).min(RETRY_MAX);
                Sleep::Nap(retry)
            }
        };
        (worker.signal)(engine).sleep(|| match sleep {
            _ if stopped() => Sleep::No,
            Sleep::Rest | Sleep::RestFor(_) if (worker.has_work)(engine) => Sleep::No,
            // Commits arrive: nap, so that they need not wake the thread each time.
            Sleep::Rest | Sleep::RestFor(_) if activity() != seen => Sleep::Nap(TICK),
            sleep => sleep,
        });
    }
    std::mem::forget(on_panic);
}
