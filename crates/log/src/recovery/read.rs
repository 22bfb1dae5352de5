//! A read-only log: it ends where recovery found its end, begins no epoch, and takes no commits.

use super::Opened;
use super::chain::Chain;
use super::inventory::Inventory;
use super::walk::Walked;
use crate::error::LogError;
use crate::options::LogOptions;
use crate::segments::Segments;
use crate::staging::StagedTail;
use crate::stream::groups::AppendPoint;
use crate::stream::watermarks::Tip;
use fulgurite_env::Dir;
use std::sync::Arc;

pub(super) fn into_opened(
    dir: &Arc<dyn Dir>,
    options: &LogOptions,
    inventory: &Inventory,
    chain: Chain,
    walked: Walked,
    staged_tail: Option<StagedTail>,
) -> Result<Opened, LogError> {
    let number = inventory.next_number()?;
    let segments = Segments::new(dir.clone(), inventory.database, options.clone(), number, Vec::new());
    for segment in inventory.kept_segments(&[], &walked) {
        segments.add(segment);
    }
    // Makes this segment count as open: the rest of a torn group may follow the end.
    segments.set_epoch_start(walked.end.segment());
    inventory.named(walked.end.segment(), || "the log ends in it".into())?;
    let segment =
        segments.get(walked.end.segment()).expect("it is there and readable, or recovery had failed");
    let at = AppendPoint {
        epoch: chain.newest().epoch,
        segment,
        offset: walked.end.offset(),
        next_csn: walked.last_csn.next(),
    };
    let mut index = walked.index;
    index.set_tip(Tip { csn: walked.last_csn, lsn: walked.end }, walked.entries.last);
    let entries = walked.entries;
    Ok(Opened { entries, segments, at, spans: chain.spans, index, staging: None, staged_tail })
}
