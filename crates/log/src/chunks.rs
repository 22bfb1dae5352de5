//! Bytes of values in the bulk stream: chunks of large commits, written ahead, and values that were moved.

use std::ops::Range;

use crate::bulk_stream::{Apart, BulkPosition, BulkRecord};
use crate::error::LogError;
use crate::format::{
    BULK_HEADER_BYTES, BulkHeader, BulkKind, CHUNK_HEAD_BYTES, ChunkRef, OwnedBytes, SpillId, ValueOwner,
};
use crate::log::Log;
use crate::segments::Stream;
use fulgurite_types::{Csn, Lsn, Reader};

impl Log {
    /// Appends a chunk, of a value if it has an `owner`, else of operations. Returns the LSN of *its bytes*, so that they
    /// can be read without the record around them, and the position up to which the stream has to be synced for it:
    /// [`Log::sync_bulk_to`], [`CommitLog::require_bulk`](crate::CommitLog::require_bulk). Calls `on_segment` with the
    /// segment while that cannot be freed yet; `on_segment` must be short and not call the log.
    ///
    /// # Errors
    /// As [`Log::append_bulk`].
    pub fn append_chunk(
        &self,
        spill: SpillId,
        ordinal: u32,
        bytes: &[u8],
        owner: Option<ValueOwner<'_>>,
        on_segment: impl FnOnce(u32),
    ) -> Result<(Lsn, BulkPosition), LogError> {
        let mut head = Vec::with_capacity(CHUNK_HEAD_BYTES as usize);
        spill.encode(&mut head);
        head.extend_from_slice(&ordinal.to_le_bytes());
        let on_append = |record: Lsn| on_segment(record.segment());
        let record = match owner {
            None => self.append_record(BulkKind::Chunk, &[&head, bytes], false, on_append)?,
            Some(owner) => {
                let pieces = [&head[..], bytes, &owner.after_chunk()];
                self.append_record(BulkKind::ValueChunk, &pieces, false, on_append)?
            }
        };
        Ok((record.lsn.advance(BULK_HEADER_BYTES + CHUNK_HEAD_BYTES), record.mark))
    }

    /// Appends bytes of the value that commit `csn` gave to a key, which are somewhere else in the log, too. Returns the
    /// LSN of the bytes. Takes nothing of the files that the log keeps for checkpoints on a full disk. With `apart` it goes to a
    /// segment with nothing but such records, which is one more that is open.
    ///
    /// # Errors
    /// As [`Log::append_bulk`].
    pub fn append_moved(
        &self,
        owner: ValueOwner<'_>,
        csn: Csn,
        bytes: &[u8],
        apart: Option<Apart>,
    ) -> Result<Lsn, LogError> {
        let pieces = [bytes, &owner.after_moved(csn)];
        let lsn = match apart {
            Some(apart) => self.append_bulk_apart(apart, BulkKind::MovedValue, &pieces)?,
            None => self.append_bulk_beside_reserve(BulkKind::MovedValue, &pieces)?,
        };
        Ok(lsn.advance(BULK_HEADER_BYTES))
    }

    /// Reads a chunk back, and verifies that it is the chunk that `chunk` names.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if the record there is not this chunk.
    pub fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, LogError> {
        let record = self.read_chunk_record(chunk)?;
        let range = chunk_range(record.kind, &record.body).expect("it was just verified");
        Ok(record.body[range].to_vec())
    }

    /// The record of a chunk, verified.
    pub(crate) fn read_chunk_record(&self, chunk: &ChunkRef) -> Result<BulkRecord, LogError> {
        let wrong = || {
            let segment = self.segments.path(chunk.lsn.segment());
            let what = format!("chunk {} of a transaction is not there", chunk.ordinal);
            LogError::damaged(&segment, chunk.lsn.offset().into(), None, what)
        };
        let before =
            chunk.lsn.offset().checked_sub(BULK_HEADER_BYTES + CHUNK_HEAD_BYTES).ok_or_else(wrong)?;
        let record = self.read_bulk(Lsn::new(chunk.lsn.segment(), before))?;
        let mut reader = Reader::new(&record.body);
        let spill = SpillId::decode(&mut reader).map_err(|_| wrong())?;
        let ordinal = reader.u32("chunk ordinal").map_err(|_| wrong())?;
        let range = chunk_range(record.kind, &record.body).ok_or_else(wrong)?;
        if spill != chunk.spill || ordinal != chunk.ordinal || range.len() != chunk.len as usize {
            return Err(wrong());
        }
        Ok(record)
    }

    /// The error for bytes at `lsn` that differ from what was written.
    pub fn damage_at(&self, lsn: Lsn, what: impl Into<String>) -> LogError {
        LogError::damaged(&self.segments.path(lsn.segment()), lsn.offset().into(), None, what)
    }

    /// For a value in the bulk stream whose checksum fails as a whole: the damage of the first of its records that does not
    /// verify. `extents` are those of the value's bytes, with LSNs as [`Log::append_chunk`] and [`Log::append_moved`]
    /// returned them. `None` if all records verify, or the bytes are in the commit stream.
    pub fn find_damaged_chunk(&self, extents: &[(Lsn, u32)]) -> Option<LogError> {
        extents.iter().find_map(|&(lsn, len)| {
            let segment = self.segments.segment_of(lsn).ok()?;
            if segment.stream() == Some(Stream::Commit) {
                return None;
            }
            self.read_bytes_in_record(lsn, len).err()
        })
    }

    /// The bytes of a value at `lsn` in the bulk stream, verified with the record around them.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::Io`].
    fn read_bytes_in_record(&self, lsn: Lsn, len: u32) -> Result<Vec<u8>, LogError> {
        let wrong = |what: &str| self.damage_at(lsn, what);
        let before =
            |bytes: u32| lsn.offset().checked_sub(bytes).map(|offset| Lsn::new(lsn.segment(), offset));
        let is_moved = before(BULK_HEADER_BYTES).is_some_and(|record| {
            let header = self.read_bytes(record, BULK_HEADER_BYTES);
            let header = header.ok().and_then(|bytes| BulkHeader::decode(&bytes, record).ok());
            header.is_some_and(|header| header.kind == BulkKind::MovedValue)
        });
        let head_bytes = if is_moved { 0 } else { CHUNK_HEAD_BYTES };
        let start =
            before(BULK_HEADER_BYTES + head_bytes).ok_or_else(|| wrong("a chunk cannot begin there"))?;
        let record = self.read_bulk(start)?;
        let range = match record.kind {
            BulkKind::MovedValue => owned_range(record.kind, &record.body),
            kind => chunk_range(kind, &record.body),
        };
        let range = range.ok_or_else(|| wrong("it is no chunk"))?;
        if range.len() != len as usize {
            return Err(wrong("it is a chunk of another length"));
        }
        Ok(record.body[range].to_vec())
    }
}

/// Where the bytes of a chunk are in the body of its record.
pub(crate) fn chunk_range(kind: BulkKind, body: &[u8]) -> Option<Range<usize>> {
    match kind {
        BulkKind::Chunk => {
            (body.len() >= CHUNK_HEAD_BYTES as usize).then_some(CHUNK_HEAD_BYTES as usize..body.len())
        }
        BulkKind::ValueChunk => owned_range(kind, body),
        _ => None,
    }
}

fn owned_range(kind: BulkKind, body: &[u8]) -> Option<Range<usize>> {
    OwnedBytes::decode(kind, body).ok().flatten().map(|owned| owned.range)
}
