//! Opening a directory: creates a new database, or recovers an existing one.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_utils::CachePadded;
use fulgurite_env::{Dir, Disk, Env, Lock, LockMode, Locking, OpenOptions, Process};
use fulgurite_log::{Durability, Log, LogOptions, RecoveryReport, ReplayFrom, scan_segment_in};
use fulgurite_types::{Csn, DatabaseId, Epoch, Lsn, TableId};
use parking_lot::{Condvar, Mutex};

use crate::background::Wakeups;
use crate::catalog::Catalog;
use crate::check::Checks;
use crate::checkpoint::{Maintenance, accounts_of};
use crate::checkpoint_record::CheckpointRecord;
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::latches::Latches;
use crate::counters::Counters;
use crate::database::{FIRST_EPOCH, LOG_NAME};
use crate::deadlines::Deadlines;
use crate::debt::Debt;
use crate::engine::Engine;
use crate::error::OrError;
use crate::hooks::Hooks;
use crate::latency::Stopwatch;
use crate::options::no_barrier_refusal;
use crate::recovery::{RecoveryProgress, Replay, restore_tables};
use crate::room::Room;
use crate::snapshots::Snapshots;
use crate::space::Space;
use crate::spill::SpillPins;
use crate::store::LogNodeStore;
use crate::superblock::{self, Superblock, SuperblockFile};
use crate::{CsnRange, Damage, Error, Options, Result};

const LOCK_NAME: &str = "LOCK";

/// The contents of a directory.
pub(crate) enum Found {
    /// Nothing, or the files of a creation that was cut off.
    Empty,
    Database,
}

/// Opens or creates the database in `dir`.
pub(crate) fn open_engine(
    env: Arc<dyn Env>,
    dir: &Path,
    mut options: Options,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<Engine> {
    options.validate()?;
    let start_ns = env.clock().monotonic_ns();
    let read_only = options.read_only;
    options.create &= !read_only;
    options.background &= !read_only;
    let (home, lock) = enter(env.disk(), dir, &options)?;
    let mut superblock = open_superblock(&*env, &*home, &options)?;
    let current = superblock.current().clone();
    let no_barrier_refusal = refuse_no_barrier(&*home, &options, &superblock)?;
    let log_options = log_options(&options, no_barrier_refusal.is_none());
    let mut replay = Replay::new(options.inline_bytes_max, progress);
    let (log, report) = open_log(&env, &*home, &current, log_options, &mut replay)?;
    let clock = Clock::open(current.clock_ms.max(replay.clock_ms), current.clock_step, env.clock());
    let pins = Arc::new(SpillPins::default());
    let (catalog, space) = restore(&log, &current, &options, &pins, replay)?;
    check_segments(&*home, &log, &space)?;
    if !read_only {
        superblock.write(next_superblock(&current, log.epoch(), report.last_csn, &clock))?;
    }
    let (debt, unproven) = (Debt::recovered(&report), unproven(&*home, &report));
    let found =
        Opened { is_new: current.epoch == FIRST_EPOCH, was_closed: !current.closed_at.is_null(), debt };
    let replayed = report.last_csn.0 - current.covered.0.min(report.last_csn.0);
    let maintenance = Maintenance::new(superblock, space, debt);
    let engine = Engine {
        pipeline: Pipeline::new(
            log.clone(),
            report.last_csn,
            Stopwatch::new(env.clone(), home.path(), options.slow_commit),
        ),
        dir: home.path().to_path_buf(),
        home,
        process: Process::current(),
        catalog,
        snapshots: Snapshots::new(),
        deadlines: Deadlines::new(),
        pruned_at: CachePadded::default(),
        latches: Latches::new(),
        pins,
        clock,
        hooks: Hooks::new(),
        closed: AtomicBool::new(false),
        room: Room::default(),
        wakeups: Wakeups::default(),
        merged: (Mutex::new(()), Condvar::new()),
        counters: Counters::new(),
        progress: maintenance.progress(),
        checks: Checks::default(),
        maintenance: Mutex::new(maintenance),
        retired: Arc::default(),
        lock: Mutex::new(Some(lock)),
        log,
        options,
        unproven,
        no_barrier_refusal,
        env,
    };
    if !read_only {
        engine.settle_former_lives()?;
    }
    found.tell(&engine, replayed, start_ns);
    Ok(engine)
}

/// Opens the directory, creates it first if the options say so, and locks it. From here on the opener uses the open
/// directory, wherever it is moved, and no path.
fn enter(disk: &dyn Disk, dir: &Path, options: &Options) -> Result<(Arc<dyn Dir>, Box<dyn Lock>)> {
    if options.create {
        create_dir(disk, dir)?;
    }
    let home = open_home(disk, dir)?;
    look(&*home)?;
    let mode = if options.read_only { LockMode::Shared } else { LockMode::Exclusive };
    let lock = take_lock(&*home, mode)?;
    Ok((home, lock))
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

/// The state in which opening found the database, for its event.
struct Opened {
    is_new: bool,
    was_closed: bool,
    debt: Debt,
}

impl Opened {
    fn tell(&self, engine: &Engine, replayed_commits: u64, start_ns: u64) {
        let found = match self {
            Opened { is_new: true, .. } => "nothing",
            Opened { was_closed: true, .. } => "a closed database",
            _ => "a database that was not closed",
        };
        let took_ms = engine.env.clock().monotonic_ns().saturating_sub(start_ns) / 1_000_000;
        let (replayed_bytes, tables) = (self.debt.replayed_bytes(), engine.catalog.list().len());
        let path = engine.dir.display();
        tracing::info!(%path, found, replayed_commits, replayed_bytes, tables, took_ms, "opened");
    }
}

/// The replayed commits that the log does not prove to be durable: none, unless the database is opened read-only.
fn unproven(home: &dyn Dir, report: &RecoveryReport) -> Option<CsnRange> {
    let range = CsnRange { first: report.proven_csn.next(), last: report.last_csn };
    if range.first > range.last {
        return None;
    }
    // A target of its own, to be filtered: a program that shows `Stats::unproven` has told it.
    tracing::warn!(
        target: "fulgurite::unproven",
        path = %home.path().display(), first = range.first.0, last = range.last.0,
        "the database was not closed, and its log does not say whether these commits had reached the disk; it is only \
         read, so nothing makes sure of that"
    );
    Some(range)
}

/// The superblock of the database in the directory; creates the database if the options say so.
fn open_superblock(env: &dyn Env, home: &dyn Dir, options: &Options) -> Result<SuperblockFile> {
    match look(home)? {
        Found::Database if options.read_only => SuperblockFile::open(home, OpenOptions::Read),
        Found::Database => SuperblockFile::open(home, OpenOptions::Write),
        Found::Empty if options.create => create(env, home),
        Found::Empty => {
            let create = if options.read_only { "" } else { ", and `create` is not set" };
            let found = format!("the directory is empty{create}");
            Err(Error::NotADatabase { path: home.path().to_path_buf(), found })
        }
    }
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
        ..LogOptions::default()
    }
}

fn is_missing(disk: &dyn Disk, path: &Path) -> bool {
    matches!(disk.list(path), Err(error) if error.kind() == ErrorKind::NotFound)
}

/// Creates the directory, its name durable. The parent must exist: a path into a disk that is not mounted must not
/// become a new database on another.
fn create_dir(disk: &dyn Disk, dir: &Path) -> Result<()> {
    if dir.as_os_str().is_empty() || !is_missing(disk, dir) {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| is_missing(disk, parent)) {
        let found = format!("there is no directory {} to make it in: make that first", parent.display());
        return Err(Error::NotADatabase { path: dir.to_path_buf(), found });
    }
    let created = disk.create_dir_all(dir).and_then(|()| disk.sync_dir(parent.unwrap_or(Path::new("."))));
    created.map_err(|error| Error::io(format!("creating {}", dir.display()), error))
}

/// Creates the log of a new database, or recovers that of an existing one.
fn open_log(
    env: &Arc<dyn Env>,
    home: &dyn Dir,
    current: &Superblock,
    options: LogOptions,
    replay: &mut Replay<'_>,
) -> Result<(Arc<Log>, RecoveryReport)> {
    if current.epoch == FIRST_EPOCH && is_without_epoch(home)? {
        if options.read_only {
            let found = "its creation was cut off: open it for writing, which begins it again".to_string();
            return Err(Error::NotADatabase { path: home.path().to_path_buf(), found });
        }
        clear_log(home)?;
        let dir = create_log_dir(home)?;
        let log = Log::create_in(env.clone(), &dir, current.id, options).or_error()?;
        let report = RecoveryReport { epoch: log.epoch(), ..RecoveryReport::default() };
        return Ok((log, report));
    }
    let dir = open_log_dir(home)?.ok_or_else(|| {
        let path = home.path().join(LOG_NAME);
        Error::from(Damage::new("it is missing, and the superblock knows commits in it").in_file(path))
    })?;
    let from = ReplayFrom {
        lsn: if current.replay.is_null() { ReplayFrom::beginning().lsn } else { current.replay },
        csn: current.covered,
        epoch: current.epoch,
        durable_csn: current.durable,
        closed_at: (!current.closed_at.is_null()).then_some(current.closed_at),
        must_exist: if current.checkpoint.is_null() {
            Vec::new()
        } else {
            vec![current.checkpoint.segment()]
        },
        up_to: None,
    };
    Log::open_in(env.clone(), &dir, current.id, options, &from, replay).or_error()
}

/// The catalog and the tables of the checkpoint, with the replayed commits applied, and the accounts.
fn restore(
    log: &Arc<Log>,
    current: &Superblock,
    options: &Options,
    pins: &SpillPins,
    replay: Replay<'_>,
) -> Result<(Arc<Catalog>, Space)> {
    let (record, record_segments) = read_checkpoint(log, current.checkpoint)?;
    let root = record.tables.get(&TableId::CATALOG).map_or(Lsn::NULL, |table| table.root);
    let catalog = Arc::new(Catalog::new(Arc::new(LogNodeStore::new(log.clone())), options, root));
    restore_tables(log, &catalog, &record)?;
    replay.finish(log, pins, &catalog)?;
    let mut space = Space::new(accounts_of(&record), record_segments);
    for id in record.tables.keys().filter(|id| catalog.by_id(**id).is_none()) {
        space.drop_table(*id);
    }
    Ok((catalog, space))
}

/// Opens the directory of a database.
pub(crate) fn open_home(disk: &dyn Disk, dir: &Path) -> Result<Arc<dyn Dir>> {
    disk.open_dir(dir).map_err(|error| {
        let found = match error.kind() {
            ErrorKind::NotFound => "there is no such directory",
            ErrorKind::NotADirectory => "it is a file, a database is a directory",
            _ => return Error::io(format!("opening {}", dir.display()), error),
        };
        Error::NotADatabase { path: dir.to_path_buf(), found: found.to_string() }
    })
}

/// Locks the directory against other processes, and against other handles of this process. Readers exclude writers
/// only.
fn take_lock(home: &dyn Dir, mode: LockMode) -> Result<Box<dyn Lock>> {
    let failed = |error| Error::io(format!("locking {}", home.path().display()), error);
    match home.lock(LOCK_NAME, mode).map_err(failed)? {
        Locking::Taken(lock) => Ok(lock),
        Locking::Held(holder) => Err(Error::Locked { path: home.path().to_path_buf(), holder }),
    }
}

/// Distinguishes a database from an empty directory; fails for a directory with other files, and for a log without a
/// superblock, which is damage.
pub(crate) fn look(home: &dyn Dir) -> Result<Found> {
    let failed = |error| Error::io(format!("listing {}", home.path().display()), error);
    let entries = home.list().map_err(failed)?;
    if entries.iter().any(|entry| entry.name == superblock::FILE_NAME) {
        return Ok(Found::Database);
    }
    if entries.iter().any(|entry| entry.is_dir && entry.name == LOG_NAME) && !is_unused(home)? {
        let what = "it is missing beside a log, which alone does not say where the data begins";
        return Err(Damage::new(what).in_file(home.path().join(superblock::FILE_NAME)).into());
    }
    let known = [LOCK_NAME, superblock::TEMPORARY_NAME, LOG_NAME, "lost+found"];
    match entries.iter().find(|entry| !known.contains(&entry.name.as_str())) {
        None => Ok(Found::Empty),
        Some(entry) => Err(Error::NotADatabase {
            path: home.path().to_path_buf(),
            found: format!("it contains `{}` and no {}", entry.name, superblock::FILE_NAME),
        }),
    }
}

/// Opens the log's directory; `None` if it is missing.
fn open_log_dir(home: &dyn Dir) -> Result<Option<Arc<dyn Dir>>> {
    match home.open_dir(LOG_NAME) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("opening {}", home.path().join(LOG_NAME).display()), error)),
    }
}

/// Creates the log's directory, its name durable, or opens the one of a creation that was cut off.
fn create_log_dir(home: &dyn Dir) -> Result<Arc<dyn Dir>> {
    let failed = |error| Error::io(format!("creating {}", home.path().join(LOG_NAME).display()), error);
    match home.create_dir(LOG_NAME) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => home.sync().map_err(failed)?,
    }
    home.open_dir(LOG_NAME).map_err(failed)
}

/// Whether the log's directory is missing or empty.
fn is_unused(home: &dyn Dir) -> Result<bool> {
    let Some(dir) = open_log_dir(home)? else { return Ok(true) };
    let entries = dir.list();
    let entries = entries.map_err(|error| Error::io(format!("listing {}", dir.path().display()), error))?;
    Ok(entries.is_empty())
}

/// Whether no epoch ever began in the log's directory: a creation was cut off. Its segments are then whole and empty.
/// Anything else may be a database whose newer copy of the superblock is damaged.
fn is_without_epoch(home: &dyn Dir) -> Result<bool> {
    let Some(dir) = open_log_dir(home)? else { return Ok(true) };
    let entries = dir.list();
    let entries = entries.map_err(|error| Error::io(format!("listing {}", dir.path().display()), error))?;
    for entry in entries.iter().filter(|entry| !entry.name.ends_with(".new")) {
        let scan = scan_segment_in(&*dir, &entry.name).or_error()?;
        if scan.header.is_none() || !scan.items.is_empty() || !scan.problems.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the files of a creation that was cut off from the log's directory.
fn clear_log(home: &dyn Dir) -> Result<()> {
    let Some(dir) = open_log_dir(home)? else { return Ok(()) };
    let failed = |error| Error::io(format!("clearing {}", dir.path().display()), error);
    let entries = dir.list().map_err(failed)?;
    if entries.is_empty() {
        return Ok(());
    }
    for entry in entries {
        dir.remove(&entry.name).map_err(failed)?;
    }
    dir.sync().map_err(failed)
}

fn create(env: &dyn Env, home: &dyn Dir) -> Result<SuperblockFile> {
    let id = DatabaseId((u128::from(env.random_u64()) << 64) | u128::from(env.random_u64()));
    let first = Superblock {
        id,
        sequence: 1,
        epoch: FIRST_EPOCH,
        checkpoint: Lsn::NULL,
        replay: Lsn::NULL,
        covered: Csn::ZERO,
        durable: Csn::ZERO,
        clock_ms: env.clock().wall_ms(),
        clock_step: None,
        closed_at: Lsn::NULL,
    };
    SuperblockFile::create(home, first)
}

fn read_checkpoint(log: &Log, checkpoint: Lsn) -> Result<(CheckpointRecord, Vec<u32>)> {
    if checkpoint.is_null() {
        return Ok((CheckpointRecord::default(), Vec::new()));
    }
    CheckpointRecord::read(log, checkpoint)
}

/// Fails if a segment with live bytes is missing.
fn check_segments(home: &dyn Dir, log: &Log, space: &Space) -> Result<()> {
    let present: BTreeSet<u32> = log.segments().iter().map(|segment| segment.number).collect();
    let Some(number) = space.segments().find(|number| !present.contains(number)) else { return Ok(()) };
    let name = format!("{number:010}.seg");
    let file = home.path().join(LOG_NAME).join(&name);
    let what = match home.open_dir(LOG_NAME).and_then(|dir| dir.open(&name, OpenOptions::Read)) {
        Ok(_) => "is cut short, or its first block is damaged",
        Err(_) => "is missing",
    };
    let live = space.live_in(number);
    let what = format!("it {what}, and the checkpoint has {live} live bytes in it");
    Err(Damage::new(what).in_file(file).into())
}
