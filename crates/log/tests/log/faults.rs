//! Failed syncs and writes, full disks, commits that die.

use crate::support::*;
use fulgurite_env::sim::{CrashKind, Loss, SimEnv};
use fulgurite_log::{BulkKind, CommitLog, Durability, Log, LogError, LogOptions, ReplayFrom, frame_bytes};
use fulgurite_types::Csn;

/// INV-LOG-7: whatever sync or write fails, no acknowledged commit is lost, and reopening keeps the commits it found,
/// even if the power is cut right after.
#[test]
fn any_failed_sync_or_write_poisons_and_reopening_keeps_what_was_acknowledged() {
    let mut poisoned = 0;
    for seed in 1..=12 {
        for n in 1..70 {
            let mut world = World::new(seed);
            world.create().expect("nothing fails yet");
            let faults = world.env.faults();
            match n % 3 {
                0 => faults.fail_write(faults.write_count() + n / 3),
                1 => faults.fail_sync(faults.sync_count() + n / 3, Loss::All),
                _ => faults.fail_sync(faults.sync_count() + n / 3, Loss::Some),
            }
            let mut rng = Rng::new(seed);
            let result = world.run(&mut rng, 50);
            let log = world.log();
            if let Err(LogError::Poisoned(_)) = &result {
                poisoned += 1;
                assert!(log.poisoned().is_some());
                assert!(matches!(log.admit(100, 0), Err(LogError::Poisoned(_))), "nothing is admitted");
                let reserved = Csn(world.reserved);
                if reserved.0 > log.watermarks().durable_csn.0 {
                    assert!(matches!(log.wait_durable(reserved), Err(LogError::Poisoned(_))));
                }
            }
            drop(log);
            world.env.faults().fail_nothing();
            // Still the same boot: the cache may hold data that the device does not.
            world.log = None;
            world.reopen().unwrap_or_else(|error| panic!("seed {seed}, fault {n}: {error}"));
            world.crash(CrashKind::PowerCut, n);
            world.reopen().unwrap_or_else(|error| panic!("seed {seed}, fault {n}, after the cut: {error}"));
            world.run(&mut rng, 10).expect("the log takes frames again");
        }
    }
    assert!(poisoned > 100, "{poisoned} runs were poisoned");
}

#[test]
fn a_full_disk_refuses_before_anything_is_logged_and_recovers() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let mut last = Csn::ZERO;
    env.faults().disk_full(true);
    let error = loop {
        match log.admit(frame_bytes(2000), 0) {
            Ok(admission) => drop(admission),
            Err(error) => break error,
        }
        env.faults().disk_full(false);
        last = commit(&log, &[1; 2000]).expect("the segment has room").0;
        env.faults().disk_full(true);
    };
    assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("free space"), "{error}");
    assert_eq!(log.watermarks().reserved_csn, last, "nothing was logged");
    assert!(log.poisoned().is_none());
    assert!(matches!(log.append_bulk(BulkKind::Chunk, &[b"chunk"]), Err(LogError::NoSpace { .. })));
    env.faults().disk_full(false);
    assert_eq!(commit(&log, &[2; 2000]).expect("space came back").0, last.next());
    log.append_bulk(BulkKind::Chunk, &[b"chunk"]).expect("space came back");
}

#[test]
fn a_reservation_that_is_dropped_poisons() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let (first, _) = commit(&log, b"first").expect("nothing fails");
    let admission = log.admit(frame_bytes(10), 0).expect("there is room");
    let reservation = log.reserve(admission, Durability::Sync);
    let hole = reservation.csn();
    drop(reservation);
    assert!(matches!(log.wait_durable(hole), Err(LogError::Poisoned(_))));
    log.wait_durable(first).expect("what was durable stays so");
    assert!(matches!(log.admit(100, 0), Err(LogError::Poisoned(_))));
    drop(log);
    let (_, report, found) = open(&env, &ReplayFrom::beginning()).expect("reopening recovers");
    assert_eq!((report.last_csn, found.0.len()), (first, 1));
}

/// A wait checks for poison again, so an admission from before the fault does not help.
#[test]
fn an_admission_from_before_the_fault_is_never_acknowledged() {
    let env = SimEnv::new(1);
    let log = create(&env);
    let admission = log.admit(frame_bytes(4), 0).expect("there is room");
    append(&log, b"lost", &[]).expect("there is room");
    env.faults().fail_all_writes(true);
    assert!(matches!(log.wait_durable(Csn(1)), Err(LogError::Poisoned(_))));
    let reservation = log.reserve(admission, Durability::Sync);
    let csn = reservation.csn();
    fill(&log, reservation, b"late", &[]);
    assert!(matches!(log.wait_durable(csn), Err(LogError::Poisoned(_))));
}

#[test]
fn a_failed_bulk_sync_poisons() {
    let env = SimEnv::new(1);
    let log = create(&env);
    log.append_bulk(BulkKind::LeafNode, &[b"node"]).expect("there is room");
    env.faults().fail_sync(env.faults().sync_count() + 1, Loss::All);
    assert!(matches!(log.sync_bulk(), Err(LogError::Poisoned(_))));
    assert!(matches!(log.sync_bulk(), Err(LogError::Poisoned(_))), "it is not tried again");
}

/// The completer is called even after the death of the log thread, which would have called it.
#[test]
fn the_completer_hears_that_the_thread_of_the_log_died() {
    let env = SimEnv::new(1);
    let options = LogOptions { background: true, ..options() };
    let log = Log::create(env, dir(), ID, options).expect("an empty directory takes a log");
    log.set_observer(Box::new(|_| panic!("the thread that flushes dies, as it should here")));
    let (sender, completed) = std::sync::mpsc::channel();
    log.set_completer(Box::new(move || _ = sender.send(())));
    let (csn, _) = append(&log, b"ticket", &[]).expect("there is room");
    log.request_durable(csn);
    completed.recv_timeout(std::time::Duration::from_secs(60)).expect("the completer is called");
    assert!(log.poisoned().is_some());
}

/// A sync of a session fails, the process is killed, and so is the next opening: what the failed sync lost is gone, or
/// all of it is still there.
#[test]
fn an_opening_that_is_cut_off_after_a_failed_sync_is_repeated() {
    for seed in 1..=8 {
        for (n, op) in (1..16).flat_map(|n| (1..24).map(move |op| (n, op))) {
            let mut world = World::new(seed);
            world.create().expect("nothing fails yet");
            let faults = world.env.faults();
            faults.fail_sync(faults.sync_count() + n, if op % 2 == 0 { Loss::All } else { Loss::Some });
            _ = world.run(&mut Rng::new(seed), 30);
            world.crash(CrashKind::Kill, n);
            let faults = world.env.faults();
            faults.crash_at(faults.op_count() + op);
            _ = world.reopen();
            world.crash(CrashKind::OsCrash, n);
            world.reopen().unwrap_or_else(|error| panic!("seed {seed}, sync {n}, operation {op}: {error}"));
        }
    }
}

/// INV-LOG-20: an opening fails because a sync failed, the next one is killed, and the power is cut. Then files may have
/// names again that they had lost, or two names.
#[test]
fn names_that_come_back_after_a_failed_sync_do_no_harm() {
    for (files, lives) in (0..5).flat_map(|files| (0..3).map(move |lives| (files, lives))) {
        let env = SimEnv::new(files);
        let log = create(&env);
        for n in 0..40 {
            commit(&log, &[n; 1500]).expect("nothing fails yet");
        }
        // The first makes a segment, each other one keeps a file.
        for _ in 0..=files {
            log.maintain().expect("nothing fails yet");
        }
        drop(log);
        let mut session = env.crash(CrashKind::Kill, 1);
        if lives == 0 {
            // An opening that is killed before it writes the start of its epoch: a write and a sync, its last ones.
            let complete = env.crash(CrashKind::Kill, 1);
            drop(open(&complete, &ReplayFrom::beginning()).expect("nothing fails yet"));
            session.faults().crash_at(complete.faults().op_count() - 1);
            assert!(open(&session, &ReplayFrom::beginning()).is_err());
            session = session.crash(CrashKind::Kill, 1);
        }
        for life in 0..lives {
            let larger = LogOptions { segment_bytes_min: (16 * 1024) << life, ..options() };
            drop(open_with(&session, &ReplayFrom::beginning(), larger).expect("nothing fails yet"));
            session = session.crash(CrashKind::Kill, 1);
        }
        for (n, op) in (1..10).flat_map(|n| (1..40).map(move |op| (n, op))) {
            let mut env = session.crash(CrashKind::Kill, n);
            env.faults().fail_sync(n, Loss::All);
            _ = open(&env, &ReplayFrom::beginning());
            env = env.crash(CrashKind::Kill, n);
            env.faults().crash_at(op);
            _ = open(&env, &ReplayFrom::beginning());
            env = env.crash(CrashKind::PowerCut, op);
            let what = format!("{files} files, {lives} lives, sync {n}, operation {op}");
            for life in 0..3 {
                env.faults().space_bytes((files > 1).then_some(0));
                let (log, _, found) = match open(&env, &ReplayFrom::beginning()) {
                    // The failed sync, or a commit of a life before, cost the last file.
                    Err(LogError::NoSpace { .. }) if files > 1 => break,
                    other => other.unwrap_or_else(|error| panic!("{what}, life {life}: {error}")),
                };
                assert_eq!(found.0.len(), 40 + life);
                commit(&log, b"one more").expect("there is room in the segment");
                while log.append_bulk(BulkKind::LeafNode, &[&[7; 6000]]).is_ok() && log.segments().len() < 12
                {
                }
                drop(log);
                env = env.crash(CrashKind::Kill, n);
            }
        }
    }
}
