//! Records of the bulk stream.

use super::{GROUP_ALIGN, align8};
use fulgurite_types::{Crc32c, DatabaseId, DecodeError, Lsn, Reader};

/// The length of a bulk record's header.
pub const BULK_HEADER_BYTES: u32 = 24;

const CHECKED_BYTES: usize = 16;

/// The kinds of bulk records. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BulkKind {
    /// An internal node.
    InternalNode = 1,
    /// A leaf node.
    LeafNode = 2,
    /// A leaf's changed entries.
    LeafDelta = 3,
    /// A chunk of the operations of a large transaction: spill id, ordinal, bytes. Until garbage collection came, of a
    /// large value, too.
    Chunk = 4,
    /// A checkpoint's tables.
    Checkpoint = 5,
    /// A memtable, sorted.
    MemtableRun = 6,
    /// A chunk of a large value: spill id, ordinal, bytes, then whose value it is.
    ValueChunk = 7,
    /// Bytes of a value that were moved, then whose they are.
    MovedValue = 8,
}

impl BulkKind {
    /// Whether the body is a node of a tree, or the changes of one.
    pub fn is_node(self) -> bool {
        matches!(self, BulkKind::InternalNode | BulkKind::LeafNode | BulkKind::LeafDelta)
    }

    fn from_u8(value: u8) -> Option<BulkKind> {
        match value {
            1 => Some(BulkKind::InternalNode),
            2 => Some(BulkKind::LeafNode),
            3 => Some(BulkKind::LeafDelta),
            4 => Some(BulkKind::Chunk),
            5 => Some(BulkKind::Checkpoint),
            6 => Some(BulkKind::MemtableRun),
            7 => Some(BulkKind::ValueChunk),
            8 => Some(BulkKind::MovedValue),
            _ => None,
        }
    }
}

/// How many bytes a record with a body of `body` bytes takes in its segment.
pub(crate) const fn bulk_record_bytes(body: u32) -> u32 {
    align8(BULK_HEADER_BYTES + body)
}

/// The header of a bulk record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkHeader {
    /// The kind of the body.
    pub kind: BulkKind,
    /// How the body is compressed; 0 is not.
    pub codec: u8,
    /// Flags; none are defined.
    pub flags: u16,
    /// The length of the body in bytes.
    pub body_bytes: u32,
    /// The record's LSN.
    pub lsn: Lsn,
}

impl BulkHeader {
    /// The header's bytes, with the checksum over database, header and the pieces of the body.
    pub fn encode(&self, database: DatabaseId, body: &[&[u8]]) -> [u8; BULK_HEADER_BYTES as usize] {
        let mut bytes = [0; BULK_HEADER_BYTES as usize];
        bytes[0] = self.kind as u8;
        bytes[1] = self.codec;
        bytes[2..4].copy_from_slice(&self.flags.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.0.to_le_bytes());
        let crc = record_crc(database, &bytes, body);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header at `lsn`; [`BulkHeader::check`] checks the body.
    pub fn decode(bytes: &[u8], lsn: Lsn) -> Result<BulkHeader, DecodeError> {
        let mut reader = Reader::new(bytes);
        let wrong = |field, offset| Err(DecodeError { field, offset });
        let Some(kind) = BulkKind::from_u8(reader.u8("kind")?) else {
            return wrong("kind", 0);
        };
        let header = BulkHeader {
            kind,
            codec: reader.u8("codec")?,
            flags: reader.u16("flags")?,
            body_bytes: reader.u32("body length")?,
            lsn: Lsn(reader.u64("own LSN")?),
        };
        reader.u32("checksum")?;
        if reader.u32("reserved")? != 0 {
            return wrong("reserved", 20);
        }
        if header.lsn != lsn {
            return wrong("own LSN", 8);
        }
        Ok(header)
    }

    /// Checks a whole record, header first.
    pub fn check(&self, database: DatabaseId, header: &[u8], body: &[u8]) -> Result<(), &'static str> {
        let crc = record_crc(database, header, &[body]);
        if header.get(16..20) == Some(&crc.to_le_bytes()) {
            return Ok(());
        }
        Err("the record's checksum does not match its bytes")
    }
}

/// The header of the record at the start of `bytes`, which has to be whole and valid; or what is wrong.
pub(crate) fn check_record(bytes: &[u8], lsn: Lsn, database: DatabaseId) -> Result<BulkHeader, String> {
    let header =
        BulkHeader::decode(bytes, lsn).map_err(|error| format!("there is no valid record: {error}"))?;
    let (head, rest) = bytes.split_at(BULK_HEADER_BYTES as usize);
    let body = rest.get(..header.body_bytes as usize).ok_or("the record is longer than its segment")?;
    header.check(database, head, body).map_err(|error| format!("the record is not valid: {error}"))?;
    Ok(header)
}

/// Where the LSN is in a header.
const LSN_AT: usize = 8;

/// Whether bytes that are no valid record at `lsn` look like one that was there and is damaged: they have its LSN, or
/// are valid but for the LSN. What a file held before it became the segment has other LSNs.
pub(crate) fn looks_damaged(bytes: &[u8], lsn: Lsn, database: DatabaseId) -> bool {
    if has_lsn(bytes, lsn) {
        return true;
    }
    let Some((head, rest)) = bytes.split_at_checked(BULK_HEADER_BYTES as usize) else { return false };
    let mut head = head.to_vec();
    head[LSN_AT..LSN_AT + 8].copy_from_slice(&lsn.0.to_le_bytes());
    let header = BulkHeader::decode(&head, lsn);
    let body = header.as_ref().ok().and_then(|header| rest.get(..header.body_bytes as usize));
    header.is_ok_and(|header| body.is_some_and(|body| header.check(database, &head, body).is_ok()))
}

/// Whether the bytes begin as the header of the record at `lsn`, as far as its LSN tells.
fn has_lsn(bytes: &[u8], lsn: Lsn) -> bool {
    bytes.get(LSN_AT..LSN_AT + 8) == Some(&lsn.0.to_le_bytes())
}

/// The last offset at which `bytes`, which begin at `lsn`, seem to have the header of a record.
pub(crate) fn last_header(bytes: &[u8], lsn: Lsn) -> Option<u32> {
    let offsets = (0..bytes.len() as u32).step_by(GROUP_ALIGN as usize);
    offsets.rev().find(|offset| has_lsn(&bytes[*offset as usize..], lsn.advance(*offset)))
}

fn record_crc(database: DatabaseId, header: &[u8], body: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&database.0.to_le_bytes()).update(header.get(..CHECKED_BYTES).unwrap_or_default());
    for piece in body {
        crc.update(piece);
    }
    crc.finish()
}
