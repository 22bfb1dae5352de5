//! INV-TXN-18: a watch is woken once for each arming, however that races with durability, visibility and the end of the log.

use std::sync::Arc;

use fulgurite_types::Csn;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::Error;
use crate::commit::Pipeline;
use crate::commit::fake_log::{FakeLog, pipeline, submit};
use crate::commit::watches::WatchState;
use fulgurite_log::CommitLog;

const COMMITS: usize = 3;

/// How an event loop sleeps: until its watch wakes it.
#[derive(Default)]
struct Loop {
    wakes: Mutex<usize>,
    woken: Condvar,
}

impl Loop {
    fn sleep(&self) {
        let mut wakes = self.wakes.lock().unwrap();
        while *wakes == 0 {
            wakes = self.woken.wait(wakes).unwrap();
        }
        *wakes = 0;
    }

    fn watch(self: &Arc<Loop>, pipeline: &Pipeline<FakeLog>, calls: &Arc<AtomicUsize>) -> Arc<WatchState> {
        let (own, calls) = (self.clone(), calls.clone());
        let watch = WatchState::new(move || {
            calls.fetch_add(1, Ordering::SeqCst);
            *own.wakes.lock().unwrap() += 1;
            own.woken.notify_all();
        });
        pipeline.add_watch(&watch);
        watch
    }
}

/// Two event loops, each with commits of its own, and one thread that serves the log. A wake-up that is lost leaves a loop asleep,
/// which shuttle reports as a deadlock.
fn loops() {
    let (log, pipeline) = pipeline(3);
    let server = {
        let log = log.clone();
        thread::spawn(move || log.serve(Csn(2 * COMMITS as u64)))
    };
    let loops = [(); 2].map(|()| {
        let pipeline = pipeline.clone();
        thread::spawn(move || {
            let (own, calls) = (Arc::new(Loop::default()), Arc::new(AtomicUsize::new(0)));
            let watch = own.watch(&pipeline, &calls);
            let mut armed = 0;
            let mut replies: Vec<Csn> =
                (0..COMMITS).map(|_| submit(&pipeline, |_| thread::yield_now())).collect();
            while let Some(&first) = replies.first() {
                if !pipeline.ask(&watch, first).unwrap() {
                    armed += 1;
                    own.sleep();
                }
                let reached = pipeline.reached();
                assert!(reached <= pipeline.visible() && reached <= pipeline.stable());
                replies.retain(|csn| *csn > reached);
            }
            assert!(calls.load(Ordering::SeqCst) <= armed + COMMITS, "at most one for each time it asked");
            pipeline.remove_watch(&watch);
        })
    });
    loops.into_iter().for_each(|event_loop| event_loop.join().unwrap());
    server.join().unwrap();
}

#[test]
fn no_wake_up_is_lost() {
    shuttle::check_random(loops, 20_000);
}

#[test]
fn no_wake_up_is_lost_however_threads_are_preempted() {
    shuttle::check_pct(loops, 10_000, 4);
}

/// The thread that asks leads the flushes itself if no other does; a waiter leads, too.
fn leads() {
    let (_, pipeline) = pipeline(3);
    let waiter = {
        let pipeline = pipeline.clone();
        thread::spawn(move || {
            let csn = submit(&pipeline, |_| {});
            pipeline.wait(csn).unwrap();
        })
    };
    let (own, calls) = (Arc::new(Loop::default()), Arc::new(AtomicUsize::new(0)));
    let watch = own.watch(&pipeline, &calls);
    let csn = submit(&pipeline, |_| thread::yield_now());
    while !pipeline.ask(&watch, csn).unwrap() {
        // Either this thread writes the filled frames, or the other leads, and wakes it.
        if !pipeline.lead().unwrap() && pipeline.reached() < csn {
            thread::yield_now();
        }
    }
    waiter.join().unwrap();
    assert!(pipeline.reached() >= csn);
}

#[test]
fn a_thread_that_watches_may_lead() {
    shuttle::check_random(leads, 20_000);
}

/// The log fails while a watch is armed, or being armed: its thread wakes, and learns why.
fn failure() {
    let (log, pipeline) = pipeline(3);
    let (own, calls) = (Arc::new(Loop::default()), Arc::new(AtomicUsize::new(0)));
    let watch = own.watch(&pipeline, &calls);
    let csn = submit(&pipeline, |_| {});
    let failing = {
        let (log, pipeline) = (log.clone(), pipeline.clone());
        thread::spawn(move || {
            log.poison("on purpose");
            pipeline.fail_tickets("on purpose");
        })
    };
    let asked = pipeline.ask(&watch, csn);
    if let Ok(is_reached) = &asked {
        assert!(!is_reached);
        own.sleep();
        assert!(matches!(pipeline.ask(&watch, csn), Err(Error::Poisoned { .. })));
    }
    failing.join().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1, "reported once");
}

/// The log ends without a failure, as at a close: the watch is told once, and later calls fail.
fn end() {
    let (_, pipeline) = pipeline(3);
    let (own, calls) = (Arc::new(Loop::default()), Arc::new(AtomicUsize::new(0)));
    let watch = own.watch(&pipeline, &calls);
    let csn = submit(&pipeline, |_| {});
    let ending = {
        let pipeline = pipeline.clone();
        thread::spawn(move || pipeline.fail_tickets("closed"))
    };
    if pipeline.ask(&watch, csn).is_ok_and(|is_reached| !is_reached) {
        own.sleep();
    }
    ending.join().unwrap();
    for csn in [csn, csn.next(), Csn::MAX] {
        assert!(matches!(pipeline.ask(&watch, csn), Err(Error::Closed)));
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1, "reported once");
}

#[test]
fn the_end_wakes_a_watch_once() {
    shuttle::check_random(end, 20_000);
    shuttle::check_pct(end, 5_000, 4);
}

#[test]
fn a_failure_wakes_a_watch_once() {
    shuttle::check_random(failure, 20_000);
    shuttle::check_pct(failure, 5_000, 4);
}
