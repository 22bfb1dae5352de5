//! When a checkpoint's record names all tables, and when only those that changed.
//!
//! With ten thousand tables a full record has a megabyte, and most of it is as it was. So a record may be an *increment*: it
//! names the tables that changed since a full record, its base. Each increment is based on a full record, not on the last
//! increment: opening reads two records at most, and at most their segments stay for them, however many increments there
//! were. An increment repeats what the increments before it have named; when they are together as long as the base, the
//! next record is a full one again. So the tables that are written often cost what they cost alone, and in no case is more
//! than twice a full record written between two of them.
//!
//! INV-CKPT-7: *an increment and its base say what a full record would say.* A table is noted when its tree was written
//! out, when range tombstones of it were dropped, and when it is gone; and it stays noted until a full record that was
//! written after that is the base, which it is once the superblock names it. Every increment names every noted table. A
//! table with a range tombstone is noted by each checkpoint. The segments of an increment and of its base stay as long as a
//! copy of the superblock names the increment.

use std::collections::BTreeSet;

use fulgurite_log::Log;
use fulgurite_types::TableId;

use super::record::{CheckpointRecord, Increment, Placed, ReadRecord, Record, append};
use crate::Result;

/// The full record on which increments are based, and what changed since.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// [`Placed::default`] if there is none.
    base: Placed,
    /// The bytes of the increments on it.
    increments_bytes: u64,
    changed: BTreeSet<TableId>,
}

/// A record that was written, and becomes the current one when the superblock names it.
#[derive(Debug)]
pub(super) struct WrittenRecord {
    pub placed: Placed,
    is_full: bool,
}

impl Chain {
    /// The chain of the checkpoint with which the database was opened.
    pub fn recovered(read: ReadRecord) -> Chain {
        let (increments_bytes, changed) = match read.increment {
            Some((placed, earlier_bytes, named)) => (earlier_bytes.saturating_add(placed.bytes), named),
            None => (0, BTreeSet::new()),
        };
        Chain { base: read.base, increments_bytes, changed }
    }

    /// A table is not, or may not be, what the base says.
    pub fn note(&mut self, table: TableId) {
        self.changed.insert(table);
    }

    /// Writes the record of a checkpoint. `record_of` returns the record of all tables, or of those of a set, without
    /// tables that are empty or gone. `full`: an increment would keep the segments of its base.
    pub(super) fn write(
        &self,
        log: &Log,
        full: bool,
        record_of: impl Fn(Option<&BTreeSet<TableId>>) -> CheckpointRecord,
    ) -> Result<WrittenRecord> {
        if !full && self.base.bytes > self.increments_bytes {
            let changed = record_of(Some(&self.changed));
            let gone = self.changed.iter().filter(|id| !changed.tables.contains_key(id)).copied().collect();
            let (base, earlier_bytes) = (self.base.lsn, self.increments_bytes);
            let bytes = Record::Increment(Increment { base, earlier_bytes, changed, gone }).encode();
            if self.increments_bytes + (bytes.len() as u64) < self.base.bytes {
                return Ok(WrittenRecord { placed: append(log, &bytes)?, is_full: false });
            }
        }
        let bytes = Record::Full(record_of(None)).encode();
        Ok(WrittenRecord { placed: append(log, &bytes)?, is_full: true })
    }

    /// The superblock names the record; returns the segments that it needs.
    pub(super) fn install(&mut self, written: WrittenRecord) -> Vec<u32> {
        let WrittenRecord { placed, is_full } = written;
        if is_full {
            *self = Chain { base: placed, ..Chain::default() };
            return self.base.segments.clone();
        }
        self.increments_bytes += placed.bytes;
        let mut segments = self.base.segments.clone();
        segments.extend(placed.segments);
        segments
    }
}
