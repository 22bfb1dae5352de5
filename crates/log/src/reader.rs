//! The feed: the durable frames of the living chain, in order, while the log is being written; and the entries of a replicated log, which
//! are read as soon as they have numbers.

use crate::error::LogError;
use crate::format::{ChunkRef, FrameHeader, GroupHeader, GroupKind, Records, take_local_records};
use crate::group_cursor::{GroupCursor, GroupRead};
use crate::log::Log;
use crate::sent_chunks::FrameChunks;
use crate::stream::append_entries::Entry;
use fulgurite_types::{Csn, EntryId, Lsn};
use std::collections::VecDeque;

/// A frame delivered by a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedFrame {
    /// Its header.
    pub header: FrameHeader,
    /// Its body.
    pub body: Vec<u8>,
    /// The body's LSN.
    pub body_lsn: Lsn,
    /// The extents of the chunks that the body refers to.
    pub local: Vec<ChunkRef>,
}

/// Reads the log from a CSN on.
pub struct LogReader {
    cursor: GroupCursor,
    after: Csn,
    frames: VecDeque<OwnedFrame>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogReader(after {}, at {})", self.after, self.cursor.position())
    }
}

impl Log {
    /// Reads the frames after `after`, as they become durable; in a replicated log, as they are agreed and durable.
    ///
    /// # Errors
    /// [`LogError::TooOld`] if the log does not reach back that far.
    pub fn reader(&self, after: Csn) -> Result<LogReader, LogError> {
        self.reader_at(self.stream.progress.find(after)?, after)
    }

    /// Like [`Log::reader`], from the LSN of a group that the caller kept, such as a replay point.
    ///
    /// # Errors
    /// [`LogError::Usage`] if `start` is in no living epoch.
    pub fn reader_at(&self, start: Lsn, after: Csn) -> Result<LogReader, LogError> {
        Ok(LogReader { cursor: GroupCursor::new(self, start)?, after, frames: VecDeque::new() })
    }

    /// Reads the entries after index `after`, as soon as they have numbers: they may not be durable yet.
    ///
    /// # Errors
    /// [`LogError::TooOld`] if the log does not reach back that far, [`LogError::Usage`] if it is not replicated.
    pub fn entries(&self, after: u64) -> Result<EntryReader<'_>, LogError> {
        self.stream.replicated()?;
        let oldest = self.stream.progress.oldest();
        // The commit of that entry is not known any more.
        let too_old = LogError::TooOld { after: oldest.prev(), oldest };
        let start = self.stream.progress.find_entry(after).ok_or(too_old)?;
        Ok(EntryReader { log: self, cursor: GroupCursor::new(self, start)?, after, chunks: Vec::new() })
    }
}

impl LogReader {
    /// The next durable frame, or `None` if there is none yet.
    ///
    /// # Errors
    /// [`LogError::TooOld`] if the segment was freed, [`LogError::Damaged`], [`LogError::Io`].
    #[expect(clippy::should_implement_trait, reason = "it continues after None, and it can fail")]
    pub fn next(&mut self) -> Result<Option<OwnedFrame>, LogError> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                self.after = frame.header.csn;
                return Ok(Some(frame));
            }
            if !self.read_group()? {
                return Ok(None);
            }
        }
    }

    /// The CSN of the last delivered frame.
    pub fn after(&self) -> Csn {
        self.after
    }

    /// The LSN of the next group. The reader still needs this segment and later ones.
    pub fn position(&self) -> Lsn {
        self.cursor.position()
    }

    /// Reads the next group. False at the end of those that are durable, and agreed.
    fn read_group(&mut self) -> Result<bool, LogError> {
        let stream = &self.cursor.stream;
        let (end, agreed) = (stream.progress.tip().lsn, stream.agreed_index());
        let Some(group) = self.cursor.next(end, self.after)? else { return Ok(false) };
        if group.header.kind != GroupKind::Frames {
            return Ok(true);
        }
        if group.header.entry.index > agreed {
            self.cursor.unread(&group);
            return Ok(false);
        }
        let last = self.cursor.span_csn();
        for record in Records::new(&group.payload) {
            let record = record.map_err(|error| self.cursor.undecodable(&group, &error.to_string()))?;
            if record.header.csn > self.after && record.header.csn <= last {
                self.frames.push_back(OwnedFrame {
                    header: record.header,
                    body: record.body.to_vec(),
                    body_lsn: Lsn::new(group.at.segment(), group.payload_at() + record.body_at),
                    local: record.local,
                });
            }
        }
        Ok(true)
    }
}

/// Reads the entries of a replicated log, from an index on.
pub struct EntryReader<'l> {
    log: &'l Log,
    cursor: GroupCursor,
    after: u64,
    /// The chunks to which the last entry refers.
    chunks: Vec<ChunkRef>,
}

impl std::fmt::Debug for EntryReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EntryReader(after {}, at {})", self.after, self.cursor.position())
    }
}

impl EntryReader<'_> {
    /// The next entry, or `None` if there is none yet.
    ///
    /// # Errors
    /// [`LogError::TooOld`] if the segment was freed, [`LogError::Damaged`], [`LogError::Io`].
    #[expect(clippy::should_implement_trait, reason = "it continues after None, and it can fail")]
    pub fn next(&mut self) -> Result<Option<Entry>, LogError> {
        let Some(group) = self.next_group()? else { return Ok(None) };
        let GroupHeader { entry: id, kind, first_csn, frames, .. } = group.header;
        let (payload, chunks) = self.without_local_records(group)?;
        Ok(Some(Entry { id, kind, first_csn, frames, payload, chunks }))
    }

    /// The number of the next entry, which is passed over.
    ///
    /// # Errors
    /// As [`EntryReader::next`].
    pub fn next_id(&mut self) -> Result<Option<EntryId>, LogError> {
        Ok(self.next_group()?.map(|group| group.header.entry))
    }

    fn next_group(&mut self) -> Result<Option<GroupRead>, LogError> {
        loop {
            let end = self.cursor.stream.replicated()?.stamped();
            let Some(group) = self.cursor.next(end, Csn::ZERO)? else { return Ok(None) };
            let GroupHeader { kind, entry, .. } = group.header;
            if kind.is_entry() && entry.index > self.after {
                self.after = entry.index;
                return Ok(Some(group));
            }
        }
    }

    /// The payload of an entry as it is sent; notes the chunks to which it refers.
    fn without_local_records(&mut self, group: GroupRead) -> Result<(Vec<u8>, Vec<FrameChunks>), LogError> {
        self.chunks.clear();
        if group.header.kind != GroupKind::Frames {
            return Ok((group.payload, Vec::new()));
        }
        let (payload, records) = take_local_records(&group.payload)
            .map_err(|error| self.cursor.undecodable(&group, &error.to_string()))?;
        let mut frames = Vec::with_capacity(records.len());
        for (csn, local) in records {
            let chunks = self.log.resolve_chunks(&local);
            let chunks = chunks.map_err(|error| self.log.too_old_if_freed(&local, error))?;
            frames.push(FrameChunks { csn, count: chunks.len() as u32 });
            self.chunks.extend(chunks);
        }
        Ok((payload.unwrap_or(group.payload), frames))
    }

    /// The chunks to which the last delivered entry refers, frame by frame; once.
    pub fn take_chunks(&mut self) -> Vec<ChunkRef> {
        std::mem::take(&mut self.chunks)
    }

    /// The index of the last delivered entry.
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The LSN of the next group. The reader still needs this segment and later ones.
    pub fn position(&self) -> Lsn {
        self.cursor.position()
    }
}
