//! Which handles keep a database open, and the effect of a close on the others.

use std::sync::Arc;

use crate::common::PATH;
use fulgurite::env::SimEnv;
use fulgurite::{Database, Error, Options, Result, Table};

fn open(env: &Arc<SimEnv>) -> Result<Database> {
    Database::open_with(env.clone(), PATH, Options::default(), |_| {})
}

/// The database is closed: it can be opened, and its commits are there.
#[track_caller]
fn assert_closed(env: &Arc<SimEnv>, rows: usize) {
    let table = open(env).expect("nothing holds it any more").open_table("t").unwrap();
    assert_eq!(table.range(..).unwrap().count(), rows);
}

#[track_caller]
fn assert_held(env: &Arc<SimEnv>) {
    assert!(matches!(open(env), Err(Error::Locked { .. })), "a handle is left");
}

#[test]
fn a_table_is_not_closed_because_its_database_was_a_temporary() {
    let env = SimEnv::new(1);
    let table = open(&env).unwrap().table("t").unwrap();
    table.put("k", "v").unwrap();
    assert_eq!(table.get("k").unwrap().unwrap(), b"v");
    assert_held(&env);
    let other = table.clone();
    drop(table);
    other.put("l", "v").unwrap();
    assert_held(&env);
    drop(other);
    assert_closed(&env, 2);
}

#[test]
fn transactions_snapshots_and_ranges_outlive_all_other_handles() {
    let env = SimEnv::new(1);
    let table = open(&env).unwrap().table("t").unwrap();
    table.put("a", "1").unwrap();
    table.put("b", "2").unwrap();
    let mut txn = {
        let db = open_again(&env, table);
        let mut txn = db.begin();
        txn.put(&db.open_table("t").unwrap(), "c", "3").unwrap();
        txn
    };
    let _ = txn.savepoint();
    assert_held(&env);
    txn.commit().unwrap();
    let (snapshot, table) = {
        let db = open(&env).expect("the transaction was the last handle");
        (db.snapshot(), db.open_table("t").unwrap())
    };
    assert_eq!(snapshot.get(&table, "c").unwrap().unwrap(), b"3");
    let mut range = snapshot.range(&table, ..).unwrap();
    range.next().unwrap().unwrap();
    drop((snapshot, table));
    assert_held(&env);
    assert_eq!(range.by_ref().count(), 2);
    assert_held(&env);
    drop(range);
    assert_closed(&env, 3);
}

fn open_again(env: &Arc<SimEnv>, table: Table) -> Database {
    drop(table);
    open(env).unwrap()
}

#[test]
fn values_tickets_and_savepoints_keep_nothing_open() {
    let env = SimEnv::new(1);
    let db = open(&env).unwrap();
    let table = db.table("t").unwrap();
    table.put("k", "v").unwrap();
    let value = table.get("k").unwrap().unwrap();
    let mut txn = db.begin();
    txn.put(&table, "l", "v").unwrap();
    let savepoint = txn.savepoint();
    let ticket = txn.commit_deferred().unwrap();
    drop((db, table));
    assert_closed(&env, 2);
    ticket.wait().expect("the close made it durable");
    assert_eq!(value, b"v");
    let _ = savepoint;
}

#[test]
fn a_close_reports_and_ends_all_other_handles() {
    let env = SimEnv::new(1);
    let db = open(&env).unwrap();
    let table = db.table("t").unwrap();
    table.put("k", "v").unwrap();
    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(table.get("k"), Err(Error::Closed)));
    other.close().expect("it is closed, and cleanly");
    let quiet = Options { background: false, ..Options::default() };
    let db = Database::open_with(env.clone(), PATH, quiet, |_| {}).expect("closed, though handles are left");
    drop(table);
    assert_held(&env);

    let table = db.open_table("t").unwrap();
    table.put("l", "v").unwrap();
    let other = db.clone();
    env.faults().fail_all_writes(true);
    let error = db.close().expect_err("the closing checkpoint could not be written");
    assert!(!matches!(error, Error::Closed), "{error}");
    assert!(matches!(other.close(), Err(Error::Closed)), "the second close must not succeed");
    drop(table);
    env.faults().fail_nothing();
    assert_closed(&env, 2);
}

/// What keeps the log alive keeps its files open, and the space of those that were freed.
#[test]
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the process's own descriptors")]
fn nothing_is_left_open_when_the_last_handle_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("db");
    let open_files = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(&path)).count()
    };
    for closes in [false, true] {
        let db = Database::open(&path, Options::default()).unwrap();
        let table = db.table("t").unwrap();
        table.put("k", "v").unwrap();
        assert!(open_files() > 0);
        if closes {
            db.close().unwrap();
        } else {
            drop(db);
        }
        drop(table);
        assert_eq!(open_files(), 0, "closes {closes}");
    }
}
