//! Handed to the owners of an open log, and owned by none of them: clock and options, poison, counters, observers, the
//! sleeping committers and threads.

use crate::error::{LogError, PoisonCause};
use crate::options::LogOptions;
use crate::signal::Signal;
use crate::stats::{Counters, add};
use crate::stream::parking::Parking;
use crossbeam_utils::CachePadded;
use fulgurite_env::{Env, Process};
use fulgurite_types::sync::{AtomicBool, AtomicU64, RwLock};
use fulgurite_types::{Csn, DatabaseId, Epoch};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

pub(crate) type Observer = Arc<dyn Fn(Csn) + Send + Sync>;
pub(crate) type Completer = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Shared {
    pub env: Arc<dyn Env>,
    /// The process that opened the log.
    process: Process,
    pub database: DatabaseId,
    /// The epoch that this opening of the log began.
    pub epoch: Epoch,
    pub options: LogOptions,
    pub poison: Poison,
    pub stats: CachePadded<Counters>,
    pub io: CachePadded<IoTimes>,
    pub parking: Parking,
    /// Committers of a replicated log, for commits that are durable here and not agreed.
    pub agreement: Parking,
    /// Wakes the log thread, which flushes.
    pub flusher: Signal,
    /// Wakes the thread that makes segments.
    pub supplier: Signal,
    /// Wakes the thread that drains staging buffers.
    pub drainer: Signal,
    pub observer: RwLock<Option<Observer>>,
    pub completer: RwLock<Option<Completer>>,
    /// Set: the log thread, or maintenance, has to call the completer.
    completion_wanted: AtomicBool,
    /// When one of them has to call it at the latest; `u64::MAX`: only if that is wanted.
    completion_due_ns: AtomicU64,
    /// Set: no call that writes may begin.
    closed: AtomicBool,
    /// Set: nothing is written any more. The close sets it after its last flush; a read-only log begins with it.
    ended: AtomicBool,
}

/// The flag that ends all writing: set once, never cleared.
///
/// Set when a write or sync failed, or a commit died between its reservation and the end of its fill (INV-LOG-7).
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<Arc<PoisonCause>>);

impl Poison {
    pub fn cause(&self) -> Option<Arc<PoisonCause>> {
        self.0.get().cloned()
    }

    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    pub fn check(&self) -> Result<(), LogError> {
        match self.cause() {
            Some(cause) => Err(LogError::Poisoned(cause)),
            None => Ok(()),
        }
    }

    /// Sets the flag, unless it is set already, and returns the poison as an error.
    pub fn set(&self, what: &'static str, file: Option<(&Path, io::Error)>) -> LogError {
        let (path, source) = match file {
            Some((path, source)) => (Some(path.to_owned()), Some(source)),
            None => (None, None),
        };
        let cause = self.0.get_or_init(|| {
            tracing::error!(what, ?path, ?source, "the log is poisoned");
            Arc::new(PoisonCause { what, path, source })
        });
        LogError::Poisoned(Arc::clone(cause))
    }
}

/// When and how fast the commit stream last wrote or synced.
pub(crate) struct IoTimes {
    /// In monotonic nanoseconds.
    busy_ns: AtomicU64,
    /// The duration of a write or sync call in nanoseconds: a moving average.
    average_ns: AtomicU64,
}

impl IoTimes {
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    pub fn average_ns(&self) -> u64 {
        self.average_ns.load(Ordering::Relaxed)
    }
}

impl Shared {
    pub fn new(env: Arc<dyn Env>, database: DatabaseId, epoch: Epoch, options: LogOptions) -> Shared {
        Shared {
            process: Process::current(),
            database,
            epoch,
            poison: Poison::default(),
            stats: CachePadded::default(),
            io: CachePadded::new(IoTimes {
                busy_ns: AtomicU64::new(env.clock().monotonic_ns()),
                average_ns: AtomicU64::new(0),
            }),
            parking: Parking::new(),
            agreement: Parking::new(),
            flusher: Signal::default(),
            supplier: Signal::default(),
            drainer: Signal::default(),
            observer: RwLock::new(None),
            completer: RwLock::new(None),
            completion_wanted: AtomicBool::new(false),
            completion_due_ns: AtomicU64::new(u64::MAX),
            closed: AtomicBool::new(options.read_only),
            ended: AtomicBool::new(options.read_only),
            env,
            options,
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.env.clock().monotonic_ns()
    }

    // The end of the log.

    /// Fails in a child of the process that opened the log.
    pub fn check_process(&self) -> Result<(), LogError> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(LogError::Usage("the log was opened in another process, of which this one is a fork".into()))
    }

    /// Fails if the log takes no more commits.
    pub fn check_usable(&self) -> Result<(), LogError> {
        self.check_process()?;
        if self.is_closed() {
            return Err(LogError::Closed);
        }
        self.poison.check()
    }

    /// Fails if nothing may be written any more.
    pub fn check_not_ended(&self) -> Result<(), LogError> {
        self.poison.check()?;
        if self.ended.load(Ordering::Acquire) { Err(LogError::Closed) } else { Ok(()) }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// The caller holds the lock of the writer.
    pub fn set_ended(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Poisons the log from outside a flush, and wakes all sleepers: a waiter that is woken to lead next may see the
    /// poison first, and leave the others asleep.
    pub fn fail(&self, what: &'static str, file: Option<(&Path, io::Error)>) -> LogError {
        let error = self.poison.set(what, file);
        self.wake_sleepers();
        self.request_completion();
        error
    }

    /// Wakes all committers: what they wait for may never come.
    pub fn wake_sleepers(&self) {
        self.parking.wake_all();
        self.agreement.wake_all();
    }

    /// Guards the section of a flush that must not end in the middle: until [`Flushing::end`].
    pub fn flushing(&self) -> Flushing<'_> {
        Flushing { shared: self, is_done: false }
    }

    // Observers.

    /// Calls the observer.
    pub fn announce(&self, durable: Csn) {
        let observer = self.observer.read().clone();
        if let Some(observer) = observer {
            observer(durable);
        }
    }

    /// Has the completer called soon, by a thread that holds no lock: the log thread, or the next that maintains.
    pub fn request_completion(&self) {
        self.completion_wanted.store(true, Ordering::SeqCst);
        self.flusher.wake_asleep();
    }

    /// The same, at a time.
    pub fn request_completion_at(&self, due_ns: u64) {
        if self.completion_due_ns.fetch_min(due_ns, Ordering::SeqCst) > due_ns {
            self.flusher.wake_asleep();
        }
    }

    pub fn is_completion_wanted(&self) -> bool {
        self.completion_wanted.load(Ordering::SeqCst)
    }

    /// When the completer is to be called at the latest; `u64::MAX`: only if that is requested.
    pub fn completion_due_ns(&self) -> u64 {
        self.completion_due_ns.load(Ordering::SeqCst)
    }

    /// Calls the completer if that was requested, or is due.
    pub fn serve_completion(&self) {
        let mut is_wanted =
            self.is_completion_wanted() && self.completion_wanted.swap(false, Ordering::SeqCst);
        let due_ns = self.completion_due_ns();
        if due_ns != u64::MAX && due_ns <= self.now_ns() {
            self.completion_due_ns.store(u64::MAX, Ordering::SeqCst);
            is_wanted = true;
        }
        if is_wanted {
            self.call_completer();
        }
    }

    /// The caller holds no lock and leads no flush.
    pub fn call_completer(&self) {
        let completer = self.completer.read().clone();
        if let Some(completer) = completer {
            completer();
        }
    }

    /// Wakes all threads: the log is closed, or there is work that they do not look for.
    pub fn wake_threads(&self) {
        self.flusher.wake();
        self.supplier.wake();
        self.drainer.wake();
    }

    /// Notes that groups were staged: the log is not idle.
    pub fn count_staging(&self) {
        self.io.busy_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    /// Counts a write or sync call of the commit stream that began at `start_ns` and has just ended.
    pub fn count_io(&self, start_ns: u64, counter: &std::sync::atomic::AtomicU64) {
        let end_ns = self.now_ns();
        let ns = end_ns.saturating_sub(start_ns);
        add(counter, ns);
        let average = self.io.average_ns.load(Ordering::Relaxed);
        self.io.average_ns.store(average - average / 8 + ns / 8, Ordering::Relaxed);
        self.io.busy_ns.store(end_ns, Ordering::Relaxed);
    }
}

/// A flush in progress. It poisons the log if the flushing thread panics. Once writing has ended it wakes all waiters,
/// because no flush will cover them.
///
/// `is_done` says whether the flush panicked, not `std::thread::panicking()`: a commit in a destructor flushes while
/// its thread unwinds from a panic that has nothing to do with the log.
pub(crate) struct Flushing<'a> {
    shared: &'a Shared,
    is_done: bool,
}

impl Flushing<'_> {
    /// Without a panic.
    pub fn end(mut self) {
        self.is_done = true;
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        let shared = self.shared;
        if !self.is_done {
            let _ = shared.poison.set("a flush panicked", None);
        }
        if shared.poison.is_set() || shared.has_ended() {
            shared.wake_sleepers();
        }
        if shared.poison.is_set() {
            shared.request_completion();
        }
    }
}
