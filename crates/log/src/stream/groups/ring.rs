//! Joining the open group without a lock.
//!
//! Each group has a group slot while it is in memory. The slot's word holds the group's bytes and frames, whether it is
//! closed, and the low bits of its sequence number. A committer joins with one compare-exchange of that word, which
//! gives its reserved range and its CSN in one order for both. Threads fill their ranges in parallel and count them
//! into `filled`. Groups are opened and closed under the lock of the queue. The idea is the
//! consolidation array of Aether (Johnson et al., 2010).
//!
//! - INV-LOG-12: a group slot's fields other than `word` and `filled` change only while no group uses the slot. A
//!   committer whose compare-exchange succeeded holds a range that only it fills, so the group keeps its slot until
//!   then.
//! - INV-TIME-1: commit times rise with CSNs. The word also holds by how much the group's newest commit is later than
//!   its first. The compare-exchange that gives the CSN gives the time: the group's or the commit's own, whichever is
//!   later. So a commit gets its time with its CSN, and one whose time would be too late gets neither.
//! - INV-LOG-13: a closed group never changes its size: joining fails once the word is closed.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use fulgurite_types::{Csn, Lsn};

use crate::format::{GROUP_HEADER_BYTES, align8};
use fulgurite_types::sync::{AtomicU32, AtomicU64};

const LEN_BITS: u32 = 17;
const FRAMES_BITS: u32 = 12;
/// Milliseconds since the group's first commit: a group takes commits for at most a second.
const TIME_BITS: u32 = 10;
const TIME_SHIFT: u32 = LEN_BITS + FRAMES_BITS;
const TIME_MASK: u64 = ((1 << TIME_BITS) - 1) << TIME_SHIFT;
const CLOSED: u64 = 1 << (TIME_SHIFT + TIME_BITS);
const BARRIER: u64 = CLOSED << 1;
const TAG_SHIFT: u32 = TIME_SHIFT + TIME_BITS + 2;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;
const FRAMES_MAX: u32 = (1 << FRAMES_BITS) - 1;

/// The longest group that committers may join.
pub(crate) const JOINABLE_BYTES_MAX: usize = 32 * 1024;
const _: () = assert!(JOINABLE_BYTES_MAX as u64 <= LEN_MASK);

/// A group's state in one word.
#[derive(Clone, Copy)]
pub(crate) struct Word(u64);

impl Word {
    fn new(sequence: u64, len: u32, barrier: bool) -> Word {
        let flags = if barrier { BARRIER } else { 0 };
        Word(sequence << TAG_SHIFT | flags | 1 << LEN_BITS | u64::from(len))
    }

    fn is_of(self, sequence: u64) -> bool {
        self.0 >> TAG_SHIFT == sequence << TAG_SHIFT >> TAG_SHIFT
    }

    /// The group's bytes, header included.
    pub fn len(self) -> u32 {
        (self.0 & LEN_MASK) as u32
    }

    pub fn frames(self) -> u32 {
        (self.0 >> LEN_BITS) as u32 & FRAMES_MAX
    }

    /// By how many milliseconds the newest commit is later than the first.
    fn time_ms(self) -> u64 {
        (self.0 & TIME_MASK) >> TIME_SHIFT
    }

    /// Whether a member waits for a flush of the device.
    pub fn has_barrier(self) -> bool {
        self.0 & BARRIER != 0
    }

    fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// With one more frame of `bytes`, `time_ms` after the first; the caller checked that both fit.
    fn joined(self, bytes: u32, barrier: bool, time_ms: u64) -> Word {
        let flags = if barrier { BARRIER } else { 0 };
        let timeless = (self.0 & !TIME_MASK) + u64::from(bytes) + (1 << LEN_BITS);
        Word(timeless | time_ms << TIME_SHIFT | flags)
    }
}

/// What a committer got by joining or opening a group.
#[derive(Clone, Copy)]
pub(crate) struct Joined {
    pub csn: Csn,
    /// The start of the reserved range.
    pub lsn: Lsn,
    pub memory: *mut u8,
    pub slot: usize,
    /// By how much the group's end moved in its segment.
    pub taken: u32,
    /// The commit's time.
    pub time_ms: u64,
}

/// The outcome of joining the open group.
pub(crate) enum Join {
    Joined(Joined),
    /// No group is open, or it has no room.
    NoRoom,
    /// The commit's time would be too late. Certain only under the lock of the groups: without it the group may be
    /// closed by now, and the slot be another group's.
    TooLate,
}

/// When a commit may happen, in milliseconds since 1970: at or after `from_ms`, and before `before_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBounds {
    /// The clock as the committer last read it: the commit is not earlier.
    pub from_ms: u64,
    /// When something that the commit depends on expires; `u64::MAX` if nothing does.
    pub before_ms: u64,
}

impl TimeBounds {
    /// Any time.
    pub const ANY: TimeBounds = TimeBounds { from_ms: 0, before_ms: u64::MAX };
}

#[derive(Default)]
struct GroupSlot {
    word: AtomicU64,
    /// Bytes of reserved ranges that are filled.
    filled: AtomicU32,
    first_csn: AtomicU64,
    start: AtomicU64,
    /// When the group's first commit happened.
    time_ms: AtomicU64,
    /// The group's greatest length.
    len_max: AtomicU32,
    memory: AtomicPtr<u8>,
    /// The newest group of this slot that has a flushing thread, for the schemes in which each group has one.
    claimed: AtomicU64,
}

/// The group slots, and the sequence number of the group that takes frames.
pub(crate) struct GroupRing {
    slots: Box<[CachePadded<GroupSlot>]>,
    open: CachePadded<AtomicU64>,
}

/// A group to open, with its first frame.
pub(crate) struct Opening {
    pub sequence: u64,
    pub first_csn: Csn,
    pub start: Lsn,
    pub bytes: u32,
    pub time_ms: u64,
    pub len_max: u32,
    pub memory: *mut u8,
    pub barrier: bool,
}

impl GroupRing {
    pub fn new(count: usize) -> GroupRing {
        let slots: Box<[_]> =
            (0..count.next_power_of_two()).map(|_| CachePadded::<GroupSlot>::default()).collect();
        for slot in &slots {
            slot.word.store(CLOSED, Relaxed);
        }
        GroupRing { slots, open: CachePadded::new(AtomicU64::new(0)) }
    }

    fn slot(&self, sequence: u64) -> (usize, &GroupSlot) {
        let index = sequence as usize & (self.slots.len() - 1);
        (index, &self.slots[index])
    }

    /// Joins the open group, if it has room for `bytes`.
    #[inline]
    pub fn join(&self, bytes: u32, barrier: bool, time: TimeBounds) -> Join {
        let sequence = self.open.load(Acquire);
        let (index, slot) = self.slot(sequence);
        let mut word = Word(slot.word.load(Acquire));
        let time_ms = loop {
            let first_ms = slot.time_ms.load(Relaxed);
            let later_ms = word.time_ms().max(time.from_ms.saturating_sub(first_ms));
            let fits = word.len() + bytes <= slot.len_max.load(Relaxed)
                && word.frames() < FRAMES_MAX
                && later_ms <= TIME_MASK >> TIME_SHIFT;
            if !word.is_of(sequence) || word.is_closed() || !fits {
                return Join::NoRoom;
            }
            if first_ms + later_ms >= time.before_ms {
                return Join::TooLate;
            }
            let next = word.joined(bytes, barrier, later_ms);
            match slot.word.compare_exchange_weak(word.0, next.0, AcqRel, Acquire) {
                Ok(_) => break first_ms + later_ms,
                Err(now) => word = Word(now),
            }
        };
        // INV-LOG-12: the group has a range that only this thread fills, so the slot's fields do not change.
        let at = word.len();
        Join::Joined(Joined {
            csn: Csn(slot.first_csn.load(Relaxed) + u64::from(word.frames())),
            lsn: Lsn(slot.start.load(Relaxed)).advance(at),
            memory: slot.memory.load(Relaxed).wrapping_add(at as usize),
            slot: index,
            taken: align8(at + bytes) - align8(at),
            time_ms,
        })
    }

    /// Opens a group with its first frame. Under the lock of the groups, in a slot that no group uses.
    pub fn open(&self, opening: &Opening) -> Joined {
        let (index, slot) = self.slot(opening.sequence);
        slot.filled.store(0, Relaxed);
        slot.first_csn.store(opening.first_csn.0, Relaxed);
        slot.start.store(opening.start.0, Relaxed);
        slot.time_ms.store(opening.time_ms, Relaxed);
        slot.len_max.store(opening.len_max, Relaxed);
        slot.memory.store(opening.memory, Relaxed);
        let is_joinable = GROUP_HEADER_BYTES + opening.bytes <= JOINABLE_BYTES_MAX as u32;
        if is_joinable {
            let word = Word::new(opening.sequence, GROUP_HEADER_BYTES + opening.bytes, opening.barrier);
            slot.word.store(word.0, Release);
            self.open.store(opening.sequence, Release);
        }
        Joined {
            csn: opening.first_csn,
            lsn: opening.start.advance(GROUP_HEADER_BYTES),
            memory: opening.memory.wrapping_add(GROUP_HEADER_BYTES as usize),
            slot: index,
            taken: align8(GROUP_HEADER_BYTES + opening.bytes),
            time_ms: opening.time_ms,
        }
    }

    /// Closes the group: joining fails from now on. Under the lock of the groups.
    pub fn close(&self, sequence: u64) -> Word {
        Word(self.slot(sequence).1.word.fetch_or(CLOSED, AcqRel))
    }

    /// The time of the newest commit of a group that was closed as `word`. Under the lock of the groups.
    pub fn newest_ms(&self, sequence: u64, word: Word) -> u64 {
        self.slot(sequence).1.time_ms.load(Relaxed) + word.time_ms()
    }

    /// The group's word as it is now. Under the lock of the groups.
    pub fn look(&self, sequence: u64) -> Word {
        Word(self.slot(sequence).1.word.load(Acquire))
    }

    /// Counts a range as filled.
    #[inline]
    pub fn fill(&self, slot: usize, bytes: u32) {
        self.slots[slot].filled.fetch_add(bytes, Release);
    }

    /// Makes the caller the group's flushing thread, unless it has one. May also return true to a caller so late that
    /// the slot has another group by then: a group may be flushed twice, which does no harm.
    pub fn claim(&self, sequence: u64) -> bool {
        self.slot(sequence).1.claimed.swap(sequence, AcqRel) != sequence
    }

    /// Whether all ranges of a group of this length are filled.
    #[inline]
    pub fn is_filled(&self, sequence: u64, len: u32) -> bool {
        self.slot(sequence).1.filled.load(Acquire) == len - GROUP_HEADER_BYTES
    }

    /// Whether all ranges that the open group has at this moment are filled. `filled` only counts bytes: it says which
    /// ranges they are only if the length did not change around its load.
    pub fn is_filled_now(&self, sequence: u64) -> bool {
        let before = self.look(sequence);
        let filled = self.slot(sequence).1.filled.load(Acquire);
        self.look(sequence).len() == before.len() && filled == before.len() - GROUP_HEADER_BYTES
    }

    /// Occupies the slot with a group that is filled, and which no committer joins.
    pub fn occupy(&self, sequence: u64, bytes: u32) {
        self.slot(sequence).1.filled.store(bytes, Release);
    }
}
