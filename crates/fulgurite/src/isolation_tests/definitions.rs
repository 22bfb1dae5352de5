//! Tables that are created, dropped and renamed while transactions run.

use fulgurite_env::sim::SimEnv;

use super::support::*;
use crate::{Error, Isolation, Options};

#[test]
fn a_writer_of_a_dropped_table_gets_an_error() {
    for level in LEVELS {
        let db = database();
        let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
        let mut txn = db.begin_with(level);
        txn.put(&one, b"k", b"v").unwrap();
        txn.put(&two, b"k", b"v").unwrap();
        db.drop_table("one").unwrap();
        assert!(matches!(txn.commit(), Err(Error::TableDropped { .. })));
        assert!(two.get(b"k").unwrap().is_none(), "nothing of it happened");
    }
}

/// A serializable transaction is as if it ran at its commit: then the table that it read was gone.
#[test]
fn a_serializable_reader_of_a_dropped_table_gets_an_error() {
    let db = database();
    let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
    one.put(b"k", b"v").unwrap();
    let mut by_key = db.begin_with(Isolation::Serializable);
    assert_eq!(by_key.read(&one, b"k"), Some("v".into()));
    by_key.put(&two, b"a", b"v").unwrap();
    let mut by_range = db.begin_with(Isolation::Serializable);
    assert_eq!(rows(by_range.range(&one, ..).unwrap()).len(), 1);
    by_range.put(&two, b"b", b"v").unwrap();
    let mut snapshot = db.begin_with(Isolation::Snapshot);
    assert_eq!(snapshot.read(&one, b"k"), Some("v".into()));
    snapshot.put(&two, b"c", b"v").unwrap();
    db.drop_table("one").unwrap();
    assert!(matches!(by_key.commit(), Err(Error::TableDropped { .. })));
    assert!(matches!(by_range.commit(), Err(Error::TableDropped { .. })));
    snapshot.commit().unwrap();
    assert_eq!(rows(two.range(..).unwrap()), pairs(&[("c", "v")]));
}

#[test]
fn a_drop_waits_for_committers_that_have_validated() {
    let (db, table) = one_table();
    let meeting = hold_first_at(&db, "validated");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| table.put(b"k", b"v"));
        meeting.wait_for(1);
        let drop = scope.spawn(|| db.drop_table("t"));
        let snapshot = db.snapshot();
        meeting.open();
        let written = writer.join().unwrap().unwrap();
        drop.join().unwrap().unwrap();
        assert_eq!(snapshot.read(&table, b"k"), None);
        assert!(written.csn < db.snapshot().csn());
    });
    assert!(matches!(table.put(b"k", b"v"), Err(Error::TableDropped { .. })));
}

#[test]
fn a_rename_disturbs_no_transaction() {
    let (db, table) = one_table();
    table.put(b"k", b"0").unwrap();
    let mut txn = db.begin_with(Isolation::Serializable);
    assert_eq!(txn.read(&table, b"k"), Some("0".into()));
    txn.put(&table, b"k", b"1").unwrap();
    let snapshot = db.snapshot();
    db.rename_table("t", "u").unwrap();
    assert_eq!(snapshot.read(&table, b"k"), Some("0".into()));
    txn.commit().unwrap();
    assert_eq!(db.open_table("u").unwrap().get(b"k").unwrap().unwrap(), b"1");
    let again = db.create_table("t").unwrap();
    assert!(again.get(b"k").unwrap().is_none());
}

#[test]
fn tables_that_are_made_at_once_are_one() {
    let db = database();
    let tables = at_once((0..4).map(|_| || db.table("t").unwrap()));
    for (n, table) in tables.iter().enumerate() {
        table.put(&[b'a' + n as u8], b"v").unwrap();
    }
    assert_eq!(rows(tables[0].range(..).unwrap()).len(), 4);
    assert_eq!(db.tables().unwrap().len(), 1);
}

/// Old snapshots and transactions still read a table that was dropped, merged and purged.
#[test]
fn a_dropped_table_stays_for_snapshots_that_see_it() {
    let (db, table) = one_table();
    table.put(b"k", b"v").unwrap();
    db.checkpoint().unwrap();
    let snapshot = db.snapshot();
    let txn = db.begin();
    db.drop_table("t").unwrap();
    for _ in 0..3 {
        db.checkpoint().unwrap();
        assert_eq!(snapshot.read(&table, b"k"), Some("v".into()));
        assert_eq!(txn.read(&table, b"k"), Some("v".into()));
    }
    assert!(matches!(db.begin().get(&table, b"k"), Err(Error::TableDropped { .. })));
    assert!(matches!(db.snapshot().get(&table, b"k"), Err(Error::TableDropped { .. })));
}

/// A handle of a dropped table keeps its tree in memory; what is dirty in it will not be written.
#[test]
fn the_dirty_nodes_of_a_dropped_table_are_forgotten_once_no_snapshot_sees_it() {
    let db = open(&SimEnv::new(1), Options { background: false, ..Options::default() });
    let table = db.table("t").unwrap();
    for n in 0..1_000u32 {
        table.put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    let engine = db.engine();
    engine.log.at_reserved(|csn| table.state.index.freeze(csn));
    while engine.merge_all().unwrap() {}
    assert!(db.stats().dirty_bytes > 100_000, "{}", db.stats().dirty_bytes);
    db.drop_table("t").unwrap();
    db.checkpoint().unwrap();
    assert_eq!(db.stats().dirty_bytes, 0);
    drop(table);
    db.checkpoint().unwrap();
    assert_eq!(db.stats().dirty_bytes, 0);
}
