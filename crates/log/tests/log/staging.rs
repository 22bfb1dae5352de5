//! Staging: what was acknowledged survives crashes at every store, write-back and fence, in persistent memory a power cut, too; a
//! staging file that is missing or another's is named, with the commits at stake.

use crate::crash::{continues, every_operation, lives, lives_with_faults, recoveries_that_crash, thorough};
use crate::support::{ID, Rng, STAGED, STAGING, append, commit, dir, idle, open_with, options, staging};
use fulgurite_env::sim::{CrashKind, Loss, SimEnv};
use fulgurite_env::{Env, MemoryMedium};
use fulgurite_log::{CommitLog, GROUP_HEADER_BYTES, Log, LogError, LogOptions, ReplayFrom, StagingOptions};
use fulgurite_types::{Csn, DatabaseId};
use std::path::Path;
use std::sync::Arc;

#[test]
fn power_cut_at_every_operation() {
    for seed in STAGED..STAGED + 9 {
        every_operation(seed, CrashKind::PowerCut, continues);
    }
}

#[test]
fn kill_at_every_operation() {
    for seed in STAGED + 20..STAGED + 26 {
        every_operation(seed, CrashKind::Kill, continues);
    }
}

#[test]
fn kill_then_power_cut_after_recovery() {
    for seed in STAGED + 30..STAGED + 36 {
        every_operation(seed, CrashKind::Kill, |world, n| {
            world.crash(CrashKind::PowerCut, n);
            world.reopen().unwrap_or_else(|error| panic!("seed {seed}, operation {n}: {error}"));
            continues(world, n);
        });
    }
}

#[test]
fn crashes_during_recovery() {
    recoveries_that_crash(STAGED + 40..=STAGED + 49);
}

#[test]
fn lives_that_crash() {
    lives(STAGED + 100..=STAGED + 179);
}

#[test]
fn lives_that_fail_and_crash() {
    lives_with_faults(STAGED + 200..=STAGED + 199 + thorough(200));
}

fn create(env: &Arc<SimEnv>, options: LogOptions) -> Result<Arc<Log>, LogError> {
    Log::create(Arc::clone(env) as Arc<dyn Env>, dir(), ID, options)
}

fn beginning() -> ReplayFrom {
    ReplayFrom::beginning()
}

/// Staged commits need no operation of the disk. `synced` follows when they are synced.
#[test]
fn a_staged_commit_touches_no_file() {
    let env = SimEnv::new(1);
    let log = create(&env, staging(&env, MemoryMedium::Persistent, 1)).unwrap();
    commit(&log, &[1; 100]).unwrap();
    let (writes, syncs) = (env.faults().write_count(), env.faults().sync_count());
    let mut newest = Csn::ZERO;
    for n in 0..20 {
        newest = commit(&log, &[n; 100]).unwrap().0;
    }
    assert_eq!((env.faults().write_count(), env.faults().sync_count()), (writes, syncs));
    assert_eq!((log.durable_csn(), log.synced_csn()), (newest, Csn::ZERO));
    assert!(log.stats().staged_bytes > 20 * 140, "{:?}", log.stats());
    log.wait_synced(newest).unwrap();
    assert_eq!((log.synced_csn(), log.stats().staged_bytes, log.stats().drains), (newest, 0, 1));
    assert!(env.faults().sync_count() > syncs);
}

/// Staged commits are read from memory, by LSN and by the feed, and from its segment after it was synced.
#[test]
fn what_is_staged_can_be_read() {
    for seed in 0..6 {
        let env = SimEnv::new(seed);
        let log = create(&env, staging(&env, MemoryMedium::Persistent, seed)).unwrap();
        let mut reader = log.reader(Csn::ZERO).unwrap();
        let mut lsns = Vec::new();
        for n in 0..60u8 {
            let body = vec![n; 10 + 50 * usize::from(n)];
            let (csn, lsn) = commit(&log, &body).unwrap();
            let frame = reader.next().unwrap().expect("it is durable");
            assert_eq!((frame.header.csn, &frame.body, frame.body_lsn), (csn, &body, lsn));
            lsns.push((lsn, body));
            for (lsn, body) in &lsns {
                assert_eq!(&log.read_bytes(*lsn, body.len() as u32).unwrap(), body);
            }
            if n % 7 == 0 {
                while log.maintain().unwrap() {}
            }
        }
        // A mark group first, then the staged commits with it.
        idle(&env, &log);
        idle(&env, &log);
        assert_eq!((log.synced_csn(), log.stats().staged_bytes), (Csn(60), 0), "an idle log drains");
        for (lsn, body) in &lsns {
            assert_eq!(&log.read_bytes(*lsn, body.len() as u32).unwrap(), body);
        }
    }
}

/// In volatile memory a kill loses nothing that was staged, a power cut exactly that, and the next opening says so.
#[test]
fn volatile_memory_survives_the_process_alone() {
    for seed in 0..30 {
        let env = SimEnv::new(seed);
        let options = |env: &SimEnv| staging(env, MemoryMedium::Volatile, seed);
        let log = create(&env, options(&env)).unwrap();
        let mut rng = Rng::new(seed);
        let mut synced = Csn::ZERO;
        for n in 0..40u8 {
            let (csn, _) = append(&log, &vec![n; 1 + rng.below(1500) as usize], &[]).unwrap();
            if rng.below(8) == 0 {
                log.wait_durable(csn).unwrap();
                synced = csn;
                assert_eq!((log.synced_csn(), log.durable_csn()), (csn, csn));
            } else {
                log.wait_staged(csn).unwrap();
            }
        }
        log.watermarks().validate();
        assert!(log.durable_csn() >= synced);
        drop(log);
        let killed = env.crash(CrashKind::Kill, seed);
        let (log, report, found) = open_with(&killed, &beginning(), options(&killed)).unwrap();
        assert_eq!((report.last_csn, found.0.len()), (Csn(40), 40));
        log.close().unwrap();

        let cut = env.crash(CrashKind::PowerCut, seed);
        let Err(LogError::Damaged(damage)) = open_with(&cut, &beginning(), options(&cut)) else {
            panic!("the staging file is gone")
        };
        assert!(damage.what.contains("there is no file /db/staging"), "{damage}");
        let adopting = LogOptions { adopt_staging_loss: true, ..options(&cut) };
        let (log, report, _) = open_with(&cut, &beginning(), adopting).unwrap();
        assert!(damage.what.contains(&format!("commits after {} ", report.last_csn)), "{damage}");
        assert!(report.last_csn >= synced);
        commit(&log, b"and on").unwrap();
        drop(log);
        let killed = cut.crash(CrashKind::Kill, seed);
        let (_, again, _) = open_with(&killed, &beginning(), options(&killed)).unwrap();
        assert_eq!(again.last_csn, report.last_csn.next());
    }
}

/// A drain that fails ends the log. What was acknowledged is there at the next opening, whatever the device lost.
#[test]
fn a_failed_drain_poisons_and_loses_nothing() {
    for seed in 0..60u64 {
        let env = SimEnv::new(seed);
        let log = create(&env, staging(&env, MemoryMedium::Persistent, seed)).unwrap();
        let mut acked = Csn::ZERO;
        for n in 0..3 * seed as u8 + 1 {
            acked = commit(&log, &vec![n; 100 + 20 * usize::from(n)]).unwrap().0;
            _ = log.maintain();
        }
        let faults = env.faults();
        faults.fail_sync(faults.sync_count() + 1, if seed % 2 == 0 { Loss::All } else { Loss::Some });
        let refused = log.wait_synced(acked).unwrap_err();
        assert!(matches!(refused, LogError::Poisoned(_)), "{refused}");
        assert!(matches!(commit(&log, b"after that"), Err(LogError::Poisoned(_))));
        drop(log);
        for kind in [CrashKind::Kill, CrashKind::PowerCut] {
            let image = env.crash(kind, seed);
            let (_, report, _) =
                open_with(&image, &beginning(), staging(&image, MemoryMedium::Persistent, seed)).unwrap();
            assert!(report.last_csn >= acked, "seed {seed}: {} of {acked}", report.last_csn);
        }
    }
}

/// A clean close drains: the database moves off staging, to another file, and to other sizes.
#[test]
fn after_a_clean_close_the_file_is_not_needed() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let log = create(&env, staged.clone()).unwrap();
    let commit_and_close = |log: &Log| {
        let (csn, _) = commit(log, &[9; 300]).unwrap();
        log.close().unwrap();
        let end = log.watermarks();
        assert_eq!((end.synced, end.durable_csn), (end.written, csn));
        ReplayFrom { epoch: log.epoch(), durable_csn: csn, closed_at: Some(end.written), ..beginning() }
    };
    let from = commit_and_close(&log);
    drop(log);
    let (log, report, _) = open_with(&env, &from, options()).expect("without staging");
    assert_eq!(report.last_csn, Csn(1));
    drop(log);
    let longer = |path: &str, bytes| LogOptions {
        staging: Some(StagingOptions {
            buffer_bytes: bytes,
            ..StagingOptions::new(path, MemoryMedium::Persistent)
        }),
        ..options()
    };
    let (log, ..) = open_with(&env, &from, longer("/db/other", 65_536)).expect("in another file");
    let from = commit_and_close(&log);
    drop(log);
    let (log, ..) = open_with(&env, &from, longer("/db/other", 131_072)).expect("of another length");
    assert_eq!(log.staging(), Some((4096 + 2 * 131_072, true)));
    commit(&log, &[1; 10]).unwrap();
    drop(log);
    let killed = env.crash(CrashKind::Kill, 1);
    let (log, report, _) =
        open_with(&killed, &from, longer("/db/other", 65_536)).expect("it keeps its length");
    assert_eq!((report.last_csn, log.staging()), (Csn(3), Some((4096 + 2 * 131_072, true))));
}

/// After a crash a file that may hold acknowledged commits has to be there, and to be the right one.
#[test]
fn a_wrong_staging_file_is_refused() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let log = create(&env, staged.clone()).unwrap();
    for n in 0..5 {
        commit(&log, &[n; 300]).unwrap();
    }
    drop(log);
    let refused = |env: &Arc<SimEnv>, options: LogOptions| match open_with(env, &beginning(), options) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it was opened"),
    };
    let after = |kind| env.crash(kind, 1);
    let image = after(CrashKind::PowerCut);
    image.faults().mapped(Some(MemoryMedium::Persistent));
    let error = refused(&image, options());
    assert!(
        error.contains("the options name no staging file") && error.contains("commits after 0 may be"),
        "{error}"
    );
    let elsewhere =
        StagingOptions { path: "/db/elsewhere".into(), ..staged.staging.clone().expect("it has one") };
    let error = refused(&image, LogOptions { staging: Some(elsewhere.clone()), ..options() });
    assert!(error.contains("there is no file /db/elsewhere"), "{error}");
    let other = Log::create(
        Arc::clone(&image) as Arc<dyn Env>,
        Path::new("/db/second"),
        DatabaseId(77),
        LogOptions { staging: Some(elsewhere.clone()), ..options() },
    )
    .unwrap();
    drop(other);
    let error = refused(&image, LogOptions { staging: Some(elsewhere), ..options() });
    assert!(error.contains(&format!("/db/elsewhere is of database {}", DatabaseId(77))), "{error}");
    let volatile = staging(&image, MemoryMedium::Volatile, 1);
    let error = refused(&image, volatile);
    assert!(error.contains("there is no file") || error.contains("volatile"), "{error}");
    image.faults().mapped(Some(MemoryMedium::Persistent));
    let (_, report, _) = open_with(&image, &beginning(), staged).expect("with its own file");
    assert_eq!(report.last_csn, Csn(5));
}

/// A damaged group in the file ends what recovery takes from it; a durable mark in a segment that speaks of more is damage, named.
#[test]
fn damage_of_staged_commits_is_named() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let log = create(&env, staged.clone()).unwrap();
    for n in 0..5 {
        commit(&log, &[n; 300]).unwrap();
    }
    // A segment of the bulk stream has the durable mark in its first group, and is synced.
    log.append_bulk(fulgurite_log::BulkKind::LeafNode, &[&[7; 100]]).unwrap();
    log.sync_bulk().unwrap();
    drop(log);
    let image = env.crash(CrashKind::PowerCut, 1);
    let mut bytes = image.read_raw(Path::new(STAGING)).unwrap();
    bytes[4096 + 72 + 40 + 10] ^= 1;
    image.write_raw(Path::new(STAGING), &bytes).unwrap();
    let Err(LogError::Damaged(damage)) = open_with(&image, &beginning(), staged.clone()) else {
        panic!("the first commit is damaged")
    };
    assert_eq!(damage.csns, Some((Csn(1), Csn(5))), "{damage}");
    let adopting = LogOptions { adopt_staging_loss: true, ..staged };
    let (_, report, _) = open_with(&image, &beginning(), adopting).expect("without them");
    assert_eq!(report.last_csn, Csn(0));
}

/// A read-only opening reads the staged commits, and writes nothing, to the file neither.
#[test]
fn a_read_only_opening_reads_the_tail() {
    for kind in [CrashKind::Kill, CrashKind::PowerCut] {
        let env = SimEnv::new(3);
        let staged = staging(&env, MemoryMedium::Persistent, 3);
        let log = create(&env, staged.clone()).unwrap();
        let bodies: Vec<Vec<u8>> = (0..9u8).map(|n| vec![n; 400]).collect();
        bodies.iter().for_each(|body| _ = commit(&log, body).unwrap());
        drop(log);
        let image = env.crash(kind, 5);
        let before = image.faults().op_count();
        let reading = LogOptions { read_only: true, ..staged.clone() };
        let (log, report, found) = open_with(&image, &beginning(), reading).unwrap();
        assert_eq!((report.last_csn, found.0.len()), (Csn(9), 9));
        for ((_, body, lsn, _), expected) in found.0.iter().zip(&bodies) {
            assert_eq!(body, expected);
            assert_eq!(&log.read_bytes(*lsn, 400).unwrap(), expected);
        }
        assert_eq!(image.faults().op_count(), before, "nothing was written");
        drop(log);
        let (_, report, _) = open_with(&image, &beginning(), staged).unwrap();
        assert_eq!(report.last_csn, Csn(9));
    }
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let with = |change: fn(&mut StagingOptions)| {
        let mut options = staged.clone();
        change(options.staging.as_mut().expect("it has one"));
        match create(&env, options) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it was taken"),
        }
    };
    assert!(with(|staging| staging.buffers = 0).contains("staging has 0 buffers, not 1 to 64"));
    assert!(with(|staging| staging.buffer_bytes = 4096).contains("a staging buffer has 4096 bytes"));
    assert!(with(|staging| staging.buffer_bytes = 32_769).contains("not a multiple of 4096"));
    assert!(
        with(|staging| staging.medium = MemoryMedium::Volatile)
            .contains("the options say that it is in volatile")
    );
    let scheme = LogOptions { scheme: fulgurite_log::FlushScheme::OwnLsn, ..staged.clone() };
    assert!(
        create(&env, scheme)
            .unwrap_err()
            .to_string()
            .contains("staging needs the scheme combined, not own-lsn")
    );
    env.faults().mapped(None);
    assert!(create(&env, staged).unwrap_err().to_string().contains("/db/staging"));
    create(&env, options()).expect("nothing was left behind");
}

/// Few lines are written back twice: those in which one group ends and the next begins.
#[test]
fn lines_are_written_back_once() {
    let env = SimEnv::new(2);
    let log = create(&env, staging(&env, MemoryMedium::Persistent, 2)).unwrap();
    let before = env.faults().unneeded_write_backs();
    for _ in 0..100 {
        commit(&log, &[1; 120]).unwrap();
    }
    assert_eq!(env.faults().unneeded_write_backs(), before);
}

/// A copy of the database, or an older state of it, does not take the file that holds commits of another one.
#[test]
fn a_copy_does_not_take_the_file() {
    for was_closed in [true, false] {
        let env = SimEnv::new(1);
        let staged = staging(&env, MemoryMedium::Persistent, 1);
        let log = create(&env, staged.clone()).unwrap();
        let (csn, _) = commit(&log, &[1; 300]).unwrap();
        let mut from = beginning();
        if was_closed {
            log.close().unwrap();
            let end = log.watermarks().written;
            from = ReplayFrom { epoch: log.epoch(), durable_csn: csn, closed_at: Some(end), ..from };
        }
        drop(log);
        let copied = env.crash(CrashKind::Kill, 1);
        let (log, ..) = open_with(&env, &from, staged.clone()).unwrap();
        (0..5u8).for_each(|n| _ = commit(&log, &[n; 300]).unwrap());
        drop(log);
        // The copy has its own directory, and is given the file of the original.
        let file = env.crash(CrashKind::Kill, 2).read_raw(Path::new(STAGING)).unwrap();
        copied.write_raw(Path::new(STAGING), &file).unwrap();
        let refused =
            open_with(&copied, &from, staged.clone()).err().expect("it is another copy's").to_string();
        assert!(refused.contains("another copy of this database") || refused.contains("has id"), "{refused}");
        assert_eq!(copied.read_raw(Path::new(STAGING)).unwrap(), file, "it is as it was");
        let original = env.crash(CrashKind::PowerCut, 3);
        let (_, report, _) = open_with(&original, &from, staged).unwrap();
        assert_eq!(report.last_csn, Csn(6));
    }
}

/// Damage between staged groups: those behind it say that it was durable.
#[test]
fn damage_between_staged_groups_is_named() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let log = create(&env, staged.clone()).unwrap();
    (0..9u8).for_each(|n| _ = commit(&log, &[n; 300]).unwrap());
    drop(log);
    let image = env.crash(CrashKind::PowerCut, 1);
    let whole = image.read_raw(Path::new(STAGING)).unwrap();
    let group = (GROUP_HEADER_BYTES as usize + 40 + 300).next_multiple_of(8);
    for damaged in 0..9u64 {
        let mut bytes = whole.clone();
        bytes[4096 + damaged as usize * group + 200] ^= 1;
        let image = image.crash(CrashKind::Kill, damaged);
        image.write_raw(Path::new(STAGING), &bytes).unwrap();
        match open_with(&image, &beginning(), staged.clone()) {
            // Of the last group nothing behind it speaks: it is as if it had been torn.
            Ok((_, report, _)) => assert_eq!((damaged, report.last_csn), (8, Csn(8))),
            Err(LogError::Damaged(damage)) => {
                assert_eq!(damage.csns, Some((Csn(damaged + 1), Csn(8))), "{damage}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The loss is adopted only if there is one: the right file is used, and damage of a log that never staged is damage.
#[test]
fn a_loss_is_adopted_only_if_there_is_one() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let adopting = LogOptions { adopt_staging_loss: true, ..staged.clone() };
    let log = create(&env, staged).unwrap();
    (0..9u8).for_each(|n| _ = commit(&log, &[n; 300]).unwrap());
    drop(log);
    let (_, report, _) = open_with(&env.crash(CrashKind::PowerCut, 1), &beginning(), adopting).unwrap();
    assert_eq!(report.last_csn, Csn(9));

    let env = SimEnv::new(2);
    let log = create(&env, options()).unwrap();
    (0..9u8).for_each(|n| _ = commit(&log, &[n; 300]).unwrap());
    drop(log);
    let image = env.crash(CrashKind::PowerCut, 1);
    let path = crate::support::segment_path(1);
    let mut bytes = image.read_raw(&path).unwrap();
    bytes[4096 + 400] ^= 1;
    image.write_raw(&path, &bytes).unwrap();
    let adopting = LogOptions { adopt_staging_loss: true, ..options() };
    assert!(matches!(open_with(&image, &beginning(), adopting), Err(LogError::Damaged(_))));
}

/// Groups that recovery took are not in the file any more once another opening has it.
#[test]
fn an_opening_clears_the_buffers() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let log = create(&env, staged.clone()).unwrap();
    (0..3u8).for_each(|n| _ = commit(&log, &[n; 300]).unwrap());
    drop(log);
    let summary = fulgurite_log::inspect_staging(&*env, Path::new(STAGING)).unwrap();
    assert_eq!(summary.commits, Some((Csn(1), Csn(3))));
    let (log, ..) = open_with(&env, &beginning(), staged).unwrap();
    let again = fulgurite_log::inspect_staging(&*env, Path::new(STAGING)).unwrap();
    assert_eq!((again.commits, again.database), (None, ID));
    assert_ne!(again.id, summary.id);
    drop(log);
}

/// A file that a close left free is taken by any opening of the database, and by no other; a creation that was cut off is begun again.
#[test]
fn a_free_file_is_taken_and_a_creation_begins_again() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let log = create(&env, staged.clone()).unwrap();
    let (csn, _) = commit(&log, &[1; 300]).unwrap();
    log.close().unwrap();
    let end = log.watermarks().written;
    let from = ReplayFrom { epoch: log.epoch(), durable_csn: csn, closed_at: Some(end), ..beginning() };
    log.release_staging(true).unwrap();
    drop(log);
    // An opening without staging between.
    let (log, ..) = open_with(&env, &from, options()).unwrap();
    let (csn, _) = commit(&log, &[2; 300]).unwrap();
    log.close().unwrap();
    let end = log.watermarks().written;
    let from = ReplayFrom { epoch: log.epoch(), durable_csn: csn, closed_at: Some(end), ..beginning() };
    drop(log);
    let (log, report, _) = open_with(&env, &from, staged.clone()).expect("the file is free");
    assert_eq!(report.last_csn, Csn(2));
    commit(&log, &[3; 300]).unwrap();
    drop(log);
    let (_, report, _) = open_with(&env.crash(CrashKind::PowerCut, 1), &from, staged).unwrap();
    assert_eq!(report.last_csn, Csn(3));

    for n in 1..40 {
        let env = SimEnv::new(n);
        let staged = staging(&env, MemoryMedium::Persistent, n);
        env.faults().crash_at(n);
        let created = create(&env, staged.clone()).is_ok();
        let again = env.crash(CrashKind::Kill, n);
        if created
            || again.list_raw().iter().any(|(path, _)| path.extension().is_some_and(|ext| ext == "seg"))
        {
            continue;
        }
        create(&again, staged).unwrap_or_else(|error| panic!("cut off in operation {n}: {error}"));
    }
}

/// Adopting a loss does not excuse damage of what was synced long before.
#[test]
fn an_adopted_loss_does_not_hide_damage_of_the_segments() {
    let env = SimEnv::new(1);
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let log = create(&env, staged.clone()).unwrap();
    for n in 0..200u8 {
        commit(&log, &[n; 1000]).unwrap();
        while log.maintain().unwrap() {}
    }
    drop(log);
    let image = env.crash(CrashKind::PowerCut, 1);
    let path = crate::support::segment_path(1);
    let mut bytes = image.read_raw(&path).unwrap();
    bytes[4096 + 1000] ^= 1;
    image.write_raw(&path, &bytes).unwrap();
    let adopting = LogOptions { adopt_staging_loss: true, ..staged };
    assert!(matches!(open_with(&image, &beginning(), adopting), Err(LogError::Damaged(_))));
}

/// Memory that does not deliver a page ends the log, not the process: lost bytes are neither acknowledged, nor read, nor written to a
/// segment. The next opening names the commits at stake; with the loss adopted it keeps those before the page.
#[test]
fn a_lost_page_ends_the_log_and_is_named() {
    for medium in [MemoryMedium::Persistent, MemoryMedium::Volatile] {
        for seed in 0..30u64 {
            let env = SimEnv::new(seed);
            let staged = staging(&env, medium, 1);
            let log = create(&env, staged.clone()).unwrap();
            let staged_one = |n: u8| {
                let (csn, lsn) = append(&log, &[n; 300], &[]).unwrap();
                log.wait_staged(csn).unwrap();
                (csn, lsn)
            };
            let lsns: Vec<_> = (0..20).map(staged_one).collect();
            let acked = lsns[19].0;
            env.lose_page(Path::new(STAGING), 4096 + 4096 * (seed as usize % 2)).unwrap();
            let refused = match seed % 3 {
                0 => log.wait_synced(acked).unwrap_err(),
                1 => commit(&log, b"after that").unwrap_err(),
                _ => {
                    let (csn, _) = append(&log, b"after that", &[]).unwrap();
                    log.wait_staged(csn).unwrap_err()
                }
            };
            assert!(matches!(refused, LogError::Poisoned(_)), "{medium:?}, seed {seed}: {refused}");
            assert!(refused.to_string().contains("cannot be accessed"), "{refused}");
            assert!(log.read_bytes(lsns[1].1, 300).is_err(), "its page is lost, or another");
            let marks = log.watermarks();
            assert!(marks.synced <= lsns[0].1, "{medium:?}, seed {seed}: {marks:?}");
            drop(log);
            let image = env.crash(CrashKind::Kill, seed);
            let Err(LogError::Damaged(damage)) = open_with(&image, &beginning(), staged.clone()) else {
                panic!("{medium:?}, seed {seed}: commits are lost")
            };
            let text = damage.to_string();
            assert!(
                text.contains("may be in that file alone") && text.contains("cannot be accessed"),
                "{text}"
            );
            let adopting = LogOptions { adopt_staging_loss: true, ..staged.clone() };
            let (log, report, _) = open_with(&image, &beginning(), adopting).expect("without them");
            let before = if seed % 2 == 0 { 0 } else { 4096 / 450 };
            assert!(report.last_csn >= Csn(before) && report.last_csn < acked, "seed {seed}: {report:?}");
            commit(&log, b"it goes on, in a new file").unwrap();
        }
    }
}

/// What another program writes to the file reaches no segment, and counts as nothing.
#[test]
fn a_drain_checks_what_it_copies() {
    for medium in [MemoryMedium::Persistent, MemoryMedium::Volatile] {
        for seed in 0..20u64 {
            let env = SimEnv::new(seed);
            let staged = staging(&env, medium, 1);
            let log = create(&env, staged.clone()).unwrap();
            let mut lsns = Vec::new();
            for n in 0..20 {
                let (csn, lsn) = append(&log, &[n; 300], &[]).unwrap();
                log.wait_staged(csn).unwrap();
                lsns.push(lsn);
            }
            env.corrupt(Path::new(STAGING), 4096 + 397 * seed, |byte| *byte ^= 1 << (seed % 8)).unwrap();
            let refused = log.wait_synced(Csn(20)).unwrap_err();
            assert!(matches!(refused, LogError::Poisoned(_)), "{medium:?}, seed {seed}: {refused}");
            assert!(refused.to_string().contains("is not what was staged"), "{refused}");
            assert!(log.synced_csn() == Csn(0));
            drop(log);
            for kind in [CrashKind::Kill, CrashKind::PowerCut] {
                if (medium, kind) == (MemoryMedium::Volatile, CrashKind::PowerCut) {
                    continue;
                }
                let image = env.crash(kind, seed);
                let opened = open_with(&image, &beginning(), staged.clone());
                assert!(matches!(opened, Err(LogError::Damaged(_))), "{medium:?}, {kind:?}, seed {seed}");
            }
        }
    }
}

/// In volatile memory a killed process leaves all that it stored: a group proves those before it, though nothing says that they are
/// durable.
#[test]
fn a_hole_in_volatile_memory_is_named() {
    for page in 0..3 {
        let env = SimEnv::new(page);
        let staged = staging(&env, MemoryMedium::Volatile, 1);
        let log = create(&env, staged.clone()).unwrap();
        for n in 0..40 {
            let (csn, _) = append(&log, &[n; 300], &[]).unwrap();
            log.wait_staged(csn).unwrap();
        }
        drop(log);
        let image = env.crash(CrashKind::Kill, 1);
        let mut bytes = image.read_raw(Path::new(STAGING)).unwrap();
        bytes[4096 * (1 + page as usize)..][..4096].fill(0);
        image.write_raw(Path::new(STAGING), &bytes).unwrap();
        let Err(LogError::Damaged(damage)) = open_with(&image, &beginning(), staged.clone()) else {
            panic!("page {page}: commits are lost")
        };
        let csns = damage.csns.expect("it says which");
        assert!(csns.0 > Csn(8 * page) && csns.0 < Csn(12 * page + 2) && csns.1 == Csn(40), "{damage}");
        let adopting = LogOptions { adopt_staging_loss: true, ..staged };
        let (_, report, _) = open_with(&image, &beginning(), adopting).expect("without them");
        assert_eq!(report.last_csn.next(), csns.0);
    }
}

/// With the loss adopted, a lost page of the older of two full buffers costs the commits behind it, and no more; another file, or a damaged
/// header, is refused before anything is changed.
#[test]
fn a_loss_is_adopted_with_the_right_file_alone() {
    let env = SimEnv::new(1);
    // Two buffers, and no thread that empties them.
    let staged = staging(&env, MemoryMedium::Persistent, 1);
    let buffers = staged.staging.clone().unwrap();
    assert_eq!(buffers.buffers, 2);
    let log = create(&env, staged.clone()).unwrap();
    for n in 0..150u8 {
        let (csn, _) = append(&log, &[n; 300], &[]).unwrap();
        log.wait_staged(csn).unwrap();
    }
    assert!(log.stats().staged_bytes > u64::from(buffers.buffer_bytes), "the second one is in use");
    assert_eq!(log.synced_csn(), Csn(0));
    drop(log);
    for page in [0, 3] {
        let image = env.crash(CrashKind::Kill, 1);
        image.lose_page(Path::new(STAGING), 4096 * (1 + page)).unwrap();
        let before = image.read_raw(Path::new(STAGING)).unwrap();
        let other = StagingOptions { path: "/db/other".into(), ..buffers.clone() };
        let other_id = DatabaseId(4711);
        let foreign = LogOptions { staging: Some(other.clone()), ..staged.clone() };
        drop(
            Log::create(Arc::clone(&image) as Arc<dyn Env>, "/db/foreign".as_ref(), other_id, foreign)
                .unwrap(),
        );
        let adopting = LogOptions { adopt_staging_loss: true, ..staged.clone() };
        let wrong = LogOptions { staging: Some(other), ..adopting.clone() };
        let Err(LogError::Damaged(damage)) = open_with(&image, &beginning(), wrong) else {
            panic!("it is another database's")
        };
        assert!(damage.to_string().contains("is of database"), "{damage}");
        assert!(image.read_raw(Path::new(STAGING)).unwrap() == before, "nothing is changed");
        let (log, report, _) = open_with(&image, &beginning(), adopting).expect("without them");
        let kept = report.last_csn;
        assert!(if page == 0 { kept == Csn(0) } else { kept > Csn(3 * 7) && kept < Csn(4 * 11) }, "{kept}");
        let (csn, _) = commit(&log, b"it goes on").unwrap();
        assert_eq!(csn, kept.next());
        drop(log);
        let again = image.crash(CrashKind::PowerCut, 2);
        let (_, report, _) = open_with(&again, &beginning(), staged.clone()).expect("it is a new file");
        assert_eq!(report.last_csn, csn);
    }
}

/// A record without commits proves nothing; the commit behind it does.
#[test]
fn a_hole_before_the_last_commit_in_volatile_memory_is_named() {
    let env = SimEnv::new(5);
    let staged = staging(&env, MemoryMedium::Volatile, 2);
    let log = create(&env, staged.clone()).unwrap();
    for n in 0..10u8 {
        let (csn, _) = append(&log, &[n; 300], &[]).unwrap();
        log.wait_staged(csn).unwrap();
    }
    drop(log);
    // The last commit but one.
    let image = env.crash(CrashKind::Kill, 1);
    let bytes = image.read_raw(Path::new(STAGING)).unwrap();
    let at = bytes.windows(300).position(|body| body == [8; 300]).expect("it is staged");
    image.corrupt(Path::new(STAGING), at as u64, |byte| *byte ^= 1).unwrap();
    let Err(LogError::Damaged(damage)) = open_with(&image, &beginning(), staged) else {
        panic!("two commits are lost")
    };
    assert_eq!(damage.csns, Some((Csn(9), Csn(10))), "{damage}");
}
