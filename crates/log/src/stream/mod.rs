//! The commit stream: the path of a frame from its admission until it is durable.
//!
//! ```text
//! admit     take credit: room in the segments, and group slots with their buffers. If room is missing, make a segment;
//!           if slots are missing, cause a flush. Before step `wait`, a commit waits for I/O only here
//! reserve   join the open group with one compare-exchange, which gives CSN, range and time together; else open a group
//! fill      copy the frame into the range, in parallel with other committers; then count the range as filled
//! wait      lead, or wait for the leader. The leader
//!   take      closes the open group, and takes the filled groups at the front
//!   chunks    syncs the bulk stream as far as the frames of these groups require
//!   stamp     numbers them, if the log is replicated ([`entries`]), and stamps their headers
//!   write     writes the groups of a segment with one call, with a flush of the device unless
//!             its cache is asserted to survive a power cut and each group can do without (`NoBarrier`)
//!   raise     raises `written` and `durable`, tells the observer, raises `synced` if the device was flushed; then
//!             continues with `write` if there are groups in the next segment. With staging, the three steps are a copy
//!             to memory that survives ([`crate::staging`])
//!   release   gives group slots and buffers back to admission
//!   hand over clears `is_led`; wakes the next leader, then the waiters that the writes covered; calls the completer
//! ```
//!
//! [`CommitStream`] is that path. It calls the owners of its state, and none of these knows another. A scheme calls
//! back: the leader through [`FlushTarget`], the compared ones directly.
//!
//! - [`Groups`]: the groups in memory, from admission until they are released;
//! - [`GroupWriter`]: the file, and the block in which the last write ended;
//! - [`Progress`]: the watermarks, and the index from CSNs to LSNs;
//! - [`Leader`]: which thread writes, and when the others sleep ([`parking`] is where);
//! - [`Requests`]: what the log thread has to flush.
//!
//! # Lock order
//! Where two locks are needed at once, and why; a thread takes them in this order.
//!
//! 0. the line of admission (`groups/credit.rs`): the first in line makes segments and causes flushes until it has its
//!    credit. Leadership comes next: it is a flag, not a lock, and its holder takes the writer;
//!    With staging, a leader holds the right to append to its buffers while it does all that is said of the writer, and takes the
//!    writer only if all buffers are full;
//! 1. the writer: one thread writes at a time. A leader holds it while it takes groups, writes them, raises the
//!    watermarks, tells the observer and releases the groups; a thread that drains staging buffers while it does that;
//! 2. the sync lock of a scheme that syncs apart from writing ([`compared`]): the end of a left segment is written and
//!    synced under both;
//! 3. the locks of the bulk stream: a leader syncs the chunks that frames name;
//! 4. the segment maker ([`Segments::maker`]): the bulk stream takes it to continue in another segment;
//!    The state of the entries of a replicated log comes before it: numbers are given, entries appended and agreement is raised under that.
//!    It is taken under the writer, and by threads that hold none of the log's locks; then no caller's lock that the work below takes;
//! 5. the queue of the groups: a new segment is made and added to them under the maker, so that segments get ready in
//!    the order of their numbers (`new_segments.rs`). [`CommitStream::at_reserved`] runs the caller's work under it,
//!    because no commit may get a CSN meanwhile. That work takes locks of the caller's, and none of the log;
//! 6. the written groups, then the index: groups enter it as they become durable;
//! 7. the open files of sealed segments, the table of segments, the file of a segment; the staged pieces.
//!
//! The observer runs under the writer, the right to append to staging buffers, or the sync lock. The completer runs under neither, and outside
//! leadership. But a thread that is first in line for admission may call it: so a committer that runs users' code there
//! must put that off until it is admitted.
//!
//! # Why nothing simpler
//! A lock around the reservation would be taken by every commit, and held by a thread that the system may suspend.
//! Without groups each frame would pay a header, a checksum and a system call of its own. Without credit a commit could
//! have a CSN and no room, and later commits would wait for it while it waits for them.

pub(crate) mod append_entries;
pub(crate) mod compared;
pub(crate) mod entries;
pub(crate) mod flusher;
pub(crate) mod groups;
pub(crate) mod leader;
mod new_segments;
pub(crate) mod parking;
mod requests;
mod reservation;
pub(crate) mod stage;
mod stamp;
pub(crate) mod watermarks;
mod writer;

pub use self::reservation::{Admission, Numbers, Reservation};

use self::compared::Buffered;
use self::entries::{Entries, FoundEntries};
use self::groups::{AppendPoint, First, Group, Groups, InMemory, Missing, ReservedRange, TimeBounds};
use self::leader::{FlushTarget, Leader};
use self::requests::Requests;
use self::stamp::Known;
use self::watermarks::{Progress, ReplayIndex, Watermarks};
use self::writer::{Flush, GroupWriter};
use crate::bulk_stream::BulkStream;
use crate::durability::{Durability, FlushScheme};
use crate::error::LogError;
use crate::format::{Agreed, ChunkRef, FRAME_HEADER_BYTES, FrameHeader, GroupKind, encode_local_record};
use crate::room::Refusal;
use crate::segments::{Segment, Segments};
use crate::shared::Shared;
use crate::staging::{StagedTail, Staging, StagingFile};
use crate::stats::add;
use crossbeam_utils::CachePadded;
use fulgurite_types::sync::{Mutex, yield_now};
use fulgurite_types::{Csn, Lsn};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct CommitStream {
    pub shared: Arc<Shared>,
    pub segments: Arc<Segments>,
    pub progress: Progress,
    bulk: Arc<BulkStream>,
    groups: Groups,
    /// Of a log that is replicated.
    entries: Option<Entries>,
    scheme: Scheme,
    writer: Mutex<GroupWriter>,
    staging: Option<Staging>,
    /// The staged commits and in no segment, of a log that was opened read-only.
    staged_tail: Option<StagedTail>,
    /// Deferred commits write it; the fields beside it are read by every commit.
    requests: CachePadded<Requests>,
    /// Whether the disk had no room for the last segment.
    pub refusal: Refusal,
    frame_bytes_max: u32,
    local_bytes_max: u32,
}

/// How waiting commits share writes and flushes.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one in a log, and the leader is read without another pointer"
)]
enum Scheme {
    Combined(Leader),
    Compared(Buffered),
}

impl CommitStream {
    /// `direct`: whether it is written around the page cache, except segments that refuse it.
    pub fn new(
        shared: Arc<Shared>,
        segments: Arc<Segments>,
        bulk: Arc<BulkStream>,
        at: AppendPoint,
        recovered: (ReplayIndex, FoundEntries),
        staged: (Option<StagingFile>, Option<StagedTail>),
        direct: bool,
    ) -> CommitStream {
        let (staging_file, staged_tail) = staged;
        let (index, found) = recovered;
        let staging = staging_file.map(|file| Staging::new(file, index.tip().lsn));
        let tip = index.tip();
        let agreed = found.agreed;
        let is_replicated = shared.options.replicated || found.last.index > 0;
        let entries = is_replicated.then(|| Entries::new(found, tip.csn.min(agreed.csn), tip));
        CommitStream {
            staging,
            staged_tail,
            entries,
            progress: Progress::new(index, agreed),
            groups: Groups::new(Arc::clone(&shared), at),
            scheme: match shared.options.scheme {
                FlushScheme::Combined => Scheme::Combined(Leader::new(Arc::clone(&shared))),
                FlushScheme::OwnLsn => Scheme::Compared(Buffered::own_lsn()),
                FlushScheme::Aggregated => Scheme::Compared(Buffered::aggregated()),
            },
            writer: Mutex::new(GroupWriter::new(Arc::clone(&shared), Arc::clone(&segments), direct)),
            requests: CachePadded::default(),
            refusal: Refusal::default(),
            frame_bytes_max: shared.options.frame_bytes_max(),
            local_bytes_max: shared.options.local_bytes_max(),
            shared,
            segments,
            bulk,
        }
    }

    // Admit.

    pub fn admit(self: &Arc<Self>, frame_bytes: u32, local_bytes: u32) -> Result<Admission, LogError> {
        self.check_may_commit()?;
        self.admit_any(frame_bytes, local_bytes)
    }

    /// Fails if another node commits.
    fn check_may_commit(&self) -> Result<(), LogError> {
        match &self.entries {
            Some(entries) if !entries.leads() => Err(LogError::NotLeader),
            _ => Ok(()),
        }
    }

    /// Admits whatever is appended, by whichever node it was committed.
    fn admit_any(self: &Arc<Self>, frame_bytes: u32, local_bytes: u32) -> Result<Admission, LogError> {
        let mut first = None;
        loop {
            match self.admit_once(frame_bytes, local_bytes, first.as_ref())? {
                Ok(admission) => return Ok(admission),
                Err(Missing::Room(charge)) => {
                    add(&self.shared.stats.segment_waits, 1);
                    self.make_room(charge)?;
                }
                Err(Missing::Slots { is_long }) if first.is_none() && self.groups.has_to_line_up(is_long) => {
                    first = Some(self.groups.line_up(is_long))
                }
                Err(Missing::Slots { .. }) => {
                    add(&self.shared.stats.credit_waits, 1);
                    self.flush_for_credit()?;
                }
            }
        }
    }

    pub fn try_admit(
        self: &Arc<Self>,
        frame_bytes: u32,
        local_bytes: u32,
    ) -> Result<Option<Admission>, LogError> {
        self.check_may_commit()?;
        let admitted = self.admit_once(frame_bytes, local_bytes, None)?;
        if admitted.is_err() {
            self.shared.wake_threads();
        }
        Ok(admitted.ok())
    }

    fn admit_once(
        self: &Arc<Self>,
        frame_bytes: u32,
        local_bytes: u32,
        first: Option<&First<'_>>,
    ) -> Result<Result<Admission, Missing>, LogError> {
        check_size("a frame", frame_bytes, self.frame_bytes_max)?;
        check_size("a local record", local_bytes, self.local_bytes_max)?;
        self.shared.check_usable()?;
        let admitted = self.groups.admit(frame_bytes + local_bytes, first);
        Ok(admitted.map(|admitted| Admission {
            stream: Some(Arc::clone(self)),
            frame_bytes,
            local_bytes,
            admitted,
        }))
    }

    /// Flushes, or waits for the thread that does, so that buffers come back. It must not wait for the log thread
    /// alone: that may be in a user's callback, which may wait for this thread, or be this thread.
    fn flush_for_credit(&self) -> Result<(), LogError> {
        if !self.flush(false)? {
            yield_now();
        }
        self.shared.check_usable()
    }

    // Reserve.

    #[inline]
    pub fn reserve_at(
        &self,
        mut admission: Admission,
        level: Durability,
        time: TimeBounds,
    ) -> Option<Reservation> {
        let Admission { frame_bytes, local_bytes, .. } = admission;
        let bytes = frame_bytes + local_bytes;
        // A barrier is a flush of the device's cache. Only `NoBarrier` does without: a commit at a level that does not
        // wait is flushed later, and then with one.
        let barrier = level != Durability::NoBarrier;
        let joined = self.groups.reserve(&mut admission.admitted, bytes, barrier, time)?;
        let stream = admission.stream.take().expect("an admission is used once");
        add(&self.shared.stats.commits, 1);
        if !level.waits() {
            // Perhaps no committer asks for a flush. The log thread has to look again, to flush once the log is idle.
            self.shared.flusher.wake_resting();
        }
        // SAFETY: the range was just given to this caller, and its drop counts it as filled.
        let range = unsafe { ReservedRange::new(joined.memory, joined.slot, bytes) };
        let body_lsn = joined.lsn.advance(local_bytes + FRAME_HEADER_BYTES);
        let numbers = Numbers { csn: joined.csn, body_lsn, time_ms: joined.time_ms };
        Some(Reservation { stream, range, numbers, frame_bytes })
    }

    /// Runs `work` with the newest reserved CSN, while no commit can get one.
    pub fn at_reserved<R>(&self, work: impl FnOnce(Csn) -> R) -> R {
        self.groups.at_reserved(work)
    }

    /// The newest commit that has a CSN.
    pub fn reserved_csn(&self) -> Csn {
        self.groups.reserved_csn()
    }

    /// The newest commit that a flush can make durable.
    fn flushable_csn(&self) -> Csn {
        let deposed = self.entries.as_ref().and_then(Entries::last_csn_of_deposed);
        deposed.unwrap_or_else(|| self.reserved_csn())
    }

    // Fill.

    #[inline]
    pub fn fill(mut reservation: Reservation, header: &FrameHeader, body: &[u8], local: &[ChunkRef]) {
        let frame_bytes = u64::from(reservation.frame_bytes);
        let is_admitted = body.len() as u64 + u64::from(FRAME_HEADER_BYTES) == frame_bytes
            && header.body_bytes as usize == body.len();
        assert!(is_admitted, "INV-LOG-3: a frame has the size that was admitted");
        assert_eq!(header.csn, reservation.numbers.csn, "a frame has the CSN that was reserved");
        let range = &mut reservation.range;
        if !local.is_empty() {
            encode_local_record(local, range);
        }
        assert_eq!(
            range.remaining(),
            reservation.frame_bytes,
            "INV-LOG-3: a local record has the size that was admitted"
        );
        range.put(&header.encode());
        range.put(body);
    }

    // Wait.

    /// Returns when `csn` is durable on this node.
    pub fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        if self.durable_csn() >= csn {
            return Ok(());
        }
        self.shared.poison.check()?;
        match &self.scheme {
            Scheme::Combined(leader) => leader.wait(self, csn)?,
            Scheme::Compared(scheme) => scheme.wait(self, csn)?,
        }
        // What was staged in volatile memory.
        self.wait_for_drain(csn, || self.durable_csn())
    }

    /// Stages `csn`, unless that may wait for the disk. False if it is not staged.
    pub fn try_stage(&self, csn: Csn) -> Result<bool, LogError> {
        let Some(staging) = &self.staging else { return Ok(csn <= self.durable_csn()) };
        if csn > self.flushed() {
            if !staging.is_roomy() || self.bulk.needs_sync() {
                return Ok(false);
            }
            self.wait_staged(csn)?;
        }
        Ok(true)
    }

    /// Returns when `csn` is staged: it survives the process, and a power cut if the memory does. Without staging, when it is durable.
    pub fn wait_staged(&self, csn: Csn) -> Result<(), LogError> {
        match &self.scheme {
            Scheme::Combined(leader) if self.staging.is_some() => {
                if self.flushed() >= csn {
                    return Ok(());
                }
                self.shared.poison.check()?;
                leader.wait(self, csn)
            }
            _ => self.wait_durable(csn),
        }
    }

    /// Returns when a flush of the device covered `csn`.
    pub fn wait_synced(&self, csn: Csn) -> Result<(), LogError> {
        if self.staging.is_some() {
            self.wait_staged(csn)?;
            return self.wait_for_drain(csn, || self.progress.synced_csn());
        }
        while self.progress.synced_csn() < csn {
            self.shared.poison.check()?;
            let flushed = match self.flush(true) {
                // What has a number was synced.
                Err(LogError::NotLeader) if self.progress.synced_csn() >= csn => true,
                flushed => flushed?,
            };
            if !flushed && self.progress.synced_csn() < csn {
                self.groups.check_reserved(csn)?;
                yield_now();
            }
        }
        Ok(())
    }

    /// Writes and flushes the filled groups, or waits for the thread that does. With `barrier` the device is flushed,
    /// whatever the groups' levels: by this flush, or by the next one if another thread leads. False if there was
    /// nothing to do.
    fn flush(&self, barrier: bool) -> Result<bool, LogError> {
        match &self.scheme {
            Scheme::Combined(leader) => leader.flush(self, barrier),
            Scheme::Compared(scheme) => scheme.flush(self),
        }
    }

    /// Flushes all that may be written: not commits without a number, in a replicated log. False if there was nothing to do.
    fn flush_numbered(&self, barrier: bool) -> Result<bool, LogError> {
        match self.flush(barrier) {
            Err(LogError::NotLeader) => Ok(false),
            flushed => flushed,
        }
    }

    /// Leads one flush of the filled groups, unless another thread leads. The research schemes elect no leader without a wait: there
    /// it does nothing.
    pub fn try_flush(&self) -> Result<bool, LogError> {
        self.shared.check_usable()?;
        match &self.scheme {
            Scheme::Combined(leader) => {
                let flushed = match leader.try_flush(self) {
                    Err(LogError::NotLeader) => false,
                    flushed => flushed?,
                };
                Ok(flushed | self.try_drain()?)
            }
            Scheme::Compared(_) => Ok(false),
        }
    }

    /// Flushes everything that is reserved, then ends all writing.
    pub fn flush_last(&self) -> Result<(), LogError> {
        while self.flush_numbered(true)? {}
        if let Some(staging) = &self.staging {
            self.end_staging(staging)?;
            self.shared.wake_sleepers();
            return Ok(());
        }
        // A thread writes only under this lock. Once this thread has it, no other writes, and the next to take it reads
        // `ended`.
        let writer = self.writer.lock();
        self.shared.set_ended();
        drop(writer);
        self.shared.wake_sleepers();
        Ok(())
    }

    pub fn request_durable(&self, csn: Csn) {
        if self.requests.request(csn) {
            self.shared.flusher.wake_asleep();
        }
    }

    pub fn request_durable_within(&self, csn: Csn, interval: Duration) {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let due_ns = self.shared.now_ns().saturating_add(interval).max(1);
        if self.requests.request_at(csn, due_ns) {
            self.shared.flusher.wake_asleep();
        }
    }

    /// Records groups that were just written, with what their headers say.
    fn raise_written(&self, run: &[Group], known: Known) {
        self.progress.raise_written(run, known);
        let marks = run.iter().filter(|group| group.kind == GroupKind::Mark).count();
        add(&self.shared.stats.groups, run.len() as u64);
        add(&self.shared.stats.marks, marks as u64);
    }

    /// Declares the written groups durable, up to group `up_to`, and calls the observer. One caller at a time: the
    /// leader, or the holder of the sync lock. It knows that the groups were flushed, or need not be (INV-LOG-1).
    fn raise_durable(&self, up_to: u64) {
        let Some(risen) = self.progress.raise_durable(up_to) else { return };
        if risen.has_new_segment {
            self.shared.supplier.wake_asleep();
        }
        // The newest durable mark is below the durable CSN now: a mark group is due once the log is idle.
        self.shared.flusher.wake_resting();
        match &self.entries {
            None if risen.csn > risen.before => self.shared.announce(risen.csn),
            None => {}
            Some(entries) => {
                if risen.has_entries {
                    self.tell_positions(entries);
                }
                self.announce_stable(entries);
            }
        }
    }

    /// Takes the filled groups, numbers them if the log is replicated, and stamps them. Returns them with what their headers say.
    fn take_stamped(&self) -> Result<(Vec<Group>, Known), LogError> {
        let mut groups = self.groups.take_filled()?;
        self.bulk.sync_required()?;
        let mut known = Known { durable: self.durable_csn(), agreed: Agreed::default() };
        if let Some(entries) = &self.entries {
            let (count, agreed) = entries.number(&mut groups);
            if count < groups.len() {
                self.groups.untake(count);
                groups.truncate(count);
                if groups.is_empty() {
                    return Err(LogError::NotLeader);
                }
            }
            known.agreed = agreed;
        }
        groups.iter().for_each(|group| stamp::stamp(&self.shared, group, known));
        if let (Some(entries), Some(last)) = (&self.entries, groups.last()) {
            self.groups.set_stamped();
            entries.raise_stamped(last.end());
            self.tell_positions(entries);
        }
        Ok((groups, known))
    }

    /// Appends a mark group, if admission need not wait and no other group is to be written.
    fn append_mark(self: &Arc<Self>) -> Result<bool, LogError> {
        let Ok(mut admission) = self.admit_once(0, 0, None)? else {
            return Ok(false);
        };
        let is_appended = self.groups.append_mark(&admission.admitted);
        if is_appended {
            admission.stream = None;
        }
        Ok(is_appended)
    }

    // Reading.

    /// The newest commit that is durable on this node.
    pub fn durable_csn(&self) -> Csn {
        self.progress.durable_csn()
    }

    /// How far the stream has come.
    pub fn watermarks(&self) -> Watermarks {
        let floor = self.progress.synced_csn();
        let synced = self.progress.synced();
        let durable = self.progress.tip();
        let written = self.progress.written().max(durable.lsn);
        let fill = self.groups.fill_above(written);
        let agreed = self.entries.as_ref().map(Entries::agreed);
        let bound = agreed.map_or(Csn::MAX, |agreed| agreed.csn);
        let marks = Watermarks {
            agreed,
            stable_csn: durable.csn.min(bound),
            floor_csn: floor.min(bound),
            synced,
            written,
            filled: fill.filled,
            reserved: fill.reserved,
            durable: durable.lsn,
            durable_csn: durable.csn,
            reserved_csn: fill.reserved_csn,
        };
        marks.validate();
        marks
    }

    /// Reads `lsn..lsn + len` of a segment of the commit stream, wherever it is.
    pub fn read(&self, segment: &Segment, offset: u32, len: u32) -> Result<Vec<u8>, LogError> {
        let lsn = Lsn::new(segment.number, offset);
        if let Some(bytes) = self.read_unwritten(lsn, len)? {
            return Ok(bytes);
        }
        let staged = self.staging.as_ref().map_or(Ok(None), |staging| staging.read(lsn, len))?;
        let staged = staged.or_else(|| self.staged_tail.as_ref()?.read(lsn, len));
        match staged {
            Some(bytes) => Ok(bytes),
            None => self.segments.read(segment, offset, len),
        }
    }

    /// The bytes that are in a staging file and not in their segments; in a log that is open for reading, those that it reads from one.
    pub fn staged_bytes(&self) -> u64 {
        let tail = |tail: &StagedTail| tail.groups().map(|(_, bytes)| bytes.len() as u64).sum();
        match &self.staging {
            Some(staging) => staging.staged_bytes(),
            None => self.staged_tail.as_ref().map_or(0, tail),
        }
    }

    /// Copies `lsn..lsn + len` from a group in memory; waits for it to be filled. `None` once it is written.
    fn read_unwritten(&self, lsn: Lsn, len: u32) -> Result<Option<Vec<u8>>, LogError> {
        while lsn >= self.progress.written() {
            match self.groups.read(lsn, len) {
                InMemory::Bytes(bytes) => return Ok(Some(bytes)),
                InMemory::BeingFilled => yield_now(),
                InMemory::No => break,
            }
            self.shared.poison.check()?;
        }
        Ok(None)
    }
}

impl FlushTarget for CommitStream {
    fn flushed_csn(&self) -> Csn {
        self.flushed()
    }

    fn is_quick(&self) -> bool {
        self.staging.is_some()
    }

    fn check_reserved(&self, csn: Csn) -> Result<(), LogError> {
        self.groups.check_reserved(csn)
    }

    fn flush_filled(&self, barrier: bool) -> Result<bool, LogError> {
        if let Some(staging) = &self.staging {
            return self.stage_filled(staging);
        }
        let mut writer = self.writer.lock();
        self.shared.check_not_ended()?;
        let (groups, known) = match self.take_stamped() {
            Err(LogError::NotLeader) if barrier && writer.is_unsynced() => {
                writer.sync()?;
                self.progress.raise_synced();
                return Err(LogError::NotLeader);
            }
            taken => taken?,
        };
        let mut runs = groups.chunk_by(|a, b| a.segment.number == b.segment.number).peekable();
        if let Some(first) = runs.peek() {
            writer.end_left_segment(&first[0], known)?;
        }
        while let Some(run) = runs.next() {
            let next = runs.peek().map(|next| &next[0]);
            let is_asked =
                barrier || !self.shared.options.power_safe_cache || run.iter().any(|group| group.barrier);
            let flush = if is_asked || next.is_some() { Flush::Now } else { Flush::Later };
            writer.write(run, next, known, flush)?;
            self.raise_written(run, known);
            self.raise_durable(u64::MAX);
            if flush == Flush::Now {
                self.progress.raise_synced();
            }
            if next.is_some() {
                self.segments.seal(&run[0].segment);
            }
        }
        if groups.is_empty() && barrier && writer.is_unsynced() {
            writer.sync()?;
            self.progress.raise_synced();
            return Ok(true);
        }
        let wrote = !groups.is_empty();
        drop(groups);
        self.groups.release();
        Ok(wrote)
    }
}

fn check_size(what: &'static str, bytes: u32, max: u32) -> Result<(), LogError> {
    if bytes <= max {
        return Ok(());
    }
    Err(LogError::TooLarge { what, bytes: bytes.into(), max: max.into() })
}
