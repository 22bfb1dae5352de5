//! What admission promises: room in segments that are ready, and buffers for groups. Kept without a lock.
//!
//! Each admission is charged as if it opened a group of its own. What it did not use, because it joined a group, comes
//! back when it reserves. `room` counts only what is sure: of each segment all but the largest charge, because a
//! segment is left when what comes next does not fit, and that is at most so much.
//!
//! A frame longer than [`JOINABLE_BYTES_MAX`] needs several group slots at once, and short ones would take each that comes back:
//! so while a long one waits all wait in line ([`Credit::line_up`]), short ones too, which long ones would keep out else, and
//! only the first in line takes group slots. What was taken comes back with no help but a flush, which the first causes.
//!
//! INV-LOG-4 follows: while `room` was not negative with all promises taken off, a promise that is kept finds place in
//! the current segment or in a ready one.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crossbeam_utils::CachePadded;

use crate::group_ring::JOINABLE_BYTES_MAX;
use crate::sync::{AtomicI64, AtomicU32, Mutex, MutexGuard};

/// What is not promised to anybody.
pub(crate) struct Credit {
    /// Bytes in the current and the ready segments.
    room: CachePadded<AtomicI64>,
    /// Group slots, each with a buffer of [`JOINABLE_BYTES_MAX`].
    slots: CachePadded<AtomicI64>,
    slots_max: i64,
    /// How many long frames are in `line`; while there are any, all line up.
    long_frames: CachePadded<AtomicU32>,
    line: Mutex<()>,
}

/// The right to take group slots before others, until it is dropped.
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

/// What one admission took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub room: u32,
    pub slots: u32,
}

/// Which part of a charge is missing.
pub(crate) enum Missing {
    Room,
    Slots,
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

    /// Whether a frame that did not get its group slots has to line up for them: a long one has to, others behind a long one.
    pub fn has_to_line_up(&self, is_long: bool) -> bool {
        is_long || self.long_frames.load(Acquire) > 0
    }

    /// Waits for those in line before. `is_long`: the frame needs several group slots.
    pub fn line_up(&self, is_long: bool) -> First<'_> {
        if is_long {
            self.long_frames.fetch_add(1, AcqRel);
        }
        First { credit: self, is_long, _line: self.line.lock() }
    }

    /// What a group of `bytes`, header included, is charged.
    pub fn charge(&self, bytes: u32) -> Charge {
        let slots = (bytes as usize).div_ceil(JOINABLE_BYTES_MAX) as i64;
        Charge { room: bytes, slots: slots.min(self.slots_max) as u32 }
    }

    /// `first` is the right to take group slots although a long frame waits for them.
    pub fn take(&self, charge: Charge, first: Option<&First<'_>>) -> Result<(), Missing> {
        if first.is_none() && self.long_frames.load(Acquire) > 0 {
            return Err(Missing::Slots);
        }
        if !take(&self.room, charge.room.into(), charge.room.into()) {
            return Err(Missing::Room);
        }
        if !take(&self.slots, charge.slots.into(), charge.slots.into()) {
            self.room.fetch_add(charge.room.into(), AcqRel);
            return Err(Missing::Slots);
        }
        Ok(())
    }

    pub fn has_room(&self, bytes: u32) -> bool {
        self.room.load(Relaxed) >= bytes.into()
    }

    /// Takes the room of a segment out, if `left` bytes stay.
    pub fn take_room(&self, bytes: i64, left: u32) -> bool {
        take(&self.room, bytes, bytes + i64::from(left))
    }

    pub fn give_room(&self, bytes: i64) {
        self.room.fetch_add(bytes, AcqRel);
    }

    pub fn give_slots(&self, slots: u32) {
        self.slots.fetch_add(slots.into(), AcqRel);
    }
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

    /// Short frames take and give back group slots without an end: a long one gets its own all the same.
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
