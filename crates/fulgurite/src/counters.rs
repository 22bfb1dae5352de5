//! Counters of transactions and reads, always on.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// Each thread counts in a cache line of its own, as long as there are no more threads than this.
const THREADS_MAX: usize = 64;

/// A counter that threads raise without taking a cache line from each other.
pub(crate) struct SpreadCounter([CachePadded<AtomicU64>; THREADS_MAX]);

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// This thread's number, below 64: threads share one only if there are more than 64.
pub(crate) fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.get();
    if number != usize::MAX {
        return number;
    }
    let number = THREADS.fetch_add(1, Relaxed) % THREADS_MAX;
    NUMBER.set(number);
    number
}

impl SpreadCounter {
    pub fn new() -> SpreadCounter {
        SpreadCounter(std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))))
    }

    /// Counts one. If two threads share a number and count at the same moment, one count may be lost: exact counts are
    /// not worth an atomic read-modify-write per read.
    #[inline]
    pub fn count(&self) {
        self.add(1);
    }

    /// Counts several.
    #[inline]
    pub fn add(&self, number: u64) {
        let own = &self.0[thread_number()];
        own.store(own.load(Relaxed).wrapping_add(number), Relaxed);
    }

    pub fn read(&self) -> u64 {
        self.0.iter().map(|count| count.load(Relaxed)).sum()
    }
}

pub(crate) struct Counters {
    pub gets: SpreadCounter,
    pub scans: SpreadCounter,
    /// Bytes of keys and values that commits wrote.
    pub user_bytes: SpreadCounter,
    pub conflicts: AtomicU64,
    pub retries: AtomicU64,
}

impl Counters {
    pub fn new() -> Counters {
        Counters {
            gets: SpreadCounter::new(),
            scans: SpreadCounter::new(),
            user_bytes: SpreadCounter::new(),
            conflicts: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn threads_with_numbers_of_their_own_are_counted_exactly() {
        let counter = SpreadCounter::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| counter.count()));
            }
        });
        // Other tests have threads, too, so these two may share a number.
        assert!((1000..=2000).contains(&counter.read()), "{}", counter.read());
    }
}
