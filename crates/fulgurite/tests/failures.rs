//! Failing writes and syncs, and full disks: errors state the known facts, acknowledged commits stay readable, and
//! another opening, or free space, ends the failure.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::model::History;
use common::verify::{compare_table, guarded, verify, verify_image};
use common::workload::{Workload, Write};
use fulgurite::env::Env;
use fulgurite::env::sim::{CrashKind, Loss, SimEnv};
use fulgurite::{Database, Error};

const STEPS: u64 = 45;

/// A session up to its first error.
struct Session {
    sim: Arc<SimEnv>,
    history: Arc<Mutex<History>>,
    db: Database,
    workload: Workload,
}

impl Session {
    /// An open database, before its first commit.
    fn start(seed: u64) -> Session {
        let sim = SimEnv::new(seed);
        let db = common::open(sim.clone()).unwrap();
        let history = Arc::new(Mutex::new(History::default()));
        let workload = Workload::new(db.clone(), &sim, &history, seed).unwrap();
        Session { sim, history, db, workload }
    }

    fn history(&self) -> History {
        self.history.lock().unwrap().clone()
    }
}

fn thorough() -> bool {
    common::setting("FULGURITE_CRASH_ALL").is_some_and(|value| value != 0)
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Write,
    Sync(Loss),
}

fn plan(sim: &SimEnv, fault: Fault, nth: u64) {
    match fault {
        Fault::Write => sim.faults().fail_write(nth),
        Fault::Sync(loss) => sim.faults().fail_sync(nth, loss),
    }
}

/// Runs a session in which one operation fails, and checks all conditions. Returns whether an operation failed at all.
fn one_failure(seed: u64, fault: Fault, nth: u64) -> Result<bool, String> {
    let mut session = Session::start(seed);
    plan(&session.sim, fault, nth);
    let outcome = session.workload.run(STEPS, true);
    let Err(error) = outcome else { return Ok(false) };
    let poisoned = session.db.stats().poisoned.is_some();
    right_error(&error, poisoned, &session.history())?;
    let (sim, db) = (session.sim.clone(), session.db.clone());
    reads_continue(&session).map_err(|what| format!("reading on after {error}: {what}"))?;
    if poisoned {
        refuses_writes(&db)?;
    } else {
        // The failed operation was none that commits depend on: they continue.
        session.workload.run(3, true).map_err(|later| format!("going on after `{error}` failed: {later}"))?;
        session.history.lock().unwrap().submitted();
        verify(&db, &*sim, &session.history()).map_err(|what| format!("going on after {error}: {what}"))?;
    }
    let history = session.history();
    for image in 0..3 {
        let kind = if image == 2 { CrashKind::Kill } else { CrashKind::PowerCut };
        let left = sim.crash(kind, nth << 8 | image);
        verify_image(&left, &history, image).map_err(|what| format!("{kind:?} after {error}: {what}"))?;
    }
    drop(session);
    _ = db.close();
    let reopened = common::open(sim.clone());
    let db = reopened.map_err(|again| format!("reopening after `{error}` failed: {again}"))?;
    verify(&db, &*sim, &history).map_err(|what| format!("reopened after {error}: {what}"))?;
    Ok(true)
}

/// Durable data can be read. Uses the handles from before the failure, because a definition with an unknown outcome is
/// in the list of tables.
fn reads_continue(session: &Session) -> Result<(), String> {
    let snapshot = session.db.snapshot();
    let (csn, history) = (snapshot.csn().0, session.history());
    if csn < history.acknowledged() {
        return Err(format!("commit {csn} is the newest, {} was acknowledged", history.acknowledged()));
    }
    for (name, model) in &history.at(csn).tables {
        let now_ms = session.sim.clock().wall_ms();
        let Some(table) = session.workload.tables.get(name) else {
            return Err(format!("no handle to {name}"));
        };
        compare_table(&snapshot, table, model, now_ms).map_err(|what| format!("table {name}: {what}"))?;
    }
    Ok(())
}

/// [`Error::OutcomeUnknown`] names a commit in doubt; after other errors nothing happened.
fn right_error(error: &Error, poisoned: bool, history: &History) -> Result<(), String> {
    match error {
        Error::OutcomeUnknown { csn, .. }
            if csn.0 > history.acknowledged() && csn.0 <= history.submitted() && poisoned =>
        {
            Ok(())
        }
        Error::Poisoned { .. } if poisoned => Ok(()),
        Error::Io { .. } | Error::NoSpace { .. } if !poisoned => Ok(()),
        other => Err(format!("the wrong error (poisoned: {poisoned}): {other:?}")),
    }
}

fn refuses_writes(db: &Database) -> Result<(), String> {
    let table = db.tables().map_err(|error| error.to_string())?.pop();
    if let Some(table) = table {
        for _ in 0..2 {
            match table.put(b"refused", b"") {
                Err(Error::Poisoned { .. }) => {}
                other => return Err(format!("a write after the failure gave {other:?}")),
            }
        }
    }
    match (db.checkpoint(), db.create_table("refused")) {
        (Err(Error::Poisoned { .. }), Err(Error::Poisoned { .. })) => Ok(()),
        other => Err(format!("a checkpoint or table after the failure gave {other:?}")),
    }
}

fn every_failure(name: &str, fault: Fault, count: impl Fn(&SimEnv) -> u64) {
    let mut session = Session::start(1);
    let first = count(&session.sim) + 1;
    session.workload.run(STEPS, true).unwrap();
    let last = count(&session.sim);
    let only = common::setting("FULGURITE_FAIL_AT");
    let mut failed = 0;
    for nth in first..=last {
        if only.map_or(!thorough() && nth % 7 != 3, |only| only != nth) {
            continue;
        }
        match guarded(|| one_failure(1, fault, nth)) {
            Ok(true) => failed += 1,
            Ok(false) => {}
            Err(what) => panic!(
                "{fault:?} {nth} failing: {what}\nagain: FULGURITE_FAIL_AT={nth} cargo test -p fulgurite --test failures {name}"
            ),
        }
    }
    println!("{name}: {failed} of {} failures reached the session", last - first + 1);
    assert!(failed > 0);
}

#[test]
fn a_failing_write() {
    every_failure("a_failing_write", Fault::Write, |sim| sim.faults().write_count());
}

#[test]
fn a_failing_sync_that_loses_all() {
    let name = "a_failing_sync_that_loses_all";
    every_failure(name, Fault::Sync(Loss::All), |sim| sim.faults().sync_count());
}

#[test]
fn a_failing_sync_that_loses_some() {
    let name = "a_failing_sync_that_loses_some";
    every_failure(name, Fault::Sync(Loss::Some), |sim| sim.faults().sync_count());
}

/// Opening itself may fail anywhere; the next attempt succeeds, and so does one after a crash.
#[test]
fn opening_fails_and_succeeds_the_next_time() {
    for seed in 1..=if thorough() { 20 } else { 4 } {
        let mut session = Session::start(seed);
        session.workload.run(10 + 3 * seed, true).unwrap();
        session.workload.run(6, false).unwrap();
        let history = session.history();
        for fault in [Fault::Write, Fault::Sync(Loss::All), Fault::Sync(Loss::Some)] {
            for nth in 1..=8 {
                let left = session.sim.crash(CrashKind::Kill, seed << 8 | nth);
                plan(&left, fault, nth);
                let again = format!("seed {seed}, {fault:?} {nth} in opening");
                if let Err(error) = common::open(left.clone()) {
                    assert!(matches!(error, Error::Io { .. }), "{again}: {error:?}");
                }
                let cut = left.crash(CrashKind::PowerCut, nth);
                for sim in [cut, left] {
                    let outcome = verify_image(&sim, &history, nth);
                    outcome.unwrap_or_else(|what| panic!("{again}: {what}"));
                }
            }
        }
    }
}

/// The same after openings that were killed: their epochs have no commits, and their segments go back to the reserve.
#[test]
fn opening_fails_after_openings_that_were_killed() {
    for seed in 1..=if thorough() { 20 } else { 4 } {
        let mut session = Session::start(seed);
        session.workload.run(10 + 3 * seed, true).unwrap();
        let history = session.history();
        for fault in [Fault::Write, Fault::Sync(Loss::All), Fault::Sync(Loss::Some)] {
            for nth in 1..=16 {
                let mut left = session.sim.crash(CrashKind::Kill, seed << 8 | nth);
                for _ in 0..=seed % 3 {
                    drop(common::open(left.clone()).unwrap());
                    left = left.crash(CrashKind::Kill, nth);
                }
                left.faults().crash_at(left.faults().op_count() + 5 * nth);
                let _ = common::open(left.clone());
                let left = left.crash(CrashKind::Kill, nth);
                plan(&left, fault, nth);
                let again = format!("seed {seed}, {fault:?} {nth} in opening");
                if let Err(error) = common::open(left.clone()) {
                    assert!(matches!(error, Error::Io { .. }), "{again}: {error:?}");
                }
                left.faults().fail_nothing();
                let cut = left.crash(CrashKind::PowerCut, nth);
                for sim in [cut, left] {
                    let outcome = verify_image(&sim, &history, nth);
                    outcome.unwrap_or_else(|what| panic!("{again}: {what}"));
                }
            }
        }
    }
}

/// A write of many values, until the disk is full.
fn fill(session: &mut Session, len: usize) -> Error {
    for n in 0..10_000u64 {
        let value = session.workload.rng.bytes(len);
        if let Err(error) = session.workload.commit(&[Write::put("medium", format!("fill {n}"), value)]) {
            return error;
        }
    }
    panic!("the disk never became full");
}

fn used_bytes(sim: &SimEnv) -> u64 {
    sim.list_raw().iter().map(|(_, len)| len).sum()
}

/// The disk fills up; nothing is lost, and when it has space again, all operations work, without another opening.
#[test]
fn a_full_disk() {
    for (value_bytes, spare) in
        [(3_000, 3 << 20), (140_000, 3 << 20), (700_000, 5 << 20), (60_000, 2_500_000)]
    {
        for maintained in [false, true] {
            let what = format!("values of {value_bytes} bytes, {spare} spare, maintained {maintained}");
            let mut session = Session::start(9);
            session.workload.run(20, true).unwrap();
            session.sim.faults().space_bytes(Some(used_bytes(&session.sim) + spare));
            if maintained {
                _ = session.db.maintain();
            }
            for round in 0..3 {
                let error = fill(&mut session, value_bytes);
                assert!(matches!(error, Error::NoSpace { .. }), "{what}, round {round}: {error:?}");
                assert!(session.db.stats().poisoned.is_none(), "{what}: a full disk poisoned the log");
                let checkpoint = session.db.checkpoint();
                assert!(
                    matches!(checkpoint, Ok(_) | Err(Error::NoSpace { .. })),
                    "{what}, round {round}: the checkpoint gave {checkpoint:?}"
                );
                let outcome = verify(&session.db, &*session.sim, &session.history());
                outcome.unwrap_or_else(|wrong| panic!("{what}, round {round}: {wrong}"));
                let left = session.sim.crash(CrashKind::PowerCut, round);
                left.faults().space_bytes(None);
                let outcome = verify_image(&left, &session.history(), round);
                outcome.unwrap_or_else(|wrong| panic!("{what}, round {round}, after a crash: {wrong}"));
            }
            session.sim.faults().space_bytes(None);
            _ = session.db.maintain().unwrap_or_else(|error| panic!("{what}: with space again: {error}"));
            let outcome = session.workload.run(20, true);
            outcome.unwrap_or_else(|error| panic!("{what}: with space again: {error}"));
            verify(&session.db, &*session.sim, &session.history())
                .unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        }
    }
}

/// A full disk on which even preallocated space cannot be written: the log refuses writes until it is opened again.
#[test]
fn a_full_disk_without_preallocation() {
    let mut session = Session::start(10);
    session.workload.run(20, true).unwrap();
    session.sim.faults().disk_full(true);
    let error = fill(&mut session, 3_000);
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    reads_continue(&session).unwrap();
    session.sim.faults().disk_full(false);
    refuses_writes(&session.db).unwrap();
    let Session { sim, history, db, workload } = session;
    drop((db, workload));
    let history = history.lock().unwrap().clone();
    verify_image(&sim.crash(CrashKind::PowerCut, 1), &history, 1).unwrap();
    verify_image(&sim, &history, 2).unwrap();
}

/// Deletes free space on a full disk: the database takes writes again without other help.
#[test]
fn deleting_on_a_full_disk_makes_room() {
    let mut session = Session::start(11);
    session.workload.run(4, true).unwrap();
    session.sim.faults().space_bytes(Some(used_bytes(&session.sim) + (12 << 20)));
    let error = fill(&mut session, 50_000);
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    let range = Write::DeleteRange { table: "medium".into(), start: b"fill".to_vec(), end: None };
    _ = session.db.maintain();
    let free_before = session.sim.disk().free_bytes("/".as_ref()).unwrap();
    let deleted = session.workload.commit(&[range]);
    deleted.unwrap_or_else(|error| panic!("a delete with {free_before} bytes free: {error}"));
    for _ in 0..6 {
        let value = session.workload.rng.bytes(10);
        _ = session.workload.commit(&[Write::put("small", "nudge", value)]);
        session.db.checkpoint().unwrap_or_else(|error| panic!("a checkpoint after the delete: {error}"));
        for _ in 0..3 {
            let outcome = session.db.maintain();
            assert!(matches!(outcome, Ok(_) | Err(Error::NoSpace { .. })), "{outcome:?}");
        }
    }
    // Segments are freed when the epochs of readers have passed, which other tests of this process may hold up.
    for _ in 0..1_000 {
        if session.sim.disk().free_bytes("/".as_ref()).unwrap() >= 8 << 20 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
        let outcome = session.db.maintain();
        assert!(matches!(outcome, Ok(_) | Err(Error::NoSpace { .. })), "{outcome:?}");
    }
    session.workload.run(4, true).unwrap_or_else(|error| panic!("with space again: {error}"));
    verify(&session.db, &*session.sim, &session.history()).unwrap();
}
