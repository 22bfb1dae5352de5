//! Judges whether the end of the log is a torn tail or damage.

use super::ReplayFrom;
use super::chain::Chain;
use super::inventory::{First, Found, Inventory};
use super::walk::Walked;
use crate::error::LogError;
use crate::format::{GROUP_ALIGN, GROUP_MAGIC, GroupAt, GroupHeader, SEGMENT_DATA_START};
use fulgurite_types::{Csn, DatabaseId, Lsn};
use std::path::Path;

/// How much is searched of a segment whose first block is zero. Groups follow each other from the first block on. So a
/// used segment that lost its beginning has a group within this, or lost all of it.
const UNUSED_BYTES: u32 = 1024 * 1024;

/// The newest testimony of the newest epoch about durable commits: if it reaches the first missing commit, that commit
/// was durable.
struct Witness {
    durable: Csn,
    what: String,
}

/// Fails if the checkpoint or any valid group testifies that the first missing commit was durable, unless `adopts_loss`, or if a group after
/// the end belongs to an epoch whose start is lost. `staged` are the groups of the newest epoch in its staging file, and the newest commit
/// that they prove although one before it is missing.
pub(super) fn judge(
    inventory: &Inventory,
    chain: &Chain,
    walked: &Walked,
    from: &ReplayFrom,
    (staged, staged_beyond): (&[GroupHeader], Option<Csn>),
    adopts_loss: bool,
) -> Result<(), LogError> {
    let newest = chain.newest();
    let missing = walked.last_csn.next();
    let mut witness = Witness { durable: walked.mark, what: "a group before it".into() };
    if from.epoch == newest.epoch && from.durable_csn.max(from.csn) > witness.durable {
        witness = Witness { durable: from.durable_csn.max(from.csn), what: "the checkpoint".into() };
    }
    if let Some(durable) = staged_beyond.filter(|beyond| *beyond > witness.durable) {
        witness = Witness { durable, what: "a group behind it in the staging file".into() };
    }
    let mut agreed = 0;
    let mut hear = |header: &GroupHeader| {
        if header.epoch == newest.epoch {
            agreed = agreed.max(header.agreed.index);
            if header.durable > witness.durable {
                let what = format!("the group at {}", Lsn::new(header.segment, header.offset));
                witness = Witness { durable: header.durable, what };
            }
        }
        header.epoch > newest.epoch
    };
    staged.iter().for_each(|header| _ = hear(header));
    let end = walked.end;
    let (mut stranger, mut buffer) = (None, Vec::new());
    for found in inventory.segments.values() {
        match found.first {
            First::BulkStart(header) | First::EpochStart(header, _) => _ = hear(&header),
            _ => {}
        }
        if found.number < end.segment() || matches!(found.first, First::BulkStart(_)) {
            continue;
        }
        let (bytes, start) = if found.number == end.segment() {
            (&walked.last_read, end.offset())
        } else {
            let limit = if found.first == First::Zeros { UNUSED_BYTES } else { u32::MAX };
            found.read_first(&mut buffer, limit)?;
            (&buffer, SEGMENT_DATA_START)
        };
        for header in valid_groups(bytes, inventory.database, found.number, start) {
            if hear(&header) {
                stranger = Some(Lsn::new(header.segment, header.offset));
            }
        }
    }
    let path = &end_segment(inventory, end)?.path;
    if let Some(stranger) = stranger {
        let what =
            format!("the log ends here, but the group at {stranger} is of an epoch whose start is lost");
        return Err(LogError::damaged(path, end.offset().into(), None, what));
    }
    check_agreed(walked, path, agreed, adopts_loss)?;
    if witness.durable >= missing && adopts_loss {
        tracing::warn!(first = %missing, last = %witness.durable, "commits that were staged are lost, and the log is opened without them");
    } else if witness.durable >= missing {
        let what = format!(
            "there is no valid group, but {} says that commit {} was durable",
            witness.what, witness.durable
        );
        return Err(LogError::damaged(path, end.offset().into(), Some((missing, witness.durable)), what));
    }
    Ok(())
}

/// Fails if a group after the end says that more entries are agreed than there are: those may have no commit, for which a durable mark
/// would speak.
fn check_agreed(walked: &Walked, path: &Path, agreed: u64, adopts_loss: bool) -> Result<(), LogError> {
    let last = walked.entries.last.index;
    if agreed <= last || adopts_loss {
        return Ok(());
    }
    let what = format!(
        "the log ends here with entry {last}, but a group after it says that entry {agreed} is agreed"
    );
    Err(LogError::damaged(path, walked.end.offset().into(), None, what))
}

fn end_segment(inventory: &Inventory, end: Lsn) -> Result<&Found, LogError> {
    inventory.named(end.segment(), || "the log ends in it".into())
}

/// Every valid group at or after `start`, at any aligned offset.
pub(super) fn valid_groups(
    bytes: &[u8],
    database: DatabaseId,
    number: u32,
    start: u32,
) -> impl Iterator<Item = GroupHeader> + '_ {
    let magic = GROUP_MAGIC.to_le_bytes();
    let tail = bytes.get(start as usize..).unwrap_or_default();
    let aligned = tail.chunks_exact(GROUP_ALIGN as usize).enumerate();
    aligned.filter(move |(_, chunk)| chunk.starts_with(&magic)).filter_map(move |(nth, _)| {
        let offset = start + nth as u32 * GROUP_ALIGN;
        let own = GroupAt { database, segment: number, offset };
        GroupHeader::decode_at(&bytes[offset as usize..], own).ok().map(|(header, _)| header)
    })
}
