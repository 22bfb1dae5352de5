//! The process that loads until it is killed.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use fulgurite::{Database, Result, Table};

use super::case::{Case, HUGE_BYTES, LARGE_ROW_BYTES, LARGE_ROWS, VALUE_BYTES, fill_value, key};
use super::measure::Meters;

/// Runs the load until the process is killed, or any of its threads fails.
pub fn run(case: &Case, dir: &Path, report: &Path) -> ! {
    let db = Database::open(dir, case.options()).unwrap();
    let tables: Vec<Table> = (0..case.tables).map(|n| db.table(&format!("t{n}")).unwrap()).collect();
    let meters = Meters::new(report, case.threads);
    std::thread::scope(|scope| {
        let (db, tables, meters) = (&db, &tables[..], &meters);
        scope.spawn(|| die_of(|| meters.sleep_bare()));
        scope.spawn(|| die_of(|| meters.sample(db)));
        scope.spawn(|| die_of(|| meters.sync_bare(dir.parent().unwrap())));
        if case.is_large > 0 {
            scope.spawn(|| die_of(|| commit_large(db, meters)));
        }
        if case.snapshot_seconds > 0 {
            scope.spawn(|| die_of(|| hold_snapshots(db, case.snapshot_seconds)));
        }
        for thread in 0..case.threads {
            scope.spawn(move || die_of(|| commit_small(case, db, tables, meters, thread)));
        }
    });
    unreachable!("the threads do not end")
}

/// A thread that fails ends the process.
fn die_of<T>(work: impl FnOnce() -> T) {
    struct Abort;
    impl Drop for Abort {
        fn drop(&mut self) {
            std::process::abort();
        }
    }
    let _abort = Abort;
    work();
}

fn commit_small(case: &Case, db: &Database, tables: &[Table], meters: &Meters, thread: u64) {
    let mut value = [0; VALUE_BYTES];
    for commit in 1.. {
        // A single row is written without a transaction.
        let took = if case.batch == 1 {
            let row = case.picks(thread, commit).next().unwrap();
            fill_value(row, commit, &mut value);
            let start = Instant::now();
            tables[case.table_of(row) as usize].put(key(row), value).unwrap();
            start.elapsed()
        } else {
            let mut txn = db.begin();
            for row in case.picks(thread, commit) {
                fill_value(row, commit, &mut value);
                txn.put(&tables[case.table_of(row) as usize], key(row), value).unwrap();
            }
            let start = Instant::now();
            txn.commit().unwrap();
            start.elapsed()
        };
        meters.committed(thread, commit, took, case.batch);
    }
}

/// A transaction of a gigabyte, then a value of 512 MiB, in turn. All of a commit has its number.
fn commit_large(db: &Database, meters: &Meters) {
    let rows = db.table("large").unwrap();
    let huge = db.table("huge").unwrap();
    let mut value = vec![0; HUGE_BYTES];
    for commit in 1.. {
        let start = Instant::now();
        let written = if commit % 2 == 1 {
            commit_gigabyte(db, &rows, commit, &mut value[..LARGE_ROW_BYTES])
        } else {
            fill_value(0, commit, &mut value);
            huge.put("value", &value).map(|_| ())
        };
        written.unwrap();
        meters.committed_large(commit, start.elapsed());
    }
}

fn commit_gigabyte(db: &Database, table: &Table, commit: u64, value: &mut [u8]) -> Result<()> {
    let mut txn = db.begin();
    for row in 0..LARGE_ROWS {
        fill_value(row, commit, value);
        txn.put(table, key(row), &*value)?;
    }
    txn.commit().map(|_| ())
}

/// Opens a snapshot each second, and holds each for so many.
fn hold_snapshots(db: &Database, seconds: u64) {
    let mut held = VecDeque::new();
    loop {
        held.push_back(db.snapshot());
        if held.len() as u64 > seconds {
            held.pop_front();
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
