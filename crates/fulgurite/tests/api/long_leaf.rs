//! One key under so many snapshots that its leaf is longer than the largest segment of the log.

use crate::common;

use std::sync::Arc;

use fulgurite::env::SimEnv;
use fulgurite::env::sim::CrashKind;
use fulgurite::{Database, Options};

const VALUE_BYTES: usize = 32 * 1024;
const SNAPSHOTS: u32 = 2_200;

/// Values of this size stay in their leaf.
fn options() -> Options {
    Options {
        leaf_bytes: 2 * VALUE_BYTES,
        inline_bytes_max: VALUE_BYTES,
        memtable_bytes_max: Some(256 << 20),
        checkpoint_log_bytes: 1 << 30,
        transaction_bytes_max: 2 << 20,
        background: false,
        ..Options::default()
    }
}

fn open(env: &Arc<SimEnv>) -> Database {
    common::open_as(env.clone(), options()).unwrap()
}

fn value(version: u32) -> Vec<u8> {
    let mut value = vec![version as u8; VALUE_BYTES];
    value[..4].copy_from_slice(&version.to_le_bytes());
    value
}

#[test]
fn a_leaf_longer_than_the_largest_segment_is_written_and_read_again() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.table("t").unwrap();
    table.put(b"a", b"before").unwrap();
    table.put(b"z", b"after").unwrap();
    let mut snapshots = Vec::new();
    for version in 0..SNAPSHOTS {
        table.put(b"hot", value(version)).unwrap();
        snapshots.push(db.snapshot());
    }
    db.checkpoint().unwrap();
    assert!(longest_file(&env) > 64 << 20, "the leaf is in one record");
    check(&db);

    // Once more, with another version, beside short nodes.
    table.put(b"hot", value(SNAPSHOTS)).unwrap();
    db.checkpoint().unwrap();
    for (version, snapshot) in snapshots.iter().enumerate() {
        let found = snapshot.get(&table, b"hot").unwrap().expect("it was there");
        assert!(*found == *value(version as u32), "version {version}");
    }

    // A crash: the snapshots are gone, and the leaf is read from its record, and pruned.
    let env = env.crash(CrashKind::PowerCut, 1);
    std::mem::forget((snapshots, table, db));
    let db = open(&env);
    let table = db.table("t").unwrap();
    check(&db);
    assert!(*table.get(b"hot").unwrap().unwrap() == *value(SNAPSHOTS));
    table.put(b"hot", b"short").unwrap();
    for _ in 0..3 {
        table.put(b"b", b"more").unwrap();
        db.checkpoint().unwrap();
    }
    while db.maintain().unwrap() {}
    assert_eq!(&*table.get(b"a").unwrap().unwrap(), b"before");
    assert_eq!(&*table.get(b"z").unwrap().unwrap(), b"after");
    assert!(longest_file(&env) <= 64 << 20, "its segments were freed");
    db.close().unwrap();
}

fn check(db: &Database) {
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

fn longest_file(env: &SimEnv) -> u64 {
    env.list_raw().into_iter().map(|(_, bytes)| bytes).max().unwrap()
}
