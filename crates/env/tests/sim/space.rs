//! Full disks.

use std::io::ErrorKind;
use std::path::Path;

use fulgurite_env::sim::SimEnv;
use fulgurite_env::{Env, OpenOptions, is_disk_full, raw_os_error};

use super::{SECTOR, log, root, stamps, with_log};

const ENOSPC: i32 = 28;

#[test]
fn writes_beyond_the_space_fail_and_overwrites_do_not() {
    let (sim, file) = with_log(2, 1);
    sim.faults().space_bytes(Some(3 * SECTOR as u64));
    assert_eq!(sim.disk().free_bytes(root()).expect("free"), SECTOR as u64);
    let error = file.write_at(&[2; 2 * SECTOR], 2 * SECTOR as u64).expect_err("full");
    assert_eq!((error.kind(), raw_os_error(&error)), (ErrorKind::StorageFull, Some(ENOSPC)));
    assert_eq!(stamps(&sim), [1, 1, 2], "what fitted was written");
    assert_eq!(sim.disk().free_bytes(root()).expect("free"), 0);
    file.write_at(&[3; 3 * SECTOR], 0).expect("nothing is added");
    assert!(file.set_len(4 * SECTOR as u64).is_err());
    file.set_len(SECTOR as u64).expect("a cut");
    file.write_at(&[2; 2 * SECTOR], SECTOR as u64).expect("there is space again");
}

#[test]
fn an_allocation_finds_its_space_or_fails() {
    let (sim, file) = with_log(2, 1);
    let sector = SECTOR as u64;
    sim.faults().space_bytes(Some(4 * sector));
    let error = file.allocate(5 * sector).expect_err("full");
    assert_eq!((error.kind(), raw_os_error(&error)), (ErrorKind::StorageFull, Some(ENOSPC)));
    assert!(is_disk_full(&error), "{error}");
    assert_eq!((file.len().expect("len"), sim.used_bytes()), (4 * sector, 4 * sector), "what there is");
    file.allocate(4 * sector).expect("it has that");
    let other = sim.disk().open(Path::new("/other"), OpenOptions::CreateNew).expect("create");
    other.allocate(1).expect_err("nothing is left");
    file.write_at(&[2; 4 * SECTOR], 0).expect("its space is there");
    sim.faults().allocation(false);
    assert_eq!(file.allocate(1).expect_err("refused").kind(), ErrorKind::Unsupported);
    sim.faults().allocation(true);
    sim.faults().space_bytes(None);
    sim.faults().disk_full(true);
    assert_eq!(other.allocate(1).expect_err("full").kind(), ErrorKind::StorageFull);
}

#[test]
fn removing_a_file_gives_its_space_back_once_it_is_closed() {
    let (sim, file) = with_log(2, 1);
    sim.faults().space_bytes(Some(2 * SECTOR as u64));
    let other = sim.disk().open(Path::new("/other"), OpenOptions::CreateNew).expect("create");
    other.write_at(&[2; SECTOR], 0).expect_err("full");
    sim.disk().remove(log()).expect("remove");
    other.write_at(&[2; SECTOR], 0).expect_err("still open");
    drop(file);
    other.write_at(&[2; SECTOR], 0).expect("there is space again");
}

#[test]
fn replacing_a_file_by_a_rename_gives_its_space_back() {
    let (sim, file) = with_log(2, 1);
    drop(file);
    let new = Path::new("/new");
    sim.disk().open(new, OpenOptions::CreateNew).expect("create");
    sim.disk().rename(new, log()).expect("rename");
    sim.faults().space_bytes(Some(SECTOR as u64));
    assert_eq!(sim.disk().free_bytes(root()).expect("free"), SECTOR as u64);
}

#[test]
fn a_full_disk_refuses_every_write_until_switched_off() {
    let (sim, file) = with_log(1, 1);
    sim.faults().disk_full(true);
    assert_eq!(sim.disk().free_bytes(root()).expect("free"), 0);
    let error = file.write_at(&[2; SECTOR], 0).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    file.write_at_dsync(&[2; SECTOR], 0).expect_err("full");
    sim.disk().open(Path::new("/new"), OpenOptions::CreateNew).expect_err("full");
    file.sync_data().expect("syncs go on");
    assert_eq!(stamps(&sim), [1]);
    sim.disk().remove(log()).expect("removals go on");
    sim.faults().disk_full(false);
    file.write_at(&[2; SECTOR], 0).expect("space again");
}

#[test]
fn the_limit_continues_in_an_image() {
    let sim = SimEnv::new(1);
    sim.faults().space_bytes(Some(100));
    let image = sim.crash(fulgurite_env::sim::CrashKind::PowerCut, 0);
    assert_eq!(image.disk().free_bytes(root()).expect("free"), 100);
}
