//! The staging file of an opening: what the newest epoch left in it, and its next use (INV-STG-4).

use super::chain::Chain;
use super::inventory::Inventory;
use super::{RecoveredFrame, RecoverySink, ReplayFrom, walk};
use crate::error::LogError;
use crate::options::{LogOptions, StagingOptions};
use crate::staging::{AtPath, StagedTail, StagingFile, StagingId};
use fulgurite_env::{Env, OpenOptions};
use fulgurite_types::DatabaseId;
use std::error::Error;
use std::path::Path;

/// Whether the opening needs what the file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No: nothing was staged, or all of it is in the segments.
    Nothing,
    /// Acknowledged commits of this opening may be in it alone.
    Tail(StagingId),
}

pub(super) fn need(chain: &Chain, was_closed: bool) -> Need {
    match chain.staging {
        Some(id) if !was_closed => Need::Tail(id),
        _ => Need::Nothing,
    }
}

/// What the staging file holds of the newest epoch, if that is needed.
///
/// # Errors
/// [`LogError::Damaged`] if the file is missing, or another's; it says which commits are at stake.
pub(super) fn read(
    env: &dyn Env,
    options: &LogOptions,
    inventory: &Inventory,
    chain: &Chain,
    from: &ReplayFrom,
    need: Need,
) -> Result<Option<StagedTail>, LogError> {
    let Need::Tail(id) = need else { return Ok(None) };
    if options.adopt_staging_loss {
        tracing::warn!(%id, "the database is opened without its staging file");
        return Ok(None);
    }
    let how = options.open_options();
    let why = match &options.staging {
        None => "the options name no staging file".to_string(),
        Some(staging) => match StagingFile::open(env, &staging.path, how) {
            Ok(AtPath::File(file)) if is_of(&file, inventory.database, id) => {
                file.check_medium(staging.medium)?;
                return Ok(Some(StagedTail::of(&file, chain.newest().epoch)));
            }
            Ok(AtPath::File(file)) if file.header.database != inventory.database => {
                format!("{} is of database {}", staging.path.display(), file.header.database)
            }
            Ok(AtPath::File(file)) => {
                format!("{} has id {}", staging.path.display(), file.header.id)
            }
            Ok(AtPath::Unused) => format!("{} was never used", staging.path.display()),
            Ok(AtPath::Nothing) => format!("there is no file {}", staging.path.display()),
            Err(LogError::Damaged(damage)) => damage.to_string(),
            Err(error) => return Err(error),
        },
    };
    // Without the file: it says how far the segments reach.
    let last = walk::walk(inventory, chain, from, &mut Discard)?.last_csn;
    let path =
        options.staging.as_ref().map_or_else(|| inventory.dir.path(), |staging| staging.path.as_path());
    let what = format!(
        "epoch {} staged its commits in a file with id {id}, and {why}; acknowledged commits after {last} may be in that file \
         alone. Give the file, or open the database with the loss adopted",
        chain.newest().epoch
    );
    Err(LogError::damaged(path, 0, None, what))
}

/// Whether the file is that of an opening, or was before one that ended before its epoch began.
fn is_of(file: &StagingFile, database: DatabaseId, id: StagingId) -> bool {
    file.header.database == database && (file.header.id == id || file.header.previous == id)
}

/// Makes the staging file that the options name ready for this opening: it is created, or bound. What `need` says is in the segments by now, and
/// synced. `last` is the id in the start of the newest epoch.
pub(crate) fn prepare(
    env: &dyn Env,
    options: &LogOptions,
    database: DatabaseId,
    need: Need,
    last: Option<StagingId>,
) -> Result<Option<StagingFile>, LogError> {
    let Some(staging) = options.staging.as_ref().filter(|_| !options.read_only) else { return Ok(None) };
    let previous = last.unwrap_or_default();
    let id = StagingId::random(env);
    let create = || StagingFile::create(env, staging, database, id, previous).map(Some);
    let mut file = match StagingFile::open(env, &staging.path, OpenOptions::Write)? {
        AtPath::Nothing => return create(),
        AtPath::Unused => {
            remove(env, &staging.path)?;
            return create();
        }
        AtPath::File(file) => file,
    };
    let adopts = options.adopt_staging_loss && file.header.database == database;
    if !is_of(&file, database, previous) && !adopts {
        return Err(in_use(&file, staging, database));
    }
    file.check_medium(staging.medium)?;
    let fits = file.header.buffers == staging.buffers && file.header.buffer_bytes == staging.buffer_bytes;
    if !fits && need == Need::Nothing {
        drop(file);
        remove(env, &staging.path)?;
        return create();
    }
    if !fits {
        // An opening that is cut off here has to find the file again. After a clean close it gets its new size.
        tracing::warn!(path = %staging.path.display(), buffers = file.header.buffers, bytes = file.header.buffer_bytes,
            "the staging file keeps its size until the database is opened after a clean close");
    }
    file.bind(id, previous)?;
    Ok(Some(file))
}

fn remove(env: &dyn Env, path: &Path) -> Result<(), LogError> {
    env.disk().remove(path).map_err(|source| LogError::io("remove the staging file", path, source))
}

fn in_use(file: &StagingFile, staging: &StagingOptions, database: DatabaseId) -> LogError {
    let owner = if file.header.database == database {
        "another copy of this database, or an older state of it".to_string()
    } else {
        format!("database {}", file.header.database)
    };
    LogError::Staging(format!(
        "the staging file {} is of {owner}: give another path, or remove the file if nothing needs it",
        staging.path.display()
    ))
}

/// Receives frames, to count them.
struct Discard;

impl RecoverySink for Discard {
    fn frame(&mut self, _: &RecoveredFrame<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}
