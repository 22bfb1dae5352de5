//! Slows committers down before they have to stop.
//!
//! Work of the background that falls behind would stop committers once what it may keep is used up: memtables that are
//! not merged, log that no checkpoint covers. So they are slowed before: what is left of that amount is spread over the
//! time that the work still needs, and each commit waits its share of it. A store that slows down too late shows its
//! background work as a stall; SILK (Balmau et al., ATC 2019) and RocksDB's delayed writes are about the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most that one commit makes those behind it wait, as a part of the longest wait: a transaction of a gigabyte is to
/// delay itself, not others.
const TURNS: u64 = 20;

/// Where committers of one kind queue.
pub(crate) struct Throttle {
    /// The longest that one commit waits before it looks again.
    wait_ns_max: u64,
    /// When the last of them has its turn, in nanoseconds of the monotonic clock.
    until_ns: AtomicU64,
}

/// How fast committers may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// How much they may still write until the work is done.
    pub room_bytes: u64,
    /// How long the work still takes.
    pub left_ns: u64,
}

impl Pressure {
    /// How long a commit of `bytes` has to take, in nanoseconds.
    pub fn cost_ns(self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * u128::from(self.left_ns) / u128::from(self.room_bytes.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl Throttle {
    /// One in which no commit waits for longer than `wait_ms_max` before it looks again.
    pub fn new(wait_ms_max: u64) -> Throttle {
        Throttle { wait_ns_max: wait_ms_max * 1_000_000, until_ns: AtomicU64::new(0) }
    }

    /// Whether a commit that has to take `cost_ns` may be queued and not wait, as those before it wait for less than `ahead_ns`. A very long
    /// one waits itself.
    pub fn lets_ahead(&self, now_ns: u64, cost_ns: u64, ahead_ns: u64) -> bool {
        self.until_ns() < now_ns.saturating_add(ahead_ns) && cost_ns < self.wait_ns_max
    }

    /// Queues a commit that does not wait: those behind it do, for all that it has to take.
    pub fn take_ahead(&self, now_ns: u64, cost_ns: u64) {
        let add = |until: u64| Some(until.max(now_ns).saturating_add(cost_ns.min(self.wait_ns_max)));
        _ = self.until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// When the last of the queue has its turn, or had it.
    pub fn until_ns(&self) -> u64 {
        self.until_ns.load(Ordering::Relaxed)
    }

    /// Queues a commit that has to take `cost_ns`; returns how long it has to wait, in nanoseconds.
    pub fn take(&self, now_ns: u64, cost_ns: u64) -> u64 {
        let turn_ns = cost_ns.min(self.wait_ns_max / TURNS);
        let mut until = self.until_ns.load(Ordering::Relaxed);
        loop {
            // However many are queued: a queue that has ended is not to hold up those that come later.
            let end = until.max(now_ns).saturating_add(turn_ns).min(now_ns.saturating_add(self.wait_ns_max));
            match self.until_ns.compare_exchange_weak(until, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let wait = end.saturating_sub(now_ns).max(cost_ns);
                    return wait.min(self.wait_ns_max);
                }
                Err(other) => until = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_room_is_spread_over_the_rest_of_the_time() {
        let pressure = Pressure { room_bytes: 1000, left_ns: 500 };
        assert_eq!((pressure.cost_ns(0), pressure.cost_ns(1000), pressure.cost_ns(10)), (0, 500, 5));
        assert_eq!(Pressure { room_bytes: 0, left_ns: 7 }.cost_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn commits_wait_one_after_the_other() {
        let throttle = Throttle::new(100);
        assert_eq!(throttle.take(1000, 10), 10);
        assert_eq!(throttle.take(1000, 10), 20);
        assert_eq!(throttle.take(1015, 0), 5);
        assert_eq!(throttle.take(5000, 10), 10, "what was not used is not saved");
    }

    #[test]
    fn a_commit_that_does_not_wait_goes_ahead_of_a_short_queue_only() {
        let throttle = Throttle::new(1);
        let goes = |now_ns, cost_ns| {
            let goes = throttle.lets_ahead(now_ns, cost_ns, 50);
            if goes {
                throttle.take_ahead(now_ns, cost_ns);
            }
            goes
        };
        assert!(goes(1000, 30) && goes(1000, 30));
        assert!(!goes(1000, 0), "those before it wait for 60");
        assert_eq!(throttle.take(1000, 0), 60, "and it took nothing");
        assert!(goes(1011, 900_000), "those behind it wait for all of it");
        assert_eq!(throttle.until_ns(), 901_060);
        assert!(!goes(1_000_000, 1_000_000), "so long that it waits itself");
    }

    #[test]
    fn the_queue_is_no_longer_than_the_longest_wait() {
        let throttle = Throttle::new(100);
        (0..1000).for_each(|_| assert!(throttle.take(0, 50_000_000) <= 100_000_000));
        assert_eq!(throttle.take(200_000_000, 7), 7);
    }

    #[test]
    fn a_large_commit_delays_itself_more_than_others() {
        let throttle = Throttle::new(100);
        assert_eq!(throttle.take(0, u64::MAX), 100_000_000);
        assert_eq!(throttle.take(0, 0), 5_000_000);
    }
}
