//! Threads beside those of a run whose figures are kept for each second: one watches the engine's checkpoints, one writes
//! to the bare device.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::env::{Clock, Env, Joiner};
use parking_lot::Mutex;

use crate::bare::BareDevice;
use crate::engine::{Checkpoints, Store};
use crate::files::Scratch;
use crate::latencies::Latencies;
use crate::pace::{Pacing, sleep_exactly, wait_until};
use crate::run::{Latency, Watched};
use crate::seconds::{OfSecond, Seconds, SecondsOfThread, second_of};
use crate::{Error, Result};

/// The time from one bare write to the next.
const BARE_WRITE_NS: u64 = 50_000_000;

/// A thread that is asked to end, and waited for, on drop.
struct Thread {
    stop: Arc<AtomicBool>,
    joiner: Option<Box<dyn Joiner>>,
}

impl Thread {
    fn start(
        env: &Arc<dyn Env>,
        name: &str,
        run: impl FnOnce(&dyn Env, &dyn Fn() -> bool) + Send + 'static,
    ) -> Result<Thread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, its_env) = (stop.clone(), env.clone());
        let body = Box::new(move || run(&*its_env, &|| theirs.load(Ordering::Relaxed)));
        let joiner = env.spawn(name, body).map_err(Error::io("starting a thread"))?;
        Ok(Thread { stop, joiner: Some(joiner) })
    }

    /// Waits until the thread has ended; false if it panicked.
    fn end(&mut self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        self.joiner.take().is_none_or(Joiner::join)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.end();
    }
}

/// What is watched beside the threads of a run.
pub(crate) struct Beside {
    checkpoints: Option<CheckpointWatch>,
    file: Option<BareFile>,
    writes: Option<BareWrites>,
}

/// What was seen beside a run.
#[derive(Default)]
pub(crate) struct Seen {
    /// In each second.
    pub watched: Vec<Option<Watched>>,
    /// The bare writes, if they were asked for.
    pub bare: Option<BareLatencies>,
}

impl Beside {
    /// Begins to watch a store that was just opened in `store_dir`.
    pub fn start(
        env: &Arc<dyn Env>,
        store: &Arc<dyn Store>,
        store_dir: &Path,
        pacing: Pacing,
    ) -> Result<Beside> {
        let file = pacing.bare_device.then(|| BareFile::create(env, store_dir)).transpose()?;
        let watch = |every| CheckpointWatch::start(env, store, every);
        Ok(Beside { checkpoints: pacing.ask_every.map(watch).transpose()?, file, writes: None })
    }

    /// The measured part begins.
    pub fn begin(&mut self, env: &Arc<dyn Env>, now_ns: u64) -> Result<()> {
        self.checkpoints.iter().for_each(|checkpoints| checkpoints.begin(now_ns));
        self.writes = self.file.take().map(|file| BareWrites::start(env, file, now_ns)).transpose()?;
        Ok(())
    }

    /// The measured part is over.
    pub fn end(self) -> Result<Seen> {
        let bare = self.writes.map(BareWrites::end).transpose()?;
        let watched = self.checkpoints.map(CheckpointWatch::end).transpose()?.unwrap_or_default();
        Ok(Seen { watched, bare })
    }
}

/// Asks a store about its checkpoints again and again, from its opening on, so that it knows the log above the last one.
struct CheckpointWatch {
    thread: Thread,
    seen: Arc<SeenCheckpoints>,
}

#[derive(Default)]
struct SeenCheckpoints {
    /// When the measured part began; 0 before.
    began_ns: AtomicU64,
    seconds: Mutex<Vec<Option<Watched>>>,
}

impl CheckpointWatch {
    /// Starts to watch. It ends by itself if the engine says nothing about checkpoints.
    fn start(env: &Arc<dyn Env>, store: &Arc<dyn Store>, every: Duration) -> Result<CheckpointWatch> {
        let seen = Arc::new(SeenCheckpoints::default());
        let (theirs, store) = (seen.clone(), store.clone());
        let watch = move |env: &dyn Env, stopped: &dyn Fn() -> bool| {
            theirs.watch(env.clock(), &*store, every, stopped)
        };
        Ok(CheckpointWatch { thread: Thread::start(env, "bench-checkpoints", watch)?, seen })
    }

    /// The measured part begins.
    fn begin(&self, now_ns: u64) {
        self.seen.began_ns.store(now_ns, Ordering::Release);
    }

    /// Ends the watch. What was seen in each second of the measured part: `None` where the engine was not asked, because
    /// it says nothing, or because a call took longer.
    fn end(mut self) -> Result<Vec<Option<Watched>>> {
        match self.thread.end() {
            true => Ok(std::mem::take(&mut *self.seen.seconds.lock())),
            false => Err(Error::Died),
        }
    }
}

impl SeenCheckpoints {
    fn watch(&self, clock: &dyn Clock, store: &dyn Store, every: Duration, stopped: &dyn Fn() -> bool) {
        let mut before = None;
        let mut next_ns = clock.monotonic_ns();
        while wait_until(clock, next_ns, stopped) {
            let asked_ns = clock.monotonic_ns();
            let Some(now) = store.checkpoints() else { return };
            let call_ns = clock.monotonic_ns() - asked_ns;
            let began_ns = self.began_ns.load(Ordering::Acquire);
            if began_ns > 0 && asked_ns >= began_ns {
                self.note(second_of(asked_ns - began_ns), now, before.unwrap_or(now), call_ns);
            }
            before = Some(now);
            next_ns = (next_ns + every.as_nanos() as u64).max(asked_ns + call_ns);
        }
    }

    fn note(&self, second: usize, now: Checkpoints, before: Checkpoints, call_ns: u64) {
        let mut seconds = self.seconds.lock();
        if seconds.len() <= second {
            seconds.resize(second + 1, None);
        }
        let watched = seconds[second].get_or_insert_default();
        watched.log_bytes = now.log_bytes;
        watched.checkpoints += now.completed - before.completed;
        if now.completed > before.completed {
            watched.checkpoint_ns = now.last_ns;
        }
        watched.stats_ns_max = watched.stats_ns_max.max(call_ns);
    }
}

/// A file beside the store for the bare writes, removed on drop.
struct BareFile {
    device: BareDevice,
    _dir: Scratch,
}

impl BareFile {
    /// Makes it, in a directory of its own next to that of the store.
    fn create(env: &Arc<dyn Env>, store_dir: &Path) -> Result<BareFile> {
        let dir = Scratch::create(env, store_dir.parent().unwrap_or(store_dir))?;
        Ok(BareFile { device: BareDevice::create(env, &dir.path().join("bare"))?, _dir: dir })
    }

    fn write(
        mut self,
        clock: &dyn Clock,
        began_ns: u64,
        stopped: &dyn Fn() -> bool,
    ) -> Result<BareLatencies> {
        sleep_exactly();
        let (seconds, mut all) = (Mutex::new(Seconds::new(1)), Latencies::new());
        let mut of_seconds = SecondsOfThread::new(&seconds, 0);
        for due_ns in (began_ns..).step_by(BARE_WRITE_NS as usize) {
            if !wait_until(clock, due_ns, stopped) {
                break;
            }
            self.device.write_next()?;
            let now_ns = clock.monotonic_ns();
            all.record(now_ns - due_ns);
            of_seconds.record(due_ns - began_ns, now_ns - began_ns);
        }
        drop(of_seconds);
        let seconds = seconds.lock().finish();
        let latency = |second: &OfSecond| (second.due > 0).then_some(second.latency);
        Ok(BareLatencies { all: all.summary(), seconds: seconds.iter().map(latency).collect() })
    }
}

/// The latencies of bare writes, from the moments when they were due.
#[derive(Debug, Default)]
pub(crate) struct BareLatencies {
    pub all: Latency,
    /// Of each second, if a write was due in it.
    pub seconds: Vec<Option<Latency>>,
}

/// A thread that makes durable writes of 4 KiB, 20 a second: they show whether a stall is the device's.
struct BareWrites {
    thread: Thread,
    written: Arc<Mutex<Result<BareLatencies>>>,
}

impl BareWrites {
    /// The first write is due at `began_ns`.
    fn start(env: &Arc<dyn Env>, file: BareFile, began_ns: u64) -> Result<BareWrites> {
        let written = Arc::new(Mutex::new(Ok(BareLatencies::default())));
        let theirs = written.clone();
        let write = move |env: &dyn Env, stopped: &dyn Fn() -> bool| {
            *theirs.lock() = file.write(env.clock(), began_ns, stopped);
        };
        Ok(BareWrites { thread: Thread::start(env, "bench-bare", write)?, written })
    }

    /// Ends the writes.
    fn end(mut self) -> Result<BareLatencies> {
        match self.thread.end() {
            true => std::mem::replace(&mut *self.written.lock(), Ok(BareLatencies::default())),
            false => Err(Error::Died),
        }
    }
}
