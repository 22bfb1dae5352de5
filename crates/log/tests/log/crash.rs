//! Crashes at every operation: acknowledged commits survive, in order, and the log takes more.

use crate::support::{Rng, World};
use fulgurite_env::sim::{CrashKind, Loss, SimEnv};
use fulgurite_log::{GroupHeader, LogError, SegmentHeader};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

const STEPS: usize = 70;

/// The workload of `seed`, crashed in its `n`-th operation; `None` if it has fewer.
fn crashed_world(seed: u64, n: u64) -> Option<World> {
    let mut world = World::new(seed);
    world.env.faults().crash_at(n);
    let mut rng = Rng::new(seed);
    let result = world.create().and_then(|()| world.run(&mut rng, STEPS));
    if !world.env.faults().has_crashed() {
        result.expect("only the crash fails");
        return None;
    }
    Some(world)
}

pub fn every_operation(seed: u64, kind: CrashKind, then: impl Fn(&mut World, u64)) {
    let mut n = 0;
    loop {
        n += 1;
        let Some(mut world) = crashed_world(seed, n) else { break };
        let created = world.log.is_some();
        world.crash(kind, seed * 1_000_003 + n);
        match world.reopen() {
            Ok(_) => {}
            Err(LogError::Damaged(_) | LogError::Io { .. }) if !created => continue,
            Err(error) => panic!("seed {seed}, {kind:?} at operation {n}: {error}"),
        }
        then(&mut world, n);
    }
    assert!(n > 50, "the workload has operations to crash in");
}

pub fn continues(world: &mut World, n: u64) {
    let mut rng = Rng::new(n);
    world.run(&mut rng, 6).expect("the log takes frames again");
}

#[test]
fn power_cut_at_every_operation() {
    for seed in 1..=12 {
        every_operation(seed, CrashKind::PowerCut, continues);
    }
}

#[test]
fn kill_at_every_operation() {
    for seed in 21..=30 {
        every_operation(seed, CrashKind::Kill, continues);
    }
}

/// A kill leaves data in the cache, which a power cut then takes unless recovery made it durable.
#[test]
fn kill_then_power_cut_after_recovery() {
    for seed in 31..=40 {
        every_operation(seed, CrashKind::Kill, |world, n| {
            world.crash(CrashKind::PowerCut, n);
            world.reopen().unwrap_or_else(|error| panic!("seed {seed}, operation {n}: {error}"));
            continues(world, n);
        });
    }
}

/// Segments that hold groups of another segment, which their file was before, and groups of their own.
fn segments_with_old_groups(env: &SimEnv) -> usize {
    let is_one = |(path, _): &(PathBuf, u64)| {
        let Ok(SegmentHeader { number, .. }) = SegmentHeader::decode(&env.read_raw(path).expect("listed"))
        else {
            return false;
        };
        let bytes = env.read_raw(path).expect("listed");
        let groups = bytes[4096..].chunks(8).enumerate().filter(|(_, chunk)| chunk.starts_with(b"Fgrp"));
        let at = |nth: usize| GroupHeader::decode_unchecked(&bytes[4096 + 8 * nth..]).ok();
        let numbers: BTreeSet<bool> =
            groups.filter_map(|(nth, _)| at(nth)).map(|header| header.segment == number).collect();
        numbers.len() == 2
    };
    env.list_raw().iter().filter(|entry| is_one(entry)).count()
}

/// A recycled segment is not filled with zeros: the groups of its former life follow its own. Crashes anywhere in a
/// session that has such segments, then in the next one: no group of another segment is taken for one of the log.
#[test]
fn crashes_among_the_groups_of_former_segments() {
    let mut old = 0;
    for seed in 51..=66 {
        for n in 0..30 {
            let mut world = World::new(seed);
            world.create().expect("nothing fails yet");
            let mut rng = Rng::new(seed);
            let run = |world: &mut World, rng: &mut Rng, steps| match seed % 2 {
                0 => world.run(rng, steps),
                _ => world.run_equal(steps),
            };
            while world.log().stats().segments_recycled < 6 {
                run(&mut world, &mut rng, 20).expect("nothing fails yet");
            }
            for life in 0..2 {
                let faults = world.env.faults();
                faults.crash_at(faults.op_count() + 1 + rng.below(3 + 10 * n));
                _ = run(&mut world, &mut rng, 100);
                old += segments_with_old_groups(&world.env);
                let kind = [CrashKind::Kill, CrashKind::OsCrash, CrashKind::PowerCut][rng.below(3) as usize];
                world.crash(kind, rng.next());
                world.reopen().unwrap_or_else(|error| panic!("seed {seed}, {n}, life {life}: {error}"));
            }
        }
    }
    assert!(old > 500, "{old} segments had groups of former ones");
}

/// Crashes in every operation of the recovery itself, twice in a row, without a checkpoint between.
#[test]
fn crashes_during_recovery() {
    recoveries_that_crash(41..=50);
}

pub fn recoveries_that_crash(seeds: RangeInclusive<u64>) {
    for seed in seeds {
        for n in (20..300).step_by(7) {
            let Some(mut world) = crashed_world(seed, n) else { break };
            if world.log.is_none() {
                continue;
            }
            world.crash(if n % 2 == 0 { CrashKind::Kill } else { CrashKind::PowerCut }, n);
            for again in 1.. {
                let faults = world.env.faults();
                faults.crash_at(faults.op_count() + again);
                let opened = world.reopen();
                let done = opened.is_ok() && !world.env.faults().has_crashed();
                world.crash(if again % 3 == 0 { CrashKind::Kill } else { CrashKind::PowerCut }, seed + again);
                if done {
                    break;
                }
            }
            world.reopen().unwrap_or_else(|error| panic!("seed {seed}, operation {n}: {error}"));
            continues(&mut world, n);
        }
    }
}

/// Many openings, each crashed at a random operation.
#[test]
fn lives_that_crash() {
    lives(100..=179);
}

pub fn lives(seeds: RangeInclusive<u64>) {
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed);
        world.create().expect("nothing fails yet");
        for life in 0..12 {
            let faults = world.env.faults();
            faults.crash_at(faults.op_count() + 1 + rng.below(60));
            if world.log.is_none() {
                _ = world.reopen();
            }
            if world.log.is_some() {
                _ = world.run(&mut rng, 20);
            }
            let kind = if rng.below(2) == 0 { CrashKind::Kill } else { CrashKind::PowerCut };
            world.crash(kind, rng.next());
            world.reopen().unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            _ = world.run(&mut rng, 8).map_err(|error| panic!("seed {seed}, life {life}: {error}"));
            if rng.below(2) == 0 {
                world.crash(kind, rng.next());
            }
        }
    }
}

/// Openings and sessions whose syncs fail, that are killed or lose power anywhere, on the same disk: after each, no
/// acknowledged commit is missing, also if the power is cut at once.
#[test]
fn lives_that_fail_and_crash() {
    lives_with_faults(200..=199 + thorough(200));
}

pub fn lives_with_faults(seeds: RangeInclusive<u64>) {
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let mut world = World::new(seed);
        world.create().expect("nothing fails yet");
        for life in 0..25 {
            plan_faults(&world, &mut rng);
            if world.log.is_none() {
                _ = world.reopen();
            }
            if world.log.is_some() && rng.below(3) > 0 {
                _ = world.run(&mut rng, 12);
            }
            let kind = [CrashKind::Kill, CrashKind::Kill, CrashKind::OsCrash, CrashKind::PowerCut];
            world.crash(kind[rng.below(4) as usize], rng.next());
            for kind in [CrashKind::Kill, CrashKind::PowerCut] {
                let image = world.env.crash(kind, rng.next());
                let (_, report, _) = world
                    .open_image(&image)
                    .unwrap_or_else(|error| panic!("seed {seed}, life {life}, {kind:?}: {error}"));
                assert!(report.last_csn.0 >= world.acked, "seed {seed}, life {life}, {kind:?}");
            }
        }
    }
}

/// Usually a crash in one of the next operations; a sync that fails, or two; sometimes a write that fails.
fn plan_faults(world: &World, rng: &mut Rng) {
    let faults = world.env.faults();
    if rng.below(3) > 0 {
        faults.crash_at(faults.op_count() + 1 + rng.below(60));
    }
    for _ in 0..rng.below(3) {
        let loss = if rng.below(2) == 0 { Loss::All } else { Loss::Some };
        faults.fail_sync(faults.sync_count() + 1 + rng.below(16), loss);
    }
    if rng.below(4) == 0 {
        faults.fail_write(faults.write_count() + 1 + rng.below(20));
    }
}

/// The number of seeds: a hundred times as many if `FULGURITE_CRASH_ALL` is set.
pub fn thorough(seeds: u64) -> u64 {
    if std::env::var_os("FULGURITE_CRASH_ALL").is_some_and(|value| value != "0") {
        100 * seeds
    } else {
        seeds
    }
}
