//! The path of a frame into the log: admit, reserve, fill.

use crate::buffer::{GroupBuffer, ReservedRange};
use crate::core::Core;
use crate::credit::{Charge, First, Missing};
use crate::durability::Durability;
use crate::error::LogError;
use crate::format::{ChunkRef, FRAME_HEADER_BYTES, FrameHeader, encode_local_record};
use crate::group_ring::{JOINABLE_BYTES_MAX, Join, Joined, TimeBounds};
use crate::groups::NewGroup;
use crate::log::Log;
use crate::options::group_charge;
use crate::stats::add;
use crate::store::From;
use fulgurite_types::{Csn, Lsn};
use std::sync::Arc;

/// The right to reserve a frame of a certain size without waiting. Dropping it gives the right back.
#[must_use]
pub struct Admission {
    /// `None` once it was used.
    core: Option<Arc<Core>>,
    frame_bytes: u32,
    local_bytes: u32,
    charge: Charge,
    /// For a frame longer than the buffers that are there.
    buffer: Option<Arc<GroupBuffer>>,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admission({} + {} bytes)", self.local_bytes, self.frame_bytes)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            core.credit.give_room(self.charge.room.into());
            core.credit.give_slots(self.charge.slots);
        }
    }
}

/// A frame's range in the log. Give it to [`Log::fill`]: a reservation that is dropped poisons the log, because every
/// commit behind it would hang.
#[must_use]
pub struct Reservation {
    range: ReservedRange,
    csn: Csn,
    body_lsn: Lsn,
    frame_bytes: u32,
    time_ms: u64,
}

impl Reservation {
    /// The number of the commit.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// Where the frame's body will lie.
    pub fn body_lsn(&self) -> Lsn {
        self.body_lsn
    }

    /// The commit's time, in milliseconds since 1970: not before that of any smaller CSN of this life of the database.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reservation(csn {}, body at {})", self.csn, self.body_lsn)
    }
}

/// All of a frame but its number.
#[derive(Clone, Copy, Debug)]
pub struct NewFrame<'a> {
    /// What the body is; the log does not care.
    pub kind: u8,
    /// Flags of the body; the log does not care.
    pub flags: u8,
    /// How the body is compressed; the log does not care.
    pub codec: u8,
    /// The term of replication; 0 on a single node.
    pub term: u64,
    /// When the origin committed, in milliseconds since 1970.
    pub commit_time_ms: u64,
    /// The body.
    pub body: &'a [u8],
    /// CRC-32C of the body, computed by its origin.
    pub body_crc: u32,
    /// Where the chunks that the body refers to lie.
    pub local: &'a [ChunkRef],
}

impl Log {
    /// Asks for room for a frame of `frame_bytes` (header included, see [`frame_bytes`](crate::frame_bytes)) with a
    /// local record of `local_bytes` (see [`local_record_bytes`](crate::local_record_bytes)). This is the only step
    /// of a commit that waits, allocates or does I/O: it may flush for buffer credit, and make a segment.
    ///
    /// A thread that holds an admission and waits for another may wait for ever.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::NoSpace`], [`LogError::Io`]: nothing was logged. [`LogError::Poisoned`],
    /// [`LogError::Closed`]: reopen.
    pub fn admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Admission, LogError> {
        let mut first = None;
        loop {
            match self.core.admit_once(frame_bytes, local_bytes, first.as_ref())? {
                Admit::Done(admission) => return Ok(admission),
                Admit::NoSegment(charge) => {
                    add(&self.core.stats.segment_waits, 1);
                    self.core.make_room(charge)?;
                }
                Admit::NoCredit { is_long }
                    if first.is_none() && self.core.credit.has_to_line_up(is_long) =>
                {
                    first = Some(self.core.credit.line_up(is_long))
                }
                Admit::NoCredit { .. } => {
                    add(&self.core.stats.credit_waits, 1);
                    self.core.flush_for_credit()?;
                }
            }
        }
    }

    /// Like [`Log::admit`]; `None` where that would wait or do I/O.
    ///
    /// # Errors
    /// As [`Log::admit`].
    pub fn try_admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Option<Admission>, LogError> {
        match self.core.admit_once(frame_bytes, local_bytes, None)? {
            Admit::Done(admission) => Ok(Some(admission)),
            Admit::NoSegment(_) | Admit::NoCredit { .. } => {
                self.core.wake();
                Ok(None)
            }
        }
    }

    /// Gives the frame its CSN and its range, in one order for both: it joins the open group, or opens one. Never
    /// waits for a write, never fails. `level` is how far the commit will have to come.
    pub fn reserve(&self, admission: Admission, level: Durability) -> Reservation {
        self.reserve_at(admission, level, TimeBounds::ANY).expect("any time will do")
    }

    /// Like [`Log::reserve`], and the commit gets a time, too, which rises with the CSN. `None` if that would be too
    /// late: then it has no number, and the admission is given back.
    pub fn reserve_at(
        &self,
        admission: Admission,
        level: Durability,
        time: TimeBounds,
    ) -> Option<Reservation> {
        self.core.reserve(admission, level, time)
    }

    /// Puts the frame into its range: one copy, while others fill theirs.
    ///
    /// # Panics
    /// If the sizes are not the ones that were admitted. The log is poisoned then.
    pub fn fill(&self, reservation: Reservation, frame: NewFrame<'_>) {
        let Reservation { mut range, csn, frame_bytes, .. } = reservation;
        assert_eq!(
            frame.body.len() as u64 + u64::from(FRAME_HEADER_BYTES),
            u64::from(frame_bytes),
            "INV-LOG-3: a frame has the size that was admitted"
        );
        if !frame.local.is_empty() {
            encode_local_record(frame.local, &mut range);
        }
        assert_eq!(
            range.remaining(),
            frame_bytes as usize,
            "INV-LOG-3: a local record has the size that was admitted"
        );
        let header = FrameHeader {
            kind: frame.kind,
            flags: frame.flags,
            codec: frame.codec,
            body_bytes: frame.body.len() as u32,
            csn,
            term: frame.term,
            commit_time_ms: frame.commit_time_ms,
            body_crc: frame.body_crc,
        };
        range.put(&header.encode());
        range.put(frame.body);
    }
}

pub(crate) enum Admit {
    Done(Admission),
    /// There is no segment for this charge.
    NoSegment(u32),
    /// `is_long`: it needs several group groups.
    NoCredit {
        is_long: bool,
    },
}

impl Core {
    pub fn admit_once(
        self: &Arc<Self>,
        frame_bytes: u32,
        local_bytes: u32,
        first: Option<&First<'_>>,
    ) -> Result<Admit, LogError> {
        self.check_size("a frame", frame_bytes, self.options.frame_bytes_max())?;
        self.check_size("a local record", local_bytes, self.options.local_bytes_max())?;
        self.check_usable()?;
        let charge = self.credit.charge(group_charge(frame_bytes + local_bytes));
        match self.credit.take(charge, first) {
            Err(Missing::Room) => return Ok(Admit::NoSegment(charge.room)),
            Err(Missing::Slots) => return Ok(Admit::NoCredit { is_long: charge.slots > 1 }),
            Ok(()) => {}
        }
        let is_long = charge.room as usize > JOINABLE_BYTES_MAX;
        let buffer = is_long.then(|| Arc::new(GroupBuffer::new(charge.room as usize)));
        let core = Some(Arc::clone(self));
        Ok(Admit::Done(Admission { core, frame_bytes, local_bytes, charge, buffer }))
    }

    fn check_size(&self, what: &'static str, bytes: u32, max: u32) -> Result<(), LogError> {
        if bytes <= max {
            return Ok(());
        }
        Err(LogError::TooLarge { what, bytes: bytes.into(), max: max.into() })
    }

    fn reserve(&self, mut admission: Admission, level: Durability, time: TimeBounds) -> Option<Reservation> {
        let (frame_bytes, local_bytes) = (admission.frame_bytes, admission.local_bytes);
        let bytes = frame_bytes + local_bytes;
        // Only who waits for less is content with less; who does not wait is flushed in due time, and then in full.
        let barrier = level != Durability::NoBarrier;
        let joined = match self.ring.join(bytes, barrier, time) {
            Join::Joined(joined) => self.joined(&admission, joined),
            Join::NoRoom | Join::TooLate => self.join_or_open(&mut admission, bytes, barrier, time)?,
        };
        let core = admission.core.take().expect("an admission is used once");
        add(&self.stats.commits, 1);
        if !level.waits() {
            // Perhaps no committer asks for a flush: the thread comes when the log has fallen idle.
            self.signal.wake_resting();
        }
        // SAFETY: the range was just given out.
        let range = unsafe { ReservedRange::new(core, joined.memory, joined.slot, bytes) };
        let body_lsn = joined.lsn.advance(local_bytes + FRAME_HEADER_BYTES);
        Some(Reservation { range, csn: joined.csn, body_lsn, frame_bytes, time_ms: joined.time_ms })
    }

    /// Gives back what joining a group left of the charge.
    fn joined(&self, admission: &Admission, joined: Joined) -> Joined {
        self.credit.give_room(i64::from(admission.charge.room) - i64::from(joined.taken));
        self.credit.give_slots(admission.charge.slots);
        joined
    }

    fn join_or_open(
        &self,
        admission: &mut Admission,
        bytes: u32,
        barrier: bool,
        time: TimeBounds,
    ) -> Option<Joined> {
        let mut groups = self.groups();
        // Somebody may have opened a group while this thread waited for the lock.
        match self.ring.join(bytes, barrier, time) {
            Join::Joined(joined) => return Some(self.joined(admission, joined)),
            Join::NoRoom => {}
            Join::TooLate => return None,
        }
        let (slots, buffer) = (admission.charge.slots, admission.buffer.take());
        let new = NewGroup { bytes, barrier, slots, buffer };
        groups.open(new, time, &self.ring, &self.credit)
    }

    /// Makes segments until `charge` has room.
    pub fn make_room(&self, charge: u32) -> Result<(), LogError> {
        let mut maker = self.store.maker();
        loop {
            self.check_usable()?;
            if self.credit.has_room(charge) {
                return Ok(());
            }
            let taken = self.groups().segments_taken();
            let segment = self.make_segment(&mut maker, taken, 0, From::Disk)?;
            self.groups().push_ready(segment, &self.credit);
        }
    }

    /// Appends a group that holds only a mark, if that needs no waiting and nobody else has something to write.
    pub fn append_mark(self: &Arc<Self>) -> Result<bool, LogError> {
        let Admit::Done(mut admission) = self.admit_once(0, 0, None)? else {
            return Ok(false);
        };
        let mut groups = self.groups();
        if !groups.is_idle() {
            drop(groups);
            return Ok(false);
        }
        admission.core = None;
        let slots = admission.charge.slots;
        let new = NewGroup { bytes: 0, barrier: true, slots, buffer: None };
        groups.append_mark(new, &self.ring, &self.credit);
        Ok(true)
    }
}
