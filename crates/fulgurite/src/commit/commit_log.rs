//! The interface between the pipeline and a log, small enough for a test to drive the pipeline with a fake.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_log::{
    Admission, BulkPosition, ChunkRef, Durability, FrameHeader, Log, LogError, Numbers, PoisonCause,
    Reservation, TimeBounds,
};
use fulgurite_types::Csn;

/// The commit stream of a log. A method without a comment is the method of [`Log`] with the same name.
pub(crate) trait CommitLog: Send + Sync + 'static {
    type Admission;
    type Reservation;

    fn admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Self::Admission, LogError>;
    fn try_admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Option<Self::Admission>, LogError>;
    /// [`Log::reserve_at`].
    fn reserve(
        &self,
        admission: Self::Admission,
        level: Durability,
        time: TimeBounds,
    ) -> Option<Self::Reservation>;
    /// [`Reservation::numbers`].
    fn numbers(reservation: &Self::Reservation) -> Numbers;
    /// Frames reserved from now on are written only after the bulk stream was synced up to `mark`.
    fn require_bulk(&self, mark: BulkPosition);
    fn fill(&self, reservation: Self::Reservation, header: &FrameHeader, body: &[u8], local: &[ChunkRef]);
    fn durable_csn(&self) -> Csn;
    fn wait_durable(&self, csn: Csn) -> Result<(), LogError>;
    fn request_durable(&self, csn: Csn);
    /// Asks the log's thread to make the commit durable within `interval`, and returns at once.
    fn request_durable_within(&self, csn: Csn, interval: Duration);
    /// The newest CSN up to which a flush of the device has synced all commits.
    fn synced_csn(&self) -> Csn;
    /// Causes the flush that syncs the commit, and waits for it.
    fn wait_synced(&self, csn: Csn) -> Result<(), LogError>;
    fn set_observer(&self, observer: Box<dyn Fn(Csn) + Send + Sync>);
    fn set_completer(&self, completer: Box<dyn Fn() + Send + Sync>);
    /// Asks the log's thread to call the completer, and returns at once.
    fn request_completion(&self);
    fn poison(&self, what: &'static str);
    fn poisoned(&self) -> Option<Arc<PoisonCause>>;
}

impl CommitLog for Log {
    type Admission = Admission;
    type Reservation = Reservation;

    fn admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Admission, LogError> {
        Log::admit(self, frame_bytes, local_bytes)
    }

    fn try_admit(&self, frame_bytes: u32, local_bytes: u32) -> Result<Option<Admission>, LogError> {
        Log::try_admit(self, frame_bytes, local_bytes)
    }

    #[inline]
    fn reserve(&self, admission: Admission, level: Durability, time: TimeBounds) -> Option<Reservation> {
        Log::reserve_at(self, admission, level, time)
    }

    #[inline]
    fn numbers(reservation: &Reservation) -> Numbers {
        reservation.numbers()
    }

    fn require_bulk(&self, mark: BulkPosition) {
        Log::require_bulk(self, mark);
    }

    #[inline]
    fn fill(&self, reservation: Reservation, header: &FrameHeader, body: &[u8], local: &[ChunkRef]) {
        Log::fill(self, reservation, header, body, local);
    }

    #[inline]
    fn durable_csn(&self) -> Csn {
        Log::durable_csn(self)
    }

    fn wait_durable(&self, csn: Csn) -> Result<(), LogError> {
        Log::wait_durable(self, csn)
    }

    fn request_durable(&self, csn: Csn) {
        Log::request_durable(self, csn);
    }

    fn request_durable_within(&self, csn: Csn, interval: Duration) {
        Log::request_durable_within(self, csn, interval);
    }

    #[inline]
    fn synced_csn(&self) -> Csn {
        Log::synced_csn(self)
    }

    fn wait_synced(&self, csn: Csn) -> Result<(), LogError> {
        Log::wait_synced(self, csn)
    }

    fn set_observer(&self, observer: Box<dyn Fn(Csn) + Send + Sync>) {
        Log::set_observer(self, observer);
    }

    fn set_completer(&self, completer: Box<dyn Fn() + Send + Sync>) {
        Log::set_completer(self, completer);
    }

    fn request_completion(&self) {
        Log::request_completion(self);
    }

    fn poison(&self, what: &'static str) {
        Log::poison(self, what);
    }

    fn poisoned(&self) -> Option<Arc<PoisonCause>> {
        Log::poisoned(self)
    }
}
