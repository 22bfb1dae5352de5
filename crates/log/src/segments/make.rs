//! Making segments, one at a time: of a recycled file, of a new one, or of a file of the reserve.

use super::reserve::OPENING_FILES;
use super::{Segment, Segments};
use crate::error::LogError;
use crate::format::{SEGMENT_DATA_START, SegmentHeader, new_file_name, segment_file_name};
use crate::shared::Shared;
use crate::stats::{Counters, add};
use fulgurite_env::{AlignedBuf, File, OpenOptions};
use std::io;
use std::sync::Arc;

const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

/// State for making segments. One thread makes at a time, so segments get ready in the order of their numbers.
pub(crate) struct Maker {
    next_number: u32,
    /// Files of freed segments, to become new segments.
    pub(super) spare: Vec<Arc<Segment>>,
    /// Names of empty files of at least the smallest size that are not segments yet. When the disk is full the next
    /// opening begins its epoch in one, and a checkpoint writes to them; [`OPENING_FILES`] are left to openings.
    pub(super) reserve: Vec<String>,
}

/// The file that a segment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// A freed file that fits, else a new one.
    Disk,
    /// The same; if the disk is full, a file of the reserve, except those that openings need.
    DiskOrReserve,
    /// A file of the reserve, down to the last; the disk if the reserve is empty.
    WholeReserve,
}

impl Maker {
    pub fn new(next_number: u32, reserve: Vec<String>) -> Maker {
        Maker { next_number, spare: Vec::new(), reserve }
    }

    pub fn next_number(&mut self) -> Result<u32, LogError> {
        let number = self.next_number;
        self.next_number = number.checked_add(1).ok_or_else(|| {
            LogError::Usage("all 4294967295 segment numbers are used; copy the database to a new one".into())
        })?;
        Ok(number)
    }
}

impl Segments {
    /// Makes a segment of at least `bytes_min`. Poisons the log if another process makes segments here.
    pub fn make(
        &self,
        maker: &mut Maker,
        taken: u32,
        bytes_min: u32,
        from: From,
        shared: &Shared,
    ) -> Result<Arc<Segment>, LogError> {
        let made = self.make_unshared(maker, taken, bytes_min, from, &shared.stats);
        made.map_err(|error| fail_if_taken(error, shared))
    }

    /// The size of the next segment: the smallest, doubled for each segment that the streams took after the first since
    /// the log was opened, while it is at most a 64th of the free space. So a log that hardly grows stays small, one
    /// that grows fast soon has large segments, and ready segments do not fill a nearly full disk.
    pub fn wanted_bytes(&self, taken: u32) -> u32 {
        let (min, max) =
            (u64::from(self.options.segment_bytes_min), u64::from(self.options.segment_bytes_max));
        let free = self.dir.free_bytes().unwrap_or(u64::MAX);
        let bytes = |doublings: u32| (min << doublings).min(max);
        let mut doublings = taken.saturating_sub(1).min(31);
        while doublings > 0 && bytes(doublings) > free / 64 {
            doublings -= 1;
        }
        u32::try_from(bytes(doublings)).unwrap_or(self.options.segment_bytes_max)
    }

    /// Makes a segment of at least `bytes_min`, all of it durable: zeros, size, header, name.
    pub fn make_unshared(
        &self,
        maker: &mut Maker,
        taken: u32,
        bytes_min: u32,
        from: From,
        stats: &Counters,
    ) -> Result<Arc<Segment>, LogError> {
        let fits = bytes_min <= self.options.segment_bytes_min;
        if from == From::WholeReserve && fits && !maker.reserve.is_empty() {
            return self.make_of_reserve(maker);
        }
        // The files that the next openings need come before another segment (INV-LOG-18).
        let kept = OPENING_FILES.min(self.options.reserve_segments);
        if from != From::WholeReserve && maker.reserve.len() < kept && self.is_nearly_full() {
            while self.fill_reserve(maker, kept)? {}
        }
        let bytes = match self.wanted_bytes(taken) {
            bytes if bytes >= bytes_min => bytes,
            _ => bytes_min.next_power_of_two().min(self.options.segment_bytes_max),
        };
        let number = maker.next_number()?;
        let mut named = None;
        let made = self.make_file(maker, number, bytes, stats, &mut named).map_err(|source| {
            // Retries would otherwise fill the disk with such files.
            if let Some(name) = named {
                let _ = self.dir.remove(&name);
            }
            LogError::io("make segment", &self.path(number), source)
        });
        match made {
            Err(LogError::NoSpace { .. })
                if from == From::DiskOrReserve && fits && maker.reserve.len() > OPENING_FILES =>
            {
                self.make_of_reserve(maker)
            }
            made => made,
        }
    }

    /// Sets `named` to the name of the file as soon as the file has one. Before that, a file of that name belongs to
    /// another process.
    fn make_file(
        &self,
        maker: &mut Maker,
        number: u32,
        bytes: u32,
        stats: &Counters,
        named: &mut Option<String>,
    ) -> io::Result<Arc<Segment>> {
        let new_name = new_file_name(number);
        let file = match self.take_spare(maker, bytes) {
            Some(spare) => {
                add(&stats.segments_recycled, 1);
                *named = Some(spare.name());
                self.dir.rename(&spare.name(), &new_name)?;
                *named = Some(new_name.clone());
                // The old name is durably gone before a byte of the content changes.
                self.dir.sync()?;
                self.with_descriptors(|| self.dir.open(&new_name, OpenOptions::Write))?
            }
            None => {
                add(&stats.segments_created, 1);
                let file = self.with_descriptors(|| self.dir.open(&new_name, OpenOptions::CreateNew))?;
                *named = Some(new_name.clone());
                file
            }
        };
        self.zero(&*file, number, bytes)?;
        let name = segment_file_name(number);
        self.dir.rename(&new_name, &name)?;
        *named = Some(name);
        self.dir.sync()?;
        let segment = Arc::new(Segment::new(number, bytes, self.path(number), Some(file)));
        self.add(Arc::clone(&segment));
        Ok(segment)
    }

    /// A spare file of this size that has no reader left; removes the others.
    fn take_spare(&self, maker: &mut Maker, bytes: u32) -> Option<Arc<Segment>> {
        while let Some(mut spare) = maker.spare.pop() {
            if spare.bytes == bytes && Arc::get_mut(&mut spare).is_some() {
                return Some(spare);
            }
            let _ = self.dir.remove(&spare.name());
        }
        None
    }

    /// Zeros a segment file, then writes its header and syncs. Zeros written directly leave no cached pages, which each
    /// later direct write would have to drop. For a log that writes through the page cache, the zeros go there.
    pub(super) fn zero(&self, file: &dyn File, number: u32, bytes: u32) -> io::Result<()> {
        let zeros = AlignedBuf::new(ZERO_CHUNK_BYTES.min(bytes as usize));
        // `takes_direct_writes` opens the descriptor for direct writes, so that the writer finds it open.
        let direct =
            self.options.writes_directly() && self.with_descriptors(|| file.takes_direct_writes())?;
        let write = |block: &[u8], offset: u64| {
            if direct { file.write_direct(block, offset, false) } else { file.write_at(block, offset) }
        };
        let mut offset = u64::from(SEGMENT_DATA_START);
        while offset < u64::from(bytes) {
            let len = (u64::from(bytes) - offset).min(zeros.len() as u64);
            write(&zeros[..len as usize], offset)?;
            offset += len;
        }
        let mut header = AlignedBuf::new(SEGMENT_DATA_START as usize);
        header.copy_from_slice(&SegmentHeader { bytes, database: self.database, number }.encode());
        write(&header, 0)?;
        file.sync_data()
    }

    /// The bytes of the spare files; 0 while a segment is being made.
    pub fn spare_bytes(&self) -> u64 {
        let maker = self.maker.try_lock();
        maker.map_or(0, |maker| maker.spare.iter().map(|spare| u64::from(spare.bytes)).sum())
    }

    /// Removes the spare files, as far as that works.
    pub fn remove_spares(&self) {
        for spare in std::mem::take(&mut self.maker.lock().spare) {
            let _ = self.dir.remove(&spare.name());
        }
    }
}

/// Recovery left no file with a name that this log will take. A file with such a name belongs to another process,
/// which began an epoch in this directory: commits acknowledged from then on would be lost at the next open
/// (INV-DIR-3).
pub(super) fn fail_if_taken(error: LogError, shared: &Shared) -> LogError {
    match error {
        LogError::Io { source, path, .. } if source.kind() == io::ErrorKind::AlreadyExists => shared
            .fail("another process makes segments in this directory: the creation", Some((&path, source))),
        other => other,
    }
}
