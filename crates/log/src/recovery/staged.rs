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
use std::io;
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
/// [`LogError::Damaged`] if the file is missing, or another's, unless the loss is adopted; it says which commits are at stake.
pub(super) fn read(
    env: &dyn Env,
    options: &LogOptions,
    inventory: &Inventory,
    chain: &Chain,
    from: &ReplayFrom,
    need: Need,
) -> Result<Option<StagedTail>, LogError> {
    let Need::Tail(id) = need else { return Ok(None) };
    let (why, adopted) = match find(env, options, inventory.database, chain, id)? {
        Found::File(tail) => match tail.lost.clone() {
            None => return Ok(Some(tail)),
            Some(lost) => (format!("not all of it can be read: {lost}"), Some(Some(tail))),
        },
        Found::Nothing(why) => (why, Some(None)),
        Found::Another(why) => (why, None),
    };
    if let Some(tail) = adopted
        && options.adopt_staging_loss
    {
        tracing::warn!(%id, %why, "the database is opened without its staging file, or a part of it");
        return Ok(tail);
    }
    // Without the file: it says how far the segments reach.
    let last = walk::walk(inventory, chain, from, &mut Discard)?.last_csn;
    let path =
        options.staging.as_ref().map_or_else(|| inventory.dir.path(), |staging| staging.path.as_path());
    let what = format!(
        "epoch {} staged its commits in a file with id {id}, and {why}; acknowledged commits after {last} may be in that file \
         alone. Give the file, or open the database with the loss adopted, and without another file",
        chain.newest().epoch
    );
    Err(LogError::damaged(path, 0, None, what))
}

/// The result of a look for the staging file at its path.
enum Found {
    /// The file of the newest epoch, and its groups.
    File(StagedTail),
    /// No file, for this reason.
    Nothing(String),
    /// Another one, for this reason; where the loss is adopted, it is not meant.
    Another(String),
}

fn find(
    env: &dyn Env,
    options: &LogOptions,
    database: DatabaseId,
    chain: &Chain,
    id: StagingId,
) -> Result<Found, LogError> {
    let Some(staging) = &options.staging else {
        return Ok(Found::Nothing("the options name no staging file".into()));
    };
    let path = staging.path.display();
    Ok(match StagingFile::open(env, &staging.path, options.open_options()) {
        Ok(AtPath::File(file)) if file.header.database != database => {
            Found::Another(format!("{path} is of database {}", file.header.database))
        }
        Ok(AtPath::File(file)) if owns(&file, chain, Some(id)) => {
            file.check_medium(staging.medium)?;
            Found::File(StagedTail::of(&file, chain.newest().epoch))
        }
        Ok(AtPath::File(file)) => Found::Another(format!("{path} has id {}", file.header.id)),
        Ok(AtPath::Unused) => {
            Found::Nothing(format!("{path} holds nothing: it was never used, or was emptied"))
        }
        Ok(AtPath::Nothing) => Found::Nothing(format!("there is no file {path}")),
        Err(LogError::Damaged(damage)) => Found::Another(damage.to_string()),
        // No mapped file has that length: it was cut.
        Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
            Found::Another(source.to_string())
        }
        Err(error) => return Err(error),
    })
}

/// Whether a file of this database is that of the newest epoch, whose start has `id`: or was until an opening bound it that ended before its own
/// epoch began. That one staged nothing; where something of a later epoch is staged, it is another copy's of the database.
fn owns(file: &StagingFile, chain: &Chain, id: Option<StagingId>) -> bool {
    let staged = file.newest_epoch();
    match id {
        Some(id) if file.header.id == id => true,
        Some(id) => file.header.previous == id && staged.is_none_or(|epoch| epoch <= chain.newest().epoch),
        None => file.header.previous == StagingId::default() && staged.is_none(),
    }
}

/// Makes the staging file that the options name ready for this opening: it is created, or bound. What `need` says is in the segments by
/// now, and synced. `chain` is `None` for a new database.
pub(crate) fn prepare(
    env: &dyn Env,
    options: &LogOptions,
    database: DatabaseId,
    need: Need,
    chain: Option<&Chain>,
) -> Result<Option<StagingFile>, LogError> {
    let Some(staging) = options.staging.as_ref().filter(|_| !options.read_only) else { return Ok(None) };
    let last = chain.and_then(|chain| chain.staging);
    let previous = last.unwrap_or_default();
    let id = StagingId::random(env);
    let create = || StagingFile::create(env, staging, database, id, previous).map(Some);
    let opened = StagingFile::open(env, &staging.path, OpenOptions::Write).map_err(|error| match error {
        // Nothing in it is needed, if it is this database's at all.
        LogError::Damaged(damage) => {
            LogError::Staging(format!("{damage}; give another path, or none, or remove the file"))
        }
        other => other,
    });
    let mut file = match opened? {
        AtPath::Nothing => return create(),
        AtPath::Unused => {
            remove(env, &staging.path)?;
            return create();
        }
        AtPath::File(file) => file,
    };
    // A creation that was cut off left one that nothing was staged in.
    let is_new = chain.is_none() && file.header.previous == previous && file.newest_epoch().is_none();
    let seems_ours = file.is_free() || is_new || chain.is_some_and(|chain| owns(&file, chain, last));
    // Lost pages seem to hold nothing.
    let may_take = seems_ours && (last == Some(file.header.id) || file.check().is_ok());
    if file.header.database != database || !may_take {
        return Err(in_use(&file, staging, database));
    }
    file.check_medium(staging.medium)?;
    if !file.is_whole() {
        // Nothing in it is needed any more.
        tracing::warn!(path = %staging.path.display(), "the staging file is made anew: a part of it cannot be accessed");
        remove(env, &staging.path)?;
        drop(file);
        return create();
    }
    let fits = file.header.buffers == staging.buffers && file.header.buffer_bytes == staging.buffer_bytes;
    if !fits && need == Need::Nothing {
        remove(env, &staging.path)?;
        drop(file);
        return create();
    }
    if !fits {
        keep_size(&file, staging, options)?;
    }
    file.bind(id, previous)?;
    Ok(Some(file))
}

/// An opening that is cut off here has to find the file again, so it keeps its size until the next opening after a clean close.
fn keep_size(file: &StagingFile, staging: &StagingOptions, options: &LogOptions) -> Result<(), LogError> {
    let (buffers, bytes, path) =
        (file.header.buffers, file.header.buffer_bytes, staging.path.display().to_string());
    if bytes < options.longest_group() {
        return Err(LogError::Staging(format!(
            "the staging file {path} has buffers of {bytes} bytes, and a group of this log may have {}: open the database with the \
             options that it had, and close it",
            options.longest_group()
        )));
    }
    tracing::warn!(
        path,
        buffers,
        bytes,
        "the staging file keeps its size until the database is opened after a clean close"
    );
    Ok(())
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
