//! The shared state of an open log, and the order of its locks.
//!
//! Lock order: writer, the sync lock, groups, progress, replay index. The segment maker comes before groups and the
//! segment table. The bulk stream's locks are leaves, except that it takes the maker and the groups for a new segment.
//! The observer runs under the flushing thread's locks, and no other; the completer under none.

use crate::bulk_stream::BulkStream;
use crate::credit::Credit;
use crate::error::LogError;
use crate::group_ring::{GroupRing, JOINABLE_BYTES_MAX};
use crate::groups::{AppendPoint, Groups};
use crate::options::LogOptions;
use crate::park::Parking;
use crate::poison::Poison;
use crate::progress::Progress;
use crate::replay_index::ReplayIndex;
use crate::schemes::{Scheme, scheme};
use crate::signal::Signal;
use crate::stats::{Counters, add};
use crate::store::Store;
use crate::write::Writer;
use crossbeam_utils::CachePadded;
use fulgurite_env::{Env, Process};
use fulgurite_types::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, RwLock};
use fulgurite_types::{Csn, DatabaseId, Epoch, Lsn};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) type Observer = Arc<dyn Fn(Csn) + Send + Sync>;
pub(crate) type Completer = Arc<dyn Fn() + Send + Sync>;

/// Progress of the commit stream. Only the flushing thread raises the watermarks; any thread files requests.
pub(crate) struct AtomicWatermarks {
    pub written: AtomicU64,
    pub durable: AtomicU64,
    pub durable_csn: AtomicU64,
    /// The end of what a flush of the device covered. It trails `durable` only where the cache is asserted to be
    /// power-safe.
    pub synced: AtomicU64,
    pub synced_csn: AtomicU64,
    /// The newest durable mark of a durable group.
    pub marked_csn: AtomicU64,
    /// When the stream last wrote or synced, in monotonic nanoseconds.
    pub busy_ns: AtomicU64,
    /// The duration of a write or sync call in nanoseconds: a moving average.
    pub io_ns: AtomicU64,
    /// The newest CSN that a thread requested from the log thread.
    pub requested_csn: AtomicU64,
    /// The newest CSN requested within an interval, and when it is due, in monotonic nanoseconds; 0: nothing is due.
    pub due_csn: AtomicU64,
    pub due_ns: AtomicU64,
}

/// One epoch, up to the end that a later epoch declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochSpan {
    pub epoch: Epoch,
    pub start_segment: u32,
    /// Where it ends, and with which CSN; `None` for the newest.
    pub end: Option<(Lsn, Csn)>,
}

pub(crate) struct Core {
    pub env: Arc<dyn Env>,
    /// The process that opened the log.
    pub process: Process,
    pub database: DatabaseId,
    pub options: LogOptions,
    pub epoch: Epoch,
    pub spans: Vec<EpochSpan>,
    pub ring: GroupRing,
    pub credit: Credit,
    groups: CachePadded<Mutex<Groups>>,
    pub scheme: Box<dyn Scheme>,
    pub parking: Parking,
    pub writer: Mutex<Writer>,
    /// The sync lock of the schemes that write through the page cache.
    pub syncing: Mutex<()>,
    pub progress: Mutex<Progress>,
    /// Whether the commit stream is written around the page cache, except segments that refuse it.
    pub direct: bool,
    pub watermarks: CachePadded<AtomicWatermarks>,
    pub index: Mutex<ReplayIndex>,
    pub store: Store,
    pub bulk: BulkStream,
    pub poison: Arc<Poison>,
    pub observer: RwLock<Option<Observer>>,
    pub completer: RwLock<Option<Completer>>,
    pub stats: Counters,
    pub spills: AtomicU64,
    /// Set: no call that writes may begin.
    pub closed: AtomicBool,
    /// Set: nothing is written any more. The close sets it after its last flush; a read-only log begins with it.
    pub ended: AtomicBool,
    /// Set: the log thread, or maintenance, has to call the completer.
    pub completion_wanted: AtomicBool,
    /// Wakes the log thread, which flushes.
    pub signal: Signal,
    /// Wakes the thread that makes segments.
    pub supply: Signal,
}

impl Core {
    /// Fails if it cannot find out whether the file system takes direct writes.
    pub fn new(
        env: Arc<dyn Env>,
        database: DatabaseId,
        mut options: LogOptions,
        store: Store,
        at: AppendPoint,
        spans: Vec<EpochSpan>,
        index: ReplayIndex,
    ) -> io::Result<Core> {
        let (lsn, csn) = (Lsn::new(at.segment.number, at.offset), at.next_csn.prev());
        let slots = options.buffer_bytes.div_ceil(JOINABLE_BYTES_MAX).max(2);
        let charge_max = options.charge_max();
        let direct = options.writes_directly() && store.file(&at.segment)?.takes_direct_writes()?;
        // A power-safe cache protects only bytes in it, and buffered writes are not.
        options.power_safe_cache &= direct;
        Ok(Core {
            epoch: at.epoch,
            spans,
            ring: GroupRing::new(slots),
            credit: Credit::new(at.credit(charge_max), slots),
            groups: CachePadded::new(Mutex::new(Groups::new(at, charge_max, slots))),
            scheme: scheme(options.scheme),
            parking: Parking::new(),
            writer: Mutex::new(Writer::new(direct)),
            syncing: Mutex::new(()),
            progress: Mutex::new(Progress::at(csn)),
            direct,
            watermarks: CachePadded::new(AtomicWatermarks {
                written: AtomicU64::new(lsn.0),
                durable: AtomicU64::new(lsn.0),
                durable_csn: AtomicU64::new(csn.0),
                synced: AtomicU64::new(lsn.0),
                synced_csn: AtomicU64::new(csn.0),
                marked_csn: AtomicU64::new(csn.0),
                busy_ns: AtomicU64::new(env.clock().monotonic_ns()),
                io_ns: AtomicU64::new(0),
                requested_csn: AtomicU64::new(0),
                due_csn: AtomicU64::new(0),
                due_ns: AtomicU64::new(0),
            }),
            index: Mutex::new(index),
            store,
            bulk: BulkStream::new(),
            poison: Arc::new(Poison::default()),
            observer: RwLock::new(None),
            completer: RwLock::new(None),
            stats: Counters::default(),
            spills: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            completion_wanted: AtomicBool::new(false),
            signal: Signal::default(),
            supply: Signal::default(),
            env,
            process: Process::current(),
            database,
            options,
        })
    }

    pub fn groups(&self) -> MutexGuard<'_, Groups> {
        let groups = self.groups.lock();
        add(&self.stats.group_locks, 1);
        groups
    }

    /// The newest commit that has a CSN.
    pub fn reserved_csn(&self) -> Csn {
        self.groups().next_csn(&self.ring).prev()
    }

    pub fn durable_csn(&self) -> Csn {
        Csn(self.watermarks.durable_csn.load(Ordering::SeqCst))
    }

    pub fn synced_csn(&self) -> Csn {
        Csn(self.watermarks.synced_csn.load(Ordering::SeqCst))
    }

    pub fn written(&self) -> Lsn {
        Lsn(self.watermarks.written.load(Ordering::Acquire))
    }

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
        if self.closed.load(Ordering::Acquire) {
            return Err(LogError::Closed);
        }
        self.poison.check()
    }

    /// Poisons the log from outside a flush, and wakes all sleepers: a waiter that is woken to lead next may see the
    /// poison first, and leave the others asleep.
    pub fn fail(&self, what: &'static str, file: Option<(&Path, io::Error)>) -> LogError {
        let error = self.poison.set(what, file);
        self.parking.wake_all();
        self.request_completion();
        error
    }

    /// Has the completer called soon, by a thread that holds no lock: the log thread, or the next that maintains.
    pub fn request_completion(&self) {
        self.completion_wanted.store(true, Ordering::SeqCst);
        self.signal.wake_asleep();
    }

    /// Calls the completer if that was requested.
    pub fn serve_completion(&self) {
        let wanted = &self.completion_wanted;
        if wanted.load(Ordering::SeqCst) && wanted.swap(false, Ordering::SeqCst) {
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

    /// Wakes both threads: the log is closed, or there is work that they do not look for.
    pub fn wake(&self) {
        self.signal.wake();
        self.supply.wake();
    }
}

impl Core {
    /// Fills in how much of the bulk stream's open segment is used.
    pub fn bulk_fill(&self, infos: &mut [crate::segment::SegmentInfo]) {
        if let Some((number, used)) = self.bulk.append_point()
            && let Some(info) = infos.iter_mut().find(|info| info.number == number)
        {
            info.used_bytes = used;
        }
    }
}
