//! The default scheme: one direct, data-synchronous write of all filled groups, by one leader at a time.

use super::{GATHER_NS, GATHER_TURNS, Scheme};
use crate::core::Core;
use crate::durability::Waiting;
use crate::error::LogError;
use crate::stats::add;
use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;
use fulgurite_types::sync::{AtomicBool, AtomicU32, yield_now};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// After so many gatherings in a row that did not fill up, the next [`GATHER_PAUSE`] writes do not gather.
const GATHER_MISSES: u32 = 8;
const GATHER_PAUSE: u32 = 256;

/// Staying awake pays from this many waiters on. Fewer leave the processor idle, and sleep at no cost.
const AWAKE_MIN: u32 = if cfg!(feature = "shuttle") { 2 } else { 16 };
/// How often a waiter yields before it sleeps, at most.
const AWAKE_TURNS: u32 = if cfg!(feature = "shuttle") { 2 } else { 20 };

/// A yield that takes longer than this gave the processor to a thread that keeps it: a miss. A miss adds 4 to
/// `awake_misses`, a quick yield takes 1 off. A miss at [`AWAKE_MISSES`] or more makes all waiters sleep at once for
/// the next [`AWAKE_PAUSE`] waits.
const LOST_NS: u64 = 2_000_000;
const AWAKE_MISSES: u32 = 96;
const AWAKE_PAUSE: u32 = 8 * 1024;

/// Group commit with one leader at a time.
///
/// 1. A committer that finds no leader becomes the leader: nothing is handed over and no thread is woken, so a lone
///    committer pays for the write and nothing else.
/// 2. If several threads waited when the last write ended, the leader yields, for a bounded time, until as many wait
///    again. They are on their way, and a group of half the threads costs as much as one of all.
/// 3. It closes the open group, takes all filled groups, and writes them with one call that returns when the data is
///    durable ([`crate::write`]).
/// 4. It advances `durable`, clears `is_led`, wakes one waiter that the write did not cover (the next leader), then
///    those that it did, 32 per system call. It wakes no other thread, and none twice.
///
/// INV-LOG-6: one leader at a time. INV-LOG-14: while a commit waits, there is a leader or a waiter that is awake. A
/// waiter sets its bit, then re-reads `is_led`. A leader clears `is_led`, then reads the bits. So either the waiter
/// finds no leader and stays awake, or the leader finds the bit and wakes a waiter. Without that, a commit that
/// no write covered could sleep with no thread to flush it.
///
/// Why not simpler? With a mutex in place of `is_led`, every waiter would take it just to learn that its commit is
/// durable. With a dedicated writing thread, a lone committer would pay two context switches per commit.
#[derive(Default)]
pub(super) struct Combined {
    is_led: CachePadded<AtomicBool>,
    /// Threads in `wait`.
    waiting: CachePadded<AtomicU32>,
    /// The value of `waiting` when the last write ended.
    expected: AtomicU32,
    misses: AtomicU32,
    pause: AtomicU32,
    awake_misses: AtomicU32,
    awake_pause: AtomicU32,
    /// A thread waits for a flush of the device, whatever the groups' levels: the next leader flushes it.
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

impl Scheme for Combined {
    fn wait(&self, core: &Core, csn: Csn) -> Result<(), LogError> {
        let _in_line = InLine::new(&self.waiting);
        let mut waits_since = None;
        while core.durable_csn() < csn {
            core.poison.check()?;
            if !self.is_led.swap(true, SeqCst) {
                match self.lead(core) {
                    Ok(false) if core.durable_csn() < csn => core.check_reserved(csn)?,
                    // Another leader may have made it durable before this thread led.
                    Err(error) if core.durable_csn() < csn => return Err(error),
                    _ => {}
                }
            } else {
                waits_since.get_or_insert_with(|| core.env.clock().monotonic_ns());
                self.pause(core, csn);
            }
        }
        if let Some(start) = waits_since {
            if core.parking.is_shared(csn) {
                self.pass_on(core);
            }
            add(&core.stats.flush_waits, 1);
            add(&core.stats.flush_wait_ns, core.env.clock().monotonic_ns().saturating_sub(start));
        }
        Ok(())
    }

    fn flush(&self, core: &Core, barrier: bool) -> Result<bool, LogError> {
        if barrier {
            self.barrier_wanted.store(true, SeqCst);
        }
        if !self.is_led.swap(true, SeqCst) {
            return self.lead(core);
        }
        let durable = core.durable_csn();
        let is_over = || core.durable_csn() > durable || !self.is_led.load(SeqCst) || core.poison.is_set();
        core.parking.park(durable.next(), is_over);
        core.poison.check()?;
        self.pass_on(core);
        Ok(true)
    }
}

/// Leadership: dropping it lets the next thread lead.
struct Leadership<'a> {
    scheme: &'a Combined,
    core: &'a Core,
    before: Csn,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let Leadership { scheme, core, before } = self;
        scheme.expected.store(scheme.waiting.load(Relaxed), Relaxed);
        scheme.is_led.store(false, SeqCst);
        scheme.wake_next(core);
        core.wake_durable(*before);
    }
}

impl Combined {
    /// Wakes one waiter that no write covered.
    fn wake_next(&self, core: &Core) {
        add(&core.stats.wakes, core.parking.wake_first(core.durable_csn()));
    }

    /// Wakes another waiter: this thread may have been woken to lead next, and does not.
    fn pass_on(&self, core: &Core) {
        if !self.is_led.load(SeqCst) {
            self.wake_next(core);
        }
    }

    /// Leads one flush; the caller has just become the leader. False if there was nothing to write.
    fn lead(&self, core: &Core) -> Result<bool, LogError> {
        let before = core.durable_csn();
        let result = {
            let _leadership = Leadership { scheme: self, core, before };
            // Inside the leadership: after a panic the log is poisoned before another thread leads.
            core.flushing(|| {
                add(&core.stats.sync_locks, 1);
                self.gather(core);
                let barrier = self.barrier_wanted.swap(false, SeqCst);
                let result = core.write_combined(&mut core.writer.lock(), barrier);
                add(&core.stats.requests_completed, core.durable_csn().0 - before.0);
                result
            })
        };
        // Also after an error: groups written before it may be durable.
        core.complete(before);
        result
    }

    /// Yields, for a bounded time, until as many threads wait as when the last write ended.
    fn gather(&self, core: &Core) {
        let expected = self.expected.load(Relaxed);
        if expected < 2 || self.waiting.load(Relaxed) >= expected {
            return;
        }
        if self.pause.load(Relaxed) > 0 {
            self.pause.fetch_sub(1, Relaxed);
            return;
        }
        let clock = core.env.clock();
        let end = clock.monotonic_ns() + core.watermarks.io_ns.load(Relaxed).min(GATHER_NS);
        for _ in 0..GATHER_TURNS {
            yield_now();
            if self.waiting.load(Relaxed) >= expected {
                self.misses.store(0, Relaxed);
                return;
            }
            if clock.monotonic_ns() >= end {
                break;
            }
        }
        if self.misses.fetch_add(1, Relaxed) + 1 >= GATHER_MISSES {
            self.misses.store(0, Relaxed);
            self.pause.store(GATHER_PAUSE, Relaxed);
        }
    }

    /// Waits for a change: yields for a while, then sleeps.
    fn pause(&self, core: &Core, csn: Csn) {
        let is_over = || core.durable_csn() >= csn || !self.is_led.load(SeqCst) || core.poison.is_set();
        if core.options.waiting == Waiting::SpinThenBlock && self.stay_awake(core, is_over) {
            return;
        }
        add(&core.stats.parks, u64::from(core.parking.park(csn, is_over)));
    }

    /// Yields until `is_over`, at most for the average time of two writes: the one in flight and the next. Returns
    /// whether it is over.
    fn stay_awake(&self, core: &Core, is_over: impl Fn() -> bool) -> bool {
        if self.waiting.load(Relaxed) < AWAKE_MIN {
            return false;
        }
        if self.awake_pause.load(Relaxed) > 0 {
            self.awake_pause.fetch_sub(1, Relaxed);
            return false;
        }
        let clock = core.env.clock();
        let mut now = clock.monotonic_ns();
        let end = now + 2 * core.watermarks.io_ns.load(Relaxed);
        for _ in 0..AWAKE_TURNS {
            let before = now;
            yield_now();
            now = clock.monotonic_ns();
            self.count_turn(now.saturating_sub(before));
            if is_over() {
                return true;
            }
            if now >= end {
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
