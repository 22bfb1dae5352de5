//! Settings with which a database is opened, and their validation.

use std::time::Duration;

use fulgurite_log::{Durability, FlushScheme, LogError, LogOptions, StagingOptions, Waiting};

use crate::env::MemoryMedium;
use crate::{Error, Result};

/// Longest interval of [`Durability::Async`].
const ASYNC_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Settings of one opening of a database. None of them is stored; each may differ from one open to the next. The
/// defaults suit most programs; [`Options::validate`] checks the ranges given here.
///
/// ```
/// let options = fulgurite::Options { create: false, ..Default::default() };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Create the database if the directory is empty or missing; its parent must exist. Switch it off where a missing
    /// database is an error. Default true.
    pub create: bool,
    /// Read a database and write nothing at all, not even for its recovery: for read-only mounts and full disks.
    /// Several processes may read at the same time, while none has it open for writing. If the last writer was killed,
    /// its commits are replayed in memory; [`Stats::unproven`](crate::Stats::unproven) names those that the log does
    /// not prove to be durable. Writes are refused with [`Error::ReadOnly`], `create` counts as false, and no
    /// background threads run. Default false.
    pub read_only: bool,
    /// Values of at most this many bytes are stored in the leaf beside their key; longer ones stay where the log put
    /// them (the log is the data). A larger figure makes scans of medium values faster and checkpoints larger. From 0
    /// to 32 KiB, and at most half of `leaf_bytes`. Default 1,024.
    pub inline_bytes_max: usize,
    /// Target size of a leaf in bytes, from 512 to 256 KiB. Leave it alone unless you measured. Default 8,192.
    pub leaf_bytes: usize,
    /// A table's mutable memtable is frozen, and then merged into its tree, when it takes this many bytes. A larger
    /// figure makes merges rarer and takes more memory: commits to a table wait while it has more than eight memtables,
    /// and the bytes of eight. `None`: a sixteenth of the database's live bytes on disk, so that a merge changes several rows of
    /// a leaf; at least 16 MiB (or a thirty-second of the memory budget), at most a sixteenth of the budget and half of
    /// `checkpoint_log_bytes`; the least where there is little room on the disk.
    /// From 64 KiB to 64 GiB. Default `None`.
    pub memtable_bytes_max: Option<usize>,
    /// A checkpoint is to be done when the log has grown by this many bytes since the last one began; the log that opening
    /// replayed counts. It begins at half of that, or sooner: once the log is as long as what the checkpoint would write
    /// (at least 16 MiB). It spreads its writes over the growth of the rest, and where it cannot keep up, commits are
    /// slowed: the log that the next open has to replay stays below twice this figure (about half a second for 256 MiB
    /// of small commits). A transaction whose operations take more than a quarter of it may wait for a checkpoint, and its
    /// rest comes on top. A smaller one makes opens faster, and the same leaves are written more often. If processes die
    /// again and again before they have written their checkpoint, opening writes it itself: after twice the log at
    /// which one begins, or after eight such lives. From 1 MiB to 64 GiB. Default 256 MiB.
    pub checkpoint_log_bytes: u64,
    /// How many bytes of nodes and moved values a second checkpoints write at most, garbage collection included: for a device that
    /// others need, too. Commits are slowed when that is less than they make necessary (`Stats::waits`). It does not hold
    /// for a checkpoint that a caller waits for, for the close, while the disk is nearly full, nor once the log has nearly twice
    /// `checkpoint_log_bytes`; and nodes that are evicted are
    /// written beside it. At least 1 MiB. `None`, the default: as fast as is needed.
    pub checkpoint_bytes_per_second: Option<u64>,
    /// The memory budget, in bytes: for nodes of trees, memtables, log buffers and open transactions together. `None`: a quarter of what the
    /// control group of the process (version 1 or 2) or else the machine allows, 256 MiB if that is not known. Nodes give
    /// way: clean ones first, then dirty ones, which are written for it. What values and cursors of the program hold counts
    /// until they are dropped. When that is not enough, reads that load nodes, and merges, wait, for a tenth of a second
    /// at most. It bounds other options: `memtable_bytes_max`, if it is given, to a thirty-second and `checkpoint_log_bytes` to a quarter of
    /// it. All memtables together take a quarter at most: commits wait for that. All open transactions
    /// take a quarter: their puts and reads are refused beyond it ([`Error::TooLarge`]). At least 16 MiB, twice
    /// `log_buffer_bytes`, and one and a half times the buffers of `staging` in volatile memory. Default `None`.
    pub memory_bytes: Option<usize>,
    /// Memory for commits on their way to the disk; a commit waits while it is full. From 1 MiB to 1 GiB. Default 8
    /// MiB.
    pub log_buffer_bytes: usize,
    /// How far a commit must have come before it is acknowledged, unless its transaction says otherwise
    /// ([`Transaction::set_durability`](crate::Transaction::set_durability)). Creating, dropping and renaming tables is
    /// always [`Durability::Sync`], the default.
    pub durability: Durability,
    /// Write the log around the page cache where the file system allows it. [`Durability::NoBarrier`] needs it. Default
    /// true.
    pub direct_io: bool,
    /// The operator asserts that the cache of the log's device survives a power cut. [`Durability::NoBarrier`] needs
    /// this on a device that does not declare its cache non-volatile. If the cache does not survive a power cut,
    /// acknowledged commits are lost; opening warns each time (`tracing`, level WARN). Leave it alone unless you know
    /// the device. Default false.
    pub assume_power_safe_cache: bool,
    /// Where commits are staged: buffers in a file in memory that survives, to which a commit is copied, and acknowledged then. They are
    /// written to the log many at a time, with one sync. In persistent memory that is as durable as [`Durability::Sync`], which is
    /// acknowledged then, too. In volatile memory it is [`Durability::Staged`] alone: it survives a killed process, no crash of
    /// the operating system, no power cut, and not the end of a container to which the memory belongs; `Sync` waits for the disk as without
    /// it, opening warns each time, and the buffers count in the memory budget, with half as much for the list of their groups. A value that is written ahead of its commit, and a transaction
    /// whose operations do not fit a frame of the log, still wait for a sync of the disk.
    ///
    /// Until the database is closed the file holds commits that may be nowhere else: opening it after a crash without the file, or with
    /// another one, fails and says which. After a clean close the file is not needed: the database may be opened without staging, or with
    /// another file: one that does not exist, that it used last, or that a clean close left free. Any other is refused, for it may be a copy's of this database: remove
    /// it if nothing needs it.
    ///
    /// Memory that does not deliver a page of the file (it is damaged, or another program cut the file short) ends the log, as a failed
    /// write does, not the process: the first such file installs a handler for SIGBUS, which passes on all others. Default `None`.
    pub staging: Option<StagingOptions>,
    /// Open the database without the staging file that it needs: the commits that were only there are lost, and those before
    /// them are kept. A file that is there and right is used all the same. Default false.
    pub adopt_staging_loss: bool,
    /// Memory for one transaction: the keys and values that it writes, the keys and ranges that it reads (a key takes
    /// its length and some 15 bytes), bookkeeping. When half of it is used, values longer than `inline_bytes_max` are
    /// written to the disk before the commit. Beyond it reads and writes fail with [`Error::TooLarge`]; reads of a
    /// [`Snapshot`](crate::Snapshot) take none. Whatever the budget, the operations of one transaction take at most
    /// [`OPERATIONS_BYTES_MAX`](crate::limits::OPERATIONS_BYTES_MAX) in the log. From 1 MiB to 64 GiB. Default 256 MiB.
    pub transaction_bytes_max: usize,
    /// How old a [`Snapshot`](crate::Snapshot), a [`Range`](crate::Range) or a [`Transaction`](crate::Transaction) may
    /// become. An older one is ended: its next step fails with [`Error::SnapshotTooOld`], and the versions and segments that
    /// only it needs are not kept from then on, whether it makes another step or not. Set it, well above the longest
    /// transaction, scan or export that the program means to make, where a forgotten one must not fill the disk. Single
    /// operations of a table are not ended, nor is a commit that has begun. Each step of a reader reads the clock then, of a
    /// scan every eighth.
    /// At least 1 ms; by the monotonic clock of the machine. Default `None`: nothing is ended.
    pub max_snapshot_age: Option<Duration>,
    /// How often [`Database::transact`](crate::Database::transact) runs a conflicting transaction again before it
    /// gives up. Default 100.
    pub conflict_retries_max: u32,
    /// A commit that takes this long, from its call to its acknowledgement, is reported (`tracing`, level INFO).
    /// [`Duration::MAX`] reports none. Default 1 s.
    pub slow_commit: Duration,
    /// How long a close may take to merge memtables into their trees for its checkpoint. Where the data is much larger than
    /// memory most merged rows wait for a read of their leaf, and a quarter of the budget may take a minute. Once this
    /// time is over, or at once if twice as long would not do, the close only syncs the log, and the next open replays
    /// what the last checkpoint does not cover: at most twice `checkpoint_log_bytes`, as after a crash.
    /// [`Database::checkpoint`](crate::Database::checkpoint) before the close has no such bound. [`Duration::MAX`]: a
    /// close merges everything. Default 5 s.
    pub close_timeout: Duration,
    /// Run the threads that keep segments ready, merge and checkpoint. Without them the program has to call
    /// [`Database::maintain`](crate::Database::maintain), as deterministic tests do. Leave it alone elsewhere. Default
    /// true.
    pub background: bool,
    /// Settings that only measurements change. Leave them alone.
    pub research: ResearchOptions,
}

/// Settings for comparisons, in benchmarks and papers. The defaults are the fastest that were found; no program needs
/// others.
///
/// ```
/// use fulgurite::{FlushScheme, Options, ResearchOptions, Waiting};
///
/// let research =
///     ResearchOptions { flush_scheme: FlushScheme::Combined, waiting: Waiting::Block, ..Default::default() };
/// assert!(Options { research, ..Default::default() }.validate().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct ResearchOptions {
    /// How commits that wait for durability share writes and flushes. Default [`FlushScheme::Combined`].
    pub flush_scheme: FlushScheme,
    /// What a committer does while another thread writes for it. Default [`Waiting::SpinThenBlock`].
    pub waiting: Waiting,
    /// How long after a commit an idle log writes a durable mark. Default 10 ms.
    pub mark_idle: Duration,
    /// Evict all that can be evicted, whatever the budget, whenever eviction looks: for tests. Default false.
    pub evict_everything: bool,
    /// Collect garbage. Without, live data is never moved, and a database under overwrites grows without a bound. Default true.
    pub collect: bool,
}

impl Default for ResearchOptions {
    fn default() -> ResearchOptions {
        ResearchOptions {
            flush_scheme: FlushScheme::default(),
            waiting: Waiting::default(),
            mark_idle: Duration::from_millis(10),
            evict_everything: false,
            collect: true,
        }
    }
}

/// The least [`Options::max_snapshot_age`].
const SNAPSHOT_AGE_LEAST: Duration = Duration::from_millis(1);

/// The least memory budget without log buffers, in bytes.
const MEMORY_BYTES_LEAST: usize = 16 << 20;

/// The default budget is this part of what the process may use, ...
const MEMORY_SHARE: u64 = 4;
/// ... and so many bytes if that is not known.
const MEMORY_BYTES_UNKNOWN: u64 = 256 << 20;

/// A memtable takes at most this part of the budget: a table has eight.
const MEMTABLE_SHARE: usize = 32;

/// The least size at which a memtable is frozen, unless the options or the budget say otherwise.
pub(crate) const MEMTABLE_BYTES_LEAST: usize = 16 << 20;

/// The log that no checkpoint covers, from which opening builds memtables, is at most this part of the budget.
const LOG_SHARE: u64 = 4;

/// The least [`Options::transaction_bytes_max`].
pub(crate) const TRANSACTION_BYTES_MAX_LEAST: usize = 1 << 20;

impl Default for Options {
    fn default() -> Options {
        Options {
            create: true,
            read_only: false,
            inline_bytes_max: 1024,
            leaf_bytes: 8 * 1024,
            memtable_bytes_max: None,
            checkpoint_log_bytes: 256 << 20,
            checkpoint_bytes_per_second: None,
            memory_bytes: None,
            log_buffer_bytes: 8 << 20,
            durability: Durability::default(),
            direct_io: true,
            assume_power_safe_cache: false,
            staging: None,
            adopt_staging_loss: false,
            transaction_bytes_max: 256 << 20,
            max_snapshot_age: None,
            conflict_retries_max: 100,
            slow_commit: Duration::from_secs(1),
            close_timeout: Duration::from_secs(5),
            background: true,
            research: ResearchOptions::default(),
        }
    }
}

impl Options {
    /// The least memory budget.
    pub(crate) fn memory_bytes_least(&self) -> usize {
        let staged = self.staged_in_budget();
        MEMORY_BYTES_LEAST.saturating_add(self.log_buffer_bytes.saturating_mul(2)).saturating_add(staged)
    }

    /// The level that a commit at `level` has.
    pub(crate) fn effective(&self, level: Durability) -> Durability {
        let persistent =
            self.staging.as_ref().is_some_and(|staging| staging.medium == MemoryMedium::Persistent);
        if persistent && level == Durability::Staged { Durability::Sync } else { level }
    }

    /// The bytes of staging buffers that are memory like any other, and half as much for the list of their groups: 56 bytes for each, of
    /// which the shortest has 112.
    pub(crate) fn staged_in_budget(&self) -> usize {
        let volatile = self.staging.as_ref().filter(|staging| staging.medium == MemoryMedium::Volatile);
        let buffers = volatile.map_or(0, |staging| staging.buffers as usize * staging.buffer_bytes as usize);
        buffers.saturating_add(buffers / 2)
    }

    /// The memory budget where the process may use `allowed` bytes.
    pub(crate) fn memory_budget(&self, allowed: Option<u64>) -> usize {
        let share = allowed.map_or(MEMORY_BYTES_UNKNOWN, |allowed| allowed / MEMORY_SHARE);
        let default = || usize::try_from(share).unwrap_or(usize::MAX).max(self.memory_bytes_least());
        self.memory_bytes.unwrap_or_else(default)
    }

    fn memory_violation(&self) -> Option<String> {
        let least = self.memory_bytes_least();
        self.memory_bytes.filter(|bytes| *bytes < least).map(|bytes| {
            format!("memory_bytes is {bytes}, the least is {least}: 16 MiB, twice log_buffer_bytes, and one and a half times the staging buffers in volatile memory")
        })
    }

    fn staging_violation(&self) -> Option<String> {
        self.staging.as_ref()?;
        let log = LogOptions {
            staging: self.staging.clone(),
            scheme: self.research.flush_scheme,
            ..LogOptions::default()
        };
        match log.validate() {
            Err(LogError::Usage(what)) => Some(what),
            _ => None,
        }
    }

    /// Checks the memory budget only.
    pub(crate) fn validate_memory(&self) -> Result<()> {
        self.memory_violation()
            .map_or(Ok(()), |violation| Err(Error::BadOptions { violations: vec![violation] }))
    }

    /// Bounds the options that are to be less than a part of the memory budget.
    pub(crate) fn bound_by(&mut self, budget: usize) {
        self.memtable_bytes_max = self.memtable_bytes_max.map(|bytes| bytes.min(budget / MEMTABLE_SHARE));
        self.checkpoint_log_bytes = self.checkpoint_log_bytes.min(budget as u64 / LOG_SHARE);
    }

    /// Checks every setting and reports all violations at once.
    pub fn validate(&self) -> Result<()> {
        let mut violations = Vec::new();
        let mut within = |name: &str, value: u64, min: u64, max: u64| {
            if value < min || value > max {
                violations.push(format!("{name} is {value}, allowed is {min} to {max}"));
            }
        };
        within("inline_bytes_max", self.inline_bytes_max as u64, 0, 32 << 10);
        within("leaf_bytes", self.leaf_bytes as u64, 512, 256 << 10);
        let memtable_bytes = self.memtable_bytes_max.unwrap_or(MEMTABLE_BYTES_LEAST);
        within("memtable_bytes_max", memtable_bytes as u64, 64 << 10, 64 << 30);
        within("checkpoint_log_bytes", self.checkpoint_log_bytes, 1 << 20, 64 << 30);
        within(
            "checkpoint_bytes_per_second",
            self.checkpoint_bytes_per_second.unwrap_or(u64::MAX),
            1 << 20,
            u64::MAX,
        );
        within("log_buffer_bytes", self.log_buffer_bytes as u64, 1 << 20, 1 << 30);
        within(
            "transaction_bytes_max",
            self.transaction_bytes_max as u64,
            TRANSACTION_BYTES_MAX_LEAST as u64,
            64 << 30,
        );
        violations.extend(self.memory_violation());
        if let Some(age) = self.max_snapshot_age.filter(|age| *age < SNAPSHOT_AGE_LEAST) {
            violations.push(format!(
                "max_snapshot_age is {age:?}, allowed is {SNAPSHOT_AGE_LEAST:?} and more, or none"
            ));
        }
        if self.inline_bytes_max > self.leaf_bytes / 2 {
            violations.push(format!(
                "inline_bytes_max is {}, more than half of leaf_bytes, which is {}",
                self.inline_bytes_max, self.leaf_bytes
            ));
        }
        violations.extend(self.staging_violation());
        violations.extend(
            level_refusal(self.durability, self.staging.is_some()).map(|why| format!("durability: {why}")),
        );
        if self.durability == Durability::NoBarrier {
            let refusal = scheme_refusal(self.research.flush_scheme, self.direct_io);
            violations.extend(refusal.map(|why| format!("durability is NoBarrier: {why}")));
        }
        if violations.is_empty() { Ok(()) } else { Err(Error::BadOptions { violations }) }
    }
}

/// Why no database can offer a level; `None` if one can. `stages`: it has a staging file.
pub(crate) fn level_refusal(level: Durability, stages: bool) -> Option<String> {
    match level {
        Durability::Staged if !stages => {
            Some("Staged needs a staging file (`Options::staging`): use Sync".to_string())
        }
        Durability::Async { interval } if interval.is_zero() || interval > ASYNC_INTERVAL_MAX => {
            Some(format!("the interval of Async is {interval:?}, allowed is 1ns to {ASYNC_INTERVAL_MAX:?}"))
        }
        _ => None,
    }
}

fn scheme_refusal(scheme: FlushScheme, direct_io: bool) -> Option<String> {
    if scheme != FlushScheme::Combined {
        return Some(format!(
            "the flush scheme is `{}`, and only `{}` writes around the page cache",
            scheme.name(),
            FlushScheme::Combined.name()
        ));
    }
    (!direct_io).then(|| "direct_io is off, and a write into the page cache is not on the device".to_string())
}

/// Why no commit of an open database can have [`Durability::NoBarrier`]; `None` if it can. The log's device declares
/// `has_volatile_cache`, `None` if it declares nothing; `writes_directly` says whether the log is in fact written
/// around the page cache.
pub(crate) fn no_barrier_refusal(
    options: &Options,
    has_volatile_cache: Option<bool>,
    writes_directly: bool,
) -> Option<String> {
    if let Some(why) = scheme_refusal(options.research.flush_scheme, options.direct_io) {
        return Some(why);
    }
    if !writes_directly {
        return Some("the file system does not let the log be written around the page cache".to_string());
    }
    if has_volatile_cache == Some(false) || options.assume_power_safe_cache {
        return None;
    }
    let device =
        if has_volatile_cache.is_some() { "has a volatile cache" } else { "may have a volatile cache" };
    Some(format!(
        "the log's device {device}, so that a write without a flush may be lost in a power cut: use Sync, or open with \
         assume_power_safe_cache if that cache survives one"
    ))
}

/// How many replicas of a cluster have a commit when it is acknowledged; on a single node all of these are the same. Each replica that counts
/// has it durably. (The three are those of Berkeley DB Java Edition.)
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::Acks;
///
/// let orders = db.table("orders")?;
/// let mut txn = db.begin();
/// txn.put(&orders, "17", "paid")?;
/// txn.set_acks(Acks::All);
/// txn.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Acks {
    /// The leader alone: the commit is lost if another node leads before a quorum has it. Reads at the leader show it.
    Local,
    /// A quorum: no loss of a minority of machines loses it.
    #[default]
    Quorum,
    /// All replicas. If some are not reached in time, [`Error::ReplicasBehind`] says so: the commit is a quorum's.
    All,
}

/// How isolated a transaction is.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::Isolation;
///
/// let accounts = db.table("accounts")?;
/// let mut txn = db.begin_with(Isolation::Serializable);
/// let count = txn.range(&accounts, ..)?.count();      // an account that is added meanwhile is a conflict
/// txn.put(&accounts, "count", count.to_string())?;
/// txn.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// A transaction reads one snapshot. Of two that read and write the same key, the first to commit wins. Write skew
    /// is possible.
    #[default]
    Snapshot,
    /// As if transactions ran one after the other, in the order of their commits: the commit validates everything that
    /// the transaction read, ranges included.
    Serializable,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_barrier() -> Options {
        Options { durability: Durability::NoBarrier, ..Options::default() }
    }

    #[test]
    fn every_violation_is_reported_at_once() {
        let options = Options {
            research: ResearchOptions { flush_scheme: FlushScheme::OwnLsn, ..Default::default() },
            leaf_bytes: 1,
            ..no_barrier()
        };
        let Err(Error::BadOptions { violations }) = options.validate() else { panic!("two violations pass") };
        for word in ["leaf_bytes is 1", "own-lsn"] {
            assert!(violations.iter().any(|violation| violation.contains(word)), "{word}: {violations:?}");
        }
    }

    #[test]
    fn snapshots_may_live_a_millisecond_or_longer() {
        let outcome = |age| Options { max_snapshot_age: Some(age), ..Options::default() }.validate();
        for age in [Duration::from_millis(1), Duration::from_secs(300), Duration::MAX] {
            outcome(age).unwrap();
        }
        for age in [Duration::ZERO, Duration::from_micros(999)] {
            let text = outcome(age).unwrap_err().to_string();
            assert!(
                text.contains(&format!("max_snapshot_age is {age:?}, allowed is 1ms and more")),
                "{text}"
            );
        }
    }

    #[test]
    fn levels_that_cannot_be_had_are_refused() {
        let interval = |interval| Durability::Async { interval };
        let hour = Duration::from_secs(3600);
        for (durability, is_fine) in [
            (Durability::Staged, false),
            (interval(Duration::ZERO), false),
            (interval(hour + Duration::from_nanos(1)), false),
            (interval(hour), true),
            (interval(Duration::from_nanos(1)), true),
            (Durability::None, true),
            (Durability::NoBarrier, true),
        ] {
            let outcome = Options { durability, ..Options::default() }.validate();
            assert_eq!(outcome.is_ok(), is_fine, "{durability:?}: {outcome:?}");
        }
        assert!(Options { direct_io: false, ..no_barrier() }.validate().is_err());
    }

    #[test]
    fn no_barrier_needs_a_cache_that_survives_and_direct_writes() {
        let asserted = Options { assume_power_safe_cache: true, ..no_barrier() };
        let aggregated = ResearchOptions { flush_scheme: FlushScheme::Aggregated, ..Default::default() };
        for (options, has_volatile_cache, writes_directly, is_fine) in [
            (no_barrier(), Some(false), true, true),
            (no_barrier(), Some(true), true, false),
            (no_barrier(), None, true, false),
            (asserted.clone(), Some(true), true, true),
            (asserted.clone(), None, true, true),
            (asserted.clone(), None, false, false),
            (Options { direct_io: false, ..asserted.clone() }, Some(false), true, false),
            (Options { research: aggregated, ..asserted }, Some(false), true, false),
        ] {
            let refusal = no_barrier_refusal(&options, has_volatile_cache, writes_directly);
            assert_eq!(refusal.is_none(), is_fine, "{has_volatile_cache:?} {writes_directly}: {refusal:?}");
        }
    }
}
