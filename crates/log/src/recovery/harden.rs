//! Makes the frames that the walk found durable, before anything is built on them: a killed process, or a failed sync,
//! may have left them in a cache only. Then removes from the directory what is not needed, and fills the reserve. A
//! crash may cut off each step here: the next opening repeats it.

use super::ReplayFrom;
use super::chain::Chain;
use super::inventory::{First, Found, Inventory};
use super::tail::valid_groups;
use super::walk::{Range, Walked};
use crate::error::LogError;
use crate::format::{BulkHeader, GROUP_ALIGN, SEGMENT_DATA_START, new_file_name, segment_file_name};
use crate::options::LogOptions;
use fulgurite_types::DatabaseId;
use fulgurite_types::Lsn;
use std::borrow::Cow;
use std::collections::BTreeSet;

const CHUNK_BYTES: usize = 1024 * 1024;

/// The unit in which the page cache writes back.
const BLOCK_BYTES: usize = 4096;

/// How many unused segments may be left to be removed later.
const LATER_MAX: usize = 4;

/// Rewrites the groups of the newest epoch that no durable mark covers (same bytes, same offset), and syncs every
/// walked segment. Older epochs need no rewriting: a later epoch began only after they were hardened (INV-LOG-8). A sync
/// alone is not enough: after one that failed the kernel may hold as clean what the device never got. What follows the
/// last group in its block is rewritten as the device has it: the page cache may hold groups there that a failed sync
/// lost, and would write them back with the block. Returns how many bytes of groups it rewrote.
pub(super) fn harden(inventory: &Inventory, chain: &Chain, walked: &Walked) -> Result<u64, LogError> {
    let newest_start = chain.newest().start_segment;
    let mut buffer = Vec::new();
    let mut rewritten = 0;
    for &Range { start, end } in &walked.live {
        let found = inventory.named(start.segment(), || "it was just read".into())?;
        let from = start.max(walked.proven);
        let file = found.open()?;
        if start.segment() >= newest_start && from < end {
            let bytes = if start.segment() == walked.end.segment() {
                &walked.last_read
            } else {
                found.read(&mut buffer)?;
                &buffer
            };
            rewritten += u64::from(end.offset() - from.offset());
            let block_end = (end.offset() as usize).next_multiple_of(BLOCK_BYTES).min(bytes.len());
            let mut tail = Cow::Borrowed(&bytes[from.offset() as usize..block_end]);
            // Behind a lost page of the staging file; adopted as lost, like it.
            for (offset, len) in found.staged_from(end.offset()) {
                let at = (offset - from.offset()) as usize;
                let len = len.min(tail.len().saturating_sub(at));
                if len > 0 {
                    tail.to_mut()[at..at + len].fill(0);
                }
            }
            for (nth, chunk) in tail.chunks(CHUNK_BYTES).enumerate() {
                let offset = u64::from(from.offset()) + (nth * CHUNK_BYTES) as u64;
                let written = file.write_at_dsync(chunk, offset);
                written.map_err(|source| LogError::io("rewrite the tail of", &found.path, source))?;
            }
        }
        file.sync_data().map_err(|source| LogError::io("sync", &found.path, source))?;
    }
    Ok(rewritten)
}

/// Makes all names durable, as no file of the reserve is written to before that. Then sorts the files that are not
/// segments: keeps as many of the long enough ones as the options say for a full disk, and removes the others. None
/// holds data, so it does not matter which file is which. But a file may have two names (INV-LOG-20): it keeps that of
/// the segment, or the first.
pub(super) fn sort_unfinished(inventory: &Inventory, options: &LogOptions) -> Result<Vec<String>, LogError> {
    inventory.sync_dir()?;
    let count = reserve_files(options);
    let bytes = u64::from(options.segment_bytes_min);
    let mut headers = BTreeSet::new();
    let (mut reserve, removed): (Vec<_>, Vec<_>) = inventory.unfinished()?.into_iter().partition(|file| {
        file.len >= bytes
            && !inventory.may_be_a_segment(file)
            && file.header.is_none_or(|number| headers.insert(number))
    });
    let beyond = reserve.split_off(reserve.len().min(count));
    for file in removed.iter().chain(&beyond) {
        inventory.remove(&file.name)?;
    }
    if !removed.is_empty() || !beyond.is_empty() {
        inventory.sync_dir()?;
    }
    Ok(reserve.into_iter().map(|file| file.name.clone()).collect())
}

/// How many files recovery leaves for a full disk.
fn reserve_files(options: &LogOptions) -> usize {
    options.reserve_segments.max(1)
}

/// Moves the segments of passed-over epochs, which the last openings took, back to the reserve as far as it lacks
/// files, and removes the others (INV-LOG-18). Their names are durably gone before anything is written to them.
pub(super) fn give_back_passed_over(
    inventory: &Inventory,
    chain: &Chain,
    from: &ReplayFrom,
    options: &LogOptions,
    reserve: &mut Vec<String>,
) -> Result<Vec<u32>, LogError> {
    let count = reserve_files(options);
    let mut given_back = Vec::new();
    let mut kept = Vec::new();
    let mut buffer = Vec::new();
    for found in chain.passed_over(inventory, from) {
        found.read(&mut buffer)?;
        let mut groups = valid_groups(&buffer, inventory.database, found.number, SEGMENT_DATA_START);
        let has_commits = groups.find(|group| group.frames > 0);
        if has_commits.is_some_and(|group| group.entry.index > 0) {
            // A replicated log was cut before it.
            continue;
        }
        if has_commits.is_some() {
            tracing::warn!(path = %found.path.display(), "an epoch that was passed over has commits; it is left alone");
            continue;
        }
        if found.bytes()? >= options.segment_bytes_min && reserve.len() + kept.len() < count {
            kept.push(keep(inventory, found)?);
        } else {
            inventory.remove(&segment_file_name(found.number))?;
        }
        given_back.push(found.number);
    }
    if !given_back.is_empty() {
        inventory.sync_dir()?;
        reserve.extend(kept);
    }
    Ok(given_back)
}

/// Gives a segment that is not needed the name of a file of the reserve, and returns that.
fn keep(inventory: &Inventory, found: &Found) -> Result<String, LogError> {
    let kept = new_file_name(found.number);
    let renamed = inventory.dir.rename(&segment_file_name(found.number), &kept);
    renamed.map_err(|source| LogError::io("keep for a full disk", &found.path, source))?;
    Ok(kept)
}

/// The segments that were made and never used.
#[derive(Default)]
pub(super) struct Unused {
    /// Those that are left to [`crate::segments::Segments::remove_unwanted`].
    pub later: Vec<u32>,
    /// The others: removed, or moved to the reserve.
    pub gone: Vec<u32>,
}

/// Removes segments that were made and never used: nothing names them, and they hold no valid group and no record. A
/// used segment that lost only its beginning is damage, and stays. Those of the smallest size first fill the reserve, as
/// far as it lacks files: an opening that was killed before its epoch began left one (INV-LOG-18). A larger one would
/// keep more space than the reserve counts, and its removal gives that back. With background threads and a
/// reserve, the first few of the others are removed later, because a large file takes a tenth of a second; no more,
/// because a process that dies soon never removes them.
pub(super) fn remove_unused(
    inventory: &Inventory,
    walked: &Walked,
    from: &ReplayFrom,
    options: &LogOptions,
    reserve: &mut Vec<String>,
) -> Result<Unused, LogError> {
    let mut unused = Unused::default();
    let mut kept = Vec::new();
    let mut buffer = Vec::new();
    for found in inventory.segments.range(from.lsn.segment()..).map(|(_, found)| found) {
        let named = from.must_exist.contains(&found.number)
            || walked.live.iter().any(|range| range.start.segment() == found.number);
        let may_be_unused = match found.first {
            First::Zeros => true,
            First::Unreadable => found.number > walked.end.segment(),
            _ => false,
        };
        if !may_be_unused || named {
            continue;
        }
        let files = reserve.len() + kept.len();
        let is_kept = files < reserve_files(options) && found.bytes()? == options.segment_bytes_min;
        if !is_kept && options.background && files > 0 && unused.later.len() < LATER_MAX {
            unused.later.push(found.number);
            continue;
        }
        found.read(&mut buffer)?;
        if holds_something(&buffer, inventory.database, found.number) {
            continue;
        }
        if is_kept {
            kept.push(keep(inventory, found)?);
        } else {
            inventory.remove(&segment_file_name(found.number))?;
        }
        unused.gone.push(found.number);
    }
    if !unused.gone.is_empty() {
        inventory.sync_dir()?;
        reserve.extend(kept);
    }
    Ok(unused)
}

/// Whether a segment holds a valid group or a record, at any aligned offset.
pub(crate) fn holds_something(bytes: &[u8], database: DatabaseId, number: u32) -> bool {
    valid_groups(bytes, database, number, SEGMENT_DATA_START).next().is_some() || has_records(bytes, number)
}

/// Whether any aligned offset of the segment seems to hold a record of the bulk stream.
fn has_records(bytes: &[u8], number: u32) -> bool {
    let tail = bytes.get(SEGMENT_DATA_START as usize..).unwrap_or_default();
    (SEGMENT_DATA_START..).step_by(GROUP_ALIGN as usize).zip(tail.chunks(GROUP_ALIGN as usize)).any(
        |(offset, chunk)| {
            chunk[0] != 0 && BulkHeader::decode(&bytes[offset as usize..], Lsn::new(number, offset)).is_ok()
        },
    )
}
