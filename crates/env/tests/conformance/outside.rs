//! Clocks, randomness and threads.

use std::sync::mpsc;
use std::time::Duration;

use super::Bed;

pub(super) fn monotonic_time_advances(bed: &Bed) {
    let clock = bed.env.clock();
    let before = clock.monotonic_ns();
    clock.sleep(Duration::from_millis(2));
    assert!(clock.monotonic_ns() - before >= 2_000_000);
}

pub(super) fn wall_time_is_this_century(bed: &Bed) {
    let year_2025_ms = 1_735_689_600_000;
    let year_2100_ms = 4_102_444_800_000;
    assert!((year_2025_ms..year_2100_ms).contains(&bed.env.clock().wall_ms()));
}

pub(super) fn random_numbers_differ(bed: &Bed) {
    assert_ne!(bed.env.random_u64(), bed.env.random_u64());
}

pub(super) fn threads_are_named_and_joined(bed: &Bed) {
    let (sender, receiver) = mpsc::channel();
    let body = move || {
        let name = std::thread::current().name().map(str::to_owned);
        sender.send(name).expect("the test waits");
    };
    let thread = bed.env.spawn("checkpoint", Box::new(body)).expect("spawn");
    assert_eq!(receiver.recv().expect("sent").as_deref(), Some("checkpoint"));
    assert!(thread.join());
    let panicking = bed.env.spawn("unlucky", Box::new(|| std::panic::resume_unwind(Box::new("on purpose"))));
    assert!(!panicking.expect("spawn").join());
}
