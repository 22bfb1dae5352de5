//! What a staging file says of itself.

use super::file::{AtPath, StagingFile, StagingId};
use crate::error::LogError;
use crate::format::{GroupHeader, GroupKind};
use fulgurite_env::{Env, MemoryMedium, OpenOptions};
use fulgurite_types::{Csn, DatabaseId, Epoch};
use std::path::Path;

/// A staging file as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagingSummary {
    /// The database that it belongs to.
    pub database: DatabaseId,
    /// The opening that used it last.
    pub id: StagingId,
    /// How many buffers it has.
    pub buffers: u32,
    /// The length of each in bytes.
    pub buffer_bytes: u32,
    /// What its memory survives.
    pub medium: MemoryMedium,
    /// The newest epoch of which it holds commits.
    pub epoch: Option<Epoch>,
    /// The first and the last commit of that epoch that it holds. Those that were synced, and not overwritten yet, are among them.
    pub commits: Option<(Csn, Csn)>,
    /// The bytes of the groups of that epoch.
    pub bytes: u64,
}

/// Reads a staging file, and writes nothing.
///
/// # Errors
/// [`LogError::Io`] if there is no such file, or a process has it open; [`LogError::Staging`] if it is none, or was never used;
/// [`LogError::Damaged`] if its header is, or if the memory does not deliver all of it.
pub fn inspect_staging(env: &dyn Env, path: &Path) -> Result<StagingSummary, LogError> {
    let file = match StagingFile::open(env, path, OpenOptions::Read)? {
        AtPath::File(file) => file,
        AtPath::Unused => {
            return Err(LogError::Staging(format!(
                "{} is a staging file that was never used",
                path.display()
            )));
        }
        AtPath::Nothing => {
            let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no such file");
            return Err(LogError::io("open the staging file", path, missing));
        }
    };
    let epoch = file.newest_epoch();
    let groups = epoch.map(|epoch| file.groups(epoch)).unwrap_or_default();
    let headers = groups.iter().filter_map(|group| GroupHeader::decode_unchecked(group.bytes).ok());
    let commits = headers
        .filter(|header| header.kind == GroupKind::Frames)
        .map(|header| (header.first_csn, header.last_csn()))
        .reduce(|all, group| (all.0.min(group.0), all.1.max(group.1)));
    let bytes = groups.iter().map(|group| group.bytes.len() as u64).sum();
    file.check()?;
    Ok(StagingSummary {
        database: file.header.database,
        id: file.header.id,
        buffers: file.header.buffers,
        buffer_bytes: file.header.buffer_bytes,
        medium: file.medium(),
        epoch,
        commits,
        bytes,
    })
}
