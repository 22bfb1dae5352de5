//! The machine's clocks.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::Clock;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RealClock;

impl Clock for RealClock {
    fn wall_ms(&self) -> u64 {
        let (seconds, nanoseconds) = seconds_and_nanoseconds(clock_gettime(ClockId::Realtime));
        seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000)
    }

    fn monotonic_ns(&self) -> u64 {
        let (seconds, nanoseconds) = seconds_and_nanoseconds(clock_gettime(ClockId::Boottime));
        seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock that others are told to use")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Seconds and nanoseconds; a clock set before 1970 reads as 0.
fn seconds_and_nanoseconds(time: Timespec) -> (u64, u64) {
    (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0))
}
