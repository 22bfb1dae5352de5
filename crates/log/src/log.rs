//! The log as its users see it: creation, watermarks, segments, the end.

use crate::core::Core;
use crate::error::{LogError, PoisonCause};
use crate::format::{EpochStart, SpillId};
use crate::options::LogOptions;
use crate::recovery::{RecoveryReport, RecoverySink, ReplayFrom};
use crate::recovery::{begin_epoch, recover};
use crate::scan::{SegmentScan, scan_segment_in};
use crate::segment::SegmentInfo;
use crate::stats::LogStats;
use crate::store::OPENING_FILES;
use crate::{background, format};
use fulgurite_env::{Dir, Env, Joiner};
use fulgurite_types::{Csn, DatabaseId, Epoch, Lsn};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A log: the commit stream and the bulk stream of one database.
///
/// Dropping it stops its threads and writes nothing more, as a crash would; [`Log::close`] first.
pub struct Log {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Vec<Box<dyn Joiner>>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({}, epoch {})", self.core.database, self.core.epoch)
    }
}

/// How far the commit stream is, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Synced in the segment.
    pub synced: Lsn,
    /// In the segment.
    pub written: Lsn,
    /// All before is filled.
    pub filled: Lsn,
    /// All before is reserved.
    pub reserved: Lsn,
    /// Survives a power cut.
    pub durable: Lsn,
    /// The newest durable commit.
    pub durable_csn: Csn,
    /// The newest reserved commit.
    pub reserved_csn: Csn,
}

impl Watermarks {
    /// Asserts their order (INV-LOG-1).
    ///
    /// # Panics
    /// If it does not hold.
    pub fn validate(&self) {
        let ordered = self.synced <= self.written
            && self.written <= self.filled
            && self.filled <= self.reserved
            && self.synced <= self.durable
            && self.durable <= self.filled
            && self.durable_csn <= self.reserved_csn;
        assert!(ordered, "INV-LOG-1: the watermarks are out of order: {self:?}");
    }
}

impl Log {
    /// Creates the directory, and [`Log::create_in`] it, all of it durable.
    ///
    /// # Errors
    /// Those of [`Log::create_in`].
    pub fn create(
        env: Arc<dyn Env>,
        dir: &Path,
        id: DatabaseId,
        options: LogOptions,
    ) -> Result<Arc<Log>, LogError> {
        options.validate()?;
        let io = |action| move |source| LogError::io(action, dir, source);
        env.disk().create_dir_all(dir).map_err(io("create"))?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            env.disk().sync_dir(parent).map_err(io("make durable"))?;
        }
        let dir = env.disk().open_dir(dir).map_err(io("open"))?;
        Log::create_in(env, &dir, id, options)
    }

    /// Creates a log in a directory: its first segments and epoch 1, all of it durable. The log keeps the directory open,
    /// and works in it wherever it is moved.
    ///
    /// # Errors
    /// [`LogError::Usage`] if the directory has segments already or the options are out of range,
    /// [`LogError::NoSpace`], [`LogError::Io`].
    pub fn create_in(
        env: Arc<dyn Env>,
        dir: &Arc<dyn Dir>,
        id: DatabaseId,
        options: LogOptions,
    ) -> Result<Arc<Log>, LogError> {
        options.validate()?;
        let io = |action| move |source| LogError::io(action, dir.path(), source);
        let entries = dir.list().map_err(io("list"))?;
        if entries.iter().any(|entry| format::parse_number(&entry.name, format::SEGMENT_SUFFIX).is_some()) {
            return Err(LogError::Usage(format!("{} has segments already; open it", dir.path().display())));
        }
        for entry in
            entries.iter().filter(|entry| format::parse_number(&entry.name, format::NEW_SUFFIX).is_some())
        {
            dir.remove(&entry.name).map_err(io("clear"))?;
        }
        let start = EpochStart {
            epoch: Epoch(1),
            previous: Epoch(0),
            previous_segment: 0,
            previous_end: Lsn::NULL,
            previous_csn: Csn::ZERO,
        };
        let begin = begin_epoch(dir.clone(), id, &options, 1, Vec::new(), &start)?;
        Log::start(begin.into_core(env, id, options, Vec::new(), None)?)
    }

    /// Opens the directory, and [`Log::open_in`] it.
    ///
    /// # Errors
    /// Those of [`Log::open_in`].
    pub fn open(
        env: Arc<dyn Env>,
        dir: &Path,
        id: DatabaseId,
        options: LogOptions,
        from: &ReplayFrom,
        sink: &mut dyn RecoverySink,
    ) -> Result<(Arc<Log>, RecoveryReport), LogError> {
        let dir = env.disk().open_dir(dir).map_err(|source| LogError::io("open", dir, source))?;
        Log::open_in(env, &dir, id, options, from, sink)
    }

    /// Opens a log after a crash or a clean close: checks it, hands every frame behind `from.csn` to `sink`, makes
    /// what it found durable, and begins a new epoch. A crash in the middle of it, or several, change nothing.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if something that was durable is missing or changed; nothing was written then.
    /// [`LogError::NoSpace`], [`LogError::Io`], [`LogError::Sink`], [`LogError::Usage`]: try again.
    pub fn open_in(
        env: Arc<dyn Env>,
        dir: &Arc<dyn Dir>,
        id: DatabaseId,
        options: LogOptions,
        from: &ReplayFrom,
        sink: &mut dyn RecoverySink,
    ) -> Result<(Arc<Log>, RecoveryReport), LogError> {
        options.validate()?;
        let (core, report) = recover(env, dir, id, options, from, sink)?;
        Ok((Log::start(core)?, report))
    }

    fn start(core: Core) -> Result<Arc<Log>, LogError> {
        let core = Arc::new(core);
        let threads = background::start(&core)?;
        Ok(Arc::new(Log { core, threads: Mutex::new(threads) }))
    }

    /// How far the commit stream is.
    pub fn watermarks(&self) -> Watermarks {
        let core = &self.core;
        let synced = Lsn(core.watermarks.synced.load(Ordering::Acquire));
        let (durable_csn, durable) = core.index.lock().tip();
        let written = core.written().max(durable);
        let groups = core.groups();
        let filled = groups.filled_to(written, &core.ring);
        let marks = Watermarks {
            synced,
            written,
            filled,
            reserved: groups.reserved(&core.ring).max(filled),
            durable,
            durable_csn,
            reserved_csn: groups.next_csn(&core.ring).prev(),
        };
        drop(groups);
        marks.validate();
        marks
    }

    /// The newest commit up to which all survive a power cut.
    pub fn durable_csn(&self) -> Csn {
        self.core.durable_csn()
    }

    /// The newest commit that has a number.
    pub fn reserved_csn(&self) -> Csn {
        self.core.reserved_csn()
    }

    /// The newest commit up to which a flush of the device covered all.
    pub fn synced_csn(&self) -> Csn {
        self.core.synced_csn()
    }

    /// Whether the commit stream is written around the page cache, but for segments that refuse it.
    pub fn is_direct(&self) -> bool {
        self.core.direct
    }

    /// Runs `work` with the newest reserved CSN while no other commit can get a number: for whoever draws a line
    /// between what was numbered before and after. It has to be short and must not call the log.
    pub fn at_reserved<R>(&self, work: impl FnOnce(Csn) -> R) -> R {
        let mut groups = self.core.groups();
        // A closed group is joined by nobody, and opening one needs the lock.
        groups.close_open(&self.core.ring);
        work(groups.next_csn(&self.core.ring).prev())
    }

    /// The smallest number that a segment of the bulk stream can have which takes records from now on.
    pub fn bulk_position(&self) -> u32 {
        match self.core.bulk.append_point() {
            Some((segment, _)) => segment,
            // The next one is a ready segment, or one that is not made yet.
            None => {
                let infos = self.core.store.infos();
                let ready = infos.iter().filter(|info| info.stream.is_none()).map(|info| info.number).min();
                ready.unwrap_or_else(|| infos.iter().map(|info| info.number + 1).max().unwrap_or(0))
            }
        }
    }

    /// Where replay has to start to deliver every frame behind `after`: a group at or before the first of them, or
    /// the end of what is durable.
    ///
    /// # Panics
    /// If `after` lies before what [`Log::drop_before`] or the replay that opened the log left findable (INV-LOG-10):
    /// a later place would lose frames.
    pub fn replay_point(&self, after: Csn) -> Lsn {
        let found = self.core.index.lock().find(after);
        found.unwrap_or_else(|| {
            panic!("INV-LOG-10: the replay point after commit {after} is not known any more")
        })
    }

    /// Drops what is kept in memory only to find frames at or below `csn`.
    pub fn drop_before(&self, csn: Csn) {
        self.core.index.lock().drop_before(csn);
    }

    /// An identity for parts that are written ahead; never given twice.
    pub fn new_spill(&self) -> SpillId {
        let counter = self.core.spills.fetch_add(1, Ordering::Relaxed);
        SpillId { node: self.core.options.node, epoch: self.core.epoch, counter }
    }

    /// The epoch that this opening of the log began.
    pub fn epoch(&self) -> Epoch {
        self.core.epoch
    }

    /// The options it was opened with.
    pub fn options(&self) -> &LogOptions {
        &self.core.options
    }

    /// Every segment on disk, by number.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let mut infos = self.core.store.infos();
        self.core.bulk_fill(&mut infos);
        infos
    }

    /// Decodes the file of a segment, as [`scan_segment`](crate::scan_segment) does.
    ///
    /// # Errors
    /// [`LogError::Io`] if the file cannot be read; whatever is in it is reported in the result.
    pub fn scan_segment(&self, number: u32) -> Result<SegmentScan, LogError> {
        scan_segment_in(self.core.store.dir(), &format::segment_file_name(number))
    }

    /// Frees a segment: the caller has proved that nobody needs it. It is recycled, or deleted.
    ///
    /// # Errors
    /// [`LogError::Usage`] if it does not exist or [`SegmentInfo::open`] is set, [`LogError::Io`].
    pub fn free_segment(&self, number: u32) -> Result<(), LogError> {
        self.core.store.free(number, !self.core.closed.load(Ordering::Acquire))?;
        crate::stats::add(&self.core.stats.segments_freed, 1);
        Ok(())
    }

    /// One round of what the background thread does: flushes what was requested, makes segments ready, writes the
    /// idle mark. True if it did something.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] and [`LogError::Io`] if no segment could be made; [`LogError::Poisoned`].
    pub fn maintain(&self) -> Result<bool, LogError> {
        background::maintain(&self.core)
    }

    /// Keeps as many files for when the disk is full as there should be, of what is free or of freed segments, as far as
    /// that goes. The background does it, too.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`]: there are fewer.
    pub fn fill_reserve(&self) -> Result<(), LogError> {
        let mut maker = self.core.store.maker();
        self.core.check_usable()?;
        while self.core.fill_reserve(&mut maker, self.core.options.reserve_segments)? {}
        Ok(())
    }

    /// Whether a commit, or a replay point in this epoch, would take from the next openings what they need if the disk is
    /// full by then (INV-LOG-18). [`Log::fill_reserve`] changes that where there is room.
    pub fn must_stay_empty(&self) -> bool {
        let store = &self.core.store;
        store.reserve_files() < OPENING_FILES
            && store.first_csn_of_epoch().is_some_and(|first| first > self.core.reserved_csn())
    }

    /// Bytes of the files that are kept for when the disk is full: they are no segments, and a checkpoint may use all but
    /// two.
    pub fn reserve_bytes(&self) -> u64 {
        self.core.store.reserve_bytes()
    }

    /// How many bytes the bulk stream takes before it needs another segment.
    pub fn bulk_room(&self) -> u32 {
        self.core.bulk.room()
    }

    /// What the log has done since it was opened.
    pub fn stats(&self) -> LogStats {
        let mut stats = self.core.stats.read();
        stats.ready_segments = self.core.groups().ready() as u64;
        (stats.segment_bytes, stats.segments) = self.core.store.totals();
        stats
    }

    /// Why the log takes no more, if so.
    pub fn poisoned(&self) -> Option<Arc<PoisonCause>> {
        self.core.poison.cause()
    }

    /// Ends all writing: a commit that is in the log could not be carried out in memory, so that what the process shows
    /// and what the log holds would part.
    pub fn poison(&self, what: &'static str) {
        let _ = self.core.fail(what, None);
    }

    /// Flushes everything that was reserved, ends with a mark, and stops the threads. Later calls get
    /// [`LogError::Closed`]; reading goes on. When it has returned nothing is written any more, also not for those who
    /// were admitted before: a commit that reserves now is never durable, and who waits for it is told.
    ///
    /// # Errors
    /// [`LogError::Poisoned`]: what was not acknowledged may be lost.
    pub fn close(&self) -> Result<(), LogError> {
        self.core.check_process()?;
        if self.core.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let flushed = background::settle(&self.core);
        if flushed.is_ok() {
            // What the next openings begin their epochs in, also if the disk is full by then. They can do without.
            let mut maker = self.core.store.maker();
            let kept = (0..OPENING_FILES)
                .try_for_each(|_| self.core.fill_reserve(&mut maker, OPENING_FILES).map(|_| ()));
            drop(maker);
            if let Err(error) = kept {
                tracing::debug!(%error, "nothing is kept for opening the log on a full disk");
            }
        }
        self.core.closed.store(true, Ordering::Release);
        let flushed = flushed.and_then(|()| self.core.flush_last());
        self.stop();
        // Whoever is writing a segment or bulk records began before the flag was set; who comes now sees it.
        self.core.store.remove_spares();
        self.core.bulk.wait_for_writers();
        flushed
    }

    fn stop(&self) {
        self.core.closed.store(true, Ordering::Release);
        self.core.wake();
        for thread in self.threads.lock().drain(..) {
            thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.core.check_process().is_err() {
            // A child has none of these threads.
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        self.stop();
    }
}
