//! Open loops: operations that are due at fixed times, whether or not the ones before have ended.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fulgurite::env::Clock;
use serde::{Deserialize, Serialize};

use crate::measurement::{Limit, Load};

/// How many operations a second the threads of a run are to do together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// As many as they can: each thread begins an operation when its last one has ended.
    Max,
    /// This many, at fixed times.
    PerSecond(f64),
    /// This share of the warm-up's rate, at fixed times. In the warm-up they do as many as they can.
    Share(f64),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Max => f.write_str("as many as the threads can do"),
            Rate::PerSecond(rate) => write!(f, "{rate} operations a second"),
            Rate::Share(share) => write!(f, "{share} of the rate of the warm-up"),
        }
    }
}

/// Runs whose figures are kept for each second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// The rate.
    pub rate: Rate,
    /// How often a thread asks the engine about its checkpoints; `None`: never.
    pub ask_every: Option<Duration>,
    /// Whether a thread makes durable writes of 4 KiB to a file beside the store meanwhile.
    pub bare_device: bool,
}

/// The least rate: the longest wait is then shorter than any patience.
const PER_SECOND_MIN: f64 = 0.1;
/// After the limit the threads have this long to do what was due before it.
pub(crate) const CATCH_UP: Duration = Duration::from_secs(10);
/// A thread that waits asks this often whether the run has been stopped.
const LOOK: Duration = Duration::from_millis(100);

/// The operations of an open loop, which its threads take in turn: a thread that is delayed delays only its own.
pub(crate) struct Schedule {
    began_ns: u64,
    /// Operations a second.
    pub rate: f64,
    /// How many are due before the limit; [`u64::MAX`] if it is the clients that end.
    count: u64,
    /// When the threads no longer try to catch up.
    end_ns: u64,
    next: AtomicU64,
}

impl Schedule {
    /// The first operation is due at `began_ns`.
    pub fn new(began_ns: u64, rate: f64, load: &Load) -> Schedule {
        let rate = rate.max(PER_SECOND_MIN);
        let (count, end_ns) = match load.limit {
            Limit::Operations(each) => (each.saturating_mul(load.threads.into()), u64::MAX),
            Limit::Time(time) => {
                ((time.as_secs_f64() * rate).ceil() as u64, began_ns + (time + CATCH_UP).as_nanos() as u64)
            }
            Limit::Work | Limit::WorkWithin(_) => (u64::MAX, u64::MAX),
        };
        Schedule { began_ns, rate, count, end_ns, next: AtomicU64::new(0) }
    }

    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// How many were due before the limit and are not among the first `operations`.
    pub fn left_after(&self, operations: u64) -> u64 {
        if self.count == u64::MAX { 0 } else { self.count.saturating_sub(operations) }
    }

    /// Takes the next operation, waits until it is due, and returns when that was. `None` if there are no more, if it is
    /// too late to catch up, or if the run was stopped.
    pub fn take(&self, clock: &dyn Clock, stopped: impl Fn() -> bool) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.count {
            return None;
        }
        let due_ns = self.began_ns + (number as f64 * 1e9 / self.rate) as u64;
        wait_until(clock, due_ns, || stopped() || clock.monotonic_ns() >= self.end_ns).then_some(due_ns)
    }
}

/// Sleeps until `due_ns`; false if the thread was stopped before, or is by now.
pub(crate) fn wait_until(clock: &dyn Clock, due_ns: u64, stopped: impl Fn() -> bool) -> bool {
    loop {
        if stopped() {
            return false;
        }
        let now_ns = clock.monotonic_ns();
        if now_ns >= due_ns {
            return true;
        }
        clock.sleep(LOOK.min(Duration::from_nanos(due_ns - now_ns)));
    }
}

/// Makes the kernel wake this thread when its sleep is over; otherwise it may be 50 us late.
pub(crate) fn sleep_exactly() {
    // Without it waits are a little longer, and so are all latencies.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use fulgurite::env::{Env, RealEnv};

    use super::*;

    fn schedule(rate: f64, limit: Limit, began_ns: u64) -> Schedule {
        Schedule::new(began_ns, rate, &Load::closed(2, limit))
    }

    #[test]
    fn operations_are_due_at_even_times() {
        let env = RealEnv::new();
        let began_ns = env.clock().monotonic_ns();
        let schedule = schedule(100.0, Limit::Time(Duration::from_millis(25)), began_ns);
        let due: Vec<u64> = std::iter::from_fn(|| schedule.take(env.clock(), || false)).collect();
        assert_eq!(due, [0, 10_000_000, 20_000_000].map(|ns| began_ns + ns));
        assert!(env.clock().monotonic_ns() - began_ns >= 20_000_000, "it waits for them");
    }

    #[test]
    fn a_limit_of_operations_is_that_of_each_thread() {
        let env = RealEnv::new();
        let schedule = schedule(1e6, Limit::Operations(5), env.clock().monotonic_ns());
        assert_eq!(std::iter::from_fn(|| schedule.take(env.clock(), || false)).count(), 10);
    }

    #[test]
    fn what_is_due_is_done_late_but_not_for_ever() {
        let env = RealEnv::new();
        let late_ns = env.clock().monotonic_ns() - 9_000_000_000;
        let behind = schedule(10.0, Limit::Time(Duration::from_secs(1)), late_ns);
        assert_eq!(std::iter::from_fn(|| behind.take(env.clock(), || false)).count(), 10);
        assert_eq!([behind.left_after(10), behind.left_after(7)], [0, 3]);
        let too_late_ns = late_ns - 3_000_000_000;
        let too_late = schedule(10.0, Limit::Time(Duration::from_secs(1)), too_late_ns);
        assert_eq!(too_late.take(env.clock(), || false), None);
    }

    #[test]
    fn a_thread_that_waits_can_be_stopped() {
        let env = RealEnv::new();
        let schedule = schedule(0.0, Limit::Work, env.clock().monotonic_ns());
        assert!(schedule.take(env.clock(), || false).is_some());
        let since_ns = env.clock().monotonic_ns();
        let stopped = || env.clock().monotonic_ns() - since_ns > 1_000_000;
        assert_eq!(schedule.take(env.clock(), stopped), None, "the next one is due in ten seconds");
        assert_eq!(schedule.left_after(1), 0, "it has no end");
    }
}
