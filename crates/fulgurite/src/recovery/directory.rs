//! The directory of a database: what is in it, creating it, and locking it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fulgurite_env::{Dir, Disk, Env, Lock, LockMode, Locking, OpenOptions};
use fulgurite_log::scan_segment_in;
use fulgurite_types::{Csn, DatabaseId, Lsn};

use crate::database::{FIRST_EPOCH, LOG_NAME};
use crate::error::OrError;
use crate::superblock::{self, Superblock, SuperblockFile};
use crate::{Damage, Error, Options, Result};

const LOCK_NAME: &str = "LOCK";

/// The contents of a directory.
pub(crate) enum Found {
    /// Nothing, or the files of a creation that was cut off.
    Empty,
    Database,
}

/// Opens the directory, creates it first if the options say so, and locks it. From here on the opener uses the open
/// directory, wherever it is moved, and no path.
pub(super) fn enter(disk: &dyn Disk, dir: &Path, options: &Options) -> Result<(Arc<dyn Dir>, Box<dyn Lock>)> {
    if options.create {
        create_dir(disk, dir)?;
    }
    let home = open_home(disk, dir)?;
    look(&*home)?;
    let mode = if options.read_only { LockMode::Shared } else { LockMode::Exclusive };
    let lock = take_lock(&*home, mode)?;
    Ok((home, lock))
}

/// The superblock of the database in the directory; creates the database if the options say so.
pub(super) fn open_superblock(env: &dyn Env, home: &dyn Dir, options: &Options) -> Result<SuperblockFile> {
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
pub(super) fn open_log_dir(home: &dyn Dir) -> Result<Option<Arc<dyn Dir>>> {
    match home.open_dir(LOG_NAME) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("opening {}", home.path().join(LOG_NAME).display()), error)),
    }
}

/// Creates the log's directory, its name durable, or opens the one of a creation that was cut off.
pub(super) fn create_log_dir(home: &dyn Dir) -> Result<Arc<dyn Dir>> {
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
pub(super) fn is_without_epoch(home: &dyn Dir) -> Result<bool> {
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
pub(super) fn clear_log(home: &dyn Dir) -> Result<()> {
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
