//! What the fuzz targets of `crates/fuzz` need of the log: decoders over any bytes, and checksums made right, so that
//! the inputs reach the code after them.

use crate::format::{
    BULK_HEADER_BYTES, BulkHeader, BulkKind, EpochStart, FRAME_HEADER_BYTES, FrameHeader, GroupHeader,
    GroupKind, Records, SEGMENT_DATA_START, SegmentHeader, align8, bulk_record_bytes, encode_local_record,
    local_record_bytes,
};
use crate::scan::SegmentScan;
use fulgurite_types::{Crc32c, Lsn, Reader, crc32c};
use std::collections::HashMap;

/// Decodes a whole segment as `dump` and `check` do.
pub fn segment(bytes: &[u8]) {
    let mut scan = SegmentScan::default();
    scan.decode(bytes, &mut |_| {});
    assert!(scan.used_bytes <= align8(bytes.len() as u32).max(SEGMENT_DATA_START));
    if let Ok(header) = SegmentHeader::decode(bytes) {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
}

/// Decodes one group, and its payload.
pub fn group(bytes: &[u8]) {
    let Ok(claimed) = GroupHeader::decode_unchecked(bytes) else { return };
    let own = claimed.at();
    let Ok((header, payload)) = GroupHeader::decode_at(bytes, own) else { return };
    assert_eq!(*header.encode(payload), bytes[..header.header_bytes() as usize]);
    assert!(header.last_csn().next() >= header.first_csn || header.frames == 0);
    frames(payload);
    epoch_start(payload);
}

/// Decodes the beginning of an epoch.
pub fn epoch_start(bytes: &[u8]) {
    if let Ok(start) = EpochStart::decode(bytes) {
        assert_eq!(start.encode(), bytes);
    }
}

/// Decodes the records of a group's payload: what decodes is encoded to the same bytes.
pub fn frames(payload: &[u8]) {
    let mut end = 0;
    for record in Records::new(payload) {
        let Ok(record) = record else { return };
        let mut encoded = Vec::new();
        if !record.local.is_empty() {
            encode_local_record(&record.local, &mut encoded);
        }
        encoded.extend_from_slice(&record.header.encode());
        encoded.extend_from_slice(record.body);
        assert_eq!(encoded, payload[end..end + encoded.len()]);
        end += encoded.len();
    }
    assert_eq!(end, payload.len());
}

/// Decodes one record of the bulk stream.
pub fn bulk(bytes: &[u8]) {
    let Some(lsn) = bytes.get(8..).and_then(|rest| rest.first_chunk()) else { return };
    let Ok(header) = BulkHeader::decode(bytes, Lsn(u64::from_le_bytes(*lsn))) else { return };
    let (head, rest) = bytes.split_at(BULK_HEADER_BYTES as usize);
    let Some(body) = rest.get(..header.body_bytes as usize) else { return };
    let database = fulgurite_types::DatabaseId(7);
    let encoded = header.encode(database, &[body]);
    assert_eq!(encoded[..16], head[..16]);
    assert_eq!(header.check(database, &encoded, body), Ok(()));
}

/// Makes the checksums of the group at the start of `bytes` right, those of its frames too. Returns its kind, and where
/// the next one begins.
pub fn seal_group(bytes: &mut [u8]) -> Option<(GroupKind, usize)> {
    let header = GroupHeader::decode_unchecked(bytes).ok()?;
    let start = header.header_bytes() as usize;
    let end = start.checked_add(header.payload_bytes as usize).filter(|&end| end <= bytes.len())?;
    if header.kind == GroupKind::Frames {
        seal_frames(&mut bytes[start..end]);
    }
    let crc_at = start - 8;
    let crc = Crc32c::new().update(&bytes[..crc_at]).update(&bytes[start..end]).finish();
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    Some((header.kind, align8(end as u32) as usize))
}

/// Makes the checksums of a payload's frames and local records right.
pub fn seal_frames(payload: &mut [u8]) {
    let mut rest = payload;
    while !rest.is_empty() {
        let len = if rest[0] == 0x80 { seal_local(rest) } else { seal_frame(rest) };
        match len.and_then(|len| rest.get_mut(len..)) {
            Some(after) => rest = after,
            None => return,
        }
    }
}

fn seal_local(bytes: &mut [u8]) -> Option<usize> {
    let len = local_record_bytes(u16::from_le_bytes(*bytes.get(2..)?.first_chunk()?)) as usize;
    let crc = Crc32c::new().update(bytes.get(..4)?).update(bytes.get(8..len)?).finish();
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    Some(len)
}

fn seal_frame(bytes: &mut [u8]) -> Option<usize> {
    let start = FRAME_HEADER_BYTES as usize;
    let body_bytes = u32::from_le_bytes(*bytes.get(4..start)?.first_chunk()?) as usize;
    let end = start + body_bytes;
    let body_crc = crc32c(bytes.get(start..end)?);
    bytes[32..36].copy_from_slice(&body_crc.to_le_bytes());
    let crc = crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    FrameHeader::decode(&mut Reader::new(bytes)).ok().map(|_| end)
}

/// Makes the checksums of a segment right: of its header, and of its groups or bulk records as far as their lengths
/// lead from one to the next. A checkpoint record's own checksum too, if it is in this segment.
pub fn seal_segment(bytes: &mut [u8]) {
    if bytes.len() < SEGMENT_DATA_START as usize {
        return;
    }
    let crc = crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    let Ok(segment) = SegmentHeader::decode(bytes) else { return };
    let mut offset = SEGMENT_DATA_START as usize;
    let mut is_bulk = false;
    while let Some((kind, len)) = bytes.get_mut(offset..).and_then(seal_group) {
        offset += len;
        is_bulk |= kind == GroupKind::BulkStart;
        if is_bulk {
            break;
        }
    }
    let mut chunks = HashMap::new();
    while is_bulk && let Some(rest) = bytes.get_mut(offset..) {
        let lsn = Lsn::new(segment.number, offset as u32);
        let Ok(header) = BulkHeader::decode(rest, lsn) else { return };
        let (head, rest) = rest.split_at_mut(BULK_HEADER_BYTES as usize);
        let Some(body) = rest.get_mut(..header.body_bytes as usize) else { return };
        if header.kind == BulkKind::Checkpoint {
            seal_checkpoint_index(body, &chunks);
            chunks.insert(lsn.0, body.to_vec());
        }
        head.copy_from_slice(&header.encode(segment.database, &[body]));
        offset += bulk_record_bytes(header.body_bytes) as usize;
    }
}

/// Seals `body` if it is the index of a checkpoint record, a checksum and the LSNs of `chunks`.
fn seal_checkpoint_index(body: &mut [u8], chunks: &HashMap<u64, Vec<u8>>) {
    let Some((crc, lsns)) = body.split_at_mut_checked(4) else { return };
    let mut whole = Crc32c::new();
    for lsn in lsns.as_chunks().0 {
        let Some(chunk) = chunks.get(&u64::from_le_bytes(*lsn)) else { return };
        whole.update(chunk);
    }
    crc.copy_from_slice(&whole.finish().to_le_bytes());
}
