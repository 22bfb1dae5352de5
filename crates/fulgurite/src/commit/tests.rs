//! The pipeline over a fake log; its schedules are explored in `crate::schedules`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fulgurite_base::Csn;
use parking_lot::Mutex;

use super::commit_log::CommitLog;
use super::fake_log::{FakeLog, submit};
use super::*;

#[test]
fn commits_are_applied_at_once_and_answered_when_durable() {
    let log = FakeLog::new();
    let pipeline = Pipeline::new(log.clone(), Csn::ZERO);
    let applied = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..3 {
        let applied = applied.clone();
        submit(&pipeline, move |csn| applied.lock().push(csn));
    }
    assert_eq!(*applied.lock(), [Csn(1), Csn(2), Csn(3)]);
    assert_eq!((pipeline.visible(), pipeline.stable(), pipeline.read_csn()), (Csn(3), Csn::ZERO, Csn::ZERO));
    let ticket = pipeline.ticket(Csn(2));
    assert!(ticket.poll().is_none());
    log.serve(Csn(2));
    assert_eq!(ticket.poll().unwrap().unwrap().csn, Csn(2));
    pipeline.wait(log.reserved_csn()).unwrap();
    assert_eq!(pipeline.read_csn(), Csn(3));
    assert!(pipeline.ticket(Csn(3)).poll().is_some(), "complete from the start");
}

/// INV-TXN-3: nothing may panic while it is applied, and if it does nobody hangs.
#[test]
fn a_panic_while_a_commit_is_applied_ends_every_wait() {
    let log = FakeLog::new();
    let pipeline = Pipeline::new(log.clone(), Csn::ZERO);
    let first = submit(&pipeline, |_| {});
    pipeline.wait(first).unwrap();
    let earlier = pipeline.ticket(Csn(2));
    assert!(catch_unwind(AssertUnwindSafe(|| submit(&pipeline, |_| panic!("on purpose")))).is_err());
    assert!(log.poisoned().is_some());
    let behind = submit(&pipeline, |_| {});
    assert!(matches!(pipeline.wait(behind), Err(Error::OutcomeUnknown { csn: Csn(3), .. })));
    assert!(matches!(earlier.wait(), Err(Error::OutcomeUnknown { csn: Csn(2), .. })));
    assert!(matches!(pipeline.ticket(behind).poll(), Some(Err(Error::OutcomeUnknown { .. }))));
    assert_eq!(pipeline.visible(), first, "what did not happen as a whole is never seen");
}

/// A callback may wait for a ticket that the same thread is about to complete.
#[test]
fn a_callback_may_wait_for_what_is_durable() {
    let pipeline = Pipeline::new(FakeLog::new(), Csn::ZERO);
    let [first, second] = [(); 2].map(|()| pipeline.ticket(submit(&pipeline, |_| {})));
    let seen = Arc::new(Mutex::new(None));
    let (slot, other) = (seen.clone(), second.clone());
    first.on_complete(move |_| *slot.lock() = Some(other.wait().is_ok()));
    pipeline.wait(Csn(2)).unwrap();
    assert_eq!(*seen.lock(), Some(true));
}
