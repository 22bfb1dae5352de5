//! Election, gathering and sleeping without a log: commits are numbers, and a flush is a few switches of threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fulgurite_env::sim::SimEnv;
use fulgurite_types::{Csn, Epoch};
use shuttle::sync::atomic::{AtomicBool, AtomicU64};
use shuttle::thread;

use super::explore;
use super::world::{ID, below, options};
use crate::LogError;
use crate::shared::Shared;
use crate::stream::leader::{FlushTarget, Leader};

struct Commits {
    shared: Arc<Shared>,
    leader: Leader,
    reserved: AtomicU64,
    durable: AtomicU64,
    is_led: AtomicBool,
    /// How many flushes succeed before one fails.
    flushes_left: AtomicU64,
}

impl Commits {
    fn new(flushes: u64) -> Arc<Commits> {
        let shared = Arc::new(Shared::new(SimEnv::new(1), ID, Epoch(1), options()));
        Arc::new(Commits {
            leader: Leader::new(Arc::clone(&shared)),
            shared,
            reserved: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            is_led: AtomicBool::new(false),
            flushes_left: AtomicU64::new(flushes),
        })
    }

    fn reserve(&self) -> Csn {
        Csn(self.reserved.fetch_add(1, SeqCst) + 1)
    }

    fn commit(&self) -> Result<(), LogError> {
        let csn = self.reserve();
        self.leader.wait(self, csn)?;
        assert!(self.flushed_csn() >= csn, "a waiter returned before its commit was durable");
        Ok(())
    }
}

impl FlushTarget for Commits {
    fn flushed_csn(&self) -> Csn {
        Csn(self.durable.load(SeqCst))
    }

    fn check_reserved(&self, csn: Csn) -> Result<(), LogError> {
        assert!(csn.0 <= self.reserved.load(SeqCst), "it was reserved before");
        Ok(())
    }

    fn flush_filled(&self, _barrier: bool) -> Result<bool, LogError> {
        assert!(!self.is_led.swap(true, SeqCst), "INV-LOG-6: one leader at a time");
        let result = self.shared.poison.check().and_then(|()| {
            let taken = self.reserved.load(SeqCst);
            for _ in 0..3 {
                thread::sleep(Duration::ZERO);
            }
            if self.flushes_left.fetch_sub(1, SeqCst) == 0 {
                return Err(self.shared.poison.set("a flush", None));
            }
            Ok(self.durable.swap(taken, SeqCst) < taken)
        });
        self.is_led.store(false, SeqCst);
        result
    }
}

/// Runs `work` in `threads` threads, and waits for all. A thread that sleeps for ever is a deadlock.
fn together(commits: &Arc<Commits>, threads: usize, work: fn(&Commits)) {
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let commits = Arc::clone(commits);
            thread::spawn(move || work(&commits))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// INV-LOG-14: every waiter returns, also beside threads that flush and wait for no commit.
fn waits() {
    let commits = Commits::new(u64::MAX);
    together(&commits, 4, |commits| {
        for _ in 0..2 {
            match below(4) {
                0 => _ = commits.leader.flush(commits, below(2) == 0).expect("nothing fails"),
                1 => _ = commits.reserve(),
                _ => commits.commit().expect("nothing fails"),
            }
        }
    });
}

#[test]
fn a_leader_alone_leaves_no_waiter_asleep() {
    explore(20_000, waits);
}

/// More waiters than there are bits to sleep on.
fn many_waits() {
    let commits = Commits::new(u64::MAX);
    together(&commits, 7, |commits| commits.commit().expect("nothing fails"));
}

#[test]
fn a_leader_alone_wakes_sleepers_that_share_a_bit() {
    explore(8_000, many_waits);
}

/// INV-LOG-7: a flush fails. Every waiter returns, and no flush follows.
fn fails() {
    let commits = Commits::new(below(3) as u64);
    together(&commits, 3, |commits| {
        for _ in 0..2 {
            let result = commits.commit();
            assert!(matches!(result, Ok(()) | Err(LogError::Poisoned(_))), "{result:?}");
        }
    });
}

#[test]
fn a_leader_alone_that_fails_wakes_every_waiter() {
    explore(8_000, fails);
}
