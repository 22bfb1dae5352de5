//! What all parts of an open log share, and the order of its locks.
//!
//! Lock order: segment maker, slot, segment table; the flusher's state, the replay index and the bulk stream's locks
//! are leaves, except that the bulk stream takes the maker and the slot for a new segment.

use crate::bulk_stream::BulkStream;
use crate::error::LogError;
use crate::flush::Flusher;
use crate::options::LogOptions;
use crate::poison::Poison;
use crate::replay_index::ReplayIndex;
use crate::slot::{AppendPoint, Slot};
use crate::stats::{Counters, add};
use crate::store::Store;
use crossbeam_utils::CachePadded;
use fulgurite_base::{Csn, DatabaseId, Epoch, Lsn};
use fulgurite_env::Env;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) type Observer = Arc<dyn Fn(Csn) + Send + Sync>;
pub(crate) type Completer = Arc<dyn Fn() + Send + Sync>;

/// Progress of the commit stream. Raised by the leader alone.
pub(crate) struct Marks {
    pub written: AtomicU64,
    pub durable: AtomicU64,
    pub durable_csn: AtomicU64,
    /// The newest durable CSN that some durable group names.
    pub hinted_csn: AtomicU64,
    /// When the stream last wrote something, in monotonic nanoseconds.
    pub busy_ns: AtomicU64,
    /// The newest CSN that somebody asked the background thread for.
    pub requested_csn: AtomicU64,
}

/// One epoch, as far as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochSpan {
    pub epoch: Epoch,
    pub start_segment: u32,
    /// Where it ends, and with which CSN; `None` for the newest.
    pub end: Option<(Lsn, Csn)>,
}

/// Wakes the background thread.
#[derive(Default)]
pub(crate) struct Signal {
    pub woken: Mutex<bool>,
    /// Whether the thread may be sleeping longer than until the next hint: the first leader of a burst wakes it.
    pub resting: AtomicBool,
    pub changed: Condvar,
}

pub(crate) struct Core {
    pub env: Arc<dyn Env>,
    pub database: DatabaseId,
    pub options: LogOptions,
    pub epoch: Epoch,
    pub spans: Vec<EpochSpan>,
    slot: CachePadded<Mutex<Slot>>,
    pub flusher: Flusher,
    pub marks: CachePadded<Marks>,
    pub index: Mutex<ReplayIndex>,
    pub store: Store,
    pub bulk: BulkStream,
    pub poison: Arc<Poison>,
    pub observer: RwLock<Option<Observer>>,
    pub completer: RwLock<Option<Completer>>,
    pub stats: Counters,
    pub spills: AtomicU64,
    /// No call that writes begins any more.
    pub closed: AtomicBool,
    /// Nothing is flushed any more; set by the last leader.
    pub ended: AtomicBool,
    pub signal: Signal,
}

/// How many bytes an ordinary group's buffer has; larger frames bring their own.
pub(crate) const GROUP_BUFFER_BYTES: usize = 64 * 1024;

impl Core {
    pub fn new(
        env: Arc<dyn Env>,
        database: DatabaseId,
        options: LogOptions,
        store: Store,
        at: AppendPoint,
        spans: Vec<EpochSpan>,
        index: ReplayIndex,
    ) -> Core {
        let (lsn, csn) = (Lsn::new(at.segment.number, at.offset), at.next_csn.prev());
        let pool_capacity = options.buffer_bytes / GROUP_BUFFER_BYTES + 1;
        Core {
            epoch: at.epoch,
            spans,
            slot: CachePadded::new(Mutex::new(Slot::new(at, options.charge_max(), pool_capacity))),
            flusher: Flusher::default(),
            marks: CachePadded::new(Marks {
                written: AtomicU64::new(lsn.0),
                durable: AtomicU64::new(lsn.0),
                durable_csn: AtomicU64::new(csn.0),
                hinted_csn: AtomicU64::new(csn.0),
                busy_ns: AtomicU64::new(env.clock().monotonic_ns()),
                requested_csn: AtomicU64::new(0),
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
            signal: Signal::default(),
            env,
            database,
            options,
        }
    }

    pub fn slot(&self) -> MutexGuard<'_, Slot> {
        let slot = self.slot.lock();
        add(&self.stats.slot_locks, 1);
        slot
    }

    pub fn durable_csn(&self) -> Csn {
        Csn(self.marks.durable_csn.load(Ordering::Acquire))
    }

    pub fn written(&self) -> Lsn {
        Lsn(self.marks.written.load(Ordering::Acquire))
    }

    /// Fails if the log takes no more.
    pub fn check_usable(&self) -> Result<(), LogError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(LogError::Closed);
        }
        self.poison.check()
    }

    /// Wakes the background thread, if there is one.
    pub fn wake(&self) {
        if self.options.background {
            *self.signal.woken.lock() = true;
            self.signal.changed.notify_one();
        }
    }
}

impl Core {
    /// Where the log lets its users know what only the bulk stream knows.
    pub fn bulk_fill(&self, infos: &mut [crate::segment::SegmentInfo]) {
        if let Some((number, used)) = self.bulk.append_point()
            && let Some(info) = infos.iter_mut().find(|info| info.number == number)
        {
            info.used_bytes = used;
        }
    }
}
