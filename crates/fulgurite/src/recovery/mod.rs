//! Opening a directory: creates a new database, or recovers an existing one. The cases are in `docs/recovery.md`.
//!
//! Opening
//! 1. locks the directory;
//! 2. reads the superblock, or creates the database;
//! 3. reads the last checkpoint's record; recovers the log: looks for the segments that the record refers to, collects the frames above
//!    it, and begins an epoch;
//! 4. restores the tables of that checkpoint, and applies the collected frames to them (all, or a first batch);
//! 5. writes the superblock of this life, with the new epoch. A crash before that is harmless: the old superblock names
//!    an older epoch, and the chain of the log leads from the new one to the replay point;
//! 6. builds the owners, each from those before it, and the [`Engine`] last: none is ever half-built;
//! 7. finds the segments that former lives left dead; applies the frames that did not fit into memory at once, merging between;
//!    and checkpoints if former lives left too much log to replay.
//!
//! Opened read-only, a database begins no epoch and writes nothing: steps 5 and 7 are left out.

pub(crate) mod directory;
mod replay;
mod tables;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::{Dir, Env, Lock};
use fulgurite_log::{ClosedLog, Durability, Log, LogOptions, RecoveryReport, ReplayFrom};
use fulgurite_types::{Csn, DiskReads, Epoch, Lsn, TableId};
use parking_lot::Mutex;

use self::directory::{clear_log, create_log_dir, enter, is_without_epoch, open_log_dir, open_superblock};
use self::replay::{Replay, Rest};
use self::tables::restore_tables;
pub(crate) use self::tables::row_of;
use crate::background::Wakeups;
use crate::catalog::Catalog;
use crate::checkpoint::chain::Chain;
use crate::checkpoint::growth::{LogBytes, LogGrowth};
use crate::checkpoint::pace::Debt;
use crate::checkpoint::pacing::Pacing;
use crate::checkpoint::record::{self, ReadRecord};
use crate::checkpoint::{Checkpointer, Shared};
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::latches::Latches;
use crate::counters::Counters;
use crate::database::{FIRST_EPOCH, LOG_NAME};
use crate::engine::Engine;
use crate::error::OrError;
use crate::eviction::Memory;
use crate::files::Files;
use crate::hooks::Hooks;
use crate::latency::Stopwatch;
use crate::merged_values::MergedValues;
use crate::merger::Merger;
use crate::options::no_barrier_refusal;
use crate::progress::Progress;
use crate::reads::Reads;
use crate::space::Space;
use crate::space::accounts::Accounts;
use crate::space::pins::SpillPins;
use crate::space::room::{Owners, Room};
use crate::store::LogNodeStore;
use crate::superblock::{Superblock, SuperblockFile};
use crate::values::Values;
use crate::{CsnRange, Damage, Error, Options, Result};

/// How far opening has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// Bytes of log read so far.
    pub done_bytes: u64,
    /// Bytes of log to read.
    pub total_bytes: u64,
}

/// How a node of a cluster opens its database.
#[derive(Clone, Copy, Debug)]
pub struct Replica {
    /// Its number.
    pub node: u32,
    /// The entry after which its log is cut, because the leader has others there.
    pub up_to_entry: Option<u64>,
    /// So many bytes of commits may wait for a quorum.
    pub unagreed_bytes_max: u64,
    /// How long a commit waits beyond that, and for all replicas once a quorum has it.
    pub quorum_wait: Duration,
}

/// What waits for a quorum takes this part of the memory budget at most: it cannot be merged.
const UNAGREED_SHARE: u64 = 16;

/// What recovery found in a directory.
struct Recovered {
    superblock: SuperblockFile,
    no_barrier_refusal: Option<String>,
    log: Arc<Log>,
    report: RecoveryReport,
    clock: Clock,
    /// In a replicated log that of a follower, as which each opening begins.
    pipeline: Arc<Pipeline>,
    restored: Restored,
    spills: Arc<SpillPins>,
    /// The memory budget.
    budget: usize,
}

/// What the checkpoint and the log above it made.
struct Restored {
    tables: Arc<Catalog>,
    accounts: Accounts,
    chain: Chain,
    /// The operations, and the operation lists in chunks, that were replayed.
    lists: LogBytes,
    /// The commits that are replayed in further batches.
    rest: Option<Rest>,
    disk_reads: Arc<DiskReads>,
}

/// Opens or creates the database in `dir`.
pub(crate) fn open_engine(
    env: Arc<dyn Env>,
    dir: &Path,
    mut options: Options,
    replica: Option<Replica>,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<Arc<Engine>> {
    options.validate()?;
    let start_ns = env.clock().monotonic_ns();
    let read_only = options.read_only;
    options.create &= !read_only;
    options.background &= !read_only;
    let allowed = env.memory_bytes();
    let budget = options.memory_budget(allowed);
    options.bound_by(budget);
    let (home, lock) = enter(env.disk(), dir, &options)?;
    let mut recovered = recover(&env, &*home, &options, replica, budget, progress)?;
    let found = recovered.superblock.current().clone();
    if !read_only {
        let Recovered { log, report, clock, .. } = &recovered;
        let next = next_superblock(&found, log.epoch(), report.last_csn, clock);
        recovered.superblock.write(next)?;
    }
    let report = recovered.report.clone();
    let rest = recovered.restored.rest.take();
    let engine = Arc::new(build(env, home, lock, options, recovered));
    engine.watch_memory();
    engine.memory.begin(budget, &engine.options);
    if allowed.is_some_and(|allowed| budget as u64 > allowed) {
        let path = engine.files.path.display();
        tracing::warn!(%path, budget, allowed, "the memory budget is larger than what the process may use");
    }
    if !read_only {
        engine.retire_before_serving();
        if let Some(rest) = rest {
            engine.replay_rest(&rest)?;
        }
        engine.memory.note_replayed();
        engine.pay_debt_of_former_lives()?;
    }
    if engine.log.staging().is_some_and(|(_, is_persistent)| !is_persistent) {
        tracing::warn!(
            path = %engine.files.path.display(),
            "commits at Staged are acknowledged in volatile memory: a power cut, a crash of the operating system, or the end of the \
             container to which it belongs LOSES those that were not written to the disk yet"
        );
    }
    log_opened(&engine, &found, &report, start_ns);
    Ok(engine)
}

/// Reads the superblock, the log and the tables.
fn recover(
    env: &Arc<dyn Env>,
    home: &dyn Dir,
    options: &Options,
    replica: Option<Replica>,
    budget: usize,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<Recovered> {
    let superblock = open_superblock(&**env, home, options)?;
    let current = superblock.current();
    let no_barrier_refusal = refuse_no_barrier(home, options, &superblock)?;
    let mut log_options = log_options(options, no_barrier_refusal.is_none());
    if let Some(replica) = replica {
        log_options.replicated = true;
        log_options.node = replica.node;
        log_options.unagreed_bytes_max = replica.unagreed_bytes_max.min(budget as u64 / UNAGREED_SHARE);
    }
    let mut replay = Replay::new(options, budget, progress);
    let (log, report, checkpoint) = open_log(env, home, current, log_options, replica, &mut replay)?;
    // Of a history whose log is gone only this node's clock is known.
    let commit_ms = report.covered_time_ms.max(replay.clock_ms);
    let commit_ms = if commit_ms == 0 { current.clock_ms } else { commit_ms };
    let clock = Clock::open(current.clock_ms.max(replay.clock_ms), current.clock_step, env.clock());
    let spills = Arc::new(SpillPins::default());
    log.set_chunk_pins(spills.clone());
    let restored = restore(&log, checkpoint, options, &spills, replay)?;
    let stopwatch = Stopwatch::new(env.clone(), home.path(), options.slow_commit);
    let quorum_wait = replica.map_or(Duration::ZERO, |replica| replica.quorum_wait);
    let pipeline = Pipeline::new(log.clone(), replayed(&report), stopwatch, quorum_wait);
    if log.role().is_some() {
        pipeline.begin_following();
        clock.stand_at(commit_ms);
    }
    Ok(Recovered { superblock, no_barrier_refusal, log, report, clock, pipeline, restored, spills, budget })
}

/// The last commit that was replayed: in a replicated log the last one that is known to be agreed.
fn replayed(report: &RecoveryReport) -> Csn {
    if report.last_entry.index > 0 { report.agreed.csn } else { report.last_csn }
}

/// Builds the owners, each from those before it, and the engine.
fn build(
    env: Arc<dyn Env>,
    home: Arc<dyn Dir>,
    lock: Box<dyn Lock>,
    options: Options,
    recovered: Recovered,
) -> Engine {
    let Recovered { superblock, no_barrier_refusal, log, report, clock, pipeline, restored, spills, .. } =
        recovered;
    let Restored { tables, accounts, chain, lists, disk_reads, .. } = restored;
    let unproven = unproven(&*home, &report);
    let (hooks, progress) = (Arc::new(Hooks::new()), Arc::<Progress>::default());
    let (files, clock) = (Arc::new(Files::new(home, lock)), Arc::new(clock));
    let reads = Reads::new(pipeline.clone(), files.clone(), clock.clone(), env.clone());
    let space = Space::new(accounts, spills.clone(), log.clone(), env.clone(), disk_reads.clone());
    let (reads, checks) = (reads.ending(options.max_snapshot_age), space.checks());
    let (space, superblock) = (Arc::new(Mutex::new(space)), Arc::new(Mutex::new(superblock)));
    let pacing = Pacing::new(options.checkpoint_bytes_per_second);
    let growth = LogGrowth::new(log.clone(), options.checkpoint_log_bytes, recovered.budget as u64);
    let room = Room::new(Owners::of(&log, &tables, &files, &space), options.leaf_bytes as u64, env.clone());
    let (pacing, growth, room) = (Arc::new(pacing), Arc::new(growth), Arc::new(room));
    let shared = Shared {
        env: env.clone(),
        files: files.clone(),
        clock: clock.clone(),
        log: log.clone(),
        pipeline: pipeline.clone(),
        tables: tables.clone(),
        reads: reads.clone(),
        room: room.clone(),
        progress: progress.clone(),
        hooks: hooks.clone(),
        pacing: pacing.clone(),
        superblock: superblock.clone(),
        space: space.clone(),
        growth: growth.clone(),
        options: options.research.clone(),
    };
    let values = Values::new(log.clone(), tables.clone(), disk_reads.clone(), tables.memory());
    Engine {
        merger: Merger::new(progress.clone(), env.clone()).keeping(MergedValues::of(values.cache.clone())),
        values,
        disk_reads,
        latches: Latches::new(),
        checks,
        checkpointer: Mutex::new(Checkpointer::new(Debt::recovered(&report, lists), chain, shared)),
        superblock,
        space,
        pacing,
        growth,
        counters: Counters::new(),
        wakeups: Wakeups::default(),
        memory: Memory::new(tables.memory(), env.clone()),
        env,
        options,
        unproven,
        no_barrier_refusal,
        log,
        pipeline,
        applying: Mutex::default(),
        tables,
        reads,
        spills,
        room,
        clock,
        hooks,
        progress,
        files,
    }
}

/// The superblock with which this life begins.
fn next_superblock(current: &Superblock, epoch: Epoch, durable: Csn, clock: &Clock) -> Superblock {
    Superblock {
        epoch,
        durable,
        clock_ms: clock.newest_ms(),
        clock_step: clock.step(),
        closed_at: Lsn::NULL,
        ..current.clone()
    }
}

/// Reports what opening found.
fn log_opened(engine: &Engine, superblock: &Superblock, report: &RecoveryReport, start_ns: u64) {
    let found = if superblock.epoch == FIRST_EPOCH {
        "nothing"
    } else if superblock.closed_at.is_null() {
        "a database that was not closed"
    } else {
        "a closed database"
    };
    let took_ms = engine.env.clock().monotonic_ns().saturating_sub(start_ns) / 1_000_000;
    let replayed_commits = replayed(report).0.saturating_sub(superblock.covered.0);
    let replayed_bytes = report.walked_bytes;
    let tables = engine.tables.list().len();
    let path = engine.files.path.display();
    tracing::info!(%path, found, replayed_commits, replayed_bytes, tables, took_ms, "opened");
}

/// The replayed commits that the log does not prove to be durable: none, unless the database is opened read-only.
fn unproven(home: &dyn Dir, report: &RecoveryReport) -> Option<CsnRange> {
    let range = CsnRange { first: report.proven_csn.next(), last: replayed(report) };
    if range.first > range.last {
        return None;
    }
    // A target of its own, to be filtered: a program that shows `Stats::unproven` reports it.
    tracing::warn!(
        target: "fulgurite::unproven",
        path = %home.path().display(), first = range.first.0, last = range.last.0,
        "the database was not closed, and its log does not say whether these commits had reached the disk; it is only \
         read, so nothing makes sure of that"
    );
    Some(range)
}

/// Why no commit can have the level `NoBarrier`, `None` if it can; fails if that is the default level.
fn refuse_no_barrier(
    home: &dyn Dir,
    options: &Options,
    superblock: &SuperblockFile,
) -> Result<Option<String>> {
    if options.read_only {
        return Ok(Some("the database is only read".to_string()));
    }
    let writes_directly = options.direct_io && superblock.takes_direct_writes()?;
    // The log's directory may be on another device.
    let device = home.open_dir(LOG_NAME).and_then(|log| log.device()).or_else(|_| home.device());
    let volatile_cache = device.ok().and_then(|device| device.volatile_cache);
    let refusal = no_barrier_refusal(options, volatile_cache, writes_directly);
    if let Some(why) = refusal.as_ref().filter(|_| options.durability == Durability::NoBarrier) {
        return Err(Error::BadOptions { violations: vec![format!("durability is NoBarrier: {why}")] });
    }
    if refusal.is_none() && volatile_cache != Some(false) {
        tracing::warn!(
            path = %home.path().display(),
            "assume_power_safe_cache is set, and the device does not say that its cache survives a power cut: if it does \
             not, commits at NoBarrier are LOST in one"
        );
    }
    Ok(refusal)
}

fn log_options(options: &Options, power_safe_cache: bool) -> LogOptions {
    LogOptions {
        buffer_bytes: options.log_buffer_bytes,
        background: options.background,
        mark_idle: options.research.mark_idle,
        scheme: options.research.flush_scheme,
        waiting: options.research.waiting,
        direct: options.direct_io,
        power_safe_cache,
        read_only: options.read_only,
        staging: options.staging.clone(),
        adopt_staging_loss: options.adopt_staging_loss,
        ..LogOptions::default()
    }
}

/// Creates the log of a new database, or recovers that of an existing one. Returns the last checkpoint's record, too.
fn open_log(
    env: &Arc<dyn Env>,
    home: &dyn Dir,
    current: &Superblock,
    options: LogOptions,
    replica: Option<Replica>,
    replay: &mut Replay<'_>,
) -> Result<(Arc<Log>, RecoveryReport, ReadRecord)> {
    if current.epoch == FIRST_EPOCH && is_without_epoch(home)? {
        if options.read_only {
            let found = "its creation was cut off: open it for writing, which begins it again".to_string();
            return Err(Error::NotADatabase { path: home.path().to_path_buf(), found });
        }
        clear_log(home)?;
        let dir = create_log_dir(home)?;
        let log = Log::create_in(env.clone(), &dir, current.id, options).or_error()?;
        let report = RecoveryReport { epoch: log.epoch(), ..RecoveryReport::default() };
        return Ok((log, report, ReadRecord::default()));
    }
    let dir = open_log_dir(home)?.ok_or_else(|| {
        let path = home.path().join(LOG_NAME);
        Error::from(Damage::new("it is missing, and the superblock knows commits in it").in_file(path))
    })?;
    let checkpoint = if current.checkpoint.is_null() {
        ReadRecord::default()
    } else {
        record::read(&ClosedLog::new(&*dir, current.id), current.checkpoint)?
    };
    let live = checkpoint.record.tables.values().flat_map(|table| table.accounts.keys().copied());
    let from = ReplayFrom {
        lsn: if current.replay.is_null() { ReplayFrom::beginning().lsn } else { current.replay },
        csn: current.covered,
        epoch: current.epoch,
        durable_csn: current.durable,
        closed_at: (!current.closed_at.is_null()).then_some(current.closed_at),
        must_exist: checkpoint.segments().into_iter().chain(live).collect(),
        up_to: None,
        up_to_entry: replica.and_then(|replica| replica.up_to_entry),
    };
    let (log, report) = Log::open_in(env.clone(), &dir, current.id, options, &from, replay).or_error()?;
    Ok((log, report, checkpoint))
}

/// The catalog and the tables of the checkpoint, with the replayed commits applied, and the accounts.
fn restore(
    log: &Arc<Log>,
    read: ReadRecord,
    options: &Options,
    spills: &SpillPins,
    replay: Replay<'_>,
) -> Result<Restored> {
    let record = &read.record;
    let root = record.tables.get(&TableId::CATALOG).map_or(Lsn::NULL, |table| table.root);
    let disk_reads = Arc::new(DiskReads::default());
    let store = Arc::new(LogNodeStore::new(log.clone(), disk_reads.clone()));
    let catalog = Arc::new(Catalog::new(store, options, root));
    restore_tables(log, &catalog, record)?;
    let (lists, rest) = replay.finish(log, spills, &catalog)?;
    let mut accounts = Accounts::recovered(record, read.segments());
    let gone: Vec<_> = record.tables.keys().copied().filter(|id| catalog.by_id(*id).is_none()).collect();
    let mut chain = Chain::recovered(read);
    for id in gone {
        accounts.drop_table(id);
        chain.note(id);
    }
    Ok(Restored { tables: catalog, accounts, chain, lists, rest, disk_reads })
}
