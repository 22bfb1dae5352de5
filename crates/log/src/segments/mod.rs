//! The segment files of one log: the table of them, and their open files.
//!
//! They are made in `make.rs`, kept for a full disk in `reserve.rs`, and made ready by the thread of `supply.rs`.

mod make;
mod read;
mod reserve;
mod segment;
pub(crate) mod supply;
mod tails;

pub(crate) use self::make::{Content, From, Maker, Wanted};
pub(crate) use self::reserve::OPENING_FILES;
pub(crate) use self::segment::{SEALED, Segment};
pub use self::segment::{SegmentInfo, Stream};

use crate::error::LogError;
use crate::format::segment_file_name;
use crate::options::LogOptions;
use crate::recovery::holds_something;
use fulgurite_env::{Dir, File, OpenOptions, is_out_of_files};
use fulgurite_types::sync::{Mutex, MutexGuard};
use fulgurite_types::{Csn, DatabaseId};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How many files of sealed segments may be open at once.
const OPEN_FILES_MAX: usize = 256;

pub(crate) struct Segments {
    dir: Arc<dyn Dir>,
    database: DatabaseId,
    options: LogOptions,
    maker: Mutex<Maker>,
    table: Mutex<BTreeMap<u32, Arc<Segment>>>,
    /// Sealed segments whose files are open, oldest first.
    open_files: Mutex<VecDeque<u32>>,
    /// Segments that recovery found unused, to be removed.
    unwanted: Mutex<Vec<u32>>,
    /// The segment that holds the newest epoch's start.
    epoch_start: AtomicU32,
    /// How many files the reserve has.
    reserved: AtomicU32,
    /// The largest size that a new segment may have. The disk gave no space to a longer one, although it had reported
    /// enough.
    bytes_max: AtomicU32,
    /// The next segments have at most so many bytes, unless a record needs more.
    bound: AtomicU64,
}

impl Segments {
    pub fn new(
        dir: Arc<dyn Dir>,
        database: DatabaseId,
        options: LogOptions,
        next_number: u32,
        reserve: Vec<String>,
    ) -> Segments {
        let reserved = AtomicU32::new(reserve.len() as u32);
        let maker = Mutex::new(Maker::new(next_number, reserve));
        let bytes_max = AtomicU32::new(options.segment_bytes_max);
        Segments {
            dir,
            database,
            options,
            maker,
            table: Mutex::default(),
            open_files: Mutex::default(),
            unwanted: Mutex::default(),
            epoch_start: AtomicU32::new(0),
            reserved,
            bytes_max,
            bound: AtomicU64::new(u64::MAX),
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

    /// Bounds the next segments ([`Segments::wanted_bytes`]).
    pub fn set_bound(&self, bytes: u64) {
        self.bound.store(bytes, Ordering::Relaxed);
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
        if let Some(file) = segment.open_file() {
            return Ok(file);
        }
        let (file, opened) =
            self.with_descriptors(|| segment.open(self.dir(), self.options.open_options()))?;
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
    fn with_descriptors<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
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

    /// The first CSN of this epoch.
    pub fn first_csn_of_epoch(&self) -> Option<Csn> {
        let number = self.epoch_start.load(Ordering::Relaxed);
        self.get(number).map(|segment| segment.info(number).first_csn)
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
        // A long record's segment fits no other.
        let is_long = segment.bytes > self.options.segment_bytes_max;
        if keep && is_unread && !is_long && maker.lacks_spares_like(&segment, self.options.ready_segments) {
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

    /// Leaves segments that nothing refers to for [`Segments::remove_unwanted`]. After a crash before that, the next
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
