//! The log's interface: creation, opening, watermarks, segments, the close.

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
/// Dropping it stops its threads and writes nothing more, as a crash would: call [`Log::close`] first.
pub struct Log {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Vec<Box<dyn Joiner>>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({}, epoch {})", self.core.database, self.core.epoch)
    }
}

/// How far the commit stream has come, at one moment. Each LSN is the end of the bytes that it speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Synced to the device.
    pub synced: Lsn,
    /// Written to the segment.
    pub written: Lsn,
    /// Filled, without a gap.
    pub filled: Lsn,
    /// Reserved.
    pub reserved: Lsn,
    /// Durable: survives a power cut.
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
    /// Creates the directory and a log in it ([`Log::create_in`]), all of it durable.
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

    /// Creates a log in a directory: its first segment and epoch 1, all of it durable. The log keeps the directory
    /// open, and works in it wherever it is moved.
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

    /// Opens the directory and the log in it ([`Log::open_in`]).
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

    /// Opens a log after a crash or a clean close: checks it, delivers every frame after `from.csn` to `sink`, makes
    /// the frames found durable, and begins a new epoch. Crashes during it, one or several, lose nothing.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if durable data is missing or changed; then nothing was written.
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

    /// How far the commit stream has come.
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

    /// The newest durable commit: it and all before it survive a power cut.
    pub fn durable_csn(&self) -> Csn {
        self.core.durable_csn()
    }

    /// The newest commit that has a CSN.
    pub fn reserved_csn(&self) -> Csn {
        self.core.reserved_csn()
    }

    /// The newest commit such that a flush of the device covered it and all before it.
    pub fn synced_csn(&self) -> Csn {
        self.core.synced_csn()
    }

    /// Whether the commit stream is written around the page cache, except segments that refuse it.
    pub fn is_direct(&self) -> bool {
        self.core.direct
    }

    /// Runs `work` with the newest reserved CSN, while no commit can get one: for a caller that separates the commits
    /// numbered before from those after. `work` has to be short and must not call the log.
    pub fn at_reserved<R>(&self, work: impl FnOnce(Csn) -> R) -> R {
        let mut groups = self.core.groups();
        // No committer joins a closed group, and opening one needs the lock.
        groups.close_open(&self.core.ring);
        work(groups.next_csn(&self.core.ring).prev())
    }

    /// The smallest number of a segment that can take bulk records from now on.
    pub fn bulk_position(&self) -> u32 {
        match self.core.bulk.append_point() {
            Some((segment, _)) => segment,
            // The next is a ready segment, or one that is not made yet.
            None => {
                let infos = self.core.store.infos();
                let ready = infos.iter().filter(|info| info.stream.is_none()).map(|info| info.number).min();
                ready.unwrap_or_else(|| infos.iter().map(|info| info.number + 1).max().unwrap_or(0))
            }
        }
    }

    /// Where replay has to start to deliver every frame after `after`: the LSN of a group at or before the first of
    /// them, or `durable`.
    ///
    /// # Panics
    /// If `after` is older than the index reaches, which [`Log::drop_before`] and the replay that opened the log
    /// trimmed (INV-LOG-10): a later LSN would lose frames.
    pub fn replay_point(&self, after: Csn) -> Lsn {
        let found = self.core.index.lock().find(after);
        found.unwrap_or_else(|| {
            panic!("INV-LOG-10: the replay point after commit {after} is not known any more")
        })
    }

    /// Drops index entries that serve only to find frames at or below `csn`.
    pub fn drop_before(&self, csn: Csn) {
        self.core.index.lock().drop_before(csn);
    }

    /// An identity for a write-ahead of chunks; never given twice.
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

    /// Decodes a segment's file, as [`scan_segment`](crate::scan_segment) does.
    ///
    /// # Errors
    /// [`LogError::Io`] if the file cannot be read; the result reports what does not decode.
    pub fn scan_segment(&self, number: u32) -> Result<SegmentScan, LogError> {
        scan_segment_in(self.core.store.dir(), &format::segment_file_name(number))
    }

    /// Frees a segment that the caller proved unneeded. Its file is recycled, kept in reserve, or deleted.
    ///
    /// # Errors
    /// [`LogError::Usage`] if it does not exist or [`SegmentInfo::open`] is set, [`LogError::Io`].
    pub fn free_segment(&self, number: u32) -> Result<(), LogError> {
        self.core.store.free(number, !self.core.closed.load(Ordering::Acquire))?;
        crate::stats::add(&self.core.stats.segments_freed, 1);
        Ok(())
    }

    /// One round of the background threads' work: flushes requested commits, makes segments ready, writes a mark group
    /// if the log is idle. Returns whether it did something.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] and [`LogError::Io`] if no segment could be made; [`LogError::Poisoned`].
    pub fn maintain(&self) -> Result<bool, LogError> {
        background::maintain(&self.core)
    }

    /// Fills the reserve for a full disk, from freed segments or free space, as far as there are any. The background
    /// thread does this, too.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`]: the reserve has fewer files than the options ask for.
    pub fn fill_reserve(&self) -> Result<(), LogError> {
        let mut maker = self.core.store.maker();
        self.core.check_usable()?;
        while self.core.fill_reserve(&mut maker, self.core.options.reserve_segments)? {}
        Ok(())
    }

    /// Whether a commit, or a replay point in this epoch, would use up a file that the next openings need on a full
    /// disk (INV-LOG-18). [`Log::fill_reserve`] changes that where there is room.
    pub fn must_stay_empty(&self) -> bool {
        let store = &self.core.store;
        store.reserve_files() < OPENING_FILES
            && store.first_csn_of_epoch().is_some_and(|first| first > self.core.reserved_csn())
    }

    /// The bytes of the reserve for a full disk. Its files are not segments; a checkpoint may use all but two.
    pub fn reserve_bytes(&self) -> u64 {
        self.core.store.reserve_bytes()
    }

    /// How many bytes the bulk stream takes before it needs another segment.
    pub fn bulk_room(&self) -> u32 {
        self.core.bulk.room()
    }

    /// The log's counters since it was opened.
    pub fn stats(&self) -> LogStats {
        let mut stats = self.core.stats.read();
        stats.ready_segments = self.core.groups().ready() as u64;
        (stats.segment_bytes, stats.segments) = self.core.store.totals();
        stats
    }

    /// The cause, if the log is poisoned.
    pub fn poisoned(&self) -> Option<Arc<PoisonCause>> {
        self.core.poison.cause()
    }

    /// Ends all writing: the caller could not apply a commit that is in the log, so memory and log would differ from
    /// then on.
    pub fn poison(&self, what: &'static str) {
        let _ = self.core.fail(what, None);
    }

    /// Flushes everything that is reserved, ends the log with a mark group, and stops the threads. Later calls get
    /// [`LogError::Closed`]; reading still works. Once it returns nothing is written, not even for admissions from
    /// before: a commit that reserves then is never durable, and its waiter gets [`LogError::Closed`].
    ///
    /// # Errors
    /// [`LogError::Poisoned`]: commits that were not acknowledged may be lost.
    pub fn close(&self) -> Result<(), LogError> {
        self.core.check_process()?;
        if self.core.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let flushed = background::settle(&self.core);
        if flushed.is_ok() {
            // Files for the next openings, in case the disk is full by then. Not essential: a failure is only logged.
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
        // A thread that still makes a segment or writes bulk records began before `closed` was set; later ones see it.
        self.core.store.remove_spares();
        self.core.bulk.wait_for_writers();
        // Handles may outlive the log for long; a file that they hold open takes space after its segment was freed.
        self.core.store.close_files();
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
            // A forked child has none of these threads.
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        self.stop();
    }
}
