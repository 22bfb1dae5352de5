//! What a committer holds between its calls: an admission, then a reservation.

use super::CommitStream;
use super::groups::{Admitted, ReservedRange};
use crate::format::{FRAME_HEADER_BYTES, FrameHeader};
use fulgurite_types::{Csn, Lsn};
use std::fmt;
use std::sync::Arc;

/// The right to reserve a frame of a certain size without waiting. Dropping it gives the right back.
#[must_use]
pub struct Admission {
    /// `None` once it is used.
    pub(super) stream: Option<Arc<CommitStream>>,
    pub(super) frame_bytes: u32,
    pub(super) local_bytes: u32,
    pub(super) admitted: Admitted,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admission({} + {} bytes)", self.local_bytes, self.frame_bytes)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            stream.groups.give_back(&self.admitted);
        }
    }
}

/// What a commit gets with its reserved range, all of it in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The commit's CSN.
    pub csn: Csn,
    /// The LSN of the frame's body.
    pub body_lsn: Lsn,
    /// The commit's time, in milliseconds since 1970: not before that of any smaller CSN of this life of the database.
    pub time_ms: u64,
}

/// A frame's reserved range in the log. Give it to [`CommitLog::fill`](crate::CommitLog::fill): dropping it poisons the
/// log, because every later commit would wait for it.
#[must_use]
pub struct Reservation {
    pub(super) stream: Arc<CommitStream>,
    pub(super) range: ReservedRange,
    pub(super) numbers: Numbers,
    pub(super) frame_bytes: u32,
}

impl Reservation {
    /// CSN, body LSN and time.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// The commit's CSN.
    pub fn csn(&self) -> Csn {
        self.numbers.csn
    }

    /// The LSN of the frame's body.
    pub fn body_lsn(&self) -> Lsn {
        self.numbers.body_lsn
    }

    /// The header of a frame with these numbers, whose body has the admitted length and this checksum.
    pub fn header(&self, kind: u8, body_crc: u32) -> FrameHeader {
        FrameHeader {
            kind,
            flags: 0,
            codec: 0,
            body_bytes: self.frame_bytes - FRAME_HEADER_BYTES,
            csn: self.numbers.csn,
            term: 0,
            commit_time_ms: self.numbers.time_ms,
            body_crc,
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation(csn {}, body at {})", self.numbers.csn, self.numbers.body_lsn)
    }
}

/// Counts the range as filled.
impl Drop for Reservation {
    fn drop(&mut self) {
        if self.range.remaining() == 0 {
            self.stream.groups.fill(&self.range);
        } else {
            let what = "a commit ended between its reservation and the end of its fill";
            let _ = self.stream.shared.fail(what, None);
        }
    }
}
