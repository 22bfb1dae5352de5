//! Records that are longer than the largest segment of the options: each has a segment of its own.
//!
//! INV-LOG-23: *no thread waits for the write of a long record, but the one that appends it*, or another that appends one,
//! or that closes the log. It is written past the buffer of the stream and without its locks, and synced as it is written,
//! so the sync that a commit may wait for (INV-LOG-16) has nothing of it to do, and INV-LOG-17 holds.
//!
//! Nothing refers to the record before it is durable. Its segment has the start of the bulk stream from the beginning
//! (INV-LOG-21), so a crash halfway leaves a segment in which nothing is live.

use std::sync::Arc;

use super::{Appended, BulkStream, NextSegment, NextWanted, UNSYNCED_BYTES_MAX};
use crate::error::LogError;
use crate::format::{
    BULK_HEADER_BYTES, BULK_START_BYTES, BulkHeader, BulkKind, SEGMENT_DATA_START, bulk_record_bytes,
};
use crate::segments::{Segment, Stream};
use crate::stats::add;
use fulgurite_types::{Csn, Lsn};

/// How many bytes one write takes.
const WRITE_BYTES: usize = 1024 * 1024;

/// Where the record begins in its segment.
const RECORD_START: u32 = SEGMENT_DATA_START + BULK_START_BYTES;

impl BulkStream {
    /// [`BulkStream::append`] of a record that no segment of the options holds. It is durable afterwards.
    pub(super) fn append_long(
        &self,
        kind: BulkKind,
        (pieces, body_bytes): (&[&[u8]], u32),
        on_append: impl FnOnce(Lsn),
        next: impl FnOnce(&NextWanted) -> Result<NextSegment, LogError>,
    ) -> Result<Appended, LogError> {
        let _long = self.long.lock();
        self.shared.check_usable()?;
        let bytes = bulk_record_bytes(body_bytes);
        // The files of the reserve are too small.
        let NextSegment { segment, .. } =
            next(&NextWanted { bytes_min: RECORD_START + bytes, reserve: false })?;
        segment.hand_out(Stream::Bulk, self.shared.epoch, Csn::ZERO);
        let lsn = Lsn::new(segment.number, RECORD_START);
        on_append(lsn);
        let header = BulkHeader { kind, codec: 0, flags: 0, body_bytes, lsn };
        let head = header.encode(self.shared.database, pieces);
        let padding = [0; 8];
        let padding = &padding[..(bytes - BULK_HEADER_BYTES - body_bytes) as usize];
        self.write_long(&segment, [&head[..]].into_iter().chain(pieces.iter().copied()).chain([padding]))?;
        segment.set_used(RECORD_START + bytes);
        self.segments.seal(&segment);
        let mark = {
            // It goes on in a segment after this one.
            let mut state = self.state.lock();
            state.is_left = true;
            state.appended
        };
        self.count(kind, bytes);
        add(&self.shared.stats.bulk_written_bytes, bytes.into());
        Ok(Appended { lsn, mark })
    }

    /// Writes the pieces one after the other, and syncs them. A failure poisons the log.
    fn write_long<'p>(
        &self,
        segment: &Arc<Segment>,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Result<(), LogError> {
        let failed = |what, error| self.shared.fail(what, Some((&segment.path, error)));
        let file = self.segments.file(segment).map_err(|error| failed("a bulk write", error))?;
        let sync = || {
            add(&self.shared.stats.bulk_syncs, 1);
            file.sync_data().map_err(|error| failed("a bulk sync", error))
        };
        let (mut at, mut unsynced) = (u64::from(RECORD_START), 0);
        for block in pieces.flat_map(|piece| piece.chunks(WRITE_BYTES)) {
            self.shared.poison.check()?;
            file.write_at(block, at).map_err(|error| failed("a bulk write", error))?;
            at += block.len() as u64;
            unsynced += block.len() as u64;
            if unsynced >= UNSYNCED_BYTES_MAX {
                sync()?;
                unsynced = 0;
            }
        }
        sync()?;
        self.shared.poison.check()
    }
}
