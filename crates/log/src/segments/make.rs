//! Making segments, one at a time: of a recycled file, of a new one, or of a file of the reserve.
//!
//! INV-LOG-22: *a segment has all its space when it gets its name*, so that no write to it finds the disk full. *One that
//! cannot have it takes no number and leaves no file, and is not tried again at once.* Where the file system can take
//! space without a write ([`File::allocate`]) it does; elsewhere zeros are written. What else the bytes are depends on
//! the stream:
//!
//! - A segment for the **commit stream** begins with a block of zeros, and all of its file has been written before. Writes
//!   there are small, direct and synchronous: such a write is durable alone, and costs no more than itself, only where
//!   the file system need not record an extent. A new file, and one with a hole or an extent never written, is
//!   filled with zeros; a file that this opening filled once, and recycles, keeps the groups of its former life. No old
//!   byte passes for a group: a group's checksum covers database, segment number and offset, and no segment gets the
//!   number of another. Durable marks, not zeros, tell a torn end of the log from damage (`recovery/tail.rs`). A segment that
//!   was never used is known by its first block.
//! - A segment for the **bulk stream**, unless it is of the reserve, has the bytes that its file had. Its writes are long and
//!   share few syncs, which record extents on the way. No old byte passes for a record, because a record has its own LSN.
//!
//! INV-LOG-21: *a segment with bytes of a former life of its file begins with a block of zeros or with the start of the bulk
//! stream, synced before the file has the name of the segment*. So nothing looks for groups in one of the bulk stream, an
//! unused one is known, and a number of a segment is one that no other file, and no former use of this one, ever had.

use super::reserve::OPENING_FILES;
use super::{Segment, Segments};
use crate::error::LogError;
use crate::format::{GroupHeader, SEGMENT_DATA_START, SegmentHeader, new_file_name, segment_file_name};
use crate::options::BLOCK_BYTES;
use crate::shared::Shared;
use crate::stats::{Counters, add};
use crate::threads::RETRY;
use fulgurite_env::{AlignedBuf, File, OpenOptions};
use fulgurite_types::{Csn, Epoch};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

/// State for making segments. One thread makes at a time, so segments get ready in the order of their numbers.
pub(crate) struct Maker {
    next_number: u32,
    /// Files of freed segments, to become new segments.
    pub(super) spare: Vec<Arc<Segment>>,
    /// Names of empty files of at least the smallest size that are not segments yet. When the disk is full the next
    /// opening begins its epoch in one, and a checkpoint writes to them; [`OPENING_FILES`] are left to openings.
    pub(super) reserve: Vec<String>,
    refused: Option<Refused>,
}

/// An attempt for which the disk had no space, although it had said that there was.
struct Refused {
    at_ns: u64,
    /// The free space that it reported then.
    free_bytes: u64,
}

/// A segment that is wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// How many segments the streams have taken: each doubled the size of the next.
    pub taken: u32,
    /// The least size in bytes.
    pub bytes_min: u32,
    pub from: From,
    pub content: Content,
}

/// The file that a segment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// A freed file that fits, else a new one.
    Disk,
    /// A file of the reserve, except those that openings need.
    Reserve,
    /// A file of the reserve, down to the last; the disk if the reserve is empty.
    WholeReserve,
}

/// What a segment holds when it gets its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A block of zeros, and all of the file is written: the rest is zeros, too, or what a recycled file held.
    Written,
    /// Zeros.
    Zeros,
    /// The start of the bulk stream, with this epoch and durable mark; then whatever the file held.
    BulkStart(Epoch, Csn),
}

impl Maker {
    pub fn new(next_number: u32, reserve: Vec<String>) -> Maker {
        Maker { next_number, spare: Vec::new(), reserve, refused: None }
    }

    /// Whether to keep the file of a freed segment, where `ready` segments are kept ready. A checkpoint frees as many
    /// commit segments as the log fills until the next one, four or five; each that is not recycled costs another its zeros.
    pub fn lacks_spares_like(&self, segment: &Segment, ready: usize) -> bool {
        let is_written = segment.is_file_written();
        let alike = self.spare.iter().filter(|spare| spare.is_file_written() == is_written).count();
        alike < if is_written { 2 * ready + 1 } else { ready }
    }

    /// If the last file did not fit although the disk had reported enough: how many bytes are free.
    pub fn refused_with(&self) -> Option<u64> {
        self.refused.as_ref().map(|refused| refused.free_bytes)
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
    /// Makes a segment. Poisons the log if another process makes segments here.
    pub fn make(&self, maker: &mut Maker, wanted: Wanted, shared: &Shared) -> Result<Arc<Segment>, LogError> {
        let now_ns = shared.now_ns();
        if wanted.from == From::Disk && self.is_refused(maker, now_ns) {
            return Err(self.no_space("the disk had no space for a segment just now".into()));
        }
        let (made, is_refused) = loop {
            let next_number = maker.next_number;
            let made = self.make_unshared(maker, wanted, &shared.stats);
            let tried = maker.next_number != next_number;
            let is_refused = tried && matches!(made, Err(LogError::NoSpace { .. }));
            // The disk has less than it reports, but perhaps enough for a smaller segment.
            if !is_refused || wanted.from != From::Disk || !self.want_smaller(wanted) {
                break (made, is_refused);
            }
        };
        if wanted.from == From::Disk {
            maker.refused = is_refused.then(|| Refused { at_ns: now_ns, free_bytes: self.free_bytes() });
        }
        let made = made.inspect(|segment| {
            segment.set_made(now_ns);
            if wanted.from == From::Disk {
                self.want_larger();
            }
        });
        made.map_err(|error| fail_if_taken(error, shared))
    }

    /// The disk had no space for a segment: from now on they have at most half its size, unless that is too small.
    fn want_smaller(&self, wanted: Wanted) -> bool {
        let smaller = self.wanted_bytes(wanted.taken) / 2;
        let is_enough = smaller >= self.options.segment_bytes_min.max(wanted.bytes_min);
        if is_enough {
            self.bytes_max.store(smaller, Ordering::Relaxed);
        }
        is_enough
    }

    /// They may have twice the size again.
    fn want_larger(&self) {
        let now = self.bytes_max.load(Ordering::Relaxed);
        if now < self.options.segment_bytes_max {
            let larger = now.saturating_mul(2).min(self.options.segment_bytes_max);
            self.bytes_max.store(larger, Ordering::Relaxed);
        }
    }

    /// Whether a file was just found not to fit and nothing has changed since: committers that try again, many times
    /// in a second, each would take a number and leave a name to be removed.
    fn is_refused(&self, maker: &Maker, now_ns: u64) -> bool {
        maker.spare.is_empty()
            && maker.refused.as_ref().is_some_and(|refused| {
                let since = Duration::from_nanos(now_ns.saturating_sub(refused.at_ns));
                since < RETRY && self.free_bytes() <= refused.free_bytes
            })
    }

    /// The size of the next segment: the smallest, doubled for each segment that the streams took after the first since
    /// the log was opened, while it is at most a 64th of the free space, and at most the bound that the caller of the log
    /// gave ([`Log::bound_segments`](crate::Log::bound_segments)). So a log that hardly grows stays small, one that grows
    /// fast soon has large segments, ready segments do not fill a nearly full disk, and a small database has small ones.
    pub fn wanted_bytes(&self, taken: u32) -> u32 {
        let max = self.bytes_max.load(Ordering::Relaxed);
        let (min, max) = (u64::from(self.options.segment_bytes_min), u64::from(max));
        let bytes_max = (self.free_bytes() / 64).min(self.bound.load(Ordering::Relaxed));
        let bytes = |doublings: u32| (min << doublings).min(max);
        let mut doublings = taken.saturating_sub(1).min(31);
        while doublings > 0 && bytes(doublings) > bytes_max {
            doublings -= 1;
        }
        u32::try_from(bytes(doublings)).unwrap_or(u32::MAX)
    }

    /// Makes a segment, all of it durable: size, content, header, name.
    pub fn make_unshared(
        &self,
        maker: &mut Maker,
        wanted: Wanted,
        stats: &Counters,
    ) -> Result<Arc<Segment>, LogError> {
        let Wanted { taken, bytes_min, from, content } = wanted;
        let kept = match from {
            From::WholeReserve => 0,
            _ => OPENING_FILES,
        };
        if from != From::Disk && bytes_min <= self.options.segment_bytes_min && maker.reserve.len() > kept {
            return self.make_of_reserve(maker, stats);
        }
        if from == From::Reserve {
            return Err(
                self.no_space("the disk is full, and the reserve keeps its last files for openings".into())
            );
        }
        // The files that the next openings need come before another segment (INV-LOG-18).
        let kept = OPENING_FILES.min(self.options.reserve_segments);
        if from == From::Disk && maker.reserve.len() < kept && self.is_nearly_full() {
            while self.fill_reserve(maker, kept, stats)? {}
        }
        let bytes = match self.wanted_bytes(taken) {
            bytes if bytes >= bytes_min => bytes,
            // A long record gets a segment of its own size.
            _ if bytes_min > self.options.segment_bytes_max => bytes_min.next_multiple_of(BLOCK_BYTES),
            _ => bytes_min.next_power_of_two().min(self.options.segment_bytes_max),
        };
        let spare = self.take_spare(maker, bytes, content);
        if spare.is_none() {
            self.check_free(bytes)?;
        }
        let number = maker.next_number()?;
        let mut named = None;
        let made = self.make_file(spare, (number, bytes), content, stats, &mut named);
        made.map_err(|source| {
            // Retries would otherwise fill the disk with such files.
            if let Some(name) = named {
                let _ = self.dir.remove(&name);
            }
            LogError::io("make segment", &self.path(number), source)
        })
    }

    /// Fails if a new file of `bytes` cannot fit: before it has a number or a name.
    fn check_free(&self, bytes: u32) -> Result<(), LogError> {
        let free = self.free_bytes();
        if free >= bytes.into() {
            return Ok(());
        }
        Err(self.no_space(format!("{free} bytes are free, and the next segment takes {bytes}")))
    }

    /// The disk's free space; [`u64::MAX`] if that is not known.
    pub(super) fn free_bytes(&self) -> u64 {
        self.dir.free_bytes().unwrap_or(u64::MAX)
    }

    fn no_space(&self, why: String) -> LogError {
        LogError::NoSpace {
            path: self.dir.path().to_owned(),
            source: io::Error::new(io::ErrorKind::StorageFull, why),
        }
    }

    /// Sets `named` to the name of the file as soon as the file has one. Before that, a file of that name belongs to
    /// another process.
    fn make_file(
        &self,
        spare: Option<Arc<Segment>>,
        (number, bytes): (u32, u32),
        content: Content,
        stats: &Counters,
        named: &mut Option<String>,
    ) -> io::Result<Arc<Segment>> {
        let new_name = new_file_name(number);
        let was_written = spare.as_ref().is_some_and(|spare| spare.is_file_written());
        let file = match spare {
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
        let is_filled = self.fill(&*file, (number, bytes), content, was_written, stats)?;
        let name = segment_file_name(number);
        self.dir.rename(&new_name, &name)?;
        *named = Some(name);
        self.dir.sync()?;
        let segment = Segment::new(number, bytes, self.path(number), Some(file));
        segment.set_file_written(was_written || is_filled);
        let segment = Arc::new(segment);
        self.add(Arc::clone(&segment));
        Ok(segment)
    }

    /// Makes the file of a segment that was never used a spare one.
    pub fn give_up(&self, maker: &mut Maker, segment: Arc<Segment>) {
        self.table.lock().remove(&segment.number);
        maker.spare.push(segment);
    }

    /// A spare file of this size that has no reader left, if possible one that `content` need not fill. The bulk stream
    /// takes a file that the commit stream need not fill only where a new one does not fit. Removes those of another size.
    fn take_spare(&self, maker: &mut Maker, bytes: u32, content: Content) -> Option<Arc<Segment>> {
        maker.spare.retain_mut(|spare| {
            let fits = spare.bytes == bytes && Arc::get_mut(spare).is_some();
            if !fits {
                let _ = self.dir.remove(&spare.name());
            }
            fits
        });
        let is_for_commits = content == Content::Written;
        let best = maker.spare.iter().rposition(|spare| spare.is_file_written() == is_for_commits);
        let may_take_any = is_for_commits || self.is_nearly_full() || self.free_bytes() < bytes.into();
        let any = maker.spare.len().checked_sub(1).filter(|_| may_take_any);
        best.or(any).map(|index| maker.spare.remove(index))
    }

    /// Gives a file its space, content and header, and syncs it. `was_written`: whether all of it has been written before.
    /// Returns whether it was filled with zeros.
    pub(super) fn fill(
        &self,
        file: &dyn File,
        (number, bytes): (u32, u32),
        content: Content,
        was_written: bool,
        stats: &Counters,
    ) -> io::Result<bool> {
        let is_allocated = take_space(file, bytes.into())?;
        let mut start = SegmentHeader { bytes, database: self.database, number }.encode();
        let is_filled = match content {
            Content::Zeros => true,
            Content::Written => !was_written,
            Content::BulkStart(..) => !is_allocated,
        };
        if is_filled {
            self.zero(file, bytes)?;
            add(&stats.zero_bytes, (bytes - SEGMENT_DATA_START).into());
        }
        match content {
            Content::Zeros => {}
            Content::Written => start.resize(start.len() + BLOCK_BYTES as usize, 0),
            Content::BulkStart(epoch, durable) => {
                let header = GroupHeader::bulk_start(self.database, epoch, number, durable);
                start.extend_from_slice(&header.encode(&[]));
            }
        }
        file.write_at(&start, 0)?;
        file.sync_data()?;
        Ok(is_filled)
    }

    /// Zeros a segment file after its header. Zeros written directly leave no cached pages, which each later direct
    /// write would have to drop. For a log that writes through the page cache, the zeros go there.
    fn zero(&self, file: &dyn File, bytes: u32) -> io::Result<()> {
        let zeros = AlignedBuf::new(ZERO_CHUNK_BYTES.min(bytes as usize));
        // `takes_direct_writes` opens the descriptor for direct writes, so that the writer finds it open.
        let direct =
            self.options.writes_directly() && self.with_descriptors(|| file.takes_direct_writes())?;
        let mut offset = u64::from(SEGMENT_DATA_START);
        while offset < u64::from(bytes) {
            let len = (u64::from(bytes) - offset).min(zeros.len() as u64);
            let block = &zeros[..len as usize];
            if direct { file.write_direct(block, offset, false) } else { file.write_at(block, offset) }?;
            offset += len;
        }
        Ok(())
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

/// Takes the space of the first `bytes` of a file, as far as it lacks any. False if the file system cannot: then writes
/// have to take it. A file that has its space is not asked for it again, because on a full disk some file systems
/// refuse that.
pub(super) fn take_space(file: &dyn File, bytes: u64) -> io::Result<bool> {
    if file.len()? >= bytes && file.allocated_bytes()? >= bytes {
        return Ok(true);
    }
    match file.allocate(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
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
