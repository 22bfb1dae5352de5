//! The default: one direct, data-synchronous write of all that is filled, led by whoever finds nobody leading.

use super::{GATHER_NS, GATHER_TURNS, Scheme};
use crate::core::Core;
use crate::durability::Waiting;
use crate::error::LogError;
use crate::stats::add;
use crate::sync::{AtomicBool, AtomicU32, yield_now};
use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// After so many gatherings in a row that waited in vain, none for [`GATHER_PAUSE`] writes.
const GATHER_MISSES: u32 = 8;
const GATHER_PAUSE: u32 = 256;

/// From how many waiting threads on it pays to stay awake: fewer leave the processor idle, and sleep at no cost.
const AWAKE_MIN: u32 = if cfg!(feature = "shuttle") { 2 } else { 16 };
/// How often a waiting thread gives the processor away before it sleeps, at most.
const AWAKE_TURNS: u32 = if cfg!(feature = "shuttle") { 2 } else { 20 };

/// A thread that gave the processor away and did not have it back for so long gave it to somebody who keeps it. Such a turn
/// counts as four that came back soon; once they are ahead by [`AWAKE_MISSES`], everybody sleeps for the next
/// [`AWAKE_PAUSE`] waits.
const LOST_NS: u64 = 2_000_000;
const AWAKE_MISSES: u32 = 96;
const AWAKE_PAUSE: u32 = 8 * 1024;

/// Flushing with one leader at a time.
///
/// 1. Whoever waits for durability and finds nobody leading leads: no thread is woken, nothing is handed over. With one
///    committing thread that is all there is.
/// 2. If the last write acknowledged many, the leader waits for them to come back first, yielding, for a bounded time:
///    they are on their way, and a group of half the threads costs as much as one of all.
/// 3. It closes the open group, takes all that is filled, and writes it with one call that returns when the data is
///    durable ([`crate::write`]).
/// 4. It raises `durable`, lets go of the leadership, wakes one that it did not cover, who leads next, and then those
///    that it did, 32 with a call. Nobody else is woken, and nobody twice.
///
/// INV-LOG-6: one leader at a time. INV-LOG-14: a waiting commit has a leader, or a thread that is awake. Who sleeps
/// marks itself, then looks whether somebody leads; who stops leading says so, then looks for marks.
///
/// Why not simpler: with a lock in place of the leadership everybody whom a write acknowledged would have to take it to
/// learn that; with a thread of its own for writing, one committer alone would pay two switches a commit.
#[derive(Default)]
pub(super) struct Combined {
    is_led: CachePadded<AtomicBool>,
    /// Threads in `wait`.
    waiting: CachePadded<AtomicU32>,
    /// How many there were when the last write ended.
    expected: AtomicU32,
    misses: AtomicU32,
    pause: AtomicU32,
    awake_misses: AtomicU32,
    awake_pause: AtomicU32,
    /// Somebody waits for a flush of the device, whatever the levels of what is written: the next leader sees to it.
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
                    // Somebody else may have made it durable while this thread went to lead.
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

/// Leadership: dropping it lets the next one lead.
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
    /// Wakes one that no write covered.
    fn wake_next(&self, core: &Core) {
        add(&core.stats.wakes, core.parking.wake_first(core.durable_csn()));
    }

    /// This thread may have been woken to lead next, and does not.
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
            // Inside of the leadership: after a panic the log is poisoned before another thread leads.
            core.flushing(|| {
                add(&core.stats.sync_locks, 1);
                self.gather(core);
                let barrier = self.barrier_wanted.swap(false, SeqCst);
                let result = core.write_combined(&mut core.writer.lock(), barrier);
                add(&core.stats.requests_completed, core.durable_csn().0 - before.0);
                result
            })
        };
        // Also after an error: what was written before it may be durable.
        core.complete(before);
        result
    }

    /// Waits, for a bounded time, until as many wait as did when the last write ended.
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

    /// Waits for a change: gives the processor away for a while, then sleeps.
    fn pause(&self, core: &Core, csn: Csn) {
        let is_over = || core.durable_csn() >= csn || !self.is_led.load(SeqCst) || core.poison.is_set();
        if core.options.waiting == Waiting::SpinThenBlock && self.stay_awake(core, is_over) {
            return;
        }
        add(&core.stats.parks, u64::from(core.parking.park(csn, is_over)));
    }

    /// Gives the processor away until `is_over`, or for as long as the write that is in flight has most likely left, and
    /// the one after it. Whether it is over.
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

    /// A turn came back after `ns`.
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
