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
    for merge in [false, true] {
        let (db, table) = one_table();
        for key in ["a", "b1", "b3", "c"] {
            table.put(key.as_bytes(), b"old").unwrap();
        }
        if merge {
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

/// Reads borrow the transaction's read set only for a moment.
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

/// The shortest of several times that a transaction takes to scan a table, forward or backward, and how many rows it
/// sees.
#[expect(clippy::disallowed_methods, reason = "a time is what this is about")]
fn time_of_scan(txn: &Transaction, table: &Table, backward: bool) -> (std::time::Duration, usize) {
    let scan = |_| {
        let before = std::time::Instant::now();
        let (mut range, mut rows) = (txn.range(table, ..).unwrap(), 0);
        while if backward { range.next_entry_back() } else { range.next_entry() }.unwrap().is_some() {
            rows += 1;
        }
        (before.elapsed(), rows)
    };
    (0..20).map(scan).min().unwrap()
}

/// A scan once stepped over each row of a range that its transaction had deleted, and searched all such ranges for each
/// row that it met.
#[test]
fn ranges_that_a_transaction_deletes_cost_its_scans_little() {
    const ROWS: u32 = 20_000;
    let (db, table) = one_table();
    db.transact(|txn| (0..ROWS).try_for_each(|n| txn.put(&table, n.to_be_bytes(), [7; 10]))).unwrap();
    let txn = db.begin();
    let all = [false, true].map(|backward| time_of_scan(&txn, &table, backward));
    assert!(all.iter().all(|(_, rows)| *rows == ROWS as usize));
    // One range with all rows but three.
    let mut txn = db.begin();
    txn.delete_range(&table, 2u32.to_be_bytes()..(ROWS - 1).to_be_bytes()).unwrap();
    for (backward, (all, _)) in [false, true].into_iter().zip(all) {
        let (time, rows) = time_of_scan(&txn, &table, backward);
        assert_eq!(rows, 3);
        assert!(time < all / 20, "{time:?} for three rows, {all:?} for all, backward: {backward}");
    }
    txn.delete_range(&table, 2u32.to_be_bytes()..).unwrap();
    assert!([false, true].iter().all(|&backward| time_of_scan(&txn, &table, backward).1 == 2));
    // A range for every tenth row.
    let mut txn = db.begin();
    for n in (0..ROWS).step_by(10) {
        txn.delete_range(&table, n.to_be_bytes()..=n.to_be_bytes()).unwrap();
    }
    for (backward, (all, _)) in [false, true].into_iter().zip(all) {
        let (time, rows) = time_of_scan(&txn, &table, backward);
        assert_eq!(rows, ROWS as usize * 9 / 10);
        assert!(time < all * 20, "{time:?} with 2,000 ranges, {all:?} without, backward: {backward}");
    }
}

/// Puts, deletes and range deletes of one transaction, with savepoints, against a map.
#[test]
fn own_range_deletes_hide_what_they_cover_until_they_are_undone() {
    let (db, table) = one_table();
    let mut seed = 1u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for round in 0..60 {
        let mut txn = db.begin();
        let mut map: std::collections::BTreeMap<[u8; 8], u64> = rows(txn.range(&table, ..).unwrap())
            .into_iter()
            .map(|(key, value)| (key.as_bytes().try_into().unwrap(), value.parse().unwrap()))
            .collect();
        let mut saved = Vec::new();
        for step in 0..60 {
            let key = |n: u64| -> [u8; 8] { format!("{n:08}").as_bytes().try_into().unwrap() };
            let (from, len) = (below(300), 1 + below(40));
            match below(8) {
                0 => {
                    txn.delete_range(&table, key(from)..key(from + len)).unwrap();
                    map.retain(|own, _| !(key(from)..key(from + len)).contains(own));
                }
                1 if below(8) == 0 => {
                    txn.delete_range(&table, key(from)..).unwrap();
                    map.split_off(&key(from));
                }
                2 => saved.push((txn.savepoint(), map.clone())),
                3 if !saved.is_empty() => {
                    saved.truncate(1 + below(saved.len() as u64) as usize);
                    let (savepoint, before) = saved.last().unwrap();
                    txn.rollback_to(*savepoint).unwrap();
                    map.clone_from(before);
                }
                4 => {
                    txn.delete(&table, key(from)).unwrap();
                    map.remove(&key(from));
                }
                _ => {
                    for n in from..from + len {
                        txn.put(&table, key(n), step.to_string()).unwrap();
                        map.insert(key(n), step);
                    }
                }
            }
            let seen = |entry: crate::Result<(crate::Value, crate::Value)>| {
                let (key, value) = entry.unwrap();
                (key.to_vec(), value.to_vec())
            };
            let range = key(from)..key(from + 100);
            let expected: Vec<_> = map
                .range(range.clone())
                .map(|(key, value)| (key.to_vec(), value.to_string().into_bytes()))
                .collect();
            let forward: Vec<_> = txn.range(&table, range.clone()).unwrap().map(seen).collect();
            assert_eq!(forward, expected, "round {round}, step {step}");
            let mut backward: Vec<_> = txn.range(&table, range.clone()).unwrap().rev().map(seen).collect();
            backward.reverse();
            assert_eq!(backward, expected, "round {round}, step {step}");
            // From both ends, until they meet.
            let (mut both, mut head, mut tail) = (txn.range(&table, range).unwrap(), Vec::new(), Vec::new());
            while let Some(entry) = both.next() {
                head.push(seen(entry));
                tail.extend(both.next_back().map(seen));
            }
            head.extend(tail.into_iter().rev());
            assert_eq!(head, expected, "round {round}, step {step}");
            let found = txn.get(&table, key(from)).unwrap().map(|value| value.to_vec());
            assert_eq!(found, map.get(&key(from)).map(|value| value.to_string().into_bytes()));
        }
        if round % 3 > 0 {
            txn.commit().unwrap();
            assert_eq!(rows(table.range(..).unwrap()).len(), map.len());
        }
        if round % 7 == 0 {
            db.checkpoint().unwrap();
        }
    }
}
