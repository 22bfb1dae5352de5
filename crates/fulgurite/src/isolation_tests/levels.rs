//! Levels of durability: which commits wait, which readers see them, which levels are refused, what a failure reports.

use std::time::Duration;

use fulgurite_env::SimEnv;
use fulgurite_env::sim::CrashKind;

use super::support::*;
use crate::{Csn, CsnRange, Database, Durability, Error, ErrorKind, Options, Table, Ticket};

const ASYNC: Durability = Durability::Async { interval: Duration::from_millis(10) };
const ASYNCHRONOUS: [Durability; 2] = [ASYNC, Durability::None];

/// Puts `key` at a level without waiting; returns the ticket.
fn put(db: &Database, table: &Table, key: &[u8], level: Durability) -> Ticket {
    let mut txn = db.begin();
    txn.set_durability(level).unwrap();
    txn.put(table, key, b"v").unwrap();
    txn.commit_deferred().unwrap()
}

fn is_durable(db: &Database, ticket: &Ticket) -> bool {
    db.stats().durable >= ticket.csn()
}

/// A database whose log is flushed only by threads that wait for it, with a table.
fn quiet() -> (Database, Table) {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    (db, table)
}

#[test]
fn all_readers_see_an_acknowledged_commit() {
    for level in ASYNCHRONOUS {
        let (db, table) = quiet();
        let ticket = put(&db, &table, b"k", level);
        assert_eq!(ticket.try_wait().unwrap().unwrap().csn, ticket.csn(), "complete from the start");
        assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
        assert_eq!(db.snapshot().read(&table, b"k"), Some("v".into()));
        assert_eq!(table.range(..).unwrap().count(), 1);
        let mut txn = db.begin();
        txn.set_durability(level).unwrap();
        txn.put(&table, b"l", b"v").unwrap();
        let csn = txn.commit().unwrap().csn;
        assert_eq!(db.snapshot().csn(), csn);
        assert!(!is_durable(&db, &ticket), "no thread waited for a flush");
        db.wait_durable(csn).unwrap();
        assert!(is_durable(&db, &ticket));
    }
}

#[test]
fn a_reader_of_asynchronous_commits_does_not_wait_for_them() {
    for level in ASYNCHRONOUS {
        let (db, table) = quiet();
        let ticket = put(&db, &table, b"k", level);
        let reader = db.begin();
        assert_eq!(reader.read(&table, b"k"), Some("v".into()));
        assert_eq!(reader.read(&table, b"absent"), None);
        assert_eq!(rows(reader.range(&table, ..).unwrap()).len(), 1);
        reader.commit().unwrap();
        let reader = db.begin();
        assert_eq!(reader.read(&table, b"k"), Some("v".into()));
        assert!(reader.commit_deferred().unwrap().try_wait().is_some());
        let mut writer = db.begin();
        writer.set_durability(level).unwrap();
        assert_eq!(writer.read(&table, b"k"), Some("v".into()));
        writer.put(&table, b"k", b"w").unwrap();
        writer.commit().unwrap();
        assert!(matches!(table.insert(b"k", b"x"), Err(Error::KeyExists { .. })));
        assert!(!is_durable(&db, &ticket));
    }
}

#[test]
fn a_reader_of_synchronous_commits_waits_for_them_at_any_level() {
    for level in [Durability::Sync, ASYNC, Durability::None] {
        for writes in [false, true] {
            for deferred in [false, true] {
                let (db, table) = quiet();
                let synchronous = put(&db, &table, b"k", Durability::Sync);
                _ = put(&db, &table, b"weak", Durability::None);
                let mut reader = db.begin();
                reader.set_durability(level).unwrap();
                assert_eq!(reader.read(&table, b"k"), Some("v".into()));
                if writes {
                    reader.put(&table, b"own", b"v").unwrap();
                }
                assert!(synchronous.try_wait().is_none());
                let csn = if deferred {
                    let ticket = reader.commit_deferred().unwrap();
                    assert!(ticket.try_wait().is_none(), "{level:?}: acknowledged before it is durable");
                    ticket.wait().unwrap().csn
                } else {
                    reader.commit().unwrap().csn
                };
                assert!(is_durable(&db, &synchronous), "{level:?}: acknowledged before it is durable");
                assert!(db.snapshot().csn() >= csn, "{level:?}: a committer sees its acknowledged commit");
                assert_eq!(db.snapshot().read(&table, b"own").is_some(), writes);
            }
        }
    }
}

/// No snapshot shows an asynchronous commit that has to wait before its ticket is complete.
#[test]
fn an_asynchronous_commit_that_read_a_synchronous_one_is_hidden_until_that_is_durable() {
    let (db, table) = quiet();
    _ = put(&db, &table, b"k", Durability::Sync);
    let mut txn = db.begin();
    txn.set_durability(Durability::None).unwrap();
    txn.read(&table, b"k");
    txn.put(&table, b"own", b"v").unwrap();
    let ticket = txn.commit_deferred().unwrap();
    assert!(table.get(b"k").unwrap().is_none() && table.get(b"own").unwrap().is_none());
    assert_eq!(db.begin().read(&table, b"own"), Some("v".into()));
    let seen = std::sync::Arc::new(parking_lot::Mutex::new(None));
    let (slot, reader) = (seen.clone(), table.clone());
    ticket.on_complete(move |_| *slot.lock() = reader.get(b"own").unwrap());
    db.wait_durable(ticket.csn()).unwrap();
    assert_eq!(seen.lock().take().unwrap(), b"v", "the callback sees the commit");
}

#[test]
fn an_unsupported_level_is_refused_where_it_is_set() {
    let (db, table) = quiet();
    let mut txn = db.begin();
    txn.put(&table, b"k", b"v").unwrap();
    let hours = Durability::Async { interval: Duration::from_secs(7200) };
    let never = Durability::Async { interval: Duration::ZERO };
    for level in [Durability::Staged, Durability::NoBarrier, hours, never] {
        let error = txn.set_durability(level).unwrap_err();
        assert!(matches!(error, Error::UnsupportedDurability { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Request);
        assert_eq!(txn.durability(), Durability::Sync);
    }
    let csn = txn.commit().unwrap().csn;
    assert!(db.stats().durable >= csn);
    let open = |options| Database::open_with(SimEnv::new(1), "/data", options, |_| {});
    for durability in [Durability::Staged, Durability::NoBarrier] {
        let outcome = open(Options { durability, ..Options::default() });
        assert!(matches!(outcome, Err(Error::BadOptions { .. })), "{outcome:?}");
    }
    let db = open(Options {
        durability: Durability::NoBarrier,
        assume_power_safe_cache: true,
        ..Options::default()
    })
    .unwrap();
    let mut txn = db.begin();
    assert_eq!(txn.durability(), Durability::NoBarrier);
    txn.set_durability(Durability::Sync).unwrap();
    txn.set_durability(Durability::NoBarrier).unwrap();
}

#[test]
fn definitions_are_durable_at_any_default() {
    let env = SimEnv::new(1);
    let options = Options { durability: Durability::None, background: false, ..Options::default() };
    let db = open(&env, options.clone());
    let (kept, moved) = (db.table("kept").unwrap(), db.table("moved").unwrap());
    kept.put(b"before", b"v").unwrap();
    drop(moved);
    db.rename_table("moved", "renamed").unwrap();
    kept.put(b"after", b"v").unwrap();
    let env = env.crash(CrashKind::PowerCut, 1);
    let db = open(&env, options);
    let names: Vec<String> = db.tables().unwrap().iter().map(Table::name).collect();
    assert_eq!(names, ["kept", "renamed"]);
    let kept = db.table("kept").unwrap();
    assert!(kept.get(b"before").unwrap().is_some(), "what comes before a durable commit is durable");
    assert!(kept.get(b"after").unwrap().is_none());
}

#[test]
fn a_failure_after_the_acknowledgement_names_the_commits_at_risk() {
    let env = SimEnv::new(1);
    let db = open(&env, Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    let durable = table.put(b"k", b"v").unwrap().csn;
    assert_eq!(db.stats().at_risk, None);
    let (first, last) = (put(&db, &table, b"a", ASYNC), put(&db, &table, b"b", Durability::None));
    let unacknowledged = put(&db, &table, b"c", Durability::Sync);
    env.faults().fail_all_writes(true);
    assert!(unacknowledged.wait().is_err());
    let expected = Some(CsnRange { first: first.csn(), last: last.csn() });
    assert_eq!((durable.next(), db.stats().at_risk), (first.csn(), expected));
    assert!(matches!(db.wait_durable(durable), Ok(())));
    let outcome_unknown = db.wait_durable(last.csn()).unwrap_err();
    assert!(
        matches!(&outcome_unknown, Error::OutcomeUnknown { csn, at_risk, .. } if (*csn, *at_risk) == (last.csn(), expected))
    );
    let refused = table.put(b"d", b"v").unwrap_err();
    assert!(matches!(&refused, Error::Poisoned { at_risk, .. } if *at_risk == expected), "{refused:?}");
    for error in [outcome_unknown, refused] {
        let range = format!("commits {} to {}", first.csn(), last.csn());
        assert!(error.to_string().contains(&range), "{error}");
    }
    let mut late = db.begin();
    late.set_durability(Durability::None).unwrap();
    late.put(&table, b"e", b"v").unwrap();
    assert!(matches!(late.commit(), Err(Error::Poisoned { .. })), "an asynchronous commit is refused, too");
}

#[test]
fn a_close_makes_durable_what_was_acknowledged_and_refuses_the_rest() {
    for spot in ["admitted", "validated"] {
        let env = SimEnv::new(1);
        let db = open(&env, Options { durability: Durability::None, ..Options::default() });
        let table = db.table("t").unwrap();
        table.put(b"before", b"v").unwrap();
        let meeting = hold_first_at(&db, spot);
        let outcome = std::thread::scope(|scope| {
            let writer = scope.spawn(|| table.put(b"late", b"v"));
            meeting.wait_for(1);
            let closer = scope.spawn(|| db.clone().close());
            for _ in 0..100 {
                if closer.is_finished() {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(1));
            }
            meeting.open();
            closer.join().unwrap().unwrap();
            writer.join().unwrap()
        });
        drop((db, table));
        let db = open(&env.crash(CrashKind::PowerCut, 1), Options::default());
        let table = db.table("t").unwrap();
        assert!(table.get(b"before").unwrap().is_some());
        assert_eq!(outcome.is_ok(), table.get(b"late").unwrap().is_some(), "{spot}: {outcome:?}");
    }
}

#[test]
fn latencies_are_counted_by_level() {
    let (db, table) = quiet();
    let before = db.stats().latency;
    table.put(b"k", b"v").unwrap();
    put(&db, &table, b"k", Durability::Sync).wait().unwrap();
    for level in ASYNCHRONOUS {
        _ = put(&db, &table, b"k", level);
    }
    _ = put(&db, &table, b"k", Durability::Sync);
    db.begin().commit().unwrap();
    let after = db.stats().latency;
    let counts = |latency: crate::Latencies| {
        [latency.sync, latency.no_barrier, latency.asynchronous, latency.none].map(|latency| latency.count)
    };
    assert_eq!(
        counts(after),
        [counts(before)[0] + 2, 0, 1, 1],
        "only what was acknowledged and wrote counts"
    );
    assert_eq!(db.begin().snapshot_csn(), Csn(counts(before)[0] + 5), "a definition counts");
}

/// A handle with a level of its own: its single operations are at that level, others and transactions are not.
#[test]
fn a_handle_with_a_level_commits_at_that_level() {
    let (db, table) = quiet();
    let unwaited = table.with_durability(Durability::None).unwrap();
    assert_eq!((unwaited.durability(), table.durability()), (Durability::None, Durability::Sync));
    let operations: [fn(&Table) -> Csn; 8] = [
        |table| table.put(b"k", b"v").unwrap().csn,
        |table| table.insert(b"l", b"v").unwrap().csn,
        |table| table.put(b"long", vec![1; crate::limits::SPILL_BYTES_MIN]).unwrap().csn,
        |table| table.compare_and_swap(b"k", Some(b"v"), Some(b"w")).map(|_| Csn::ZERO).unwrap(),
        |table| table.pop_first(..).map(|_| Csn::ZERO).unwrap(),
        |table| table.delete(b"l").unwrap().csn,
        |table| table.delete_prefix(b"l").unwrap().csn,
        |table| table.put_expiring(b"m", b"v", Duration::from_secs(60)).unwrap().csn,
    ];
    let (before, visible) = (db.stats().durable, db.stats().visible);
    for operation in operations {
        operation(&unwaited);
    }
    assert_eq!(db.stats().durable, before, "none of them was made durable");
    assert!(db.stats().visible.0 >= visible.0 + operations.len() as u64);
    assert_eq!(db.begin().durability(), Durability::Sync);
    let csn = table.put(b"n", b"v").unwrap().csn;
    assert!(db.stats().durable >= csn);
    assert!(matches!(
        table.with_durability(Durability::NoBarrier),
        Err(Error::UnsupportedDurability { level: Durability::NoBarrier, .. })
    ));
}
