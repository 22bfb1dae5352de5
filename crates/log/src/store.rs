//! The segment files of one log: made, recycled, freed.

use crate::core::Core;
use crate::error::LogError;
use crate::format::{SEGMENT_DATA_START, SegmentHeader, new_file_name, segment_file_name};
use crate::options::LogOptions;
use crate::recovery::holds_something;
use crate::segment::{SEALED, Segment, SegmentInfo};
use crate::stats::{Counters, add};
use crate::sync::{Mutex, MutexGuard};
use fulgurite_env::{AlignedBuf, Dir, File, OpenOptions, is_out_of_files};
use fulgurite_types::{Csn, DatabaseId};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

/// How many files of sealed segments are open at once.
const OPEN_FILES_MAX: usize = 256;

/// How many files the reserve keeps for openings, of which each takes one. INV-LOG-18 says why two are enough for any
/// number of them.
pub(crate) const OPENING_FILES: usize = 2;

/// What making a segment needs; one thread makes at a time, so numbers rise in the order in which segments are ready.
pub(crate) struct Maker {
    next_number: u32,
    /// Freed files that may become new segments.
    spare: Vec<Arc<Segment>>,
    /// Names of files of at least the smallest size that are not segments yet and hold nothing: what the next opening
    /// begins its epoch in, and a checkpoint writes to, when the disk is full. [`OPENING_FILES`] are left to openings.
    reserve: Vec<String>,
}

/// What a segment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// A freed file that fits, else a new one.
    Disk,
    /// The same; where the disk is full the reserve, all but what openings need.
    DiskOrReserve,
    /// The reserve to its last file; the disk if it is empty.
    WholeReserve,
}

pub(crate) struct Store {
    dir: Arc<dyn Dir>,
    database: DatabaseId,
    options: LogOptions,
    maker: Mutex<Maker>,
    table: Mutex<BTreeMap<u32, Arc<Segment>>>,
    /// Sealed segments whose files are open, oldest first.
    open_files: Mutex<VecDeque<u32>>,
    /// Files that recovery found unused.
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

    /// Where a segment is, for messages.
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

    /// The log appends no more to the segment, and all of it is durable. A reader opens it again, with one descriptor
    /// where the writer needed two.
    pub fn seal(&self, segment: &Segment) {
        segment.seal();
        segment.close_file();
    }

    /// Tries again without the sealed segments that are open, where the process has no descriptor left.
    fn with_descriptors<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_out_of_files(&error) && self.close_sealed_files() => open(),
            other => other,
        }
    }

    /// Whether there was any.
    fn close_sealed_files(&self) -> bool {
        let numbers = std::mem::take(&mut *self.open_files.lock());
        for segment in numbers.iter().filter_map(|number| self.get(*number)) {
            segment.close_file();
        }
        !numbers.is_empty()
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

    /// The size of the next segment: the smallest, doubled for each that the commit stream has taken since the log
    /// was opened, while it takes at most an eighth of the free space. A log that hardly grows stays small, one that
    /// grows fast soon has large segments, and one on a disk that is nearly full does not hold the rest of it ready.
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

    /// Makes a segment of at least `bytes_min` that is durable in every respect: zeros, size, header, name.
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
        // What the next openings need comes before another segment (INV-LOG-18).
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
            // Tried again and again, it would fill the disk.
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

    /// Makes a segment of the smallest size of a file of the reserve: that takes no space.
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
        // The name may be there without being durable: nothing was written to it, so the next recovery removes it.
        self.dir.sync().map_err(|source| LogError::io("make segment", &self.path(number), source))?;
        let mut segment = Segment::new(number, bytes, self.path(number), Some(file));
        segment.of_reserve = true;
        let segment = Arc::new(segment);
        self.add(Arc::clone(&segment));
        Ok(segment)
    }

    /// Adds a file to the reserve if it has less than `wanted`; true if it did.
    pub fn fill_reserve(&self, maker: &mut Maker, wanted: usize) -> Result<bool, LogError> {
        if maker.reserve.len() >= wanted {
            return Ok(false);
        }
        if let Some(mut spare) = maker.spare.pop() {
            if Arc::get_mut(&mut spare).is_some() {
                self.keep_freed(maker, spare)?;
                return Ok(true);
            }
            let _ = self.dir.remove(&spare.name());
        }
        let bytes = u64::from(self.options.segment_bytes_min);
        if self.dir.free_bytes().unwrap_or(u64::MAX) < bytes {
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

    /// Makes the file of a freed segment one of the reserve. The old name is durably gone before anything is written. Once
    /// the file has its new name the segment is freed, even if the reserve does not get it.
    fn keep_freed(&self, maker: &mut Maker, segment: Arc<Segment>) -> Result<(), LogError> {
        let name = new_file_name(next_number(maker)?);
        let failed = |source| LogError::io("keep", &segment.path, source);
        if let Err(source) = self.dir.rename(&segment.name(), &name) {
            // The file has its old name still, and a file that has the new one is another's.
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
                // What stays is removed by the next recovery.
                let _ = self.dir.remove(&name);
            }
        }
        Ok(())
    }

    /// Whether the reserve comes before everything else.
    pub fn is_nearly_full(&self) -> bool {
        let reserve = self.options.reserve_segments as u64 * u64::from(self.options.segment_bytes_min);
        self.dir.free_bytes().is_ok_and(|free| free < 4 * reserve)
    }

    /// Bytes of the reserve.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_files() as u64 * u64::from(self.options.segment_bytes_min)
    }

    /// Files of the reserve.
    pub fn reserve_files(&self) -> usize {
        self.reserved.load(Ordering::Relaxed) as usize
    }

    /// The number of the first commit of this epoch.
    pub fn first_csn_of_epoch(&self) -> Option<Csn> {
        let number = self.epoch_start.load(Ordering::Relaxed);
        self.get(number).map(|segment| segment.info(number).first_csn)
    }

    /// `named` becomes the name of the file that is being made, as soon as it has one: a name that was taken belongs to
    /// another file.
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

    /// A spare file that fits and that nobody reads any more; others are removed.
    fn take_spare(&self, maker: &mut Maker, bytes: u32) -> Option<Arc<Segment>> {
        while let Some(mut spare) = maker.spare.pop() {
            if spare.bytes == bytes && Arc::get_mut(&mut spare).is_some() {
                return Some(spare);
            }
            let _ = self.dir.remove(&spare.name());
        }
        None
    }

    /// Zeros that are written around the page cache leave nothing there, which each write around it would have to drop;
    /// those written through it are where a write through it needs them.
    fn fill(&self, file: &dyn File, number: u32, bytes: u32) -> io::Result<()> {
        let zeros = AlignedBuf::new(ZERO_CHUNK_BYTES.min(bytes as usize));
        // A writer that writes directly finds the descriptor for that open.
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

    /// Removes the files that wait to be used again, as far as that works.
    pub fn remove_spares(&self) {
        for spare in std::mem::take(&mut self.maker.lock().spare) {
            let _ = self.dir.remove(&spare.name());
        }
    }

    /// Frees a segment that the caller proved nobody needs; `keep` allows its file to be used again.
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

    /// Leaves files that nothing refers to for [`Store::remove_unwanted`]. A crash before that leaves them for the next
    /// recovery.
    pub fn remove_later(&self, numbers: &[u32]) {
        self.unwanted.lock().extend(numbers);
    }

    /// Removes one of them, unless it holds something after all; true if there was one.
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

    /// Bytes of all files, and how many.
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
    /// [`Store::make`], and fails for good if another process makes segments here.
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

    /// [`Store::fill_reserve`], and fails for good if another process makes segments here.
    pub fn fill_reserve(&self, maker: &mut Maker, wanted: usize) -> Result<bool, LogError> {
        self.store.fill_reserve(maker, wanted).map_err(|error| self.fail_if_taken(error))
    }

    /// Recovery left no file whose name this log will take, so one that has it is of another process that has begun an
    /// epoch in this directory: what is acknowledged after that would be lost at the next open (INV-DIR-3).
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
