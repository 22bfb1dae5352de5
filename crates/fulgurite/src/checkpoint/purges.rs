//! The range tombstones that checkpoints have purged: which versions are gone, and when a tombstone may be dropped.

use std::collections::BTreeMap;
use std::ops::Bound;

use fulgurite_index::range_delete::RangeDelete;
use fulgurite_index::{Base, PruneRules, WriteOutReport};
use fulgurite_types::{Csn, TableId};

use crate::Result;
use crate::catalog::TableState;
use crate::error::OrError;

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

    /// Purges the versions that range tombstones hide, and writes the tree out, for the checkpoint that covers
    /// `boundary`.
    pub fn purge_and_write_out(
        &mut self,
        table: &TableState,
        rules: &PruneRules,
        boundary: Csn,
    ) -> Result<WriteOutReport> {
        let oldest = rules.snapshots.first().copied().unwrap_or(boundary).min(boundary);
        let purges = self.0.entry(table.id).or_default();
        let purged_up_to = purges.last().map_or(Csn::ZERO, |purge| purge.up_to);
        let fresh = table.index.range_deletes().list(purged_up_to, oldest);
        let written = table
            .index
            .with_maintenance(|tree| {
                for (start, end) in unions(&fresh) {
                    tree.purge(
                        (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded)),
                        rules,
                    )?;
                }
                tree.write_out()
            })
            .or_error()?;
        if !fresh.is_empty() {
            purges.push(Purge { up_to: oldest, covered: boundary });
        }
        Ok(written)
    }

    /// Drops a table's range tombstones that a checkpoint before `boundary` purged (INV-CKPT-3).
    pub fn drop_purged(&mut self, table: &TableState, boundary: Csn) {
        let Some(purges) = self.0.get_mut(&table.id) else { return };
        let earlier = purges.partition_point(|purge| purge.covered < boundary);
        if let Some(newest) = purges.drain(..earlier).next_back() {
            table.index.range_deletes().drop_up_to(newest.up_to);
        }
    }

    /// The table is gone.
    pub fn forget(&mut self, table: TableId) {
        self.0.remove(&table);
    }
}

/// The union of the ranges, as disjoint ranges: keys that many range deletes share are purged once.
fn unions(ranges: &[RangeDelete]) -> Vec<(&[u8], Option<&[u8]>)> {
    let mut sorted: Vec<(&[u8], Option<&[u8]>)> =
        ranges.iter().map(|range| (&*range.start, range.end.as_deref())).collect();
    sorted.sort_unstable();
    let mut apart: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
    for (start, end) in sorted {
        match apart.last_mut() {
            Some((_, reached)) if reached.is_none_or(|reached| start <= reached) => {
                *reached = match (*reached, end) {
                    (Some(reached), Some(end)) => Some(reached.max(end)),
                    _ => None,
                };
            }
            _ => apart.push((start, end)),
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
            start: start.as_bytes().into(),
            end: end.map(|end| end.as_bytes().into()),
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
            .map(|(start, end)| {
                [start, end.unwrap_or(b"")].map(|key| String::from_utf8_lossy(key).into_owned())
            })
            .collect();
        assert_eq!(text, [["a", "e"], ["f", "h"], ["x", ""]]);
        assert!(unions(&[]).is_empty());
    }
}
