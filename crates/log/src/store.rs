//! The segment files of one log: made, recycled, freed, kept in reserve.

use crate::core::Core;
use crate::error::LogError;
use crate::format::{SEGMENT_DATA_START, SegmentHeader, new_file_name, segment_file_name};
use crate::options::LogOptions;
use crate::recovery::holds_something;
use crate::segment::{SEALED, Segment, SegmentInfo};
use crate::stats::{Counters, add};
use fulgurite_env::{AlignedBuf, Dir, File, OpenOptions, is_out_of_files};
use fulgurite_types::sync::{Mutex, MutexGuard};
use fulgurite_types::{Csn, DatabaseId};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

/// How many files of sealed segments may be open at once.
const OPEN_FILES_MAX: usize = 256;

/// How many files the reserve keeps for openings. Each opening takes one; INV-LOG-18 says why two are enough for any
/// number of openings.
pub(crate) const OPENING_FILES: usize = 2;

/// State for making segments. One thread makes at a time, so segments get ready in the order of their numbers.
pub(crate) struct Maker {
    next_number: u32,
    /// Files of freed segments, to become new segments.
    spare: Vec<Arc<Segment>>,
    /// Names of empty files of at least the smallest size that are not segments yet. When the disk is full the next
    /// opening begins its epoch in one, and a checkpoint writes to them; [`OPENING_FILES`] are left to openings.
    reserve: Vec<String>,
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

pub(crate) struct Store {
    dir: Arc<dyn Dir>,
    database: DatabaseId,
    pub(crate) options: LogOptions,
    maker: Mutex<Maker>,
    pub(crate) table: Mutex<BTreeMap<u32, Arc<Segment>>>,
    /// Sealed segments whose files are open, oldest first.
    open_files: Mutex<VecDeque<u32>>,
    /// Segments that recovery found unused, to be removed.
    unwanted: Mutex<Vec<u32>>,
    /// The segment that holds the newest epoch's start.
    epoch_start: AtomicU32,
    /// How many files the reserve has.
    reserved: AtomicU32,
}

impl Store {
    pub fn new(
        dir: Arc<dyn Dir>,
        database: DatabaseId,
        options: LogOptions,
        next_number: u32,
        reserve: Vec<String>,
    ) -> Store {
        let reserved = AtomicU32::new(reserve.len() as u32);
        let maker = Mutex::new(Maker { next_number, spare: Vec::new(), reserve });
        Store {
            dir,
            database,
            options,
            maker,
            table: Mutex::default(),
            open_files: Mutex::default(),
            unwanted: Mutex::default(),
            epoch_start: AtomicU32::new(0),
            reserved,
        }
    }

    /// The directory of the segments.
    pub fn dir(&self) -> &dyn Dir {
        &*self.dir
    }

    /// A segment's path, for messages.
    pub fn path(&self, number: u32) -> PathBuf {
        self.dir.path().join(segment_file_name(number))
    }

    pub fn set_epoch_start(&self, number: u32) {
        self.epoch_start.store(number, Ordering::Relaxed);
    }

    pub fn add(&self, segment: Arc<Segment>) {
        self.table.lock().insert(segment.number, segment);
    }

    pub fn get(&self, number: u32) -> Option<Arc<Segment>> {
        self.table.lock().get(&number).cloned()
    }

    /// The segment's file. Of sealed segments at most [`OPEN_FILES_MAX`] stay open: a large database has more segments
    /// than a process may have files.
    pub fn file(&self, segment: &Segment) -> io::Result<Arc<dyn File>> {
        let (file, opened) =
            self.with_descriptors(|| segment.file(self.dir(), self.options.open_options()))?;
        if opened {
            self.bound_open_files(segment.number);
        }
        Ok(file)
    }

    /// Seals a segment: the log appends no more to it, and all of it is durable. Closes its file; a reader opens it
    /// again, with one descriptor where the writer needed two.
    pub fn seal(&self, segment: &Segment) {
        segment.seal();
        segment.close_file();
    }

    /// If the process has no descriptor left, closes the open files of sealed segments and tries again.
    pub(crate) fn with_descriptors<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_out_of_files(&error) && self.close_sealed_files() => open(),
            other => other,
        }
    }

    /// Returns whether there was one.
    fn close_sealed_files(&self) -> bool {
        let numbers = std::mem::take(&mut *self.open_files.lock());
        for segment in numbers.iter().filter_map(|number| self.get(*number)) {
            segment.close_file();
        }
        !numbers.is_empty()
    }

    /// Closes the files of all sealed segments. A read that needs one opens it again.
    pub fn close_files(&self) {
        self.open_files.lock().clear();
        let segments: Vec<_> = self.table.lock().values().cloned().collect();
        segments.iter().for_each(|segment| segment.close_file());
    }

    fn bound_open_files(&self, number: u32) {
        let mut open = self.open_files.lock();
        open.push_back(number);
        while open.len() > OPEN_FILES_MAX {
            if let Some(oldest) = open.pop_front().and_then(|number| self.get(number)) {
                oldest.close_file();
            }
        }
    }

    pub fn infos(&self) -> Vec<SegmentInfo> {
        let epoch_start = self.epoch_start.load(Ordering::Relaxed);
        self.table.lock().values().map(|segment| segment.info(epoch_start)).collect()
    }

    pub fn maker(&self) -> MutexGuard<'_, Maker> {
        self.maker.lock()
    }

    /// The size of the next segment: the smallest, doubled for each segment that the streams took after the first since
    /// the log was opened, while it is at most an eighth of the free space. So a log that hardly grows stays small, one
    /// that grows fast soon has large segments, and ready segments do not fill a nearly full disk.
    fn wanted_bytes(&self, taken: u32) -> u32 {
        let (min, max) =
            (u64::from(self.options.segment_bytes_min), u64::from(self.options.segment_bytes_max));
        let free = self.dir.free_bytes().unwrap_or(u64::MAX);
        let bytes = |doublings: u32| (min << doublings).min(max);
        let mut doublings = taken.saturating_sub(1).min(31);
        while doublings > 0 && bytes(doublings) > free / 8 {
            doublings -= 1;
        }
        u32::try_from(bytes(doublings)).unwrap_or(self.options.segment_bytes_max)
    }

    /// Makes a segment of at least `bytes_min`, all of it durable: zeros, size, header, name.
    pub fn make(
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
        let number = next_number(maker)?;
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

    /// Makes a segment of the smallest size from a file of the reserve: that takes no space.
    fn make_of_reserve(&self, maker: &mut Maker) -> Result<Arc<Segment>, LogError> {
        let number = next_number(maker)?;
        let (bytes, name) = (self.options.segment_bytes_min, segment_file_name(number));
        let kept = maker.reserve.pop().expect("the caller saw one");
        let made = self.with_descriptors(|| self.dir.open(&kept, OpenOptions::Write)).and_then(|file| {
            if file.len()? > bytes.into() {
                file.set_len(bytes.into())?;
            }
            self.fill(&*file, number, bytes)?;
            self.dir.rename(&kept, &name)?;
            Ok(file)
        });
        let file = made.map_err(|source| {
            maker.reserve.push(kept);
            LogError::io("make segment", &self.path(number), source)
        })?;
        self.reserved.fetch_sub(1, Ordering::Relaxed);
        // If this fails, the name may exist but not be durable. The file holds no data, so the next recovery removes
        // it.
        self.dir.sync().map_err(|source| LogError::io("make segment", &self.path(number), source))?;
        let mut segment = Segment::new(number, bytes, self.path(number), Some(file));
        segment.of_reserve = true;
        let segment = Arc::new(segment);
        self.add(Arc::clone(&segment));
        Ok(segment)
    }

    /// Adds a file to the reserve if it has fewer than `wanted`. Returns whether it did.
    pub fn fill_reserve(&self, maker: &mut Maker, wanted: usize) -> Result<bool, LogError> {
        if maker.reserve.len() >= wanted {
            return Ok(false);
        }
        if let Some(mut spare) = maker.spare.pop() {
            if Arc::get_mut(&mut spare).is_some() && self.is_allocated(&spare) {
                self.keep_freed(maker, spare)?;
                return Ok(true);
            }
            let _ = self.dir.remove(&spare.name());
        }
        let bytes = u64::from(self.options.segment_bytes_min);
        let lacks_space = || self.dir.free_bytes().unwrap_or(u64::MAX) < bytes;
        if lacks_space() && (!self.give_back_tails() || lacks_space()) {
            return Ok(false);
        }
        let number = next_number(maker)?;
        let name = new_file_name(number);
        let made = self.with_descriptors(|| self.dir.open(&name, OpenOptions::CreateNew));
        let made = made.and_then(|file| {
            let filled = self.fill(&*file, number, self.options.segment_bytes_min);
            let filled = filled.and_then(|()| self.dir.sync());
            if filled.is_err() {
                let _ = self.dir.remove(&name);
            }
            filled
        });
        made.map_err(|source| LogError::io("keep", &self.dir.path().join(&name), source))?;
        self.keep(maker, name);
        Ok(true)
    }

    fn keep(&self, maker: &mut Maker, name: String) {
        maker.reserve.push(name);
        self.reserved.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the file of a freed segment to the reserve. The old name is durably gone before anything is written to the
    /// file. Once the file has its new name the segment is freed, even if the reserve does not get the file.
    fn keep_freed(&self, maker: &mut Maker, segment: Arc<Segment>) -> Result<(), LogError> {
        let name = new_file_name(next_number(maker)?);
        let failed = |source| LogError::io("keep", &segment.path, source);
        if let Err(source) = self.dir.rename(&segment.name(), &name) {
            // The file still has its old name; a file with the new name belongs to another process.
            let error = failed(source);
            self.add(segment);
            return Err(error);
        }
        let cut = self.dir.sync().and_then(|()| {
            let file = self.with_descriptors(|| self.dir.open(&name, OpenOptions::Write))?;
            file.set_len(self.options.segment_bytes_min.into())
        });
        match cut {
            Ok(()) => self.keep(maker, name),
            Err(source) => {
                tracing::warn!(error = %failed(source), "a freed segment could not be kept for a full disk");
                // If it stays, the next recovery removes it.
                let _ = self.dir.remove(&name);
            }
        }
        Ok(())
    }

    /// Whether so little space is free that the reserve comes first.
    pub fn is_nearly_full(&self) -> bool {
        let reserve = self.options.reserve_segments as u64 * u64::from(self.options.segment_bytes_min);
        self.dir.free_bytes().is_ok_and(|free| free < 4 * reserve)
    }

    /// The bytes that the reserve counts for.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_files() as u64 * u64::from(self.options.segment_bytes_min)
    }

    /// The number of files in the reserve.
    pub fn reserve_files(&self) -> usize {
        self.reserved.load(Ordering::Relaxed) as usize
    }

    /// The first CSN of this epoch.
    pub fn first_csn_of_epoch(&self) -> Option<Csn> {
        let number = self.epoch_start.load(Ordering::Relaxed);
        self.get(number).map(|segment| segment.info(number).first_csn)
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
        self.fill(&*file, number, bytes)?;
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
    fn fill(&self, file: &dyn File, number: u32, bytes: u32) -> io::Result<()> {
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

    /// Removes the spare files, as far as that works.
    pub fn remove_spares(&self) {
        for spare in std::mem::take(&mut self.maker.lock().spare) {
            let _ = self.dir.remove(&spare.name());
        }
    }

    /// Frees a segment that the caller proved unneeded; `keep` allows its file to be recycled.
    pub fn free(&self, number: u32, keep: bool) -> Result<(), LogError> {
        let mut maker = self.maker.lock();
        let segment = {
            let mut table = self.table.lock();
            let Some(segment) = table.get(&number) else {
                return Err(LogError::Usage(format!("segment {number} does not exist")));
            };
            if segment.state() != SEALED || number == self.epoch_start.load(Ordering::Relaxed) {
                return Err(LogError::Usage(format!("segment {number} is still needed by the log itself")));
            }
            table.remove(&number).expect("it is there, and the table is locked")
        };
        let is_unread = Arc::strong_count(&segment) == 1;
        if is_unread
            && maker.reserve.len() < self.options.reserve_segments
            && (!keep || self.is_nearly_full())
            && self.is_allocated(&segment)
        {
            return self.keep_freed(&mut maker, segment);
        }
        if keep && is_unread && maker.spare.len() < self.options.ready_segments {
            maker.spare.push(segment);
            return Ok(());
        }
        let removed = self.dir.remove(&segment.name());
        removed.map_err(|source| {
            let error = LogError::io("remove", &segment.path, source);
            self.add(segment);
            error
        })
    }

    /// Leaves segments that nothing refers to for [`Store::remove_unwanted`]. After a crash before that, the next
    /// recovery finds them.
    pub fn remove_later(&self, numbers: &[u32]) {
        self.unwanted.lock().extend(numbers);
    }

    /// Removes one of them, unless it holds data after all. Returns whether there was one.
    pub fn remove_unwanted(&self) -> Result<bool, LogError> {
        let Some(number) = self.unwanted.lock().pop() else { return Ok(false) };
        let path = self.path(number);
        let failed = |source| LogError::io("remove", &path, source);
        let name = segment_file_name(number);
        let file = self.dir.open(&name, OpenOptions::Read).map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?).unwrap_or(0)];
        let got = file.read_at(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(got);
        if holds_something(&bytes, self.database, number) {
            tracing::warn!(path = %path.display(), "a segment that nothing refers to holds data; it is left alone");
        } else {
            self.dir.remove(&name).map_err(failed)?;
        }
        Ok(true)
    }

    /// The bytes of all segments, and their number.
    pub fn totals(&self) -> (u64, u64) {
        let table = self.table.lock();
        (table.values().map(|segment| u64::from(segment.bytes)).sum(), table.len() as u64)
    }
}

fn next_number(maker: &mut Maker) -> Result<u32, LogError> {
    let number = maker.next_number;
    maker.next_number = number.checked_add(1).ok_or_else(|| {
        LogError::Usage("all 4294967295 segment numbers are used; copy the database to a new one".into())
    })?;
    Ok(number)
}

impl Core {
    /// [`Store::make`], and poisons the log if another process makes segments here.
    pub fn make_segment(
        &self,
        maker: &mut Maker,
        taken: u32,
        bytes_min: u32,
        from: From,
    ) -> Result<Arc<Segment>, LogError> {
        let made = self.store.make(maker, taken, bytes_min, from, &self.stats);
        made.map_err(|error| self.fail_if_taken(error))
    }

    /// [`Store::fill_reserve`], and poisons the log if another process makes segments here.
    pub fn fill_reserve(&self, maker: &mut Maker, wanted: usize) -> Result<bool, LogError> {
        self.store.fill_reserve(maker, wanted).map_err(|error| self.fail_if_taken(error))
    }

    /// Recovery left no file with a name that this log will take. A file with such a name belongs to another process,
    /// which began an epoch in this directory: commits acknowledged from then on would be lost at the next open
    /// (INV-DIR-3).
    fn fail_if_taken(&self, error: LogError) -> LogError {
        match error {
            LogError::Io { source, path, .. } if source.kind() == io::ErrorKind::AlreadyExists => self.fail(
                "another process makes segments in this directory: the creation",
                Some((&path, source)),
            ),
            other => other,
        }
    }
}
