//! Frames, and the records of a group's payload.

use super::local::{ChunkRef, LOCAL_TAG, decode_local_record, encode_local_record};
use fulgurite_types::{Csn, DecodeError, Reader, crc32c};

/// The length of a frame's header.
pub const FRAME_HEADER_BYTES: u32 = 40;

/// The length of a frame with a body of `body_bytes`: the argument of [`CommitLog::admit`](crate::CommitLog::admit).
pub const fn frame_bytes(body_bytes: u32) -> u32 {
    FRAME_HEADER_BYTES + body_bytes
}

const VERSION: u8 = 1;
const CHECKED_BYTES: usize = 36;

/// The header of a frame: the same bytes on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of the body; the log does not interpret it.
    pub kind: u8,
    /// Flags of the body; the log does not interpret them.
    pub flags: u8,
    /// How the body is compressed; the log does not interpret it.
    pub codec: u8,
    /// The length of the body in bytes.
    pub body_bytes: u32,
    /// The commit's CSN.
    pub csn: Csn,
    /// The term of replication; 0 on a single node.
    pub term: u64,
    /// When the origin committed, in milliseconds since 1970.
    pub commit_time_ms: u64,
    /// CRC-32C of the body.
    pub body_crc: u32,
}

impl FrameHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES as usize] {
        let mut bytes = [0; FRAME_HEADER_BYTES as usize];
        bytes[0] = VERSION;
        bytes[1] = self.kind;
        bytes[2] = self.flags;
        bytes[3] = self.codec;
        bytes[4..8].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.csn.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.term.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.commit_time_ms.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32c(&bytes[..CHECKED_BYTES]);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads and checks a header, without its body.
    pub fn decode(reader: &mut Reader<'_>) -> Result<FrameHeader, DecodeError> {
        let wrong = reader.error("frame header");
        let bytes = reader.bytes(FRAME_HEADER_BYTES as usize, "frame header")?;
        let mut fields = Reader::new(bytes);
        if fields.u8("version")? != VERSION {
            return Err(wrong);
        }
        let header = FrameHeader {
            kind: fields.u8("kind")?,
            flags: fields.u8("flags")?,
            codec: fields.u8("codec")?,
            body_bytes: fields.u32("body length")?,
            csn: Csn(fields.u64("csn")?),
            term: fields.u64("term")?,
            commit_time_ms: fields.u64("commit time")?,
            body_crc: fields.u32("body checksum")?,
        };
        if fields.u32("header checksum")? != crc32c(&bytes[..CHECKED_BYTES]) {
            return Err(wrong);
        }
        Ok(header)
    }
}

/// One frame of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub header: FrameHeader,
    pub body: &'a [u8],
    /// Where the body begins in the payload.
    pub body_at: u32,
    pub local: Vec<ChunkRef>,
}

/// The chunks to which each frame refers that has a local record, by its CSN.
pub(crate) type LocalRecords = Vec<(Csn, Vec<ChunkRef>)>;

/// Takes the local records out of a payload. Returns the bytes that remain, or `None` if it has none, and the records. It does not check the frames.
pub(crate) fn take_local_records(payload: &[u8]) -> Result<(Option<Vec<u8>>, LocalRecords), DecodeError> {
    let mut reader = Reader::new(payload);
    let (mut rest, mut taken, mut copied) = (Vec::new(), Vec::new(), 0);
    while !reader.is_empty() {
        let local = match reader.clone().u8("record tag")? {
            LOCAL_TAG => {
                rest.extend_from_slice(&payload[copied..reader.position()]);
                let local = decode_local_record(&mut reader)?;
                copied = reader.position();
                local
            }
            _ => Vec::new(),
        };
        let header = FrameHeader::decode(&mut reader)?;
        reader.bytes(header.body_bytes as usize, "frame body")?;
        if !local.is_empty() {
            taken.push((header.csn, local));
        }
    }
    if taken.is_empty() {
        return Ok((None, taken));
    }
    rest.extend_from_slice(&payload[copied..]);
    Ok((Some(rest), taken))
}

/// Puts local records before the frames that they are of, in the order of their CSNs: undoes [`take_local_records`].
pub(crate) fn put_local_records(payload: &[u8], records: &LocalRecords) -> Result<Vec<u8>, DecodeError> {
    let mut reader = Reader::new(payload);
    let (mut whole, mut records) = (Vec::with_capacity(payload.len()), records.iter().peekable());
    while !reader.is_empty() {
        let start = reader.position();
        let header = FrameHeader::decode(&mut reader)?;
        reader.bytes(header.body_bytes as usize, "frame body")?;
        if let Some((_, local)) = records.next_if(|(csn, _)| *csn == header.csn) {
            encode_local_record(local, &mut whole);
        }
        whole.extend_from_slice(&payload[start..reader.position()]);
    }
    match records.next() {
        None => Ok(whole),
        Some(_) => Err(reader.error("frame of a local record")),
    }
}

/// The frames of a payload, checked one by one. Stops after the first error.
pub(crate) struct Records<'a> {
    reader: Reader<'a>,
    failed: bool,
}

impl<'a> Records<'a> {
    pub fn new(payload: &'a [u8]) -> Records<'a> {
        Records { reader: Reader::new(payload), failed: false }
    }

    fn read(&mut self) -> Result<Record<'a>, DecodeError> {
        let local = match self.reader.clone().u8("record tag")? {
            LOCAL_TAG => decode_local_record(&mut self.reader)?,
            _ => Vec::new(),
        };
        let header = FrameHeader::decode(&mut self.reader)?;
        let body_at = self.reader.position() as u32;
        let wrong = self.reader.error("frame body checksum");
        let body = self.reader.bytes(header.body_bytes as usize, "frame body")?;
        if crc32c(body) != header.body_crc {
            return Err(wrong);
        }
        Ok(Record { header, body, body_at, local })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.reader.is_empty() {
            return None;
        }
        let record = self.read();
        self.failed = record.is_err();
        Some(record)
    }
}
