//! The pipeline over a fake log; its schedules are explored in `crate::schedules`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};

use fulgurite_types::Csn;
use parking_lot::Mutex;

use super::fake_log::{pipeline, submit, submit_at};
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
        assert!(matches!(pipeline.admit(0, 0, false), Err(Error::WouldBlock)));
        let waiter = scope.spawn(|| submit(&pipeline, |_| {}));
        may_continue.wait();
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
