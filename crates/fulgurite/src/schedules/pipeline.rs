//! The pipeline over a fake log: order, exactly-once, no lost wake-up, latches.

use std::sync::Arc;

use fulgurite_types::Csn;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread;

use crate::commit::Pipeline;
use crate::commit::fake_log::{FakeLog, pipeline, submit};
use fulgurite_log::CommitLog;

/// The commits whose apply has begun and ended, by CSN, from 1.
struct Applied {
    begun: [AtomicBool; 8],
    done: [AtomicBool; 8],
}

impl Applied {
    fn new() -> Arc<Applied> {
        let flags = || std::array::from_fn(|_| AtomicBool::new(false));
        Arc::new(Applied { begun: flags(), done: flags() })
    }

    /// Work that records its begin and end.
    fn work(self: &Arc<Applied>, pipeline: &Arc<Pipeline<FakeLog>>) -> impl FnOnce(Csn) + Send + 'static {
        let (applied, pipeline) = (self.clone(), pipeline.clone());
        move |csn| {
            let index = csn.0 as usize - 1;
            let again = applied.begun[index].swap(true, Ordering::SeqCst);
            assert!(!again, "INV-TXN-4: applied twice");
            thread::yield_now();
            assert!(pipeline.visible() < csn, "INV-TXN-5: visible before it was applied");
            applied.done[index].store(true, Ordering::SeqCst);
        }
    }

    fn assert_up_to(&self, csn: Csn) {
        let done = self.done[..csn.0 as usize].iter().all(|done| done.load(Ordering::SeqCst));
        assert!(done, "INV-TXN-5: everything up to {csn} is applied");
    }
}

/// Three threads commit `each` times while another waits for the horizon, as a checkpoint does.
fn commits_and_a_checkpoint(ring_bits: u32, each: u64) {
    let (log, pipeline) = pipeline(ring_bits);
    let applied = Applied::new();
    let committers = [0, 1, 2].map(|_| {
        let (pipeline, applied) = (pipeline.clone(), applied.clone());
        thread::spawn(move || {
            for _ in 0..each {
                let csn = submit(&pipeline, applied.work(&pipeline));
                let is_done = applied.done[csn.0 as usize - 1].load(Ordering::SeqCst);
                assert!(is_done, "INV-TXN-4: applied before it is unlatched");
                pipeline.wait(csn).unwrap();
                assert!(pipeline.read_csn() >= csn, "INV-TXN-6: acknowledged when durable and visible");
                applied.assert_up_to(csn);
            }
        })
    });
    let checkpoint = {
        let (log, pipeline, applied) = (log.clone(), pipeline.clone(), applied.clone());
        thread::spawn(move || {
            let boundary = log.reserved_csn();
            pipeline.wait_horizon(boundary).unwrap();
            applied.assert_up_to(boundary);
            assert!(pipeline.horizon() >= boundary);
        })
    };
    let visible = pipeline.visible();
    applied.assert_up_to(visible);
    assert!(pipeline.visible() >= visible);
    applied.assert_up_to(pipeline.read_csn());
    committers.into_iter().for_each(|thread| thread.join().unwrap());
    checkpoint.join().unwrap();
    let last = Csn(3 * each);
    assert_eq!((pipeline.visible(), pipeline.stable()), (last, last));
}

#[test]
fn commits_apply_once_and_become_visible_in_order() {
    shuttle::check_random(|| commits_and_a_checkpoint(2, 1), 20_000);
}

#[test]
fn commits_apply_once_and_become_visible_in_order_however_threads_are_preempted() {
    shuttle::check_pct(|| commits_and_a_checkpoint(2, 1), 20_000, 4);
}

/// INV-TXN-7: three threads in a ring of two slots, in which admission allows one number above `visible`.
#[test]
fn slots_are_reused_when_their_commits_are_visible() {
    shuttle::check_random(|| commits_and_a_checkpoint(1, 2), 20_000);
}

#[test]
fn slots_are_reused_when_their_commits_are_visible_however_threads_are_preempted() {
    shuttle::check_pct(|| commits_and_a_checkpoint(1, 2), 20_000, 4);
}

/// INV-TXN-8 and INV-TXN-9: here no thread waits for the disk, and only the committers move `visible`. So if one of
/// them misses an advance or a waiter, the test hangs.
fn advances() {
    let (_, pipeline) = pipeline(1);
    let applied = Applied::new();
    let committers = [0, 1, 2].map(|_| {
        let (pipeline, applied) = (pipeline.clone(), applied.clone());
        thread::spawn(move || {
            (0..2).for_each(|_| _ = submit(&pipeline, applied.work(&pipeline)));
        })
    });
    assert!(pipeline.wait_visible(Csn(6)));
    applied.assert_up_to(Csn(6));
    committers.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn no_advance_and_no_waiter_is_missed() {
    shuttle::check_random(advances, 20_000);
}

#[test]
fn no_advance_and_no_waiter_is_missed_however_threads_are_preempted() {
    shuttle::check_pct(advances, 20_000, 4);
}

/// A counter of one key: its versions, and the latch that its writers hold from validation until they are applied.
struct Counter {
    latch: Mutex<()>,
    versions: Mutex<Vec<(Csn, u64)>>,
    commits: AtomicU64,
}

impl Counter {
    /// The newest version at or below a CSN.
    fn at(&self, csn: Csn) -> (Csn, u64) {
        let versions = self.versions.lock().unwrap();
        versions.iter().copied().filter(|(version, _)| *version <= csn).max().unwrap_or_default()
    }

    /// One attempt to add 1; first committer wins.
    fn increment(self: &Arc<Counter>, pipeline: &Pipeline<FakeLog>) -> Option<Csn> {
        let snapshot = pipeline.visible();
        let (_, value) = self.at(snapshot);
        let latch = self.latch.lock().unwrap();
        if self.at(Csn::MAX).0 > snapshot {
            return None;
        }
        let counter = self.clone();
        let csn = submit(pipeline, move |csn| {
            thread::yield_now();
            counter.versions.lock().unwrap().push((csn, value + 1));
        });
        drop(latch);
        self.commits.fetch_add(1, Ordering::SeqCst);
        Some(csn)
    }
}

/// INV-TXN-2: a commit that another thread applies stays latched until it is applied.
fn increments() {
    let (_, pipeline) = pipeline(2);
    let counter =
        Arc::new(Counter { latch: Mutex::new(()), versions: Mutex::default(), commits: AtomicU64::new(0) });
    let threads = [0, 1, 2].map(|_| {
        let (pipeline, counter) = (pipeline.clone(), counter.clone());
        thread::spawn(move || {
            if let Some(csn) = counter.increment(&pipeline) {
                pipeline.wait(csn).unwrap();
            }
        })
    });
    // As a checkpoint or another table's committer would, this leads a flush while the others commit.
    let _ = pipeline.wait(Csn(1));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let commits = counter.commits.load(Ordering::SeqCst);
    assert_eq!(counter.at(Csn::MAX).1, commits, "a lost update");
}

#[test]
fn no_update_is_lost_while_another_thread_applies() {
    shuttle::check_random(increments, 20_000);
}

#[test]
fn no_update_is_lost_while_another_thread_applies_however_threads_are_preempted() {
    shuttle::check_pct(increments, 20_000, 4);
}

/// A log that fails ends every wait.
#[test]
fn a_failed_log_leaves_no_thread_waiting() {
    let explore = || {
        let (log, pipeline) = pipeline(1);
        let applied = Applied::new();
        let committers = [0, 1].map(|_| {
            let (pipeline, applied) = (pipeline.clone(), applied.clone());
            thread::spawn(move || {
                let csn = submit(&pipeline, applied.work(&pipeline));
                let ticket = pipeline.ticket(csn, csn, None);
                match pipeline.wait(csn) {
                    Ok(()) => assert!(pipeline.read_csn() >= csn),
                    Err(error) => assert!(matches!(error, crate::Error::OutcomeUnknown { .. }), "{error}"),
                }
                let _ = ticket.wait();
            })
        });
        log.poison("a sync");
        committers.into_iter().for_each(|thread| thread.join().unwrap());
        applied.assert_up_to(pipeline.visible());
    };
    shuttle::check_random(explore, 10_000);
}
