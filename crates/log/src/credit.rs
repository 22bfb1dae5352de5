//! What admission promises: room in segments that are ready, and buffers for groups. Kept without a lock.
//!
//! Each admission is charged as if it opened a group of its own. What it did not use, because it joined a group, comes
//! back when it reserves. `room` counts only what is sure: of each segment all but the largest charge, because a
//! segment is left when what comes next does not fit, and that is at most so much.
//!
//! INV-LOG-4 follows: while `room` was not negative with all promises taken off, a promise that is kept finds place in
//! the current segment or in a ready one.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crossbeam_utils::CachePadded;

use crate::cells::JOINABLE_BYTES_MAX;
use crate::sync::AtomicI64;

/// What is not promised to anybody.
pub(crate) struct Credit {
    /// Bytes in the current and the ready segments.
    room: CachePadded<AtomicI64>,
    /// Cells, each with a buffer of [`JOINABLE_BYTES_MAX`].
    cells: CachePadded<AtomicI64>,
    cells_max: i64,
}

/// What one admission took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub room: u32,
    pub cells: u32,
}

/// Which part of a charge is missing.
pub(crate) enum Missing {
    Room,
    Cells,
}

impl Credit {
    pub fn new(room: i64, cells: usize) -> Credit {
        let cells_max = cells as i64;
        Credit {
            room: CachePadded::new(AtomicI64::new(room)),
            cells: CachePadded::new(AtomicI64::new(cells_max)),
            cells_max,
        }
    }

    /// What a group of `bytes`, header included, is charged.
    pub fn charge(&self, bytes: u32) -> Charge {
        let cells = (bytes as usize).div_ceil(JOINABLE_BYTES_MAX) as i64;
        Charge { room: bytes, cells: cells.min(self.cells_max) as u32 }
    }

    pub fn take(&self, charge: Charge) -> Result<(), Missing> {
        if !take(&self.room, charge.room.into(), charge.room.into()) {
            return Err(Missing::Room);
        }
        if !take(&self.cells, charge.cells.into(), charge.cells.into()) {
            self.room.fetch_add(charge.room.into(), AcqRel);
            return Err(Missing::Cells);
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

    pub fn give_cells(&self, cells: u32) {
        self.cells.fetch_add(cells.into(), AcqRel);
    }
}

/// Subtracts `amount` if there is at least `needed`.
fn take(from: &AtomicI64, amount: i64, needed: i64) -> bool {
    from.fetch_update(AcqRel, Relaxed, |now| (now >= needed).then(|| now - amount)).is_ok()
}
