//! Databases that are opened read-only: nothing is written, whatever their state, and readers share them.

use crate::common;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::common::model::History;
use crate::common::verify::verify;
use crate::common::workload::Workload;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Error, Options, Result};

fn open(env: &Arc<SimEnv>) -> Result<Database> {
    common::open_as(env.clone(), Options { read_only: true, ..common::options() })
}

fn contents(env: &SimEnv) -> Vec<(PathBuf, Vec<u8>)> {
    let files = env.list_raw().into_iter();
    files.map(|(path, _)| (path.clone(), env.read_raw(&path).unwrap())).collect()
}

/// A session with every kind of write, stopped at any operation, or closed.
fn session(seed: u64, close: bool) -> (Arc<SimEnv>, History) {
    let sim = SimEnv::new(seed);
    let history = Arc::new(Mutex::new(History::default()));
    let db = common::open(sim.clone()).unwrap();
    let mut workload = Workload::new(db.clone(), &sim, &history, seed).unwrap();
    workload.run(60, seed.is_multiple_of(2)).unwrap();
    drop(workload);
    let sim = if close {
        db.close().unwrap();
        sim.crash(CrashKind::Kill, seed)
    } else {
        let kinds = [CrashKind::Kill, CrashKind::PowerCut];
        sim.crash(kinds[(seed / 2 % 2) as usize], seed)
    };
    let history = history.lock().unwrap().clone();
    (sim, history)
}

#[test]
fn reading_writes_nothing_and_sees_what_opening_for_writing_sees() {
    for seed in 1..=12 {
        for close in [false, true] {
            let (sim, history) = session(seed, close);
            let (before, steps) = (contents(&sim), sim.faults().op_count());
            let what = format!("seed {seed}, closed: {close}");
            let csn = {
                let db = open(&sim).unwrap_or_else(|error| panic!("{what}: {error}"));
                let csn = verify(&db, &*sim, &history).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                refuses_writes(&db);
                assert!(db.stats().read_only && !(close && db.stats().unproven.is_some()), "{what}");
                db.close().unwrap();
                csn
            };
            assert_eq!(sim.faults().op_count(), steps, "{what}: the disk was changed");
            assert!(contents(&sim) == before, "{what}: a file was changed");
            let db = common::open(sim.clone()).unwrap();
            let again = verify(&db, &*sim, &history).unwrap();
            assert_eq!(again, csn, "{what}: opening for writing found another end");
        }
    }
}

fn refuses_writes(db: &Database) {
    let refused =
        |outcome: Result<()>| assert!(matches!(outcome, Err(Error::ReadOnly { .. })), "{outcome:?}");
    let table = db.tables().unwrap().swap_remove(0);
    refused(table.put(b"k", b"v").map(drop));
    refused(table.delete(b"k").map(drop));
    refused(table.put(b"k", vec![7; 100_000]).map(drop));
    refused(db.create_table("new").map(drop));
    refused(db.drop_table(&table.name()));
    refused(db.checkpoint().map(drop));
    assert!(!db.maintain().unwrap());
    let txn = db.begin();
    let _ = txn.get(&table, b"k").unwrap();
    txn.commit().unwrap();
}

#[test]
fn commits_that_a_killed_process_left_in_the_cache_are_reported() {
    let sim = SimEnv::new(1);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..10u64 {
        table.put(&n.to_be_bytes(), b"v").unwrap();
    }
    let newest = db.stats().durable;
    let killed = sim.crash(CrashKind::Kill, 1);
    let db = open(&killed).unwrap();
    let unproven = db.stats().unproven.expect("no durable mark covers the newest group");
    assert_eq!(unproven.last, newest);
    assert!(unproven.first <= newest);
    assert_eq!(db.open_table("t").unwrap().range(..).unwrap().count(), 10);
    drop(db);
    drop(common::open(killed.clone()).unwrap());
    assert_eq!(open(&killed).unwrap().stats().unproven, None, "opening for writing made it durable");
}

#[test]
fn readers_share_the_lock_and_a_writer_excludes_them() {
    let (sim, _) = session(2, true);
    let (one, other) = (open(&sim).unwrap(), open(&sim).unwrap());
    assert!(matches!(common::open(sim.clone()), Err(Error::Locked { .. })));
    one.close().unwrap();
    assert!(matches!(common::open(sim.clone()), Err(Error::Locked { .. })));
    one_more(&other).unwrap();
    other.close().unwrap();
    let writer = common::open(sim.clone()).unwrap();
    assert!(matches!(open(&sim), Err(Error::Locked { .. })));
    drop(writer);
    open(&sim).unwrap();
}

fn one_more(db: &Database) -> Result<usize> {
    db.tables()?.first().expect("there are tables").range(..).map(Iterator::count)
}

#[test]
fn a_directory_without_a_database_is_not_made_one() {
    let sim = SimEnv::new(3);
    assert!(matches!(open(&sim), Err(Error::NotADatabase { .. })));
    assert_eq!(sim.list_raw(), []);
    let steps = {
        let sim = SimEnv::new(3);
        drop(common::open(sim.clone()).unwrap());
        sim.faults().op_count()
    };
    for step in 1..=steps {
        let sim = SimEnv::new(3);
        sim.faults().crash_at(step);
        drop(common::open(sim.clone()));
        let sim = sim.crash(CrashKind::PowerCut, step);
        let before = contents(&sim);
        match open(&sim) {
            Ok(db) => assert_eq!(db.tables().unwrap().len(), 0),
            Err(error) => assert!(matches!(error, Error::NotADatabase { .. }), "step {step}: {error}"),
        }
        assert!(contents(&sim) == before, "step {step}");
    }
}

#[test]
fn one_bad_superblock_copy_is_reported_by_reading_and_mended_by_writing() {
    for slot in 0..2u64 {
        let (sim, _) = session(4, true);
        sim.corrupt("/db/SUPERBLOCK".as_ref(), slot * 4096 + 40, |byte| *byte ^= 1).unwrap();
        let problems = |db: Database| db.check(|_| {}).unwrap().problems;
        for _ in 0..2 {
            let found = problems(open(&sim).unwrap());
            assert!(found.len() == 1 && found[0].contains("SUPERBLOCK"), "slot {slot}: {found:?}");
        }
        let db = common::open(sim.clone()).unwrap();
        let report = db.check(|_| {}).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert!(report.notes.iter().any(|note| note.contains("SUPERBLOCK")), "{:?}", report.notes);
        db.close().unwrap();
        assert_eq!(problems(open(&sim).unwrap()), Vec::<String>::new());
    }
}
