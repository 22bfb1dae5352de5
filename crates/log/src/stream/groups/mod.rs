//! The groups in memory: the open one, which committers join, the closed ones, which a leader takes, their ring, their
//! buffers, and the credit that admits frames to them.
//!
//! A committer takes the lock of the queue only to open a group; it joins the open one without ([`ring`]). Nothing here
//! takes another lock under it. The work given to [`Groups::at_reserved`] may, but none of the log.

mod buffer;
mod credit;
mod queue;
mod ring;

pub(crate) use self::buffer::ReservedRange;
pub(crate) use self::credit::{First, Missing, group_charge};
pub(crate) use self::queue::{AppendPoint, Group, SegmentEnd, WholeGroup};
pub use self::ring::TimeBounds;
pub(crate) use self::ring::{JOINABLE_BYTES_MAX, Joined};

use self::buffer::GroupBuffer;
use self::credit::{Charge, Credit};
use self::queue::{NewGroup, Queue};
use self::ring::{GroupRing, Join};
use crate::error::LogError;
use crate::format::GroupKind;
use crate::options::LogOptions;
use crate::segments::Segment;
use crate::shared::Shared;
use crate::stats::add;
use crossbeam_utils::CachePadded;
use fulgurite_types::sync::{Mutex, MutexGuard, spin_loop, yield_now};
use fulgurite_types::{Csn, Lsn};
use std::sync::Arc;

/// How often a leader looks for a range that is being filled, before it takes the filled groups without that one.
const FILL_SPINS: u32 = if cfg!(feature = "shuttle") { 2 } else { 200 };

/// The credit of an admitted frame.
pub(crate) struct Admitted {
    charge: Charge,
    /// For a frame longer than the pool's buffers.
    buffer: Option<Arc<GroupBuffer>>,
}

/// A commit's group: its sequence number, and its last commit.
#[derive(Clone, Copy)]
pub(crate) struct GroupOf {
    pub sequence: u64,
    pub last_csn: Csn,
}

/// How far reserving and filling have come.
pub(crate) struct Fill {
    pub filled: Lsn,
    pub reserved: Lsn,
    pub reserved_csn: Csn,
}

/// Bytes of a group in memory.
pub(crate) enum InMemory {
    Bytes(Vec<u8>),
    BeingFilled,
    No,
}

/// How many segments there are for the streams.
pub(crate) struct Supply {
    /// Those that are ready.
    pub ready: usize,
    /// Their bytes, those of the first, and those of the largest.
    pub ready_bytes: u64,
    pub first_ready_bytes: u64,
    pub largest_ready_bytes: u64,
    /// Those that both streams have taken.
    pub taken: u32,
}

pub(crate) struct Groups {
    queue: CachePadded<Mutex<Queue>>,
    ring: GroupRing,
    credit: Credit,
    shared: Arc<Shared>,
}

impl Groups {
    pub fn new(shared: Arc<Shared>, at: AppendPoint) -> Groups {
        let slots = slots(&shared.options);
        let charge_max = shared.options.charge_max();
        Groups {
            ring: GroupRing::new(slots),
            credit: Credit::new(at.credit(charge_max), slots),
            queue: CachePadded::new(Mutex::new(Queue::new(at, charge_max, slots))),
            shared,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        let queue = self.queue.lock();
        add(&self.shared.stats.group_locks, 1);
        queue
    }

    // Admission.

    /// Takes credit for a frame of `bytes`, local record included. `first` is the right to take group slots before all
    /// others.
    pub fn admit(&self, bytes: u32, first: Option<&First<'_>>) -> Result<Admitted, Missing> {
        let charge = self.credit.charge(bytes);
        self.credit.take(charge, first)?;
        let is_long = charge.room as usize > JOINABLE_BYTES_MAX;
        let buffer = is_long.then(|| Arc::new(GroupBuffer::new(charge.room as usize)));
        Ok(Admitted { charge, buffer })
    }

    /// Gives back the credit of an admission that was not used.
    pub fn give_back(&self, admitted: &Admitted) {
        self.credit.give(admitted.charge);
    }

    /// Whether a frame that did not get its group slots has to line up.
    pub fn has_to_line_up(&self, is_long: bool) -> bool {
        self.credit.has_to_line_up(is_long)
    }

    /// Waits until the frame is first in line.
    pub fn line_up(&self, is_long: bool) -> First<'_> {
        self.credit.line_up(is_long)
    }

    /// Whether admission would find room for `charge` in the segments.
    pub fn has_room(&self, charge: u32) -> bool {
        self.credit.has_room(charge)
    }

    // Reserving and filling.

    /// Joins the open group, or opens one: gives a frame of `bytes` its CSN, its range and its time. `None` if that
    /// would be too late; then the caller still has the credit.
    #[inline]
    pub fn reserve(
        &self,
        admitted: &mut Admitted,
        bytes: u32,
        barrier: bool,
        time: TimeBounds,
    ) -> Option<Joined> {
        match self.ring.join(bytes, barrier, time) {
            Join::Joined(joined) => Some(self.joined(admitted, joined)),
            Join::NoRoom | Join::TooLate => self.join_or_open(admitted, bytes, barrier, time),
        }
    }

    /// Gives back the rest of the charge after joining a group.
    fn joined(&self, admitted: &Admitted, joined: Joined) -> Joined {
        self.credit.give_room(i64::from(admitted.charge.room) - i64::from(joined.taken));
        self.credit.give_slots(admitted.charge.slots);
        joined
    }

    fn join_or_open(
        &self,
        admitted: &mut Admitted,
        bytes: u32,
        barrier: bool,
        time: TimeBounds,
    ) -> Option<Joined> {
        let mut queue = self.queue();
        // Another committer may have opened a group while this one waited for the lock.
        match self.ring.join(bytes, barrier, time) {
            Join::Joined(joined) => return Some(self.joined(admitted, joined)),
            Join::NoRoom => {}
            Join::TooLate => return None,
        }
        let new = NewGroup { bytes, barrier, slots: admitted.charge.slots, buffer: admitted.buffer.take() };
        queue.open(new, time, &self.ring, &self.credit)
    }

    /// Counts a range as filled.
    #[inline]
    pub fn fill(&self, range: &ReservedRange) {
        self.ring.fill(range.slot, range.bytes);
    }

    /// Appends a mark group, unless other groups are to be written. It uses the admission.
    pub fn append_mark(&self, admitted: &Admitted) -> bool {
        let mut queue = self.queue();
        if !queue.is_idle() {
            return false;
        }
        let new = NewGroup { bytes: 0, barrier: true, slots: admitted.charge.slots, buffer: None };
        let whole = WholeGroup { kind: GroupKind::Mark, frames: 0, time_ms: 0, payload: &[], entry: None };
        queue.append(new, &whole, &self.ring, &self.credit);
        true
    }

    /// Appends an entry as a whole. It uses the admission. Fails if the next commit is not `first_csn`.
    pub fn append_entry(
        &self,
        admitted: &mut Admitted,
        whole: &WholeGroup<'_>,
        first_csn: Option<Csn>,
    ) -> Result<(), LogError> {
        let mut queue = self.queue();
        let next = queue.next_csn(&self.ring);
        if let Some(first) = first_csn.filter(|first| *first != next) {
            return Err(LogError::Usage(format!(
                "an entry begins with commit {first}, and {next} has to follow"
            )));
        }
        let bytes = whole.payload.len() as u32;
        let slots = admitted.charge.slots;
        let new = NewGroup { bytes, barrier: true, slots, buffer: admitted.buffer.take() };
        queue.append(new, whole, &self.ring, &self.credit);
        Ok(())
    }

    // Writing.

    /// Closes the open group and takes all filled groups; waits for at least one, if there are any. Ranges reserved
    /// meanwhile are left to the next leader.
    pub fn take_filled(&self) -> Result<Vec<Group>, LogError> {
        self.queue().close_open(&self.ring);
        let mut spins = 0;
        loop {
            self.shared.poison.check()?;
            let mut queue = self.queue();
            let (count, is_more_coming) = queue.filled(&self.ring);
            if !is_more_coming || (count > 0 && spins >= FILL_SPINS) {
                return Ok(queue.take(count));
            }
            drop(queue);
            add(&self.shared.stats.fill_waits, 1);
            spins += 1;
            if spins < FILL_SPINS { spin_loop() } else { yield_now() }
        }
    }

    /// Of the groups that were taken, leaves all but the first `count` to another leader.
    pub fn untake(&self, count: usize) {
        self.queue().untake(count);
    }

    /// The groups that were taken are stamped.
    pub fn set_stamped(&self) {
        self.queue().set_stamped();
    }

    /// Start and bytes of the group at `at`, or at the beginning of the segment that follows there, if it is stamped and in memory.
    pub fn read_stamped(&self, at: Lsn) -> Option<(Lsn, Vec<u8>)> {
        self.queue().read_stamped(at)
    }

    /// Releases the groups that were taken, with their buffers: they are in their segments now (INV-LOG-6).
    pub fn release(&self) {
        self.queue().release(&self.credit);
    }

    /// Makes the caller the group's flushing thread, unless it has one; for the schemes in which each group has one.
    pub fn claim(&self, sequence: u64) -> bool {
        self.ring.claim(sequence)
    }

    /// The group of a commit, closed, unless a leader has released it.
    pub fn close_group_of(&self, csn: Csn) -> Result<Option<GroupOf>, LogError> {
        let mut queue = self.queue();
        check_reserved(csn, queue.next_csn(&self.ring).prev())?;
        let group = queue.close_group_of(csn, &self.ring);
        Ok(group.map(|group| GroupOf { sequence: group.sequence, last_csn: group.last_csn() }))
    }

    // Looking.

    /// The newest commit that has a CSN.
    pub fn reserved_csn(&self) -> Csn {
        self.queue().next_csn(&self.ring).prev()
    }

    /// Fails if there is no such commit.
    pub fn check_reserved(&self, csn: Csn) -> Result<(), LogError> {
        check_reserved(csn, self.reserved_csn())
    }

    /// Runs `work` with the newest reserved CSN, while no commit can get one.
    pub fn at_reserved<R>(&self, work: impl FnOnce(Csn) -> R) -> R {
        let mut queue = self.queue();
        // No committer joins a closed group, and opening one needs the lock.
        queue.close_open(&self.ring);
        work(queue.next_csn(&self.ring).prev())
    }

    /// Whether nothing waits to be written.
    pub fn is_idle(&self) -> bool {
        self.queue().is_idle()
    }

    /// How far reserving and filling have come, where all bytes before `written` are written.
    pub fn fill_above(&self, written: Lsn) -> Fill {
        let queue = self.queue();
        let filled = queue.filled_to(written, &self.ring);
        let reserved = queue.reserved(&self.ring).max(filled);
        Fill { filled, reserved, reserved_csn: queue.next_csn(&self.ring).prev() }
    }

    /// Copies `lsn..lsn + len`, if it is in a group in memory.
    pub fn read(&self, lsn: Lsn, len: u32) -> InMemory {
        let queue = self.queue();
        let Some((group, at)) = queue.find(lsn, len, &self.ring) else {
            return InMemory::No;
        };
        if !queue.is_filled(group, &self.ring) {
            return InMemory::BeingFilled;
        }
        let buffer = Arc::clone(&group.buffer);
        drop(queue);
        // SAFETY: this thread saw the range reserved and filled under the lock of the queue, and it excludes the
        // header.
        InMemory::Bytes(unsafe { buffer.read(at as usize, len as usize) }.to_vec())
    }

    // Segments.

    pub fn supply(&self) -> Supply {
        self.queue().supply()
    }

    /// Adds a segment that was just made. The caller holds the maker, so that their numbers rise.
    pub fn push_ready(&self, segment: Arc<Segment>) {
        self.queue().push_ready(segment, &self.credit);
    }

    /// The newest ready segment, if the commit stream keeps enough without it.
    pub fn take_ready(&self) -> Option<Arc<Segment>> {
        self.queue().take_ready(&self.credit)
    }

    /// The bulk stream took a segment that was made for it.
    pub fn count_taken(&self) {
        self.queue().count_taken();
    }
}

fn slots(options: &LogOptions) -> usize {
    options.buffer_bytes.div_ceil(JOINABLE_BYTES_MAX).max(2)
}

fn check_reserved(csn: Csn, newest: Csn) -> Result<(), LogError> {
    if csn <= newest {
        return Ok(());
    }
    Err(LogError::Usage(format!("commit {csn} was awaited, but {newest} is the newest one")))
}
