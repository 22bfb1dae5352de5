//! A visible commit is not always durable: which readers see it, and which commits wait for it (INV-TXN-6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_env::SimEnv;

use super::support::*;
use crate::{Csn, Error, Options};

#[test]
fn a_ticket_is_seen_by_transactions_and_by_no_snapshot() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    txn.put(&table, b"k", b"v").unwrap();
    let ticket = txn.commit_deferred().unwrap();
    assert!(ticket.try_wait().is_none());
    assert_eq!(db.begin().read(&table, b"k"), Some("v".into()));
    assert_eq!(db.snapshot().read(&table, b"k"), None);
    assert!(table.get(b"k").unwrap().is_none());
    assert!(table.range(..).unwrap().next().is_none());
    assert_eq!(ticket.wait().unwrap().csn, ticket.csn());
    assert_eq!(db.snapshot().read(&table, b"k"), Some("v".into()));
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
}

/// Each way of reading commits that are not durable, with and without an entry to find.
#[test]
fn a_reader_of_commits_that_are_not_durable_is_acknowledged_when_they_are() {
    type Read = fn(&crate::Transaction, &crate::Table);
    let reads: [(&str, Read); 4] = [
        ("a value", |txn, table| assert_eq!(txn.read(table, b"put"), Some("v".into()))),
        ("a delete", |txn, table| assert_eq!(txn.read(table, b"deleted"), None)),
        ("a range delete", |txn, table| assert_eq!(txn.read(table, b"x"), None)),
        ("a range", |txn, table| assert_eq!(rows(txn.range(table, ..).unwrap()).len(), 1)),
    ];
    for (name, read) in reads {
        for deferred in [false, true] {
            let db = quiet_database();
            let table = db.table("t").unwrap();
            table.put(b"deleted", b"v").unwrap();
            table.put(b"x", b"v").unwrap();
            let mut writer = db.begin();
            writer.put(&table, b"put", b"v").unwrap();
            writer.delete(&table, b"deleted").unwrap();
            writer.delete_range(&table, b"x".as_slice()..b"y").unwrap();
            let ticket = writer.commit_deferred().unwrap();
            let reader = db.begin();
            read(&reader, &table);
            assert!(ticket.try_wait().is_none());
            if deferred {
                let ticket = reader.commit_deferred().unwrap();
                assert!(ticket.try_wait().is_none(), "{name}: acknowledged before it is durable");
                ticket.wait().unwrap();
            } else {
                reader.commit().unwrap();
            }
            assert!(ticket.try_wait().is_some(), "{name}: acknowledged before it is durable");
        }
    }
}

/// An error of a single operation reveals what was read, too.
#[test]
fn a_refused_insert_is_acknowledged_when_what_refuses_it_is_durable() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let mut writer = db.begin();
    writer.put(&table, b"k", b"v").unwrap();
    let ticket = writer.commit_deferred().unwrap();
    assert!(matches!(table.insert(b"k", b"w"), Err(Error::KeyExists { .. })));
    assert!(ticket.try_wait().is_some());
}

#[test]
fn waiting_for_what_was_never_committed_is_an_error() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let last = table.put(b"k", b"v").unwrap().csn;
    db.wait_durable(Csn::ZERO).unwrap();
    db.wait_durable(last).unwrap();
    assert!(db.wait_durable(last.next()).is_err());
    assert!(db.wait_durable(Csn::MAX).is_err());
    let mut txn = db.begin();
    txn.put(&table, b"k", b"w").unwrap();
    let ticket = txn.commit_deferred().unwrap();
    assert!(ticket.try_wait().is_none(), "an error of one waiter does not end another's wait");
    db.wait_durable(ticket.csn()).unwrap();
    assert!(ticket.try_wait().unwrap().is_ok());
}

#[test]
fn a_panic_in_a_callback_is_contained() {
    let db = quiet_database();
    let table = db.table("t").unwrap();
    let defer = |key: &[u8]| {
        let mut txn = db.begin();
        txn.put(&table, key, b"v").unwrap();
        txn.commit_deferred().unwrap()
    };
    let (first, second) = (defer(b"a"), defer(b"b"));
    let called = Arc::new(AtomicBool::new(false));
    first.on_complete(|_| panic!("a user's mistake, on purpose"));
    let flag = called.clone();
    second.on_complete(move |outcome| flag.store(outcome.is_ok(), Ordering::Relaxed));
    second.wait().unwrap();
    assert!(first.try_wait().unwrap().is_ok());
    assert!(called.load(Ordering::Relaxed));
    table.put(b"c", b"v").unwrap();
}

/// A callback may begin the next commit, even when the log's buffer is full.
#[test]
fn a_callback_may_commit() {
    let db = open(&SimEnv::new(1), Options { log_buffer_bytes: 1 << 20, ..Options::default() });
    let table = db.table("t").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut txn = db.begin();
    txn.put(&table, b"first", b"v").unwrap();
    let (in_callback, callback_table) = (db.clone(), table.clone());
    txn.commit_deferred().unwrap().on_complete(move |_| {
        let mut last = None;
        for n in 0..100u32 {
            let mut txn = in_callback.begin();
            txn.put(&callback_table, &n.to_be_bytes(), &[7; 50_000]).unwrap();
            last = Some(txn.commit_deferred().unwrap());
        }
        sender.send(last.unwrap()).unwrap();
    });
    let last = receiver.recv_timeout(std::time::Duration::from_secs(20)).expect("the callback hangs");
    last.wait().unwrap();
    assert_eq!(table.range(..).unwrap().count(), 101);
}
