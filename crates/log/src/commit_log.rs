//! What a commit asks of a log.

use crate::bulk_stream::BulkPosition;
use crate::durability::Durability;
use crate::error::{LogError, PoisonCause};
use crate::format::{ChunkRef, FrameHeader};
use crate::log::Log;
use crate::stream::groups::TimeBounds;
use crate::stream::{Admission, CommitStream, Numbers, Reservation};
use fulgurite_types::Csn;
use std::sync::Arc;
use std::time::Duration;

/// The path of commits through a log: [`Log`] is one, and a test of a commit pipeline may have another.
pub trait CommitLog: Send + Sync + 'static {
    /// Room for a frame.
    type Admission;
    /// The range of a frame, with its numbers.
    type Reservation;

    /// Takes room for a frame of `frame_bytes` (header included, see [`frame_bytes`](crate::frame_bytes)) with a local
    /// record of `local_bytes` (see [`local_record_bytes`](crate::local_record_bytes)). Before the wait for durability,
    /// only this step of a commit waits, allocates or does I/O: it may flush for buffer credit, and make a segment.
    ///
    /// A thread that holds one admission and waits for another may wait for ever.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::NoSpace`], [`LogError::Io`]: nothing was logged. [`LogError::Poisoned`],
    /// [`LogError::Closed`]: reopen.
    fn admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Self::Admission, LogError>;

    /// Like [`CommitLog::admit`], but returns `None` where that would wait or do I/O.
    ///
    /// # Errors
    /// As [`CommitLog::admit`].
    fn try_admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Option<Self::Admission>, LogError>;

    /// Gives the frame its CSN, its time, and its reserved range, in one order for all three: it joins the open group,
    /// or opens one. Never waits for a write, never fails. `level` is the commit's durability level. `None` if the time
    /// would be too late: then the commit has no CSN, and the admission is given back.
    fn reserve_at(
        &self,
        admission: Self::Admission,
        level: Durability,
        time: TimeBounds,
    ) -> Option<Self::Reservation>;

    /// The numbers that a reservation gave.
    fn numbers(reservation: &Self::Reservation) -> Numbers;

    /// Has the bulk stream synced up to position `mark` before any frame is written that is reserved after this call:
    /// for a frame that names chunks which its committer does not sync. The thread that writes the frame's group syncs
    /// them.
    fn require_bulk(&self, mark: BulkPosition);

    /// Copies the frame into its range, while other threads fill theirs: header, body, and before them the extents of
    /// the chunks that the body refers to.
    ///
    /// # Panics
    /// If the sizes differ from the admitted ones, or the CSN from the reserved one. The log is poisoned then.
    fn fill(&self, reservation: Self::Reservation, header: &FrameHeader, body: &[u8], local: &[ChunkRef]);

    /// The newest durable commit: it and all before it survive a power cut, and in a replicated log the loss of any minority of the
    /// nodes, for a quorum has them. So "durable" means for all that commits ask of a log.
    fn durable_csn(&self) -> Csn;

    /// The newest commit such that a flush of the device covered it and all before it.
    fn synced_csn(&self) -> Csn;

    /// Returns when the commit is durable. The caller leads the flush, or waits for the leader.
    ///
    /// # Errors
    /// [`LogError::Poisoned`]: whether the commit is durable is unknown. [`LogError::Closed`]: it was reserved when the
    /// log was closing, and is not. [`LogError::Usage`]: it was never reserved.
    fn wait_durable(&self, csn: Csn) -> Result<(), LogError>;

    /// The newest commit that is durable on this node, in a replicated log perhaps on no other.
    fn durable_here_csn(&self) -> Csn {
        self.durable_csn()
    }

    /// Returns when it is durable on this node, in a replicated log perhaps on no other.
    ///
    /// # Errors
    /// As [`CommitLog::wait_durable`].
    fn wait_durable_here(&self, csn: Csn) -> Result<(), LogError> {
        self.wait_durable(csn)
    }

    /// Returns when the commit is staged ([`Durability::Staged`]); without staging, when it is durable on this node.
    ///
    /// # Errors
    /// As [`CommitLog::wait_durable`].
    fn wait_staged(&self, csn: Csn) -> Result<(), LogError> {
        self.wait_durable(csn)
    }

    /// Stages the commit, unless that would wait for the disk. False if it is not staged.
    ///
    /// # Errors
    /// As [`CommitLog::wait_durable`].
    fn try_stage(&self, csn: Csn) -> Result<bool, LogError> {
        Ok(csn <= self.durable_csn())
    }

    /// Whether commits have room before those that came before are agreed; always in a log that is not replicated.
    fn has_quorum(&self) -> bool {
        true
    }

    /// Whether they have, and room for chunks.
    fn has_quorum_for_chunks(&self) -> bool {
        true
    }

    /// In a replicated log: when the newest commit that is known to be agreed happened, in milliseconds since 1970, or an earlier time.
    fn agreed_time_ms(&self) -> Option<u64> {
        None
    }

    /// Waits until they have, so long at most. Returns whether they have.
    ///
    /// # Errors
    /// [`LogError::NotLeader`], [`LogError::Poisoned`], [`LogError::Closed`].
    fn wait_quorum(&self, limit: Duration) -> Result<bool, LogError> {
        let _ = limit;
        Ok(true)
    }

    /// The newest commit that has a number, in the log of a node that led: those after it did not happen, and never will.
    fn refused_after(&self) -> Option<Csn> {
        None
    }

    /// Returns when a flush of the device covered the commit. The same as [`CommitLog::wait_durable`] but where writes
    /// without a flush count as durable ([`LogOptions::power_safe_cache`](crate::LogOptions::power_safe_cache)), and where commits are
    /// staged in persistent memory.
    ///
    /// # Errors
    /// As [`CommitLog::wait_durable`].
    fn wait_synced(&self, csn: Csn) -> Result<(), LogError>;

    /// Leads one flush of the filled frames, unless another thread leads: waits for no other leader. True if it wrote something.
    ///
    /// # Errors
    /// [`LogError::Poisoned`], [`LogError::Closed`].
    fn try_flush(&self) -> Result<bool, LogError>;

    /// Requests that the commit become durable, and returns at once: the log thread flushes (without one,
    /// [`Log::maintain`] does). The observer reports when it is done.
    fn request_durable(&self, csn: Csn);

    /// Requests that the commit become durable at most `interval` from now, not counting the flush itself, and returns
    /// at once. The log thread flushes (without one, [`Log::maintain`] does).
    fn request_durable_within(&self, csn: Csn, interval: Duration);

    /// Sets the observer. The flushing thread calls it with each new durable CSN, in rising order, before it wakes the
    /// waiters. It must not block, and must not wait for durability.
    fn set_observer(&self, observer: Box<dyn Fn(Csn) + Send + Sync>);

    /// Sets the completer. The flushing thread calls it if `durable` rose, after it gave up the right to flush and woke
    /// the waiters. The log thread (without one, [`Log::maintain`]) calls it after the log was poisoned and after
    /// [`CommitLog::request_completion`]. The caller holds no lock of the log: the completer may use the log, and close
    /// it.
    fn set_completer(&self, completer: Box<dyn Fn() + Send + Sync>);

    /// Requests that the log thread (without one, [`Log::maintain`]) call the completer soon, and returns at once: for
    /// a thread that holds a lock under which the completer must not run.
    fn request_completion(&self);

    /// Requests that it call the completer once `delay` has passed, and returns at once. Several requests are served together, at the
    /// earliest time: the completer requests the next one.
    fn request_completion_within(&self, delay: Duration) {
        let _ = delay;
        self.request_completion();
    }

    /// Ends all writing: the caller could not apply a commit that is in the log, so memory and log would differ from
    /// then on.
    fn poison(&self, what: &'static str);

    /// The cause, if the log is poisoned.
    fn poisoned(&self) -> Option<Arc<PoisonCause>>;
}

impl CommitLog for Log {
    type Admission = Admission;
    type Reservation = Reservation;

    fn admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Admission, LogError> {
        self.stream.admit(frame_bytes, local_bytes)
    }

    fn try_admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Option<Admission>, LogError> {
        self.stream.try_admit(frame_bytes, local_bytes)
    }

    #[inline]
    fn reserve_at(&self, admission: Admission, level: Durability, time: TimeBounds) -> Option<Reservation> {
        self.stream.reserve_at(admission, level, time)
    }

    #[inline]
    fn numbers(reservation: &Reservation) -> Numbers {
        reservation.numbers()
    }

    fn require_bulk(&self, mark: BulkPosition) {
        self.bulk.require(mark);
    }

    #[inline]
    fn fill(&self, reservation: Reservation, header: &FrameHeader, body: &[u8], local: &[ChunkRef]) {
        CommitStream::fill(reservation, header, body, local);
    }

    #[inline]
    fn durable_csn(&self) -> Csn {
        self.stream.stable_csn()
    }

    #[inline]
    fn synced_csn(&self) -> Csn {
        self.stream.floor_csn()
    }

    fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        self.stream.wait_durable(csn)?;
        self.stream.wait_agreed(csn)
    }

    fn wait_durable_here(&self, csn: Csn) -> Result<(), LogError> {
        self.stream.wait_durable(csn)
    }

    #[inline]
    fn durable_here_csn(&self) -> Csn {
        self.stream.durable_csn()
    }

    fn wait_staged(&self, csn: Csn) -> Result<(), LogError> {
        self.stream.wait_staged(csn)
    }

    fn try_stage(&self, csn: Csn) -> Result<bool, LogError> {
        self.stream.try_stage(csn)
    }

    fn wait_synced(&self, csn: Csn) -> Result<(), LogError> {
        self.stream.wait_synced(csn)?;
        self.stream.wait_agreed(csn)
    }

    #[inline]
    fn has_quorum(&self) -> bool {
        self.stream.has_quorum()
    }

    fn has_quorum_for_chunks(&self) -> bool {
        self.stream.has_quorum_for_chunks()
    }

    fn agreed_time_ms(&self) -> Option<u64> {
        self.stream.agreed_time_ms()
    }

    fn wait_quorum(&self, limit: Duration) -> Result<bool, LogError> {
        self.stream.wait_quorum(limit)
    }

    fn refused_after(&self) -> Option<Csn> {
        self.stream.refused_after()
    }

    fn try_flush(&self) -> Result<bool, LogError> {
        self.stream.try_flush()
    }

    fn request_durable(&self, csn: Csn) {
        self.stream.request_durable(csn);
    }

    fn request_durable_within(&self, csn: Csn, interval: Duration) {
        self.stream.request_durable_within(csn, interval);
    }

    fn set_observer(&self, observer: Box<dyn Fn(Csn) + Send + Sync>) {
        *self.shared.observer.write() = Some(Arc::from(observer));
    }

    fn set_completer(&self, completer: Box<dyn Fn() + Send + Sync>) {
        *self.shared.completer.write() = Some(Arc::from(completer));
    }

    fn request_completion(&self) {
        self.shared.request_completion();
    }

    fn request_completion_within(&self, delay: Duration) {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.shared.request_completion_at(self.shared.now_ns().saturating_add(delay_ns));
    }

    fn poison(&self, what: &'static str) {
        let _ = self.shared.fail(what, None);
    }

    fn poisoned(&self) -> Option<Arc<PoisonCause>> {
        self.shared.poison.cause()
    }
}
