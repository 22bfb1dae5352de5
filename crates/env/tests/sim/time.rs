//! Time, randomness and determinism.

use std::time::Duration;

use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_env::{Env, OpenOptions};

use super::{SECTOR, log, with_log};

#[test]
fn time_passes_by_operations_advances_and_sleeping_only() {
    let (sim, file) = with_log(1, 1);
    let start = sim.clock().monotonic_ns();
    assert_eq!(sim.clock().monotonic_ns(), start);
    file.write_at(&[2; SECTOR], 0).expect("write");
    assert_eq!(sim.clock().monotonic_ns(), start + 1_000);
    let wall = sim.clock().wall_ms();
    sim.advance(Duration::from_secs(10));
    sim.clock().sleep(Duration::from_secs(3_600));
    assert_eq!(sim.clock().monotonic_ns(), start + 1_000 + 3_610_000_000_000);
    assert_eq!(sim.clock().wall_ms(), wall + 3_610_000);
    sim.jump_wall_clock(-5_000);
    assert_eq!(sim.clock().wall_ms(), wall + 3_605_000);
    let image = sim.crash(CrashKind::Kill, 0);
    assert_eq!(image.clock().wall_ms(), wall + 3_605_000, "time continues after a restart");
}

#[test]
fn a_slow_disk_takes_its_time_for_writes_and_syncs() {
    let (sim, file) = with_log(1, 1);
    sim.faults().latency(Duration::from_millis(2), Duration::from_millis(9));
    for sim in [&sim, &sim.crash(CrashKind::Kill, 0)] {
        let file = sim.disk().open(log(), OpenOptions::Write).expect("it is there");
        let mut start = sim.clock().monotonic_ns();
        let mut took_ms = || {
            let (before, now) = (start, sim.clock().monotonic_ns());
            start = now;
            (now - before) / 1_000_000
        };
        file.write_at(&[2; SECTOR], 0).expect("write");
        assert_eq!(took_ms(), 2);
        file.sync_data().expect("sync");
        assert_eq!(took_ms(), 9);
        file.read_at(&mut [0; SECTOR], 0).expect("read");
        assert_eq!(took_ms(), 0);
    }
    drop(file);
}

#[test]
fn numbers_follow_the_seed() {
    let numbers = |seed| {
        let sim = SimEnv::new(seed);
        [sim.random_u64(), sim.random_u64()]
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}

#[test]
fn the_same_seed_and_operations_give_the_same_image() {
    let image = |seed| {
        let (sim, file) = with_log(64, 1);
        for sector in (0..64).step_by(3) {
            file.write_at(&[sector as u8; 700], sector * SECTOR as u64).expect("write");
        }
        sim.faults().crash_at(sim.faults().op_count() + 1);
        file.write_at(&[99; 20 * SECTOR], 0).expect_err("planned");
        let image = sim.crash(CrashKind::PowerCut, seed);
        (image.list_raw(), image.read_raw(super::log()).expect("read"))
    };
    assert!(image(7) == image(7));
    assert!((0..20).any(|seed| image(seed) != image(7)), "the seed matters");
}
