//! Spills: values and operation lists that a transaction writes ahead, in chunks, off the commit path.

use std::sync::Arc;

use fulgurite_index::{Extent, OutOfLine};
use fulgurite_log::{BulkPosition, ChunkRef, Log, SpillId, ValueOwner};
use fulgurite_types::{Csn, Lsn, TableId, limits, value_checksum};

use crate::Result;
use crate::body::ChunksRef;
use crate::error::OrError;
use crate::snapshots::SlotRef;
use crate::space::pins::SpillPins;

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
        let on_segment = |segment| self.pins.pin(self.id, &self.snapshot, segment, self.since_ns);
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

    /// The references to the chunks, for the group of the commit. A long list is itself written ahead, and the
    /// references to its own chunks are returned, with ordinals from `u32::MAX` down.
    pub fn references(&mut self) -> Result<Vec<ChunkRef>> {
        let mut references = std::mem::take(&mut self.chunks);
        let mut level_ordinal = u32::MAX;
        while references.len() > limits::DIRECT_CHUNKS_MAX {
            let mut upper = Vec::new();
            for chunk in references.chunks(limits::CHUNK_BYTES_MAX / ChunkRef::BYTES) {
                let mut bytes = Vec::with_capacity(chunk.len() * ChunkRef::BYTES);
                for reference in chunk {
                    reference.encode(&mut bytes);
                }
                let lsn = self.append(level_ordinal, &bytes, None)?;
                upper.push(ChunkRef { spill: self.id, ordinal: level_ordinal, lsn, len: bytes.len() as u32 });
                level_ordinal -= 1;
            }
            references = upper;
        }
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

/// All references to chunks of a recovered commit, with lists of references resolved.
pub(crate) fn resolve_references(log: &Log, references: &[ChunkRef]) -> Result<Vec<ChunkRef>> {
    let mut resolved = Vec::with_capacity(references.len());
    for reference in references {
        if reference.ordinal < limits::LISTS_ORDINAL_MIN {
            resolved.push(*reference);
            continue;
        }
        let bytes = log.read_chunk(reference).or_error()?;
        let mut lower = Vec::new();
        let mut reader = fulgurite_types::Reader::new(&bytes);
        while !reader.is_empty() {
            lower.push(ChunkRef::decode(&mut reader).map_err(|error| {
                let what = format!("the list of chunks does not decode: {error}");
                crate::Error::of_log(log.damage_at(reference.lsn, what))
            })?);
        }
        resolved.extend(resolve_references(log, &lower)?);
    }
    Ok(resolved)
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
