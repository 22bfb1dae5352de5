//! The words on which committers sleep, alone.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use fulgurite_base::Csn;
use shuttle::sync::atomic::AtomicU64;
use shuttle::thread;

use super::explore;
use super::world::below;
use crate::park::Parking;

/// INV-LOG-11: sleepers for ten commits on four bits, woken range by range as the commits become durable.
fn ranges() {
    let shared = Arc::new((Parking::new(), AtomicU64::new(0)));
    let sleepers: Vec<_> = (1..=10)
        .step_by(1 + below(3))
        .map(|csn| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (parking, durable) = &*shared;
                while durable.load(SeqCst) < csn {
                    parking.park(Csn(csn), || durable.load(SeqCst) >= csn);
                }
            })
        })
        .collect();
    let (parking, durable) = &*shared;
    let mut before = 0;
    while before < 10 {
        let next = (before + 1 + below(6) as u64).min(10);
        durable.store(next, SeqCst);
        parking.wake_range(Csn(before), Csn(next));
        before = next;
    }
    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
}

#[test]
fn whoever_sleeps_for_a_range_is_woken() {
    explore(6_000, ranges);
}

/// One at a time is woken, and passes it on: nobody is left.
fn one_by_one() {
    let shared = Arc::new((Parking::new(), AtomicU64::new(0)));
    let turns: Vec<_> = (1..=3)
        .map(|csn| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (parking, turns) = &*shared;
                while turns.compare_exchange(1, 0, SeqCst, SeqCst).is_err() {
                    parking.park(Csn(csn), || turns.load(SeqCst) > 0);
                }
                turns.store(1, SeqCst);
                parking.wake_first(Csn::ZERO);
            })
        })
        .collect();
    let (parking, free) = &*shared;
    free.store(1, SeqCst);
    parking.wake_first(Csn::ZERO);
    turns.into_iter().for_each(|turn| turn.join().expect("no panic"));
}

#[test]
fn whoever_is_woken_alone_passes_it_on() {
    explore(6_000, one_by_one);
}
