//! Watches, and commits without tickets: their wake-ups, what commits wait for, and reports of failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fulgurite_env::SimEnv;
use fulgurite_log::CommitLog;

use super::support::*;
use crate::{Csn, Database, Durability, Error, FlushScheme, Numbered, Options, Table, Watch};

/// A watch whose wake-ups arrive in a channel.
fn watch(db: &Database) -> (Watch, Receiver<()>) {
    let (wake, wakes) = channel();
    (db.watch(move || _ = wake.send(())), wakes)
}

fn put(db: &Database, table: &Table, key: &[u8], level: Durability) -> Numbered {
    let mut txn = db.begin();
    txn.set_durability(level).unwrap();
    txn.put(table, key, b"v").unwrap();
    txn.commit_numbered().unwrap()
}

#[test]
fn one_wake_up_serves_many_commits() {
    for flush_scheme in FlushScheme::ALL {
        let research = crate::ResearchOptions { flush_scheme, ..Default::default() };
        let db = open(&SimEnv::new(1), Options { research, ..Options::default() });
        let table = db.table("t").unwrap();
        let (mut watch, wakes) = watch(&db);
        let commits: Vec<Numbered> =
            (0..100_u32).map(|n| put(&db, &table, &n.to_be_bytes(), Durability::Sync)).collect();
        assert!(commits.iter().all(|commit| commit.needs == commit.csn));
        let last = commits[99].csn;
        assert!(watch.visible() >= last, "one thread commits, so all are applied");
        if !watch.ask(last).unwrap() {
            wakes.recv_timeout(PATIENCE).expect("woken once the last is durable");
        }
        assert!(watch.reached() >= last);
        assert!(watch.ask(last).unwrap());
        assert!(wakes.try_recv().is_err(), "one wake-up for each arming");
        assert!(db.stats().durable >= last);
    }
}

#[test]
fn a_watch_that_is_asked_for_a_later_commit_stays_armed_for_the_earlier_one() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let (mut watch, wakes) = watch(&db);
    let [first, second] = [b"a", b"b"].map(|key| put(&db, &table, key, Durability::Sync));
    assert!(!watch.ask(first.needs).unwrap());
    assert!(!watch.ask(second.needs).unwrap());
    assert!(wakes.try_recv().is_err());
    db.wait_durable(first.csn).unwrap();
    wakes.try_recv().expect("woken by the thread that made it durable");
    assert!(watch.ask(second.needs).unwrap(), "the same write covered it");
    assert!(wakes.try_recv().is_err());
}

#[test]
fn a_thread_that_watches_may_write_the_log_itself() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let (mut watch, wakes) = watch(&db);
    assert!(!watch.lead().unwrap(), "there is nothing to write");
    let commit = put(&db, &table, b"k", Durability::Sync);
    assert!(!watch.ask(commit.needs).unwrap());
    assert!(watch.lead().unwrap());
    wakes.try_recv().expect("woken by itself");
    assert!(watch.reached() >= commit.needs && watch.ask(commit.needs).unwrap());
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn a_commit_that_waits_for_nothing_is_acknowledged_at_once() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    for level in [Durability::None, Durability::Async { interval: Duration::from_secs(3_600) }] {
        let commit = put(&db, &table, b"k", level);
        assert_eq!(commit.needs, Csn::ZERO);
        assert!(db.stats().durable < commit.csn);
        assert_eq!(db.snapshot().csn(), commit.csn, "other readers see it");
    }
}

/// INV-TXN-6, without a ticket: such a commit is hidden from readers until it is acknowledged.
#[test]
fn a_commit_that_read_one_on_its_way_waits_for_that() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let (mut watch, _wakes) = watch(&db);
    let synchronous = put(&db, &table, b"k", Durability::Sync);
    let mut txn = db.begin();
    txn.set_durability(Durability::None).unwrap();
    assert!(txn.get(&table, b"k").unwrap().is_some());
    txn.put(&table, b"own", b"v").unwrap();
    let commit = txn.commit_numbered().unwrap();
    assert_eq!(commit.needs, synchronous.csn);
    let reader = db.begin();
    assert!(reader.get(&table, b"k").unwrap().is_some());
    assert_eq!(
        reader.commit_numbered().unwrap().needs,
        synchronous.csn,
        "what it read may not leave, either"
    );
    watch.acknowledge(commit);
    assert!(table.get(b"own").unwrap().is_none(), "acknowledged too early: nothing happens");
    // Later than both, so that the flush covers both.
    db.wait_durable(synchronous.csn).unwrap();
    assert!(watch.ask(commit.needs).unwrap());
    watch.acknowledge(commit);
    assert_eq!(table.get(b"own").unwrap().unwrap(), b"v");
    let reader = db.begin();
    assert!(reader.get(&table, b"k").unwrap().is_some());
    assert_eq!(reader.commit_numbered().unwrap().needs, Csn::ZERO);
}

#[test]
fn a_failed_log_wakes_each_watch_once() {
    let env = SimEnv::new(1);
    let db = open(&env, Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    let (mut armed, wakes) = watch(&db);
    let (mut idle, idle_wakes) = watch(&db);
    let before = armed.reached();
    let commit = put(&db, &table, b"k", Durability::Sync);
    assert!(!armed.ask(commit.needs).unwrap());
    assert!(armed.failure().is_none());
    db.engine().log.poison("on purpose");
    _ = db.maintain();
    wakes.try_recv().expect("woken by the failure");
    idle_wakes.try_recv().expect("woken by the failure, too");
    for watch in [&mut armed, &mut idle] {
        assert!(matches!(watch.ask(commit.needs), Err(Error::Poisoned { .. })));
        assert!(matches!(watch.failure(), Some(Error::Poisoned { .. })));
        assert!(matches!(watch.lead(), Err(Error::Poisoned { .. })));
        assert_eq!(watch.reached(), before);
    }
    assert!(watch(&db).0.ask(commit.needs).is_err(), "and so is a watch that is made later");
    assert!(wakes.try_recv().is_err() && idle_wakes.try_recv().is_err(), "once");
}

#[test]
fn closing_wakes_a_watch_which_then_says_so() {
    let db = database();
    let table = db.table("t").unwrap();
    let (mut watch, wakes) = watch(&db);
    let commit = put(&db, &table, b"k", Durability::Sync);
    // Armed for a commit that will never be.
    let never = Csn(commit.csn.0 + 100);
    assert!(!watch.ask(never).unwrap());
    db.close().unwrap();
    wakes.recv_timeout(PATIENCE).expect("woken by the close");
    assert!(watch.ask(commit.needs).unwrap(), "the close made it durable");
    for csn in [never, commit.csn.next(), Csn(never.0 + 1), Csn::MAX] {
        assert!(matches!(watch.ask(csn), Err(Error::Closed)), "{csn}");
    }
    assert!(matches!(watch.failure(), Some(Error::Closed)));
}

/// A watch may be asked for a commit that is still to come: the log's thread serves the requests after it.
#[test]
fn asking_for_a_commit_to_come_delays_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("data"), Options::default()).unwrap();
    let table = db.table("t").unwrap();
    let (mut early, _early_wakes) = watch(&db);
    assert!(!early.ask(Csn(1 << 60)).unwrap());
    // The log becomes idle, and its thread rests.
    std::thread::park_timeout(Duration::from_millis(100));
    let (mut watch, wakes) = watch(&db);
    let commit = put(&db, &table, b"k", Durability::Sync);
    if !watch.ask(commit.needs).unwrap() {
        wakes.recv_timeout(PATIENCE).expect("the log's thread makes it durable");
    }
    assert!(watch.reached() >= commit.needs);
}

/// INV-TXN-6: a commit at `None` behind one that is not applied yet is not acknowledged, whatever is asked for.
#[test]
fn no_commit_is_acknowledged_before_it_is_visible() {
    let (db, table) = one_table();
    let meeting = Meeting::new();
    let held = meeting.clone();
    db.engine().hooks.set("numbered", move || held.hold_first());
    std::thread::scope(|scope| {
        let (other, own) = (db.clone(), table.clone());
        let first = scope.spawn(move || put(&other, &own, b"first", Durability::Sync));
        meeting.wait_for(1);
        let (watch, _wakes) = watch(&db);
        let second = put(&db, &table, b"second", Durability::None);
        assert_eq!(second.needs, second.csn, "not acknowledged yet");
        watch.acknowledge(second);
        let snapshot = db.snapshot();
        assert!(snapshot.csn() < second.csn);
        meeting.open();
        let first = first.join().unwrap();
        assert!(first.csn < second.csn);
        db.wait_durable(second.needs).unwrap();
        assert!(snapshot.get(&table, b"first").unwrap().is_none(), "a snapshot does not change");
        assert!(table.get(b"second").unwrap().is_some() && table.get(b"first").unwrap().is_some());
    });
}

/// The numbers of a transaction that wrote nothing show no commit that is not durable.
#[test]
fn acknowledging_what_only_read_shows_nothing() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let (watch, _wakes) = watch(&db);
    let commit = put(&db, &table, b"k", Durability::Sync);
    let reader = db.begin().commit_numbered().unwrap();
    assert_eq!((reader.csn, reader.needs), (commit.csn, Csn::ZERO));
    watch.acknowledge(reader);
    watch.acknowledge(commit);
    assert!(table.get(b"k").unwrap().is_none());
    assert!(db.snapshot().csn() < commit.csn);
}

#[test]
fn a_watch_keeps_the_database_open_and_a_dropped_one_is_not_woken() {
    let env = SimEnv::new(1);
    let db = open(&env, Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = woken.clone();
    let mut dropped = db.watch(move || _ = counter.fetch_add(1, Ordering::SeqCst));
    let commit = put(&db, &table, b"k", Durability::Sync);
    assert!(!dropped.ask(commit.needs).unwrap());
    drop(dropped);
    let (mut kept, _wakes) = watch(&db);
    drop((db, table));
    assert!(kept.lead().unwrap() && kept.ask(commit.needs).unwrap());
    drop(kept);
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    open(&env, Options::default()).close().unwrap();
}
