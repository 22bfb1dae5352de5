//! The log's interface: creation, opening, watermarks, segments, the close.

use crate::bulk_stream::Apart;
use crate::bulk_stream::BulkStream;
use crate::commit_log::CommitLog;
use crate::durability::Durability;
use crate::error::LogError;
use crate::format::{EpochStart, SpillId};
use crate::options::LogOptions;
use crate::recovery::{
    EpochSpan, Need, Opened, RecoveryReport, RecoverySink, ReplayFrom, begin_epoch, prepare, recover,
};
use crate::scan::{SegmentScan, read_segment_in, scan_segment_in};
use crate::segments::{OPENING_FILES, SegmentInfo, Segments, Stream, supply};
use crate::sent_chunks::{ChunkPins, Received};
use crate::shared::Shared;
use crate::stats::{LogStats, add};
use crate::stream::entries::{EntryMatch, EntryPositions, FoundEntries, Role};
use crate::stream::groups::TimeBounds;
use crate::stream::watermarks::Watermarks;
use crate::stream::{Admission, CommitStream, Reservation};
use crate::{format, threads};
use fulgurite_env::{Dir, Env, Joiner};
use fulgurite_types::{Csn, DatabaseId, EntryId, Epoch, Lsn, sync};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A time, told by the segments that could take bulk records from then on: see [`Log::bulk_boundary`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkBoundary {
    /// No segment was made from here on.
    next: u32,
    /// The segments before that were open, or ready.
    can_grow: Vec<u32>,
}

impl BulkBoundary {
    /// The time when no segment was made from `next` on, and those in `can_grow` were open or ready.
    pub fn new(next: u32, can_grow: Vec<u32>) -> BulkBoundary {
        BulkBoundary { next, can_grow }
    }

    /// Whether no record was appended to a segment from that time on.
    pub fn is_after(&self, segment: u32) -> bool {
        segment < self.next && !self.can_grow.contains(&segment)
    }
}

/// A log: the commit stream and the bulk stream of one database.
///
/// Dropping it stops its threads and writes nothing more, as a crash would: call [`Log::close`] first.
pub struct Log {
    pub(crate) stream: Arc<CommitStream>,
    pub(crate) bulk: Arc<BulkStream>,
    /// The append points of records that have segments of their own, by [`Apart`].
    pub(crate) apart: [BulkStream; Apart::COUNT],
    pub(crate) segments: Arc<Segments>,
    pub(crate) shared: Arc<Shared>,
    is_direct: bool,
    /// The epochs from the replay point on.
    pub(crate) spans: Arc<[EpochSpan]>,
    /// How many spill ids were given.
    spills: AtomicU64,
    /// Chunks that came for the next entry.
    pub(crate) received: sync::Mutex<Received>,
    pub(crate) pins: sync::RwLock<Option<Arc<dyn ChunkPins>>>,
    threads: Mutex<Vec<Box<dyn Joiner>>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({}, epoch {})", self.shared.database, self.shared.epoch)
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
            staging: None,
        };
        let staging = prepare(&*env, &options, id, Need::Nothing, None)?;
        let start = EpochStart { staging: staging.as_ref().map(|file| file.header.id), ..start };
        let entries = FoundEntries::default();
        let begun = begin_epoch(dir.clone(), id, &options, 1, Vec::new(), &start, entries)?;
        Log::start(env, id, options, begun.into_opened(Vec::new(), None, staging))
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
        let (opened, report) = recover(&*env, dir, id, &options, from, sink)?;
        Ok((Log::start(env, id, options, opened)?, report))
    }

    /// Makes the owners of what recovery opened, and starts the threads.
    fn start(
        env: Arc<dyn Env>,
        database: DatabaseId,
        mut options: LogOptions,
        opened: Opened,
    ) -> Result<Arc<Log>, LogError> {
        let Opened { segments, at, spans, index, entries, staging, staged_tail } = opened;
        let takes_direct = || segments.file(&at.segment)?.takes_direct_writes();
        let is_direct = options.writes_directly()
            && takes_direct()
                .map_err(|source| LogError::io("prepare writing to", &at.segment.path, source))?;
        // A power-safe cache protects only bytes in it, and buffered writes are not.
        options.power_safe_cache &= is_direct;
        let shared = Arc::new(Shared::new(env, database, at.epoch, options));
        let segments = Arc::new(segments);
        let bulk = Arc::new(BulkStream::new(Arc::clone(&shared), Arc::clone(&segments)));
        let apart = [(); Apart::COUNT].map(|()| BulkStream::new(Arc::clone(&shared), Arc::clone(&segments)));
        let stream = Arc::new(CommitStream::new(
            Arc::clone(&shared),
            Arc::clone(&segments),
            Arc::clone(&bulk),
            at,
            (index, entries),
            (staging, staged_tail),
            is_direct,
        ));
        let threads = Mutex::new(threads::start(&stream)?);
        let spills = AtomicU64::new(0);
        let spans = spans.into();
        let (received, pins) = (sync::Mutex::default(), sync::RwLock::default());
        Ok(Arc::new(Log {
            stream,
            bulk,
            apart,
            segments,
            shared,
            is_direct,
            spans,
            spills,
            received,
            pins,
            threads,
        }))
    }

    // Entries of a replicated log.

    /// What this node does with entries; `None` if the log is not replicated.
    pub fn role(&self) -> Option<Role> {
        self.stream.role()
    }

    /// How far the entries have come; `None` if the log is not replicated.
    pub fn entry_positions(&self) -> Option<EntryPositions> {
        self.stream.positions()
    }

    /// The entry of an index, if it is after the agreed one and at or before the last: those before are the same on every node.
    pub fn pending_entry(&self, index: u64) -> Option<EntryId> {
        self.stream.replicated().ok()?.pending(index)
    }

    /// What this log has in the place of an entry of another node's log.
    ///
    /// # Errors
    /// [`LogError::Usage`] if the log is not replicated.
    pub fn match_entry(&self, id: EntryId) -> Result<EntryMatch, LogError> {
        Ok(self.stream.replicated()?.match_entry(id))
    }

    /// The last commit at or before the entry of an index, if that is at or after the agreed one; else an older commit.
    pub fn entry_csn(&self, index: u64) -> Csn {
        self.stream.replicated().map_or(Csn::ZERO, |entries| entries.csn_at(index))
    }

    /// Writes that all is agreed which is, unless a durable group says it: after a crash recovery delivers it. Nothing in a log that is not replicated.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`], [`LogError::Poisoned`], [`LogError::Closed`].
    pub fn mark_agreed(&self) -> Result<(), LogError> {
        self.stream.mark_agreed()
    }

    /// Sets a callback for when an entry has got its number, has become durable here, or is agreed. It must not block, and must not wait for
    /// durability, nor call [`Log::raise_agreed`]: the caller may be a thread that flushes.
    ///
    /// # Errors
    /// [`LogError::Usage`] if the log is not replicated.
    pub fn set_entry_observer(
        &self,
        observer: Box<dyn Fn(EntryPositions) + Send + Sync>,
    ) -> Result<(), LogError> {
        self.stream.set_entry_observer(Arc::from(observer))
    }

    /// Begins to lead in `term`: commits are taken from now on, and numbered. The first entry is a blank one, which [`Log::flush_entries`] or
    /// the first commit writes. The caller has durably noted the term, and knows that this log has every entry that may be agreed.
    ///
    /// # Errors
    /// [`LogError::Usage`] if it is no follower, or its last entry is of this term or a later one; those of [`CommitLog::admit`].
    pub fn lead(&self, term: u64) -> Result<(), LogError> {
        self.stream.lead(term)?;
        self.give_up_received();
        Ok(())
    }

    /// Ends numbering for good: no commit is taken, and those without a number fail with [`LogError::NotLeader`]. Those with a number
    /// are written, and may still be agreed. Returns the last entry that has a number.
    ///
    /// # Errors
    /// [`LogError::Usage`] if the log is not replicated.
    pub fn fence(&self) -> Result<EntryId, LogError> {
        self.stream.fence()
    }

    /// Appends an entry that names the members of the cluster, as bytes that the log does not interpret.
    ///
    /// # Errors
    /// [`LogError::NotLeader`]; those of [`CommitLog::admit`].
    pub fn propose_members(&self, members: &[u8]) -> Result<(), LogError> {
        self.stream.propose_members(members)
    }

    /// Writes all that is appended, and returns when it is durable here.
    ///
    /// # Errors
    /// [`LogError::NotLeader`] if commits have no number and get none, [`LogError::Poisoned`], [`LogError::Closed`].
    pub fn flush_entries(&self) -> Result<(), LogError> {
        self.stream.flush_entries()
    }

    /// Tells the log that a quorum has entry `id` durably, and with it all before. True if `agreed` rose: not if this log does not have that
    /// entry, nor on a leader if the entry is of an older term.
    ///
    /// # Errors
    /// [`LogError::Usage`] if the log is not replicated.
    pub fn raise_agreed(&self, id: EntryId) -> Result<bool, LogError> {
        self.stream.raise_agreed(id)
    }

    /// Reserves as [`CommitLog::reserve_at`] does, at any time.
    pub fn reserve(&self, admission: Admission, level: Durability) -> Reservation {
        self.reserve_at(admission, level, TimeBounds::ANY).expect("any time will do")
    }

    // How far it has come.

    /// How far the commit stream has come.
    pub fn watermarks(&self) -> Watermarks {
        self.stream.watermarks()
    }

    /// The newest commit that has a CSN.
    pub fn reserved_csn(&self) -> Csn {
        self.stream.reserved_csn()
    }

    /// Whether the commit stream is written around the page cache, except segments that refuse it.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Runs `work` with the newest reserved CSN, while no commit can get one: for a caller that separates the commits
    /// numbered before from those after. `work` has to be short and must not call the log.
    pub fn at_reserved<R>(&self, work: impl FnOnce(Csn) -> R) -> R {
        self.stream.at_reserved(work)
    }

    /// Tells the segments that can take bulk records from now on from those that cannot. Waits for no write and no sync.
    pub fn bulk_boundary(&self) -> BulkBoundary {
        let infos = self.segments.infos();
        // Numbers rise, but a segment may be handed out after one that was made later.
        let next = infos.iter().map(|info| info.number + 1).max().unwrap_or(0);
        let can_grow = infos.iter().filter(|info| info.open || info.stream.is_none());
        BulkBoundary { next, can_grow: can_grow.map(|info| info.number).collect() }
    }

    /// Where replay has to start to deliver every frame after `after`: the LSN of a group at or before the first of
    /// them, or `durable`.
    ///
    /// # Panics
    /// If `after` is older than the index reaches, which [`Log::drop_before`] and the replay that opened the log
    /// trimmed (INV-LOG-10): a later LSN would lose frames.
    pub fn replay_point(&self, after: Csn) -> Lsn {
        let progress = &self.stream.progress;
        let found = match self.role().is_some() {
            true => progress.find_replicated(after),
            false => progress.find(after).ok(),
        };
        found.unwrap_or_else(|| {
            panic!("INV-LOG-10: the replay point after commit {after} is not known any more")
        })
    }

    /// A commit after which the stream has about so many bytes; the oldest one after which [`Log::reader`] finds all, if those are fewer.
    pub fn csn_before(&self, bytes: u64) -> Csn {
        self.stream.progress.csn_before(bytes)
    }

    /// The oldest commit after which [`Log::reader`] finds all.
    pub fn oldest_csn(&self) -> Csn {
        self.stream.progress.oldest()
    }

    /// Drops index entries that serve only to find frames at or below `csn`.
    pub fn drop_before(&self, csn: Csn) {
        // The index keeps what `replay_point` of the same commit finds.
        match self.role().is_some() {
            true if csn == Csn::ZERO => {}
            true => self.stream.progress.drop_before(csn.prev()),
            false => self.stream.progress.drop_before(csn),
        }
    }

    /// An identity for a write-ahead of chunks; never given twice.
    pub fn new_spill(&self) -> SpillId {
        let counter = self.spills.fetch_add(1, Ordering::Relaxed);
        SpillId { node: self.shared.options.node, epoch: self.shared.epoch, counter }
    }

    /// The database that the log is of.
    pub fn database(&self) -> DatabaseId {
        self.shared.database
    }

    /// The epoch that this opening of the log began.
    pub fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    /// The options it was opened with.
    pub fn options(&self) -> &LogOptions {
        &self.shared.options
    }

    /// Every segment on disk, by number, as [`Log::segments`] has them, but without the bytes of the bulk stream's open
    /// segment that are not written yet. Waits for no write and no sync.
    pub fn written_segments(&self) -> Vec<SegmentInfo> {
        self.segments.infos()
    }

    /// Every segment on disk, by number.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let mut infos = self.segments.infos();
        for open in self.bulk_streams().filter_map(BulkStream::append_point) {
            if let Some(info) = infos.iter_mut().find(|info| info.number == open.segment()) {
                info.used_bytes = open.offset();
            }
        }
        infos
    }

    /// Decodes a segment's file, as [`scan_segment`](crate::scan_segment) does.
    ///
    /// # Errors
    /// [`LogError::Io`] if the file cannot be read; the result reports what does not decode.
    pub fn scan_segment(&self, number: u32) -> Result<SegmentScan, LogError> {
        scan_segment_in(self.segments.dir(), &format::segment_file_name(number))
    }

    /// Reads a segment's file into a buffer, whose former bytes are lost, for [`visit_segment`](crate::visit_segment).
    ///
    /// # Errors
    /// [`LogError::Io`] if the file cannot be read.
    pub fn read_segment(&self, number: u32, bytes: &mut Vec<u8>) -> Result<(), LogError> {
        read_segment_in(self.segments.dir(), &format::segment_file_name(number), bytes)
    }

    /// Frees a segment that the caller proved unneeded. Its file is recycled, kept in reserve, or deleted.
    ///
    /// # Errors
    /// [`LogError::Usage`] if it does not exist or [`SegmentInfo::open`] is set, [`LogError::Io`].
    pub fn free_segment(&self, number: u32) -> Result<(), LogError> {
        self.segments.free(number, !self.shared.is_closed())?;
        add(&self.shared.stats.segments_freed, 1);
        Ok(())
    }

    /// The segments made from now on have at most `bytes`, rounded down to one of the sizes, unless a record needs a longer
    /// one. Without a bound their number and the free space alone decide.
    pub fn bound_segments(&self, bytes: u64) {
        self.segments.set_bound(bytes);
    }

    /// One round of the background threads' work: flushes requested commits, makes segments ready, writes a mark group
    /// if the log is idle. Returns whether it did something.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] and [`LogError::Io`] if no segment could be made; [`LogError::Poisoned`].
    pub fn maintain(&self) -> Result<bool, LogError> {
        let served = self.stream.serve()? | self.stream.drain(true)?;
        Ok(supply::supply(&self.stream)? || served)
    }

    /// Fills the reserve for a full disk, from freed segments or free space, as far as there are any. The background
    /// thread does this, too.
    ///
    /// # Errors
    /// [`LogError::NoSpace`], [`LogError::Io`]: the reserve has fewer files than the options ask for.
    pub fn fill_reserve(&self) -> Result<(), LogError> {
        self.segments.keep_all(&self.shared)
    }

    /// Whether a commit, or a replay point in this epoch, would use up a file that the next openings need on a full
    /// disk (INV-LOG-18). [`Log::fill_reserve`] changes that where there is room.
    pub fn must_stay_empty(&self) -> bool {
        self.segments.reserve_files() < OPENING_FILES
            && self.segments.first_csn_of_epoch().is_some_and(|first| first > self.reserved_csn())
    }

    /// The bytes of the reserve for a full disk. Its files are not segments; a checkpoint may use all but two.
    pub fn reserve_bytes(&self) -> u64 {
        self.segments.reserve_bytes()
    }

    /// The bytes of the staging file, and whether they survive a power cut; `None` without staging.
    pub fn staging(&self) -> Option<(u64, bool)> {
        self.stream.staging().map(|staging| (staging.file_bytes(), staging.is_persistent()))
    }

    /// After the close, or a failed one: gives up the staging file. `is_noted`: the close is on record where [`ReplayFrom::closed_at`] is
    /// kept, so any opening of the database may take the file.
    ///
    /// # Errors
    /// [`LogError::Io`]: the next opening has to be given this file, or another.
    pub fn release_staging(&self, is_noted: bool) -> Result<(), LogError> {
        self.shared.check_process()?;
        self.stream.release_staging(is_noted)
    }

    /// In a child of the process that opened the log: closes its part of what locks the staging file.
    pub fn leave_to_the_parent(&self) {
        if let Some(staging) = self.stream.staging() {
            staging.end();
        }
    }

    /// How many bytes the bulk stream takes before it needs another segment.
    pub fn bulk_room(&self) -> u32 {
        self.bulk.room()
    }

    /// The log's counters since it was opened.
    pub fn stats(&self) -> LogStats {
        let mut stats = self.shared.stats.read();
        stats.staged_bytes = self.stream.staged_bytes();
        stats.ready_segments = self.stream.ready_segments() as u64;
        (stats.segment_bytes, stats.segments) = self.segments.totals();
        stats
    }

    /// [`LogStats::written_bytes`] alone: one load.
    #[inline]
    pub fn written_bytes(&self) -> u64 {
        self.shared.stats.written_bytes.load(Ordering::Relaxed)
    }

    /// [`LogStats::chunk_bytes`] alone.
    pub fn chunk_bytes(&self) -> u64 {
        self.shared.stats.chunk_bytes.load(Ordering::Relaxed)
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Flushes everything that is reserved, ends the log with a mark group, and stops the threads. Later calls get
    /// [`LogError::Closed`]; reading still works. Once it returns nothing is written, not even for admissions from
    /// before: a commit that reserves then is never durable, and its waiter gets [`LogError::Closed`].
    ///
    /// # Errors
    /// [`LogError::Poisoned`]: commits that were not acknowledged may be lost.
    pub fn close(&self) -> Result<(), LogError> {
        self.shared.check_process()?;
        if self.shared.is_closed() {
            return Ok(());
        }
        let flushed = self.stream.flush_all();
        if flushed.is_ok() {
            // Files for the next openings, in case the disk is full by then. Not essential: a failure is only logged.
            let mut maker = self.segments.maker();
            let kept = (0..OPENING_FILES).try_for_each(|_| {
                self.segments.keep_files(&mut maker, OPENING_FILES, &self.shared).map(|_| ())
            });
            drop(maker);
            if let Err(error) = kept {
                tracing::debug!(%error, "nothing is kept for opening the log on a full disk");
            }
        }
        self.shared.set_closed();
        self.shared.agreement.wake_all();
        // What has no number is left: it did not happen.
        let flushed = flushed.and_then(|()| self.stream.flush_last());
        self.stop();
        // A thread that still makes a segment or writes bulk records began before `closed` was set; later ones see it.
        self.segments.remove_spares();
        self.bulk_streams().for_each(BulkStream::wait_for_writers);
        // Handles may outlive the log for long; a file that they hold open takes space after its segment was freed.
        self.segments.close_files();
        flushed
    }

    fn stop(&self) {
        self.shared.set_closed();
        self.shared.wake_threads();
        for thread in self.threads.lock().drain(..) {
            thread.join();
        }
    }

    // Reading.

    /// Reads `len` bytes at `lsn` of either stream, unverified: the caller stored a checksum with the LSN.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if there is no such segment, [`LogError::Usage`] if it is shorter, [`LogError::Io`].
    pub fn read_bytes(&self, lsn: Lsn, len: u32) -> Result<Vec<u8>, LogError> {
        let segment = self.segments.segment_of(lsn)?;
        if len > segment.room(lsn.offset()) {
            return Err(LogError::Usage(format!("{len} bytes at {lsn} would cross the end of the segment")));
        }
        if segment.stream() != Some(Stream::Bulk) {
            return self.stream.read(&segment, lsn.offset(), len);
        }
        match self.read_bulk_buffer(&segment, lsn, len) {
            Some(bytes) => Ok(bytes),
            None => self.segments.read(&segment, lsn.offset(), len),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            // A forked child has none of these threads.
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        self.stop();
    }
}
