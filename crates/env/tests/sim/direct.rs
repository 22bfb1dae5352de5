//! Direct writes, and their state after each kind of crash.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use fulgurite_env::sim::CrashKind::{self, Kill, OsCrash, PowerCut};
use fulgurite_env::sim::{Loss, SimEnv};
use fulgurite_env::{AlignedBuf, DIRECT_BYTES, DeviceInfo, Env, File, OpenOptions};

use super::{SECTOR, SEEDS, log, outcomes, root, stamps, with_log};

/// Sectors of a block.
const BLOCK: usize = DIRECT_BYTES / SECTOR;

fn write_direct(
    file: &dyn File,
    byte: u8,
    (block, count): (usize, usize),
    sync: bool,
) -> std::io::Result<()> {
    let mut buf = AlignedBuf::new(count * DIRECT_BYTES);
    buf.fill(byte);
    file.write_direct(&buf, (block * DIRECT_BYTES) as u64, sync)
}

/// A durable file of `blocks` blocks filled with 1.
fn with_blocks(blocks: usize) -> (Arc<SimEnv>, Arc<dyn File>) {
    with_log(blocks * BLOCK, 1)
}

/// The only outcome, one stamp for each block.
fn only(sim: &SimEnv, kind: CrashKind) -> Vec<u8> {
    let outcomes = outcomes(sim, kind);
    assert_eq!(outcomes.len(), 1, "{kind:?}: {outcomes:?}");
    let stamps = outcomes.into_iter().next().expect("one");
    stamps.chunks(BLOCK).map(|block| block[0]).collect()
}

/// Whether every two sectors of the first block have every combination of two states.
fn first_block_is_free(outcomes: &BTreeSet<Vec<u8>>) -> bool {
    let combinations = |a: usize, b: usize| -> BTreeSet<(u8, u8)> {
        outcomes.iter().map(|outcome| (outcome[a], outcome[b])).collect()
    };
    (0..BLOCK).all(|a| (0..a).all(|b| combinations(a, b).len() == 4))
}

#[test]
fn an_unsynced_direct_write_survives_a_crash_of_the_system_and_not_a_power_cut() {
    let (sim, file) = with_blocks(1);
    write_direct(&*file, 2, (0, 1), false).expect("write");
    assert_eq!(stamps(&sim), [2; BLOCK]);
    assert_eq!(only(&sim, Kill), [2]);
    assert_eq!(only(&sim, OsCrash), [2]);
    assert!(first_block_is_free(&outcomes(&sim, PowerCut)));
}

#[test]
fn an_unsynced_buffered_write_survives_neither() {
    for power_safe in [false, true] {
        let (sim, file) = with_log(3, 1);
        sim.faults().power_safe_cache(power_safe);
        file.write_at(&[2; 3 * SECTOR], 0).expect("write");
        for kind in [OsCrash, PowerCut] {
            assert_eq!(outcomes(&sim, kind).len(), 8, "{kind:?}: every subset of its sectors");
        }
    }
}

#[test]
fn a_synced_write_survives_everything() {
    for fua in [true, false] {
        let (sim, file) = with_blocks(3);
        sim.faults().fua(fua);
        write_direct(&*file, 2, (0, 1), true).expect("write");
        file.write_at_dsync(&[2; DIRECT_BYTES], DIRECT_BYTES as u64).expect("write");
        file.write_at(&[2; DIRECT_BYTES], 2 * DIRECT_BYTES as u64).expect("write");
        file.sync_data().expect("sync");
        for kind in [Kill, OsCrash, PowerCut] {
            assert_eq!(only(&sim, kind), [2, 2, 2]);
        }
    }
}

#[test]
fn a_power_safe_cache_keeps_direct_writes_through_a_power_cut() {
    let (sim, file) = with_blocks(2);
    sim.faults().power_safe_cache(true);
    write_direct(&*file, 2, (0, 2), false).expect("write");
    assert_eq!(only(&sim, PowerCut), [2, 2]);
    assert_eq!(sim.read_durable(log()).expect("read"), [2; 2 * DIRECT_BYTES]);
    let image = sim.crash(PowerCut, 1);
    let file = image.disk().open(log(), OpenOptions::Write).expect("open");
    write_direct(&*file, 3, (1, 1), false).expect("write");
    assert_eq!(only(&image, PowerCut), [2, 3], "the setting continues in an image");
}

#[test]
fn with_fua_a_synced_direct_write_covers_only_its_own_blocks() {
    let (sim, file) = with_blocks(2);
    write_direct(&*file, 2, (0, 1), false).expect("write");
    write_direct(&*file, 3, (1, 1), true).expect("write");
    let found = outcomes(&sim, PowerCut);
    assert!(found.iter().all(|outcome| outcome[BLOCK..] == [3; BLOCK]));
    assert!(first_block_is_free(&found));
    assert_eq!(only(&sim, OsCrash), [2, 3]);
}

#[test]
fn without_fua_it_flushes_the_device_and_not_the_page_cache() {
    let (sim, file) = with_blocks(3);
    sim.faults().fua(false);
    write_direct(&*file, 2, (0, 1), false).expect("write");
    file.write_at(&[2; SECTOR], DIRECT_BYTES as u64).expect("write");
    write_direct(&*file, 3, (2, 1), true).expect("write");
    let found = outcomes(&sim, PowerCut);
    assert!(found.iter().all(|outcome| outcome[..BLOCK] == [2; BLOCK] && outcome[2 * BLOCK..] == [3; BLOCK]));
    assert_eq!(found.len(), 2, "the buffered sector is free: {found:?}");
}

#[test]
fn a_sync_of_the_file_covers_direct_writes() {
    let (sim, file) = with_blocks(2);
    write_direct(&*file, 2, (0, 2), false).expect("write");
    file.sync_data().expect("sync");
    assert_eq!(only(&sim, PowerCut), [2, 2]);
}

#[test]
fn a_direct_write_wins_over_buffered_ones_before_and_not_after_it() {
    let (sim, file) = with_blocks(1);
    file.write_at(&[2; DIRECT_BYTES], 0).expect("write");
    write_direct(&*file, 3, (0, 1), false).expect("write");
    assert_eq!(only(&sim, OsCrash), [3], "what was dirty went to the device first");
    let states: BTreeSet<u8> = outcomes(&sim, PowerCut).into_iter().flatten().collect();
    assert_eq!(states, BTreeSet::from([1, 2, 3]));
    file.write_at(&[4; SECTOR], 0).expect("write");
    let found = outcomes(&sim, OsCrash);
    assert_eq!(found.iter().map(|outcome| outcome[0]).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(stamps(&sim)[..2], [4, 3]);
}

#[test]
fn a_direct_write_of_the_same_bytes_counts() {
    let (sim, file) = with_blocks(1);
    file.write_at(&[2; DIRECT_BYTES], 0).expect("write");
    write_direct(&*file, 2, (0, 1), false).expect("write");
    assert_eq!(only(&sim, OsCrash), [2]);
    sim.faults().power_safe_cache(true);
    assert_eq!(only(&sim, PowerCut), [2]);
}

#[test]
fn an_unsynced_direct_extension_may_be_lost_with_the_length() {
    let (sim, file) = with_blocks(1);
    sim.faults().power_safe_cache(true);
    write_direct(&*file, 2, (1, 1), false).expect("extend");
    for kind in [OsCrash, PowerCut] {
        let found = outcomes(&sim, kind);
        assert!(found.contains(&vec![1; BLOCK]), "{kind:?}: the length was lost");
        assert!(found.len() > 2, "{kind:?}: its place may be noted in part: {}", found.len());
    }
    file.sync_data().expect("sync");
    write_direct(&*file, 3, (1, 1), false).expect("overwrite");
    assert_eq!(only(&sim, OsCrash), [1, 3]);
}

#[test]
fn a_direct_write_to_where_the_file_was_cut_may_be_lost_until_a_sync() {
    let (sim, file) = with_blocks(1);
    file.set_len(0).expect("cut");
    file.set_len(DIRECT_BYTES as u64).expect("extend");
    write_direct(&*file, 2, (0, 1), false).expect("write");
    let firsts: BTreeSet<Option<u8>> =
        outcomes(&sim, OsCrash).iter().map(|outcome| outcome.first().copied()).collect();
    assert_eq!(
        firsts,
        BTreeSet::from([None, Some(0), Some(1), Some(2)]),
        "the places may be those before the cut"
    );
    file.sync_data().expect("sync");
    write_direct(&*file, 3, (0, 1), false).expect("write");
    assert_eq!(only(&sim, OsCrash), [3]);
}

#[test]
fn a_synced_direct_extension_is_durable_with_its_length() {
    let (sim, file) = with_blocks(1);
    write_direct(&*file, 2, (1, 1), true).expect("extend");
    assert_eq!(only(&sim, PowerCut), [1, 2]);
}

#[test]
fn what_a_crash_of_the_system_left_may_still_be_lost_by_a_power_cut() {
    let (sim, file) = with_blocks(2);
    write_direct(&*file, 2, (0, 1), false).expect("write");
    file.write_at(&[2; SECTOR], DIRECT_BYTES as u64).expect("write");
    let kept = (0..SEEDS).map(|seed| sim.crash(OsCrash, seed)).find(|image| stamps(image)[BLOCK] == 2);
    let image = kept.expect("some seed writes it back");
    assert_eq!(only(&image, OsCrash), [2, 2], "found, so it is in the device");
    let found = outcomes(&image, PowerCut);
    assert!(found.iter().any(|outcome| outcome[0] == 1) && found.iter().any(|outcome| outcome[BLOCK] == 1));
    let file = image.disk().open(log(), OpenOptions::Write).expect("open");
    file.sync_data().expect("sync");
    assert_eq!(stamps(&image), only_stamps(&image, PowerCut));
}

fn only_stamps(sim: &SimEnv, kind: CrashKind) -> Vec<u8> {
    let outcomes = outcomes(sim, kind);
    assert_eq!(outcomes.len(), 1, "{kind:?}: {outcomes:?}");
    outcomes.into_iter().next().expect("one")
}

#[test]
fn what_lay_behind_a_length_that_a_crash_of_the_system_left_does_not_come_back() {
    let (sim, file) = with_log(4, 1);
    file.set_len(SECTOR as u64).expect("cut");
    let cut = (0..SEEDS).map(|seed| sim.crash(OsCrash, seed)).find(|image| stamps(image).len() == 1);
    let image = cut.expect("some seed keeps the cut");
    let file = image.disk().open(log(), OpenOptions::Write).expect("open");
    file.set_len(4 * SECTOR as u64).expect("extend");
    file.sync_data().expect("sync");
    assert_eq!(only_stamps(&image, PowerCut), [1, 0, 0, 0]);
}

#[test]
fn names_that_a_crash_of_the_system_left_are_not_durable_by_that() {
    let (sim, _file) = with_log(1, 1);
    let path = root().join("new");
    sim.disk().open(&path, OpenOptions::CreateNew).expect("create").sync_data().expect("sync");
    let has = |sim: &SimEnv| sim.read_raw(&path).is_ok();
    assert!((0..50).any(|seed| !has(&sim.crash(OsCrash, seed))), "an unsynced name may be lost");
    let image = (0..50).map(|seed| sim.crash(OsCrash, seed)).find(|image| has(image)).expect("some seed");
    assert!((0..50).any(|seed| !has(&image.crash(PowerCut, seed))));
    image.disk().sync_dir(root()).expect("sync_dir");
    assert!((0..50).all(|seed| has(&image.crash(PowerCut, seed))));
}

#[test]
fn a_torn_direct_write_leaves_any_subset_of_its_sectors_in_the_device() {
    for sync in [false, true] {
        let (sim, file) = with_blocks(1);
        sim.faults().power_safe_cache(true);
        sim.faults().crash_at(sim.faults().op_count() + 1);
        write_direct(&*file, 2, (0, 1), sync).expect_err("the crash");
        for kind in [Kill, OsCrash, PowerCut] {
            assert!(first_block_is_free(&outcomes(&sim, kind)), "{kind:?}");
        }
        for seed in 0..50 {
            let killed = sim.crash(Kill, seed);
            assert_eq!(only_stamps(&killed, PowerCut), stamps(&killed), "a torn sector is in the device too");
        }
    }
}

/// The states of the cache and of the medium after a failed direct write and a sync, over many seeds.
fn after_failed_write(sync: bool, power_safe: bool) -> BTreeSet<(u8, u8)> {
    let state = |seed| {
        let (origin, file) = with_blocks(1);
        drop(file);
        let sim = origin.crash(PowerCut, seed);
        sim.faults().power_safe_cache(power_safe);
        let file = sim.disk().open(log(), OpenOptions::Write).expect("open");
        sim.faults().fail_write(1);
        write_direct(&*file, 2, (0, 1), sync).expect_err("planned");
        file.sync_data().expect("sync");
        (stamps(&sim)[0], stamps(&sim.crash(PowerCut, 0))[0])
    };
    (0..200).map(state).collect()
}

#[test]
fn a_failed_direct_write_leaves_any_part() {
    assert_eq!(after_failed_write(false, false), BTreeSet::from([(1, 1), (2, 2)]));
}

#[test]
fn a_failed_synced_direct_write_is_not_made_durable_by_a_later_sync() {
    let found = after_failed_write(true, false);
    assert!(found.contains(&(2, 1)), "seen, lost permanently: {found:?}");
    assert!(!found.contains(&(1, 2)));
    assert_eq!(after_failed_write(true, true), BTreeSet::from([(1, 1), (2, 2)]), "what is there, stays");
}

#[test]
fn a_failed_sync_loses_direct_writes_unless_the_cache_is_power_safe() {
    for power_safe in [false, true] {
        let (sim, file) = with_blocks(1);
        sim.faults().power_safe_cache(power_safe);
        write_direct(&*file, 2, (0, 1), false).expect("write");
        sim.faults().fail_sync(sim.faults().sync_count() + 1, Loss::All);
        file.sync_data().expect_err("planned");
        assert_eq!(only(&sim, PowerCut), [if power_safe { 2 } else { 1 }]);
    }
}

#[test]
fn direct_writes_beyond_the_space_write_whole_blocks() {
    let (sim, file) = with_blocks(1);
    sim.faults().space_bytes(Some(2 * DIRECT_BYTES as u64 + 700));
    let error = write_direct(&*file, 2, (0, 3), false).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(stamps(&sim), [2; 2 * BLOCK]);
    sim.faults().disk_full(true);
    write_direct(&*file, 3, (0, 1), true).expect_err("full");
    assert_eq!(stamps(&sim), [2; 2 * BLOCK]);
}

#[test]
fn a_file_system_may_refuse_direct_writes() {
    let (sim, file) = with_blocks(1);
    assert!(file.takes_direct_writes().expect("the kernel says it"));
    sim.faults().direct_writes(false);
    assert!(!file.takes_direct_writes().expect("the kernel says it"));
    let error = write_direct(&*file, 2, (0, 1), false).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(stamps(&sim), [1; BLOCK]);
    let image = sim.crash(Kill, 1);
    let file = image.disk().open(log(), OpenOptions::Write).expect("open");
    assert!(!file.takes_direct_writes().expect("the kernel says it"));
}

#[test]
fn the_device_is_described_as_set() {
    let sim = SimEnv::new(1);
    let device = |sim: &SimEnv| sim.disk().device(root()).expect("known");
    let described = device(&sim);
    assert_eq!((described.volatile_cache, described.fua), (Some(true), Some(true)));
    sim.faults().fua(false);
    assert_eq!(device(&sim).fua, Some(false));
    let other = DeviceInfo { volatile_cache: Some(false), ..described };
    sim.faults().device(other.clone());
    assert_eq!(device(&sim), other);
    assert_eq!(device(&sim.crash(PowerCut, 1)), other, "it continues in an image");
}

#[test]
#[should_panic(expected = "all three must be multiples of 4096")]
fn a_misaligned_direct_write_is_refused() {
    let (_sim, file) = with_blocks(1);
    let _ = file.write_direct(&AlignedBuf::new(4_096), 512, false);
}
