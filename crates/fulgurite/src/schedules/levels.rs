//! Commits that are acknowledged before they are durable: readers see them, and a close makes them durable.

use std::sync::Arc;

use fulgurite_log::Durability;
use fulgurite_types::Csn;
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::commit::Pipeline;
use crate::commit::fake_log::{FakeLog, pipeline, submit_at};
use fulgurite_log::CommitLog;

/// Submits and acknowledges one commit. Returns its number, if it was acknowledged.
fn commit(pipeline: &Arc<Pipeline<FakeLog>>, level: Durability) -> Option<Csn> {
    let timed = pipeline.stopwatch().start(level);
    let csn = submit_at(pipeline, level, |_| thread::yield_now());
    pipeline.wait_acknowledged(csn, Csn::ZERO, timed).ok().map(|()| csn)
}

/// INV-TXN-6, and the rule for which commits a transaction waits: a thread that takes a snapshot and then
/// reads `newest_synchronous` finds all synchronous commits of the snapshot at or below it.
fn readers_and_writers() {
    let (log, pipeline) = pipeline(2);
    let synchronous = Arc::new(Mutex::new(Vec::new()));
    let asynchronous = {
        let pipeline = pipeline.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                let csn = commit(&pipeline, Durability::None).expect("nothing fails");
                assert!(pipeline.read_csn() >= csn, "a committer sees its acknowledged commit");
            }
        })
    };
    let writer = {
        let (log, pipeline, synchronous) = (log.clone(), pipeline.clone(), synchronous.clone());
        thread::spawn(move || {
            let entered = synchronous.clone();
            let timed = pipeline.stopwatch().start(Durability::Sync);
            let csn = submit_at(&pipeline, Durability::Sync, move |csn| entered.lock().unwrap().push(csn));
            pipeline.wait_acknowledged(csn, Csn::ZERO, timed).unwrap();
            assert!(log.durable_csn() >= csn);
            assert!(pipeline.read_csn() >= csn, "INV-TXN-6: acknowledged when durable and visible");
        })
    };
    let mut before = Csn::ZERO;
    for _ in 0..3 {
        let snapshot = pipeline.visible();
        let newest = pipeline.newest_synchronous();
        let seen = synchronous.lock().unwrap().iter().copied().filter(|csn| *csn <= snapshot).max();
        assert!(seen <= Some(newest), "a synchronous commit that a snapshot sees is missed");
        let read = pipeline.read_csn();
        assert!(read >= before && read <= pipeline.visible(), "INV-TXN-6: {before}, then {read}");
        assert!(pipeline.horizon() <= pipeline.read_csn());
        before = read;
    }
    asynchronous.join().unwrap();
    writer.join().unwrap();
}

#[test]
fn reads_begin_at_what_was_acknowledged() {
    shuttle::check_random(readers_and_writers, 20_000);
}

#[test]
fn reads_begin_at_what_was_acknowledged_however_threads_are_preempted() {
    shuttle::check_pct(readers_and_writers, 10_000, 4);
}

/// A commit that is acknowledged during a close is durable when the log has ended.
fn asynchronous_commits_beside_a_close() {
    let (log, pipeline) = pipeline(2);
    let committers = [Durability::None, Durability::Sync, Durability::None].map(|level| {
        let pipeline = pipeline.clone();
        thread::spawn(move || commit(&pipeline, level))
    });
    pipeline.begin_close();
    log.close();
    for committer in committers {
        if let Some(csn) = committer.join().unwrap() {
            assert!(log.durable_csn() >= csn, "commit {csn} was acknowledged and is lost");
        }
    }
}

#[test]
fn what_is_acknowledged_beside_a_close_is_durable() {
    shuttle::check_random(asynchronous_commits_beside_a_close, 20_000);
}

#[test]
fn what_is_acknowledged_beside_a_close_is_durable_however_threads_are_preempted() {
    shuttle::check_pct(asynchronous_commits_beside_a_close, 10_000, 4);
}

/// A canary: without the closer's announcement the exploration has to find a commit that was acknowledged and is lost.
#[test]
#[should_panic(expected = "was acknowledged and is lost")]
fn a_close_that_is_not_announced_loses_a_commit() {
    let explore = || {
        let (log, pipeline) = pipeline(2);
        let committer = {
            let pipeline = pipeline.clone();
            thread::spawn(move || commit(&pipeline, Durability::None))
        };
        log.close();
        if let Some(csn) = committer.join().unwrap() {
            assert!(log.durable_csn() >= csn, "commit {csn} was acknowledged and is lost");
        }
    };
    shuttle::check_random(explore, 5_000);
}
