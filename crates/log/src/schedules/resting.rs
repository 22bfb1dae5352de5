//! Schedules of a background thread that sleeps while other threads add work (INV-LOG-15).

use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use shuttle::thread;

use super::explore;
use crate::signal::{Signal, Sleep};

#[derive(Default)]
struct World {
    signal: Signal,
    /// Added work that ends only a rest, and added work that ends a nap as well.
    ordinary: AtomicU64,
    urgent: AtomicU64,
    stop: AtomicBool,
}

/// Takes the work, sleeps until there is more, and ends at `stop`. It naps after ordinary work, like a thread that
/// expects more of it. Naps never end by themselves here, so only a wake brings urgent work through.
fn work(world: &World, total: u64) -> u64 {
    let (mut ordinary, mut urgent) = (0, 0);
    while !world.stop.load(SeqCst) {
        let found = world.ordinary.swap(0, SeqCst);
        ordinary += found;
        urgent += world.urgent.swap(0, SeqCst);
        let naps = found > 0 && urgent < total;
        world.signal.sleep(|| {
            if world.stop.load(SeqCst) || world.urgent.load(SeqCst) > 0 {
                Sleep::No
            } else if naps {
                Sleep::Nap(Duration::MAX)
            } else if world.ordinary.load(SeqCst) > 0 {
                Sleep::No
            } else {
                Sleep::Rest
            }
        });
    }
    ordinary + urgent + world.ordinary.swap(0, SeqCst) + world.urgent.swap(0, SeqCst)
}

#[test]
fn no_work_waits_for_a_thread_that_sleeps() {
    explore(3000, || {
        let world = Arc::new(World::default());
        let worker = {
            let world = world.clone();
            thread::spawn(move || work(&world, 2))
        };
        let adders: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || {
                    world.ordinary.fetch_add(1, SeqCst);
                    world.signal.wake_resting();
                    world.urgent.fetch_add(1, SeqCst);
                    world.signal.wake_asleep();
                })
            })
            .collect();
        for adder in adders {
            adder.join().unwrap();
        }
        // The worker takes all work before anything else happens: if it stays asleep, that is a deadlock.
        while world.ordinary.load(SeqCst) + world.urgent.load(SeqCst) > 0 {
            thread::yield_now();
        }
        world.stop.store(true, SeqCst);
        world.signal.wake();
        assert_eq!(worker.join().unwrap(), 4);
    });
}
