//! Latencies of commits: one histogram for each durability level, always on.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::options::Acks;
use fulgurite_env::Env;
use fulgurite_log::Durability;
use fulgurite_types::Csn;
use histogram::AtomicHistogram;

/// Buckets are at most 1/32 wider than their lower end.
const GROUPING_POWER: u8 = 5;
/// Longer times count as 2^40 ns, 18 minutes.
const MAX_VALUE_POWER: u8 = 40;

/// How long commits of one level took, in nanoseconds, from the call to the acknowledgement. Percentiles are the upper
/// ends of histogram buckets, at most 4 % above the exact value.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// db.table("users")?.put("alice", "1")?;
/// let latency = db.stats().latency.sync;
/// assert!(latency.count >= 1 && latency.p50_ns <= latency.p99_ns);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Commits that were acknowledged.
    pub count: u64,
    /// Their mean, in nanoseconds.
    pub mean_ns: u64,
    /// Half of them took at most this long.
    pub p50_ns: u64,
    /// 99 in 100 took at most this long.
    pub p99_ns: u64,
    /// 999 in 1,000 took at most this long.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// How long commits took since the database was opened, by durability level. Transactions that wrote nothing are not
/// counted.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::Durability;
///
/// let users = db.table("users")?;
/// let mut txn = db.begin();
/// txn.set_durability(Durability::None)?;
/// txn.put(&users, "alice", "1")?;
/// txn.commit()?;
/// assert_eq!(db.stats().latency.none.count, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// Commits at [`Durability::Sync`].
    pub sync: Latency,
    /// Commits at [`Durability::NoBarrier`].
    pub no_barrier: Latency,
    /// Commits at [`Durability::Staged`] in volatile memory; in persistent memory they are at `Sync`.
    pub staged: Latency,
    /// Commits at [`Durability::Async`], whatever the interval.
    pub asynchronous: Latency,
    /// Commits at [`Durability::None`].
    pub none: Latency,
}

/// A running commit: its level, and when it was started, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub level: Durability,
    pub acks: Acks,
    pub started_ns: u64,
}

impl Timed {
    /// Whether the commit is acknowledged once it is stable; else once it may be lost.
    pub fn waits(self) -> bool {
        match self.acks {
            Acks::Local => false,
            Acks::Quorum => self.level.waits(),
            // All have it after a quorum has.
            Acks::All => true,
        }
    }
}

/// How long commits waited for background work since the database was opened: those that waited. They are slowed
/// before they have to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// For merging: their table had more than half of the memtables that it may have.
    pub merging: Latency,
    /// For merging, too: the memtables of all tables together had more than their quarter of the memory budget
    /// ([`Options::memory_bytes`](crate::Options::memory_bytes)).
    pub memtables: Latency,
    /// For a checkpoint: the log had outgrown [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes).
    pub checkpoint: Latency,
    /// For garbage collection: segments with little live data took about as much of the disk as they may.
    pub collection: Latency,
    /// For room on the disk: for a checkpoint that frees segments. Commits that were refused in the end count, too.
    pub space: Latency,
}

/// What a commit waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waited {
    Merging,
    Memtables,
    Checkpoint,
    Collection,
    Space,
}

struct Recorder {
    histogram: AtomicHistogram,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Recorder {
    fn new() -> Recorder {
        let histogram = AtomicHistogram::new(GROUPING_POWER, MAX_VALUE_POWER);
        Recorder {
            histogram: histogram.expect("the powers are in range"),
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }

    fn record(&self, ns: u64) {
        let counted = self.histogram.increment(ns.min((1 << MAX_VALUE_POWER) - 1));
        debug_assert!(counted.is_ok());
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        if self.max_ns.load(Ordering::Relaxed) < ns {
            self.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Latency {
        let histogram = self.histogram.load();
        let count: u64 = histogram.as_slice().iter().sum();
        if count == 0 {
            return Latency::default();
        }
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        let quantile = |quantile: f64| {
            let bucket = histogram.quantile_bucket(quantile).ok().flatten();
            bucket.map_or(0, |bucket| bucket.end().min(max_ns))
        };
        Latency {
            count,
            mean_ns: self.sum_ns.load(Ordering::Relaxed) / count,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns,
        }
    }
}

/// Measures how long commits take.
pub(crate) struct Stopwatch {
    env: Arc<dyn Env>,
    path: PathBuf,
    /// Commits that take this long or longer are logged.
    slow_ns: u64,
    /// Indexed by [`recorder_index`].
    recorders: [Recorder; 5],
    /// Indexed by [`Waited`].
    waits: [Recorder; 5],
}

fn recorder_index(level: Durability) -> usize {
    match level {
        Durability::None => 0,
        Durability::Async { .. } => 1,
        Durability::Staged => 2,
        Durability::NoBarrier => 3,
        _ => 4,
    }
}

impl Stopwatch {
    /// For the database at `path`. Commits that take `slow` or longer are logged as events (`tracing`, level INFO).
    pub fn new(env: Arc<dyn Env>, path: &Path, slow: Duration) -> Stopwatch {
        let slow_ns = u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX);
        let recorders = std::array::from_fn(|_| Recorder::new());
        let waits = std::array::from_fn(|_| Recorder::new());
        Stopwatch { env, path: path.to_path_buf(), slow_ns, recorders, waits }
    }

    /// Starts timing a commit.
    pub fn start(&self, level: Durability) -> Timed {
        Timed { level, acks: Acks::Quorum, started_ns: self.now_ns() }
    }

    /// Sleeps, by the same clock.
    pub fn sleep(&self, duration: Duration) {
        self.env.clock().sleep(duration);
    }

    pub fn now_ns(&self) -> u64 {
        self.env.clock().monotonic_ns()
    }

    /// The commit `csn` was acknowledged at `now_ns`.
    pub fn stop(&self, csn: Csn, timed: Timed, now_ns: u64) {
        let ns = now_ns.saturating_sub(timed.started_ns);
        self.recorders[recorder_index(timed.level)].record(ns);
        if ns >= self.slow_ns {
            self.report_slow(csn, timed, ns);
        }
    }

    #[cold]
    fn report_slow(&self, csn: Csn, timed: Timed, ns: u64) {
        let path = self.path.display();
        let level = timed.level;
        tracing::info!(%path, %csn, ?level, took_ms = ns / 1_000_000, "a commit was slow");
    }

    /// A commit waited for background work.
    pub fn waited(&self, cause: Waited, ns: u64) {
        self.waits[cause as usize].record(ns);
    }

    pub fn waits(&self) -> Waits {
        let [merging, memtables, checkpoint, collection, space] = self.waits.each_ref().map(Recorder::read);
        Waits { merging, memtables, checkpoint, collection, space }
    }

    pub fn read(&self) -> Latencies {
        let [none, asynchronous, staged, no_barrier, sync] = self.recorders.each_ref().map(Recorder::read);
        Latencies { sync, no_barrier, staged, asynchronous, none }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        write!(
            f,
            "{} commits, mean {:.1} us, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us",
            self.count,
            us(self.mean_ns),
            us(self.p50_ns),
            us(self.p99_ns),
            us(self.p999_ns),
            us(self.max_ns)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_close_and_never_below() {
        let recorder = Recorder::new();
        assert_eq!(recorder.read(), Latency::default());
        (1..=10_000u64).for_each(|us| recorder.record(us * 1000));
        let read = recorder.read();
        assert_eq!((read.count, read.mean_ns, read.max_ns), (10_000, 5_000_500, 10_000_000));
        for (found, exact) in
            [(read.p50_ns, 5_000_000u64), (read.p99_ns, 9_900_000), (read.p999_ns, 9_990_000)]
        {
            assert!(found >= exact && found <= exact + exact / 25, "{found} for {exact}");
        }
    }

    #[test]
    fn the_longest_commits_are_counted() {
        let recorder = Recorder::new();
        recorder.record(u64::MAX / 2);
        assert_eq!((recorder.read().count, recorder.read().max_ns), (1, u64::MAX / 2));
    }
}
