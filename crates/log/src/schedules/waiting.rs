//! Waiting for durability: no waiter is left asleep, no commit is acknowledged too early.

use crate::CommitLog;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fulgurite_types::Csn;
use shuttle::sync::atomic::AtomicU32;
use shuttle::thread;

use super::explore;
use super::world::{World, below, options};
use crate::{Durability, FlushScheme, Log, LogError, LogOptions};

/// Runs `work` in `threads` threads, and waits for all.
fn together(world: &Arc<World>, threads: usize, work: impl Fn(&World) + Copy + Send + 'static) {
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let world = Arc::clone(world);
            thread::spawn(move || work(&world))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn commits() {
    let world = World::new(options());
    together(&world, 3, |world| {
        for _ in 0..2 {
            world.commit(1 + below(100)).expect("nothing fails");
        }
    });
    world.finish();
}

#[test]
fn every_waiter_returns_and_its_commit_is_durable() {
    explore(8_000, commits);
}

/// More threads than there are bits to sleep on.
fn many_commits() {
    let world = World::new(options());
    together(&world, 7, |world| {
        world.commit(1 + below(100)).expect("nothing fails");
    });
    world.finish();
}

#[test]
fn sleepers_that_share_a_bit_all_return() {
    explore(5_000, many_commits);
}

/// Tickets: no thread waits, one thread maintains.
fn tickets() {
    let world = World::new(options());
    let left = Arc::new(AtomicU32::new(2));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (world, left) = (Arc::clone(&world), Arc::clone(&left));
            thread::spawn(move || {
                for _ in 0..2 {
                    let csn = world.append(1 + below(3000), Durability::Sync).expect("nothing fails");
                    match below(2) {
                        0 => world.log.request_durable(csn),
                        _ => world.log.request_durable_within(csn, Duration::ZERO),
                    }
                }
                left.fetch_sub(1, SeqCst);
            })
        })
        .collect();
    // A thread counts itself done after its last request, so the round after the last count serves them all.
    loop {
        let are_done = left.load(SeqCst) == 0;
        while world.log.maintain().expect("nothing fails") {}
        if are_done {
            break;
        }
        thread::yield_now();
    }
    let newest = Csn(4);
    assert!(world.log.durable_csn() >= newest, "every request was served");
    world.assert_durable(newest);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    world.finish();
}

#[test]
fn tickets_are_served_by_the_thread_that_maintains() {
    explore(4_000, tickets);
}

/// Waits until a flush of the device covered a commit; only then is it durable without a power-safe cache.
fn wait_synced(world: &World, csn: Csn) {
    world.log.wait_synced(csn).expect("nothing fails");
    assert!(world.log.synced_csn() >= csn);
    world.sim.faults().power_safe_cache(false);
    world.assert_durable(csn);
    world.sim.faults().power_safe_cache(world.log.options().power_safe_cache);
}

/// All calls that may flush, in any order, by all threads.
fn anything(world: &World) {
    for _ in 0..2 {
        match below(8) {
            0 => world.sim.advance(Duration::from_millis(20)),
            1 => _ = world.log.maintain().expect("nothing fails"),
            2 => _ = world.append(3500, Durability::None).expect("nothing fails"),
            3 => _ = world.append(1, Durability::None).expect("nothing fails"),
            4 => wait_synced(world, world.log.reserved_csn()),
            5 => {
                // Longer than a block, or within one that the next write writes again.
                let csn = world.append(100 + below(2) * 3900, Durability::NoBarrier).expect("nothing fails");
                world.wait_durable(csn).expect("nothing fails");
            }
            _ => _ = world.commit(1 + below(100)).expect("nothing fails"),
        }
    }
}

fn mixture(power_safe_cache: bool) {
    let drawn = options();
    let world = World::new(if power_safe_cache {
        LogOptions { scheme: FlushScheme::Combined, direct: true, power_safe_cache, ..drawn }
    } else {
        drawn
    });
    together(&world, 4, anything);
    wait_synced(&world, world.log.reserved_csn());
    world.finish();
}

#[test]
fn no_thread_hangs_whatever_the_others_do() {
    explore(15_000, || mixture(false));
}

#[test]
fn no_thread_hangs_where_writes_count_without_a_flush() {
    explore(10_000, || mixture(true));
}

/// Mark groups among commits: a flush covers only groups written before it began, and a mark group may be written
/// meanwhile.
fn marks() {
    let world = World::new(options());
    world.commit(10).expect("nothing fails");
    world.sim.advance(Duration::from_millis(20));
    let maintainer = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for _ in 0..3 {
                world.log.maintain().expect("nothing fails");
                world.assert_watermark();
            }
        })
    };
    together(&world, 2, |world| {
        world.commit(10).expect("nothing fails");
        world.sim.advance(Duration::from_millis(20));
        world.assert_watermark();
    });
    maintainer.join().expect("no panic");
    world.finish();
}

#[test]
fn durable_never_passes_a_mark_group_that_no_flush_covered() {
    explore(6_000, marks);
}

fn assert_ok_or_closed(result: Result<Csn, LogError>) {
    assert!(matches!(result, Ok(_) | Err(LogError::Closed)), "{result:?}");
}

/// A close while threads commit: each commit is durable, or fails because the log is closed.
fn closes() {
    let world = World::new(options());
    let closer = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let reserved = world.log.reserved_csn();
            world.log.close().expect("nothing fails");
            world.assert_durable(reserved);
            (world.log.reserved_csn(), world.contents())
        })
    };
    together(&world, 3, |world| {
        assert_ok_or_closed(world.commit(1 + below(100)));
        assert_ok_or_closed(world.append(10, Durability::None));
    });
    let (_, contents) = closer.join().expect("no panic");
    assert!(contents == world.contents(), "nothing is written after the close");
    assert_ok_or_closed(late(&world.log));
}

fn late(log: &Log) -> Result<Csn, LogError> {
    log.wait_durable(log.reserved_csn())?;
    Ok(log.durable_csn())
}

#[test]
fn at_a_close_every_waiter_returns() {
    explore(6_000, closes);
}
