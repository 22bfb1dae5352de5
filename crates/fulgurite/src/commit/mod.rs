//! The commit pipeline.
//!
//! ```text
//! 0 admit      log-buffer credit and a ready segment: the only place that waits; no latch held
//! 1 validate   latches; first committer wins
//! 2 reserve    LSN, CSN and commit time together, in log order; never waits
//! 3 fill       one copy of the finished frame
//! 4 apply      versions go into the memtables; `visible` advances over the contiguous applied prefix
//! 5 unlatch
//! 6 durable    ask for durability up to here, together with everybody else
//! 7 acknowledge once `durable` and `visible` have both passed
//! ```
//!
//! Invariants:
//! - INV-TXN-3: everything that can fail for the caller's reasons fails in 0 or 1, or at 2 instead of getting a number
//!   (INV-TIME-2). From the number to the end of 4 nothing
//!   does I/O, allocates beyond what 0 reserved, or calls user code; a panic there poisons the log, because a hole
//!   would hang every commit behind it, and ends every wait.
//! - INV-TXN-4: a frame is applied exactly once. Its owner and the thread that raises `durable` race for its state
//!   word; a descheduled owner stalls nobody. An owner that loses waits for the winner: it holds the latches, and
//!   INV-TXN-2 wants them held until the commit is applied, whoever applies it.
//! - INV-TXN-5: `visible` passes a CSN only after it and everything before it are applied.
//! - INV-TXN-6: a commit above `Async` is acknowledged only at or below min(`visible`, `stable`), another one only at or
//!   below `visible` and when all that it read of commits above `Async` is stable. A read outside its own process
//!   begins at or below the larger of min(`visible`, `stable`) and the newest commit that was acknowledged.
//! - INV-TXN-7: a slot of the ring is used again only when `visible` has passed the commit that had it. Step 0 keeps
//!   the distance between `visible` and the newest number below half of the ring; threads that were admitted together
//!   may overshoot that, so the owner looks again when it knows its number, and waits: only for commits before its
//!   own, which are all past step 2 and wait for nothing.
//! - INV-TXN-8: no advance is lost. Whoever applies a commit stores its state, and then looks from `visible` on: it
//!   passes what is applied and stops at a commit that is not. That one's state is stored later, so whoever applies it
//!   looks later, and finds this one. These stores and loads are sequentially consistent. Who has looked and finds
//!   `visible` moved by another looks again from there.
//! - INV-TXN-9: no waiter is missed. Whoever waits for `visible` counts itself first and looks then; whoever moves it
//!   looks at the count afterwards, and only if there is one takes the lock under which waiters look.
//! - INV-TIME-2: what a commit has to have read live (serializable: all that it read, else what it read for an update) is
//!   live at its commit time; what it read as expired has expired by then; and a snapshot's time is at or after that of
//!   each commit in it. One that does not see the commit is before its deadline (INV-TIME-3, `deadlines.rs`).
//! - INV-TXN-10: a ticket completes once, and is told where users' code may run (INV-TXN-12, `quiet.rs`). Filing
//!   it, raising `visible` and raising `durable` are each followed by a look at the other two.
//! - INV-TXN-11: a commit is visible when its ticket is handed out, at every level: a transaction that begins afterwards
//!   sees it, whichever thread begins it.
//! - INV-TXN-13: a conflict is told when the commit that won is visible, and everything before it: the loser that begins
//!   again begins above. One that was too late waits for the commits that have deadlines and numbers (INV-TIME-3). It waits after
//!   it has let go of latches and admission, and only for commits that are past step 2.
//!
//! Why not simpler: applying after the sync would hold the latches over it, so that a hot key commits once a disk
//! write; applying before the reservation would show versions in another order than the log has them; a lock around
//! 2 to 4 would serialize the copies, which a large commit makes long; a locked queue of numbered commits, instead of
//! the ring, is taken three times by each commit and by the thread that flushes.
//!
//! The ring whose prefix moves without a lock is the link buffer of MySQL 8's redo log; filling beside others behind
//! one short reservation is the consolidation of Aether (Johnson et al., 2010).
//!
//! The pipeline knows neither tables nor the server: it is given a frame, a validation and the work to apply.

mod acknowledge;
pub(crate) mod commit_log;
#[cfg(test)]
pub(crate) mod fake_log;
pub(crate) mod latches;
pub(crate) mod prepare;
pub(crate) mod quiet;
mod ring;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
pub(crate) mod ticket;
mod tickets;

use std::sync::Arc;

use fulgurite_log::{
    BulkPosition, ChunkRef, Durability, Log, NewFrame, TimeBounds, frame_bytes, local_record_bytes,
};
use fulgurite_types::{Csn, Lsn};

use self::commit_log::CommitLog;
use self::ring::{Ring, Work};
use self::tickets::Tickets;
use crate::latency::Stopwatch;
use crate::sync::{AtomicBool, AtomicU64, CachePadded, Condvar, Mutex, Ordering, yield_now};
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
    /// When it may happen.
    pub time: TimeBounds,
    pub local: &'a [ChunkRef],
    /// Up to where the bulk stream has to be synced before the frame may be written.
    pub after_bulk: BulkPosition,
}

/// The ring has room for 8,192 commits that are numbered and not visible: 256 KiB.
const RING_BITS: u32 = 13;

/// Numbers, applies and acknowledges commits.
pub(crate) struct Pipeline<L: CommitLog = Log> {
    log: Arc<L>,
    ring: Ring,
    visible: CachePadded<AtomicU64>,
    numbers: CachePadded<Numbers>,
    /// The newest commit that was acknowledged at level `Async` or `None`.
    acknowledged: AtomicU64,
    /// How many threads wait for `visible`.
    waiters: AtomicU64,
    waiting: Mutex<()>,
    became_visible: Condvar,
    /// A commit panicked between its number and its end: `visible` will never pass it.
    broken: AtomicBool,
    /// The log is about to end: what gets a number now may never be durable.
    closing: AtomicBool,
    tickets: Tickets,
    stopwatch: Stopwatch,
}

/// The newest numbers that were given. A commit's number is entered before anybody can see what it does.
struct Numbers {
    /// To commits above `Async`.
    synchronous: AtomicU64,
    /// To the others.
    asynchronous: AtomicU64,
}

const BROKEN: &str = "a commit panicked after it was numbered";

/// Breaks the pipeline unless it is forgotten: a commit is between its number and its end.
struct Unfinished<'a, L: CommitLog>(&'a Pipeline<L>);

impl<L: CommitLog> Drop for Unfinished<'_, L> {
    fn drop(&mut self) {
        let pipeline = self.0;
        pipeline.log.poison(BROKEN);
        pipeline.broken.store(true, Ordering::SeqCst);
        drop(pipeline.waiting.lock());
        pipeline.became_visible.notify_all();
        pipeline.fail_tickets(BROKEN);
    }
}

impl<L: CommitLog> Pipeline<L> {
    /// A pipeline over an open log; `last` is the newest recovered commit.
    pub fn new(log: Arc<L>, last: Csn, stopwatch: Stopwatch) -> Arc<Pipeline<L>> {
        Pipeline::with_ring(log, last, stopwatch, RING_BITS)
    }

    /// A pipeline with room for `1 << ring_bits` commits that are numbered and not visible.
    fn with_ring(log: Arc<L>, last: Csn, stopwatch: Stopwatch, ring_bits: u32) -> Arc<Pipeline<L>> {
        let pipeline = Arc::new(Pipeline {
            log: log.clone(),
            ring: Ring::new(ring_bits),
            visible: CachePadded::new(AtomicU64::new(last.0)),
            numbers: CachePadded::new(Numbers {
                synchronous: AtomicU64::new(0),
                asynchronous: AtomicU64::new(0),
            }),
            acknowledged: AtomicU64::new(0),
            waiters: AtomicU64::new(0),
            waiting: Mutex::new(()),
            became_visible: Condvar::new(),
            broken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            tickets: Tickets::new(),
            stopwatch,
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
                pipeline.completer();
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

    /// The newest CSN up to which nothing can be undone any more.
    pub fn floor(&self) -> Csn {
        self.log.synced_csn()
    }

    /// The newest commit above level `Async` that has a number. Taken after a snapshot, it is at or above all of them
    /// that the snapshot sees.
    pub fn newest_synchronous(&self) -> Csn {
        Csn(self.numbers.synchronous.load(Ordering::SeqCst))
    }

    /// The newest commit that has a number, of any level. One that is submitted is at or below it.
    pub fn newest(&self) -> Csn {
        let Numbers { synchronous, asynchronous } = &*self.numbers;
        Csn(synchronous.load(Ordering::SeqCst).max(asynchronous.load(Ordering::SeqCst)))
    }

    /// Up to which commits above `Async` are acknowledged.
    fn settled(&self) -> Csn {
        self.visible().min(self.stable())
    }

    /// Where reads begin whose results may leave the process (INV-TXN-6): it never falls, is never above `visible`, and
    /// never below the horizon.
    pub fn read_csn(&self) -> Csn {
        let acknowledged = Csn(self.acknowledged.load(Ordering::SeqCst));
        self.settled().max(acknowledged)
    }

    /// What is merged, pruned, written out or checkpointed is at or below it.
    pub fn horizon(&self) -> Csn {
        self.visible().min(self.floor())
    }

    /// Step 0. `blocking` false gives `WouldBlock` instead of a wait.
    pub fn admit(&self, body_len: usize, chunks: usize, blocking: bool) -> Result<L::Admission> {
        self.wait_for_room(blocking)?;
        let frame = frame_bytes(u32::try_from(body_len).expect("a body fits a frame"));
        let local = local_record_bytes(u16::try_from(chunks).expect("a frame names few chunks"));
        let admitted =
            if blocking { self.log.admit(frame, local).map(Some) } else { self.log.try_admit(frame, local) };
        admitted.map_err(|error| self.refused(error))?.ok_or(Error::WouldBlock)
    }

    /// Waits until less than half of the ring is taken (INV-TXN-7). A descheduled owner may keep `visible` from moving
    /// while others number thousands of commits.
    fn wait_for_room(&self, blocking: bool) -> Result<()> {
        loop {
            let Numbers { synchronous, asynchronous } = &*self.numbers;
            let newest = synchronous.load(Ordering::Relaxed).max(asynchronous.load(Ordering::Relaxed));
            let free_from = newest.saturating_sub(self.ring.len() / 2);
            if self.visible().0 >= free_from {
                return Ok(());
            }
            if !blocking {
                return Err(Error::WouldBlock);
            }
            if !self.wait_visible(Csn(free_from)) {
                return Err(Error::Poisoned { what: BROKEN.to_string(), at_risk: self.at_risk() });
            }
        }
    }

    /// Steps 2 to 4: the caller holds the latches and has validated. It is [`Pipeline::quiet`] until it has let go of
    /// them. Calls `on_numbered` when the commit has its number, before anything else. `None` if it would have been too
    /// late: nothing happened.
    pub fn submit(
        &self,
        admission: L::Admission,
        level: Durability,
        frame: &Frame<'_>,
        apply: Box<dyn Apply>,
        on_numbered: impl FnOnce(Csn),
    ) -> Option<Csn> {
        let unfinished = Unfinished(self);
        if frame.after_bulk > BulkPosition::default() {
            self.log.require_bulk(frame.after_bulk);
        }
        let mut place = None;
        let reserved = self
            .log
            .reserve(admission, level, frame.time, |csn, lsn, time_ms| place = Some((csn, lsn, time_ms)));
        let Some(reservation) = reserved else {
            std::mem::forget(unfinished);
            return None;
        };
        let (csn, body_lsn, commit_time_ms) = place.expect("the log calls back while it reserves");
        on_numbered(csn);
        let newest = if level.waits() { &self.numbers.synchronous } else { &self.numbers.asynchronous };
        newest.fetch_max(csn.0, Ordering::SeqCst);
        let is_published = self.publish(csn, Work { apply, body_lsn });
        self.log.fill(
            reservation,
            NewFrame {
                kind: frame.kind,
                flags: 0,
                codec: 0,
                term: 0,
                commit_time_ms,
                body: frame.body,
                body_crc: frame.body_crc,
                local: frame.local,
            },
        );
        std::mem::forget(unfinished);
        if is_published {
            self.apply(csn);
            while !self.ring.is_applied(csn) && !self.is_broken() {
                yield_now();
            }
            self.advance_visible();
        }
        Some(csn)
    }

    /// Puts a commit into its slot, where the thread that raises `durable` will find it: before it is filled, and so
    /// before it can be durable. False if the pipeline is broken: then the slot may never become free, and nobody will
    /// see the commit.
    fn publish(&self, csn: Csn, work: Work) -> bool {
        while self.visible().0 + self.ring.len() < csn.0 {
            if self.is_broken() {
                return false;
            }
            yield_now();
        }
        // SAFETY: the log gives each number once, and `visible` has passed the slot's last commit (INV-TXN-7).
        unsafe { self.ring.publish(csn, work) };
        true
    }

    /// Applies a published commit unless somebody else does or has done (INV-TXN-4).
    fn apply(&self, csn: Csn) {
        let Some(work) = self.ring.claim(csn) else { return };
        let unfinished = Unfinished(self);
        work.apply.apply(csn, work.body_lsn);
        std::mem::forget(unfinished);
        self.ring.set_applied(csn);
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Raises `visible` over the contiguous applied prefix (INV-TXN-5, INV-TXN-8).
    fn advance_visible(&self) {
        let mut visible = self.visible();
        loop {
            let mut reached = visible;
            while self.ring.is_applied(reached.next()) {
                reached = reached.next();
            }
            if reached == visible {
                return;
            }
            match self.visible.compare_exchange(visible.0, reached.0, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return self.wake_waiters(),
                Err(other) => visible = Csn(other),
            }
        }
    }

    /// After `visible` was moved (INV-TXN-9).
    fn wake_waiters(&self) {
        if self.waiters.load(Ordering::SeqCst) != 0 {
            drop(self.waiting.lock());
            self.became_visible.notify_all();
        }
    }

    /// Waits until `csn` is visible; false if it never will be.
    pub fn wait_visible(&self, csn: Csn) -> bool {
        if self.visible() >= csn {
            return true;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut waiting = self.waiting.lock();
        while self.visible() < csn && !self.is_broken() {
            self.became_visible.wait(&mut waiting);
        }
        drop(waiting);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        self.visible() >= csn
    }

    /// The log's observer: applies what is durable and unclaimed (INV-TXN-4). All of it is published.
    fn durable_rose(&self, durable: Csn) {
        // The log leads a flush.
        let _quiet = self.quiet_in_the_log();
        let mut csn = self.visible().next();
        if csn > durable {
            return;
        }
        while csn <= durable {
            self.apply(csn);
            csn = csn.next();
        }
        self.advance_visible();
    }
}
