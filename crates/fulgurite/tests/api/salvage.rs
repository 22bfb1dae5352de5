//! A scan of a damaged table returns all keys that can be read, and names the other ranges.

use crate::common;

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::rng::Rng;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, LeftOut, Salvaged};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Short values in the leaves, and every tenth one outside its leaf.
fn rows() -> Rows {
    let value = |row: u32| vec![row as u8; if row.is_multiple_of(10) { 3000 } else { 40 }];
    (0..600).map(|row| (format!("key{row:04}").into_bytes(), value(row))).collect()
}

/// A closed database with these rows in many leaves.
fn stored(rows: &Rows) -> Arc<SimEnv> {
    let sim = SimEnv::new(1);
    let db = common::open(sim.clone()).unwrap();
    let table = db.table("t").unwrap();
    db.transact(|txn| rows.iter().try_for_each(|(key, value)| txn.put(&table, key, value))).unwrap();
    drop(table);
    db.close().unwrap();
    sim.crash(CrashKind::Kill, 0)
}

fn salvage(db: &Database) -> (Rows, Vec<LeftOut>) {
    let table = db.open_table("t").unwrap();
    let (mut found, mut left_out) = (Rows::new(), Vec::new());
    for item in db.snapshot().salvage(&table, ..).unwrap() {
        match item.unwrap() {
            Salvaged::Entry { key, value, expires_at } => {
                assert_eq!(expires_at, None);
                assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "{key:?} came twice");
            }
            Salvaged::LeftOut(range) => left_out.push(range),
        }
    }
    (found, left_out)
}

fn is_left_out(ranges: &[LeftOut], key: &Vec<u8>) -> bool {
    ranges.iter().any(|range| range.keys.contains(key))
}

fn used_offsets(sim: &SimEnv) -> Vec<(PathBuf, u64)> {
    let segments =
        sim.list_raw().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "seg"));
    segments
        .flat_map(|(path, _)| {
            let bytes = sim.read_raw(&path).unwrap();
            let used = (4096..bytes.len()).step_by(256).filter(|at| bytes[*at] != 0);
            used.map(|at| (path.clone(), at as u64)).collect::<Vec<_>>()
        })
        .collect()
}

/// One bad leaf made a whole table unreadable.
#[test]
fn one_bad_leaf_does_not_take_the_rest_of_the_table() {
    let rows = rows();
    let sim = stored(&rows);
    let (mut stopped, mut values) = (0, 0);
    for (path, offset) in used_offsets(&sim) {
        let damaged = sim.crash(CrashKind::Kill, 0);
        damaged.corrupt(&path, offset, |byte| *byte ^= 4).unwrap();
        // Damage to the catalog or the checkpoint is another matter.
        let Ok(db) = common::open(damaged.clone()) else { continue };
        let Ok(table) = db.open_table("t") else { continue };
        let plain: Result<Vec<_>, _> = table.range(..).unwrap().collect();
        let (found, left_out) = salvage(&db);
        assert_eq!(plain.is_err(), !left_out.is_empty(), "{} at {offset}", path.display());
        for (key, value) in &rows {
            match found.get(key) {
                Some(found) => assert_eq!(found, value),
                None => assert!(is_left_out(&left_out, key), "{key:?} is missing and no range names it"),
            }
        }
        let is_one_key =
            |range: &LeftOut| matches!(&range.keys, (Bound::Included(a), Bound::Included(b)) if a == b);
        let whole = left_out.iter().any(|range| matches!(range.keys.1, Bound::Unbounded) && found.is_empty());
        assert!(left_out.len() <= 1, "one damage is one range: {left_out:?}");
        assert!(whole || found.len() + 100 >= rows.len() || left_out.is_empty(), "{left_out:?}");
        stopped += usize::from(plain.is_err() && !whole);
        values += left_out.iter().filter(|range| is_one_key(range)).count();
    }
    assert!(stopped > 50 && values > 20, "{stopped} damages were passed over, {values} of values");
}

/// Versions newer than the bad leaf are not lost with it; each range is named once, within the requested one.
#[test]
fn versions_written_after_the_damage_are_returned() {
    let rows = rows();
    let sim = stored(&rows);
    let mut rng = Rng::new(7);
    let offsets = used_offsets(&sim);
    let mut tried = 0;
    while tried < 20 {
        let damaged = sim.crash(CrashKind::Kill, 0);
        for _ in 0..6 {
            let (path, offset) = &offsets[rng.below(offsets.len() as u64) as usize];
            damaged.corrupt(path, *offset, |byte| *byte ^= 4).unwrap();
        }
        let Ok(db) = common::open(damaged.clone()) else { continue };
        let Ok(table) = db.open_table("t") else { continue };
        let mut expected = rows.clone();
        for row in (0..600).step_by(7) {
            let key = format!("key{row:04}").into_bytes();
            table.put(&key, b"new").unwrap();
            expected.insert(key, b"new".to_vec());
        }
        let (found, left_out) = salvage(&db);
        for (key, value) in &expected {
            match found.get(key) {
                Some(found) => assert_eq!(found, value),
                None => assert!(value != b"new" && is_left_out(&left_out, key), "{key:?} is missing"),
            }
        }
        for pair in left_out.windows(2) {
            assert_ne!(pair[0].keys, pair[1].keys);
        }
        let (from, to) = (b"key0100".as_slice(), b"key0200".as_slice());
        for item in db.snapshot().salvage(&table, from..to).unwrap() {
            if let Salvaged::LeftOut(LeftOut { keys: (Bound::Included(start), end), .. }) = item.unwrap() {
                assert!(*start >= *from);
                assert!(matches!(end, Bound::Included(end) | Bound::Excluded(end) if *end <= *to));
            }
        }
        tried += usize::from(!left_out.is_empty());
    }
}

/// The scan ends before the damage; the transaction deletes a range that contains it.
#[test]
fn a_transaction_that_deletes_a_range_with_damage_scans_what_comes_before_it() {
    let rows = rows();
    let sim = stored(&rows);
    let mut tried = 0;
    for (path, offset) in used_offsets(&sim) {
        let damaged = sim.crash(CrashKind::Kill, 0);
        damaged.corrupt(&path, offset, |byte| *byte ^= 4).unwrap();
        let Ok(db) = common::open(damaged.clone()) else { continue };
        let Ok(table) = db.open_table("t") else { continue };
        let mut txn = db.begin();
        let keys = |txn: &fulgurite::Transaction, backward: bool| {
            let range = if backward { "key0480".."key0495" } else { "key0000".."key0015" };
            let mut range = txn.range(&table, range)?;
            let mut rows = 0;
            while if backward { range.next_entry_back() } else { range.next_entry() }?.is_some() {
                rows += 1;
            }
            Ok::<usize, fulgurite::Error>(rows)
        };
        let without = [false, true].map(|backward| keys(&txn, backward).ok());
        txn.delete_range(&table, "key0010".."key0485").unwrap();
        for (backward, without) in [false, true].into_iter().zip(without) {
            if without.is_some() {
                tried += 1;
                assert_eq!(keys(&txn, backward).unwrap(), 10, "damage at {offset} of {}", path.display());
            }
        }
    }
    assert!(tried > 10, "only {tried} scans could be read before the delete");
}
