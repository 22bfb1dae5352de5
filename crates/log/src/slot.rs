//! The slot: where commits get their places. Everything here happens under one short lock.

use crate::buffer::{GroupBuffer, Place};
use crate::format::{GROUP_HEADER_BYTES, GroupKind, SEGMENT_DATA_START, align8};
use crate::options::group_charge;
use crate::segment::{Segment, Stream};
use fulgurite_base::{Csn, Epoch, Lsn};
use std::collections::VecDeque;
use std::sync::Arc;

/// One group, from its opening until it is written.
#[derive(Clone)]
pub(crate) struct Group {
    pub kind: GroupKind,
    pub buffer: Arc<GroupBuffer>,
    pub segment: Arc<Segment>,
    pub offset: u32,
    /// Bytes used so far, header included.
    pub len: u32,
    pub first_csn: Csn,
    pub frames: u32,
    /// The segment that the stream left when this group opened, and where its end record goes.
    pub ends: Option<(Arc<Segment>, u32)>,
}

impl Group {
    pub fn start(&self) -> Lsn {
        Lsn::new(self.segment.number, self.offset)
    }

    pub fn end(&self) -> Lsn {
        Lsn::new(self.segment.number, align8(self.offset + self.len))
    }

    pub fn last_csn(&self) -> Csn {
        Csn(self.first_csn.0 + u64::from(self.frames) - 1)
    }
}

/// What a commit gets.
pub(crate) struct Reserved {
    pub place: Place,
    pub csn: Csn,
    /// Where the place begins.
    pub lsn: Lsn,
}

pub(crate) struct Slot {
    epoch: Epoch,
    charge_max: u32,
    /// In flight, then closed, then at most one open; in log order.
    groups: VecDeque<Group>,
    /// How many of `groups`, from the front, a leader has taken.
    taken: usize,
    /// Whether the last of `groups` still takes frames.
    open: bool,
    segment: Arc<Segment>,
    /// Where the next group begins if none is open.
    offset: u32,
    next_csn: Csn,
    ready: VecDeque<Arc<Segment>>,
    /// How many segments both streams have taken: each doubles the size of those made next.
    segments_taken: u32,
    /// Charges of admissions that have not reserved yet.
    promised: u64,
    /// How many those are.
    admissions: usize,
    pool: Vec<Arc<GroupBuffer>>,
    /// Bytes of buffers that hang on admissions or groups.
    buffer_bytes: usize,
}

/// Where a stream goes on.
pub(crate) struct AppendPoint {
    pub epoch: Epoch,
    pub segment: Arc<Segment>,
    pub offset: u32,
    pub next_csn: Csn,
}

impl Slot {
    pub fn new(at: AppendPoint, charge_max: u32, pool_capacity: usize) -> Slot {
        Slot {
            epoch: at.epoch,
            charge_max,
            groups: VecDeque::with_capacity(pool_capacity + 1),
            taken: 0,
            open: false,
            segment: at.segment,
            offset: at.offset,
            next_csn: at.next_csn,
            ready: VecDeque::new(),
            segments_taken: 1,
            promised: 0,
            admissions: 0,
            pool: Vec::with_capacity(pool_capacity),
            buffer_bytes: 0,
        }
    }

    // Admission.

    /// Whether every promise and `charge` more can be kept (INV-LOG-4). A segment is left when what comes does not
    /// fit, and that is at most `charge_max`: so much of each must not be counted.
    pub fn has_room(&self, charge: u32) -> bool {
        let usable = |room: u32| u64::from(room.saturating_sub(self.charge_max));
        let current = room(&self.segment, self.offset).min(self.room_behind_open());
        let ready: u64 = self.ready.iter().map(|segment| usable(room(segment, SEGMENT_DATA_START))).sum();
        self.promised + u64::from(charge) <= usable(current) + ready
    }

    fn room_behind_open(&self) -> u32 {
        match self.groups.back() {
            Some(group) if self.open => room(&self.segment, group.end().offset()),
            _ => u32::MAX,
        }
    }

    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Takes a pooled buffer, if `capacity` is what the pool holds.
    pub fn pooled(&mut self, capacity: usize) -> Option<Arc<GroupBuffer>> {
        let fits = self.pool.last().is_some_and(|buffer| buffer.capacity() == capacity);
        if fits { self.pool.pop() } else { None }
    }

    /// Enters a promise, and makes room for what keeping it will push.
    pub fn promise(&mut self, charge: u32, capacity: usize) {
        self.promised += u64::from(charge);
        self.admissions += 1;
        self.buffer_bytes += capacity;
        self.groups.reserve(self.admissions);
    }

    /// Ends a promise, kept or not.
    pub fn end_promise(&mut self, charge: u32) {
        self.promised -= u64::from(charge);
        self.admissions -= 1;
    }

    /// Takes back a buffer that nobody else holds; any other is left to its last holder.
    pub fn recycle(&mut self, mut buffer: Arc<GroupBuffer>, capacity: usize) {
        self.buffer_bytes -= buffer.capacity();
        let unused = Arc::get_mut(&mut buffer).is_some() && buffer.is_filled();
        if unused && buffer.capacity() == capacity && self.pool.len() < self.pool.capacity() {
            self.pool.push(buffer);
        }
    }

    pub fn push_ready(&mut self, segment: Arc<Segment>) {
        assert!(
            self.ready.back().is_none_or(|last| last.number < segment.number)
                && self.segment.number < segment.number,
            "INV-LOG-5: segment numbers rise along the commit stream"
        );
        self.ready.push_back(segment);
    }

    /// A ready segment of at least `bytes_min` for the bulk stream, if the commit stream keeps enough.
    pub fn take_ready(&mut self, bytes_min: u32) -> Option<Arc<Segment>> {
        let segment = self.ready.pop_front()?;
        if segment.bytes >= bytes_min && !self.ready.is_empty() && self.has_room(self.charge_max) {
            self.segments_taken += 1;
            return Some(segment);
        }
        self.ready.push_front(segment);
        None
    }

    /// The bulk stream took a segment that was made for it.
    pub fn count_taken(&mut self) {
        self.segments_taken += 1;
    }

    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    pub fn segments_taken(&self) -> u32 {
        self.segments_taken
    }

    // Reservation.

    /// Gives the next frame its number and its place: in the open group if it fits, else in a new one in `spare`,
    /// which is returned if it was not needed.
    pub fn reserve(&mut self, bytes: u32, spare: Arc<GroupBuffer>) -> (Reserved, Option<Arc<GroupBuffer>>) {
        let joins = self.open && self.groups.back().is_some_and(|group| fits(group, bytes));
        let unused = if joins {
            Some(spare)
        } else {
            self.open_group(GroupKind::Frames, bytes, spare);
            None
        };
        let csn = self.next_csn;
        self.next_csn = csn.next();
        let group = self.groups.back_mut().expect("a group is open");
        let at = group.len;
        group.len += bytes;
        group.frames += 1;
        let lsn = Lsn::new(group.segment.number, group.offset + at);
        // SAFETY: the slot is borrowed mutably, so its lock is held, and `len` was moved past the place.
        let place = unsafe { group.buffer.place(at as usize, bytes as usize) };
        (Reserved { place, csn, lsn }, unused)
    }

    /// Appends a group without frames, closed.
    pub fn append_hint(&mut self, spare: Arc<GroupBuffer>) {
        self.open_group(GroupKind::Hint, 0, spare);
        self.close_open();
    }

    fn open_group(&mut self, kind: GroupKind, bytes: u32, buffer: Arc<GroupBuffer>) {
        self.close_open();
        let ends = (room(&self.segment, self.offset) < group_charge(bytes)).then(|| self.next_segment());
        self.groups.push_back(Group {
            kind,
            buffer,
            segment: Arc::clone(&self.segment),
            offset: self.offset,
            len: GROUP_HEADER_BYTES,
            first_csn: self.next_csn,
            frames: 0,
            ends,
        });
        self.open = true;
    }

    fn next_segment(&mut self) -> (Arc<Segment>, u32) {
        let next = self.ready.pop_front().expect("INV-LOG-4: admission saw a ready segment");
        next.hand_out(Stream::Commit, self.epoch, self.next_csn);
        self.segments_taken += 1;
        let end = self.offset;
        self.offset = SEGMENT_DATA_START;
        (std::mem::replace(&mut self.segment, next), end)
    }

    // Flushing.

    /// Closes the open group, so that a leader may take it.
    pub fn close_open(&mut self) {
        if self.open {
            self.open = false;
            self.offset = self.groups.back().expect("a group is open").end().offset();
        }
    }

    /// The closed groups that no leader has taken, as far as they are filled, and the first one that is not.
    pub fn filled(&self) -> (usize, Option<Arc<GroupBuffer>>) {
        let closed = self.groups.len() - usize::from(self.open);
        for (index, group) in self.groups.range(self.taken..closed).enumerate() {
            if !group.buffer.is_filled() {
                return (index, Some(Arc::clone(&group.buffer)));
            }
        }
        (closed - self.taken, None)
    }

    /// Takes the first `count` groups for writing; [`Slot::release`] ends that.
    pub fn take(&mut self, count: usize) -> Vec<Group> {
        assert_eq!(self.taken, 0, "INV-LOG-6: one leader at a time");
        self.taken = count;
        self.groups.range(..count).cloned().collect()
    }

    /// Lets go of the first group, which is in its segment now.
    pub fn release(&mut self) -> Arc<GroupBuffer> {
        assert!(self.taken > 0, "INV-LOG-6: only what a leader took is released");
        self.taken -= 1;
        self.groups.pop_front().expect("a taken group is there").buffer
    }

    // Looking.

    /// Whether nothing waits to be written.
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn next_csn(&self) -> Csn {
        self.next_csn
    }

    /// Behind the last reserved byte.
    pub fn reserved(&self) -> Lsn {
        match self.groups.back() {
            Some(group) => group.end(),
            None => Lsn::new(self.segment.number, self.offset),
        }
    }

    /// Behind the last byte before which all is filled, given what is written.
    pub fn filled_to(&self, written: Lsn) -> Lsn {
        let filled = self.groups.iter().take_while(|group| group.buffer.is_filled());
        filled.last().map_or(written, Group::end).max(written)
    }

    /// The group that holds all of `lsn..lsn + len`, if it is still in memory, and where in it that lies.
    pub fn find(&self, lsn: Lsn, len: u32) -> Option<(&Group, u32)> {
        let index = self.groups.partition_point(|group| group.start() <= lsn);
        let group = &self.groups[index.checked_sub(1)?];
        let at = lsn.offset().checked_sub(group.offset)?;
        let inside = group.segment.number == lsn.segment()
            && at >= GROUP_HEADER_BYTES
            && at.checked_add(len).is_some_and(|end| end <= group.len);
        inside.then_some((group, at))
    }
}

/// What groups may still take of `segment` behind `offset`; the segment end always keeps its place (INV-LOG-5).
fn room(segment: &Segment, offset: u32) -> u32 {
    (segment.bytes - GROUP_HEADER_BYTES).saturating_sub(offset)
}

fn fits(group: &Group, bytes: u32) -> bool {
    let end = align8(group.len + bytes);
    end as usize <= group.buffer.capacity() && end <= room(&group.segment, group.offset)
}
