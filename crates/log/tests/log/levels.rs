//! Durability levels: what an acknowledgement promises, and when asynchronous commits become durable.

use crate::support::*;
use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use fulgurite_log::{
    CommitLog, Durability, FlushScheme, Log, LogError, LogOptions, ReplayFrom, Stream, frame_bytes,
};
use fulgurite_types::Csn;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Admits, reserves and fills.
fn append_at(log: &Log, body: &[u8], level: Durability) -> Csn {
    let admission = log.admit(frame_bytes(body.len() as u32), 0).expect("there is room");
    let reservation = log.reserve(admission, level);
    let csn = reservation.csn();
    fill(log, reservation, body, &[]);
    csn
}

fn commit_at(log: &Log, body: &[u8], level: Durability) -> Csn {
    let csn = append_at(log, body, level);
    log.wait_durable(csn).expect("nothing fails");
    csn
}

/// A log whose options assert that the device's cache is power-safe. `is_true` says whether it is; with `fua`
/// synchronous writes cover only their own blocks, else everything.
fn power_safe(seed: u64, is_true: bool, fua: bool) -> (Arc<SimEnv>, Arc<Log>) {
    let env = SimEnv::new(seed);
    env.faults().fua(fua);
    env.faults().power_safe_cache(is_true);
    let options = LogOptions { power_safe_cache: true, ..options() };
    let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options).expect("an empty directory");
    assert!(log.is_direct());
    (env, log)
}

/// The newest commit that survives a crash. A device that is not power-safe, although asserted to be, loses commits
/// that later groups testify to; the commits before those survive.
fn left_of_a_liar(env: &SimEnv, seed: u64) -> Csn {
    match open(&env.crash(CrashKind::PowerCut, seed), &ReplayFrom::beginning()) {
        Ok((_, report, _)) => report.last_csn,
        Err(LogError::Damaged(damage)) => damage.csns.expect("a group testifies to commits").0.prev(),
        Err(error) => panic!("{error}"),
    }
}

/// The newest commit that survives a crash.
fn left(env: &SimEnv, kind: CrashKind, seed: u64) -> Csn {
    let (_, report, _) =
        open(&env.crash(kind, seed), &ReplayFrom::beginning()).expect("a crash damages nothing");
    report.last_csn
}

#[test]
fn a_commit_without_a_barrier_is_one_write_and_survives_what_its_level_says() {
    for seed in 0..40 {
        let (env, log) = power_safe(seed, true, seed % 2 == 0);
        for n in 1..=12u64 {
            let (ops, syncs) = (env.faults().op_count(), log.stats().syncs);
            let segments = log.segments().len();
            let csn = commit_at(&log, &[n as u8; 700], Durability::NoBarrier);
            assert_eq!(csn, Csn(n));
            if log.segments().len() == segments {
                assert_eq!(
                    (env.faults().op_count() - ops, log.stats().syncs - syncs),
                    (1, 0),
                    "one plain write"
                );
            }
            for kind in [CrashKind::Kill, CrashKind::OsCrash, CrashKind::PowerCut] {
                assert_eq!(left(&env, kind, seed * 100 + n), csn, "{kind:?}");
            }
        }
    }
}

/// Where the cache is not asserted to be power-safe, the level is as good as the highest.
#[test]
fn without_a_power_safe_cache_no_barrier_is_a_barrier() {
    for scheme in FlushScheme::ALL {
        for direct in [true, false] {
            let env = SimEnv::new(1);
            // Asserted or not: a write through the page cache is not in the device's cache.
            let power_safe_cache = !direct;
            let options = LogOptions { scheme, direct, power_safe_cache, ..options() };
            let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options)
                .expect("an empty directory");
            for n in 0..5 {
                let csn = commit_at(&log, &[n; 900], Durability::NoBarrier);
                assert_eq!(log.synced_csn(), csn);
                for seed in 0..20 {
                    assert_eq!(left(&env, CrashKind::PowerCut, seed), csn, "{scheme:?}, direct {direct}");
                }
            }
        }
    }
}

/// Segments refuse direct writes: from the middle of one on, for some segments, and for all of them.
#[test]
fn segments_that_refuse_direct_writes_lose_nothing_and_the_log_continues() {
    for seed in 0..16 {
        let power_safe_cache = seed % 2 == 0;
        let env = SimEnv::new(seed);
        env.faults().fua(seed % 4 < 2);
        env.faults().power_safe_cache(power_safe_cache);
        let options = LogOptions { power_safe_cache, ..options() };
        let log = Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options).expect("created");
        let mut rng = Rng::new(seed);
        let mut unsupported = false;
        for n in 1..=60u64 {
            if rng.below(6) == 0 {
                unsupported = !unsupported;
                env.faults().direct_writes(!unsupported);
            }
            let levels = [Durability::NoBarrier, Durability::Sync];
            let level = levels[rng.below(2) as usize];
            let csn = commit_at(&log, &vec![n as u8; 1 + rng.below(3000) as usize], level);
            for kind in [CrashKind::Kill, CrashKind::OsCrash, CrashKind::PowerCut] {
                assert_eq!(left(&env, kind, seed * 100 + n), csn, "seed {seed}, commit {n}, {kind:?}");
            }
        }
        assert!(log.is_direct() && log.segments().len() > 3, "{:?}", log.segments().len());
    }
}

#[test]
fn synced_trails_durable_until_a_barrier() {
    for fua in [true, false] {
        let (env, log) = power_safe(1, false, fua);
        for _ in 0..3 {
            commit_at(&log, &[1; 2000], Durability::NoBarrier);
        }
        assert_eq!((log.durable_csn(), log.synced_csn()), (Csn(3), Csn::ZERO));
        log.wait_synced(Csn(2)).expect("nothing fails");
        assert_eq!(log.synced_csn(), Csn(3), "a flush covers all that is written");
        assert!((0..50).all(|seed| left(&env, CrashKind::PowerCut, seed) == Csn(3)));
        commit_at(&log, &[2; 2000], Durability::NoBarrier);
        assert_eq!((log.durable_csn(), log.synced_csn()), (Csn(4), Csn(3)));
        commit_at(&log, b"with a barrier", Durability::Sync);
        assert_eq!((log.durable_csn(), log.synced_csn()), (Csn(5), Csn(5)));
        let syncs = log.stats().syncs;
        log.wait_synced(Csn(5)).expect("nothing fails");
        assert_eq!(log.stats().syncs, syncs, "there is nothing to flush");
    }
}

/// INV-LOG-1: the device's cache is *not* power-safe, whatever the operator said. A commit with a barrier survives, and
/// so does everything before it, which a synchronous write of its own blocks would not cover.
#[test]
fn a_barrier_covers_the_unflushed_writes_before_it() {
    for seed in 0..60 {
        let (env, log) = power_safe(seed, false, seed % 2 == 0);
        // Longer than a block: the next write does not write them again.
        for n in 0..1 + seed % 3 {
            commit_at(&log, &[n as u8; 4000], Durability::NoBarrier);
        }
        let (ops, before) = (env.faults().op_count(), log.stats());
        let csn = commit_at(&log, b"with a barrier", Durability::Sync);
        assert_eq!(env.faults().op_count() - ops, 2, "a plain write and a flush");
        assert_eq!(log.stats().syncs - before.syncs, 1);
        for image in 0..30 {
            assert_eq!(left(&env, CrashKind::PowerCut, image), csn, "seed {seed}");
        }
        let ops = env.faults().op_count();
        commit_at(&log, b"nothing is unflushed", Durability::Sync);
        assert_eq!(env.faults().op_count() - ops, 1, "a synchronous write is enough again");
    }
}

/// A group is flushed if one of its members asks for it.
#[test]
fn the_highest_level_of_a_group_counts() {
    let (_, log) = power_safe(1, false, true);
    append_at(&log, b"none", Durability::None);
    append_at(&log, b"sync", Durability::Sync);
    let csn = append_at(&log, b"no barrier", Durability::NoBarrier);
    log.wait_durable(csn).expect("nothing fails");
    assert_eq!((log.synced_csn(), log.stats().groups), (csn, 1));
}

/// INV-LOG-2: on a device with a volatile cache, a power cut leaves a prefix, and all of the segments before the last.
#[test]
fn segments_that_are_left_are_flushed_whatever_the_level() {
    for seed in 0..30 {
        let (env, log) = power_safe(seed, false, seed % 2 == 0);
        let mut last_first = Csn::ZERO;
        for n in 1..=20u64 {
            let csn =
                commit_at(&log, &vec![n as u8; 800 + (n * seed * 37) as usize % 2500], Durability::NoBarrier);
            let infos = log.segments();
            let of_stream = infos.iter().filter(|info| info.stream == Some(Stream::Commit));
            last_first = last_first.max(of_stream.map(|info| info.first_csn).max().expect("there is one"));
            for image in 0..8 {
                let left = left_of_a_liar(&env, image);
                assert!(
                    left >= last_first.prev() && left <= csn,
                    "seed {seed}: {left} of {csn}, {last_first}"
                );
            }
        }
        assert!(last_first > Csn(1), "the stream went on in another segment");
    }
}

/// Long groups fill a segment: the leader's batch spans several.
#[test]
fn a_batch_over_several_segments_is_flushed_in_all_but_the_last() {
    for seed in 0..20 {
        let (env, log) = power_safe(seed, false, seed % 2 == 0);
        let csns: Vec<Csn> = (0..7).map(|n| append_at(&log, &[n; 3900], Durability::NoBarrier)).collect();
        log.wait_durable(csns[6]).expect("nothing fails");
        let infos = log.segments();
        let last =
            infos.iter().filter(|info| info.stream == Some(Stream::Commit)).map(|info| info.first_csn).max();
        let last = last.expect("there is one");
        assert!(last > Csn(1) && log.synced_csn() >= last.prev());
        assert!((0..30).all(|image| left_of_a_liar(&env, image) >= last.prev()), "seed {seed}");
    }
}

// Commits for which no thread waits.

fn every_scheme(test: impl Fn(&SimEnv, &Log)) {
    for scheme in FlushScheme::ALL {
        let env = SimEnv::new(1);
        let options = LogOptions { scheme, ..options() };
        let log =
            Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options).expect("an empty directory");
        while log.maintain().expect("nothing fails") {}
        test(&env, &log);
    }
}

fn asynchronous(log: &Log, interval: Duration) -> Csn {
    let csn = append_at(log, b"later", Durability::Async { interval });
    log.request_durable_within(csn, interval);
    csn
}

#[test]
fn a_request_is_kept_when_its_time_has_come() {
    every_scheme(|env, log| {
        // Due before the log is idle, which would flush the commit, too.
        let csn = asynchronous(log, 5 * MS);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), Csn::ZERO, "it is not due");
        env.advance(4 * MS);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), Csn::ZERO, "it is not due yet");
        env.advance(MS);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), csn);
        assert_eq!(left(env, CrashKind::PowerCut, 1), csn);
    });
}

#[test]
fn the_soonest_of_several_requests_counts_for_all() {
    every_scheme(|env, log| {
        asynchronous(log, 9 * MS);
        asynchronous(log, 3 * MS);
        let last = asynchronous(log, 6 * MS);
        env.advance(2 * MS);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), Csn::ZERO);
        env.advance(MS);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), last, "one flush for all");
        // The served request is forgotten: the next one has a time of its own.
        let next = asynchronous(log, 4 * MS);
        env.advance(3 * MS);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), last);
        env.advance(MS);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), next);
    });
}

#[test]
fn a_request_without_time_is_due_at_once_and_a_huge_one_never() {
    every_scheme(|env, log| {
        asynchronous(log, Duration::MAX);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), Csn::ZERO);
        let csn = asynchronous(log, Duration::ZERO);
        log.maintain().expect("nothing fails");
        assert_eq!(log.durable_csn(), csn);
        assert_eq!(left(env, CrashKind::PowerCut, 2), csn);
    });
}

#[test]
fn a_commit_without_a_request_becomes_durable_when_the_log_falls_idle() {
    every_scheme(|env, log| {
        commit(log, b"busy").expect("nothing fails");
        let csn = append_at(log, b"whenever", Durability::None);
        env.advance(9 * MS);
        while log.maintain().expect("nothing fails") {}
        assert_eq!(log.durable_csn(), csn.prev(), "the log is not idle yet");
        env.advance(2 * MS);
        while log.maintain().expect("nothing fails") {}
        assert_eq!(log.durable_csn(), csn);
        assert_eq!(left(env, CrashKind::PowerCut, 3), csn);
    });
}

#[test]
fn a_close_makes_everything_durable_and_synced() {
    for scheme in FlushScheme::ALL {
        let env = SimEnv::new(1);
        let options = LogOptions { scheme, power_safe_cache: true, ..options() };
        let log =
            Log::create(Arc::clone(&env) as Arc<dyn Env>, dir(), ID, options).expect("an empty directory");
        commit_at(&log, &[1; 4000], Durability::NoBarrier);
        let csn = append_at(&log, &[2; 4000], Durability::None);
        log.close().expect("nothing fails");
        assert_eq!((log.durable_csn(), log.synced_csn()), (csn, csn));
        assert!((0..50).all(|seed| left(&env, CrashKind::PowerCut, seed) == csn), "{scheme:?}");
    }
}
