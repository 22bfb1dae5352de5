//! The commit pipeline.
//!
//! ```text
//! 0 admit        wait for room in the commit ring; take credit of the log: group slots, and room in a ready segment
//! 1 validate     take the latches, then validate: first committer wins
//! 2 reserve      get LSN, CSN and commit time together, in log order; publish the work in the commit's ring slot
//! 3 fill         copy the finished frame into the reservation, once
//! 4 apply        put the versions into the memtables; raise `visible` over the contiguous applied prefix
//! 5 unlatch
//! 6 durable      ask for durability up to this CSN; one write and sync serve all commits that ask
//! 7 acknowledge  once `visible` has passed this CSN, and `durable` this CSN or, at `Async` and `None`, what it read
//! ```
//!
//! What waits, and for what. A writer waits for merging before step 0.
//! - Step 0 waits for the commit ring, for log writes and for new segments. It holds no latch.
//! - Step 1 waits for latches. What it validates and is not in memory it reads without them, and without what step 0
//!   gave (INV-TXN-16).
//! - Steps 2 to 4 wait for other threads' work in memory alone: for the lock of the deadlines (only a commit that has
//!   one), the lock under which a group opens, the commit's ring slot (INV-TXN-7), and the thread that applies this
//!   commit in its owner's place (INV-TXN-4).
//! - Step 7 waits for all earlier commits to be filled and applied. Above level `Async` it waits for the write that
//!   step 6 asked for. At `Async` and `None` it waits for the writes of the commits above `Async` that this one read.
//!
//! Invariants, where `stable` is the log's `durable` as a CSN:
//! - INV-TXN-3: a commit fails for the caller's reasons in step 0 or 1, or in step 2 without getting a number
//!   (INV-TIME-2). From the number to the end of step 4 it does no I/O, returns no error and calls no user code; its
//!   versions' memory was allocated before (`prepare.rs`). A panic in step 2 or 3 would leave a hole in the log, and
//!   one in step 4 a commit that is never applied. Every later commit would wait for it forever. So the panic poisons
//!   the log and ends every wait ([`Unfinished`]).
//! - INV-TXN-4: a frame is applied exactly once. Its owner and the thread that raises `durable` race for its state
//!   word, in the commit's ring slot: one compare-exchange takes the work out. So an owner that is descheduled between
//!   steps 3 and 4 delays other commits until the next flush at most. An owner that loses waits for the winner: the
//!   owner holds the latches, and INV-TXN-2 needs them held until the commit is applied. The thread that raises
//!   `durable` finds the work of each commit that it covers: the owner publishes the work before it counts its range as
//!   filled, and the flush leader sees the range filled before it writes it.
//! - INV-TXN-5: `visible` passes a CSN only after that commit and all before it are applied.
//! - INV-TXN-6: a commit above `Async` is acknowledged only at or below min(`visible`, `stable`). A commit at `Async`
//!   or `None` is acknowledged only at or below `visible`, and only when all commits above `Async` that it read are
//!   stable. One at [`Acks::Local`](crate::Acks::Local) is as one at `Async` here, but durable on this node. A read whose results may leave the process begins at or
//!   below the larger of min(`visible`, `stable`) and the newest commit that was acknowledged at `Async`, `None` or `Local`.
//! - INV-TXN-7: a commit's ring slot is reused only after `visible` has passed that commit. Step 0 admits a commit only
//!   while the newest number is at most half of the ring above `visible`. Threads that are admitted together may exceed
//!   that, so an owner checks again once it knows its number, and waits if it must. It holds its latches meanwhile, but
//!   waits for earlier commits only: all of them have numbers and hold their own latches, and the oldest waits for no
//!   other.
//! - INV-TXN-8: no advance is lost. A thread that applies a commit stores APPLIED, then scans from `visible` to the
//!   first commit that it finds not applied, and raises `visible` to the one before. Let the scan of thread A stop at
//!   commit c. The thread that applies c stores APPLIED after A read c's state, hence scans after A stored its own: it
//!   finds A's commit applied, and passes it. A thread whose exchange fails because another raised `visible` scans
//!   again from there. These stores, loads and exchanges are sequentially consistent.
//! - INV-TXN-9: no waiter is missed. A thread that waits for `visible` increments `waiters`, then reads `visible` under
//!   the lock. A thread that raises `visible` reads `waiters` afterwards; if that is not 0, it takes and releases the
//!   lock, then notifies. Either it reads the increment, or the waiter reads the new `visible`. If it reads the
//!   increment, the waiter holds the lock until it sleeps and is notified, or takes it later and reads the new
//!   `visible`.
//! - INV-TIME-2: what a commit must have read live (serializable: all its reads; else its reads for an update) is live
//!   at its commit time. What it read as expired has expired by then. A snapshot's time is at or after that of each
//!   commit in it, and before the deadline of each commit that it does not see (INV-TIME-3, `deadlines.rs`).
//! - INV-TXN-10: a ticket completes once, on a thread that may run users' code (INV-TXN-12, `quiet.rs`). A thread that
//!   files a ticket, raises `visible` or raises `durable` checks the other two afterwards. It checks when it stops
//!   being quiet or, if it led the flush, in the log's completer. A fence precedes each check. So do threads that file a ticket in the queues of
//!   `acks.rs`, or note what another node has.
//!   A watch is woken in the same way (INV-TXN-18, `watches.rs`).
//! - INV-TXN-11: a commit is visible when its ticket is handed out, at every level: a transaction that begins
//!   afterwards, on any thread, sees it.
//! - INV-TXN-13: a conflict is returned only when the winning commit and all before it are visible (but to an attempt, which does not wait), so a retry begins
//!   at or above it. A commit that was too late first waits until the numbered commits with deadlines are visible
//!   (INV-TIME-3). Both wait without latches and admission, and only for commits that have numbers.
//! - INV-TXN-16: a validation without latches that began when `visible` was v, and found nothing, has checked all commits
//!   up to v: they were applied, so each of their versions was in the memtables or in the tree. The latched one that follows
//!   checks those after v. Only a merge that took commits after v, hence began later, can have put them into the tree; all
//!   others are in the memtables. So it matters to no commit that its leaves are evicted again before it has the latches.
//!
//! Why nothing simpler works. Applying after the sync would hold the latches over it: a hot key would commit once per
//! disk write. Applying before the reservation would show versions in another order than the log's. A lock around steps
//! 2 to 4 would serialize the copies, which are long in large commits. A locked queue of numbered commits in place of
//! the commit ring would be locked three times by each commit, and by the thread that flushes.
//!
//! The ring whose prefix advances without a lock is the link buffer of MySQL 8's redo log. Parallel filling after one
//! short reservation is the consolidation array of Aether (Johnson et al., 2010).
//!
//! [`Pipeline`] has steps 0, 2 to 4, 6 and 7, and knows no tables: it is given a frame and the work to apply.
//! [`Engine::commit`] puts the latches and the validation of a [`Committer`] around them.

mod acknowledge;
mod acks;
pub(crate) mod decode;
#[cfg(test)]
pub(crate) mod fake_log;
pub(crate) mod following;
pub(crate) mod latches;
pub(crate) mod prepare;
pub(crate) mod quiet;
mod ring;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
pub(crate) mod ticket;
mod tickets;
pub(crate) mod watches;

use std::sync::Arc;
use std::time::Duration;

use fulgurite_index::Io;
use fulgurite_log::{
    BulkPosition, ChunkRef, Durability, FrameHeader, Log, TimeBounds, frame_bytes, local_record_bytes,
};
use fulgurite_types::{Csn, Lsn};

use self::acks::Others;
use self::following::Following;
use self::latches::{Held, LatchSet};
use self::ring::{Ring, Work};
use self::tickets::Tickets;
use self::watches::Watches;
use crate::engine::Engine;
use crate::latency::Stopwatch;
use crate::memory_charge::MemoryCharge;
use crate::{Conflict, Contended, Error, Missing, Result};
use crossbeam_utils::CachePadded;
use fulgurite_log::CommitLog;
use fulgurite_types::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, yield_now};

/// What a commit does to memory, prepared so that it cannot fail.
pub(crate) trait Apply: Send {
    /// Runs once, with the commit's number and the LSN of its frame's body.
    fn apply(self: Box<Self>, csn: Csn, body_lsn: Lsn);
}

/// A finished frame, but for its number.
pub(crate) struct Frame {
    pub kind: u8,
    pub body: Vec<u8>,
    pub body_crc: u32,
    /// The bounds of the commit's time, set right before step 2.
    pub time: TimeBounds,
    pub local: Vec<ChunkRef>,
    /// The bulk stream has to be synced up to this before the frame may be written.
    pub after_bulk: BulkPosition,
    /// Whether it is acknowledged before it is stable, whatever its level: [`Acks::Local`](crate::Acks::Local).
    pub is_local: bool,
    /// Bytes of the keys and values that the commit writes.
    pub user_bytes: u64,
    /// Its operations.
    pub ops: u64,
    /// Bytes of its operation list, if that is in chunks.
    pub list_bytes: u64,
}

/// What a commit adds to the counters.
struct Size {
    user_bytes: u64,
    ops: u64,
    list_bytes: u64,
}

impl Size {
    fn of(frame: &Frame) -> Size {
        Size { user_bytes: frame.user_bytes, ops: frame.ops, list_bytes: frame.list_bytes }
    }
}

/// What a thread commits, as the pipeline sees it.
pub(crate) trait Committer {
    /// The latches of all that it validates and writes.
    fn latches(&self) -> LatchSet<'_>;

    /// First committer wins: fails if what it validates was written since it was read, and after `checked`: a call with a
    /// smaller one found no write up to there. With [`Io::MemoryOnly`] it may fail with [`Error::WouldBlock`].
    fn validate(&self, checked: Csn, io: Io) -> Result<()>;

    /// Its deadline: its commit time is before this, in milliseconds since 1970. `u64::MAX`: none.
    fn before_ms(&self) -> u64;

    /// The error of a commit at or after the deadline.
    fn too_late(&self) -> Error;

    /// The commit is applied, and its latches are released: ends what the committer holds, such as its snapshot.
    fn release(self, csn: Csn);
}

impl Engine {
    /// A commit, from step 0 to step 7. `acknowledge` waits for steps 6 and 7, or leaves them to a ticket.
    pub fn commit<C: Committer, A>(
        &self,
        committer: C,
        level: Durability,
        frame: Frame,
        work: Box<dyn Apply>,
        acknowledge: impl FnOnce(Csn) -> Result<A>,
    ) -> Result<A> {
        let size = Size::of(&frame);
        let applied = self.commit_to_memory(&committer, level, frame, work, true); // 0 to 5
        if let Err(Error::Conflict(lost)) = &applied {
            self.wait_for_winner(lost);
        }
        let csn = applied?;
        self.committed(committer, csn, size);
        acknowledge(csn) // 6 durable, 7 acknowledge
    }

    /// Steps 0 to 5 of a commit, without a wait and without a read from disk: where it would need one, returns the committer
    /// and the reason.
    pub fn try_commit<C: Committer>(
        &self,
        committer: C,
        level: Durability,
        frame: Frame,
        work: Box<dyn Apply>,
    ) -> Result<std::result::Result<Csn, (C, Missing)>> {
        let size = Size::of(&frame);
        match self.commit_to_memory(&committer, level, frame, work, false) {
            Ok(csn) => {
                self.committed(committer, csn, size);
                Ok(Ok(csn))
            }
            Err(Error::WouldBlock(missing)) => Ok(Err((committer, missing))),
            Err(error) => {
                if matches!(error, Error::Conflict(_)) {
                    self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    /// Counts a commit that is applied, and ends what its committer holds.
    fn committed(&self, committer: impl Committer, csn: Csn, size: Size) {
        let Size { user_bytes, ops, list_bytes } = size;
        self.counters.user_bytes.add(user_bytes);
        if list_bytes > 0 {
            self.growth.count_list(list_bytes, ops);
        } else {
            self.growth.count_ops(ops);
        }
        committer.release(csn);
        self.wakeups.commit_numbered();
    }

    fn commit_to_memory(
        &self,
        committer: &impl Committer,
        level: Durability,
        mut frame: Frame,
        work: Box<dyn Apply>,
        may_wait: bool,
    ) -> Result<Csn> {
        let latches = committer.latches();
        // Dropping it runs callbacks of tickets. A callback may commit, hence need the latches and the credit that this
        // thread holds. So it is declared before them and dropped after them, also if the commit panics. Nor does a
        // callback run while this thread waits for its admission, where it may be first in line.
        let _quiet = self.pipeline.quiet();
        // 0 admit, 1 validate
        let (admission, held) = if may_wait {
            self.admit_and_validate(committer, &latches, &frame)?
        } else {
            self.try_admit_and_validate(committer, &latches, &frame)?
        };
        self.hooks.reached("validated");
        let read_csn = || self.pipeline.read_csn();
        let (time, beginning) = self.reads.deadlines.begin(committer.before_ms(), || self.now_ms(), read_csn);
        frame.time = time;
        let on_numbered = |csn| {
            if let Some(beginning) = beginning {
                beginning.numbered(csn);
            }
            self.hooks.reached("numbered");
        };
        let csn = self.pipeline.submit(admission, level, &frame, work, on_numbered); // 2 reserve, 3 fill, 4 apply
        drop(held); // 5 unlatch
        csn.ok_or_else(|| committer.too_late())
    }

    /// Takes the latches and validates under them. What is not in memory is read before, without latches or admission: that
    /// checks the commits up to a CSN, so the latched validation needs the tree only for what was merged since then
    /// (INV-TXN-16).
    fn admit_and_validate<'a>(
        &'a self,
        committer: &impl Committer,
        latches: &LatchSet<'a>,
        frame: &Frame,
    ) -> Result<(<Log as CommitLog>::Admission, Held<'a>)> {
        let mut checked = Csn::ZERO;
        for attempt in 0.. {
            let admission = self.pipeline.admit(frame.body.len(), frame.local.len(), true)?;
            self.hooks.reached("admitted");
            let held = self.latches.acquire(latches);
            let io = if attempt < UNLATCHED_READS_MAX { Io::MemoryOnly } else { Io::Impatient };
            match committer.validate(checked, io) {
                Ok(()) => return Ok((admission, held)),
                Err(Error::WouldBlock(_)) => drop((held, admission)),
                Err(error) => return Err(error),
            }
            let visible = self.pipeline.visible();
            committer.validate(checked, Io::Allowed)?;
            self.hooks.reached("validated without latches");
            checked = visible;
        }
        unreachable!("the last attempt reads what it needs")
    }

    /// The same, but [`Error::WouldBlock`] where that would wait or read from disk.
    fn try_admit_and_validate<'a>(
        &'a self,
        committer: &impl Committer,
        latches: &LatchSet<'a>,
        frame: &Frame,
    ) -> Result<(<Log as CommitLog>::Admission, Held<'a>)> {
        let admission = self.pipeline.admit(frame.body.len(), frame.local.len(), false)?;
        let held = self.latches.try_acquire(latches).ok_or(Error::WouldBlock(Missing::Latch))?;
        committer.validate(Csn::ZERO, Io::MemoryOnly)?;
        Ok((admission, held))
    }

    /// INV-TXN-13: without this wait a retry could begin below the winning commit, and lose again. The retry of a
    /// commit that was too late could get a snapshot whose time is held before a deadline (INV-TIME-3), and be too late
    /// again. The commits up to the awaited CSN have numbers and are being filled and applied, so the wait is short.
    #[cold]
    fn wait_for_winner(&self, lost: &Conflict) {
        self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
        let is_late = matches!(lost.on, Contended::Expired(_));
        self.pipeline.wait_visible(if is_late { self.reads.deadlines.newest() } else { lost.csn });
    }
}

/// How often a commit reads what it validates without its latches, before it reads that under these: as often, a merge into
/// one of its tables began after it had begun to read, and ended before it had the latches.
const UNLATCHED_READS_MAX: u32 = 3;

/// The commit ring has room for 8,192 commits that are numbered and not visible: 256 KiB.
const RING_BITS: u32 = 13;

/// Numbers, applies and acknowledges commits.
pub(crate) struct Pipeline<L: CommitLog = Log> {
    log: Arc<L>,
    ring: Ring,
    visible: CachePadded<AtomicU64>,
    numbers: CachePadded<Numbers>,
    /// The newest commit acknowledged at level `Async` or `None`.
    acknowledged: AtomicU64,
    /// How many threads wait for `visible`.
    waiters: AtomicU64,
    waiting: Mutex<()>,
    became_visible: Condvar,
    /// A commit panicked between its number and its end: `visible` will never pass it.
    broken: AtomicBool,
    /// The log is about to close: a commit that gets a number now may never be durable.
    closing: AtomicBool,
    tickets: Tickets,
    watches: Watches,
    stopwatch: Stopwatch,
    following: Following,
    others: Others,
}

/// The newest CSNs given out. A committer enters its CSN after it got it, and before any reader can see the commit.
struct Numbers {
    /// To commits above `Async`.
    synchronous: AtomicU64,
    /// To commits at `Async` and `None`.
    asynchronous: AtomicU64,
}

const BROKEN: &str = "a commit panicked after it was numbered";

/// Guards steps 2 and 3, and the apply of step 4. A commit that gets through forgets it (`mem::forget`); a panic drops
/// it, which breaks the pipeline and poisons the log (INV-TXN-3).
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
    /// A pipeline over an open log; `last` is the newest recovered commit. In a replicated log committers wait so long for a quorum.
    pub fn new(log: Arc<L>, last: Csn, stopwatch: Stopwatch, quorum_wait: Duration) -> Arc<Pipeline<L>> {
        Pipeline::with_ring(log, last, stopwatch, RING_BITS, quorum_wait)
    }

    /// Has the memory of open tickets counted.
    pub fn count_tickets_in(&self, memory: Arc<MemoryCharge>) {
        self.others.count_in(&memory);
        self.tickets.count_in(memory);
    }

    /// A pipeline with room for `1 << ring_bits` commits that are numbered and not visible.
    fn with_ring(
        log: Arc<L>,
        last: Csn,
        stopwatch: Stopwatch,
        ring_bits: u32,
        quorum_wait: Duration,
    ) -> Arc<Pipeline<L>> {
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
            watches: Watches::new(),
            stopwatch,
            following: Following::new(quorum_wait),
            others: Others::new(),
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

    /// The newest CSN up to which all commits are synced by a flush of the device.
    pub fn floor(&self) -> Csn {
        self.log.synced_csn()
    }

    /// The newest commit above level `Async` whose number is entered. Read after a snapshot was taken, it is at or
    /// above all such commits that the snapshot sees.
    pub fn newest_synchronous(&self) -> Csn {
        Csn(self.numbers.synchronous.load(Ordering::SeqCst))
    }

    /// The newest commit, of any level, whose number is entered. Every submitted commit is at or below it.
    pub fn newest(&self) -> Csn {
        let Numbers { synchronous, asynchronous } = &*self.numbers;
        Csn(synchronous.load(Ordering::SeqCst).max(asynchronous.load(Ordering::SeqCst)))
    }

    /// The CSN up to which commits above `Async` may be acknowledged: they are visible and stable.
    fn acknowledgeable(&self) -> Csn {
        self.visible().min(self.stable())
    }

    /// The CSN at which reads begin whose results may leave the process (INV-TXN-6): it never falls, is never above
    /// `visible`, and never below the horizon.
    pub fn read_csn(&self) -> Csn {
        let acknowledged = Csn(self.acknowledged.load(Ordering::SeqCst));
        debug_assert!(acknowledged <= self.visible(), "INV-TXN-6: acknowledged before it is visible");
        self.acknowledgeable().max(acknowledged)
    }

    /// Merging, pruning, writing out and checkpoints take commits at or below it only.
    pub fn horizon(&self) -> Csn {
        self.visible().min(self.floor())
    }

    /// Step 0. `blocking` false gives `WouldBlock` instead of a wait.
    pub fn admit(&self, body_len: usize, chunks: usize, blocking: bool) -> Result<L::Admission> {
        self.check_leads()?;
        if !self.log.has_quorum() {
            self.wait_for_quorum(blocking)?;
        }
        self.wait_for_room(blocking)?;
        let frame = frame_bytes(u32::try_from(body_len).expect("a body fits a frame"));
        let local = local_record_bytes(u16::try_from(chunks).expect("a frame names few chunks"));
        let admitted =
            if blocking { self.log.admit(frame, local).map(Some) } else { self.log.try_admit(frame, local) };
        if matches!(admitted, Ok(None)) {
            // No thread may wait for the commits that take the room.
            self.log.request_durable(self.newest());
        }
        admitted.map_err(|error| self.refused(error))?.ok_or(Error::WouldBlock(Missing::Room))
    }

    /// Waits until at most half of the commit ring is taken (INV-TXN-7). While an owner is descheduled, `visible` stops
    /// and others may number thousands of commits.
    fn wait_for_room(&self, blocking: bool) -> Result<()> {
        loop {
            let Numbers { synchronous, asynchronous } = &*self.numbers;
            let newest = synchronous.load(Ordering::Relaxed).max(asynchronous.load(Ordering::Relaxed));
            let free_from = newest.saturating_sub(self.ring.len() / 2);
            if self.visible().0 >= free_from {
                return Ok(());
            }
            if !blocking {
                return Err(Error::WouldBlock(Missing::Room));
            }
            if !self.wait_visible(Csn(free_from)) {
                return Err(Error::Poisoned { what: BROKEN.to_string(), at_risk: self.at_risk() });
            }
        }
    }

    /// Steps 2 to 4. The caller holds the latches, has validated, and is [`Pipeline::quiet`] until it has released the
    /// latches. Calls `on_numbered` as soon as the commit has its number. `None` if its time would have been too late:
    /// nothing happened.
    pub fn submit(
        &self,
        admission: L::Admission,
        level: Durability,
        frame: &Frame,
        apply: Box<dyn Apply>,
        on_numbered: impl FnOnce(Csn),
    ) -> Option<Csn> {
        let unfinished = Unfinished(self);
        if frame.after_bulk > BulkPosition::default() {
            self.log.require_bulk(frame.after_bulk);
        }
        let Some(reservation) = self.log.reserve_at(admission, level, frame.time) else {
            std::mem::forget(unfinished);
            return None;
        };
        let numbers = L::numbers(&reservation);
        let csn = numbers.csn;
        on_numbered(csn);
        let newest = if level.waits() && !frame.is_local {
            &self.numbers.synchronous
        } else {
            &self.numbers.asynchronous
        };
        newest.fetch_max(csn.0, Ordering::SeqCst);
        let is_published = self.publish(csn, Work { apply, body_lsn: numbers.body_lsn });
        let header = FrameHeader {
            kind: frame.kind,
            flags: 0,
            codec: 0,
            body_bytes: frame.body.len() as u32,
            csn,
            term: 0,
            commit_time_ms: numbers.time_ms,
            body_crc: frame.body_crc,
        };
        self.log.fill(reservation, &header, &frame.body, &frame.local);
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

    /// Puts a commit's work into its ring slot, where the thread that raises `durable` finds it. The owner calls this
    /// before it fills the frame, hence before the commit can be durable. False if the pipeline is broken: the slot may
    /// never become free, and the commit never becomes visible.
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

    /// Applies a published commit unless another thread does or has done so (INV-TXN-4).
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

    /// Called after moving `visible` (INV-TXN-9).
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

    /// The log's observer: applies the durable commits that no thread has claimed (INV-TXN-4). All of them are
    /// published, unless the pipeline is broken.
    fn durable_rose(&self, durable: Csn) {
        if self.is_following() {
            return self.applier().wake_asleep();
        }
        // This thread leads a flush, or holds the sync lock.
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
