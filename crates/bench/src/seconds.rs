//! Latencies second by second, of several threads.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::latencies::Latencies;
use crate::run::Latency;

const SECOND_NS: u64 = 1_000_000_000;

/// The second of a time since the beginning.
pub(crate) fn second_of(since_ns: u64) -> usize {
    (since_ns / SECOND_NS) as usize
}

/// The latencies of the operations of each second. Only seconds that some thread may still add to have a distribution:
/// a long run takes no more memory than a short one.
pub(crate) struct Seconds {
    /// For each thread, the second to which it adds next.
    reached: Vec<usize>,
    /// The distributions from the second number `closed.len()` on.
    open: VecDeque<Latencies>,
    closed: Vec<OfSecond>,
    /// How many operations ended in each second.
    ended: Vec<u64>,
}

/// The operations of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfSecond {
    /// How many were due in it.
    pub due: u64,
    /// How many ended in it.
    pub ended: u64,
    /// From the moment when they were due to their end.
    pub latency: Latency,
}

impl Seconds {
    pub fn new(threads: u32) -> Seconds {
        Seconds {
            reached: vec![0; threads as usize],
            open: VecDeque::new(),
            closed: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn add(&mut self, second: usize, latencies: &Latencies) {
        let at = second - self.closed.len();
        while self.open.len() <= at {
            self.open.push_back(Latencies::new());
        }
        self.open[at].add(latencies);
    }

    /// A thread adds nothing below `second` any more.
    fn reach(&mut self, thread: usize, second: usize) {
        self.reached[thread] = second;
        let reached = self.reached.iter().copied().min().unwrap_or(0);
        while self.closed.len() < reached
            && let Some(latencies) = self.open.pop_front()
        {
            let (due, latency) = (latencies.count(), latencies.summary());
            self.closed.push(OfSecond { due, latency, ended: 0 });
        }
    }

    /// All seconds, when all threads have ended.
    pub fn finish(&mut self) -> Vec<OfSecond> {
        for thread in 0..self.reached.len() {
            self.reach(thread, usize::MAX);
        }
        let mut seconds = std::mem::take(&mut self.closed);
        seconds.resize(seconds.len().max(self.ended.len()), OfSecond::default());
        for (second, ended) in seconds.iter_mut().zip(&self.ended) {
            second.ended = *ended;
        }
        seconds
    }
}

/// A thread's part in [`Seconds`]: it collects one second and then hands it over.
pub(crate) struct SecondsOfThread<'a> {
    all: &'a Mutex<Seconds>,
    thread: usize,
    second: usize,
    latencies: Latencies,
    ended: Vec<u64>,
}

impl<'a> SecondsOfThread<'a> {
    pub fn new(all: &'a Mutex<Seconds>, thread: usize) -> SecondsOfThread<'a> {
        SecondsOfThread { all, thread, second: 0, latencies: Latencies::new(), ended: Vec::new() }
    }

    /// Records an operation by the times since the beginning when it was due and when it ended. No operation was due
    /// after this one that is recorded before it.
    pub fn record(&mut self, due_ns: u64, ended_ns: u64) {
        let second = second_of(due_ns);
        if second > self.second {
            self.hand_over(second);
        }
        self.latencies.record(ended_ns - due_ns);
        let ended = second_of(ended_ns);
        if self.ended.len() <= ended {
            self.ended.resize(ended + 1, 0);
        }
        self.ended[ended] += 1;
    }

    fn hand_over(&mut self, next: usize) {
        let mut all = self.all.lock();
        if self.latencies.count() > 0 {
            all.add(self.second, &self.latencies);
            self.latencies.clear();
        }
        all.reach(self.thread, next);
        self.second = next;
    }
}

/// The thread has ended.
impl Drop for SecondsOfThread<'_> {
    fn drop(&mut self) {
        self.hand_over(usize::MAX);
        let mut all = self.all.lock();
        let seconds = all.ended.len().max(self.ended.len());
        all.ended.resize(seconds, 0);
        for (all, ended) in all.ended.iter_mut().zip(&self.ended) {
            *all += ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn due_and_ended(seconds: &[OfSecond]) -> Vec<(u64, u64)> {
        seconds.iter().map(|second| (second.due, second.ended)).collect()
    }

    #[test]
    fn latencies_belong_to_the_second_in_which_operations_were_due() {
        let all = Mutex::new(Seconds::new(2));
        let [mut one, mut other] = [0, 1].map(|thread| SecondsOfThread::new(&all, thread));
        one.record(100 * MS, 101 * MS);
        one.record(900 * MS, 2_900 * MS);
        other.record(150 * MS, 160 * MS);
        other.record(2_000 * MS, 2_001 * MS);
        assert!(all.lock().closed.is_empty(), "one of the threads may add to the first second");
        one.record(1_900 * MS, 2_950 * MS);
        assert_eq!(all.lock().closed.len(), 1);
        drop((one, other));
        let seconds = all.lock().finish();
        assert_eq!(due_and_ended(&seconds), [(3, 2), (1, 0), (1, 3)]);
        assert!(seconds[0].latency.max_ns >= 2_000 * MS && seconds[0].latency.p50_ns < 11 * MS);
        assert!((1_050 * MS..1_070 * MS).contains(&seconds[1].latency.max_ns), "{seconds:?}");
    }

    #[test]
    fn seconds_without_operations_are_there() {
        let all = Mutex::new(Seconds::new(2));
        let mut one = SecondsOfThread::new(&all, 0);
        one.record(3_000 * MS, 5_000 * MS);
        drop(one);
        // The other thread had nothing to do, or failed.
        let seconds = all.lock().finish();
        assert_eq!(due_and_ended(&seconds), [(0, 0), (0, 0), (0, 0), (1, 0), (0, 0), (0, 1)]);
        assert_eq!(Seconds::new(1).finish(), []);
    }
}
