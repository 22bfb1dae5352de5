//! A failed sync, and the worth of the next one.

use std::io::ErrorKind;

use fulgurite_env::sim::CrashKind::{Kill, PowerCut};
use fulgurite_env::sim::Loss;
use fulgurite_env::{Env, File, OpenOptions, raw_os_error};

use super::{SECTOR, log, outcomes, root, stamps, with_log};

const EIO: i32 = 5;

fn direct_stamps(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![9; usize::try_from(file.len().expect("len")).expect("small")];
    assert_eq!(file.read_at_direct(&mut bytes, 0).expect("read"), bytes.len());
    bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
}

#[test]
fn a_sync_after_a_failed_one_proves_nothing() {
    let (sim, file) = with_log(2, 1);
    file.write_at(&[2; 2 * SECTOR], 0).expect("write");
    assert_eq!(direct_stamps(&*file), [2, 2], "a direct read writes dirty pages back first");
    sim.faults().fail_sync(sim.faults().sync_count() + 1, Loss::All);
    let error = file.sync_data().expect_err("planned");
    assert_eq!(raw_os_error(&error), Some(EIO), "{error}");
    file.sync_data().expect("the next one succeeds");
    assert_eq!(stamps(&sim), [2, 2], "the cache shows the write");
    assert_eq!(direct_stamps(&*file), [1, 1], "the device does not have it");
    assert_eq!(stamps(&sim.crash(Kill, 0)), [2, 2]);
    assert_eq!(outcomes(&sim, PowerCut).into_iter().collect::<Vec<_>>(), [vec![1, 1]]);
}

#[test]
fn writing_again_what_a_failed_sync_lost_makes_it_durable() {
    let (sim, file) = with_log(2, 1);
    file.write_at(&[2; 2 * SECTOR], 0).expect("write");
    sim.faults().fail_sync(sim.faults().sync_count() + 1, Loss::All);
    file.sync_data().expect_err("planned");
    file.write_at(&[2; SECTOR], 0).expect("the same bytes");
    file.sync_data().expect("sync");
    assert_eq!(direct_stamps(&*file), [2, 1]);
    file.write_at_dsync(&[2; SECTOR], SECTOR as u64).expect("the same bytes");
    assert_eq!(direct_stamps(&*file), [2, 2]);
}

#[test]
fn a_truncation_reaches_what_a_failed_sync_left_on_the_medium() {
    let (sim, file) = with_log(8, 1);
    file.write_at(&[0; 8 * SECTOR], 0).expect("zeros");
    sim.faults().fail_sync(sim.faults().sync_count() + 1, Loss::All);
    file.sync_data().expect_err("planned");
    file.set_len(0).expect("cut");
    file.set_len(8 * SECTOR as u64).expect("extend");
    file.sync_data().expect("sync");
    assert_eq!(direct_stamps(&*file), [0; 8]);
}

#[test]
fn a_length_that_a_failed_sync_lost_comes_with_the_next() {
    let (sim, file) = with_log(1, 1);
    file.write_at(&[2; SECTOR], SECTOR as u64).expect("append");
    sim.faults().fail_sync(sim.faults().sync_count() + 1, Loss::All);
    file.sync_data().expect_err("planned");
    assert!(outcomes(&sim, PowerCut).contains(&vec![1]));
    file.write_at(&[3; SECTOR], SECTOR as u64).expect("again");
    file.sync_data().expect("sync");
    assert_eq!(outcomes(&sim, PowerCut).into_iter().collect::<Vec<_>>(), [vec![1, 3]]);
}

#[test]
fn a_failed_sync_may_have_written_a_part() {
    let mut durable = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let (origin, file) = with_log(2, 1);
        drop(file);
        let sim = origin.crash(PowerCut, seed);
        let file = sim.disk().open(log(), OpenOptions::Write).expect("open");
        file.write_at(&[2; 2 * SECTOR], 0).expect("write");
        sim.faults().fail_sync(1, Loss::Some);
        file.sync_data().expect_err("planned");
        file.sync_data().expect("sync");
        durable.insert(stamps(&sim.crash(PowerCut, 0)));
    }
    assert_eq!(durable.len(), 4, "{durable:?}");
}

#[test]
fn only_the_planned_sync_fails_and_directories_count() {
    let (sim, file) = with_log(1, 1);
    let next = sim.faults().sync_count() + 1;
    sim.faults().fail_sync(next + 1, Loss::All);
    file.sync_data().expect("not this one");
    sim.disk().sync_dir(root()).expect_err("this one");
    file.sync_data().expect("nor this one");
    assert_eq!(sim.faults().sync_count(), next + 2);
}

#[test]
fn a_failed_directory_sync_loses_the_name_permanently() {
    let (sim, _file) = with_log(1, 1);
    let path = root().join("new");
    sim.disk().open(&path, OpenOptions::CreateNew).expect("create").sync_data().expect("sync");
    sim.faults().fail_sync(sim.faults().sync_count() + 1, Loss::All);
    sim.disk().sync_dir(root()).expect_err("planned");
    sim.disk().sync_dir(root()).expect("the next one succeeds");
    sim.disk().open(&path, OpenOptions::Read).expect("the cache has the name");
    for seed in 0..50 {
        let opened = sim.crash(PowerCut, seed).disk().open(&path, OpenOptions::Read).map(drop);
        assert_eq!(opened.expect_err("gone").kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_failed_write_leaves_any_part_and_only_once() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let (origin, file) = with_log(2, 1);
        drop(file);
        let sim = origin.crash(PowerCut, seed);
        let file = sim.disk().open(log(), OpenOptions::Write).expect("open");
        sim.faults().fail_write(1);
        let error = file.write_at(&[2; 2 * SECTOR], 0).expect_err("planned");
        assert_eq!(raw_os_error(&error), Some(EIO), "{error}");
        seen.insert(stamps(&sim));
        file.write_at(&[2; 2 * SECTOR], 0).expect("the next one succeeds");
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn a_failed_data_synchronous_write_is_not_made_durable_by_a_later_sync() {
    let mut durable = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let (origin, file) = with_log(1, 1);
        drop(file);
        let sim = origin.crash(PowerCut, seed);
        let file = sim.disk().open(log(), OpenOptions::Write).expect("open");
        sim.faults().fail_write(1);
        file.write_at_dsync(&[2; SECTOR], 0).expect_err("planned");
        file.sync_data().expect("sync");
        durable.insert((stamps(&sim)[0], stamps(&sim.crash(PowerCut, 0))[0]));
    }
    assert!(durable.contains(&(2, 1)), "seen in the cache, lost permanently: {durable:?}");
    assert!(!durable.contains(&(1, 2)));
}
