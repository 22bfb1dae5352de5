//! Admission by free disk space: a write that would leave no room for the next checkpoint, or for the next opening, is
//! refused before anything is logged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_types::limits;

use crate::engine::Engine;
use crate::{Error, Result};

/// The disk's free space as maintenance last found it.
#[derive(Default)]
pub(crate) struct Room {
    /// A checkpoint of the memtables would not fit: puts are refused.
    short: AtomicBool,
    /// Nothing is free, and the log's reserve has no more files than the next openings need: deletes are refused, too.
    full: AtomicBool,
    free_bytes: AtomicU64,
    needed_bytes: AtomicU64,
}

/// Bytes that have to be free, or in the log's own reserve, beside those that a checkpoint of the memtables takes: for
/// segments that are being made, records of a checkpoint, the next opening.
const RESERVE_BYTES: u64 = 6 << 20;

impl Engine {
    /// Reads the disk's free space: puts are refused while a checkpoint of all memtables would not fit. If the file
    /// system does not report its free space, no write is refused here; a write that does not fit fails itself.
    pub fn look_at_room(&self) -> Result<()> {
        // Another program may take the free space before the next opening: for that, only the log's reserve counts.
        // Called before the free space is read, because it takes files for the reserve.
        let must_stay_empty = self.must_stay_empty();
        let free = self.home.free_bytes().map_err(|error| {
            self.room.short.store(false, Ordering::Release);
            self.room.full.store(false, Ordering::Release);
            Error::io(format!("asking for the free space of {}", self.dir.display()), error)
        })?;
        let dirty: u64 = self.catalog.all().iter().map(|table| table.index.memtables().bytes()).sum();
        let (reserve, segment) = (self.log.reserve_bytes(), u64::from(limits::SEGMENT_BYTES_MIN));
        let needed = dirty + RESERVE_BYTES.saturating_sub(reserve);
        self.room.free_bytes.store(free, Ordering::Relaxed);
        self.room.needed_bytes.store(needed, Ordering::Relaxed);
        let takes_no_checkpoint = reserve == 0 && self.log.bulk_room() < limits::SEGMENT_BYTES_MIN / 4;
        self.room.full.store(must_stay_empty || (free < segment && takes_no_checkpoint), Ordering::Release);
        let short = free < needed;
        if self.room.short.swap(short, Ordering::AcqRel) != short {
            let path = self.dir.display();
            if short {
                tracing::warn!(%path, free, needed, "the disk is nearly full: only deletes are taken until there is space");
            } else {
                tracing::info!(%path, free, needed, "the disk has space again");
            }
        }
        Ok(())
    }

    /// Whether the disk is full and the replay position has to stay before this epoch (INV-LOG-18). Free and freed
    /// space goes to the next openings first.
    pub fn must_stay_empty(&self) -> bool {
        let has_free = |bytes| self.home.free_bytes().map_or(true, |free| free >= bytes);
        if !self.log.must_stay_empty() || has_free(RESERVE_BYTES) {
            return false;
        }
        // A failure shows in the next line: the reserve still lacks files.
        let _ = self.log.fill_reserve();
        self.log.must_stay_empty() && !has_free(limits::SEGMENT_BYTES_MIN.into())
    }

    /// Whether the disk was nearly full when its free space was last read.
    pub fn is_short_of_room(&self) -> bool {
        self.room.short.load(Ordering::Acquire)
    }

    /// Fails while the disk is nearly full. Deletes and checkpoints do not call it, so that they can free space.
    pub fn check_room(&self) -> Result<()> {
        if !self.is_short_of_room() {
            return Ok(());
        }
        // The merger, which reads the free space at other times, may sleep. If the disk does not report it, the write
        // is not refused, and the merger reports that error.
        let _ = self.look_at_room();
        if !self.is_short_of_room() {
            return Ok(());
        }
        let free = self.room.free_bytes.load(Ordering::Relaxed);
        let needed = self.room.needed_bytes.load(Ordering::Relaxed);
        let what = format!(
            "{} has {free} free bytes, and {needed} are kept for the next checkpoint",
            self.dir.display()
        );
        Err(Error::NoSpace { what })
    }

    /// Fails while no checkpoint could free what a delete makes dead, or while a later opening would find no file in
    /// which to begin its epoch (INV-LOG-18): a commit that is logged now would take that file.
    pub fn check_room_to_delete(&self) -> Result<()> {
        let is_full = || self.room.full.load(Ordering::Acquire);
        if !is_full() {
            return Ok(());
        }
        let _ = self.look_at_room();
        if !is_full() {
            return Ok(());
        }
        let what =
            format!("{} has no free byte, and the next openings need two megabytes", self.dir.display());
        Err(Error::NoSpace { what })
    }
}
