//! Staging: threads stage, drain, read, close and fail beside each other. What was acknowledged survives, in persistent memory a power
//! cut, too; staged commits read as they were written, wherever it is; no thread hangs.

use crate::CommitLog;
use std::sync::Arc;

use fulgurite_env::MemoryMedium;
use fulgurite_env::sim::Loss;
use fulgurite_types::Csn;
use shuttle::thread;

use super::explore;
use super::world::{World, below, one_of, options};
use crate::{Durability, FlushScheme, LogError, LogOptions, StagingOptions};

/// A frame that fills an eighth of a buffer.
const LONG: usize = 4000;

/// Buffers as short as may be.
fn staging(medium: MemoryMedium) -> LogOptions {
    let staging = StagingOptions {
        buffers: one_of(&[1, 2]),
        buffer_bytes: 32 * 1024,
        ..StagingOptions::new("/staging", medium)
    };
    // More than the shortest log buffers: groups that are in flight do not take all of what a staging buffer has.
    LogOptions { scheme: FlushScheme::Combined, buffer_bytes: 64 * 1024, staging: Some(staging), ..options() }
}

/// Commits, and looks whether it is there after a crash.
fn commit(world: &World) -> Result<Csn, LogError> {
    let csn = world.append(one_of(&[20, LONG]), Durability::Sync)?;
    world.log.wait_durable(csn)?;
    world.log.watermarks().validate();
    if below(8) == 0 {
        world.assert_recovers(csn);
    }
    Ok(csn)
}

fn spawn<T: Send + 'static>(
    world: &Arc<World>,
    body: impl FnOnce(&World) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let world = Arc::clone(world);
    thread::spawn(move || body(&world))
}

/// Committers, a thread that drains, one that waits for syncs.
fn stage_and_drain() {
    let world = World::new(staging(MemoryMedium::Persistent));
    let committers: Vec<_> = (0..3)
        .map(|_| spawn(&world, |world| (0..4).for_each(|_| _ = commit(world).expect("nothing fails"))))
        .collect();
    let drainer = spawn(&world, |world| {
        for _ in 0..6 {
            world.log.maintain().expect("nothing fails");
            thread::yield_now();
        }
    });
    let waiter = spawn(&world, |world| {
        let newest = world.log.durable_csn();
        world.log.wait_synced(newest).expect("nothing fails");
        assert!(world.log.synced_csn() >= newest);
    });
    committers.into_iter().for_each(|thread| thread.join().expect("no panic"));
    drainer.join().expect("no panic");
    waiter.join().expect("no panic");
    world.assert_recovers(Csn(12));
    world.log.wait_synced(Csn(12)).expect("nothing fails");
    world.assert_durable(Csn(12));
}

#[test]
fn staged_commits_survive_beside_drains() {
    explore(600, stage_and_drain);
}

/// What was acknowledged is read as it was written, in a group, staged, while it is synced, and afterwards.
fn read_beside() {
    let world = World::new(staging(one_of(&[MemoryMedium::Persistent, MemoryMedium::Volatile])));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            spawn(&world, |world| {
                for _ in 0..5 {
                    let csn = world.append(one_of(&[20, LONG]), Durability::Staged).expect("nothing fails");
                    world.log.wait_staged(csn).expect("nothing fails");
                    world.assert_reads();
                }
            })
        })
        .collect();
    let drainer = spawn(&world, |world| {
        for _ in 0..3 {
            let newest = world.log.reserved_csn();
            world.log.wait_synced(newest).expect("nothing fails");
            world.assert_reads();
        }
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    drainer.join().expect("no panic");
    let newest = world.log.reserved_csn();
    world.log.wait_synced(newest).expect("nothing fails");
    world.assert_durable(newest);
}

#[test]
fn what_is_staged_reads_as_it_was_written() {
    explore(400, read_beside);
}

/// Commits of a log that closes are durable, or fail; nothing is staged afterwards.
fn close_beside() {
    let world = World::new(staging(one_of(&[MemoryMedium::Persistent, MemoryMedium::Volatile])));
    let committers: Vec<_> = (0..3)
        .map(|_| {
            spawn(&world, |world| {
                let mut newest = Csn::ZERO;
                for _ in 0..3 {
                    match world.append(one_of(&[20, LONG]), Durability::Sync).and_then(|csn| {
                        world.log.wait_durable(csn)?;
                        Ok(csn)
                    }) {
                        Ok(csn) => newest = csn,
                        Err(LogError::Closed) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                newest
            })
        })
        .collect();
    for _ in 0..below(40) {
        thread::yield_now();
    }
    world.log.close().expect("nothing fails");
    let end = world.log.watermarks();
    let acknowledged = committers.into_iter().map(|thread| thread.join().expect("no panic")).max();
    assert_eq!(world.log.stats().staged_bytes, 0);
    assert!(
        end.synced == end.written && world.log.synced_csn() >= acknowledged.expect("three threads"),
        "{end:?}"
    );
    world.assert_durable(acknowledged.expect("three threads"));
}

#[test]
fn a_close_leaves_nothing_staged() {
    explore(600, close_beside);
}

/// A drain that fails ends the log: every waiter returns, and what was acknowledged is there.
fn failing_drain() {
    let world = World::new(staging(MemoryMedium::Persistent));
    let faults = world.sim.faults();
    let loss = one_of(&[Loss::All, Loss::Some]);
    match below(2) {
        0 => faults.fail_write(faults.write_count() + 1 + below(3) as u64),
        _ => faults.fail_sync(faults.sync_count() + 1 + below(3) as u64, loss),
    }
    let committers: Vec<_> = (0..3)
        .map(|_| {
            spawn(&world, |world| {
                let mut newest = Csn::ZERO;
                for _ in 0..4 {
                    match world.append(LONG, Durability::Sync).and_then(|csn| {
                        world.log.wait_durable(csn)?;
                        Ok(csn)
                    }) {
                        Ok(csn) => newest = csn,
                        Err(LogError::Poisoned(_) | LogError::Io { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                newest
            })
        })
        .collect();
    let newest = committers.into_iter().map(|thread| thread.join().expect("no panic")).max();
    _ = world.log.wait_synced(newest.expect("three threads"));
    world.assert_recovers(newest.expect("three threads"));
}

#[test]
fn after_a_failing_drain_every_waiter_returns() {
    explore(600, failing_drain);
}

/// The one buffer is nearly full, and is synced: the commit that needs its beginning again waits until that is synced (INV-STG-2).
fn reuse_beside_a_drain() {
    let mut options = staging(MemoryMedium::Persistent);
    options.staging.as_mut().expect("it stages").buffers = 1;
    let world = World::new(options);
    for _ in 0..7 {
        let csn = world.append(LONG, Durability::Sync).expect("nothing fails");
        world.log.wait_durable(csn).expect("nothing fails");
    }
    let drainer = spawn(&world, |world| world.log.wait_synced(Csn(7)).expect("nothing fails"));
    for _ in 0..2 {
        let csn = world.append(LONG, Durability::Sync).expect("nothing fails");
        world.log.wait_durable(csn).expect("nothing fails");
        world.assert_recovers(csn);
    }
    drainer.join().expect("no panic");
}

#[test]
fn a_buffer_is_used_again_only_when_all_of_it_is_synced() {
    explore(1_000, reuse_beside_a_drain);
}
