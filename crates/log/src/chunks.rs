//! Chunks of large commits, written ahead into the bulk stream.

use crate::bulk_stream::BulkPosition;
use crate::error::LogError;
use crate::format::{BULK_HEADER_BYTES, BulkKind, ChunkRef, SpillId};
use crate::log::Log;
use crate::segments::Stream;
use fulgurite_types::{Lsn, Reader};

/// The spill id and the ordinal, which precede a chunk's bytes in the record's body.
const CHUNK_HEAD_BYTES: u32 = SpillId::BYTES as u32 + 4;

impl Log {
    /// Appends a chunk. Returns the LSN of *its bytes*, so that they can be read without the record around them, and
    /// the position up to which the stream has to be synced for it: [`Log::sync_bulk_to`],
    /// [`CommitLog::require_bulk`](crate::CommitLog::require_bulk). Calls `on_segment` with the segment while that
    /// cannot be freed yet; `on_segment` must be short and not call the log.
    ///
    /// # Errors
    /// As [`Log::append_bulk`].
    pub fn append_chunk(
        &self,
        spill: SpillId,
        ordinal: u32,
        bytes: &[u8],
        on_segment: impl FnOnce(u32),
    ) -> Result<(Lsn, BulkPosition), LogError> {
        let mut head = Vec::with_capacity(CHUNK_HEAD_BYTES as usize);
        spill.encode(&mut head);
        head.extend_from_slice(&ordinal.to_le_bytes());
        let on_append = |record: Lsn| on_segment(record.segment());
        let record = self.append_record(BulkKind::Chunk, &[&head, bytes], false, on_append)?;
        Ok((record.lsn.advance(BULK_HEADER_BYTES + CHUNK_HEAD_BYTES), record.mark))
    }

    /// Reads a chunk back, and verifies that it is the chunk that `chunk` names.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if the record there is not this chunk.
    pub fn read_chunk(&self, chunk: &ChunkRef) -> Result<Vec<u8>, LogError> {
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
        let fits = record.kind == BulkKind::Chunk
            && spill == chunk.spill
            && ordinal == chunk.ordinal
            && reader.remaining() == chunk.len as usize;
        if !fits {
            return Err(wrong());
        }
        Ok(record.body[CHUNK_HEAD_BYTES as usize..].to_vec())
    }

    /// The error for bytes at `lsn` that differ from what was written.
    pub fn damage_at(&self, lsn: Lsn, what: impl Into<String>) -> LogError {
        LogError::damaged(&self.segments.path(lsn.segment()), lsn.offset().into(), None, what)
    }

    /// For a value in chunks whose checksum fails as a whole: the damage of the first chunk whose own record does not
    /// verify. `extents` are those of the chunks' bytes, with LSNs as [`Log::append_chunk`] returned them. `None`
    /// if all records verify, or the bytes are not in chunks.
    pub fn find_damaged_chunk(&self, extents: &[(Lsn, u32)]) -> Option<LogError> {
        extents.iter().find_map(|&(lsn, len)| {
            let segment = self.segments.segment_of(lsn).ok()?;
            if segment.stream() == Some(Stream::Commit) {
                return None;
            }
            let wrong = |what: &str| Some(self.damage_at(lsn, what));
            let Some(start) = lsn.offset().checked_sub(BULK_HEADER_BYTES + CHUNK_HEAD_BYTES) else {
                return wrong("a chunk cannot begin there");
            };
            match self.read_bulk(Lsn::new(lsn.segment(), start)) {
                Ok(record) if record.kind != BulkKind::Chunk => wrong("it is no chunk"),
                Ok(record) if record.body.len() != (CHUNK_HEAD_BYTES + len) as usize => {
                    wrong("it is a chunk of another length")
                }
                Ok(_) => None,
                Err(error) => Some(error),
            }
        })
    }
}
