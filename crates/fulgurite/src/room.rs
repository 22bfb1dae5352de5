//! The room on the disk: which writes are refused before anything is logged, so that a checkpoint always fits, and the next
//! opening.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_types::limits;

use crate::core::Core;
use crate::{Error, Result};

/// What maintenance saw of the disk's free space.
#[derive(Default)]
pub(crate) struct Room {
    short: AtomicBool,
    /// Nothing is free, and of what the log keeps for that no more is left than the next openings need.
    full: AtomicBool,
    free_bytes: AtomicU64,
    needed_bytes: AtomicU64,
}

/// Kept beside what a checkpoint of the memtables takes, free or in the log's own reserve: segments that are being made,
/// records of a checkpoint, the next opening.
const RESERVE_BYTES: u64 = 6 << 20;

impl Core {
    /// Looks at the disk's free space: puts are refused while a checkpoint of everything in the memtables would not fit. A
    /// file system that does not answer refuses none: the write itself will tell.
    pub fn look_at_room(&self) -> Result<()> {
        // What is free now may be another program's by the next opening: only what the log keeps counts for that. Comes
        // before the look, because it takes of what is free.
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

    /// Whether the disk is full and the replay point has to stay before this epoch (INV-LOG-18). What is free, or is freed,
    /// goes to the next openings first.
    pub fn must_stay_empty(&self) -> bool {
        let has_free = |bytes| self.home.free_bytes().map_or(true, |free| free >= bytes);
        if !self.log.must_stay_empty() || has_free(RESERVE_BYTES) {
            return false;
        }
        // What it could not do shows below.
        let _ = self.log.fill_reserve();
        self.log.must_stay_empty() && !has_free(limits::SEGMENT_BYTES_MIN.into())
    }

    /// Whether the disk was nearly full when it was last looked at.
    pub fn is_short_of_room(&self) -> bool {
        self.room.short.load(Ordering::Acquire)
    }

    /// Fails while the disk is nearly full. Deletes and checkpoints go on, so that space can come back.
    pub fn check_room(&self) -> Result<()> {
        if !self.is_short_of_room() {
            return Ok(());
        }
        // The thread that looks otherwise may sleep. If the disk cannot be asked it is not refused, and that thread says so.
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

    /// Fails where no checkpoint could make room of what is deleted, or a later opening would find no file to begin its
    /// epoch in (INV-LOG-18): what is logged now would stay in its way.
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
