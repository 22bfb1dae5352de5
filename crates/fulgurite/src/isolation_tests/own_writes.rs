//! A transaction sees its own writes, merged with its snapshot.

use super::support::*;
use crate::{Table, Transaction};

fn both_ways(txn: &Transaction, table: &Table, expected: &[(&str, &str)]) {
    assert_eq!(rows(txn.range(table, ..).unwrap()), pairs(expected));
    let mut backward = rows(txn.range(table, ..).unwrap().rev());
    backward.reverse();
    assert_eq!(backward, pairs(expected));
    let with_prefix: Vec<_> = expected.iter().copied().filter(|(key, _)| key.starts_with('b')).collect();
    assert_eq!(rows(txn.prefix(table, b"b").unwrap()), pairs(&with_prefix));
    let mut backward = rows(txn.prefix(table, b"b").unwrap().rev());
    backward.reverse();
    assert_eq!(backward, pairs(&with_prefix));
    for key in ["a", "b", "b1", "b2", "b3", "c"] {
        let value = expected.iter().find(|(own, _)| *own == key).map(|(_, value)| value.to_string());
        assert_eq!(txn.read(table, key.as_bytes()), value, "{key}");
    }
}

#[test]
fn own_writes_are_seen_in_every_way_of_reading() {
    for fold in [false, true] {
        let (db, table) = one_table();
        for key in ["a", "b1", "b3", "c"] {
            table.put(key.as_bytes(), b"old").unwrap();
        }
        if fold {
            db.checkpoint().unwrap();
        }
        let mut txn = db.begin();
        table.put(b"b2", b"later").unwrap();
        both_ways(&txn, &table, &[("a", "old"), ("b1", "old"), ("b3", "old"), ("c", "old")]);
        txn.put(&table, b"b1", b"new").unwrap();
        txn.put(&table, b"b2", b"new").unwrap();
        txn.delete(&table, b"b3").unwrap();
        both_ways(&txn, &table, &[("a", "old"), ("b1", "new"), ("b2", "new"), ("c", "old")]);
        let savepoint = txn.savepoint();
        txn.delete_range(&table, b"b".as_slice()..).unwrap();
        txn.put(&table, b"b", b"newest").unwrap();
        both_ways(&txn, &table, &[("a", "old"), ("b", "newest")]);
        let inner = txn.savepoint();
        txn.put(&table, b"b3", b"inner").unwrap();
        txn.delete(&table, b"a").unwrap();
        both_ways(&txn, &table, &[("b", "newest"), ("b3", "inner")]);
        txn.rollback_to(inner).unwrap();
        both_ways(&txn, &table, &[("a", "old"), ("b", "newest")]);
        txn.rollback_to(savepoint).unwrap();
        both_ways(&txn, &table, &[("a", "old"), ("b1", "new"), ("b2", "new"), ("c", "old")]);
        assert!(txn.rollback_to(inner).is_err());
    }
}

/// Reads borrow the transaction's notes only for a moment.
#[test]
fn reads_nest() {
    let (db, table) = one_table();
    table.put(b"a", b"1").unwrap();
    table.put(b"b", b"2").unwrap();
    let txn = db.begin_with(crate::Isolation::Serializable);
    for entry in txn.range(&table, ..).unwrap() {
        let (key, value) = entry.unwrap();
        assert_eq!(txn.get(&table, &key).unwrap().unwrap(), value);
        assert_eq!(txn.get_for_update(&table, &key).unwrap().unwrap(), value);
        assert_eq!(txn.range(&table, key.as_ref()..=&key).unwrap().count(), 1);
    }
    txn.commit().unwrap();
}
