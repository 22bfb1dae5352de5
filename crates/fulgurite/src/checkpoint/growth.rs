//! The log that no checkpoint covers, which the next opening would have to replay.
//!
//! INV-CKPT-8: *all that replay reads counts.* It reads the groups of the commit stream, and the operation lists that did
//! not fit their frames and are in chunks of the bulk stream; values in chunks it does not read. Without the lists a load
//! of large transactions would make no checkpoint due, and its replay would have no bound. A list is counted after its
//! commit has its CSN: a checkpoint that began between counts it as not covered, though it is.
//!
//! A single transaction may be longer than the log may be. What its list has beyond a quarter of the share is its
//! *excess*: it makes a checkpoint due, but does not slow other commits (INV-CKPT-6). A transaction that has an excess
//! waits while that of others which no checkpoint covers is as long as the share (`Engine::wait_for_excess`). So there
//! are at most three times the share, and one transaction.
//!
//! INV-CKPT-9: *what replay makes of the log fits into half of the memory budget, so that an opening reads no tree.* An operation takes
//! [`REPLAYED_OP_BYTES`] in a memtable beside its bytes in the log, which of short rows is more than these. So the log counts as longer than it
//! is where its operations would take a larger part of their quarter of the budget than its bytes take of the share
//! ([`LogGrowth::weigh`]): all that bounds the log bounds these, too. With less than twice the share there are less than two quarters. Of a list
//! with an excess only the operations that its regular bytes hold count.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use fulgurite_log::Log;

/// Bytes of log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogBytes {
    /// Groups, and operation lists in chunks up to a quarter of the share.
    pub regular: u64,
    /// What longer lists have beyond.
    pub excess: u64,
    /// The operations of the regular bytes.
    pub ops: u64,
}

/// What replay makes of the log has this part of the memory budget, as the log has of it at most.
const REPLAYED_SHARE: u64 = 4;

/// An operation takes about so many bytes in a memtable beside its key and its value.
pub(crate) const REPLAYED_OP_BYTES: u64 = 128;

impl LogBytes {
    /// Those of a list of `ops` operations, of `bytes` in chunks.
    pub fn of_list(bytes: u64, ops: u64, share: u64) -> LogBytes {
        let regular = bytes.min(share / 4);
        let regular_ops = u128::from(ops) * u128::from(regular) / u128::from(bytes.max(1));
        LogBytes { regular, excess: bytes - regular, ops: regular_ops as u64 }
    }

    pub fn total(self) -> u64 {
        self.regular.wrapping_add(self.excess)
    }
}

/// Wraps, as `Sub` does: what a checkpoint covers is negative if it covers less than an opening has replayed.
impl Add for LogBytes {
    type Output = LogBytes;

    fn add(self, other: LogBytes) -> LogBytes {
        LogBytes {
            regular: self.regular.wrapping_add(other.regular),
            excess: self.excess.wrapping_add(other.excess),
            ops: self.ops.wrapping_add(other.ops),
        }
    }
}

impl Sub for LogBytes {
    type Output = LogBytes;

    fn sub(self, other: LogBytes) -> LogBytes {
        LogBytes {
            regular: self.regular.wrapping_sub(other.regular),
            excess: self.excess.wrapping_sub(other.excess),
            ops: self.ops.wrapping_sub(other.ops),
        }
    }
}

/// Counters, each of which changes for itself.
#[derive(Default)]
struct Counters {
    regular: AtomicU64,
    excess: AtomicU64,
    ops: CachePadded<AtomicU64>,
}

impl Counters {
    fn load(&self) -> LogBytes {
        LogBytes {
            regular: self.regular.load(Relaxed),
            excess: self.excess.load(Relaxed),
            ops: self.ops.load(Relaxed),
        }
    }
}

/// How much log there is. Readers take no lock.
pub(crate) struct LogGrowth {
    log: Arc<Log>,
    share: u64,
    /// A byte of memory that replay takes, in bytes of the log.
    weight: f64,
    /// Operations, and operation lists in chunks, of this life.
    lists: Counters,
    /// Chunks that transactions of this life had written ahead when they committed.
    ahead: Counters,
    /// What the last checkpoint covers of this life, less what opening replayed: wrapping.
    covered: Counters,
    /// [`Log::chunk_bytes`] when the last checkpoint began.
    chunks_at_checkpoint: AtomicU64,
}

impl LogGrowth {
    /// `share` is [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes), `budget` that of memory, in bytes.
    pub fn new(log: Arc<Log>, share: u64, budget: u64) -> LogGrowth {
        let counters = Counters::default;
        let (lists, ahead, covered) = (counters(), counters(), counters());
        let chunks_at_checkpoint = AtomicU64::new(0);
        let weight = share as f64 / (budget / REPLAYED_SHARE).max(share) as f64;
        LogGrowth { log, share, weight, lists, ahead, covered, chunks_at_checkpoint }
    }

    pub fn share(&self) -> u64 {
        self.share
    }

    /// A commit of so many operations, in its frame, has its CSN.
    #[inline]
    pub fn count_ops(&self, ops: u64) {
        self.lists.ops.fetch_add(ops, Relaxed);
    }

    /// A commit whose list of `ops` operations, of `bytes`, is in chunks has its CSN.
    pub fn count_list(&self, bytes: u64, ops: u64) {
        let LogBytes { regular, excess, ops } = LogBytes::of_list(bytes, ops, self.share);
        self.lists.regular.fetch_add(regular, Relaxed);
        self.lists.excess.fetch_add(excess, Relaxed);
        self.lists.ops.fetch_add(ops, Relaxed);
    }

    /// What this life has written.
    pub fn written(&self) -> LogBytes {
        LogBytes { regular: self.log.written_bytes(), ..LogBytes::default() } + self.lists.load()
    }

    /// Chunks of large values and operation lists of this life. Replay does not read values, so they do not count as log.
    pub fn chunks(&self) -> u64 {
        self.log.chunk_bytes()
    }

    /// A transaction commits that has written `bytes` of chunks ahead.
    pub fn count_ahead(&self, bytes: u64) {
        let LogBytes { regular, excess, .. } = LogBytes::of_list(bytes, 0, self.share);
        self.ahead.regular.fetch_add(regular, Relaxed);
        self.ahead.excess.fetch_add(excess, Relaxed);
    }

    /// The bytes that commits have appended to both streams in this life, without the excess of those that were written ahead.
    pub fn appended(&self) -> u64 {
        self.log.written_bytes() + self.ahead.regular.load(Relaxed)
    }

    /// The excess of the transactions that have written ahead.
    pub fn ahead_excess(&self) -> u64 {
        self.ahead.excess.load(Relaxed)
    }

    /// A checkpoint covers `covered` of [`LogGrowth::written`], and began at `chunks`.
    pub fn cover(&self, covered: LogBytes, chunks: u64) {
        self.chunks_at_checkpoint.store(chunks, Relaxed);
        self.covered.regular.store(covered.regular, Relaxed);
        self.covered.excess.store(covered.excess, Relaxed);
        self.covered.ops.store(covered.ops, Relaxed);
    }

    /// Such a log as it counts (INV-CKPT-9).
    pub fn weigh(&self, log: LogBytes) -> LogBytes {
        LogBytes { regular: weighed(log, self.weight), ..log }
    }

    /// What no checkpoint covers.
    pub fn uncovered(&self) -> LogBytes {
        // Read first: it only rises.
        let covered = self.covered.load();
        self.written() - covered
    }

    /// The same as it counts.
    pub fn pressing(&self) -> LogBytes {
        self.weigh(self.uncovered())
    }

    /// The chunks since the last checkpoint began.
    pub fn uncovered_chunks(&self) -> u64 {
        let before = self.chunks_at_checkpoint.load(Relaxed);
        self.chunks().saturating_sub(before)
    }
}

/// The bytes of a log, or more, if replay takes more memory: `weight` is a byte of that in bytes of the log.
fn weighed(log: LogBytes, weight: f64) -> u64 {
    let replayed = log.regular as f64 + log.ops as f64 * REPLAYED_OP_BYTES as f64;
    log.regular.max((replayed * weight) as u64)
}

/// INV-CKPT-9.
#[test]
fn a_log_of_short_rows_counts_as_longer() {
    let log = |regular: u64, ops: u64| LogBytes { regular, ops, excess: 0 };
    assert_eq!(weighed(log(1_000, 0), 1.0), 1_000);
    assert_eq!(weighed(log(1_000, 100), 1.0), 13_800);
    assert_eq!(weighed(log(1_000, 100), 0.25), 3_450, "a quarter of it");
    assert_eq!(weighed(log(1_000, 100), 0.025), 1_000, "the log's bytes are scarcer");
}

#[test]
fn a_list_longer_than_a_quarter_of_the_share_has_an_excess() {
    let lists = [(0, 0, 0, 0), (25, 25, 0, 4), (26, 25, 1, 3), (1000, 25, 975, 0)];
    for (bytes, regular, excess, ops) in lists {
        assert_eq!(LogBytes::of_list(bytes, 4, 100), LogBytes { regular, excess, ops });
    }
    let replayed = LogBytes::of_list(1000, 100, 100);
    assert_eq!(LogBytes::default() - (LogBytes::default() - replayed), replayed);
}
