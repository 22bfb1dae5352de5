//! Whose value bytes in the bulk stream are: what moves the bytes finds from them the key that refers to them.
//!
//! The owner stands behind the bytes, so that their place in the record does not depend on the length of the key.

use std::ops::Range;

use super::{BULK_HEADER_BYTES, BulkKind, SpillId};
use fulgurite_types::{Csn, DecodeError, Lsn, Reader, TableId, Writer, limits};

/// The spill id and the ordinal, which precede a chunk's bytes in the record's body.
pub(crate) const CHUNK_HEAD_BYTES: u32 = SpillId::BYTES as u32 + 4;

/// The table and the length of the key.
const OWNER_BYTES: usize = 8;
const CSN_BYTES: usize = 8;

/// Whose value it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueOwner<'a> {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
}

impl ValueOwner<'_> {
    /// What follows the bytes of a chunk. The last eight bytes say how long the key before them is.
    pub(crate) fn after_chunk(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.key.len() + OWNER_BYTES);
        out.extend_from_slice(self.key);
        self.put(&mut out);
        out
    }

    /// What follows the bytes of a value that commit `csn` wrote.
    pub(crate) fn after_moved(&self, csn: Csn) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.key.len() + CSN_BYTES + OWNER_BYTES);
        out.extend_from_slice(self.key);
        out.put_u64(csn.0);
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.table.0);
        out.put_u32(self.key.len() as u32);
    }
}

/// Bytes of a value in a record of the bulk stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedBytes<'a> {
    /// Whose value it is.
    pub owner: ValueOwner<'a>,
    /// The commit that wrote it; `None` in a chunk, which was written before its commit had a number.
    pub csn: Option<Csn>,
    /// Where the bytes are in the record's body.
    pub range: Range<usize>,
}

impl<'a> OwnedBytes<'a> {
    /// The bytes of a value in the body of a record; `None` for a record that has none.
    ///
    /// # Errors
    /// If the body does not decode.
    pub fn decode(kind: BulkKind, body: &'a [u8]) -> Result<Option<OwnedBytes<'a>>, DecodeError> {
        let (start, csn_bytes) = match kind {
            BulkKind::ValueChunk => (CHUNK_HEAD_BYTES as usize, 0),
            BulkKind::MovedValue => (0, CSN_BYTES),
            _ => return Ok(None),
        };
        let wrong = |field| DecodeError { field, offset: body.len().saturating_sub(OWNER_BYTES) };
        let (rest, owner) =
            body.split_last_chunk::<OWNER_BYTES>().ok_or_else(|| wrong("owner of the value"))?;
        let mut reader = Reader::new(owner);
        let table = TableId(reader.u32("table of the value")?);
        let key_bytes = reader.u32("key length of the value")? as usize;
        let (rest, csn) = rest
            .split_at_checked(rest.len().wrapping_sub(csn_bytes))
            .ok_or_else(|| wrong("CSN of the value"))?;
        let csn = if csn_bytes == 0 { None } else { Some(Csn(Reader::new(csn).u64("CSN of the value")?)) };
        let end = rest
            .len()
            .checked_sub(key_bytes)
            .filter(|end| *end >= start && key_bytes <= limits::KEY_BYTES_MAX);
        let end = end.ok_or_else(|| wrong("key length of the value"))?;
        let owner = ValueOwner { table, key: &rest[end..] };
        Ok(Some(OwnedBytes { owner, csn, range: start..end }))
    }
}

impl OwnedBytes<'_> {
    /// The LSN of the bytes in the record at `record`.
    pub fn lsn(&self, record: Lsn) -> Lsn {
        record.advance(BULK_HEADER_BYTES + self.range.start as u32)
    }

    /// How many bytes there are.
    pub fn len(&self) -> u32 {
        self.range.len() as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_types::Epoch;

    const OWNER: ValueOwner<'static> = ValueOwner { table: TableId(300), key: b"key" };

    #[test]
    fn golden_bytes() {
        assert_eq!(OWNER.after_chunk(), b"key\x2c\x01\0\0\x03\0\0\0");
        assert_eq!(OWNER.after_moved(Csn(5)), b"key\x05\0\0\0\0\0\0\0\x2c\x01\0\0\x03\0\0\0");
    }

    #[test]
    fn the_owner_of_bytes_is_found() {
        let mut chunk = Vec::new();
        SpillId { node: 0, epoch: Epoch(3), counter: 9 }.encode(&mut chunk);
        chunk.extend_from_slice(b"\x07\0\0\0value");
        chunk.extend_from_slice(&OWNER.after_chunk());
        let found = OwnedBytes::decode(BulkKind::ValueChunk, &chunk).unwrap().unwrap();
        assert_eq!((&chunk[found.range.clone()], found.owner, found.csn), (&b"value"[..], OWNER, None));
        assert_eq!(found.lsn(Lsn::new(4, 96)), Lsn::new(4, 96 + 24 + 20));

        let moved = [&b"bytes"[..], &OWNER.after_moved(Csn(5))].concat();
        let found = OwnedBytes::decode(BulkKind::MovedValue, &moved).unwrap().unwrap();
        assert_eq!(
            (&moved[found.range.clone()], found.owner, found.csn),
            (&b"bytes"[..], OWNER, Some(Csn(5)))
        );
        assert_eq!(found.lsn(Lsn::new(4, 96)), Lsn::new(4, 96 + 24));
        assert_eq!(OwnedBytes::decode(BulkKind::Chunk, &chunk), Ok(None));
    }

    #[test]
    fn a_short_or_wrong_body_is_refused() {
        let moved = [&b"bytes"[..], &OWNER.after_moved(Csn(5))].concat();
        for kind in [BulkKind::ValueChunk, BulkKind::MovedValue] {
            for from in 0..=moved.len() {
                if let Ok(Some(found)) = OwnedBytes::decode(kind, &moved[from..]) {
                    assert!(found.range.end <= moved.len() - from);
                }
            }
            assert!(OwnedBytes::decode(kind, &[]).is_err());
            assert!(OwnedBytes::decode(kind, &[0xff; 40]).is_err());
        }
    }
}
