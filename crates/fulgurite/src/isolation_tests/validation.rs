//! INV-TXN-16: a commit reads what it validates from disk without its latches, and finds each write all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;

use fulgurite_env::SimEnv;

use super::support::*;
use crate::{Database, Isolation, Options, Table, Transaction};

const ROWS: u32 = 3_000;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn evict(db: &Database) {
    while db.engine().evict_round().unwrap().worked {}
}

/// A table whose rows are on disk only, and a transaction that has to validate some of them in the tree.
fn old_transaction(reads: impl Fn(&Transaction, &Table)) -> (Database, Table, Transaction) {
    let options = Options {
        leaf_bytes: 512,
        inline_bytes_max: 60,
        background: false,
        research: crate::ResearchOptions { evict_everything: true, ..Default::default() },
        ..Options::default()
    };
    let db = open(&SimEnv::new(1), options);
    let table = db.table("t").unwrap();
    db.transact(|txn| (0..ROWS).try_for_each(|n| txn.put(&table, key(n), b"first"))).unwrap();
    db.checkpoint().unwrap();
    let mut old = db.begin_with(Isolation::Serializable);
    reads(&old, &table);
    old.put(&table, b"mine", b"mine").unwrap();
    merge_another(&db, &table);
    (db, table, old)
}

/// Commits a row that the transaction did not read, and merges it.
fn merge_another(db: &Database, table: &Table) {
    table.put(b"other", b"v").unwrap();
    db.checkpoint().unwrap();
    evict(db);
}

/// Commits the transaction. `work` runs whenever it is at one of the two spots, with the spot, and the number of times
/// that it was admitted before. Returns these, too.
fn commit(
    db: &Database,
    old: Transaction,
    work: impl Fn(&str, usize) + Send + Sync + 'static,
) -> (crate::Result<()>, usize) {
    let own: ThreadId = std::thread::current().id();
    let times = Arc::new(AtomicUsize::new(0));
    let work = Arc::new(work);
    for spot in ["admitted", "validated without latches"] {
        let (counted, work) = (times.clone(), work.clone());
        db.engine().hooks.set(spot, move || {
            if std::thread::current().id() == own {
                let before = counted.fetch_add(usize::from(spot == "admitted"), Ordering::SeqCst);
                // This thread may have an admission, and may not commit.
                std::thread::scope(|scope| scope.spawn(|| work(spot, before)).join().unwrap());
            }
        });
    }
    let outcome = old.commit().map(|_| ());
    db.engine().hooks.clear();
    (outcome, times.load(Ordering::SeqCst))
}

type Reads = fn(&Transaction, &Table);

const READS: [(&str, Reads); 2] = [
    ("keys", |txn, table| {
        for n in (0..ROWS).step_by(100) {
            txn.get(table, key(n)).unwrap();
        }
    }),
    ("a range", |txn, table| _ = rows_of(txn, table)),
];

fn rows_of(txn: &Transaction, table: &Table) -> usize {
    txn.range(table, key(0)..key(ROWS)).unwrap().map(Result::unwrap).count()
}

#[test]
fn nodes_that_are_evicted_before_the_latches_are_not_read_again() {
    for (name, reads) in READS {
        let (db, table, old) = old_transaction(reads);
        let loads = || db.stats().memory.node_loads.validation;
        let before = loads();
        let evicting = db.clone();
        let (outcome, admitted) = commit(&db, old, move |_, _| evict(&evicting));
        outcome.unwrap();
        assert!(loads() - before > 10, "{name}: {} nodes are read", loads() - before);
        assert_eq!(admitted, 2, "{name}: without its latches, then with them");
        assert_eq!(table.get(b"mine").unwrap().unwrap(), b"mine");
    }
}

#[test]
fn a_write_between_the_two_validations_is_a_conflict() {
    for (name, reads) in READS {
        for (at, merged) in [
            ("admitted", false),
            ("admitted", true),
            ("validated without latches", false),
            ("validated without latches", true),
        ] {
            let (db, table, old) = old_transaction(reads);
            let (others, own) = (db.clone(), table.clone());
            let (outcome, _) = commit(&db, old, move |spot, before| {
                if spot == at && before == 1 {
                    own.put(key(500), b"theirs").unwrap();
                    if merged {
                        others.checkpoint().unwrap();
                    }
                }
                evict(&others);
            });
            assert_conflict(outcome);
            assert_eq!(table.get(key(500)).unwrap().unwrap(), b"theirs", "{name}, {at}, merged: {merged}");
        }
    }
}

#[test]
fn a_commit_ends_although_each_of_its_reads_sees_a_merge() {
    for (name, reads) in READS {
        let (db, table, old) = old_transaction(reads);
        let others = db.clone();
        let (outcome, admitted) = commit(&db, old, move |spot, _| {
            if spot == "admitted" {
                merge_another(&others, &table);
            }
        });
        outcome.unwrap();
        assert_eq!(admitted, 4, "{name}: at last it reads under its latches");
    }
}
