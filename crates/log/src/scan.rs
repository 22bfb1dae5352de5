//! Decodes one segment file, as far as possible and without writing, for `dump` and `check`.

use crate::error::LogError;
use crate::format::{
    BULK_HEADER_BYTES, BulkHeader, ChunkRef, EpochStart, FrameHeader, GROUP_ALIGN, GROUP_MAGIC, GroupAt,
    GroupHeader, GroupKind, Records, SEGMENT_DATA_START, SegmentHeader, bulk_record_bytes, check_record,
    last_header, looks_damaged, seems_a_group,
};
use crate::segments::Stream;
use fulgurite_env::{Dir, Disk, File, OpenOptions};
use fulgurite_types::{DatabaseId, Lsn};
use std::path::{Path, PathBuf};

/// One item of a segment. `B` is the bytes of bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanItem<B = Vec<u8>> {
    /// A valid group; its frames follow.
    Group(GroupHeader),
    /// The start of an epoch, after its group.
    EpochStart(EpochStart),
    /// A frame.
    Frame {
        /// Its header.
        header: FrameHeader,
        /// Its body's LSN.
        body_lsn: Lsn,
        /// Its body.
        body: B,
        /// The extents of the chunks that it refers to.
        local: Vec<ChunkRef>,
    },
    /// A valid record of the bulk stream.
    Bulk {
        /// Its header.
        header: BulkHeader,
        /// Its body.
        body: B,
    },
}

/// Bytes that do not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanProblem {
    /// The byte offset in the file.
    pub offset: u64,
    /// The problem, in words.
    pub what: String,
}

/// A segment file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentScan {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Its header, if that is valid.
    pub header: Option<SegmentHeader>,
    /// The stream, from its first group.
    pub stream: Option<Stream>,
    /// The items that decode, in file order.
    pub items: Vec<ScanItem>,
    /// The bytes that do not. What follows the last valid item is no problem if it is zeros, or seems to be what the file held
    /// before it became this segment. A torn tail of the last segment is one here, because the file alone does not
    /// distinguish it from damage.
    pub problems: Vec<ScanProblem>,
    /// The end of the last valid item.
    pub used_bytes: u32,
}

/// Decodes a segment file without opening the log.
///
/// # Errors
/// [`LogError::Io`] if the file cannot be read; the result reports bytes that do not decode.
pub fn scan_segment(disk: &dyn Disk, path: &Path) -> Result<SegmentScan, LogError> {
    let file = disk.open(path, OpenOptions::Read).map_err(|source| LogError::io("read", path, source))?;
    scan(&*file, path)
}

/// Like [`scan_segment`], for a file in an open directory.
///
/// # Errors
/// [`LogError::Io`] if the file cannot be read; the result reports bytes that do not decode.
pub fn scan_segment_in(dir: &dyn Dir, name: &str) -> Result<SegmentScan, LogError> {
    let path = dir.path().join(name);
    let file = dir.open(name, OpenOptions::Read).map_err(|source| LogError::io("read", &path, source))?;
    scan(&*file, &path)
}

fn scan(file: &dyn File, path: &Path) -> Result<SegmentScan, LogError> {
    let io = |source| LogError::io("read", path, source);
    let file_bytes = file.len().map_err(io)?;
    let mut bytes = Vec::new();
    read(file, file_bytes, &mut bytes).map_err(io)?;
    let mut items = Vec::new();
    let mut scan = SegmentScan { path: path.to_owned(), file_bytes, ..SegmentScan::default() };
    scan.decode(&bytes, &mut |item| items.push(item.to_owned()));
    scan.items = items;
    Ok(scan)
}

/// Reads a file into a buffer, whose former bytes are lost.
fn read(file: &dyn File, file_bytes: u64, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    bytes.resize(usize::try_from(file_bytes).unwrap_or(usize::MAX).min(u32::MAX as usize), 0);
    let got = file.read_at(bytes, 0)?;
    bytes.truncate(got);
    Ok(())
}

/// Reads a segment's file from an open directory into a buffer, for [`visit_segment`].
///
/// # Errors
/// [`LogError::Io`] if the file cannot be read.
pub(crate) fn read_segment_in(dir: &dyn Dir, name: &str, bytes: &mut Vec<u8>) -> Result<(), LogError> {
    let path = dir.path().join(name);
    let io = |source| LogError::io("read", &path, source);
    let file = dir.open(name, OpenOptions::Read).map_err(io)?;
    let file_bytes = file.len().map_err(io)?;
    read(&*file, file_bytes, bytes).map_err(io)
}

/// Decodes the bytes of a segment's file as [`scan_segment`] does, without copying bodies. Returns the bytes that do not decode.
pub fn visit_segment<'b>(bytes: &'b [u8], mut visit: impl FnMut(ScanItem<&'b [u8]>)) -> Vec<ScanProblem> {
    let mut scan = SegmentScan { file_bytes: bytes.len() as u64, ..SegmentScan::default() };
    scan.decode(bytes, &mut visit);
    scan.problems
}

/// What is called with each item.
type Visit<'v, 'b> = &'v mut dyn FnMut(ScanItem<&'b [u8]>);

impl ScanItem<&[u8]> {
    /// With bodies of its own.
    fn to_owned(&self) -> ScanItem {
        match self {
            ScanItem::Group(header) => ScanItem::Group(*header),
            ScanItem::EpochStart(start) => ScanItem::EpochStart(*start),
            ScanItem::Frame { header, body_lsn, body, local } => ScanItem::Frame {
                header: *header,
                body_lsn: *body_lsn,
                body: body.to_vec(),
                local: local.clone(),
            },
            ScanItem::Bulk { header, body } => ScanItem::Bulk { header: *header, body: body.to_vec() },
        }
    }
}

impl SegmentScan {
    fn problem(&mut self, offset: u32, what: impl Into<String>) {
        self.problems.push(ScanProblem { offset: offset.into(), what: what.into() });
    }

    pub(crate) fn decode<'b>(&mut self, bytes: &'b [u8], visit: Visit<'_, 'b>) {
        let header = match SegmentHeader::decode(bytes) {
            Ok(header) => header,
            Err(error) => return self.problem(0, format!("the segment header is not valid: {error}")),
        };
        self.header = Some(header);
        if self.file_bytes < u64::from(header.bytes) {
            self.problem(
                0,
                format!("the file has {} bytes, its header says {}", self.file_bytes, header.bytes),
            );
        }
        self.used_bytes = SEGMENT_DATA_START;
        let mut offset = SEGMENT_DATA_START;
        while let Some(next) = self.group(bytes, offset, &header, visit) {
            self.used_bytes = next;
            offset = next;
            if self.stream == Some(Stream::Bulk) {
                return self.records(bytes, offset, &header, visit);
            }
        }
    }

    /// Decodes the group at `offset`, or reports it and looks for the next one. Returns the offset to continue at.
    fn group<'b>(
        &mut self,
        bytes: &'b [u8],
        offset: u32,
        segment: &SegmentHeader,
        visit: Visit<'_, 'b>,
    ) -> Option<u32> {
        let rest = bytes.get(offset as usize..)?;
        let own = GroupAt { database: segment.database, segment: segment.number, offset };
        let (header, payload) = match GroupHeader::decode_at(rest, own) {
            Ok(decoded) => decoded,
            Err(error) => {
                let next = next_group(bytes, offset, segment.database, segment.number);
                if next.is_some() || seems_a_group(rest, own) {
                    self.problem(offset, format!("there is no valid group: {error}"));
                }
                return next;
            }
        };
        let bulk = header.kind == GroupKind::BulkStart;
        self.stream.get_or_insert(if bulk { Stream::Bulk } else { Stream::Commit });
        visit(ScanItem::Group(header));
        match header.kind {
            GroupKind::EpochStart => match EpochStart::decode(payload) {
                Ok(start) => visit(ScanItem::EpochStart(start)),
                Err(error) => self.problem(offset, error.to_string()),
            },
            GroupKind::Frames => self.frames(&header, payload, visit),
            GroupKind::SegmentEnd
            | GroupKind::Mark
            | GroupKind::BulkStart
            | GroupKind::Blank
            | GroupKind::Members => {}
        }
        Some(header.end())
    }

    fn frames<'b>(&mut self, group: &GroupHeader, payload: &'b [u8], visit: Visit<'_, 'b>) {
        let payload_at = group.offset + group.header_bytes();
        let mut expected = group.first_csn;
        for record in Records::new(payload) {
            let record = match record {
                Ok(record) => record,
                Err(error) => return self.problem(group.offset, error.to_string()),
            };
            if record.header.csn != expected {
                self.problem(
                    group.offset,
                    format!("commit {} is where {expected} has to be", record.header.csn),
                );
            }
            expected = record.header.csn.next();
            visit(ScanItem::Frame {
                header: record.header,
                body_lsn: Lsn::new(group.segment, payload_at + record.body_at),
                body: record.body,
                local: record.local,
            });
        }
        if expected.prev() != group.last_csn() {
            self.problem(group.offset, format!("the group promises commits up to {}", group.last_csn()));
        }
    }

    /// Decodes bulk records up to the first that is not valid: nothing says where the next one begins.
    fn records<'b>(&mut self, bytes: &'b [u8], start: u32, segment: &SegmentHeader, visit: Visit<'_, 'b>) {
        let mut offset = start;
        loop {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            match check_record(rest, Lsn::new(segment.number, offset), segment.database) {
                Ok(header) => {
                    let next = offset + bulk_record_bytes(header.body_bytes);
                    let body = &rest[BULK_HEADER_BYTES as usize..][..header.body_bytes as usize];
                    visit(ScanItem::Bulk { header, body });
                    self.used_bytes = next;
                    offset = next;
                }
                Err(what) => {
                    let lsn = Lsn::new(segment.number, offset);
                    if looks_damaged(rest, lsn, segment.database) || last_header(rest, lsn).is_some() {
                        self.problem(offset, what);
                    }
                    return;
                }
            }
        }
    }
}

/// Where the last group of a segment of the commit stream ends; `None` if its first group is no valid one of that stream, or
/// if something in it seems to be a group that was damaged.
pub(crate) fn end_of_groups(bytes: &[u8], database: DatabaseId, number: u32) -> Option<u32> {
    let mut offset = SEGMENT_DATA_START;
    loop {
        let own = GroupAt { database, segment: number, offset };
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        match GroupHeader::decode_at(rest, own) {
            Ok((header, _)) if header.kind == GroupKind::BulkStart => return None,
            Ok((header, _)) => offset = header.end(),
            Err(_) => {
                let is_end =
                    next_group(bytes, offset, database, number).is_none() && !seems_a_group(rest, own);
                return (is_end && offset > SEGMENT_DATA_START).then_some(offset);
            }
        }
    }
}

fn next_group(bytes: &[u8], after: u32, database: DatabaseId, number: u32) -> Option<u32> {
    let first = after + GROUP_ALIGN;
    let magic = GROUP_MAGIC.to_le_bytes();
    let tail = bytes.get(first as usize..)?;
    tail.chunks_exact(GROUP_ALIGN as usize).enumerate().find_map(|(nth, chunk)| {
        let offset = first + nth as u32 * GROUP_ALIGN;
        let own = GroupAt { database, segment: number, offset };
        (chunk.starts_with(&magic) && GroupHeader::decode_at(&bytes[offset as usize..], own).is_ok())
            .then_some(offset)
    })
}
