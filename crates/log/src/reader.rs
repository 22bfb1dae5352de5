//! The feed: the durable frames of the living chain, in order, while the log is being written.

use crate::error::LogError;
use crate::format::{
    ChunkRef, FrameHeader, GROUP_HEADER_BYTES, GroupAt, GroupHeader, GroupKind, Records, SEGMENT_DATA_START,
};
use crate::log::Log;
use crate::recovery::EpochSpan;
use crate::stream::CommitStream;
use fulgurite_types::{Csn, Lsn};
use std::collections::VecDeque;
use std::sync::Arc;

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
    stream: Arc<CommitStream>,
    spans: Arc<[EpochSpan]>,
    after: Csn,
    position: Lsn,
    span: usize,
    frames: VecDeque<OwnedFrame>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogReader(after {}, at {})", self.after, self.position)
    }
}

impl Log {
    /// Reads the frames after `after`, as they become durable.
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
        let span = self.spans.iter().rposition(|span| {
            span.start_segment <= start.segment() && span.end.is_none_or(|end| start <= end.lsn)
        });
        let span =
            span.ok_or_else(|| LogError::Usage(format!("{start} is in no epoch that the log knows")))?;
        Ok(LogReader {
            stream: Arc::clone(&self.stream),
            spans: Arc::clone(&self.spans),
            after,
            position: start,
            span,
            frames: VecDeque::new(),
        })
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
        self.position
    }

    fn span(&self) -> EpochSpan {
        self.spans[self.span]
    }

    /// Reads the group at `position`. False at the end of the durable groups.
    fn read_group(&mut self) -> Result<bool, LogError> {
        if self.position >= self.stream.progress.tip().lsn {
            return Ok(false);
        }
        if self.span().end.is_some_and(|end| end.lsn == self.position) {
            self.span += 1;
            self.position = Lsn::new(self.span().start_segment, SEGMENT_DATA_START);
            return Ok(true);
        }
        let segments = &self.stream.segments;
        let Some(segment) = segments.get(self.position.segment()) else {
            let oldest = self.stream.progress.oldest();
            return Err(LogError::TooOld { after: self.after, oldest });
        };
        let offset = self.position.offset();
        let damaged = |what: String| {
            LogError::damaged(
                &segment.path,
                offset.into(),
                Some((self.after.next(), self.stream.durable_csn())),
                what,
            )
        };
        let room = segment.room(offset);
        if room < GROUP_HEADER_BYTES {
            return Err(damaged("there is no room for a group".into()));
        }
        let mut bytes = self.stream.read(&segment, offset, GROUP_HEADER_BYTES)?;
        let header = GroupHeader::decode_unchecked(&bytes).map_err(|error| damaged(error.to_string()))?;
        if header.payload_bytes > room - GROUP_HEADER_BYTES {
            return Err(damaged("the group is longer than its segment".into()));
        }
        let payload_at = offset + GROUP_HEADER_BYTES;
        bytes.extend(self.stream.read(&segment, payload_at, header.payload_bytes)?);
        let own = GroupAt { database: self.stream.shared.database, segment: segment.number, offset };
        let (header, payload) =
            GroupHeader::decode_at(&bytes, own).map_err(|error| damaged(error.to_string()))?;
        if header.epoch != self.span().epoch {
            return Err(damaged(format!(
                "the group is of epoch {}, not of {}",
                header.epoch,
                self.span().epoch
            )));
        }
        let mut frames = VecDeque::new();
        if header.kind == GroupKind::Frames {
            let last = self.span().end.map_or(Csn::MAX, |end| end.csn);
            for record in Records::new(payload) {
                let record = record.map_err(|error| damaged(error.to_string()))?;
                if record.header.csn > self.after && record.header.csn <= last {
                    frames.push_back(OwnedFrame {
                        header: record.header,
                        body: record.body.to_vec(),
                        body_lsn: Lsn::new(segment.number, payload_at + record.body_at),
                        local: record.local,
                    });
                }
            }
        }
        self.position = match header.kind {
            GroupKind::SegmentEnd => Lsn::new(header.next_segment, SEGMENT_DATA_START),
            _ => Lsn::new(segment.number, header.end()),
        };
        self.frames = frames;
        Ok(true)
    }
}
