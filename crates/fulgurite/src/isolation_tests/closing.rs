//! Closing a database, and failures of its log, while other threads use it.

use std::time::Duration;

use fulgurite_env::SimEnv;

use super::support::*;
use crate::{Error, Options};

#[test]
fn handles_that_outlive_the_database_return_closed() {
    let (db, table) = one_table();
    for n in 0..100u8 {
        table.put(&[b'a', n % 100], b"v").unwrap();
    }
    let snapshot = db.snapshot();
    let mut held = snapshot.range(&table, ..).unwrap();
    held.next().unwrap().unwrap();
    let reading = db.begin();
    let mut own = reading.range(&table, ..).unwrap();
    own.next().unwrap().unwrap();
    let mut writing = db.begin();
    writing.put(&table, b"k", b"v").unwrap();
    let mut deferring = db.begin();
    deferring.put(&table, b"k", b"v").unwrap();
    let (empty, empty_deferred) = (db.begin(), db.begin());
    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(empty.commit(), Err(Error::Closed)), "an empty commit says so, too");
    assert!(matches!(empty_deferred.commit_deferred(), Err(Error::Closed)));
    assert!(matches!(table.get(b"a"), Err(Error::Closed)));
    assert!(matches!(table.put(b"a", b"v"), Err(Error::Closed)));
    assert!(matches!(snapshot.get(&table, b"a"), Err(Error::Closed)));
    assert!(matches!(snapshot.range(&table, ..), Err(Error::Closed)));
    assert!(matches!(held.next(), Some(Err(Error::Closed))), "the files may be another process's by now");
    assert!(held.next().is_none(), "an error ends an iteration");
    assert!(matches!(own.next_back(), Some(Err(Error::Closed))));
    assert!(matches!(writing.commit(), Err(Error::Closed)));
    assert!(matches!(deferring.commit_deferred(), Err(Error::Closed)));
    assert!(matches!(other.checkpoint(), Err(Error::Closed)));
    assert!(matches!(other.open_table("t"), Err(Error::Closed)));
    assert!(matches!(other.maintain(), Err(Error::Closed)));
    drop((held, own));
}

#[test]
fn a_ticket_ends_with_the_database() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let defer = |key: &[u8]| {
        let mut txn = db.begin();
        txn.put(&table, key, b"v").unwrap();
        txn.commit_deferred().unwrap()
    };
    let (before, waited) = (defer(b"a"), defer(b"b"));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| waited.wait());
        db.clone().close().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert!(before.try_wait().unwrap().is_ok(), "a close makes durable what was committed");
    drop((db, table));
    assert!(before.wait().is_ok());
}

/// A commit during a close is durable or refused, never acknowledged and lost.
#[test]
fn a_commit_beside_a_close_is_durable_or_refused() {
    for spot in ["admitted", "validated"] {
        for deferred in [false, true] {
            let env = SimEnv::new(1);
            let db = open(&env, Options::default());
            let table = db.table("t").unwrap();
            let meeting = hold_first_at(&db, spot);
            let outcome = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut txn = db.begin();
                    txn.put(&table, b"k", b"v").unwrap();
                    if deferred {
                        txn.commit_deferred().and_then(|ticket| ticket.wait())
                    } else {
                        txn.commit()
                    }
                });
                meeting.wait_for(1);
                let closer = scope.spawn(|| db.clone().close());
                // Either the close waits for the writer, or it is over and the writer is refused.
                for _ in 0..100 {
                    if closer.is_finished() {
                        break;
                    }
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                let reopened = closer.is_finished().then(|| open(&env, Options::default()));
                meeting.open();
                closer.join().unwrap().unwrap();
                let outcome = writer.join().unwrap();
                drop(reopened);
                outcome
            });
            drop((db, table));
            let db = open(&env, Options::default());
            let is_there = db.table("t").unwrap().get(b"k").unwrap().is_some();
            assert_eq!(outcome.is_ok(), is_there, "{spot}: {outcome:?}");
        }
    }
}

/// Commits while a database is closed and opened again: acknowledged ones are kept.
#[test]
fn commits_beside_closes_are_kept() {
    let env = SimEnv::new(1);
    let mut acknowledged: Vec<Vec<u8>> = Vec::new();
    for round in 0..20u32 {
        let db = open(&env, Options::default());
        let table = db.table("t").unwrap();
        let writers = 3;
        let new = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..writers)
                .map(|writer| {
                    let table = table.clone();
                    scope.spawn(move || {
                        let mut keys = Vec::new();
                        for n in 0.. {
                            let key = format!("{round}/{writer}/{n}").into_bytes();
                            match table.put(&key, b"v") {
                                Ok(_) => keys.push(key),
                                Err(_) => break,
                            }
                        }
                        keys
                    })
                })
                .collect();
            std::thread::park_timeout(Duration::from_millis(5));
            db.close().unwrap();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        acknowledged.extend(new);
    }
    let db = open(&env, Options::default());
    let table = db.table("t").unwrap();
    for key in &acknowledged {
        assert!(table.get(key).unwrap().is_some(), "{} was acknowledged", String::from_utf8_lossy(key));
    }
}

/// A failed synchronous write ends every wait with an error, and nothing hangs.
#[test]
fn a_failed_write_ends_every_wait() {
    let env = SimEnv::new(1);
    let db = open(&env, Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    table.put(b"k", b"0").unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"k", b"1").unwrap();
    let ticket = txn.commit_deferred().unwrap();
    env.faults().fail_all_writes(true);
    let reader = db.begin();
    assert_eq!(reader.read(&table, b"k"), Some("1".into()));
    let outcomes = at_once(vec![
        Box::new(|| ticket.wait().map(drop)) as Box<dyn FnOnce() -> crate::Result<()> + Send>,
        Box::new(|| reader.commit().map(drop)),
        Box::new(|| table.put(b"other", b"v").map(drop)),
        Box::new(|| db.wait_durable(ticket.csn())),
        Box::new(|| db.checkpoint().map(drop)),
    ]);
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. } | Error::Poisoned { .. })), "{outcome:?}");
    }
    assert!(matches!(table.put(b"k", b"2"), Err(Error::Poisoned { .. })));
    assert_eq!(db.snapshot().read(&table, b"k"), Some("0".into()), "durable commits can still be read");
    let _ = db.close();
}

/// A panic before a commit gets its number leaves the database usable.
#[test]
fn a_panic_before_a_commit_has_its_number_poisons_nothing() {
    let (db, table) = one_table();
    db.engine().hooks.set("validated", || panic!("on purpose, before the commit has a number"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.put(b"k", b"v")));
    assert!(outcome.is_err());
    db.engine().hooks.clear();
    table.put(b"k", b"w").unwrap();
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"w");
}

/// Committers once waited for ever for the merger, which the closer had stopped.
#[test]
fn a_close_that_panics_ends_every_wait() {
    let options = Options { memtable_bytes_max: Some(64 << 10), ..Options::default() };
    let db = open(&SimEnv::new(1), options);
    let table = db.table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    let closing = Meeting::new();
    let hook = closing.clone();
    db.engine().hooks.set("checkpoint boundary", move || {
        hook.hold_first();
        panic!("on purpose, while the database closes");
    });
    let (outcome, reported) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let close = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.clone().close()));
        let closer = scope.spawn(close);
        closing.wait_for(1);
        let waiter = scope.spawn(close);
        scope.spawn({
            let (table, outcome) = (&table, outcome.clone());
            move || {
                let refused = (0u32..).find_map(|n| table.put(n.to_be_bytes(), vec![7; 4000]).err());
                outcome.send(("a committer", refused)).unwrap();
            }
        });
        std::thread::park_timeout(Duration::from_millis(200));
        closing.open();
        assert!(closer.join().unwrap().is_err(), "it panicked");
        scope.spawn(move || {
            let waited = waiter.join().unwrap().expect("only the thread that closes panics");
            outcome.send(("another close", waited.err())).unwrap();
        });
        for _ in 0..2 {
            let reported = reported.recv_timeout(Duration::from_secs(20));
            let (which, error) = reported.unwrap_or_else(|_| {
                // Lets the test end.
                db.engine().files.close();
                panic!("a thread waits for ever")
            });
            assert!(matches!(error, Some(Error::Closed)), "{which}: {error:?}");
        }
    });
    let mut txn = db.begin();
    assert!(matches!(txn.put(&table, b"k", b"w").and_then(|()| txn.commit_deferred()), Err(Error::Closed)));
    assert!(matches!(table.get(b"k"), Err(Error::Closed)));
    assert!(matches!(db.close(), Err(Error::Closed)));
}

/// An acknowledged asynchronous commit was once lost without a crash.
#[test]
fn a_close_that_panics_keeps_what_was_acknowledged() {
    let env = SimEnv::new(1);
    let options = Options { background: false, ..Options::default() };
    let db = open(&env, options.clone());
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    txn.set_durability(crate::Durability::Async { interval: Duration::from_secs(5) }).unwrap();
    txn.put(&table, b"k", b"v").unwrap();
    txn.commit().unwrap();
    db.engine().hooks.set("checkpoint boundary", || panic!("on purpose, while the database closes"));
    let close = std::panic::AssertUnwindSafe(|| db.clone().close());
    assert!(std::panic::catch_unwind(close).is_err());
    db.engine().hooks.clear();
    drop((table, db));
    let db = open(&env, options);
    assert_eq!(db.open_table("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
}
