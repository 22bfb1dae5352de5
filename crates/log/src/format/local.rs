//! The local record: the LSNs, on this node's disk, of the chunks of the frame that follows it.

use fulgurite_types::{Crc32c, DecodeError, Epoch, Lsn, Reader, Writer};

/// The first byte of a local record.
pub(crate) const LOCAL_TAG: u8 = 0x80;
const LOCAL_HEADER_BYTES: u32 = 8;
const ENTRY_BYTES: u32 = 32;

/// The identity of one write-ahead of chunks; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpillId {
    /// The node that wrote it; 0 on a single node.
    pub node: u32,
    /// The epoch of that node.
    pub epoch: Epoch,
    /// A counter within the epoch.
    pub counter: u64,
}

impl SpillId {
    /// The length of [`SpillId::encode`].
    pub const BYTES: usize = 16;

    /// Appends node, epoch and counter.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_u32(self.node);
        out.put_u32(self.epoch.0);
        out.put_u64(self.counter);
    }

    /// Reads what [`SpillId::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<SpillId, DecodeError> {
        Ok(SpillId {
            node: reader.u32("spill node")?,
            epoch: Epoch(reader.u32("spill epoch")?),
            counter: reader.u64("spill counter")?,
        })
    }
}

/// A reference to one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// The write-ahead that it belongs to.
    pub spill: SpillId,
    /// The chunk's ordinal in it.
    pub ordinal: u32,
    /// The LSN of its bytes.
    pub lsn: Lsn,
    /// Its length in bytes.
    pub len: u32,
}

impl ChunkRef {
    /// The length of [`ChunkRef::encode`].
    pub const BYTES: usize = ENTRY_BYTES as usize;

    /// Appends spill, ordinal, LSN and length.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_bytes(&encode_entry(self));
    }

    /// Reads what [`ChunkRef::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> Result<ChunkRef, DecodeError> {
        Ok(ChunkRef {
            spill: SpillId::decode(reader)?,
            ordinal: reader.u32("ordinal")?,
            lsn: Lsn(reader.u64("chunk LSN")?),
            len: reader.u32("chunk length")?,
        })
    }
}

/// How many bytes the local record of `chunks` chunks takes; none for none.
pub const fn local_record_bytes(chunks: u16) -> u32 {
    if chunks == 0 { 0 } else { LOCAL_HEADER_BYTES + chunks as u32 * ENTRY_BYTES }
}

/// Appends the record: tag, zero, count, checksum over all else, entries.
///
/// # Panics
/// With more than 65535 chunks: the caller counted them for its admission.
pub(crate) fn encode_local_record(chunks: &[ChunkRef], out: &mut impl Writer) {
    let count = u16::try_from(chunks.len()).expect("a local record counts its chunks in 16 bits");
    let [low, high] = count.to_le_bytes();
    let head = [LOCAL_TAG, 0, low, high];
    let mut crc = Crc32c::new();
    crc.update(&head);
    for chunk in chunks {
        crc.update(&encode_entry(chunk));
    }
    out.put_bytes(&head);
    out.put_u32(crc.finish());
    for chunk in chunks {
        out.put_bytes(&encode_entry(chunk));
    }
}

fn encode_entry(chunk: &ChunkRef) -> [u8; ENTRY_BYTES as usize] {
    let mut bytes = [0; ENTRY_BYTES as usize];
    bytes[0..4].copy_from_slice(&chunk.spill.node.to_le_bytes());
    bytes[4..8].copy_from_slice(&chunk.spill.epoch.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&chunk.spill.counter.to_le_bytes());
    bytes[16..20].copy_from_slice(&chunk.ordinal.to_le_bytes());
    bytes[20..28].copy_from_slice(&chunk.lsn.0.to_le_bytes());
    bytes[28..32].copy_from_slice(&chunk.len.to_le_bytes());
    bytes
}

fn record_crc(record: &[u8]) -> u32 {
    Crc32c::new().update(&record[..4]).update(&record[LOCAL_HEADER_BYTES as usize..]).finish()
}

/// Reads one local record.
pub(crate) fn decode_local_record(reader: &mut Reader<'_>) -> Result<Vec<ChunkRef>, DecodeError> {
    let wrong = reader.error("local record");
    let header = reader.clone().bytes(LOCAL_HEADER_BYTES as usize, "local record")?;
    let count = u16::from_le_bytes([header[2], header[3]]);
    let crc = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    if header[0] != LOCAL_TAG || header[1] != 0 || count == 0 {
        return Err(wrong);
    }
    let record = reader.bytes(local_record_bytes(count) as usize, "local record entries")?;
    if record_crc(record) != crc {
        return Err(wrong);
    }
    let mut entries = Reader::new(&record[LOCAL_HEADER_BYTES as usize..]);
    let mut chunks = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        chunks.push(ChunkRef::decode(&mut entries)?);
    }
    Ok(chunks)
}
