//! The words on which committers sleep, without the rest of the log.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fulgurite_types::Csn;
use shuttle::sync::atomic::{AtomicBool, AtomicU64};
use shuttle::thread;

use super::explore;
use super::world::below;
use crate::stream::parking::Parking;

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
fn every_sleeper_of_a_range_is_woken() {
    explore(6_000, ranges);
}

/// One leader at a time acknowledges the commits up to its own, and wakes one later sleeper to lead next. Not every
/// commit has a waiter, but at least one does: a PCT scheduler whose first schedule has a single thread gives up.
/// Threads that do not sleep leave their bits set.
fn one_by_one() {
    let shared = Arc::new((Parking::new(), AtomicBool::new(false), AtomicU64::new(0)));
    let drawn = below(256);
    let who = if drawn == 0 { 255 } else { drawn };
    let sleepers: Vec<_> = (1..=8)
        .filter(|csn| who >> (csn - 1) & 1 == 1)
        .map(|csn| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (parking, is_led, durable) = &*shared;
                while durable.load(SeqCst) < csn {
                    if is_led.swap(true, SeqCst) {
                        parking.park(Csn(csn), || durable.load(SeqCst) >= csn || !is_led.load(SeqCst));
                        continue;
                    }
                    for _ in 0..3 {
                        thread::sleep(Duration::ZERO);
                    }
                    let before = durable.fetch_max(csn, SeqCst);
                    is_led.store(false, SeqCst);
                    parking.wake_first(Csn(durable.load(SeqCst)));
                    parking.wake_range(Csn(before), Csn(csn));
                }
                if parking.is_shared(Csn(csn)) && !is_led.load(SeqCst) {
                    parking.wake_first(Csn(durable.load(SeqCst)));
                }
            })
        })
        .collect();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
}

#[test]
fn a_thread_that_is_woken_alone_leads_or_passes_the_wake_on() {
    explore(40_000, one_by_one);
}
