//! The default scheme: one direct, data-synchronous write of all filled groups, by one leader at a time.
//!
//! Election, gathering and sleeping are here. The flush itself is the [`FlushTarget`]'s, in tests a counter.

use crate::durability::Waiting;
use crate::error::LogError;
use crate::shared::Shared;
use crate::stats::add;
use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;
use fulgurite_types::sync::{AtomicBool, AtomicU32, spin_loop, yield_now};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Bounds on delaying a write so that other commits can join it. The delay is at most one write's time, this time, and
/// this many turns.
pub(super) const GATHER_NS: u64 = 60_000;
pub(super) const GATHER_TURNS: u32 = 256;

/// After so many gatherings in a row that did not fill up, the next [`GATHER_PAUSE`] writes do not gather.
const GATHER_MISSES: u32 = 8;
const GATHER_PAUSE: u32 = 256;

/// Staying awake pays from this many waiters on. Fewer leave the processor idle, and sleep at no cost.
const AWAKE_MIN: u32 = if cfg!(feature = "shuttle") { 2 } else { 16 };
/// How often a waiter yields before it sleeps, at most.
const AWAKE_TURNS: u32 = if cfg!(feature = "shuttle") { 2 } else { 20 };

/// How often a waiter looks for the end of a flush that is a copy in memory, before it sleeps.
const QUICK_TURNS: u32 = if cfg!(feature = "shuttle") { 2 } else { 128 };

/// A yield that takes longer than this gave the processor to a thread that keeps it: a miss. A miss adds 4 to
/// `awake_misses`, a quick yield takes 1 off. A miss at [`AWAKE_MISSES`] or more makes all waiters sleep at once for
/// the next [`AWAKE_PAUSE`] waits.
const LOST_NS: u64 = 2_000_000;
const AWAKE_MISSES: u32 = 96;
const AWAKE_PAUSE: u32 = 8 * 1024;

/// The commits that a leader makes durable.
pub(crate) trait FlushTarget {
    /// The newest commit that a flush has covered: durable, or staged.
    fn flushed_csn(&self) -> Csn;

    /// Whether a flush is a copy in memory, for which no thread has to sleep and which need not be shared.
    fn is_quick(&self) -> bool {
        false
    }

    /// Fails if the commit was never reserved.
    fn check_reserved(&self, csn: Csn) -> Result<(), LogError>;

    /// Takes, writes and flushes what is filled; with `barrier` the device is flushed, whatever the groups' levels.
    /// False if there was nothing to do. One call at a time.
    fn flush_filled(&self, barrier: bool) -> Result<bool, LogError>;
}

/// Group commit with one leader at a time.
///
/// 1. A committer that finds no leader becomes the leader: nothing is handed over and no thread is woken, so a lone
///    committer pays for the write and nothing else.
/// 2. If several threads waited when the last write ended, the leader yields, for a bounded time, until as many wait
///    again. They are on their way, and a group of half the threads costs as much as one of all.
/// 3. It flushes ([`FlushTarget::flush_filled`]): closes the open group, takes the filled groups, writes those of a
///    segment with one call, raises `durable`.
/// 4. It clears `is_led`, wakes one waiter that the writes did not cover (the next leader), then those that they did,
///    up to 32 per system call. It wakes no other thread, except one that shares a bit (`parking.rs`).
/// 5. It calls the completer, if `durable` rose.
///
/// INV-LOG-6: one leader at a time. A thread leads if its swap of `is_led` found false, and only the leader stores
/// false.
///
/// INV-LOG-14: while a commit waits, there is a leader or a waiter that is awake. A waiter sets its bit, then re-reads
/// `is_led`. A leader clears `is_led`, then reads the bits. So either the waiter finds no leader and stays awake, or
/// the leader finds the bit and wakes a waiter. That waiter leads, or finds its commit durable: then another thread has
/// led meanwhile, and wakes the next itself. A woken thread that neither leads nor knows that another did, because it
/// shares a bit or waits for a flush alone, wakes the next waiter. Without all that, a commit that no write covered
/// could sleep with no thread to flush it.
///
/// Why not simpler? With a mutex in place of `is_led`, every waiter would take it just to learn that its commit is
/// durable. With a dedicated writing thread, a lone committer would pay two context switches per commit.
pub(crate) struct Leader {
    shared: Arc<Shared>,
    is_led: CachePadded<AtomicBool>,
    /// Threads in [`Leader::wait`].
    waiting: CachePadded<AtomicU32>,
    /// The value of `waiting` when the last leader handed over.
    expected: AtomicU32,
    misses: AtomicU32,
    pause: AtomicU32,
    awake_misses: AtomicU32,
    awake_pause: AtomicU32,
    /// A thread wants a flush of the device, whatever the groups' levels: the next leader causes it.
    barrier_wanted: AtomicBool,
}

/// One more thread waits, until this is dropped.
struct InLine<'a>(&'a AtomicU32);

impl<'a> InLine<'a> {
    fn new(waiting: &'a AtomicU32) -> InLine<'a> {
        waiting.fetch_add(1, SeqCst);
        InLine(waiting)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Leadership: dropping it lets the next thread lead.
struct Leadership<'a, T: FlushTarget> {
    leader: &'a Leader,
    target: &'a T,
    before: Csn,
}

impl<T: FlushTarget> Drop for Leadership<'_, T> {
    fn drop(&mut self) {
        let Leadership { leader, target, before } = self;
        leader.expected.store(leader.waiting.load(Relaxed), Relaxed);
        leader.is_led.store(false, SeqCst);
        leader.wake_next(target.flushed_csn());
        let woken = leader.shared.parking.wake_range(*before, target.flushed_csn());
        add(&leader.shared.stats.wakes, woken);
    }
}

/// Looks again and again until `is_over`, then yields a few times. Returns whether it is over.
fn spin(is_over: impl Fn() -> bool) -> bool {
    for turn in 0..QUICK_TURNS {
        if is_over() {
            return true;
        }
        if turn < QUICK_TURNS / 2 { spin_loop() } else { yield_now() }
    }
    false
}

impl Leader {
    pub fn new(shared: Arc<Shared>) -> Leader {
        Leader {
            shared,
            is_led: CachePadded::default(),
            waiting: CachePadded::default(),
            expected: AtomicU32::new(0),
            misses: AtomicU32::new(0),
            pause: AtomicU32::new(0),
            awake_misses: AtomicU32::new(0),
            awake_pause: AtomicU32::new(0),
            barrier_wanted: AtomicBool::new(false),
        }
    }

    /// Makes `csn` durable, or waits for the leader that does.
    pub fn wait(&self, target: &impl FlushTarget, csn: Csn) -> Result<(), LogError> {
        let _in_line = InLine::new(&self.waiting);
        let mut waits_since = None;
        while target.flushed_csn() < csn {
            self.shared.poison.check()?;
            if !self.is_led.swap(true, SeqCst) {
                match self.lead(target) {
                    Ok(false) if target.flushed_csn() < csn => target.check_reserved(csn)?,
                    // Another leader may have made it durable before this thread led.
                    Err(error) if target.flushed_csn() < csn => return Err(error),
                    _ => {}
                }
            } else {
                waits_since.get_or_insert_with(|| self.shared.now_ns());
                self.pause(target, csn);
            }
        }
        if let Some(start_ns) = waits_since {
            if self.shared.parking.is_shared(csn) {
                self.pass_on(target);
            }
            add(&self.shared.stats.flush_waits, 1);
            add(&self.shared.stats.flush_wait_ns, self.shared.now_ns().saturating_sub(start_ns));
        }
        Ok(())
    }

    /// Leads a flush, or waits for the leader. With `barrier` the device is flushed, whatever the groups' levels: if
    /// another thread leads, by the next leader. False if there was nothing to do.
    pub fn flush(&self, target: &impl FlushTarget, barrier: bool) -> Result<bool, LogError> {
        if barrier {
            self.barrier_wanted.store(true, SeqCst);
        }
        if !self.is_led.swap(true, SeqCst) {
            return self.lead(target);
        }
        let durable = target.flushed_csn();
        let poison = &self.shared.poison;
        let is_over = || target.flushed_csn() > durable || !self.is_led.load(SeqCst) || poison.is_set();
        self.shared.parking.park(durable.next(), is_over);
        poison.check()?;
        self.pass_on(target);
        Ok(true)
    }

    /// Leads a flush unless another thread leads. True if it wrote something.
    pub fn try_flush(&self, target: &impl FlushTarget) -> Result<bool, LogError> {
        if self.is_led.swap(true, SeqCst) { Ok(false) } else { self.lead_now(target, false) }
    }

    /// Wakes one waiter that no write covered.
    fn wake_next(&self, durable: Csn) {
        add(&self.shared.stats.wakes, self.shared.parking.wake_first(durable));
    }

    /// Wakes another waiter: this thread may have been woken to lead next, and does not.
    fn pass_on(&self, target: &impl FlushTarget) {
        if !self.is_led.load(SeqCst) {
            self.wake_next(target.flushed_csn());
        }
    }

    /// Leads one flush; the caller has just become the leader. False if there was nothing to write.
    fn lead(&self, target: &impl FlushTarget) -> Result<bool, LogError> {
        self.lead_now(target, true)
    }

    fn lead_now(&self, target: &impl FlushTarget, gathers: bool) -> Result<bool, LogError> {
        let before = target.flushed_csn();
        let leadership = Leadership { leader: self, target, before };
        // Declared after the leadership, hence dropped first: after a panic the log is poisoned before another thread
        // leads.
        let flushing = self.shared.flushing();
        add(&self.shared.stats.sync_locks, 1);
        if gathers && !target.is_quick() {
            self.gather();
        }
        let barrier = self.barrier_wanted.swap(false, SeqCst);
        let result = target.flush_filled(barrier);
        add(&self.shared.stats.requests_completed, target.flushed_csn().0 - before.0);
        flushing.end();
        drop(leadership);
        // Also after an error: groups written before it may be durable.
        if target.flushed_csn() > before {
            self.shared.call_completer();
        }
        result
    }

    /// Yields, for a bounded time, until as many threads wait as when the last write ended.
    fn gather(&self) {
        let expected = self.expected.load(Relaxed);
        if expected < 2 || self.waiting.load(Relaxed) >= expected {
            return;
        }
        if self.pause.load(Relaxed) > 0 {
            self.pause.fetch_sub(1, Relaxed);
            return;
        }
        let end_ns = self.shared.now_ns() + self.shared.io.average_ns().min(GATHER_NS);
        for _ in 0..GATHER_TURNS {
            yield_now();
            if self.waiting.load(Relaxed) >= expected {
                self.misses.store(0, Relaxed);
                return;
            }
            if self.shared.now_ns() >= end_ns {
                break;
            }
        }
        if self.misses.fetch_add(1, Relaxed) + 1 >= GATHER_MISSES {
            self.misses.store(0, Relaxed);
            self.pause.store(GATHER_PAUSE, Relaxed);
        }
    }

    /// Waits for a change: yields for a while, then sleeps.
    fn pause(&self, target: &impl FlushTarget, csn: Csn) {
        let poison = &self.shared.poison;
        let is_over = || target.flushed_csn() >= csn || !self.is_led.load(SeqCst) || poison.is_set();
        if target.is_quick() && spin(is_over) {
            return;
        }
        if self.shared.options.waiting == Waiting::SpinThenBlock && self.stay_awake(is_over) {
            return;
        }
        add(&self.shared.stats.parks, u64::from(self.shared.parking.park(csn, is_over)));
    }

    /// Yields until `is_over`, at most [`AWAKE_TURNS`] times, and at most for the average time of two writes: the one
    /// in flight and the next. Returns whether it is over.
    fn stay_awake(&self, is_over: impl Fn() -> bool) -> bool {
        if self.waiting.load(Relaxed) < AWAKE_MIN {
            return false;
        }
        if self.awake_pause.load(Relaxed) > 0 {
            self.awake_pause.fetch_sub(1, Relaxed);
            return false;
        }
        let mut now_ns = self.shared.now_ns();
        let end_ns = now_ns + 2 * self.shared.io.average_ns();
        for _ in 0..AWAKE_TURNS {
            let before_ns = now_ns;
            yield_now();
            now_ns = self.shared.now_ns();
            self.count_turn(now_ns.saturating_sub(before_ns));
            if is_over() {
                return true;
            }
            if now_ns >= end_ns {
                break;
            }
        }
        false
    }

    /// Counts a yield that took `ns`.
    fn count_turn(&self, ns: u64) {
        let misses = self.awake_misses.load(Relaxed);
        if ns <= LOST_NS {
            if misses > 0 {
                self.awake_misses.store(misses - 1, Relaxed);
            }
        } else if misses >= AWAKE_MISSES {
            self.awake_misses.store(0, Relaxed);
            self.awake_pause.store(AWAKE_PAUSE, Relaxed);
        } else {
            self.awake_misses.store(misses + 4, Relaxed);
        }
    }
}
