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
    /// `None` once it is used.
    core: Option<Arc<Core>>,
    frame_bytes: u32,
    local_bytes: u32,
    charge: Charge,
    /// For a frame longer than the pool's buffers.
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

/// A frame's reserved range in the log. Give it to [`Log::fill`]: dropping it poisons the log, because every later
/// commit would wait for it.
#[must_use]
pub struct Reservation {
    range: ReservedRange,
    csn: Csn,
    body_lsn: Lsn,
    frame_bytes: u32,
    time_ms: u64,
}

impl Reservation {
    /// The commit's CSN.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// The LSN of the frame's body.
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

/// A frame without its CSN.
#[derive(Clone, Copy, Debug)]
pub struct NewFrame<'a> {
    /// The kind of the body; the log does not interpret it.
    pub kind: u8,
    /// Flags of the body; the log does not interpret them.
    pub flags: u8,
    /// How the body is compressed; the log does not interpret it.
    pub codec: u8,
    /// The term of replication; 0 on a single node.
    pub term: u64,
    /// When the origin committed, in milliseconds since 1970.
    pub commit_time_ms: u64,
    /// The body.
    pub body: &'a [u8],
    /// CRC-32C of the body, computed by its origin.
    pub body_crc: u32,
    /// The extents of the chunks that the body refers to.
    pub local: &'a [ChunkRef],
}

impl Log {
    /// Takes room for a frame of `frame_bytes` (header included, see [`frame_bytes`](crate::frame_bytes)) with a local
    /// record of `local_bytes` (see [`local_record_bytes`](crate::local_record_bytes)). Before the wait for durability,
    /// only this step of a commit waits, allocates or does I/O: it may flush for buffer credit, and make a segment.
    ///
    /// A thread that holds one admission and waits for another may wait for ever.
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

    /// Like [`Log::admit`], but returns `None` where that would wait or do I/O.
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

    /// Gives the frame its CSN and its reserved range, in one order for both: it joins the open group, or opens one.
    /// Never waits for a write, never fails. `level` is the commit's durability level.
    pub fn reserve(&self, admission: Admission, level: Durability) -> Reservation {
        self.reserve_at(admission, level, TimeBounds::ANY).expect("any time will do")
    }

    /// Like [`Log::reserve`], and gives the commit a time, which rises with the CSN. `None` if that would be too late:
    /// then the commit has no CSN, and the admission is given back.
    pub fn reserve_at(
        &self,
        admission: Admission,
        level: Durability,
        time: TimeBounds,
    ) -> Option<Reservation> {
        self.core.reserve(admission, level, time)
    }

    /// Copies the frame into its range, while other threads fill theirs.
    ///
    /// # Panics
    /// If the sizes differ from the admitted ones. The log is poisoned then.
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
    /// No segment has room for this charge.
    NoSegment(u32),
    /// `is_long`: the frame needs several group slots.
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
        // Only a committer that waits for less goes without a barrier. One that does not wait is flushed later, in
        // full.
        let barrier = level != Durability::NoBarrier;
        let joined = match self.ring.join(bytes, barrier, time) {
            Join::Joined(joined) => self.joined(&admission, joined),
            Join::NoRoom | Join::TooLate => self.join_or_open(&mut admission, bytes, barrier, time)?,
        };
        let core = admission.core.take().expect("an admission is used once");
        add(&self.stats.commits, 1);
        if !level.waits() {
            // Perhaps no committer asks for a flush: then the log thread flushes once the log is idle.
            self.signal.wake_resting();
        }
        // SAFETY: the range was just given to this caller by `join` or `open`.
        let range = unsafe { ReservedRange::new(core, joined.memory, joined.slot, bytes) };
        let body_lsn = joined.lsn.advance(local_bytes + FRAME_HEADER_BYTES);
        Some(Reservation { range, csn: joined.csn, body_lsn, frame_bytes, time_ms: joined.time_ms })
    }

    /// Gives back the rest of the charge after joining a group.
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
        // Another committer may have opened a group while this one waited for the lock.
        match self.ring.join(bytes, barrier, time) {
            Join::Joined(joined) => return Some(self.joined(admission, joined)),
            Join::NoRoom => {}
            Join::TooLate => return None,
        }
        let (slots, buffer) = (admission.charge.slots, admission.buffer.take());
        let new = NewGroup { bytes, barrier, slots, buffer };
        groups.open(new, time, &self.ring, &self.credit)
    }

    /// Makes segments until there is room for `charge`.
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

    /// Appends a mark group, if admission need not wait and no other group is to be written.
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
