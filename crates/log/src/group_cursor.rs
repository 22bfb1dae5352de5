//! A walk along the groups of the living chain, in an open log.

use crate::error::LogError;
use crate::format::{
    GROUP_HEADER_BYTES, GroupAt, GroupHeader, GroupKind, SEGMENT_DATA_START, segment_file_name,
};
use crate::log::Log;
use crate::recovery::EpochSpan;
use crate::segments::Segment;
use crate::stream::CommitStream;
use fulgurite_types::{Csn, Lsn};
use std::sync::Arc;

/// A group, and where it is.
pub(crate) struct GroupRead {
    pub header: GroupHeader,
    pub payload: Vec<u8>,
    pub at: Lsn,
}

impl GroupRead {
    /// The LSN of the payload.
    pub fn payload_at(&self) -> u32 {
        self.at.offset() + self.header.header_bytes()
    }
}

pub(crate) struct GroupCursor {
    pub stream: Arc<CommitStream>,
    spans: Arc<[EpochSpan]>,
    position: Lsn,
    span: usize,
}

impl GroupCursor {
    /// From the LSN of a group on.
    pub fn new(log: &Log, start: Lsn) -> Result<GroupCursor, LogError> {
        let span = log.spans.iter().rposition(|span| {
            span.start_segment <= start.segment() && span.end.is_none_or(|end| start <= end.lsn)
        });
        let span =
            span.ok_or_else(|| LogError::Usage(format!("{start} is in no epoch that the log knows")))?;
        Ok(GroupCursor {
            stream: Arc::clone(&log.stream),
            spans: Arc::clone(&log.spans),
            position: start,
            span,
        })
    }

    /// The LSN of the next group.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The last commit that lives in the epoch of the last group.
    pub fn span_csn(&self) -> Csn {
        self.spans[self.span].end.map_or(Csn::MAX, |end| end.csn)
    }

    /// Goes back to a group that was read.
    pub fn unread(&mut self, group: &GroupRead) {
        self.position = group.at;
    }

    /// Reads the next group before `end`, and passes it. `after`, for messages, is the last commit that the caller has.
    pub fn next(&mut self, end: Lsn, after: Csn) -> Result<Option<GroupRead>, LogError> {
        while self.position < end {
            let span = self.spans[self.span];
            if span.end.is_some_and(|end| end.lsn == self.position) {
                self.span += 1;
                self.position = Lsn::new(self.spans[self.span].start_segment, SEGMENT_DATA_START);
                continue;
            }
            let group = match self.stream.read_stamped(self.position) {
                Some((at, bytes)) => self.check(at, &bytes, after)?,
                None => self.read(after)?,
            };
            self.position = match group.header.kind {
                GroupKind::SegmentEnd => Lsn::new(group.header.next_segment, SEGMENT_DATA_START),
                _ => Lsn::new(group.at.segment(), group.header.end()),
            };
            return Ok(Some(group));
        }
        Ok(None)
    }

    /// The error for a group that has the right checksum and wrong records.
    pub fn undecodable(&self, group: &GroupRead, what: &str) -> LogError {
        let path = self.stream.segments.dir().path().join(segment_file_name(group.at.segment()));
        let csns = Some((group.header.first_csn, group.header.last_csn()));
        LogError::damaged(&path, group.at.offset().into(), csns, what)
    }

    fn damaged(&self, segment: &Segment, after: Csn, what: String) -> LogError {
        let csns = Some((after.next(), self.stream.durable_csn()));
        LogError::damaged(&segment.path, self.position.offset().into(), csns, what)
    }

    fn segment(&self, at: Lsn, after: Csn) -> Result<Arc<Segment>, LogError> {
        self.stream.segments.get(at.segment()).ok_or_else(|| {
            let oldest = self.stream.progress.oldest();
            LogError::TooOld { after, oldest }
        })
    }

    /// Reads the group at `position` from its segment, or from where it is staged.
    fn read(&self, after: Csn) -> Result<GroupRead, LogError> {
        let segment = self.segment(self.position, after)?;
        let offset = self.position.offset();
        let room = segment.room(offset);
        let mut bytes = self.stream.read(&segment, offset, room.min(GROUP_HEADER_BYTES))?;
        let header = GroupHeader::decode_unchecked(&bytes)
            .map_err(|error| self.damaged(&segment, after, error.to_string()))?;
        if header.payload_bytes > room.saturating_sub(header.header_bytes()) {
            return Err(self.damaged(&segment, after, "the group is longer than its segment".into()));
        }
        bytes.truncate(header.header_bytes() as usize);
        bytes.extend(self.stream.read(&segment, offset + header.header_bytes(), header.payload_bytes)?);
        self.check(self.position, &bytes, after)
    }

    fn check(&self, at: Lsn, bytes: &[u8], after: Csn) -> Result<GroupRead, LogError> {
        let database = self.stream.shared.database;
        let own = GroupAt { database, segment: at.segment(), offset: at.offset() };
        let epoch = self.spans[self.span].epoch;
        let what = match GroupHeader::decode_at(bytes, own) {
            Ok((header, payload)) if header.epoch == epoch => {
                return Ok(GroupRead { header, payload: payload.to_vec(), at });
            }
            Ok((header, _)) => format!("the group is of epoch {}, not of {epoch}", header.epoch),
            Err(error) => error.to_string(),
        };
        Err(self.damaged(&*self.segment(at, after)?, after, what))
    }
}
