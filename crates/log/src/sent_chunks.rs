//! Chunks on their way from node to node: a follower gets those to which an entry refers before it gets the entry.
//!
//! A chunk travels as the body of its record, which has no LSN in it. A follower appends it to its own bulk stream, and keeps only where it
//! is. Once it has all chunks of an entry it appends that, with local records of its own.
//!
//! - INV-REP-8: a follower appends an entry once its bulk stream has all the chunks to which that refers, and writes it once they are durable
//!   (INV-LOG-16). Their segments stay from the moment when the chunks are appended until the caller's checkpoints cover the commit, and
//!   as long as it keeps the log for others from there on ([`ChunkPins`]).

use crate::bulk_stream::BulkPosition;
use crate::chunks::chunk_range;
use crate::error::LogError;
use crate::format::{
    BULK_HEADER_BYTES, BulkKind, CHUNK_HEAD_BYTES, ChunkRef, LocalRecords, SpillId, put_local_records,
};
use crate::log::Log;
use crate::stream::append_entries::Entry;
use fulgurite_types::{Crc32c, Csn, EntryId, Lsn, Reader, limits};
use std::sync::Arc;

/// Keeps segments from being freed while they have chunks that came from another node.
pub trait ChunkPins: Send + Sync {
    /// A segment gets a chunk of this spill. Called while the segment cannot be freed yet; it must be short and not call the log. `now_ns` is
    /// the monotonic time.
    fn pin(&self, spill: SpillId, segment: u32, now_ns: u64);
    /// The commit of a spill is in the log.
    fn committed(&self, csn: Csn, spill: SpillId);
    /// The chunks of a spill that has no commit are needed no more.
    fn unpin(&self, spill: SpillId);
}

/// A chunk as it is sent from node to node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentChunk {
    /// [`BulkKind::Chunk`] or [`BulkKind::ValueChunk`].
    pub kind: BulkKind,
    /// The body of its record.
    pub body: Vec<u8>,
    /// The CRC-32C of the kind's number and the body.
    pub checksum: u32,
}

impl SentChunk {
    pub(crate) fn new(kind: BulkKind, body: Vec<u8>) -> SentChunk {
        let checksum = checksum(kind, &body);
        SentChunk { kind, body, checksum }
    }

    /// Checks it, and returns its spill, its ordinal, and the length of its bytes.
    fn check(&self) -> Result<(SpillId, u32, u32), LogError> {
        let wrong = |what: &str| LogError::Usage(format!("a chunk that was sent {what}"));
        if checksum(self.kind, &self.body) != self.checksum {
            return Err(wrong("does not have its checksum"));
        }
        let range = chunk_range(self.kind, &self.body)
            .filter(|range| !range.is_empty() && range.len() <= limits::CHUNK_BYTES_MAX);
        let Some(range) = range else { return Err(wrong(&format!("is no chunk, but a {:?}", self.kind))) };
        let mut reader = Reader::new(&self.body);
        let undecodable = |_| wrong("has no number");
        let spill = SpillId::decode(&mut reader).map_err(undecodable)?;
        let ordinal = reader.u32("chunk ordinal").map_err(undecodable)?;
        if ordinal >= limits::LISTS_ORDINAL_MIN {
            return Err(wrong("is a list of chunks, which each node has its own of"));
        }
        Ok((spill, ordinal, range.len() as u32))
    }
}

fn checksum(kind: BulkKind, body: &[u8]) -> u32 {
    Crc32c::new().update(&[kind as u8]).update(body).finish()
}

/// To how many chunks a frame of an entry refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameChunks {
    /// The CSN of the frame.
    pub csn: Csn,
    /// How many there are, not 0.
    pub count: u32,
}

/// The chunks that came for an entry which has not come yet.
#[derive(Default)]
pub(crate) struct Received {
    entry: EntryId,
    chunks: Vec<ChunkRef>,
    position: BulkPosition,
}

impl Received {
    /// Their spills: those of a frame follow each other.
    fn spills(&self) -> impl Iterator<Item = SpillId> {
        self.chunks.chunk_by(|a, b| a.spill == b.spill).map(|chunks| chunks[0].spill)
    }
}

impl Log {
    /// Sets what keeps the segments with chunks that this follower gets. Without it nothing may free segments.
    pub fn set_chunk_pins(&self, pins: Arc<dyn ChunkPins>) {
        *self.pins.write() = Some(pins);
    }

    /// The record of a chunk, verified, to be sent to another node.
    ///
    /// # Errors
    /// As [`Log::read_chunk`]; [`LogError::TooOld`] if its segment was freed.
    pub fn chunk_to_send(&self, chunk: &ChunkRef) -> Result<SentChunk, LogError> {
        let record =
            self.read_chunk_record(chunk).map_err(|error| self.too_old_if_freed(&[*chunk], error))?;
        Ok(SentChunk::new(record.kind, record.body))
    }

    /// What failed because the segment of a chunk was freed meanwhile.
    pub(crate) fn too_old_if_freed(&self, chunks: &[ChunkRef], error: LogError) -> LogError {
        if chunks.iter().all(|chunk| self.segments.get(chunk.lsn.segment()).is_some()) {
            return error;
        }
        let oldest = self.stream.progress.oldest();
        LogError::TooOld { after: oldest.prev(), oldest }
    }

    /// A commit that has its CSN refers to chunks of so many bytes: they count while it is not agreed
    /// ([`LogOptions::unagreed_bytes_max`](crate::LogOptions::unagreed_bytes_max)). Nothing in a log that is not replicated.
    pub fn note_chunks(&self, csn: Csn, bytes: u64) {
        if let Ok(entries) = self.stream.replicated() {
            entries.note_chunks(csn, bytes);
        }
    }

    /// The entry for which this follower has chunks, and how many.
    pub fn received_chunks(&self) -> (EntryId, u32) {
        let received = self.received.lock();
        (received.entry, received.chunks.len() as u32)
    }

    /// Takes a chunk of an entry that follows: the first one, or the one after those that came ([`Log::received_chunks`]). Chunks of another
    /// entry are given up.
    ///
    /// # Errors
    /// [`LogError::Usage`] if it is damaged, or not the next one; then nothing was changed. As [`Log::append_bulk`].
    pub fn receive_chunk(&self, entry: EntryId, nth: u32, chunk: &SentChunk) -> Result<(), LogError> {
        self.stream.replicated()?;
        let (spill, ordinal, len) = chunk.check()?;
        let mut received = self.received.lock();
        let have = if received.entry == entry { received.chunks.len() as u32 } else { 0 };
        if nth != have {
            return Err(LogError::Usage(format!(
                "chunk {nth} of entry {entry} came, and {have} of them are there"
            )));
        }
        if received.entry != entry {
            self.give_up(&mut received);
            received.entry = entry;
        }
        let pins = self.pins.read().clone();
        let now_ns = self.shared.now_ns();
        let on_append = |record: Lsn| {
            if let Some(pins) = &pins {
                pins.pin(spill, record.segment(), now_ns);
            }
        };
        let record = self.append_record(chunk.kind, &[&chunk.body], false, on_append)?;
        let lsn = record.lsn.advance(BULK_HEADER_BYTES + CHUNK_HEAD_BYTES);
        received.chunks.push(ChunkRef { spill, ordinal, lsn, len });
        received.position = record.mark;
        Ok(())
    }

    /// Gives up the chunks that came for an entry.
    pub(crate) fn give_up_received(&self) {
        self.give_up(&mut self.received.lock());
    }

    fn give_up(&self, received: &mut Received) {
        if let Some(pins) = self.pins.read().as_deref() {
            received.spills().for_each(|spill| pins.unpin(spill));
        }
        *received = Received::default();
    }

    /// Appends an entry of a leader: after its own last one, and after all commits. It is durable once a flush has written it
    /// ([`Log::flush_entries`]), with all that were appended before. The chunks to which it refers have come ([`Log::receive_chunk`]).
    ///
    /// # Errors
    /// [`LogError::Usage`] if it is damaged, lacks chunks, skips an index or a CSN, is of an older term than the last one, or if this node is no
    /// follower; then nothing was appended. Those of [`CommitLog::admit`](crate::CommitLog::admit).
    pub fn append_entry(&self, entry: &Entry) -> Result<(), LogError> {
        let mut received = self.received.lock();
        if entry.chunks.is_empty() {
            self.stream.append_entry(entry, &entry.payload)?;
        } else {
            self.append_with_chunks(entry, &received)?;
        }
        if received.entry.index <= entry.id.index {
            self.give_up(&mut received);
        }
        Ok(())
    }

    fn append_with_chunks(&self, entry: &Entry, received: &Received) -> Result<(), LogError> {
        entry.check()?;
        let wrong = |what: &str| LogError::Usage(format!("entry {} {what}", entry.id));
        let wanted: u64 = entry.chunks.iter().map(|frame| u64::from(frame.count)).sum();
        let have = if received.entry == entry.id { received.chunks.len() } else { 0 };
        if wanted != have as u64 {
            return Err(wrong(&format!("refers to {wanted} chunks, and {have} of them came")));
        }
        let (mut rest, mut position) = (&received.chunks[..], received.position);
        let (mut records, mut spills) = (LocalRecords::new(), Vec::new());
        for FrameChunks { csn, count } in &entry.chunks {
            let (chunks, after) = rest.split_at(*count as usize);
            rest = after;
            let spill = chunks.first().ok_or_else(|| wrong("has a frame with no chunks"))?.spill;
            if chunks.iter().any(|chunk| chunk.spill != spill) {
                return Err(wrong(&format!("has chunks of another transaction for commit {csn}")));
            }
            let pins = self.pins.read().clone();
            let now_ns = self.shared.now_ns();
            let on_segment = |segment| {
                if let Some(pins) = &pins {
                    pins.pin(spill, segment, now_ns);
                }
            };
            let (listed, after_lists) = self.list_chunks(spill, chunks.to_vec(), &on_segment)?;
            position = position.max(after_lists);
            spills.push((*csn, spill));
            records.push((*csn, listed));
        }
        let payload = put_local_records(&entry.payload, &records)
            .map_err(|error| wrong(&format!("does not decode: {error}")))?;
        // Before the entry can be written (INV-LOG-16).
        self.bulk.require(position);
        self.stream.append_entry(entry, &payload)?;
        let bytes = received.chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
        self.note_chunks(entry.last_csn(), bytes);
        if let Some(pins) = self.pins.read().as_deref() {
            spills.into_iter().for_each(|(csn, spill)| pins.committed(csn, spill));
        }
        Ok(())
    }

    /// All chunks to which references lead, with lists of references resolved.
    ///
    /// # Errors
    /// As [`Log::read_chunk`].
    pub fn resolve_chunks(&self, references: &[ChunkRef]) -> Result<Vec<ChunkRef>, LogError> {
        let mut resolved = Vec::with_capacity(references.len());
        for reference in references {
            if reference.ordinal < limits::LISTS_ORDINAL_MIN {
                resolved.push(*reference);
                continue;
            }
            let bytes = self.read_chunk(reference)?;
            let (mut lower, mut reader) = (Vec::new(), Reader::new(&bytes));
            while !reader.is_empty() {
                lower.push(ChunkRef::decode(&mut reader).map_err(|error| {
                    self.damage_at(reference.lsn, format!("the list of chunks does not decode: {error}"))
                })?);
            }
            resolved.extend(self.resolve_chunks(&lower)?);
        }
        Ok(resolved)
    }

    /// The references to the chunks of a commit, for its local record. A long list is itself written ahead, and the references to its own
    /// chunks are returned, with ordinals from `u32::MAX` down. `on_segment`: as in [`Log::append_chunk`]. Returns the position up to which
    /// the bulk stream has to be synced for what was written, too.
    ///
    /// # Errors
    /// As [`Log::append_bulk`].
    pub fn list_chunks(
        &self,
        spill: SpillId,
        chunks: Vec<ChunkRef>,
        on_segment: &dyn Fn(u32),
    ) -> Result<(Vec<ChunkRef>, BulkPosition), LogError> {
        let (mut references, mut position) = (chunks, BulkPosition::default());
        let mut ordinal = u32::MAX;
        while references.len() > limits::DIRECT_CHUNKS_MAX {
            let mut upper = Vec::new();
            for piece in references.chunks(limits::CHUNK_BYTES_MAX / ChunkRef::BYTES) {
                let mut bytes = Vec::with_capacity(piece.len() * ChunkRef::BYTES);
                piece.iter().for_each(|reference| reference.encode(&mut bytes));
                let (lsn, mark) = self.append_chunk(spill, ordinal, &bytes, None, on_segment)?;
                upper.push(ChunkRef { spill, ordinal, lsn, len: bytes.len() as u32 });
                (ordinal, position) = (ordinal - 1, mark);
            }
            references = upper;
        }
        Ok((references, position))
    }
}
