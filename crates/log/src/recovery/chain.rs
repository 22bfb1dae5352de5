//! The chain of living epochs from the replay point on, read backwards from the newest start.

use super::ReplayFrom;
use super::inventory::{First, Found, Inventory};
use crate::error::LogError;
use crate::format::{EpochStart, SEGMENT_DATA_START};
use crate::recovery::EpochSpan;
use crate::staging::StagingId;
use crate::stream::watermarks::Tip;
use fulgurite_types::{EntryId, Epoch};

/// The living epochs, oldest first; the oldest holds the replay point.
pub(crate) struct Chain {
    pub spans: Vec<EpochSpan>,
    /// What the newest epoch's start says.
    pub staging: Option<StagingId>,
}

impl Chain {
    pub fn newest(&self) -> EpochSpan {
        *self.spans.last().expect("a chain has its newest epoch")
    }

    /// Ends the newest epoch.
    pub fn close(&mut self, end: Tip) {
        self.spans.last_mut().expect("a chain has its newest epoch").end = Some(end);
    }

    /// Passes over the newest epochs, all of them ended, that have no commit: the next epoch follows the one before
    /// them. The epoch that holds the replay point stays. Returns the segments of the epochs passed over. `last_entries` are those of the
    /// epochs: entries may have no commit.
    pub fn pass_over_empty(&mut self, last_entries: &[EntryId]) -> Vec<u32> {
        let mut passed = Vec::new();
        while let [.., before, newest] = &self.spans[..] {
            let one_segment = newest.end.is_some_and(|end| end.lsn.segment() == newest.start_segment);
            let csn = |span: &EpochSpan| span.end.map(|end| end.csn);
            let nth = self.spans.len() - 1;
            let has_entries = last_entries.get(nth) != last_entries.get(nth - 1);
            if !one_segment || has_entries || csn(before) != csn(newest) {
                break;
            }
            passed.push(newest.start_segment);
            self.spans.pop();
        }
        passed
    }

    /// The segments after the replay point that hold the start of an epoch which a newer one passed over.
    pub(super) fn passed_over<'a>(
        &'a self,
        inventory: &'a Inventory,
        from: &ReplayFrom,
    ) -> impl Iterator<Item = &'a Found> {
        let replay = from.lsn.segment();
        let newest = self.newest().start_segment;
        inventory.segments.values().filter(move |found| {
            matches!(found.first, First::EpochStart(..))
                && replay < found.number
                && found.number < newest
                && self.spans.iter().all(|span| span.start_segment != found.number)
        })
    }
}

/// Reads the chain. Fails if it does not lead from the newest start to the replay point, or if a segment that the
/// checkpoint refers to is missing.
pub(super) fn read(inventory: &Inventory, from: &ReplayFrom) -> Result<Chain, LogError> {
    for &number in &from.must_exist {
        inventory.named(number, || "the checkpoint refers to it".into())?;
    }
    // A segment gets its name only after its header is durable. So a bad header was good once: it may be the newest
    // start.
    for found in inventory.segments.range(from.lsn.segment()..).map(|(_, found)| found) {
        found.bytes()?;
    }
    let (segment, start) = newest_start(inventory, from)?;
    let staging = start.staging;
    let mut spans = vec![EpochSpan { epoch: start.epoch, start_segment: segment, end: None }];
    let mut start = start;
    let mut segment = segment;
    while segment > from.lsn.segment() {
        let damaged = |what: String| {
            let path = &inventory.segments[&segment].path;
            LogError::damaged(path, SEGMENT_DATA_START.into(), None, what)
        };
        let previous = start.previous_segment;
        if previous == 0 || previous >= segment || start.previous_end.segment() < previous {
            return Err(damaged(format!(
                "epoch {} does not continue a chain that holds the replay point {}",
                start.epoch, from.lsn
            )));
        }
        let span = EpochSpan {
            epoch: start.previous,
            start_segment: previous,
            end: Some(Tip { csn: start.previous_csn, lsn: start.previous_end }),
        };
        if previous > from.lsn.segment() {
            let found = inventory.named(previous, || format!("epoch {} began in it", start.previous))?;
            start = match found.first {
                First::EpochStart(_, older) if older.epoch == start.previous => older,
                _ => {
                    let what = format!("the start of epoch {} is not valid", start.previous);
                    return Err(LogError::damaged(&found.path, SEGMENT_DATA_START.into(), None, what));
                }
            };
        }
        spans.push(span);
        segment = previous;
    }
    spans.reverse();
    if spans[0].end.is_some_and(|end| from.lsn > end.lsn) {
        let what = format!("the replay point {} is after the end of epoch {}", from.lsn, spans[0].epoch);
        return Err(LogError::damaged(inventory.dir.path(), 0, None, what));
    }
    Ok(Chain { spans, staging })
}

/// The valid epoch start with the highest segment number. Fails if a newer epoch is known to have begun.
fn newest_start(inventory: &Inventory, from: &ReplayFrom) -> Result<(u32, EpochStart), LogError> {
    let newest = inventory.segments.values().rev().find_map(|found| match found.first {
        First::EpochStart(_, start) => Some((found, start)),
        _ => None,
    });
    let Some((found, start)) = newest else {
        return Err(LogError::damaged(
            inventory.dir.path(),
            0,
            None,
            "no segment holds a valid start of an epoch",
        ));
    };
    let known: Epoch = from.epoch.max(inventory.newest_epoch());
    if start.epoch < known {
        let what =
            format!("epoch {} is the newest that begins here, but epoch {known} had begun", start.epoch);
        return Err(LogError::damaged(&found.path, SEGMENT_DATA_START.into(), None, what));
    }
    Ok((found.number, start))
}
