//! A group's header. A group is the unit of writing, and of replication: an entry of a replicated log is a group.

use super::segment::SEGMENT_DATA_START;
use fulgurite_types::{Crc32c, Csn, DatabaseId, DecodeError, EntryId, Epoch, Reader};

/// The length of the header of a group that is written to the commit stream.
pub const GROUP_HEADER_BYTES: u32 = GroupFormat::Replicable.header_bytes();

/// The length of the group with which a segment of the bulk stream begins.
pub(crate) const BULK_START_BYTES: u32 = GroupFormat::Local.header_bytes();

/// The least that is read to decode a header: as long as the shortest.
pub(crate) const GROUP_HEADER_BYTES_MIN: u32 = GroupFormat::Local.header_bytes();

/// Groups and bulk records begin at multiples of this.
pub(crate) const GROUP_ALIGN: u32 = 8;

pub(crate) const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"Fgrp");

/// The formats of headers. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GroupFormat {
    /// Without an entry: what programs wrote before there was replication, and the start of a segment of the bulk stream.
    Local = 1,
    /// With an entry, and with the agreed one.
    Replicable = 2,
}

impl GroupFormat {
    /// The length of a header in this format.
    pub const fn header_bytes(self) -> u32 {
        self.crc_at() as u32 + 8
    }

    /// The offset of the checksum in it.
    const fn crc_at(self) -> usize {
        match self {
            GroupFormat::Local => 64,
            GroupFormat::Replicable => 96,
        }
    }
}

/// The kinds of groups. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GroupKind {
    /// Frames, some preceded by a local record.
    Frames = 1,
    /// The beginning of an epoch; always the first group of a segment.
    EpochStart = 2,
    /// The end of a segment: names the segment in which the stream continues.
    SegmentEnd = 3,
    /// No payload: a fresh durable mark.
    Mark = 4,
    /// The segment belongs to the bulk stream; records follow, not groups.
    BulkStart = 5,
    /// An entry without frames: the first of a leader.
    Blank = 6,
    /// An entry without frames: the members of the cluster, as bytes that the log does not interpret.
    Members = 7,
}

impl GroupKind {
    fn from_u8(value: u8) -> Option<GroupKind> {
        match value {
            1 => Some(GroupKind::Frames),
            2 => Some(GroupKind::EpochStart),
            3 => Some(GroupKind::SegmentEnd),
            4 => Some(GroupKind::Mark),
            5 => Some(GroupKind::BulkStart),
            6 => Some(GroupKind::Blank),
            7 => Some(GroupKind::Members),
            _ => None,
        }
    }

    /// Whether a group of this kind is an entry of a log that is replicated. The others are local.
    pub fn is_entry(self) -> bool {
        matches!(self, GroupKind::Frames | GroupKind::Blank | GroupKind::Members)
    }
}

/// What a quorum has durably: an entry's index, and the newest commit at or before it. Zeros in a log that is not replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Agreed {
    /// The entry's index.
    pub index: u64,
    /// The last commit of it and the entries before.
    pub csn: Csn,
}

/// A group's header. The checksum covers its segment, offset, database and epoch, so that no leftover of a recycled or
/// copied file passes for a group of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The format of the header itself.
    pub format: GroupFormat,
    /// The kind of the payload.
    pub kind: GroupKind,
    /// The database of this log.
    pub database: DatabaseId,
    /// The epoch that wrote it.
    pub epoch: Epoch,
    /// The segment it was written to.
    pub segment: u32,
    /// The byte offset it was written to.
    pub offset: u32,
    /// The length of the payload in bytes, padding not counted.
    pub payload_bytes: u32,
    /// The CSN of the first frame; without frames, of the next frame.
    pub first_csn: Csn,
    /// How many frames the payload has.
    pub frames: u32,
    /// The segment in which the stream continues; 0 unless this is a segment end.
    pub next_segment: u32,
    /// The durable mark: the newest CSN that was known to be durable when this was written.
    pub durable: Csn,
    /// Its entry; of a group that is none, the last entry before it. Zeros before the first.
    pub entry: EntryId,
    /// What was known to be agreed when this was written.
    pub agreed: Agreed,
}

/// The bytes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedHeader {
    bytes: [u8; GROUP_HEADER_BYTES as usize],
    len: usize,
}

impl std::ops::Deref for EncodedHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where a group is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupAt {
    pub database: DatabaseId,
    pub segment: u32,
    pub offset: u32,
}

impl GroupHeader {
    /// The first group of a segment of the bulk stream.
    pub(crate) fn bulk_start(database: DatabaseId, epoch: Epoch, segment: u32, durable: Csn) -> GroupHeader {
        GroupHeader {
            format: GroupFormat::Local,
            kind: GroupKind::BulkStart,
            database,
            epoch,
            segment,
            offset: SEGMENT_DATA_START,
            payload_bytes: 0,
            first_csn: Csn::ZERO,
            frames: 0,
            next_segment: 0,
            durable,
            entry: EntryId::default(),
            agreed: Agreed::default(),
        }
    }

    /// The length of the header.
    pub fn header_bytes(&self) -> u32 {
        self.format.header_bytes()
    }

    /// The header's bytes for a payload given in one piece.
    pub fn encode(&self, payload: &[u8]) -> EncodedHeader {
        let mut bytes = [0; GROUP_HEADER_BYTES as usize];
        bytes[0..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        bytes[4] = self.format as u8;
        bytes[5] = self.kind as u8;
        bytes[8..24].copy_from_slice(&self.database.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.segment.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.offset.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_csn.0.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.frames.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.next_segment.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.durable.0.to_le_bytes());
        if self.format == GroupFormat::Replicable {
            bytes[64..72].copy_from_slice(&self.entry.term.to_le_bytes());
            bytes[72..80].copy_from_slice(&self.entry.index.to_le_bytes());
            bytes[80..88].copy_from_slice(&self.agreed.index.to_le_bytes());
            bytes[88..96].copy_from_slice(&self.agreed.csn.0.to_le_bytes());
        }
        let crc_at = self.format.crc_at();
        let crc = Crc32c::new().update(&bytes[..crc_at]).update(payload).finish();
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        EncodedHeader { bytes, len: self.header_bytes() as usize }
    }

    /// Reads a header without its payload and unchecked: enough to know the group's claimed length, no more.
    pub fn decode_unchecked(bytes: &[u8]) -> Result<GroupHeader, DecodeError> {
        let mut reader = Reader::new(bytes);
        let wrong = |field, offset| Err(DecodeError { field, offset });
        if reader.u32("magic")? != GROUP_MAGIC {
            return wrong("magic", 0);
        }
        let format = match reader.u8("format")? {
            1 => GroupFormat::Local,
            2 => GroupFormat::Replicable,
            _ => return wrong("format", 4),
        };
        let Some(kind) = GroupKind::from_u8(reader.u8("kind")?) else {
            return wrong("kind", 5);
        };
        if reader.u16("reserved")? != 0 {
            return wrong("reserved", 6);
        }
        let mut header = GroupHeader {
            format,
            kind,
            database: DatabaseId(reader.u128("database id")?),
            epoch: Epoch(reader.u32("epoch")?),
            segment: reader.u32("segment")?,
            offset: reader.u32("offset")?,
            payload_bytes: reader.u32("payload length")?,
            first_csn: Csn(reader.u64("first CSN")?),
            frames: reader.u32("frame count")?,
            next_segment: reader.u32("next segment")?,
            durable: Csn(reader.u64("durable CSN")?),
            entry: EntryId::default(),
            agreed: Agreed::default(),
        };
        if format == GroupFormat::Replicable {
            header.entry = EntryId { term: reader.u64("term")?, index: reader.u64("entry index")? };
            header.agreed =
                Agreed { index: reader.u64("agreed index")?, csn: Csn(reader.u64("agreed CSN")?) };
        }
        reader.u32("checksum")?;
        if reader.u32("reserved")? != 0 {
            return wrong("reserved", format.crc_at() + 4);
        }
        Ok(header)
    }

    /// What the header says about where the group is.
    pub(crate) fn at(&self) -> GroupAt {
        GroupAt { database: self.database, segment: self.segment, offset: self.offset }
    }

    /// Reads and checks the group at the start of `bytes`, which has to say that it is at `own`. Returns the header and
    /// the payload.
    pub(crate) fn decode_at(bytes: &[u8], own: GroupAt) -> Result<(GroupHeader, &[u8]), DecodeError> {
        let wrong = |field, offset| Err(DecodeError { field, offset });
        let header = GroupHeader::decode_unchecked(bytes)?;
        if header.at() != own {
            return wrong("database, segment or offset", 8);
        }
        let start = header.header_bytes() as usize;
        let Some(payload) = bytes.get(start..).and_then(|rest| rest.get(..header.payload_bytes as usize))
        else {
            return wrong("payload length", 36);
        };
        let crc_at = header.format.crc_at();
        let crc = Crc32c::new().update(&bytes[..crc_at]).update(payload).finish();
        if bytes[crc_at..crc_at + 4] != crc.to_le_bytes() {
            return wrong("checksum", crc_at);
        }
        Ok((header, payload))
    }

    /// Where the next group begins.
    ///
    /// # Panics
    /// If the header was not checked and its numbers overflow.
    pub fn end(&self) -> u32 {
        super::align8(self.offset + self.header_bytes() + self.payload_bytes)
    }

    /// The CSN of the last frame; without frames, the one before [`GroupHeader::first_csn`].
    pub fn last_csn(&self) -> Csn {
        Csn(self.first_csn.0.saturating_add(u64::from(self.frames)).saturating_sub(1))
    }
}

/// Whether bytes that are no valid group at `own` seem to be one that was damaged: they say that they are there, or would be
/// valid if they did. What a recycled file held says that it is elsewhere.
pub(crate) fn seems_a_group(bytes: &[u8], own: GroupAt) -> bool {
    let header = &bytes[..bytes.len().min(GROUP_HEADER_BYTES as usize)];
    if header.len() < GROUP_HEADER_BYTES_MIN as usize {
        return false;
    }
    let mut placed = header.to_vec();
    placed[8..24].copy_from_slice(&own.database.0.to_le_bytes());
    placed[28..32].copy_from_slice(&own.segment.to_le_bytes());
    placed[32..36].copy_from_slice(&own.offset.to_le_bytes());
    if placed == header {
        return true;
    }
    let claimed = GroupHeader::decode_unchecked(&placed).map_or(0, |claimed| {
        (claimed.header_bytes() as usize).saturating_add(claimed.payload_bytes as usize)
    });
    placed.extend_from_slice(bytes.get(header.len()..claimed).unwrap_or_default());
    GroupHeader::decode_at(&placed, own).is_ok()
}
