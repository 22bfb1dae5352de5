//! Opening and closing the database that a command works on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fulgurite::env::{Env, MemoryMedium, RealEnv};
use fulgurite::{Database, Error, Options, RecoveryProgress, StagingOptions, Table};
use serde_json::json;

use crate::failure::Failure;
use crate::quantities::parse_size;
use crate::{stderr, text};

/// What to do about a database that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// The memory budget that the command line names.
static MEMORY_BYTES: OnceLock<usize> = OnceLock::new();

/// Has databases opened with a memory budget of so many bytes.
pub(crate) fn set_memory_bytes(bytes: Option<u64>) {
    if let Some(bytes) = bytes {
        _ = MEMORY_BYTES.set(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

/// Where the database stages its commits, for every command.
#[derive(clap::Args)]
pub(crate) struct StagingArgs {
    /// The file in which commits are staged, and acknowledged: in persistent memory, mounted with DAX; or on tmpfs, with
    /// --staging-medium volatile. After a crash every command needs the file that the database had.
    #[arg(long, value_name = "FILE", global = true)]
    staging: Option<PathBuf>,
    /// What the file's memory survives: persistent, a power cut; volatile, the process alone: only writes at the level `staged` are
    /// acknowledged in it.
    #[arg(long, value_name = "MEDIUM", global = true, default_value = "persistent", value_parser = ["persistent", "volatile"])]
    staging_medium: String,
    /// How many buffers it has, 1 to 64. With one, commits wait while it is written to the log.
    #[arg(long, value_name = "COUNT", global = true, default_value_t = 2)]
    staging_buffers: u32,
    /// The length of each, 1 GiB at most.
    #[arg(long, value_name = "SIZE", global = true, default_value = "8MiB", value_parser = parse_size)]
    staging_buffer: u64,
}

static STAGING: OnceLock<StagingOptions> = OnceLock::new();

/// Has databases opened with the staging file that the command line names.
pub(crate) fn set_staging(args: &StagingArgs) -> Result<(), Failure> {
    let Some(path) = &args.staging else { return Ok(()) };
    let medium = match args.staging_medium.as_str() {
        "volatile" => MemoryMedium::Volatile,
        _ => MemoryMedium::Persistent,
    };
    let buffer_bytes = u32::try_from(args.staging_buffer).unwrap_or(u32::MAX);
    let staging = StagingOptions { path: path.clone(), buffers: args.staging_buffers, buffer_bytes, medium };
    let options = Options { staging: Some(staging.clone()), ..Options::default() };
    options.validate().map_err(|error| Failure::usage(error.to_string()))?;
    _ = STAGING.set(staging);
    Ok(())
}

/// The options of every database that a command opens.
pub(crate) fn options() -> Options {
    Options {
        memory_bytes: MEMORY_BYTES.get().copied(),
        staging: STAGING.get().cloned(),
        ..Options::default()
    }
}

/// Opens the database in `dir`, gives it to `body`, and closes it.
pub(crate) fn with_database<T>(
    dir: &Path,
    missing: Missing,
    body: impl FnOnce(&Database) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let options = Options { create: missing == Missing::Create, ..options() };
    with_options(dir, options, body)
}

/// Opens the database in `dir` for reading, without writing a byte, and gives it to `body`.
pub(crate) fn with_reader<T>(
    dir: &Path,
    body: impl FnOnce(&Database) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let db = open_reader(dir)?;
    let value = body(&db).map_err(Failure::of_reading)?;
    db.close()?;
    Ok(value)
}

/// Opens the database in `dir` for reading. If it was not closed, standard error names the commits that its log does
/// not prove durable.
pub(crate) fn open_reader(dir: &Path) -> fulgurite::Result<Database> {
    let options = Options { read_only: true, ..options() };
    let env = RealEnv::new();
    let mut reporter = RecoveryReporter::new(env.clone());
    let db = Database::open_with(env, dir, options, |progress| reporter.report(progress))?;
    if let Some(range) = db.stats().unproven {
        stderr::note(&format!(
            "the database was not closed, and its log does not say whether {range} had reached the disk. What was \
             acknowledged at Sync had; of the rest a power cut may still take some, until the next command that writes \
             makes it durable"
        ));
    }
    Ok(db)
}

/// Like [`with_database`], with options.
pub(crate) fn with_options<T>(
    dir: &Path,
    options: Options,
    body: impl FnOnce(&Database) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let env = RealEnv::new();
    let mut reporter = RecoveryReporter::new(env.clone());
    let db = Database::open_with(env, dir, options, |progress| reporter.report(progress))?;
    let outcome = body(&db);
    let closed = db.close();
    let value = outcome?;
    match closed {
        Err(error @ Error::NoSpace { .. }) => {
            // The checkpoint of a close only spares the next open a replay.
            stderr::note(&format!("what was reported is durable; closing wrote no checkpoint: {error}"));
        }
        closed => closed.map_err(|error| {
            Failure::from(error).within("what was reported is durable, but closing failed")
        })?,
    }
    Ok(value)
}

/// About how many entries a table has.
pub(crate) fn entries_estimate(table: &Table) -> Result<u64, Failure> {
    // A tree knows its size once its root is in memory; the first read brings it there.
    table.range(..)?.next().transpose()?;
    Ok(table.len_estimate())
}

/// Reports on standard error the progress of a recovery that takes longer than a second.
struct RecoveryReporter {
    env: Arc<dyn Env>,
    reported_ns: u64,
}

impl RecoveryReporter {
    const INTERVAL_NS: u64 = 1_000_000_000;

    fn new(env: Arc<dyn Env>) -> RecoveryReporter {
        let reported_ns = env.clock().monotonic_ns();
        RecoveryReporter { env, reported_ns }
    }

    fn report(&mut self, progress: RecoveryProgress) {
        let now_ns = self.env.clock().monotonic_ns();
        if now_ns.saturating_sub(self.reported_ns) < Self::INTERVAL_NS {
            return;
        }
        self.reported_ns = now_ns;
        let (done, total) = (text::size(progress.done_bytes), text::size(progress.total_bytes));
        let what = format!("recovering: {done} of {total} of log");
        match stderr::is_for_programs() {
            true => stderr::object(&json!({
                "note": what, "done_bytes": progress.done_bytes, "total_bytes": progress.total_bytes,
            })),
            false => stderr::line(&what),
        }
    }
}
