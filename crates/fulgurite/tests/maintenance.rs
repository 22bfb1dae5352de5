//! Maintenance beside other work: no writer waits for a check, or for a file system that does not report its free
//! space.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use common::rng::Rng;
use fulgurite::env::sim::SimEnv;
use fulgurite::env::{Env, Joiner, RealEnv};
use fulgurite::{Database, Durability, Error, Options, SegmentCounts, Table};

/// An event that has not happened after this long never will.
const FOR_EVER: Duration = Duration::from_secs(60);

/// Small memtables and background threads: committers soon wait for merging.
fn options() -> Options {
    Options { background: true, ..common::options() }
}

fn start(body: impl FnOnce() + Send + 'static) -> Box<dyn Joiner> {
    RealEnv::new().spawn("of a test", Box::new(body)).unwrap()
}

/// Writes far more than the memtables hold before committers wait, on a thread of its own; `Err` if that hangs.
fn write_much(table: &Table) -> Result<(), String> {
    let (done, outcome) = mpsc::channel();
    let table = table.clone();
    start(move || {
        let value = [7; 1000];
        let wrote = (0..1500u32).try_for_each(|n| table.put(&n.to_be_bytes(), &value).map(|_| ()));
        let _ = done.send(wrote);
    });
    match outcome.recv_timeout(FOR_EVER) {
        Ok(wrote) => wrote.map_err(|error| error.to_string()),
        Err(_) => Err("the writer hangs".into()),
    }
}

#[test]
fn writers_continue_where_the_free_space_cannot_be_read() {
    let sim = SimEnv::new(1);
    let db = Database::open_with(sim.clone(), common::PATH, options(), |_| {}).unwrap();
    let table = db.table("t").unwrap();
    sim.faults().space_unknown(true);
    write_much(&table).unwrap();
    let error = db.stats().maintenance_error.expect("asking for the free space failed");
    assert!(error.rounds > 0 && error.what.contains("free space"), "{error:?}");
    assert!(db.stats().merges > 0 && db.stats().poisoned.is_none());
    sim.faults().space_unknown(false);
    write_much(&table).unwrap();
    db.maintain().unwrap();
    let error = db.stats().maintenance_error.expect("the last one is kept");
    assert_eq!(error.rounds, 0, "it is over: {error:?}");
    db.close().unwrap();
}

/// A disk was full, and then does not report its free space: no write is refused because of the earlier report.
#[test]
fn a_disk_that_does_not_report_its_free_space_is_not_taken_for_a_full_one() {
    let sim = SimEnv::new(2);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    let used: u64 = sim.list_raw().iter().map(|(_, len)| len).sum();
    sim.faults().space_bytes(Some(used + 1000));
    while db.maintain().unwrap_or(false) {}
    assert!(matches!(table.put(b"a", b""), Err(Error::NoSpace { .. })));
    sim.faults().space_unknown(true);
    assert!(db.maintain().is_err());
    table.put(b"a", b"").unwrap();
    sim.faults().space_unknown(false);
}

/// Fills a table with enough entries for a check to report progress from the middle of it.
fn fill(db: &Database, table: &Table) {
    for first in (0..20_000u32).step_by(1000) {
        let mut txn = db.begin();
        for n in first..first + 1000 {
            txn.put(table, &n.to_be_bytes(), b"value").unwrap();
        }
        txn.commit().unwrap();
    }
    db.checkpoint().unwrap();
}

/// Committers that never pause kept the thread that merged from its checkpoints. INV-CKPT-6.
#[test]
fn a_load_that_never_pauses_does_not_keep_checkpoints_from_being_written() {
    const SHARE: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let settings = Options { checkpoint_log_bytes: SHARE, durability: Durability::None, ..options() };
    let db = Database::open_with(RealEnv::new(), &dir.path().join("db"), settings, |_| {}).unwrap();
    let table = db.table("t").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (1..=2)
        .map(|seed| {
            let (db, table, stop) = (db.clone(), table.clone(), stop.clone());
            start(move || {
                let mut rng = Rng::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    let mut txn = db.begin();
                    for _ in 0..10 {
                        txn.put(&table, rng.below(20_000).to_be_bytes(), [seed as u8; 100]).unwrap();
                    }
                    txn.commit().unwrap();
                }
            })
        })
        .collect();
    let mut longest = 0;
    while db.stats().log.written_bytes < 12 * SHARE {
        longest = longest.max(db.stats().uncovered_log_bytes);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(loads.into_iter().all(|load| load.join()));
    let checkpoints = db.stats().checkpoints;
    assert!(checkpoints >= 6, "{checkpoints} checkpoints");
    assert!(longest <= 2 * SHARE, "{longest} bytes of log");
    db.close().unwrap();
}

/// A checkpoint is due and cannot be written, because the directory of the database was removed. Its failure woke the
/// merger, which had tried it; that used up a processor, and 200,000 of the 4 billion segment numbers a second.
#[test]
fn a_checkpoint_that_fails_is_tried_again_at_leisure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let due_at_a_megabyte = Options { checkpoint_log_bytes: 2 << 20, ..options() };
    let db = Database::open_with(RealEnv::new(), &path, due_at_a_megabyte, |_| {}).unwrap();
    let table = db.table("t").unwrap();
    (0..800u32).for_each(|n| table.put(n.to_be_bytes(), [7; 1000]).map(drop).unwrap());
    std::fs::remove_dir_all(&path).unwrap();
    let rounds = || db.stats().maintenance_error.map_or(0, |error| error.rounds);
    for n in 0..4000u32 {
        if rounds() > 0 || table.put(n.to_be_bytes(), [7; 1000]).is_err() {
            break;
        }
    }
    let pause = |time| std::thread::park_timeout(time);
    let mut waited = Duration::ZERO;
    while rounds() == 0 {
        assert!(waited < FOR_EVER, "the checkpoint was not due: {:?}", db.stats());
        pause(Duration::from_millis(10));
        waited += Duration::from_millis(10);
    }
    let before = rounds();
    pause(Duration::from_secs(1));
    let tried = rounds() - before;
    assert!(tried <= 50, "{tried} times in a second");
    assert!(db.stats().poisoned.is_none());
}

fn open_real(path: &Path) -> Database {
    Database::open_with(RealEnv::new(), path, options(), |_| {}).unwrap()
}

#[test]
fn puts_and_checkpoints_continue_while_a_check_runs() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_real(&dir.path().join("db"));
    let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
    fill(&db, &table);
    let mut wrote = None;
    let report = db.check(|progress| {
        if progress.what != "log" && wrote.is_none() {
            let covered = db.stats().checkpoint_covered;
            let outcome = write_much(&other);
            if outcome.is_ok() {
                db.checkpoint().unwrap();
                assert!(db.stats().checkpoint_covered > covered);
            }
            wrote = Some(outcome);
        }
    });
    assert_eq!(wrote, Some(Ok(())));
    assert_eq!(report.unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
}

/// While a check runs, all that it has still to read is overwritten and checkpointed: it reads the trees and segments
/// of its beginning, and they are freed after it has ended.
#[test]
fn a_check_beside_overwriting_finds_nothing_wrong_and_keeps_no_space() {
    let sim = SimEnv::new(3);
    let db = common::open(sim.clone()).unwrap();
    let tables = ["a", "b", "c"].map(|name| db.table(name).unwrap());
    let mut rng = Rng::new(3);
    let mut overwrite = |db: &Database| {
        for table in &tables {
            for n in 0..40u32 {
                table.put(&n.to_be_bytes(), &rng.bytes(if n % 4 == 0 { 30_000 } else { 150 })).unwrap();
            }
        }
        db.checkpoint().unwrap();
        while db.maintain().unwrap() {}
    };
    fill(&db, &tables[0]);
    for _ in 0..3 {
        overwrite(&db);
    }
    let before = db.stats().segments;
    let mut during = SegmentCounts::default();
    let report = db.check(|progress| {
        if progress.what != "log" && during == SegmentCounts::default() {
            for _ in 0..12 {
                overwrite(&db);
            }
            during = db.stats().segments;
        }
    });
    assert_eq!(report.unwrap().problems, Vec::<String>::new());
    assert_ne!(during, SegmentCounts::default(), "the check reported its progress");
    for _ in 0..500 {
        overwrite(&db);
        if db.stats().segments.bulk <= before.bulk + 1 {
            break;
        }
    }
    let after = db.stats().segments;
    assert!(after.bulk <= before.bulk + 1, "before {before:?}, during {during:?}, after {after:?}");
}

#[test]
fn a_close_ends_a_check() {
    let sim: Arc<dyn Env> = SimEnv::new(4);
    let db = Database::open_with(sim.clone(), common::PATH, options(), |_| {}).unwrap();
    fill(&db, &db.table("t").unwrap());
    let mut closer = Some(db.clone());
    let (done, closed) = mpsc::channel();
    let (begun, in_check) = mpsc::channel();
    let checker = start(move || {
        let outcome = db.check(|_| {
            if let Some(db) = closer.take() {
                let done = done.clone();
                start(move || _ = done.send(db.close()));
                closed.recv_timeout(FOR_EVER).expect("the close does not wait for the check").unwrap();
            }
        });
        let _ = begun.send(matches!(outcome, Err(Error::Closed)));
    });
    assert_eq!(in_check.recv_timeout(FOR_EVER), Ok(true), "the check reports that the database was closed");
    assert!(checker.join());
    assert_eq!(open_again(sim), 20_000);
}

fn open_again(env: Arc<dyn Env>) -> usize {
    let db = Database::open_with(env, common::PATH, options(), |_| {}).unwrap();
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    db.table("t").unwrap().range(..).unwrap().count()
}
