//! The commit pipeline.
//!
//! ```text
//! 0 admit      log-buffer credit and a ready segment: the only place that waits; no latch held
//! 1 validate   latches; first committer wins
//! 2 reserve    LSN and CSN together, in log order; never waits
//! 3 fill       one copy of the finished frame
//! 4 apply      versions go into the deltas; `visible` advances over the contiguous applied prefix
//! 5 unlatch
//! 6 durable    ask for durability up to here, together with everybody else
//! 7 answer     once `durable` and `visible` have both passed
//! ```
//!
//! Invariants:
//! - INV-TXN-3: everything that can fail for the caller's reasons fails in 0 or 1. From 2 to the end of 4 nothing
//!   does I/O, allocates beyond what 0 reserved, or calls user code; a panic there poisons the log, because a hole
//!   would hang every commit behind it, and ends every wait.
//! - INV-TXN-4: a frame is applied exactly once. Its owner and the thread that raises `durable` race for its state
//!   word; a descheduled owner stalls nobody. An owner that loses waits for the winner: it holds the latches, and
//!   INV-TXN-2 wants them held until the commit is applied, whoever applies it.
//! - INV-TXN-5: `visible` passes a CSN only after it and everything before it are applied.
//! - INV-TXN-6: a commit is answered, and a read outside its own process begins, only at or below
//!   min(`visible`, `stable`).
//!
//! Why not simpler: applying after the sync would hold the latches over it, so that a hot key commits once a disk
//! write; applying before the reservation would show versions in another order than the log has them; a lock around
//! 2 to 4 would serialize the copies, which a large commit makes long.
//!
//! The pipeline knows neither tables nor the server: it is given a frame, a validation and the work to apply.

pub(crate) mod commit_log;
#[cfg(test)]
pub(crate) mod fake_log;
pub(crate) mod latches;
pub(crate) mod prepare;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
pub(crate) mod ticket;

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_base::{Csn, Lsn};
use fulgurite_log::{FrameParts, Log, LogError, PartPlace, frame_bytes, local_record_bytes};

use self::commit_log::CommitLog;
use self::ticket::{Ticket, Tickets};
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Condvar, Mutex, yield_now};
use crate::{Error, Result};

/// What a commit does to memory, prepared so that it cannot fail.
pub(crate) trait Apply: Send {
    /// Runs once, with the commit's number and the place of its frame's body.
    fn apply(self: Box<Self>, csn: Csn, body_lsn: Lsn);
}

/// A finished frame, but for its number.
pub(crate) struct Frame<'a> {
    pub kind: u8,
    pub body: &'a [u8],
    pub body_crc: u32,
    pub commit_time_ms: u64,
    pub local: &'a [PartPlace],
}

const WAITING: u8 = 0;
const APPLYING: u8 = 1;
const APPLIED: u8 = 2;

/// A numbered commit that is not known to be visible yet.
struct Pending {
    csn: Csn,
    body_lsn: Lsn,
    state: AtomicU8,
    /// Taken by whoever moves `state` from `WAITING` to `APPLYING`.
    work: UnsafeCell<Option<Box<dyn Apply>>>,
}

// SAFETY: `work` is touched only by the one thread that won the exchange WAITING -> APPLYING (see `claim`).
unsafe impl Sync for Pending {}

impl Pending {
    /// The work, for the one caller that gets it.
    fn claim(&self) -> Option<Box<dyn Apply>> {
        self.state.compare_exchange(WAITING, APPLYING, Ordering::Acquire, Ordering::Acquire).ok()?;
        // SAFETY: the exchange above succeeds for one thread only, ever: nobody else reads or writes `work`.
        unsafe { (*self.work.get()).take() }
    }

    fn is_applied(&self) -> bool {
        self.state.load(Ordering::Acquire) == APPLIED
    }
}

/// Numbers, applies and answers commits.
pub(crate) struct Pipeline<L: CommitLog = Log> {
    log: Arc<L>,
    visible: AtomicU64,
    /// Numbered commits that are not visible, in order.
    pending: Mutex<VecDeque<Arc<Pending>>>,
    became_visible: Condvar,
    /// A commit panicked while it was applied: `visible` will never pass it.
    broken: AtomicBool,
    tickets: Tickets,
}

const BROKEN: &str = "a commit panicked while it was applied";

/// Breaks the pipeline unless it is forgotten: a commit is being applied.
struct Applying<'a, L: CommitLog>(&'a Pipeline<L>);

impl<L: CommitLog> Drop for Applying<'_, L> {
    fn drop(&mut self) {
        let pipeline = self.0;
        pipeline.log.poison(BROKEN);
        let pending = pipeline.pending.lock();
        pipeline.broken.store(true, Ordering::Release);
        pipeline.became_visible.notify_all();
        drop(pending);
        pipeline.tickets.fail(BROKEN);
    }
}

impl<L: CommitLog> Pipeline<L> {
    /// A pipeline over an open log; `last` is the newest recovered commit.
    pub fn new(log: Arc<L>, last: Csn) -> Arc<Pipeline<L>> {
        let pipeline = Arc::new(Pipeline {
            log: log.clone(),
            visible: AtomicU64::new(last.0),
            pending: Mutex::new(VecDeque::new()),
            became_visible: Condvar::new(),
            broken: AtomicBool::new(false),
            tickets: Tickets::default(),
        });
        let observer = Arc::downgrade(&pipeline);
        log.set_observer(Box::new(move |durable| {
            if let Some(pipeline) = observer.upgrade() {
                pipeline.durable_rose(durable);
            }
        }));
        let completer = Arc::downgrade(&pipeline);
        log.set_completer(Box::new(move || {
            if let Some(pipeline) = completer.upgrade() {
                pipeline.complete_tickets();
            }
        }));
        pipeline
    }

    /// The newest CSN up to which all commits are applied.
    pub fn visible(&self) -> Csn {
        Csn(self.visible.load(Ordering::SeqCst))
    }

    /// The newest CSN up to which all commits survive a power cut.
    pub fn stable(&self) -> Csn {
        self.log.durable_csn()
    }

    /// Where reads begin whose answers may leave the process.
    pub fn read_csn(&self) -> Csn {
        self.visible().min(self.stable())
    }

    /// What is folded, pruned, imaged or checkpointed is at or below it.
    pub fn horizon(&self) -> Csn {
        self.visible().min(self.stable())
    }

    /// Step 0. `blocking` false gives `WouldBlock` instead of a wait.
    pub fn admit(&self, body_len: usize, parts: usize, blocking: bool) -> Result<L::Admission> {
        let frame = frame_bytes(u32::try_from(body_len).expect("a body fits a frame"));
        let local = local_record_bytes(u16::try_from(parts).expect("a frame names few parts"));
        if blocking {
            return Ok(self.log.admit(frame, local)?);
        }
        self.log.try_admit(frame, local)?.ok_or(Error::WouldBlock)
    }

    /// Steps 2 to 4: the caller holds the latches and has validated. Once it has let go of them it calls
    /// [`Pipeline::complete_tickets`].
    pub fn submit(&self, admission: L::Admission, frame: &Frame<'_>, work: Box<dyn Apply>) -> Csn {
        let mut mine = None;
        let mut work = Some(work);
        let reservation = self.log.reserve(admission, |csn, body_lsn| {
            let pending = Arc::new(Pending {
                csn,
                body_lsn,
                state: AtomicU8::new(WAITING),
                work: UnsafeCell::new(work.take()),
            });
            self.pending.lock().push_back(pending.clone());
            mine = Some(pending);
        });
        self.log.fill(
            reservation,
            FrameParts {
                kind: frame.kind,
                flags: 0,
                codec: 0,
                term: 0,
                commit_time_ms: frame.commit_time_ms,
                body: frame.body,
                body_crc: frame.body_crc,
                local: frame.local,
            },
        );
        let pending = mine.expect("the log calls back while it reserves");
        self.apply(&pending);
        while !pending.is_applied() && !self.is_broken() {
            yield_now();
        }
        self.advance_visible();
        pending.csn
    }

    /// Applies a commit unless somebody else does or has done.
    fn apply(&self, pending: &Pending) {
        let Some(work) = pending.claim() else { return };
        let unfinished = Applying(self);
        work.apply(pending.csn, pending.body_lsn);
        std::mem::forget(unfinished);
        pending.state.store(APPLIED, Ordering::Release);
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Raises `visible` over the contiguous applied prefix.
    fn advance_visible(&self) {
        let mut pending = self.pending.lock();
        let mut last = None;
        while pending.front().is_some_and(|front| front.is_applied()) {
            last = pending.pop_front().map(|front| front.csn);
        }
        if let Some(csn) = last {
            debug_assert!(csn > self.visible());
            self.visible.store(csn.0, Ordering::SeqCst);
            self.became_visible.notify_all();
        }
    }

    /// Step 7 for tickets. Runs users' callbacks, so the caller holds no latch and leads no flush. Whoever raised
    /// `visible` or `durable` calls it afterwards.
    pub fn complete_tickets(&self) {
        self.tickets.complete_up_to(self.read_csn());
    }

    /// The log's observer: applies what is durable and unclaimed (INV-TXN-4).
    fn durable_rose(&self, durable: Csn) {
        let covered: Vec<Arc<Pending>> = {
            let pending = self.pending.lock();
            pending.iter().take_while(|entry| entry.csn <= durable).cloned().collect()
        };
        for entry in &covered {
            self.apply(entry);
        }
        if !covered.is_empty() {
            self.advance_visible();
        }
    }

    /// Steps 6 and 7.
    pub fn wait(&self, csn: Csn) -> Result<()> {
        self.log.wait_durable(csn).map_err(|error| self.unknown(csn, error))?;
        if self.visible() >= csn {
            return Ok(());
        }
        let mut pending = self.pending.lock();
        while self.visible() < csn {
            if self.is_broken() {
                return Err(Error::OutcomeUnknown { csn, source: BROKEN.into() });
            }
            self.became_visible.wait(&mut pending);
        }
        Ok(())
    }

    /// Ends the open tickets, and those to come, of a log that has failed or was closed.
    pub fn fail_tickets(&self, why: &str) {
        self.tickets.fail(why);
    }

    fn unknown(&self, csn: Csn, error: LogError) -> Error {
        match error {
            LogError::Poisoned(_) => {
                self.tickets.fail(&error.to_string());
                Error::OutcomeUnknown { csn, source: Box::new(error) }
            }
            LogError::Closed => {
                self.tickets.fail(&error.to_string());
                Error::Closed
            }
            other => other.into(),
        }
    }

    /// A ticket for a submitted commit.
    pub fn ticket(self: &Arc<Self>, csn: Csn) -> Ticket {
        if csn <= self.read_csn() {
            return Ticket::done(csn);
        }
        let pipeline = Arc::downgrade(self);
        let ticket = Ticket::new(
            csn,
            Box::new(move |csn| pipeline.upgrade().is_some_and(|pipeline| pipeline.wait(csn).is_ok())),
        );
        self.tickets.add(ticket.state());
        self.log.request_durable(csn);
        self.complete_tickets();
        if let Some(why) = self.log.poisoned() {
            self.tickets.fail(&why.to_string());
        }
        ticket
    }
}
