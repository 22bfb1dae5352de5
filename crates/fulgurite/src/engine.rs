//! An open database: the owners of its state, and the operations that need several of them.
//!
//! | owner | of what |
//! |---|---|
//! | [`Files`] | the directory, its lock, whether the database is open |
//! | [`Log`] | the log: commits and bulk records, segments |
//! | [`Pipeline`], [`Latches`] | numbering, applying and acknowledging commits |
//! | [`Catalog`] | the tables |
//! | [`Reads`] | open snapshots and deadlines, and what pruning keeps for them |
//! | [`Merger`] | merging of memtables, and committers that wait for it; the look for leaves that no write touches and that can be purged |
//! | [`Checkpointer`] | when a checkpoint is due, and how it is written |
//! | [`SuperblockFile`] | the copies of the superblock |
//! | [`Space`] | the accounts, the pins, segments that are being retired |
//! | [`Pacing`] | how fast a checkpoint goes, and whom it slows |
//! | [`LogGrowth`] | how much log no checkpoint covers |
//! | [`Room`] | admission by the free space of the disk |
//! | [`Memory`] | the memory budget, and where the clock of eviction is |
//!
//! [`Values`] and [`Wakeups`] have no state of the database. The clock, the counters, the hooks, the progress and the
//! environment are handed to the owners and belong to none.
//!
//! **Lock order**, and why a thread has several at once:
//! 1. `Catalog::definitions`, over the commit of a definition: no other definition may use the name or the id.
//! 2. `Engine::checkpointer`, over a checkpoint. Merging, a check, and the freeing of segments do without it.
//! 3. `Merger::has_ended`, for reading, over the merge of a memtable, under 2 if a checkpoint merges; then the table's
//!    lock for merging and purging; then, for one step of either or of a write-out, the lock of its tree. Under 2, too:
//!    the superblock, while it is written; the space, for a moment, and over the renaming and removing of freed segments.
//!    Eviction holds its clock over a step, and under it the lock of a tree, but not over a read or a write.
//! 4. A table's gate, the stripes of keys ([`crate::commit::latches`]), the deadlines: a commit holds them from its
//!    validation until it is applied, or until it has its number. A pruner takes the deadlines under 2 or 3, for a moment.
//! 5. The locks of the log, under any of these: they have an order of their own (`crates/log/src/stream/mod.rs`).
//!    Memtables are frozen under its lock that gives out numbers (`Log::at_reserved`), so that each ends at an exact
//!    CSN; the catalog's maps are read there, too. A commit waits for its admission (the log's first lock) before it
//!    takes 4.
//!
//! A thread that holds 1 or 2, or a latch, is quiet (INV-TXN-12): it runs no code of users.

use std::sync::Arc;

use fulgurite_env::Env;
use fulgurite_index::IndexError;
use fulgurite_index::Io;
use fulgurite_index::table::Newest;
use fulgurite_log::{Durability, Log};
use fulgurite_types::{Csn, DiskReads};
use parking_lot::Mutex;

use crate::apply::Applying;
use crate::background::Wakeups;
use crate::catalog::{Catalog, TableState};
use crate::checkpoint::Checkpointer;
use crate::checkpoint::growth::LogGrowth;
use crate::checkpoint::pacing::Pacing;
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::latches::Latches;
use crate::counters::Counters;
use crate::error::OrError;
use crate::eviction::Memory;
use crate::files::Files;
use crate::hooks::Hooks;
use crate::merger::Merger;
use crate::options::level_refusal;
use crate::progress::Progress;
use crate::reads::Reads;
use crate::snapshots::SnapshotGuard;
use crate::space::Space;
use crate::space::pins::{CheckPins, SpillPins};
use crate::space::room::Room;
use crate::spill::Spill;
use crate::superblock::SuperblockFile;
use crate::values::Values;
use crate::{CsnRange, Error, Options, Result};

/// An open database. Built when all owners are.
pub(crate) struct Engine {
    // Constant after opening.
    pub env: Arc<dyn Env>,
    pub options: Options,
    /// If the database is opened read-only: the replayed commits that the log does not prove to be durable.
    pub unproven: Option<CsnRange>,
    /// Why no commit can have [`Durability::NoBarrier`]; `None` if it can.
    pub no_barrier_refusal: Option<String>,
    // The owners; all but those under a lock here synchronize themselves.
    pub log: Arc<Log>,
    pub pipeline: Arc<Pipeline>,
    pub latches: Latches,
    pub tables: Arc<Catalog>,
    pub reads: Arc<Reads>,
    pub values: Values,
    pub disk_reads: Arc<DiskReads>,
    /// Where commits of other nodes are read from the log. Held over their apply.
    pub applying: Mutex<Applying>,
    pub spills: Arc<SpillPins>,
    pub checks: Arc<CheckPins>,
    pub room: Arc<Room>,
    pub merger: Merger,
    /// Held over a whole checkpoint: there is one at a time.
    pub checkpointer: Mutex<Checkpointer>,
    pub superblock: Arc<Mutex<SuperblockFile>>,
    pub space: Arc<Mutex<Space>>,
    pub pacing: Arc<Pacing>,
    pub growth: Arc<LogGrowth>,
    // Handed to the owners.
    pub clock: Arc<Clock>,
    pub counters: Counters,
    pub hooks: Arc<Hooks>,
    pub progress: Arc<Progress>,
    /// Wakes the threads of the background.
    pub wakeups: Wakeups,
    /// Declared after all that takes memory.
    pub memory: Memory,
    /// Declared last: the lock of the directory is kept until no other owner is left.
    pub files: Arc<Files>,
}

impl Engine {
    /// Milliseconds since 1970-01-01 UTC; never less than an earlier call returned.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms(self.env.clock())
    }

    /// The state of a handle's table. Fails for a handle of another database, where table ids mean other tables.
    pub fn state_of<'t>(&self, table: &'t crate::Table) -> Result<&'t Arc<TableState>> {
        self.check_process()?;
        if std::ptr::eq(self, &*table.engine) {
            Ok(&table.state)
        } else {
            Err(Error::WrongDatabase { table: table.name() })
        }
    }

    #[inline]
    pub fn check_process(&self) -> Result<()> {
        self.files.check_process()
    }

    pub fn check_open(&self) -> Result<()> {
        self.files.check_open()
    }

    /// Fails if the database is closed or opened read-only, or its log has failed.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.options.read_only {
            return Err(Error::ReadOnly { path: self.files.path.clone() });
        }
        self.pipeline.check_log()
    }

    /// The level that a commit at `level` has: `Staged` is `Sync` in persistent memory. Fails if no commit can have it.
    pub fn level(&self, level: Durability) -> Result<Durability> {
        let why = match level {
            Durability::NoBarrier => self.no_barrier_refusal.clone(),
            level => level_refusal(level, self.options.staging.is_some()),
        };
        match why {
            Some(why) => Err(Error::UnsupportedDurability { level, why }),
            None => Ok(self.options.effective(level)),
        }
    }

    pub fn new_spill(&self, snapshot: &SnapshotGuard) -> Spill {
        let since_ns = self.env.clock().monotonic_ns();
        Spill::new(self.log.clone(), self.spills.clone(), snapshot.slot().clone(), since_ns)
    }

    fn begin_read(&self) -> Result<()> {
        self.check_open()?;
        self.counters.gets.count();
        self.hooks.reached("read at a snapshot");
        Ok(())
    }

    /// Like [`Engine::read_at`], but [`Error::WouldBlock`] instead of a read from disk.
    pub fn read_in_memory(&self, table: &TableState, key: &[u8], hash: u64, csn: Csn) -> Result<Newest> {
        self.begin_read()?;
        // One for both look-ups.
        let _pin = crossbeam_epoch::pin();
        table.index.find(key, hash, csn, Io::MemoryOnly).or_error()
    }

    /// The last writes to a key up to the CSN of a registered snapshot.
    pub fn read_at(&self, table: &TableState, key: &[u8], hash: u64, csn: Csn) -> Result<Newest> {
        self.begin_read()?;
        let in_memory = {
            // One for both look-ups, but none over a read from disk.
            let _pin = crossbeam_epoch::pin();
            table.index.find(key, hash, csn, Io::MemoryOnly)
        };
        match in_memory {
            Err(IndexError::WouldBlock) => table.index.find(key, hash, csn, Io::Allowed).or_error(),
            found => found.or_error(),
        }
    }
}
