//! Credit for admissions: room in segments, and group slots with their buffers. Taken and given back without a lock;
//! only the line has one.
//!
//! Each admission is charged as if it opened a group of its own. If it joins one instead, it gives the difference back
//! when it reserves. `room` counts only bytes that are certain: of each segment all but the largest charge, because the
//! stream leaves a segment when the next group does not fit, which is at most that long.
//!
//! A frame longer than [`JOINABLE_BYTES_MAX`] needs several group slots at once, and short frames would take each slot
//! that comes back. So while a long frame waits, all frames wait in line ([`Credit::line_up`]), and only the first in
//! line takes slots. Short frames line up too, or long ones would starve them. Taken slots come back by a flush alone,
//! which the first in line causes.
//!
//! INV-LOG-4: all admissions together never take `room` below zero. So the current segment or a ready one has room for
//! each of them.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crossbeam_utils::CachePadded;

use super::ring::JOINABLE_BYTES_MAX;
use crate::format::{GROUP_HEADER_BYTES, align8};
use fulgurite_types::sync::{AtomicI64, AtomicU32, Mutex, MutexGuard};

/// The room and the group slots that no admission holds.
pub(crate) struct Credit {
    /// Bytes in the current and the ready segments.
    room: CachePadded<AtomicI64>,
    /// Group slots, each with a buffer of [`JOINABLE_BYTES_MAX`].
    slots: CachePadded<AtomicI64>,
    slots_max: i64,
    /// How many long frames are in `line`. While there are any, all frames line up.
    long_frames: CachePadded<AtomicU32>,
    line: Mutex<()>,
}

/// The right to take group slots before all others, until it is dropped.
pub(crate) struct First<'a> {
    credit: &'a Credit,
    is_long: bool,
    _line: MutexGuard<'a, ()>,
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        if self.is_long {
            self.credit.long_frames.fetch_sub(1, AcqRel);
        }
    }
}

/// The credit that one admission took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub room: u32,
    pub slots: u32,
}

/// What an admission lacks.
pub(crate) enum Missing {
    /// No segment has room for this charge.
    Room(u32),
    /// `is_long`: the frame needs several group slots.
    Slots { is_long: bool },
}

impl Credit {
    pub fn new(room: i64, slots: usize) -> Credit {
        let slots_max = slots as i64;
        Credit {
            room: CachePadded::new(AtomicI64::new(room)),
            slots: CachePadded::new(AtomicI64::new(slots_max)),
            slots_max,
            long_frames: CachePadded::new(AtomicU32::new(0)),
            line: Mutex::new(()),
        }
    }

    /// Whether a frame that did not get its group slots has to line up: a long one does, a short one while long ones
    /// wait.
    pub fn has_to_line_up(&self, is_long: bool) -> bool {
        is_long || self.long_frames.load(Acquire) > 0
    }

    /// Waits until the frame is first in line. `is_long`: it needs several group slots.
    pub fn line_up(&self, is_long: bool) -> First<'_> {
        if is_long {
            self.long_frames.fetch_add(1, AcqRel);
        }
        First { credit: self, is_long, _line: self.line.lock() }
    }

    /// The charge for a frame of `bytes`, local record included.
    pub fn charge(&self, bytes: u32) -> Charge {
        let room = group_charge(bytes);
        let slots = (room as usize).div_ceil(JOINABLE_BYTES_MAX) as i64;
        Charge { room, slots: slots.min(self.slots_max) as u32 }
    }

    /// Takes a charge. `first` is the right to take group slots while a long frame waits for them.
    pub fn take(&self, charge: Charge, first: Option<&First<'_>>) -> Result<(), Missing> {
        let no_slots = Missing::Slots { is_long: charge.slots > 1 };
        if first.is_none() && self.long_frames.load(Acquire) > 0 {
            return Err(no_slots);
        }
        if !take(&self.room, charge.room.into(), charge.room.into()) {
            return Err(Missing::Room(charge.room));
        }
        if !take(&self.slots, charge.slots.into(), charge.slots.into()) {
            self.room.fetch_add(charge.room.into(), AcqRel);
            return Err(no_slots);
        }
        Ok(())
    }

    pub fn has_room(&self, bytes: u32) -> bool {
        self.room.load(Relaxed) >= bytes.into()
    }

    /// Takes out the room of a segment, if `left` bytes stay.
    pub fn take_room(&self, bytes: i64, left: u32) -> bool {
        take(&self.room, bytes, bytes + i64::from(left))
    }

    /// Gives back a charge.
    pub fn give(&self, charge: Charge) {
        self.give_room(charge.room.into());
        self.give_slots(charge.slots);
    }

    pub fn give_room(&self, bytes: i64) {
        self.room.fetch_add(bytes, AcqRel);
    }

    pub fn give_slots(&self, slots: u32) {
        self.slots.fetch_add(slots.into(), AcqRel);
    }
}

/// The most bytes that an admission of `bytes` can take of a segment: a group of its own.
pub(crate) fn group_charge(bytes: u32) -> u32 {
    align8(GROUP_HEADER_BYTES + bytes)
}

/// Subtracts `amount` if there is at least `needed`.
fn take(from: &AtomicI64, amount: i64, needed: i64) -> bool {
    from.fetch_update(AcqRel, Relaxed, |now| (now >= needed).then(|| now - amount)).is_ok()
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn takes(credit: &Credit, slots: u32, first: Option<&First<'_>>) -> bool {
        credit.take(Charge { room: 1, slots }, first).is_ok()
    }

    /// Short frames take and give back group slots without end: a long frame gets its slots all the same.
    #[test]
    fn a_long_frame_does_not_starve_among_short_ones() {
        let credit = Credit::new(1 << 30, 4);
        assert!(takes(&credit, 1, None) && takes(&credit, 1, None));
        assert!(!takes(&credit, 4, None), "two are taken");
        let first = credit.line_up(true);
        for _ in 0..2 {
            assert!(!takes(&credit, 1, None), "a short frame goes before the long one that waits");
            assert!(!takes(&credit, 4, Some(&first)));
            credit.give_slots(1);
        }
        assert!(takes(&credit, 4, Some(&first)));
        drop(first);
        assert!(!takes(&credit, 1, None), "all are taken");
        credit.give_slots(4);
        assert!(takes(&credit, 1, None));
    }
}
