//! Admission by free disk space: a write that would leave no room for the next checkpoint, or for the next opening, is
//! refused before anything is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_log::Log;
use fulgurite_types::limits;

use crate::catalog::Catalog;
use crate::files::Files;
use crate::{Error, Result};

/// Bytes that have to be free, or in the log's own reserve, beside those that a checkpoint of the memtables takes: for
/// segments that are being made, records of a checkpoint, the next opening.
const RESERVE_BYTES: u64 = 6 << 20;

/// The disk's free space as it was last read.
pub(crate) struct Room {
    /// A checkpoint of the memtables would not fit: puts are refused.
    short: AtomicBool,
    /// Nothing is free, and the log's reserve has no more files than the next openings need: deletes are refused, too.
    full: AtomicBool,
    free_bytes: AtomicU64,
    needed_bytes: AtomicU64,
    log: Arc<Log>,
    tables: Arc<Catalog>,
    files: Arc<Files>,
}

impl Room {
    pub fn new(log: Arc<Log>, tables: Arc<Catalog>, files: Arc<Files>) -> Room {
        Room {
            short: AtomicBool::new(false),
            full: AtomicBool::new(false),
            free_bytes: AtomicU64::new(0),
            needed_bytes: AtomicU64::new(0),
            log,
            tables,
            files,
        }
    }

    /// Reads the disk's free space: puts are refused while a checkpoint of all memtables would not fit. If the file
    /// system does not report its free space, no write is refused here; a write that does not fit fails itself.
    pub fn look(&self) -> Result<()> {
        // Another program may take the free space before the next opening: for that, only the log's reserve counts.
        // Called before the free space is read, because it takes files for the reserve.
        let must_stay_empty = self.must_stay_empty();
        let free = self.files.home.free_bytes().map_err(|error| {
            self.short.store(false, Ordering::Release);
            self.full.store(false, Ordering::Release);
            Error::io(format!("asking for the free space of {}", self.files.path.display()), error)
        })?;
        let dirty: u64 = self.tables.all().iter().map(|table| table.index.memtables().bytes()).sum();
        let reserve = self.log.reserve_bytes();
        let segment = u64::from(limits::SEGMENT_BYTES_MIN);
        let needed = dirty + RESERVE_BYTES.saturating_sub(reserve);
        self.free_bytes.store(free, Ordering::Relaxed);
        self.needed_bytes.store(needed, Ordering::Relaxed);
        let takes_no_checkpoint = reserve == 0 && self.log.bulk_room() < limits::SEGMENT_BYTES_MIN / 4;
        self.full.store(must_stay_empty || (free < segment && takes_no_checkpoint), Ordering::Release);
        let short = free < needed;
        if self.short.swap(short, Ordering::AcqRel) != short {
            let path = self.files.path.display();
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
        let has_free = |bytes| self.files.home.free_bytes().map_or(true, |free| free >= bytes);
        if !self.log.must_stay_empty() || has_free(RESERVE_BYTES) {
            return false;
        }
        // A failure shows in the next line: the reserve still lacks files.
        let _ = self.log.fill_reserve();
        self.log.must_stay_empty() && !has_free(limits::SEGMENT_BYTES_MIN.into())
    }

    /// Whether the disk was nearly full when its free space was last read.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// Fails while the disk is nearly full. Deletes and checkpoints do not call it, so that they can free space.
    pub fn check_for_puts(&self) -> Result<()> {
        if !self.is_short() {
            return Ok(());
        }
        // The merger, which reads the free space at other times, may sleep. If the disk does not report it, the write
        // is not refused, and the merger reports that error.
        let _ = self.look();
        if !self.is_short() {
            return Ok(());
        }
        let free = self.free_bytes.load(Ordering::Relaxed);
        let needed = self.needed_bytes.load(Ordering::Relaxed);
        let what = format!(
            "{} has {free} free bytes, and {needed} are kept for the next checkpoint",
            self.files.path.display()
        );
        Err(Error::NoSpace { what })
    }

    /// Fails while no checkpoint could free what a delete makes dead, or while a later opening would find no file in
    /// which to begin its epoch (INV-LOG-18): a commit that is logged now would take that file.
    pub fn check_for_deletes(&self) -> Result<()> {
        let is_full = || self.full.load(Ordering::Acquire);
        if !is_full() {
            return Ok(());
        }
        let _ = self.look();
        if !is_full() {
            return Ok(());
        }
        let what = format!(
            "{} has no free byte, and the next openings need two megabytes",
            self.files.path.display()
        );
        Err(Error::NoSpace { what })
    }
}
