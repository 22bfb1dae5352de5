//! What a workload asks of an engine. Tables are numbered in the order of [`Opening::tables`].
//!
//! Calls fail with the engine's error; those of a transaction also with [`Error::Conflict`], when it has to be run again,
//! and writes of one that only reads with [`Error::READ_ONLY`]. A transaction whose statements fail is undone.
//!
//! An engine opens a [`Store`]; each thread has a [`Session`] of it; a session runs one [`Transaction`] at a time. An
//! engine says beforehand what it cannot do ([`Engine::cannot`]), and the report has `n/a` there: nothing weaker is run
//! instead.

use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::io::counts;
use crate::{Error, IoCounts, Result};

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// When it is on the device: it outlives a power cut.
    #[default]
    Sync,
    /// When the device has taken it, without a flush of the device's cache: for caches that outlive a power cut.
    NoBarrier,
    /// At once; it is written and synced within this time.
    Async(Duration),
    /// When it is written, that is, handed to the operating system; no sync is made for it. It outlives a kill of the
    /// process, and may be lost with the operating system.
    Unsynced,
    /// At once, in the memory of the process; the engine writes it when it chooses. A kill of the process may lose it.
    Memory,
    /// When it is in a buffer in front of the device, in memory that survives the process.
    Staged,
}

/// The levels without a time, by name.
const NAMED_LEVELS: [(&str, Level); 6] = [
    ("sync", Level::Sync),
    ("no-barrier", Level::NoBarrier),
    ("unsynced", Level::Unsynced),
    ("memory", Level::Memory),
    ("none", Level::Memory),
    ("staged", Level::Staged),
];

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Level::Async(interval) = self {
            return write!(f, "async:{}ms", interval.as_millis());
        }
        let name = NAMED_LEVELS.iter().find(|(_, level)| level == self).expect("all others have a name");
        f.write_str(name.0)
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Level, String> {
        if let Some((_, level)) = NAMED_LEVELS.iter().find(|(name, _)| *name == text) {
            return Ok(*level);
        }
        match text.strip_prefix("async:").and_then(parse_ms) {
            Some(ms) if (1..=3_600_000).contains(&ms) => Ok(Level::Async(Duration::from_millis(ms))),
            _ => {
                Err("allowed are sync, async:TIME (a number and ms or s, up to an hour), unsynced, memory, \
                      no-barrier, staged"
                    .to_string())
            }
        }
    }
}

/// A time with its unit, `10ms` or `2s`, in milliseconds.
pub(crate) fn parse_ms(text: &str) -> Option<u64> {
    let (number, unit_ms) =
        text.strip_suffix("ms").map(|ms| (ms, 1)).or(Some((text.strip_suffix('s')?, 1000)))?;
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The directory of the database. It exists and is empty, or holds files that the same engine left there.
    pub dir: &'a Path,
    /// The names of its tables, the same each time: letters, digits and `_`.
    pub tables: &'a [&'a str],
    /// The memory that the engine may use for data that is also on disk.
    pub cache_bytes: u64,
    /// When commits are acknowledged.
    pub level: Level,
}

/// What a workload needs of an engine beside puts, deletes, gets and scans as single statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Transactions of several statements, isolated from each other at least as snapshots are: they read one state and
    /// their own writes, and of two that write the same key the later one conflicts or waits before it reads. Without
    /// this, a transaction may put and delete several keys, and those take effect together.
    pub transactions: bool,
    /// A transaction that only reads sees one state of the store, whatever writers do meanwhile.
    pub snapshots: bool,
    /// Commits with durability that is waited for later ([`Session::defer`]).
    pub tickets: bool,
    /// Data larger than [`Opening::cache_bytes`], with the engine's memory kept to about that size.
    pub bounded_memory: bool,
}

/// One of the compared engines, with its settings.
pub trait Engine: Send + Sync {
    /// The name in reports and on command lines: `rocksdb`, `fulgurite:aggregated`.
    fn name(&self) -> &str;

    /// The version of the library, and settings that are not its own defaults.
    fn about(&self) -> String;

    /// The isolation of its transactions, in its own words.
    fn isolation(&self) -> &str;

    /// Why it cannot do this; `None` if it can.
    fn cannot(&self, needs: Needs, level: Level) -> Option<String>;

    /// Opens the database, and creates it and its tables if they do not exist. A database that was not closed is
    /// recovered.
    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>>;
}

/// An open database, used by all threads at once.
pub trait Store: Send + Sync {
    /// A session for one thread. It stays on that thread.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// The engine's counters since it was opened.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// The input and output of this store alone, if it is known; otherwise the process's is used.
    fn io(&self) -> Option<IoCounts> {
        None
    }

    /// The engine's checkpoints, if it says something about them. The log above the last one is known as exactly as this
    /// was called often since the store was opened.
    fn checkpoints(&self) -> Option<Checkpoints> {
        None
    }

    /// Merges what was written into the data on disk, where an engine does so at all: what is written later is not merged before it has
    /// to be.
    fn merge(&self) -> Result<()> {
        Ok(())
    }

    /// Returns when everything that was committed is durable.
    fn settle(&self) -> Result<()>;

    /// Closes the database after its last session is gone. Dropping a store without a close is like a crash of the
    /// process, as far as the engine allows.
    fn close(&self) -> Result<()>;
}

/// What an engine says of its checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// How many were completed since the store was opened.
    pub completed: u64,
    /// How long the last one took, in nanoseconds.
    pub last_ns: u64,
    /// Bytes of the log above the last one.
    pub log_bytes: u64,
}

/// Whether a transaction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It only reads.
    Read,
    /// It may write.
    Write,
}

/// How the statements want their transaction to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With a commit.
    Commit,
    /// With a rollback.
    Rollback,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is committed, at the level of the store.
    Committed,
    /// It was undone as the statements wanted.
    RolledBack,
    /// It was undone because it conflicted with another: to be run again.
    Conflict,
}

/// The statements of a transaction. They run again after a conflict, so they must be the same each time. They return
/// every error that they get, [`Error::Conflict`] above all.
pub type Statements<'a> = &'a mut dyn FnMut(&mut dyn Transaction) -> Result<Verdict>;

/// The session of one thread.
pub trait Session {
    /// Runs statements once, in a transaction. [`Error::Conflict`] from a statement becomes [`Ended::Conflict`]. In
    /// [`Mode::Read`] they must not write.
    ///
    /// # Errors
    /// The error of the engine or of the statements; the transaction is undone.
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended>;

    /// A single read, outside of any transaction: like [`Transaction::get`].
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut found = false;
        let read = &mut |transaction: &mut dyn Transaction| {
            found = transaction.get(table, key, value)?;
            Ok(Verdict::Commit)
        };
        while self.transact(Mode::Read, read)? == Ended::Conflict {}
        Ok(found)
    }

    /// Like [`Session::transact`] in [`Mode::Write`], without waiting for durability: for engines with
    /// [`Needs::tickets`].
    fn defer(&mut self, statements: Statements<'_>) -> Result<(Ended, Option<Box<dyn Pending>>)> {
        let _ = statements;
        Err(Error::Unsupported("commits that are waited for later"))
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From small keys to large ones.
    Forward,
    /// From large keys to small ones.
    Reverse,
}

/// The entries of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// The number of the table.
    pub table: usize,
    /// Forward, the scan begins with the first key that is not below this; in reverse, with the last one that is not
    /// above it. `None`: at that end of the table.
    pub from: Option<&'a [u8]>,
    /// The order of the keys.
    pub direction: Direction,
    /// Whether the transaction is going to write the entries: an engine that locks takes the locks of the writes at once,
    /// as in [`Transaction::get_for_update`].
    pub for_update: bool,
}

impl<'a> Range<'a> {
    /// From `from` to the last entry.
    pub fn forward(table: usize, from: Option<&'a [u8]>) -> Range<'a> {
        Range { table, from, direction: Direction::Forward, for_update: false }
    }

    /// From `from` to the first entry.
    pub fn reverse(table: usize, from: Option<&'a [u8]>) -> Range<'a> {
        Range { direction: Direction::Reverse, ..Range::forward(table, from) }
    }

    /// All entries of a table.
    pub fn all(table: usize) -> Range<'static> {
        Range::forward(table, None)
    }

    /// The keys.
    pub fn bounds(self) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
        let near = self.from.map_or(Bound::Unbounded, Bound::Included);
        match self.direction {
            Direction::Forward => (near, Bound::Unbounded),
            Direction::Reverse => (Bound::Unbounded, near),
        }
    }

    /// The same, of entries that the transaction is going to write.
    pub fn for_update(self) -> Range<'a> {
        Range { for_update: true, ..self }
    }
}

/// Called with an entry of a scan; returns whether to continue.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool>;

/// An open transaction. It sees its own writes if the engine meets [`Needs::transactions`]; otherwise it may not.
pub trait Transaction {
    /// Puts the value of `key` into `value`, whose former content is gone; returns whether there is one.
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Like [`Transaction::get`], for a key that this transaction is going to write: an engine that locks takes the
    /// lock of the write at once, so that two such transactions do not wait for each other.
    fn get_for_update(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.get(table, key, value)
    }

    /// Writes `key`, present or not. Transactions that only read leave it as it is.
    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let _ = (table, key, value);
        Err(Error::READ_ONLY)
    }

    /// Deletes `key`, present or not.
    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        let _ = (table, key);
        Err(Error::READ_ONLY)
    }

    /// Shows the entries of a range in the order of their keys (as bytes), until `visit` returns false or there are no
    /// more. `visit` must not use the transaction.
    ///
    /// # Errors
    /// [`Error::Conflict`], the error of `visit`, or the engine's error.
    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()>;

    /// Deletes the entry of a table with the smallest key, and puts it into `key` and `value`; returns whether there is
    /// one. An engine that can skip entries that other open transactions have taken does so.
    fn take_first(&mut self, table: usize, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let mut found = false;
        self.scan(Range::all(table).for_update(), &mut |first, content| {
            copied(Some(first), key);
            found = copied(Some(content), value);
            Ok(false)
        })?;
        if found {
            self.delete(table, key)?;
        }
        Ok(found)
    }
}

/// Copies what was found into `value`, whose former content is gone; returns whether there is something.
pub fn copied(found: Option<&[u8]>, value: &mut Vec<u8>) -> bool {
    value.clear();
    value.extend_from_slice(found.unwrap_or_default());
    found.is_some()
}

/// A commit that is not durable yet.
pub trait Pending: Send {
    /// Whether it is durable by now: `None` if that is not known yet.
    fn poll(&self) -> Option<Result<()>>;

    /// Returns when it is durable.
    fn wait(self: Box<Self>) -> Result<()>;
}

counts! {
    /// The engine's counters of commits. An engine leaves at 0 what it does not count.
    pub struct Counters {
        /// Commits that wrote something.
        commits,
        /// Groups of commits that were written as one.
        groups,
        /// How often a committer took the right to sync.
        sync_locks,
        /// Nanoseconds that committers waited for that right.
        sync_lock_ns,
        /// Write calls of the log.
        writes,
        /// Bytes they wrote.
        written_bytes,
        /// Nanoseconds in these calls.
        write_ns,
        /// Sync calls of the log, data-synchronous writes included.
        syncs,
        /// Nanoseconds in these calls.
        sync_ns,
        /// Requests for durability that syncs completed.
        requests_completed,
        /// How often a committer waited for another thread's sync of its commit.
        flush_waits,
        /// Nanoseconds in these waits.
        flush_wait_ns,
        /// How often a waiting committer parked.
        parks,
        /// Calls that woke parked committers.
        wakes,
        /// Commands that I/O threads of a server ran.
        inline_commands,
        /// Commands that its workers ran.
        worker_commands,
        /// How often its threads gave a processor up.
        context_switches,
        /// Its single reads of records that a memtable held.
        held_reads,
        /// Nanoseconds that these waited for a worker.
        held_waiting_ns,
        /// Nanoseconds in which they were processed.
        held_processing_ns,
        /// Its single reads of other records.
        other_reads,
        /// Nanoseconds that these waited for a worker.
        other_waiting_ns,
        /// Nanoseconds in which they were processed.
        other_processing_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_they_are_written() {
        for text in ["sync", "no-barrier", "unsynced", "memory", "staged", "async:10ms"] {
            assert_eq!(text.parse::<Level>().map(|level| level.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("none".parse(), Ok(Level::Memory));
        assert_eq!("async:2s".parse(), Ok(Level::Async(Duration::from_secs(2))));
        for wrong in [
            "async",
            "async:",
            "async:5",
            "async:0ms",
            "async:2h",
            "sync:1s",
            "",
            "Sync",
            "async:99999999999999999999s",
        ] {
            assert!(wrong.parse::<Level>().is_err(), "{wrong}");
        }
    }
}
