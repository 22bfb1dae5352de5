//! Interleavings: threads stopped at the worst point. Each test is one order of events that once lost data or hung.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_env::Env;
use fulgurite_env::sim::{CrashKind, SimEnv};
use parking_lot::Mutex;

use crate::{Database, Error, Options};

fn options() -> Options {
    Options {
        leaf_bytes: 512,
        inline_bytes_max: 200,
        memtable_bytes_max: Some(64 << 10),
        log_buffer_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(env: &Arc<SimEnv>) -> Database {
    let env: Arc<dyn Env> = env.clone();
    Database::open_with(env, "/db", options(), |_| {}).unwrap()
}

/// Runs `work` the first time that a thread reaches the hook `spot`.
fn once(db: &Database, spot: &'static str, work: impl Fn() + Send + Sync + 'static) {
    let done = AtomicBool::new(false);
    db.engine().hooks.set(spot, move || {
        if !done.swap(true, Ordering::AcqRel) {
            work();
        }
    });
}

/// The database as the next process opens it after a power cut.
fn crash(env: &Arc<SimEnv>, db: Database) -> Database {
    let env = env.crash(CrashKind::PowerCut, 1);
    drop(db);
    open(&env)
}

#[test]
fn a_commit_that_is_overtaken_by_a_close_is_not_acknowledged() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.table("t").unwrap();
    table.put(b"before", b"1").unwrap();
    let closer = Mutex::new(Some(db.clone()));
    once(&db, "validated", move || closer.lock().take().unwrap().close().unwrap());
    let outcome = table.put(b"late", b"2");
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    db.engine().hooks.clear();
    drop((table, db));
    let db = open(&env.crash(CrashKind::PowerCut, 1));
    let table = db.open_table("t").unwrap();
    assert_eq!(table.get(b"before").unwrap().unwrap(), b"1");
    assert!(table.get(b"late").unwrap().is_none());
}

#[test]
fn names_that_moved_while_a_checkpoint_was_written_keep_their_tables() {
    let env = SimEnv::new(1);
    let db = open(&env);
    for name in ["a", "c"] {
        let table = db.table(name).unwrap();
        for n in 0..100u32 {
            table.put(&n.to_be_bytes(), name.as_bytes()).unwrap();
        }
    }
    db.checkpoint().unwrap();
    let other = db.clone();
    once(&db, "checkpoint boundary", move || {
        other.rename_table("a", "b").unwrap();
        other.rename_table("c", "a").unwrap();
        // Enough definitions for the catalog's own memtable to grow.
        for n in 0..1000 {
            other.create_table(&format!("{n:0>200}")).unwrap();
        }
    });
    db.checkpoint().unwrap();
    db.engine().hooks.clear();
    let db = crash(&env, db);
    for (name, value) in [("b", b"a"), ("a", b"c")] {
        let table = db.open_table(name).unwrap();
        let values: Vec<_> = table.range(..).unwrap().map(|row| row.unwrap().1).collect();
        assert_eq!(values.len(), 100, "{name}");
        assert!(values.iter().all(|found| found == value), "{name}");
    }
    assert!(db.open_table("c").is_err());
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_table_that_was_made_while_a_checkpoint_was_written_has_right_accounts() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let other = db.clone();
    once(&db, "checkpoint boundary", move || {
        let table = other.create_table("t").unwrap();
        for n in 0..1000u32 {
            table.put(&n.to_be_bytes(), &[7; 150]).unwrap();
        }
    });
    db.checkpoint().unwrap();
    db.engine().hooks.clear();
    let db = crash(&env, db);
    db.checkpoint().unwrap();
    assert_eq!(db.open_table("t").unwrap().range(..).unwrap().count(), 1000);
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_table_that_cannot_be_merged_does_not_stop_the_others() {
    let env = SimEnv::new(1);
    let db = open(&env);
    for name in ["bad", "good"] {
        db.table(name).unwrap().put(b"k", format!("needle {name}").as_bytes()).unwrap();
    }
    db.close().unwrap();
    let db = open(&env);
    let (bad, good) = (db.table("bad").unwrap(), db.table("good").unwrap());
    for (path, _) in env.list_raw() {
        let bytes = env.read_raw(&path).unwrap();
        for (at, _) in bytes.windows(10).enumerate().filter(|(_, bytes)| *bytes == b"needle bad") {
            env.corrupt(&path, at as u64, |byte| *byte ^= 1).unwrap();
        }
    }
    let fill = |table: &crate::Table| (0..200u8).try_for_each(|n| table.put(&[n], &[n; 10_000]).map(|_| ()));
    let error = fill(&bad).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(db.maintain().is_err());
    fill(&good).unwrap();
    assert!(good.state.index.memtables().count() < 10);
}

#[test]
fn committers_do_not_wait_for_a_merging_thread_that_panicked() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options { background: true, ..options() }).unwrap();
    let table = db.table("t").unwrap();
    db.engine().hooks.set("maintenance", || panic!("as a test demands"));
    let outcome = (0..2000u32).try_for_each(|n| table.put(&n.to_be_bytes(), &[7; 5000]).map(|_| ()));
    assert!(matches!(outcome, Err(Error::Poisoned { .. } | Error::OutcomeUnknown { .. })), "{outcome:?}");
    db.engine().hooks.clear();
}
