//! Range deletes against everything else.

use super::support::*;
use crate::{Isolation, Table, Transaction};

const ALL: std::ops::RangeFull = ..;

fn filled() -> (crate::Database, Table) {
    let (db, table) = one_table();
    for key in ["a", "m", "z"] {
        table.put(key.as_bytes(), b"0").unwrap();
    }
    (db, table)
}

fn delete_middle(table: &Table) {
    table.delete_range(b"b".as_slice()..b"y").unwrap();
}

#[test]
fn a_range_delete_conflicts_with_readers_of_a_key_inside() {
    for level in LEVELS {
        let (db, table) = filled();
        let mut inside = db.begin_with(level);
        assert_eq!(inside.read(&table, b"m"), Some("0".into()));
        inside.put(&table, b"m", b"1").unwrap();
        let mut absent = db.begin_with(level);
        assert_eq!(absent.read(&table, b"n"), None);
        absent.put(&table, b"n", b"1").unwrap();
        let mut outside = db.begin_with(level);
        assert_eq!(outside.read(&table, b"a"), Some("0".into()));
        outside.put(&table, b"a", b"1").unwrap();
        delete_middle(&table);
        assert_conflict(inside.commit());
        assert_conflict(absent.commit());
        outside.commit().unwrap();
        assert_eq!(rows(table.range(ALL).unwrap()), pairs(&[("a", "1"), ("z", "0")]));
    }
}

#[test]
fn a_range_delete_conflicts_with_a_serializable_scan_that_it_meets() {
    let (db, table) = filled();
    let scan = |start: &'static [u8], end: &'static [u8]| {
        let mut txn = db.begin_with(Isolation::Serializable);
        rows(txn.range(&table, start..end).unwrap());
        txn.put(&table, b"result", b"v").unwrap();
        txn
    };
    let (meets, ends_before, begins_behind) = (scan(b"a", b"c"), scan(b"a", b"b"), scan(b"y", b"zz"));
    delete_middle(&table);
    assert_conflict(meets.commit());
    ends_before.commit().unwrap();
    begins_behind.commit().unwrap();
}

#[test]
fn range_deletes_and_blind_puts_take_their_turns() {
    for level in LEVELS {
        for delete_first in [true, false] {
            let (db, table) = filled();
            let mut put = db.begin_with(level);
            put.put(&table, b"m", b"blind").unwrap();
            let mut delete = db.begin_with(level);
            delete.delete_range(&table, b"b".as_slice()..b"y").unwrap();
            let (first, second): (Transaction, Transaction) =
                if delete_first { (delete, put) } else { (put, delete) };
            first.commit().unwrap();
            second.commit().unwrap();
            let survives = delete_first.then(|| b"blind".to_vec());
            assert_eq!(table.get(b"m").unwrap().map(|value| value.to_vec()), survives);
        }
    }
}

/// A key that was read, and then deleted with a range, counts as read and written: the first committer wins.
#[test]
fn deleting_a_range_that_was_read_loses_no_update() {
    type Read = fn(&Transaction, &Table);
    let reads: [Read; 3] = [
        |txn, table| drop(txn.read(table, b"m")),
        |txn, table| drop(rows(txn.range(table, b"l".as_slice()..b"p").unwrap())),
        |txn, table| drop(rows(txn.range(table, ALL).unwrap())),
    ];
    for level in LEVELS {
        for read in reads {
            let (db, table) = filled();
            let mut txn = db.begin_with(level);
            read(&txn, &table);
            txn.delete_range(&table, b"b".as_slice()..b"y").unwrap();
            table.put(b"m", b"updated").unwrap();
            assert_conflict(txn.commit());
            assert_eq!(table.get(b"m").unwrap().unwrap(), b"updated");
        }
    }
}

#[test]
fn a_range_delete_apart_from_what_was_read_is_blind() {
    let (db, table) = filled();
    let mut txn = db.begin();
    assert_eq!(txn.read(&table, b"a"), Some("0".into()));
    rows(txn.range(&table, b"x".as_slice()..b"zz").unwrap());
    txn.delete_range(&table, b"b".as_slice()..b"n").unwrap();
    table.put(b"m", b"updated").unwrap();
    table.put(b"a", b"updated").unwrap();
    table.put(b"z", b"updated").unwrap();
    txn.commit().unwrap();
    assert_eq!(rows(table.range(ALL).unwrap()), pairs(&[("a", "updated"), ("z", "updated")]));
}
