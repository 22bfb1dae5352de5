//! Spills: values and operation lists that a transaction writes ahead, in chunks, off the commit path.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_index::{Extent, OutOfLine};
use fulgurite_log::{BulkPosition, ChunkRef, Log, SpillId, ValueOwner};
use fulgurite_types::{Csn, Lsn, TableId, crc32c, limits, value_checksum};

use crate::body::{self, ChunksRef};
use crate::error::OrError;
use crate::snapshots::SlotRef;
use crate::space::pins::SpillPins;
use crate::{Damage, Error, Result};

/// The spill of one transaction: the chunks that it has written ahead.
pub(crate) struct Spill {
    log: Arc<Log>,
    pins: Arc<SpillPins>,
    id: SpillId,
    next_ordinal: u32,
    chunks: Vec<ChunkRef>,
    /// Of the chunks.
    bytes: usize,
    /// That of the transaction.
    snapshot: SlotRef,
    /// When it began, in monotonic nanoseconds.
    since_ns: u64,
    /// The position up to which the bulk stream has to be synced before the commit frame is written.
    mark: BulkPosition,
}

impl Spill {
    pub fn new(log: Arc<Log>, pins: Arc<SpillPins>, snapshot: SlotRef, since_ns: u64) -> Spill {
        let id = log.new_spill();
        Spill {
            log,
            pins,
            id,
            next_ordinal: 0,
            chunks: Vec::new(),
            bytes: 0,
            snapshot,
            since_ns,
            mark: BulkPosition::default(),
        }
    }

    fn append(&mut self, ordinal: u32, bytes: &[u8], owner: Option<ValueOwner<'_>>) -> Result<Lsn> {
        let on_segment = |segment| self.pins.pin(self.id, Some(&self.snapshot), segment, self.since_ns);
        let (lsn, mark) = self.log.append_chunk(self.id, ordinal, bytes, owner, on_segment).or_error()?;
        self.mark = mark;
        self.bytes += bytes.len();
        Ok(lsn)
    }

    /// How many bytes it has written ahead.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes a value ahead; it is durable after [`Spill::sync`]. The returned `OutOfLine` has the partial checksum.
    pub fn value(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(ChunksRef, OutOfLine)> {
        let checksum = value_checksum(table, key, &[value]);
        let owner = ValueOwner { table, key };
        let (chunks, extents) = self.write(value, checksum, Some(owner))?;
        Ok((chunks, OutOfLine { len: value.len() as u64, checksum, extents }))
    }

    /// Writes an operation list ahead.
    pub fn body(&mut self, body: &[u8], crc: u32) -> Result<ChunksRef> {
        Ok(self.write(body, crc, None)?.0)
    }

    fn write(
        &mut self,
        bytes: &[u8],
        checksum: u32,
        owner: Option<ValueOwner<'_>>,
    ) -> Result<(ChunksRef, Vec<Extent>)> {
        let ordinal = self.next_ordinal;
        let chunks = ChunksRef { spill: self.id, ordinal, len: bytes.len() as u64, checksum };
        check_ordinals(ordinal, chunks.count())?;
        let mut extents = Vec::with_capacity(chunks.count() as usize);
        for chunk in bytes.chunks(limits::CHUNK_BYTES_MAX) {
            let lsn = self.append(self.next_ordinal, chunk, owner)?;
            let len = chunk.len() as u32;
            self.chunks.push(ChunkRef { spill: self.id, ordinal: self.next_ordinal, lsn, len });
            extents.push(Extent { lsn, len });
            self.next_ordinal += 1;
        }
        Ok((chunks, extents))
    }

    /// The references to the chunks, for the group of the commit.
    pub fn references(&mut self) -> Result<Vec<ChunkRef>> {
        let chunks = std::mem::take(&mut self.chunks);
        let on_segment = |segment| self.pins.pin(self.id, Some(&self.snapshot), segment, self.since_ns);
        let (references, mark) = self.log.list_chunks(self.id, chunks, &on_segment).or_error()?;
        self.mark = self.mark.max(mark);
        Ok(references)
    }

    /// Makes the whole spill durable.
    pub fn sync(&self) -> Result<()> {
        self.log.sync_bulk_to(self.mark).or_error()
    }

    /// The position up to which the bulk stream has to be synced before the commit frame is written.
    pub fn position(&self) -> BulkPosition {
        self.mark
    }

    /// The commit has its CSN: its pins stay until checkpoints cover it.
    pub fn committed(self, csn: Csn) {
        self.pins.committed(csn, self.id);
        self.log.note_chunks(csn, self.bytes as u64);
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.pins.unpin_spill(self.id);
    }
}

/// Fails for more chunks than a transaction may write ahead: the ordinals above are those of lists of chunks.
fn check_ordinals(first: u32, count: u32) -> Result<()> {
    let end = u64::from(first) + u64::from(count);
    let max = u64::from(limits::LISTS_ORDINAL_MIN);
    if end <= max {
        return Ok(());
    }
    let bytes = |chunks: u64| chunks as usize * limits::CHUNK_BYTES_MAX;
    Err(crate::Error::TooLarge { bytes: bytes(end), max: bytes(max) })
}

/// Where the chunks are to which a commit of the log refers.
#[derive(Default)]
pub(crate) struct ChunkRefs {
    chunk_refs: Vec<ChunkRef>,
    by_ordinal: BTreeMap<u32, usize>,
}

impl ChunkRefs {
    /// `chunk_refs`: with lists of references resolved ([`Log::resolve_chunks`]).
    pub fn new(chunk_refs: Vec<ChunkRef>) -> ChunkRefs {
        let by_ordinal = chunk_refs.iter().enumerate().map(|(index, chunk)| (chunk.ordinal, index)).collect();
        ChunkRefs { chunk_refs, by_ordinal }
    }

    fn of(&self, chunks: &ChunksRef, csn: Csn) -> Result<Vec<&ChunkRef>> {
        let chunk = |index: u32| {
            let ordinal = chunks.ordinal + index;
            let chunk = self.by_ordinal.get(&ordinal).map(|&index| &self.chunk_refs[index]);
            chunk.filter(|chunk| chunk.spill == chunks.spill && chunk.len == chunks.chunk_len(index)).ok_or_else(|| {
                Error::from(Damage::new(format!(
                    "commit {csn} refers to chunk {ordinal} of a transaction, and the log does not say where it is"
                )))
                .of_commit(csn)
            })
        };
        (0..chunks.count()).map(chunk).collect()
    }

    /// The value of commit `csn` that is in these chunks. Its checksum is that of `chunks`.
    pub fn value(&self, chunks: &ChunksRef, csn: Csn) -> Result<OutOfLine> {
        let chunk_refs = self.of(chunks, csn)?.into_iter();
        let extents = chunk_refs.map(|chunk| Extent { lsn: chunk.lsn, len: chunk.len }).collect();
        Ok(OutOfLine { len: chunks.len, checksum: chunks.checksum, extents })
    }

    /// The operation list of commit `csn` that is in these chunks, whose frame's body is at `body_lsn`.
    pub fn operations(&self, log: &Log, chunks: &ChunksRef, csn: Csn, body_lsn: Lsn) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(chunks.len as usize);
        for chunk in self.of(chunks, csn)? {
            bytes.extend_from_slice(&log.read_chunk(chunk).or_error()?);
        }
        if crc32c(&bytes) != chunks.checksum {
            let what = format!("the operations of commit {csn}, in chunks, fail their checksum");
            return Err(Error::of_log(log.damage_at(body_lsn, what)).of_commit(csn));
        }
        Ok(bytes)
    }
}

/// The body of a frame whose operations are in chunks.
pub(crate) fn decode_chunks_body(log: &Log, body: &[u8], csn: Csn, body_lsn: Lsn) -> Result<ChunksRef> {
    body::decode_chunks_body(body).map_err(|error| {
        let what = format!("the body of commit {csn} does not decode: {error}");
        Error::of_log(log.damage_at(body_lsn, what)).of_commit(csn)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_writes_ahead_no_more_chunks_than_have_ordinals() {
        let max = limits::LISTS_ORDINAL_MIN;
        assert!(check_ordinals(0, max).is_ok() && check_ordinals(max - 1, 1).is_ok());
        assert!(check_ordinals(1, max).is_err() && check_ordinals(max, 1).is_err());
        assert!(check_ordinals(u32::MAX, u32::MAX).is_err());
    }
}
