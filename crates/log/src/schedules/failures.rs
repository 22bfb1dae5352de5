//! Failing writes and syncs, and commits that die: no thread hangs, no commit is acknowledged falsely, nothing is
//! written after.

use crate::CommitLog;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite_env::sim::Loss;
use fulgurite_types::Csn;
use shuttle::thread;

use super::explore;
use super::world::{World, below, options};
use crate::{BulkKind, Durability, LogError, frame_bytes};

/// The CSN of an acknowledged commit, 0 for one that failed.
fn end(result: Result<Csn, LogError>) -> Csn {
    match result {
        Ok(csn) => csn,
        Err(LogError::Poisoned(_) | LogError::Io { .. }) => Csn::ZERO,
        Err(error) => panic!("{error}"),
    }
}

/// Three threads commit twice while `fault` happens. Returns the newest acknowledged commit.
fn commits_beside(world: &Arc<World>, fault: impl FnOnce()) -> Csn {
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let world = Arc::clone(world);
            thread::spawn(move || {
                let first = end(world.commit(1 + below(100)));
                first.max(end(world.commit(1 + below(3000))))
            })
        })
        .collect();
    for _ in 0..below(60) {
        thread::yield_now();
    }
    fault();
    threads.into_iter().map(|thread| thread.join().expect("no panic")).max().expect("three threads")
}

/// After all threads ended: acknowledged commits are still there, and a poisoned log stays as it is.
fn judge(world: &World, acknowledged: Csn) {
    world.assert_durable(acknowledged);
    if world.log.poisoned().is_some() {
        let contents = world.contents();
        let newest = world.log.reserved_csn();
        if newest > world.log.durable_csn() {
            assert!(matches!(world.log.wait_durable(newest), Err(LogError::Poisoned(_))));
        }
        assert!(matches!(world.log.maintain(), Err(LogError::Poisoned(_))));
        assert!(matches!(world.commit(10), Err(LogError::Poisoned(_))));
        assert!(contents == world.contents(), "INV-LOG-7: something was written after the fault");
    }
    world.assert_recovers(acknowledged);
}

/// INV-LOG-7: one of the first writes or syncs fails.
fn faults() {
    let world = World::new(options());
    let faults = world.sim.faults();
    let n = 1 + below(4) as u64;
    match below(3) {
        0 => faults.fail_write(faults.write_count() + n),
        1 => faults.fail_sync(faults.sync_count() + n, Loss::All),
        _ => faults.fail_sync(faults.sync_count() + n, Loss::Some),
    }
    let acknowledged = commits_beside(&world, || {});
    judge(&world, acknowledged);
}

#[test]
fn after_a_failing_write_or_sync_every_waiter_returns_and_nothing_is_written() {
    explore(30_000, faults);
}

/// A commit dies between its reservation and the end of its fill.
fn hole() {
    let world = World::new(options());
    let acknowledged = commits_beside(&world, || {
        if let Ok(admission) = world.log.admit(frame_bytes(10), 0) {
            drop(world.log.reserve(admission, Durability::Sync));
        }
    });
    judge(&world, acknowledged);
}

#[test]
fn after_a_commit_dies_every_waiter_returns() {
    explore(20_000, hole);
}

/// The engine above the log poisons it.
fn outside() {
    let world = World::new(options());
    let acknowledged = commits_beside(&world, || world.log.poison("a test"));
    judge(&world, acknowledged);
}

#[test]
fn after_poison_from_outside_every_waiter_returns() {
    explore(20_000, outside);
}

/// The bulk stream fails while threads commit.
fn bulk() {
    let world = World::new(options());
    world.watch.bulk.store(true, Relaxed);
    let acknowledged = commits_beside(&world, || {
        let appended = world.log.append_bulk(BulkKind::LeafNode, &[&[1; 100]]);
        if appended.is_ok() {
            world.sim.faults().fail_write(world.sim.faults().write_count() + 1);
            _ = world.log.sync_bulk();
        }
    });
    judge(&world, acknowledged);
}

#[test]
fn after_the_bulk_stream_fails_every_waiter_returns() {
    explore(20_000, bulk);
}
