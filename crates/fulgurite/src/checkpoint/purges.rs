//! The range tombstones that checkpoints have purged: which versions are gone, and when a tombstone may be dropped.

use std::collections::BTreeMap;

use fulgurite_index::PruneRules;
use fulgurite_index::range_delete::RangeDelete;
use fulgurite_types::{Csn, KeySpan, TableId};

use crate::catalog::TableState;
use crate::error::OrError;
use crate::merger::Merger;
use crate::{Error, Result};

/// The purges of range tombstones by earlier checkpoints, by table, ascending.
#[derive(Default)]
pub(super) struct Purges(BTreeMap<TableId, Vec<Purge>>);

/// The checkpoint that covers `covered` has purged every version that range tombstones at or below `up_to` hide.
struct Purge {
    up_to: Csn,
    covered: Csn,
}

impl Purges {
    /// Whether no tombstone waits to be dropped.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(Vec::is_empty)
    }

    /// Purges the versions that range tombstones hide, for the checkpoint that covers `boundary`. All versions at or
    /// below the boundary are merged.
    ///
    /// # Errors
    /// [`Error::Closed`] if the merger gives up meanwhile. The range tombstones are not purged then.
    pub fn purge(
        &mut self,
        table: &TableState,
        rules: &PruneRules,
        boundary: Csn,
        merger: &Merger,
    ) -> Result<()> {
        let oldest = rules.snapshots.first().copied().unwrap_or(boundary).min(boundary);
        let purges = self.0.entry(table.id).or_default();
        let purged_up_to = purges.last().map_or(Csn::ZERO, |purge| purge.up_to);
        let fresh = table.index.range_deletes().list(purged_up_to, oldest);
        for range in unions(&fresh) {
            if !table.index.purge_while(range, rules, || !merger.gives_up()).or_error()? {
                return Err(Error::Closed);
            }
        }
        if !fresh.is_empty() {
            purges.push(Purge { up_to: oldest, covered: boundary });
        }
        Ok(())
    }

    /// Drops a table's range tombstones that a checkpoint before `boundary` purged (INV-CKPT-3); whether there were any.
    pub fn drop_purged(&mut self, table: &TableState, boundary: Csn) -> bool {
        let Some(purges) = self.0.get_mut(&table.id) else { return false };
        let earlier = purges.partition_point(|purge| purge.covered < boundary);
        let newest = purges.drain(..earlier).next_back();
        newest.inspect(|newest| table.index.range_deletes().drop_up_to(newest.up_to)).is_some()
    }

    /// The table is gone.
    pub fn forget(&mut self, table: TableId) {
        self.0.remove(&table);
    }
}

/// The union of the ranges, as disjoint ranges: keys that many range deletes share are purged once.
fn unions(ranges: &[RangeDelete]) -> Vec<KeySpan<&[u8]>> {
    let mut sorted: Vec<KeySpan<&[u8]>> = ranges.iter().map(|range| range.keys.borrowed()).collect();
    sorted.sort_unstable_by_key(|span| span.start);
    let mut apart: Vec<KeySpan<&[u8]>> = Vec::new();
    for span in sorted {
        match apart.last_mut() {
            Some(last) if last.touches(&span) => *last = last.union(span),
            _ => apart.push(span),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_are_apart() {
        let range = |csn, start: &str, end: Option<&str>| RangeDelete {
            csn: Csn(csn),
            keys: KeySpan::new(start.as_bytes(), end.map(str::as_bytes)).owned(),
        };
        let ranges = [
            range(1, "f", Some("h")),
            range(2, "a", Some("c")),
            range(3, "b", Some("d")),
            range(4, "d", Some("e")),
            range(5, "b", Some("c")),
            range(6, "x", None),
            range(7, "y", Some("z")),
        ];
        let text: Vec<_> = unions(&ranges)
            .into_iter()
            .map(|span| {
                [span.start, span.end.unwrap_or(b"")].map(|key| String::from_utf8_lossy(key).into_owned())
            })
            .collect();
        assert_eq!(text, [["a", "e"], ["f", "h"], ["x", ""]]);
        assert!(unions(&[]).is_empty());
    }
}
