//! How many keys a table has, about: what the base knows of itself, less the share of it that range deletes hide,
//! and what the keys of the memtables change.

use std::ops::Bound;

use fulgurite_types::Csn;

use super::{ReadPoint, Table, is_seen};
use crate::base::{Base, BaseCursor};

/// Of a memtable that has more versions, a sample of a quarter of this to this is looked at.
const VERSIONS_MAX: u64 = 4096;

/// So many places of the base are looked at where range deletes may hide them.
const PLACES_MAX: usize = 64;

impl<S: Base> Table<S> {
    /// About how many keys the reader sees, who need not have a snapshot: within some percent in a table without old versions
    /// for snapshots. Reads at most 64 nodes from the store, and those only if ranges were deleted.
    pub fn len_estimate(&self, at: ReadPoint) -> u64 {
        if self.base.len_estimate() == 0 {
            // It learns its size when its root is read.
            let _ = self.base.get(&[], Csn::ZERO);
        }
        let merged = self.base.len_estimate() as f64 * self.share_not_hidden(at);
        let recent = self.memtables.sum_of_keys(self.id, at.csn, VERSIONS_MAX, |key, version| {
            let deleted = self.range_deletes.covering(key, at.csn);
            let below = self.base.try_get(key, Csn::MAX).ok()?;
            let was_there = below.is_some_and(|below| is_seen(below.borrowed(), deleted, at.now_ms));
            Some(i64::from(is_seen(version, deleted, at.now_ms)) - i64::from(was_there))
        });
        (merged + recent).max(0.0).round() as u64
    }

    /// The share of the base that no range delete hides.
    fn share_not_hidden(&self, at: ReadPoint) -> f64 {
        if self.range_deletes.is_empty() {
            return 1.0;
        }
        let places = self.base.places(PLACES_MAX);
        let mut cursor = self.base.cursor(Csn::MAX);
        let mut is_hidden = |place: &&Vec<u8>| {
            self.range_deletes.covering(place, at.csn).is_some()
                && cursor.seek(Bound::Included(place)).is_ok()
                && cursor.key().is_some_and(|key| {
                    // What was written after the range delete, and is merged, is not hidden.
                    let deleted = self.range_deletes.covering(key, at.csn);
                    deleted.is_some_and(|deleted| cursor.version().csn < deleted)
                })
        };
        let hidden = places.iter().filter(&mut is_hidden).count();
        if places.is_empty() { 1.0 } else { 1.0 - hidden as f64 / places.len() as f64 }
    }
}
