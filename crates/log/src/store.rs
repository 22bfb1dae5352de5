//! The segment files of one log: made, recycled, freed.

use crate::error::LogError;
use crate::format::{SEGMENT_DATA_START, SegmentHeader, new_file_name, segment_file_name};
use crate::options::LogOptions;
use crate::recovery::holds_something;
use crate::segment::{SEALED, Segment, SegmentInfo};
use crate::stats::{Counters, add};
use crate::sync::{Mutex, MutexGuard};
use fulgurite_base::DatabaseId;
use fulgurite_env::{AlignedBuf, Disk, Env, File, OpenOptions};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

/// How many files of sealed segments are open at once.
const OPEN_FILES_MAX: usize = 256;

/// What making a segment needs; one thread makes at a time, so numbers rise in the order in which segments are ready.
pub(crate) struct Maker {
    next_number: u32,
    /// Freed files that may become new segments.
    spare: Vec<Arc<Segment>>,
}

pub(crate) struct Store {
    env: Arc<dyn Env>,
    dir: PathBuf,
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
}

impl Store {
    pub fn new(
        env: Arc<dyn Env>,
        dir: &Path,
        database: DatabaseId,
        options: LogOptions,
        next_number: u32,
    ) -> Store {
        let maker = Mutex::new(Maker { next_number, spare: Vec::new() });
        Store {
            env,
            dir: dir.to_owned(),
            database,
            options,
            maker,
            table: Mutex::default(),
            open_files: Mutex::default(),
            unwanted: Mutex::default(),
            epoch_start: AtomicU32::new(0),
        }
    }

    pub fn disk(&self) -> &dyn Disk {
        self.env.disk()
    }

    pub fn path(&self, number: u32) -> PathBuf {
        self.dir.join(segment_file_name(number))
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
        let (file, opened) = segment.file(self.disk())?;
        if opened {
            self.bound_open_files(segment.number);
        }
        Ok(file)
    }

    /// The log appends no more to the segment, and all of it is durable.
    pub fn seal(&self, segment: &Segment) {
        segment.seal();
        self.bound_open_files(segment.number);
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
        let free = self.disk().free_bytes(&self.dir).unwrap_or(u64::MAX);
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
        stats: &Counters,
    ) -> Result<Arc<Segment>, LogError> {
        let bytes = match self.wanted_bytes(taken) {
            bytes if bytes >= bytes_min => bytes,
            _ => bytes_min.next_power_of_two().min(self.options.segment_bytes_max),
        };
        let number = maker.next_number;
        maker.next_number = number.checked_add(1).ok_or_else(|| {
            LogError::Usage("all 4294967295 segment numbers are used; copy the database to a new one".into())
        })?;
        let new_path = self.dir.join(new_file_name(number));
        let made = match self.take_spare(maker, bytes) {
            Some(spare) => {
                add(&stats.segments_recycled, 1);
                self.recycle(&spare, &new_path)
            }
            None => {
                add(&stats.segments_created, 1);
                self.disk().open(&new_path, OpenOptions::CreateNew)
            }
        };
        let made = made.and_then(|file| self.finish(file, number, bytes, &new_path));
        match made {
            Ok(segment) => {
                self.add(Arc::clone(&segment));
                Ok(segment)
            }
            Err(source) => {
                // It has the one name or the other. Tried again and again, it would fill the disk.
                let _ = self.disk().remove(&new_path);
                let _ = self.disk().remove(&self.path(number));
                Err(LogError::io("make segment", &new_path, source))
            }
        }
    }

    /// A spare file that fits and that nobody reads any more; others are removed.
    fn take_spare(&self, maker: &mut Maker, bytes: u32) -> Option<Arc<Segment>> {
        while let Some(mut spare) = maker.spare.pop() {
            if spare.bytes == bytes && Arc::get_mut(&mut spare).is_some() {
                return Some(spare);
            }
            let _ = self.disk().remove(&spare.path);
        }
        None
    }

    /// The old name is durably gone before a byte of the content changes.
    fn recycle(&self, spare: &Segment, new_path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk().rename(&spare.path, new_path)?;
        self.disk().sync_dir(&self.dir)?;
        self.disk().open(new_path, OpenOptions::Write)
    }

    /// Zeros that are written around the page cache leave nothing there, which each write around it would have to drop;
    /// those written through it are where a write through it needs them.
    fn finish(
        &self,
        file: Arc<dyn File>,
        number: u32,
        bytes: u32,
        new_path: &Path,
    ) -> io::Result<Arc<Segment>> {
        let zeros = AlignedBuf::new(ZERO_CHUNK_BYTES.min(bytes as usize));
        let direct = self.options.writes_directly() && file.takes_direct_writes();
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
        file.sync_data()?;
        let path = self.path(number);
        self.disk().rename(new_path, &path)?;
        self.disk().sync_dir(&self.dir)?;
        Ok(Arc::new(Segment::new(number, bytes, path, Some(file))))
    }

    /// Removes the files that wait to be used again, as far as that works.
    pub fn remove_spares(&self) {
        for spare in std::mem::take(&mut self.maker.lock().spare) {
            let _ = self.disk().remove(&spare.path);
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
        if keep && Arc::strong_count(&segment) == 1 && maker.spare.len() < self.options.ready_segments {
            maker.spare.push(segment);
            return Ok(());
        }
        let removed = self.disk().remove(&segment.path);
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
        let file = self.disk().open(&path, OpenOptions::Read).map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?).unwrap_or(0)];
        let got = file.read_at(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(got);
        if holds_something(&bytes, self.database, number) {
            tracing::warn!(path = %path.display(), "a segment that nothing refers to holds data; it is left alone");
        } else {
            self.disk().remove(&path).map_err(failed)?;
        }
        Ok(true)
    }

    /// Bytes of all files, and how many.
    pub fn totals(&self) -> (u64, u64) {
        let table = self.table.lock();
        (table.values().map(|segment| u64::from(segment.bytes)).sum(), table.len() as u64)
    }
}
