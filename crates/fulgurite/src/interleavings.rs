//! Threads stopped in the worst place: each test is one order of events that once lost something.

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
        delta_bytes_max: 64 << 10,
        log_buffer_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(env: &Arc<SimEnv>) -> Database {
    let env: Arc<dyn Env> = env.clone();
    Database::open_with(env, "/db", options(), |_| {}).unwrap()
}

/// Runs `work` the first time that a thread reaches `place`.
fn once(db: &Database, place: &'static str, work: impl Fn() + Send + Sync + 'static) {
    let done = AtomicBool::new(false);
    db.core().hooks.set(place, move || {
        if !done.swap(true, Ordering::AcqRel) {
            work();
        }
    });
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
    db.core().hooks.clear();
    drop((table, db));
    let db = open(&env.crash(CrashKind::PowerCut, 1));
    let table = db.open_table("t").unwrap();
    assert_eq!(table.get(b"before").unwrap().unwrap(), b"1");
    assert!(table.get(b"late").unwrap().is_none());
}
