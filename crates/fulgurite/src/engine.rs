//! The state that all handles of an open database share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use fulgurite_env::{Dir, Env, Lock, Process};
use fulgurite_index::table::ReadPoint;
use fulgurite_index::{Io, OutOfLine, Version};
use fulgurite_log::{Durability, Log};
use fulgurite_types::{Csn, TableId};
use parking_lot::{Condvar, Mutex};

use crate::background::Wakeups;
use crate::catalog::{Catalog, TableState};
use crate::check::Checks;
use crate::checkpoint::Maintenance;
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::latches::Latches;
use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::error::OrError;
use crate::hooks::Hooks;
use crate::maintenance::Progress;
use crate::options::level_refusal;
use crate::room::Room;
use crate::snapshots::{SnapshotGuard, Snapshots};
use crate::spill::{Spill, SpillPins};
use crate::values::{read_own_value, read_value};
use crate::write_set::{WriteOp, WriteValue};
use crate::{CsnRange, Error, Options, Result, Value};

/// An open database.
pub(crate) struct Engine {
    // Constant after opening.
    pub env: Arc<dyn Env>,
    /// The directory, open.
    pub home: Arc<dyn Dir>,
    /// The directory's path when it was opened, for messages.
    pub dir: PathBuf,
    /// The process that opened it: a child of `fork()` must not use anything here.
    pub process: Process,
    pub options: Options,
    /// If the database is opened read-only: the replayed commits that the log does not prove to be durable.
    pub unproven: Option<CsnRange>,
    /// Why no commit can have [`Durability::NoBarrier`]; `None` if it can.
    pub no_barrier_refusal: Option<String>,
    pub log: Arc<Log>,
    // These synchronize themselves.
    pub pipeline: Arc<Pipeline>,
    pub catalog: Arc<Catalog>,
    pub snapshots: Snapshots,
    pub deadlines: Deadlines,
    /// The largest CSN at which reads began after a pruner had taken its horizon and its time (INV-TXN-14).
    pub pruned_at: CachePadded<AtomicU64>,
    pub latches: Latches,
    pub pins: Arc<SpillPins>,
    pub clock: Clock,
    pub hooks: Hooks,
    pub closed: AtomicBool,
    /// Whether the disk has room for more than deletes and checkpoints need; maintenance updates it.
    pub room: Room,
    /// Wakes the merger.
    pub wakeups: Wakeups,
    /// Signalled when a memtable was merged.
    pub merged: (Mutex<()>, Condvar),
    pub counters: Counters,
    /// The progress of maintenance.
    pub progress: Progress,
    pub checks: Checks,
    /// The state of merging and checkpoints; one of them runs at a time.
    pub maintenance: Mutex<Maintenance>,
    /// Segments that nothing needs and that no reader can still use.
    pub retired: Arc<Mutex<Vec<u32>>>,
    /// The lock of the directory, released when the database is closed.
    pub lock: Mutex<Option<Box<dyn Lock>>>,
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

    /// Fails in a child of `fork()`, where the threads of the database do not run and the files are the parent's
    /// (INV-PROC-1). Called before any lock is taken: a thread that held it at the fork does not exist in the child.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { path: self.dir.clone() }
    }

    /// Registers a snapshot of the commits up to the result of `csn`. In a child of `fork()`, where nothing can be
    /// read, returns an empty one.
    pub fn snapshot(&self, csn: impl Fn() -> Csn) -> SnapshotGuard {
        if self.process.is_current() {
            self.snapshots.register(|| self.now_ms(), csn, &self.deadlines, || self.pipeline.read_csn())
        } else {
            SnapshotGuard::of_nothing()
        }
    }

    pub fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Fails if the database is closed or opened read-only, or its log has failed.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.options.read_only {
            return Err(Error::ReadOnly { path: self.dir.clone() });
        }
        match self.log.poisoned() {
            Some(why) => Err(Error::Poisoned { what: why.to_string(), at_risk: self.pipeline.at_risk() }),
            None => Ok(()),
        }
    }

    /// Fails if no commit can have this level.
    pub fn check_level(&self, level: Durability) -> Result<()> {
        let why = match level {
            Durability::NoBarrier => self.no_barrier_refusal.clone(),
            level => level_refusal(level),
        };
        why.map_or(Ok(()), |why| Err(Error::UnsupportedDurability { level, why }))
    }

    pub fn new_spill(&self) -> Spill {
        Spill::new(self.log.clone(), self.pins.clone())
    }

    /// The live version of a key that a registered snapshot sees.
    pub fn read_at(
        &self,
        table: &TableState,
        key: &[u8],
        hash: u64,
        csn: Csn,
        now_ms: u64,
    ) -> Result<Option<Version>> {
        self.check_open()?;
        self.counters.gets.count();
        let _pin = crossbeam_epoch::pin();
        table.index.get(key, hash, ReadPoint { csn, now_ms }, Io::Allowed).or_error()
    }

    /// Whether a single operation may return what it `found` at `at`, in the memtables or else in the base.
    ///
    /// INV-TXN-14: a single operation has no snapshot slot. So a pruner may remove the version that it would find at
    /// `at`, because at the pruner's horizon or time the key has a newer version, which the operation does not see.
    /// Therefore the operation returns "no value" only if `pruned_at` is at or below `at`: then every pruner so far has
    /// taken its horizon and its time before `at`. Else it asks a snapshot. It also does if the version that it found
    /// has expired: it reads the clock after `at`, so the key may have got a new value before it expired.
    #[inline]
    pub fn is_settled(&self, found: Option<&Version>, at: Csn) -> bool {
        match found {
            Some(version) => version.expires_at_ms == 0 || version.is_live_at(self.now_ms()),
            None => self.pruned_at.load(Ordering::Relaxed) <= at.0,
        }
    }

    /// The value of a version: from memory as it is, or from the log, verified.
    pub fn resolve(&self, table: TableId, key: &[u8], version: Version) -> Result<Value> {
        if !version.flags.is_out_of_line() {
            return Ok(Value(version.payload));
        }
        self.read_value(table, key, version.csn, &version.payload)
    }

    /// Reads an out-of-line value and verifies its checksum.
    pub fn read_value(&self, table: TableId, key: &[u8], csn: Csn, payload: &[u8]) -> Result<Value> {
        read_value(&self.log, table, key, csn, payload).map_err(|error| self.in_table(table, error))
    }

    /// Names the table in which damage was found.
    #[cold]
    fn in_table(&self, table: TableId, mut error: Error) -> Error {
        if let Error::Damaged(damage) = &mut error {
            damage.table = self.catalog.by_id(table).map(|table| table.name().to_string());
        }
        error
    }

    /// The value that a transaction itself wrote to a key.
    pub fn own_value(&self, table: TableId, key: &[u8], op: &WriteOp, now_ms: u64) -> Result<Option<Value>> {
        if !op.is_live_at(now_ms) {
            return Ok(None);
        }
        match &op.value {
            WriteValue::Delete => Ok(None),
            WriteValue::Inline(bytes) => Ok(Some(Value::from(bytes.to_vec()))),
            WriteValue::Chunks(spilled) => self.read_own_value(table, key, &spilled.1).map(Some),
        }
    }

    /// Reads a value that a transaction itself wrote ahead, and verifies its checksum.
    pub fn read_own_value(&self, table: TableId, key: &[u8], place: &OutOfLine) -> Result<Value> {
        read_own_value(&self.log, table, key, place).map_err(|error| self.in_table(table, error))
    }
}
