//! The helpers that change a disk without the process.

use std::path::Path;

use fulgurite_env::sim::CrashKind::PowerCut;
use fulgurite_env::sim::SimEnv;
use fulgurite_env::{Env, OpenOptions};

use super::{SECTOR, log, stamps, with_log};

#[test]
fn a_corrupted_byte_is_corrupted_everywhere() {
    let (sim, file) = with_log(2, 1);
    file.write_at(&[2; 2 * SECTOR], 0).expect("write");
    let operations = sim.faults().op_count();
    sim.corrupt(log(), 5, |byte| *byte ^= 0x80).expect("corrupt");
    assert_eq!(sim.faults().op_count(), operations);
    let mut bytes = [0; 8];
    file.read_at(&mut bytes, 0).expect("read");
    assert_eq!(bytes, [2, 2, 2, 2, 2, 0x82, 2, 2]);
    file.read_at_direct(&mut bytes, 0).expect("read");
    assert_eq!(bytes[5], 0x82);
    for seed in 0..50 {
        assert_eq!(sim.crash(PowerCut, seed).read_raw(log()).expect("read")[5], 0x82);
    }
}

#[test]
fn files_appear_and_vanish_durably() {
    let sim = SimEnv::new(1);
    let path = Path::new("/db/parts/0001");
    sim.write_raw(path, &[1; 700]).expect("write");
    let handle = sim.disk().open(path, OpenOptions::Write).expect("open");
    sim.write_raw(path, &[2; 700]).expect("replace");
    sim.truncate(path, 600).expect("truncate");
    assert_eq!(handle.len().expect("len"), 600);
    let image = sim.crash(PowerCut, 0);
    assert_eq!(image.list_raw(), [(path.to_path_buf(), 600)]);
    assert_eq!(image.read_raw(path).expect("read"), [2; 600]);
    sim.remove_raw(path).expect("remove");
    assert!(sim.read_raw(path).is_err());
    assert!(sim.crash(PowerCut, 0).list_raw().is_empty());
    sim.remove_raw(path).expect_err("gone");
}

#[test]
fn the_durable_state_can_be_looked_at() {
    let (sim, file) = with_log(1, 1);
    file.write_at(&[2; 2 * SECTOR], 0).expect("write");
    assert_eq!(stamps(&sim), [2, 2]);
    assert_eq!(sim.read_durable(log()).expect("read"), [1; SECTOR]);
}

#[test]
fn of_a_copied_directory_nothing_comes_back_outside() {
    let sim = SimEnv::new(1);
    let (kept, gone) = (Path::new("/kept/file"), Path::new("/gone/file"));
    sim.write_raw(kept, &[1; 10]).expect("write");
    sim.write_raw(gone, &[1; 10]).expect("write");
    // Unlinked, and not synced: a power cut may bring it back.
    sim.disk().open_dir(Path::new("/gone")).expect("open").remove("file").expect("unlink");
    let comes_back = |sim: &SimEnv| (0..50).any(|seed| sim.crash(PowerCut, seed).read_raw(gone).is_ok());
    assert!(comes_back(&sim));
    sim.keep_below_raw(Path::new("/kept"));
    assert!(!comes_back(&sim) && sim.list_raw() == [(kept.to_path_buf(), 10)]);
    assert_eq!(sim.crash(PowerCut, 1).list_raw(), [(kept.to_path_buf(), 10)]);
}
