//! Keys, values and bounds are of any type that is bytes: the calls here have to compile as users write them.

use crate::common;

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use fulgurite::env::SimEnv;
use fulgurite::{KeyRange, Snapshot, Table, Value};

fn table_of(keys: &[&str]) -> (fulgurite::Database, Table) {
    let db = common::open(SimEnv::new(1)).unwrap();
    let table = db.table("t").unwrap();
    for key in keys {
        table.put(key, key).unwrap();
    }
    (db, table)
}

#[test]
fn keys_and_values_are_anything_that_is_bytes() {
    let (db, table) = table_of(&[]);
    let owned = String::from("owned");
    table.put("text", "1").unwrap();
    table.put(b"bytes", [1, 2, 3]).unwrap();
    table.put(7u64.to_be_bytes(), vec![0; 10]).unwrap();
    table.put(&owned, owned.as_bytes()).unwrap();
    table.put(owned, Cow::Borrowed(b"cow".as_slice())).unwrap();
    let shared: Arc<[u8]> = Arc::from(b"shared".as_slice());
    table.put(&shared, Box::<[u8]>::from(b"boxed".as_slice())).unwrap();
    let value: Value = table.get("text").unwrap().unwrap();
    table.put(&value, &value).unwrap();
    table.delete("text").unwrap();
    assert!(table.insert("bytes", "2").is_err());
    assert!(table.compare_and_swap("bytes", Some(&[1, 2, 3]), None).unwrap());
    let mut txn = db.begin();
    txn.put(&table, format!("row {}", 1), "v").unwrap();
    txn.insert(&table, "new", "v").unwrap();
    assert!(txn.get_for_update(&table, "row 1").unwrap().is_some());
    txn.delete(&table, "row 1").unwrap();
    txn.delete_prefix(&table, "row").unwrap();
    txn.commit().unwrap();
    assert_eq!(db.snapshot().get(&table, "new").unwrap().unwrap(), "v");
    assert_eq!(table.prefix("ne").unwrap().count(), 1);
    assert!(table.try_get(vec![b'n', b'e', b'w']).unwrap().is_some());
}

/// The keys of a range, as a snapshot, a transaction and the table return them.
fn keys(db: &fulgurite::Database, table: &Table, range: impl KeyRange) -> String {
    let text = |entries: fulgurite::Range<'_>| -> String {
        entries.map(|entry| String::from_utf8(entry.unwrap().0.to_vec()).unwrap()).collect()
    };
    let snapshot: Snapshot = db.snapshot();
    let found = text(snapshot.range(table, &range).unwrap());
    assert_eq!(found, text(db.begin().range(table, &range).unwrap()));
    assert_eq!(found, text(table.range(range).unwrap()));
    found
}

#[test]
fn bounds_are_ranges_of_anything_that_is_bytes() {
    let (db, table) = table_of(&["a", "b", "c", "d", "e"]);
    let keys = |range: &dyn Fn() -> Box<dyn KeyRange>| keys(&db, &table, &*range());
    assert_eq!(keys(&|| Box::new(..)), "abcde");
    assert_eq!(keys(&|| Box::new("b".."d")), "bc");
    assert_eq!(keys(&|| Box::new(b"b"..=b"d")), "bcd");
    assert_eq!(keys(&|| Box::new(String::from("c")..)), "cde");
    assert_eq!(keys(&|| Box::new(..vec![b'c'])), "ab");
    assert_eq!(keys(&|| Box::new(..=[b'c'])), "abc");
    assert_eq!(keys(&|| Box::new(b"b".as_slice()..b"cc".as_slice())), "bc");
    assert_eq!(keys(&|| Box::new((Bound::Excluded("b"), Bound::Included("d")))), "cd");
    assert_eq!(keys(&|| Box::new((Bound::Excluded("b"), Bound::Unbounded))), "cde");
    assert_eq!(keys(&|| Box::new("d".."b")), "");
    // The bounds of a next page, without an annotation.
    assert_eq!(table.range((Bound::Excluded("b"), Bound::Unbounded)).unwrap().count(), 3);
}

#[test]
fn ranges_are_deleted_by_anything_that_is_bytes() {
    let (db, table) = table_of(&["a", "b", "c", "d", "e", "f"]);
    table.delete_range("b".."c").unwrap();
    let mut txn = db.begin();
    txn.delete_range(&table, vec![b'e']..).unwrap();
    txn.commit().unwrap();
    assert_eq!(keys(&db, &table, ..), "acd");
    table.delete_prefix(String::from("a")).unwrap();
    assert_eq!(keys(&db, &table, ..), "cd");
    table.delete_range(..).unwrap();
    assert_eq!(keys(&db, &table, ..), "");
}
