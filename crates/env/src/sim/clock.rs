//! Simulated time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::Clock;

/// 2026-01-01 00:00:00 UTC.
const WALL_START_MS: i64 = 1_767_225_600_000;

/// Time that advances only with operations and on request.
#[derive(Debug, Default)]
pub(super) struct SimClock {
    elapsed_ns: AtomicU64,
    wall_jump_ms: AtomicI64,
}

impl SimClock {
    /// A clock that starts at another one's time.
    pub(super) fn fork(&self) -> SimClock {
        SimClock {
            elapsed_ns: AtomicU64::new(self.elapsed_ns.load(Ordering::Relaxed)),
            wall_jump_ms: AtomicI64::new(self.wall_jump_ms.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn advance(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4);
        self.elapsed_ns.fetch_add(ns, Ordering::Relaxed);
    }

    pub(super) fn jump_wall(&self, by_ms: i64) {
        self.wall_jump_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn wall_ms(&self) -> u64 {
        let elapsed = self.elapsed_ns.load(Ordering::Relaxed) / 1_000_000;
        let base = WALL_START_MS.saturating_add(self.wall_jump_ms.load(Ordering::Relaxed));
        u64::try_from(base).unwrap_or(0).saturating_add(elapsed)
    }

    fn monotonic_ns(&self) -> u64 {
        self.elapsed_ns.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        std::thread::yield_now();
    }

    fn before_events(&self, duration: Duration) -> Duration {
        self.advance(duration);
        Duration::ZERO
    }
}
