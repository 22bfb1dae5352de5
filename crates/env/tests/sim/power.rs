//! Writes after a power cut and after a kill.

use fulgurite_env::OpenOptions;
use fulgurite_env::sim::CrashKind::{Kill, PowerCut};
use fulgurite_env::{Env, sim::SimEnv};

use super::{SECTOR, SEEDS, log, outcomes, root, stamps, with_log};

#[test]
fn an_unsynced_write_may_vanish_stay_or_tear() {
    let (sim, file) = with_log(3, 1);
    file.write_at(&[2; 3 * SECTOR], 0).expect("write");
    let outcomes = outcomes(&sim, PowerCut);
    assert_eq!(outcomes.len(), 8, "every subset of the three sectors: {outcomes:?}");
}

#[test]
fn each_sector_may_have_any_state_since_the_last_sync() {
    let (sim, file) = with_log(2, 1);
    for byte in 2..=4 {
        file.write_at(&[byte; 2 * SECTOR], 0).expect("write");
    }
    assert_eq!(outcomes(&sim, PowerCut).len(), 16);
}

#[test]
fn a_synced_write_never_vanishes() {
    let (sim, file) = with_log(4, 1);
    file.write_at(&[2; 4 * SECTOR], 0).expect("write");
    file.sync_data().expect("sync");
    assert_eq!(outcomes(&sim, PowerCut).into_iter().collect::<Vec<_>>(), [vec![2; 4]]);
    file.write_at(&[3; SECTOR], 0).expect("write");
    for outcome in outcomes(&sim, PowerCut) {
        assert_eq!(outcome[1..], [2; 3], "only what was written since is in doubt");
    }
}

#[test]
fn a_data_synchronous_write_covers_only_its_own_blocks() {
    let (sim, file) = with_log(4, 1);
    file.write_at(&[2; 4 * SECTOR], 0).expect("write");
    file.write_at_dsync(&[3; SECTOR], SECTOR as u64).expect("dsync");
    let outcomes = outcomes(&sim, PowerCut);
    assert!(outcomes.iter().all(|outcome| outcome[1] == 3));
    assert_eq!(outcomes.len(), 8, "the other three are free: {outcomes:?}");
}

#[test]
fn a_disk_that_ignores_syncs_says_that_they_succeed() {
    for fua in [true, false] {
        let (sim, file) = with_log(2, 1);
        sim.faults().fua(fua);
        sim.faults().ignore_syncs(true);
        file.write_at_dsync(&[2; SECTOR], 0).expect("dsync");
        file.write_at(&[2; SECTOR], SECTOR as u64).expect("write");
        file.sync_data().expect("sync");
        assert_eq!(outcomes(&sim, PowerCut).len(), 4, "both sectors are free");
        assert_eq!(outcomes(&sim, Kill).into_iter().collect::<Vec<_>>(), [vec![2; 2]]);
        sim.faults().ignore_syncs(false);
        file.sync_data().expect("sync");
        assert_eq!(outcomes(&sim, PowerCut).into_iter().collect::<Vec<_>>(), [vec![2; 2]]);
    }
}

#[test]
fn without_fua_it_covers_the_file() {
    let (sim, file) = with_log(4, 1);
    sim.faults().fua(false);
    file.write_at(&[2; 4 * SECTOR], 0).expect("write");
    file.write_at_dsync(&[3; SECTOR], SECTOR as u64).expect("dsync");
    assert_eq!(outcomes(&sim, PowerCut).into_iter().collect::<Vec<_>>(), [vec![2, 3, 2, 2]]);
}

#[test]
fn a_data_synchronous_write_makes_its_extension_durable() {
    let (sim, file) = with_log(1, 1);
    file.write_at_dsync(&[2; SECTOR], SECTOR as u64).expect("dsync");
    assert_eq!(outcomes(&sim, PowerCut).into_iter().collect::<Vec<_>>(), [vec![1, 2]]);
}

#[test]
fn a_data_synchronous_write_inside_an_unsynced_extension_is_readable() {
    let (sim, file) = with_log(1, 1);
    file.write_at(&[2; 3 * SECTOR], SECTOR as u64).expect("extend");
    file.write_at_dsync(&[3; SECTOR], SECTOR as u64).expect("dsync");
    let outcomes = outcomes(&sim, PowerCut);
    assert!(outcomes.iter().all(|outcome| outcome[..2] == [1, 3]), "{outcomes:?}");
    assert!(outcomes.contains(&vec![1, 3]) && outcomes.contains(&vec![1, 3, 2, 2]), "{outcomes:?}");
}

#[test]
fn an_extension_may_survive_without_its_data_and_the_reverse() {
    let (sim, file) = with_log(1, 1);
    file.write_at(&[2; SECTOR], SECTOR as u64).expect("append");
    let outcomes = outcomes(&sim, PowerCut);
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [vec![1], vec![1, 0], vec![1, 2]]);
}

#[test]
fn data_behind_a_lost_extension_does_not_come_back() {
    let (sim, file) = with_log(1, 1);
    file.write_at(&[2; SECTOR], SECTOR as u64).expect("append");
    for image in (0..SEEDS).map(|seed| sim.crash(PowerCut, seed)).filter(|image| stamps(image).len() == 1) {
        let reopened = image.disk().open(log(), OpenOptions::Write).expect("open");
        reopened.set_len(2 * SECTOR as u64).expect("extend");
        assert_eq!(stamps(&image), [1, 0]);
    }
}

#[test]
fn a_truncation_may_be_lost_and_brings_back_no_data_once_synced() {
    let (sim, file) = with_log(2, 1);
    file.set_len(SECTOR as u64).expect("cut");
    let unsynced = outcomes(&sim, PowerCut);
    assert!(unsynced.contains(&vec![1]) && unsynced.contains(&vec![1, 1]), "{unsynced:?}");
    file.sync_data().expect("sync");
    file.set_len(2 * SECTOR as u64).expect("extend");
    let synced = outcomes(&sim, PowerCut);
    assert_eq!(synced.into_iter().collect::<Vec<_>>(), [vec![1], vec![1, 0]]);
}

#[test]
fn a_kill_keeps_the_cache_and_a_later_power_cut_may_lose_it() {
    let (sim, file) = with_log(2, 1);
    file.write_at(&[2; 2 * SECTOR], 0).expect("write");
    assert_eq!(outcomes(&sim, Kill).into_iter().collect::<Vec<_>>(), [vec![2, 2]]);
    let killed = sim.crash(Kill, 5);
    assert_eq!(outcomes(&killed, PowerCut).len(), 4);
    let reopened = killed.disk().open(log(), OpenOptions::Write).expect("open");
    reopened.sync_data().expect("sync");
    assert_eq!(outcomes(&killed, PowerCut).into_iter().collect::<Vec<_>>(), [vec![2, 2]]);
}

#[test]
fn what_a_power_cut_left_is_durable() {
    let (sim, file) = with_log(3, 1);
    file.write_at(&[2; 3 * SECTOR], 0).expect("write");
    for seed in 0..20 {
        let image = sim.crash(PowerCut, seed);
        assert_eq!(outcomes(&image, PowerCut).into_iter().collect::<Vec<_>>(), [stamps(&image)]);
    }
}

#[test]
fn an_image_and_its_origin_do_not_touch_each_other() {
    let (sim, file) = with_log(2, 1);
    let image = sim.crash(Kill, 0);
    file.write_at(&[2; SECTOR], 0).expect("write");
    let other = image.disk().open(log(), OpenOptions::Write).expect("open");
    other.write_at(&[3; SECTOR], SECTOR as u64).expect("write");
    assert_eq!((stamps(&sim), stamps(&image)), (vec![2, 1], vec![1, 3]));
}

#[test]
fn zeros_in_a_hole_cost_no_version_and_still_extend() {
    let sim = SimEnv::new(1);
    let file = sim.disk().open(log(), OpenOptions::CreateNew).expect("create");
    sim.disk().sync_dir(root()).expect("sync_dir");
    file.write_at(&vec![0; 1 << 20], 0).expect("preallocate");
    let lengths: Vec<usize> = outcomes(&sim, PowerCut).iter().map(Vec::len).collect();
    assert_eq!(lengths, [0, (1 << 20) / SECTOR]);
}
