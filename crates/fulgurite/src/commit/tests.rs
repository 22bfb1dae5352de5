//! The pipeline over a fake log; its schedules are explored in `crate::schedules`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use fulgurite_env::{Env, SimEnv};
use fulgurite_types::Csn;
use parking_lot::Mutex;

use super::fake_log::{pipeline, submit, submit_at, submit_in};
use super::*;
use fulgurite_log::CommitLog;

#[test]
fn commits_are_applied_at_once_and_acknowledged_when_durable() {
    let (log, pipeline) = pipeline(5);
    let applied = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..3 {
        let applied = applied.clone();
        submit(&pipeline, move |csn| applied.lock().push(csn));
    }
    assert_eq!(*applied.lock(), [Csn(1), Csn(2), Csn(3)]);
    assert_eq!((pipeline.visible(), pipeline.stable(), pipeline.read_csn()), (Csn(3), Csn::ZERO, Csn::ZERO));
    let ticket = pipeline.ticket(Csn(2), Csn(2), None);
    assert!(ticket.try_wait().is_none());
    log.serve(Csn(2));
    assert_eq!(ticket.try_wait().unwrap().unwrap().csn, Csn(2));
    pipeline.wait(log.reserved_csn()).unwrap();
    assert_eq!(pipeline.read_csn(), Csn(3));
    assert!(pipeline.ticket(Csn(3), Csn(3), None).try_wait().is_some(), "complete from the start");
}

/// A ticket may wait for less, or for more, than its own commit.
#[test]
fn a_ticket_completes_when_what_it_waits_for_is_durable() {
    let (_, pipeline) = pipeline(5);
    let first = submit(&pipeline, |_| {});
    pipeline.wait(first).unwrap();
    assert_eq!(submit(&pipeline, |_| {}), Csn(2));
    let (early, late) = (pipeline.ticket(Csn(2), first, None), pipeline.ticket(first, Csn(2), None));
    assert_eq!((early.csn(), early.try_wait().unwrap().unwrap().csn), (Csn(2), Csn(2)));
    assert!(late.try_wait().is_none());
    assert_eq!(late.wait().unwrap().csn, first);
}

/// INV-TXN-4: an owner that is stopped right after it filled its frame delays other commits until the next flush only.
#[test]
fn the_thread_that_makes_a_commit_durable_applies_it_if_its_owner_does_not() {
    let (log, pipeline) = pipeline(5);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (slot, flushing, reader) = (seen.clone(), log.clone(), pipeline.clone());
    log.on_filled(move |csn| {
        flushing.wait_durable(csn).unwrap();
        slot.lock().push((csn, reader.visible()));
    });
    let applied = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let applied = applied.clone();
        submit(&pipeline, move |csn| applied.lock().push(csn));
    }
    assert_eq!(*seen.lock(), [(Csn(1), Csn(1)), (Csn(2), Csn(2))]);
    assert_eq!(*applied.lock(), [Csn(1), Csn(2)], "the owner did not apply it again");
}

/// INV-TXN-7: while an old commit is not applied, commits that fill half of the ring get numbers, and then step 0
/// waits.
#[test]
fn admission_waits_while_half_of_the_ring_is_taken() {
    let (_, pipeline) = pipeline(3);
    let (inside, may_continue) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (inside, may_continue) = (inside.clone(), may_continue.clone());
            submit(&pipeline, move |_| {
                inside.wait();
                may_continue.wait();
            })
        });
        inside.wait();
        for _ in 0..3 {
            pipeline.admit(0, 0, false).unwrap();
            submit(&pipeline, |_| {});
        }
        assert_eq!(pipeline.visible(), Csn::ZERO);
        pipeline.admit(0, 0, false).unwrap();
        submit(&pipeline, |_| {});
        // Asserted when the first commit may continue: a failed assertion waits for its thread.
        let admitted = pipeline.admit(0, 0, false);
        let waiter = scope.spawn(|| submit(&pipeline, |_| {}));
        may_continue.wait();
        assert!(matches!(admitted, Err(Error::WouldBlock(Missing::Room))), "{admitted:?}");
        assert_eq!(waiter.join().unwrap(), Csn(6));
    });
    assert_eq!(pipeline.visible(), Csn(6));
    pipeline.admit(0, 0, false).unwrap();
}

#[test]
fn an_asynchronous_commit_is_acknowledged_when_it_is_visible_unless_the_log_ends() {
    let (log, pipeline) = pipeline(5);
    let commit = || {
        let timed = pipeline.stopwatch().start(Durability::None);
        let csn = submit_at(&pipeline, Durability::None, |_| {});
        pipeline.wait_acknowledged(csn, Csn::ZERO, timed)
    };
    commit().unwrap();
    assert_eq!(
        (pipeline.read_csn(), pipeline.stable(), pipeline.newest_synchronous()),
        (Csn(1), Csn::ZERO, Csn::ZERO)
    );
    pipeline.begin_close();
    commit().unwrap();
    assert_eq!(pipeline.stable(), Csn(2), "made durable first");
    log.close();
    assert!(matches!(commit(), Err(Error::Closed)));
    assert_eq!(pipeline.read_csn(), Csn(2));
}

/// A commit that is durable without a flush of the device does not raise the horizon until a flush is requested.
#[test]
fn the_horizon_follows_what_is_synced() {
    let (log, pipeline) = pipeline(5);
    let csn = submit(&pipeline, |_| {});
    pipeline.request_horizon(csn).unwrap();
    assert_eq!((pipeline.stable(), pipeline.horizon()), (Csn::ZERO, Csn::ZERO), "only asked for");
    log.serve(csn);
    assert_eq!((pipeline.stable(), pipeline.horizon()), (csn, Csn::ZERO));
    pipeline.request_horizon(csn).unwrap();
    assert_eq!(pipeline.horizon(), csn);
    let next = submit(&pipeline, |_| {});
    pipeline.wait(next).unwrap();
    assert_eq!(pipeline.horizon(), csn);
    pipeline.wait_horizon(next).unwrap();
    assert_eq!(pipeline.horizon(), next);
}

/// INV-TXN-3: applying must not panic. If it does, no thread hangs.
#[test]
fn a_panic_while_a_commit_is_applied_ends_every_wait() {
    let (log, pipeline) = pipeline(5);
    let first = submit(&pipeline, |_| {});
    pipeline.wait(first).unwrap();
    let earlier = pipeline.ticket(Csn(2), Csn(2), None);
    assert!(catch_unwind(AssertUnwindSafe(|| submit(&pipeline, |_| panic!("on purpose")))).is_err());
    assert!(log.poisoned().is_some());
    let behind = submit(&pipeline, |_| {});
    assert!(matches!(pipeline.wait(behind), Err(Error::OutcomeUnknown { csn: Csn(3), .. })));
    assert!(matches!(earlier.wait(), Err(Error::OutcomeUnknown { csn: Csn(2), .. })));
    assert!(matches!(
        pipeline.ticket(behind, behind, None).try_wait(),
        Some(Err(Error::OutcomeUnknown { .. }))
    ));
    assert_eq!(pipeline.visible(), first, "a commit that was not applied as a whole never becomes visible");
}

/// INV-TXN-3: the same for a panic before the frame is filled.
#[test]
fn a_panic_between_a_commits_number_and_its_fill_ends_every_wait() {
    let (log, pipeline) = pipeline(5);
    let dying = || {
        submit_in(&pipeline, Durability::Sync, TimeBounds::ANY, |_| {}, |_| panic!("on purpose"));
    };
    assert!(catch_unwind(AssertUnwindSafe(dying)).is_err());
    assert!(log.poisoned().is_some());
    assert!(!pipeline.wait_visible(Csn(1)));
    let behind = submit_at(&pipeline, Durability::None, |_| {});
    let timed = pipeline.stopwatch().start(Durability::None);
    let outcome = pipeline.wait_acknowledged(behind, Csn::ZERO, timed);
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { csn: Csn(2), .. })), "{outcome:?}");
}

/// INV-TXN-3: a thread that sleeps until a commit is visible is woken by the panic.
#[test]
fn a_panic_while_a_commit_is_applied_wakes_the_threads_that_wait_for_it() {
    let (_, pipeline) = pipeline(5);
    let (sender, ended) = std::sync::mpsc::channel();
    let sleeping = pipeline.clone();
    // Not joined: a thread that is not woken fails the test, and does not hang it.
    let wait = move || sender.send(sleeping.wait_visible(Csn(1))).unwrap();
    let _sleeper = SimEnv::new(1).spawn("waiter", Box::new(wait)).unwrap();
    while pipeline.waiters.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // It counts itself right before it takes the lock under which it falls asleep.
    std::thread::park_timeout(Duration::from_millis(50));
    assert!(catch_unwind(AssertUnwindSafe(|| submit(&pipeline, |_| panic!("on purpose")))).is_err());
    assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(false));
}

/// A callback may wait for a ticket that the same thread is about to complete.
#[test]
fn a_callback_may_wait_for_what_is_durable() {
    let (_, pipeline) = pipeline(5);
    let [first, second] =
        [(); 2].map(|()| submit(&pipeline, |_| {})).map(|csn| pipeline.ticket(csn, csn, None));
    let seen = Arc::new(Mutex::new(None));
    let (slot, other) = (seen.clone(), second.clone());
    first.on_complete(move |_| *slot.lock() = Some(other.wait().is_ok()));
    pipeline.wait(Csn(2)).unwrap();
    assert_eq!(*seen.lock(), Some(true));
}

/// INV-TXN-12: if applying panics under latches, the callbacks run after the latches were released.
#[test]
fn a_panic_while_a_commit_is_applied_runs_callbacks_under_no_latch() {
    let (_, pipeline) = pipeline(5);
    let first = submit(&pipeline, |_| {});
    let ticket = pipeline.ticket(first, first, None);
    let latch = Arc::new(Mutex::new(()));
    let outcome_seen = Arc::new(Mutex::new(None));
    let (theirs, slot) = (latch.clone(), outcome_seen.clone());
    ticket.on_complete(move |outcome| *slot.lock() = Some((outcome.is_err(), theirs.try_lock().is_some())));
    let dying = AssertUnwindSafe(|| {
        let _quiet = pipeline.quiet();
        let _latched = latch.lock();
        submit(&pipeline, |_| panic!("on purpose"))
    });
    assert!(catch_unwind(dying).is_err());
    assert_eq!(*outcome_seen.lock(), Some((true, true)), "the callback ran, and the latch was free");
}

/// INV-TXN-12: if a thread that leads a flush applies a commit in its owner's place, and that panics, the callbacks run
/// on another thread.
#[test]
fn a_panic_while_a_flush_leader_applies_a_commit_runs_no_callback_under_the_lead() {
    let (log, pipeline) = pipeline(5);
    let first = submit(&pipeline, |_| {});
    let ticket = pipeline.ticket(first, first, None);
    let caller = Arc::new(Mutex::new(None));
    let slot = caller.clone();
    ticket.on_complete(move |_| *slot.lock() = Some(std::thread::current().id()));
    let leader = Arc::new(Mutex::new(None));
    let (slot, flushing) = (leader.clone(), log.clone());
    log.on_filled(move |csn| {
        std::thread::scope(|scope| {
            let leading = scope.spawn(|| {
                assert!(catch_unwind(AssertUnwindSafe(|| flushing.wait_durable(csn))).is_err());
                std::thread::current().id()
            });
            *slot.lock() = Some(leading.join().unwrap());
        });
    });
    submit(&pipeline, |_| panic!("on purpose"));
    let (caller, leader) = (caller.lock().unwrap(), leader.lock().unwrap());
    assert_ne!(caller, leader, "the callback ran under the lead");
}
