//! Opening a directory: creating what is new, recovering what is there.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fulgurite_base::{Csn, DatabaseId, Lsn, TableId};
use fulgurite_env::{Disk, Env, OpenOptions};
use fulgurite_log::{Durability, Log, LogOptions, ReplayFrom, scan_segment};
use parking_lot::{Condvar, Mutex};

use crate::catalog::Catalog;
use crate::check::Checks;
use crate::checkpoint::{Maintenance, accounts_of};
use crate::checkpoint_record::CheckpointRecord;
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::latches::Latches;
use crate::core::{Core, Room};
use crate::database::{FIRST_EPOCH, log_dir};
use crate::debt::Debt;
use crate::hooks::Hooks;
use crate::latency::Stopwatch;
use crate::maintenance::Progress;
use crate::options::no_barrier_refusal;
use crate::recovery::{RecoveryProgress, Replay, restore_tables};
use crate::snapshots::Snapshots;
use crate::space::Space;
use crate::spill::SpillPins;
use crate::store::LogNodeStore;
use crate::superblock::{self, Superblock, SuperblockFile};
use crate::{Error, Options, Result};

const LOCK_NAME: &str = "LOCK";

/// What a directory turned out to be.
enum Found {
    /// Nothing, or what a creation that was cut off leaves.
    Empty,
    Database,
}

/// Opens or creates.
pub(crate) fn open_core(
    env: Arc<dyn Env>,
    dir: &Path,
    options: Options,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<Core> {
    options.validate()?;
    let failed = |error| Error::io(format!("opening {}", dir.display()), error);
    let disk = env.disk();
    if options.create {
        create_dir(disk, dir).map_err(failed)?;
    }
    look(disk, dir)?;
    let lock = disk.lock(&dir.join(LOCK_NAME)).map_err(failed)?;
    let lock = lock.ok_or_else(|| Error::Locked { path: dir.to_path_buf() })?;
    let mut superblock = match look(disk, dir)? {
        Found::Database => SuperblockFile::open(disk, dir)?,
        Found::Empty if options.create => create(&*env, dir)?,
        Found::Empty => {
            let found = "the directory is empty".to_string();
            return Err(Error::NotADatabase { path: dir.to_path_buf(), found });
        }
    };
    let current = superblock.current().clone();
    let no_barrier_refusal = refuse_no_barrier(disk, dir, &options, &superblock)?;
    let log_options = log_options(&options, no_barrier_refusal.is_none());
    let mut replay = Replay::new(options.inline_bytes_max, progress);
    let path = log_dir(dir);
    let (log, last, debt) = open_log(&env, &path, &current, log_options, &mut replay)?;
    let clock = Clock::open(current.clock_ms.max(replay.clock_ms), current.clock_step, env.clock());
    let pins = Arc::new(SpillPins::default());
    let (catalog, space) = restore(&log, &current, &options, &pins, replay)?;
    check_segments(env.disk(), &log, &space, &path)?;
    superblock.write(Superblock {
        epoch: log.epoch(),
        durable: last,
        clock_ms: clock.newest_ms(),
        clock_step: clock.step(),
        closed_at: Lsn::NULL,
        ..current
    })?;
    let maintenance = Maintenance::new(superblock, space, debt);
    let progress = Progress::default();
    maintenance.tell(&progress);
    let core = Core {
        pipeline: Pipeline::new(log.clone(), last, Stopwatch::new(env.clone())),
        dir: dir.to_path_buf(),
        catalog,
        snapshots: Snapshots::new(),
        latches: Latches::new(),
        pins,
        clock,
        hooks: Hooks::new(),
        closed: AtomicBool::new(false),
        room: Room::default(),
        folded: (Mutex::new(()), Condvar::new()),
        progress,
        checks: Checks::default(),
        maintenance: Mutex::new(maintenance),
        retired: Arc::default(),
        lock: Mutex::new(Some(lock)),
        log,
        options,
        no_barrier_refusal,
        env,
    };
    core.settle_former_lives()?;
    Ok(core)
}

/// Why no commit can have the level `NoBarrier`; fails if that is the default level.
fn refuse_no_barrier(
    disk: &dyn Disk,
    dir: &Path,
    options: &Options,
    superblock: &SuperblockFile,
) -> Result<Option<String>> {
    let writes_directly = options.direct_io && superblock.takes_direct_writes();
    // The log may be on a disk of its own.
    let device = disk.device(&log_dir(dir)).or_else(|_| disk.device(dir));
    let volatile_cache = device.ok().and_then(|device| device.volatile_cache);
    let refusal = no_barrier_refusal(options, volatile_cache, writes_directly);
    if let Some(why) = refusal.as_ref().filter(|_| options.durability == Durability::NoBarrier) {
        return Err(Error::BadOptions { violations: vec![format!("durability is NoBarrier: {why}")] });
    }
    if refusal.is_none() && volatile_cache != Some(false) {
        tracing::warn!(
            path = %dir.display(),
            "commits at NoBarrier are lost in a power cut if the device's cache is not power-safe, as i_know asserts"
        );
    }
    Ok(refusal)
}

fn log_options(options: &Options, power_safe_cache: bool) -> LogOptions {
    LogOptions {
        buffer_bytes: options.log_buffer_bytes,
        background: options.background,
        hint_idle: options.hint_idle,
        scheme: options.flush_scheme,
        waiting: options.waiting,
        direct: options.direct_io,
        power_safe_cache,
        ..LogOptions::default()
    }
}

fn is_missing(disk: &dyn Disk, path: &Path) -> bool {
    matches!(disk.list(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// Creates the directory and those above it, their names durable.
fn create_dir(disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
    let missing = |path: &Path| is_missing(disk, path);
    let named = |path: &&Path| !path.as_os_str().is_empty();
    let created = dir.ancestors().filter(named).take_while(|path| missing(path)).count();
    if created == 0 {
        return Ok(());
    }
    disk.create_dir_all(dir)?;
    for parent in dir.ancestors().skip(1).take(created) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        disk.sync_dir(parent)?;
    }
    Ok(())
}

/// Creates the log of a new database, or recovers it; returns it with the newest commit, and with what was replayed.
fn open_log(
    env: &Arc<dyn Env>,
    path: &Path,
    current: &Superblock,
    options: LogOptions,
    replay: &mut Replay<'_>,
) -> Result<(Arc<Log>, Csn, Debt)> {
    if current.epoch == FIRST_EPOCH && clear_unused(env.disk(), path)? {
        return Ok((Log::create(env.clone(), path, current.id, options)?, Csn::ZERO, Debt::default()));
    }
    if is_missing(env.disk(), path) {
        return Err(Error::damaged(format!(
            "{} is missing, and the superblock knows commits in it",
            path.display()
        )));
    }
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
    let (log, report) = Log::open(env.clone(), path, current.id, options, &from, replay)?;
    Ok((log, report.last_csn, Debt::recovered(&report)))
}

/// The tables of the checkpoint, with what was replayed, and the accounts.
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

/// Tells a database from an empty directory and from somebody else's.
fn look(disk: &dyn Disk, dir: &Path) -> Result<Found> {
    let entries = match disk.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let found = "there is no such directory".to_string();
            return Err(Error::NotADatabase { path: dir.to_path_buf(), found });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            let found = "it is a file, a database is a directory".to_string();
            return Err(Error::NotADatabase { path: dir.to_path_buf(), found });
        }
        Err(error) => return Err(Error::io(format!("listing {}", dir.display()), error)),
    };
    if entries.iter().any(|entry| entry.name == superblock::FILE_NAME) {
        return Ok(Found::Database);
    }
    if entries.iter().any(|entry| entry.is_dir && entry.name == "log") && !is_unused(disk, &log_dir(dir))? {
        return Err(Error::damaged(format!(
            "{} has a log and no {}: restore that file, the log alone does not say where the data begins",
            dir.display(),
            superblock::FILE_NAME
        )));
    }
    let known = [LOCK_NAME, superblock::TEMPORARY_NAME, "log", "lost+found"];
    match entries.iter().find(|entry| !known.contains(&entry.name.as_str())) {
        None => Ok(Found::Empty),
        Some(entry) => Err(Error::NotADatabase {
            path: dir.to_path_buf(),
            found: format!("it contains `{}` and no {}", entry.name, superblock::FILE_NAME),
        }),
    }
}

/// Whether the log directory is missing or without segments.
fn is_unused(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match disk.list(path) {
        Ok(entries) => Ok(entries.is_empty()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io(format!("listing {}", path.display()), error)),
    }
}

/// Whether no epoch ever began in the log directory; what a creation that was cut off left there is removed. Such a
/// segment is whole and empty: anything else may be a database of which the newer slot of the superblock is damaged.
fn clear_unused(disk: &dyn Disk, path: &Path) -> Result<bool> {
    if is_unused(disk, path)? {
        return Ok(true);
    }
    let failed = |error| Error::io(format!("clearing {}", path.display()), error);
    let entries = disk.list(path).map_err(failed)?;
    for entry in entries.iter().filter(|entry| !entry.name.ends_with(".new")) {
        let scan = scan_segment(disk, &path.join(&entry.name))?;
        if scan.header.is_none() || !scan.items.is_empty() || !scan.problems.is_empty() {
            return Ok(false);
        }
    }
    for entry in entries {
        disk.remove(&path.join(&entry.name)).map_err(failed)?;
    }
    disk.sync_dir(path).map_err(failed)?;
    Ok(true)
}

fn create(env: &dyn Env, dir: &Path) -> Result<SuperblockFile> {
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
    SuperblockFile::create(env.disk(), dir, first)
}

fn read_checkpoint(log: &Log, checkpoint: Lsn) -> Result<(CheckpointRecord, Vec<u32>)> {
    if checkpoint.is_null() {
        return Ok((CheckpointRecord::default(), Vec::new()));
    }
    CheckpointRecord::read(log, checkpoint)
}

/// Every segment with live bytes must be there.
fn check_segments(disk: &dyn Disk, log: &Log, space: &Space, path: &Path) -> Result<()> {
    let present: BTreeSet<u32> = log.segments().iter().map(|segment| segment.number).collect();
    let Some(number) = space.segments().find(|number| !present.contains(number)) else { return Ok(()) };
    let file = path.join(format!("{number:010}.seg"));
    let what = match disk.open(&file, OpenOptions::Read) {
        Ok(_) => "is cut short, or its first block is damaged",
        Err(_) => "is missing",
    };
    let live = space.live_in(number);
    Err(Error::damaged(format!("{} {what}, and the checkpoint has {live} live bytes in it", file.display())))
}
