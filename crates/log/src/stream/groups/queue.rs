//! The groups in memory, in log order: opened, closed, taken, released, all under one lock.

use super::Supply;
use super::buffer::GroupBuffer;
use super::credit::{Credit, group_charge};
use super::ring::{GroupRing, JOINABLE_BYTES_MAX, Joined, Opening, TimeBounds, Word};
use crate::format::{GROUP_HEADER_BYTES, GroupKind, SEGMENT_DATA_START, align8};
use crate::segments::{Segment, Stream};
use fulgurite_types::{Csn, EntryId, Epoch, Lsn};
use std::collections::VecDeque;
use std::sync::Arc;

/// One group, from its opening until it is written. Until it is closed, `len` and `frames` are those of its opening.
#[derive(Clone)]
pub(crate) struct Group {
    pub kind: GroupKind,
    pub buffer: Arc<GroupBuffer>,
    pub segment: Arc<Segment>,
    pub offset: u32,
    /// Bytes used, header included.
    pub len: u32,
    pub first_csn: Csn,
    pub frames: u32,
    /// When the newest frame up to its end happened, once it is closed.
    pub time_ms: u64,
    /// Whether a member waits for a flush of the device.
    pub barrier: bool,
    /// The end of the segment that the stream left when this group opened.
    pub left: Option<SegmentEnd>,
    /// Its number, if it is an entry that has one, and the last entry before it.
    pub entry: Option<EntryId>,
    pub before: EntryId,
    pub sequence: u64,
    /// The group slots that it holds of the credit.
    slots: u32,
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

    /// The last entry up to here.
    pub fn last_entry(&self) -> EntryId {
        self.entry.unwrap_or(self.before)
    }

    fn is_now(&mut self, word: Word) {
        self.len = word.len();
        self.frames = word.frames();
        self.barrier = word.has_barrier();
    }
}

/// Where the stream left a segment: its end record goes there.
#[derive(Clone)]
pub(crate) struct SegmentEnd {
    pub segment: Arc<Segment>,
    pub offset: u32,
}

/// A group to open.
pub(super) struct NewGroup {
    /// The length of its first frame, local record included; 0 without one.
    pub bytes: u32,
    pub barrier: bool,
    /// The group slots that its admission took of the credit.
    pub slots: u32,
    /// For a frame longer than the pool's buffers.
    pub buffer: Option<Arc<GroupBuffer>>,
}

/// A group that is appended closed and filled.
pub(crate) struct WholeGroup<'a> {
    pub kind: GroupKind,
    pub frames: u32,
    /// When its last frame happened.
    pub time_ms: u64,
    pub payload: &'a [u8],
    pub entry: Option<EntryId>,
}

pub(super) struct Queue {
    epoch: Epoch,
    charge_max: u32,
    /// In log order: groups in flight, then closed ones, then at most one open.
    queue: VecDeque<Group>,
    /// How many groups at the front of `queue` a leader has taken.
    taken: usize,
    /// How many of these are stamped.
    stamped: usize,
    /// Whether the last group of `queue` still takes frames.
    open: bool,
    next_sequence: u64,
    segment: Arc<Segment>,
    /// Where the stream began in `segment`, and how many bytes of it the credit counts.
    segment_from: u32,
    segment_credit: i64,
    /// Where the next group begins, if none is open.
    offset: u32,
    next_csn: Csn,
    /// The newest commit's time, the open group's commits left out (INV-TIME-1).
    time_ms: u64,
    ready: VecDeque<Arc<Segment>>,
    /// How many segments both streams have taken: each doubles the size of the segments made next.
    segments_taken: u32,
    /// One buffer per group slot; those in use by groups are missing.
    pool: Vec<Arc<GroupBuffer>>,
}

/// Where the commit stream continues.
pub(crate) struct AppendPoint {
    pub epoch: Epoch,
    pub segment: Arc<Segment>,
    pub offset: u32,
    pub next_csn: Csn,
}

impl AppendPoint {
    /// How many bytes of the segment admission may promise.
    pub fn credit(&self, charge_max: u32) -> i64 {
        usable(&self.segment, self.offset, charge_max)
    }
}

impl Queue {
    pub fn new(at: AppendPoint, charge_max: u32, slots: usize) -> Queue {
        Queue {
            epoch: at.epoch,
            charge_max,
            queue: VecDeque::with_capacity(slots + 1),
            taken: 0,
            stamped: 0,
            open: false,
            next_sequence: 1,
            segment_from: at.offset,
            segment_credit: at.credit(charge_max),
            segment: at.segment,
            offset: at.offset,
            next_csn: at.next_csn,
            time_ms: 0,
            ready: VecDeque::new(),
            segments_taken: 1,
            pool: (0..slots).map(|_| Arc::new(GroupBuffer::new(JOINABLE_BYTES_MAX))).collect(),
        }
    }

    // Segments.

    pub fn push_ready(&mut self, segment: Arc<Segment>, credit: &Credit) {
        assert!(
            self.ready.back().is_none_or(|last| last.number < segment.number)
                && self.segment.number < segment.number,
            "INV-LOG-5: segment numbers rise along the commit stream"
        );
        let room = usable(&segment, SEGMENT_DATA_START, self.charge_max);
        self.ready.push_back(segment);
        credit.give_room(room);
    }

    /// The newest ready segment, if the commit stream keeps enough without it.
    pub fn take_ready(&mut self, credit: &Credit) -> Option<Arc<Segment>> {
        let room = usable(self.ready.back()?, SEGMENT_DATA_START, self.charge_max);
        if self.ready.len() < 2 || !credit.take_room(room, self.charge_max) {
            return None;
        }
        self.ready.pop_back()
    }

    /// The bulk stream took a segment that was made for it.
    pub fn count_taken(&mut self) {
        self.segments_taken += 1;
    }

    pub fn supply(&self) -> Supply {
        let bytes = || self.ready.iter().map(|segment| u64::from(segment.bytes));
        Supply {
            ready: self.ready.len(),
            ready_bytes: bytes().sum(),
            first_ready_bytes: bytes().next().unwrap_or(0),
            largest_ready_bytes: bytes().max().unwrap_or(0),
            taken: self.segments_taken,
        }
    }

    // Opening and closing.

    /// Opens a group and gives its first frame a CSN, a reserved range and a time; `None` if that would be too late.
    pub fn open(
        &mut self,
        new: NewGroup,
        time: TimeBounds,
        ring: &GroupRing,
        credit: &Credit,
    ) -> Option<Joined> {
        self.close_open(ring);
        let time_ms = self.time_ms.max(time.from_ms);
        if time_ms >= time.before_ms {
            return None;
        }
        self.time_ms = time_ms;
        let NewGroup { bytes, barrier, .. } = new;
        let group = self.push(GroupKind::Frames, 1, new, ring, credit);
        let is_joinable = group.buffer.capacity() == JOINABLE_BYTES_MAX;
        let room = room(&group.segment, group.offset).min(JOINABLE_BYTES_MAX as u32);
        let joined = ring.open(&Opening {
            sequence: group.sequence,
            first_csn: group.first_csn,
            start: group.start(),
            bytes,
            time_ms,
            len_max: if is_joinable { room } else { 0 },
            memory: group.buffer.memory(),
            barrier,
        });
        self.open = is_joinable;
        if !is_joinable {
            self.end_group();
        }
        Some(joined)
    }

    /// Appends a group that is closed and filled.
    pub fn append(&mut self, new: NewGroup, whole: &WholeGroup<'_>, ring: &GroupRing, credit: &Credit) {
        let group = self.push(whole.kind, whole.frames, new, ring, credit);
        // SAFETY: no committer joins this group, and no leader takes it before this lock is released.
        unsafe { group.buffer.stamp(GROUP_HEADER_BYTES as usize, whole.payload) };
        ring.occupy(group.sequence, whole.payload.len() as u32);
        self.queue.back_mut().expect("it was just pushed").entry = whole.entry;
        self.time_ms = self.time_ms.max(whole.time_ms);
        self.end_group();
    }

    /// Appends a group after the last one, or in the next segment.
    fn push(
        &mut self,
        kind: GroupKind,
        frames: u32,
        new: NewGroup,
        ring: &GroupRing,
        credit: &Credit,
    ) -> &Group {
        self.close_open(ring);
        let is_full = room(&self.segment, self.offset) < group_charge(new.bytes);
        let left = is_full.then(|| self.next_segment(credit));
        let pooled =
            || self.pool.pop().expect("INV-LOG-4: admission saw a free group slot, and it has a buffer");
        let buffer = new.buffer.unwrap_or_else(pooled);
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.queue.push_back(Group {
            kind,
            buffer,
            segment: Arc::clone(&self.segment),
            offset: self.offset,
            len: GROUP_HEADER_BYTES + new.bytes,
            first_csn: self.next_csn,
            frames,
            time_ms: 0,
            barrier: new.barrier,
            left,
            entry: None,
            before: EntryId::default(),
            sequence,
            slots: new.slots,
        });
        self.queue.back().expect("it was just pushed")
    }

    fn next_segment(&mut self, credit: &Credit) -> SegmentEnd {
        let next = self.ready.pop_front().expect("INV-LOG-4: admission saw a ready segment");
        next.hand_out(Stream::Commit, self.epoch, self.next_csn);
        self.segments_taken += 1;
        let end = self.offset;
        // The stream took more of this segment than the credit counted: that surplus was not taken from the others.
        credit.give_room(i64::from(end - self.segment_from) - self.segment_credit);
        self.segment_from = SEGMENT_DATA_START;
        self.segment_credit = usable(&next, SEGMENT_DATA_START, self.charge_max);
        self.offset = SEGMENT_DATA_START;
        SegmentEnd { segment: std::mem::replace(&mut self.segment, next), offset: end }
    }

    /// Closes the open group: a leader may take it, and no committer gets a CSN in it.
    pub fn close_open(&mut self, ring: &GroupRing) {
        if std::mem::take(&mut self.open) {
            let group = self.queue.back_mut().expect("a group is open");
            let word = ring.close(group.sequence);
            self.time_ms = ring.newest_ms(group.sequence, word);
            group.is_now(word);
            self.end_group();
        }
    }

    /// The group of a commit, closed; `None` if a leader has released it.
    pub fn close_group_of(&mut self, csn: Csn, ring: &GroupRing) -> Option<&Group> {
        let index = self.queue.partition_point(|group| group.first_csn <= csn).checked_sub(1)?;
        if index + 1 == self.queue.len() {
            self.close_open(ring);
        }
        self.queue.get(index).filter(|group| csn <= group.last_csn())
    }

    /// The next group begins at the end of the last one.
    fn end_group(&mut self) {
        let group = self.queue.back_mut().expect("a group was just closed");
        group.time_ms = self.time_ms;
        self.offset = group.end().offset();
        self.next_csn = Csn(group.first_csn.0 + u64::from(group.frames));
    }

    // Flushing.

    /// The number of filled groups at the front of the closed ones that no leader has taken, and whether an unfilled
    /// one follows.
    pub fn filled(&self, ring: &GroupRing) -> (usize, bool) {
        let closed = self.queue.len() - usize::from(self.open);
        let unfilled = |group: &Group| !ring.is_filled(group.sequence, group.len);
        match self.queue.range(self.taken..closed).position(unfilled) {
            Some(filled) => (filled, true),
            None => (closed - self.taken, false),
        }
    }

    /// Takes the first `count` groups for writing, until [`Queue::release`].
    pub fn take(&mut self, count: usize) -> Vec<Group> {
        assert_eq!(self.taken, 0, "INV-LOG-6: one leader at a time");
        self.taken = count;
        self.queue.range(..count).cloned().collect()
    }

    /// Of the groups that were taken, leaves all but the first `count` to another leader.
    pub fn untake(&mut self, count: usize) {
        self.taken = count;
    }

    /// The groups that were taken are stamped.
    pub fn set_stamped(&mut self) {
        self.stamped = self.taken;
    }

    /// Where the next group begins at or after the end of another, and its bytes, padding included, if it is stamped and still in memory. `at`
    /// may be where the stream left a segment.
    pub fn read_stamped(&self, at: Lsn) -> Option<(Lsn, Vec<u8>)> {
        let index = self.queue.partition_point(|group| group.start() < at);
        let group = self.queue.get(index).filter(|_| index < self.stamped)?;
        let left = |left: &SegmentEnd| Lsn::new(left.segment.number, left.offset);
        if group.start() != at && group.left.as_ref().map(left) != Some(at) {
            return None;
        }
        let bytes = group.end().offset() - group.offset;
        // SAFETY: the group is closed, filled and stamped, which was noted under this lock.
        let bytes = unsafe { group.buffer.read(0, bytes as usize) };
        Some((group.start(), bytes.to_vec()))
    }

    /// Releases the groups that were taken: they are in their segments now.
    pub fn release(&mut self, credit: &Credit) {
        self.stamped = 0;
        for _ in 0..std::mem::take(&mut self.taken) {
            let mut group = self.queue.pop_front().expect("INV-LOG-6: only what a leader took is released");
            if group.buffer.capacity() == JOINABLE_BYTES_MAX {
                // A reader of the buffer keeps it.
                let is_unused = Arc::get_mut(&mut group.buffer).is_some();
                self.pool.push(if is_unused {
                    group.buffer
                } else {
                    Arc::new(GroupBuffer::new(JOINABLE_BYTES_MAX))
                });
            }
            credit.give_slots(group.slots);
        }
    }

    // Looking.

    /// Whether nothing waits to be written.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// The CSN that the next frame gets.
    pub fn next_csn(&self, ring: &GroupRing) -> Csn {
        match self.queue.back() {
            Some(group) if self.open => {
                Csn(group.first_csn.0 + u64::from(ring.look(group.sequence).frames()))
            }
            _ => self.next_csn,
        }
    }

    /// The length of the group at `index` as it is now.
    fn len(&self, index: usize, ring: &GroupRing) -> u32 {
        let group = &self.queue[index];
        if self.open && index + 1 == self.queue.len() { ring.look(group.sequence).len() } else { group.len }
    }

    /// The end of the last reserved byte.
    pub fn reserved(&self, ring: &GroupRing) -> Lsn {
        match self.queue.back() {
            Some(group) => group.start().advance(align8(self.len(self.queue.len() - 1, ring))),
            None => Lsn::new(self.segment.number, self.offset),
        }
    }

    /// The end of the filled bytes that begin at `written`, without a gap.
    pub fn filled_to(&self, written: Lsn, ring: &GroupRing) -> Lsn {
        let mut end = written;
        for (index, group) in self.queue.iter().enumerate() {
            let len = self.len(index, ring);
            if !ring.is_filled(group.sequence, len) {
                break;
            }
            end = end.max(group.start().advance(align8(len)));
        }
        end
    }

    /// The group that holds all of `lsn..lsn + len`, if it is still in memory, and the offset of `lsn` in it.
    pub fn find(&self, lsn: Lsn, len: u32, ring: &GroupRing) -> Option<(&Group, u32)> {
        let index = self.queue.partition_point(|group| group.start() <= lsn);
        let group = &self.queue[index.checked_sub(1)?];
        let end = self.len(index - 1, ring);
        let at = lsn.offset().checked_sub(group.offset)?;
        let inside = group.segment.number == lsn.segment()
            && at >= GROUP_HEADER_BYTES
            && at.checked_add(len).is_some_and(|last| last <= end);
        inside.then_some((group, at))
    }

    /// Whether all ranges that a group has now are filled.
    pub fn is_filled(&self, group: &Group, ring: &GroupRing) -> bool {
        let is_open = self.open && self.queue.back().is_some_and(|last| last.sequence == group.sequence);
        if is_open { ring.is_filled_now(group.sequence) } else { ring.is_filled(group.sequence, group.len) }
    }
}

/// The bytes that groups may still take of `segment` from `offset` on; the end record keeps its room (INV-LOG-5).
fn room(segment: &Segment, offset: u32) -> u32 {
    (segment.bytes - GROUP_HEADER_BYTES).saturating_sub(offset)
}

/// The bytes that admission may promise of it: the stream leaves a segment when the next group does not fit, which is
/// at most `charge_max` long.
fn usable(segment: &Segment, offset: u32, charge_max: u32) -> i64 {
    room(segment, offset).saturating_sub(charge_max).into()
}
