//! About how many keys a table has: the base's own estimate, minus the share that range tombstones hide, plus the
//! change by the keys of the memtables.

use fulgurite_types::Csn;

use super::{ReadPoint, Table, is_seen};
use crate::base::{Base, BaseCursor, Io};

/// Of a memtable with more versions than this, a sample of between a quarter of this and this is read.
const VERSIONS_MAX: u64 = 16_384;

/// How many keys of the base are checked for whether range tombstones hide them.
const SEPARATORS_MAX: usize = 64;

impl<S: Base> Table<S> {
    /// About how many keys the reader sees; it needs no snapshot. Right within some percent in a table without old
    /// versions kept for snapshots. Reads at most about 64 nodes from the store if ranges were deleted, else at most
    /// one leaf's path, once.
    pub fn len_estimate(&self, at: ReadPoint) -> u64 {
        if self.base.len_estimate() == 0 {
            // A base learns its size when its root is read.
            let _ = self.base.get(&[], Csn::ZERO, Io::Allowed);
        }
        let merged = self.base.len_estimate() as f64 * self.share_not_hidden(at);
        let recent = self.memtables.sum_of_keys(self.id, at.csn, VERSIONS_MAX, |key, version| {
            let deleted = self.range_deletes.covering(key, at.csn);
            let below = self.base.get(key, Csn::MAX, Io::MemoryOnly).ok()?;
            let was_there = below.is_some_and(|below| is_seen(below.borrowed(), deleted, at.now_ms));
            Some(i64::from(is_seen(version, deleted, at.now_ms)) - i64::from(was_there))
        });
        (merged + recent).max(0.0).round() as u64
    }

    /// The share of the base that no range tombstone hides.
    fn share_not_hidden(&self, at: ReadPoint) -> f64 {
        if self.range_deletes.is_empty() {
            return 1.0;
        }
        let separators = self.base.separators(SEPARATORS_MAX);
        let mut cursor = self.base.cursor(Csn::MAX);
        let mut is_hidden = |separator: &&Vec<u8>| {
            self.range_deletes.covering(separator, at.csn).is_some()
                && cursor.seek(separator).is_ok()
                && cursor.key().is_some_and(|key| {
                    // A version that was written after the range delete, and merged, is not hidden.
                    let deleted = self.range_deletes.covering(key, at.csn);
                    deleted.is_some_and(|deleted| cursor.version().csn < deleted)
                })
        };
        let hidden = separators.iter().filter(&mut is_hidden).count();
        if separators.is_empty() { 1.0 } else { 1.0 - hidden as f64 / separators.len() as f64 }
    }
}
