//! The directory's contents: every segment, its header and its first group.

use super::harden::holds_something;
use super::walk::Walked;
use crate::error::LogError;
use crate::format::{
    EpochStart, GroupAt, GroupHeader, GroupKind, NEW_SUFFIX, SEGMENT_DATA_START, SEGMENT_SUFFIX,
    SegmentHeader, parse_number, segment_file_name,
};
use crate::segments::{Segment, Stream};
use crate::staging::StagedTail;
use fulgurite_env::{Dir, DirEntry, File, OpenOptions};
use fulgurite_types::{Csn, DatabaseId, Epoch};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How much of a segment is read to learn its database, stream and epoch: its header and the next block.
const PEEK_BYTES: usize = 2 * SEGMENT_DATA_START as usize;

/// The contents at the offset of the first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Zeros: the segment was never used.
    Zeros,
    /// Nothing that decodes.
    Unreadable,
    /// A valid start of an epoch.
    EpochStart(GroupHeader, EpochStart),
    /// A valid start of a bulk segment.
    BulkStart(GroupHeader),
    /// The header of another group, its checksum not verified.
    Group(GroupHeader),
}

pub(super) struct Found {
    pub number: u32,
    pub path: PathBuf,
    dir: Arc<dyn Dir>,
    options: OpenOptions,
    /// The segment's length, or the fault of its header.
    pub header: Result<u32, String>,
    pub first: First,
    /// Groups that were staged for it, by offset: reading the segment shows them.
    staged: Vec<(u32, Vec<u8>)>,
}

impl Found {
    /// The usable length, or the damage.
    pub fn bytes(&self) -> Result<u32, LogError> {
        self.header.clone().map_err(|what| LogError::damaged(&self.path, 0, None, what))
    }

    /// Opens the file. It is not kept open: a large log has more segments than a process may have files.
    pub fn open(&self) -> Result<Arc<dyn File>, LogError> {
        let opened = self.dir.open(&segment_file_name(self.number), self.options);
        opened.map_err(|source| LogError::io("open", &self.path, source))
    }

    /// Reads the whole segment, as the device has it.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Result<(), LogError> {
        self.read_first(buffer, u32::MAX)
    }

    /// Reads the first `limit` bytes, or as many as there are.
    pub fn read_first(&self, buffer: &mut Vec<u8>, limit: u32) -> Result<(), LogError> {
        let bytes = self.bytes()?.min(limit) as usize;
        buffer.resize(bytes, 0);
        self.read_into(buffer, 0)
    }

    /// Reads the bytes from `start` to `end`, each to its offset in `buffer`; the bytes before `start` are zero.
    pub fn read_between(&self, buffer: &mut Vec<u8>, start: u32, end: u32) -> Result<(), LogError> {
        let end = self.bytes()?.min(end) as usize;
        *buffer = vec![0; end];
        self.read_into(buffer, (start as usize).min(end))
    }

    fn read_into(&self, buffer: &mut [u8], start: usize) -> Result<(), LogError> {
        let bytes = buffer.len();
        let got = self.open()?.read_at_direct(&mut buffer[start..], start as u64);
        let got = start + got.map_err(|source| LogError::io("read", &self.path, source))?;
        if got < bytes {
            return Err(LogError::damaged(&self.path, got as u64, None, "the file ends here"));
        }
        self.show_staged(buffer, start)
    }

    /// Where the staged groups at or after an offset are, and their lengths.
    pub fn staged_from(&self, offset: u32) -> impl Iterator<Item = (u32, usize)> + '_ {
        let groups = self.staged.iter().map(|(at, bytes)| (*at, bytes.len()));
        groups.filter(move |(at, _)| *at >= offset)
    }

    /// Puts the staged groups over what the file has from `start` on. What both hold has to be the same.
    fn show_staged(&self, buffer: &mut [u8], start: usize) -> Result<(), LogError> {
        for (offset, staged) in &self.staged {
            let at = *offset as usize;
            let Some(there) = buffer.get_mut(at..at + staged.len()).filter(|_| at >= start) else { continue };
            if there == staged {
                continue;
            }
            let own = |bytes: &[u8]| GroupHeader::decode_unchecked(bytes).map(|header| header.at()).ok();
            if let Some(at) = own(staged)
                && GroupHeader::decode_at(there, at).is_ok()
            {
                let what =
                    "the group here and the one that was staged for this place are both valid, and differ";
                return Err(LogError::damaged(&self.path, u64::from(*offset), None, what));
            }
            there.copy_from_slice(staged);
        }
        Ok(())
    }
}

/// A file that is not the segment of its name.
pub(super) struct OtherFile {
    pub name: String,
    /// 0 if its header cannot be read.
    pub len: u64,
    /// The number that its header has, if that is valid and of this database.
    pub header: Option<u32>,
}

pub(super) struct Inventory {
    pub database: DatabaseId,
    pub dir: Arc<dyn Dir>,
    pub segments: BTreeMap<u32, Found>,
    /// Files that are not segments yet: unfinished, or kept for a full disk.
    unfinished: Vec<OtherFile>,
    /// Files with the name of a segment and the header of a later one (INV-LOG-20).
    misnamed: Vec<OtherFile>,
    /// The highest number of a name or a header.
    number_max: u32,
    options: OpenOptions,
}

/// Takes the inventory; segments are opened with `options`.
pub(super) fn take(
    dir: &Arc<dyn Dir>,
    database: DatabaseId,
    options: OpenOptions,
) -> Result<Inventory, LogError> {
    let entries = dir.list().map_err(|source| LogError::io("list", dir.path(), source))?;
    let mut inventory = Inventory {
        database,
        dir: dir.clone(),
        segments: BTreeMap::new(),
        unfinished: Vec::new(),
        misnamed: Vec::new(),
        number_max: 0,
        options,
    };
    for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
        let DirEntry { name, len, .. } = entry;
        let (number, header) = if let Some(number) = parse_number(&name, SEGMENT_SUFFIX) {
            let (found, header) = inspect(dir, number, database, options)?;
            if header.is_some_and(|header| header > number) {
                inventory.misnamed.push(OtherFile { name, len, header });
            } else {
                inventory.segments.insert(number, found);
            }
            (number, header)
        } else if let Some(number) = parse_number(&name, NEW_SUFFIX) {
            let mut head = vec![0; SEGMENT_DATA_START as usize];
            let file = dir.open(&name, OpenOptions::Read);
            let read = file.and_then(|file| file.read_at_direct(&mut head, 0));
            let header = SegmentHeader::decode(&head).ok().and_then(|header| number_of(&header, database));
            let len = if read.is_ok() { len } else { 0 };
            inventory.unfinished.push(OtherFile { name, len, header });
            (number, header)
        } else {
            continue;
        };
        inventory.number_max = inventory.number_max.max(number).max(header.unwrap_or(0));
    }
    Ok(inventory)
}

fn number_of(header: &SegmentHeader, database: DatabaseId) -> Option<u32> {
    (header.database == database).then_some(header.number)
}

/// Returns also the number that the header has.
fn inspect(
    dir: &Arc<dyn Dir>,
    number: u32,
    database: DatabaseId,
    options: OpenOptions,
) -> Result<(Found, Option<u32>), LogError> {
    let name = segment_file_name(number);
    let path = dir.path().join(&name);
    let io = |action| {
        let path = path.clone();
        move |source| LogError::io(action, &path, source)
    };
    let file = dir.open(&name, options).map_err(io("open"))?;
    let len = file.len().map_err(io("measure"))?;
    let mut peek = vec![0; PEEK_BYTES];
    let got = file.read_at_direct(&mut peek, 0).map_err(io("read"))?;
    peek.truncate(got);
    let decoded = SegmentHeader::decode(&peek);
    let named = decoded.as_ref().ok().and_then(|header| number_of(header, database));
    let header = decoded.map_err(|error| format!("its header is not valid: {error}"));
    let header = header.and_then(|header| check_header(&header, len, number, database));
    let first = first_group(&peek, number, database);
    Ok((Found { number, path, dir: dir.clone(), options, header, first, staged: Vec::new() }, named))
}

fn check_header(header: &SegmentHeader, len: u64, number: u32, database: DatabaseId) -> Result<u32, String> {
    if header.database != database {
        return Err(format!("it belongs to database {}", header.database));
    }
    if header.number != number {
        return Err(format!("its header says that it is segment {}", header.number));
    }
    if len < u64::from(header.bytes) {
        return Err(format!("it has {len} bytes, its header says {}", header.bytes));
    }
    Ok(header.bytes)
}

fn first_group(peek: &[u8], number: u32, database: DatabaseId) -> First {
    let data = peek.get(SEGMENT_DATA_START as usize..).unwrap_or_default();
    if data.iter().all(|&byte| byte == 0) {
        return First::Zeros;
    }
    let own = GroupAt { database, segment: number, offset: SEGMENT_DATA_START };
    let Ok(claimed) = GroupHeader::decode_unchecked(data) else {
        return First::Unreadable;
    };
    if claimed.at() != own {
        return First::Unreadable;
    }
    match (claimed.kind, GroupHeader::decode_at(data, own)) {
        (GroupKind::EpochStart, Ok((header, payload))) => match EpochStart::decode(payload) {
            Ok(start) if start.epoch == header.epoch => First::EpochStart(header, start),
            _ => First::Unreadable,
        },
        (GroupKind::BulkStart, Ok((header, _))) => First::BulkStart(header),
        (GroupKind::EpochStart | GroupKind::BulkStart, Err(_)) => First::Unreadable,
        _ => First::Group(claimed),
    }
}

impl Inventory {
    /// Shows staged groups in reads of their segments. Those of segments that are gone were synced long ago, or the walk
    /// misses the segment.
    pub fn stage(&mut self, tail: &StagedTail) {
        for (start, bytes) in tail.groups() {
            if let Some(found) = self.segments.get_mut(&start.segment()) {
                found.staged.push((start.offset(), bytes.clone()));
            }
        }
    }

    /// The newest epoch that a segment's start names.
    pub fn newest_epoch(&self) -> Epoch {
        let epochs = self.segments.values().filter_map(|found| match found.first {
            First::EpochStart(header, _) | First::BulkStart(header) => Some(header.epoch),
            _ => None,
        });
        epochs.max().unwrap_or_default()
    }

    /// Whether a file that is not a segment by its name may be one by another name.
    pub fn may_be_a_segment(&self, file: &OtherFile) -> bool {
        let is_segment = |number: u32| self.segments.contains_key(&number);
        parse_number(&file.name, NEW_SUFFIX).is_some_and(is_segment) || file.header.is_some_and(is_segment)
    }

    /// All files that are not segments, but for those that seem to hold the data of a segment which is missing.
    pub fn unfinished(&self) -> Result<Vec<&OtherFile>, LogError> {
        let mut files: Vec<_> = self.unfinished.iter().collect();
        for file in &self.misnamed {
            if self.may_be_a_segment(file) || !self.holds_data(file)? {
                files.push(file);
            } else {
                let path = self.dir.path().join(&file.name);
                tracing::warn!(path = %path.display(), header = ?file.header, "a file has the header of another segment; it is left alone");
            }
        }
        Ok(files)
    }

    /// Whether a file holds data of the segment that its header names.
    fn holds_data(&self, file: &OtherFile) -> Result<bool, LogError> {
        let mut bytes = vec![0; usize::try_from(file.len).unwrap_or(0)];
        let opened = self.dir.open(&file.name, self.options);
        let read = opened.and_then(|opened| opened.read_at_direct(&mut bytes, 0));
        let got = read.map_err(|source| LogError::io("read", &self.dir.path().join(&file.name), source))?;
        Ok(file.header.is_some_and(|number| holds_something(&bytes[..got], self.database, number)))
    }

    pub fn remove(&self, name: &str) -> Result<(), LogError> {
        self.dir.remove(name).map_err(|source| LogError::io("remove", &self.dir.path().join(name), source))
    }

    pub fn sync_dir(&self) -> Result<(), LogError> {
        self.dir.sync().map_err(|source| LogError::io("sync", self.dir.path(), source))
    }

    /// A number above every one in the directory.
    pub fn next_number(&self) -> Result<u32, LogError> {
        self.number_max.checked_add(1).ok_or_else(|| {
            LogError::Usage("all segment numbers are used; copy the database to a new one".into())
        })
    }

    /// The segment `number`, which something durable names: `why` says what.
    pub fn named(&self, number: u32, why: impl FnOnce() -> String) -> Result<&Found, LogError> {
        let Some(found) = self.segments.get(&number) else {
            let path = self.dir.path().join(segment_file_name(number));
            let name = segment_file_name(number);
            let fault = match self.misnamed.iter().find(|file| file.name == name).and_then(|file| file.header)
            {
                Some(header) => format!("its header says that it is segment {header}"),
                None => "it is missing".into(),
            };
            return Err(LogError::damaged(&path, 0, None, format!("{fault}, and {}", why())));
        };
        found.bytes()?;
        Ok(found)
    }

    /// Segments for the table of the opened log: all but the removed ones. In a read-only log unused segments stay
    /// unused, and segments of the commit stream after the log's end are not sealed.
    pub fn kept_segments(&self, removed: &[u32], walked: &Walked) -> Vec<Arc<Segment>> {
        let kept = self.segments.values().filter(|found| !removed.contains(&found.number));
        let readable = kept.filter_map(|found| {
            let bytes = found.header.as_ref().ok()?;
            let segment = Segment::new(found.number, *bytes, found.path.clone(), None);
            let is_read_only = self.options == OpenOptions::Read;
            if is_read_only && found.first == First::Zeros && found.number > walked.end.segment() {
                return Some(Arc::new(segment));
            }
            segment.set_used(*bytes);
            match found.first {
                First::EpochStart(header, _) | First::Group(header) => {
                    segment.hand_out(Stream::Commit, header.epoch, header.first_csn);
                }
                First::BulkStart(header) => segment.hand_out(Stream::Bulk, header.epoch, header.first_csn),
                // The walk names the commit stream's segments, below. Any other with an unreadable start is the bulk
                // stream's.
                First::Zeros | First::Unreadable => {
                    segment.hand_out(Stream::Bulk, Epoch::default(), Csn::ZERO);
                }
            }
            if let Some(range) = walked.live.iter().rev().find(|range| range.start.segment() == found.number)
            {
                if segment.stream() != Some(Stream::Commit) {
                    segment.hand_out(Stream::Commit, Epoch::default(), Csn::ZERO);
                }
                segment.set_used(range.end.offset());
            }
            if !is_read_only || found.number <= walked.end.segment() || segment.stream() == Some(Stream::Bulk)
            {
                segment.seal();
            }
            Some(Arc::new(segment))
        });
        readable.collect()
    }
}
