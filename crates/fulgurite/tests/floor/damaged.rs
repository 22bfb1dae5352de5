//! A leaf that is damaged on the disk.

use std::path::Path;

use fulgurite::dump::{self, Item};
use fulgurite::env::{Env, OpenOptions, RealEnv};
use fulgurite::{Database, Error, Isolation, Table};

use super::process::{FLOOR, MIB, Scenario, eventually, open, scattered, value};

const ROWS: u64 = 120_000;
const ROW_BYTES: usize = 200;
const ALLOWED: usize = FLOOR + FLOOR / 10 + 8 * MIB;

/// The row whose leaf is damaged.
const LOST: u64 = ROWS / 2;

fn load(db: &Database, name: &str, round: u64) {
    let table = db.table(name).unwrap();
    for first in (0..ROWS).step_by(100) {
        db.transact(|txn| {
            (first..first + 100)
                .try_for_each(|n| txn.put(&table, n.to_be_bytes(), value(n, round, ROW_BYTES)))
        })
        .unwrap();
    }
}

/// Flips a byte of every leaf record of the table `rows` with the row `LOST`; returns how many there are.
fn damage(dir: &Path) -> usize {
    let env = RealEnv::new();
    let key = LOST.to_be_bytes();
    let mut flipped = 0;
    for (_, path) in dump::segment_paths(env.disk(), &dir.join("db")).unwrap() {
        for item in dump::segment(env.disk(), &path).unwrap().items {
            let Item::Node(header, Ok(node)) = item else { continue };
            let is_it = node.level == 0 && node.entries.iter().any(|entry| entry.key == key);
            if is_it && node.table.0 == 1 {
                let file = env.disk().open(&path, OpenOptions::Write).unwrap();
                let at = u64::from(header.lsn.offset()) + 40 + u64::from(header.body_bytes) / 2;
                let mut byte = [0];
                file.read_at(&mut byte, at).unwrap();
                file.write_at(&[byte[0] ^ 0x10], at).unwrap();
                flipped += 1;
            }
        }
    }
    flipped
}

/// The error names the file and the offset.
fn is_about_damage<T>(what: &str, outcome: fulgurite::Result<T>) {
    let Err(error) = outcome else { panic!("{what} succeeds") };
    println!("{what}: {error}");
    let Error::Damaged(damage) = &error else { panic!("{what}: {error:?}") };
    assert!(damage.path.is_some() && damage.offset.is_some(), "{what}: {error}");
    assert!(error.to_string().contains("table"), "{what}: {error}");
}

/// Rows far from the damaged leaf, and another table, are read and written.
fn others_continue(db: &Database, table: &Table, round: u64) {
    let other = db.open_table("other").unwrap();
    for n in (0..ROWS).step_by(50).filter(|n| n.abs_diff(LOST) > 1_000) {
        assert_eq!(table.get(n.to_be_bytes()).unwrap().unwrap(), value(n, 0, ROW_BYTES), "row {n}");
        other.put(n.to_be_bytes(), value(n, round, ROW_BYTES)).unwrap();
        assert_eq!(other.get(n.to_be_bytes()).unwrap().unwrap(), value(n, round, ROW_BYTES));
    }
    let ahead = table.range((LOST + 1_000).to_be_bytes()..=(LOST + 11_000).to_be_bytes()).unwrap();
    assert_eq!(ahead.map(Result::unwrap).count(), 10_001);
}

fn memory_is_given_back(db: &Database) {
    let is_back = || {
        let memory = db.stats().memory;
        memory.lent_bytes < MIB as u64
            && memory.transaction_bytes == 0
            && memory.total_bytes() <= FLOOR as u64
    };
    assert!(eventually(is_back), "{:?}", db.stats().memory);
}

#[test]
fn a_damaged_leaf_fails_what_needs_it_and_nothing_else() {
    let scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    load(&db, "rows", 0);
    load(&db, "other", 0);
    db.close().unwrap();
    assert!(damage(dir.path()) > 0);

    let db = open(dir.path());
    let table = db.open_table("rows").unwrap();
    scenario.step("reads of a damaged leaf", &db, ALLOWED, || {
        for _ in 0..200 {
            assert!(table.get(LOST.to_be_bytes()).is_err());
            assert!(table.range((LOST - 500).to_be_bytes()..).unwrap().any(|entry| entry.is_err()));
            assert!(table.range(..).unwrap().rev().take(200).all(|entry| entry.is_ok()));
        }
        is_about_damage("a get", table.get(LOST.to_be_bytes()));
        is_about_damage("a scan", table.range(..).unwrap().find(Result::is_err).unwrap());
        is_about_damage("a scan back", table.range(..).unwrap().rev().find(Result::is_err).unwrap());
        let mut txn = db.begin_with(Isolation::Serializable);
        is_about_damage("a get of a transaction", txn.get(&table, LOST.to_be_bytes()));
        txn.put(&table, [9; 9], "1").unwrap();
        others_continue(&db, &table, 1);
    });
    memory_is_given_back(&db);

    scenario.step("merges into a damaged leaf", &db, ALLOWED + 4 * MIB, || {
        // Whatever is not damaged is put until the memtables of the table are full.
        let mut put = 0;
        let refused = loop {
            let key = if put == 0 { LOST.to_be_bytes() } else { scattered(put) };
            match table.put(key, value(put, 9, 1_000)) {
                Ok(_) => put += 1,
                Err(error) => break error,
            }
            assert!(put < 100_000, "a table that cannot be merged takes puts without an end");
        };
        println!("refused after {put} puts");
        is_about_damage("a put", Err::<(), _>(refused));
        assert_eq!(table.get(LOST.to_be_bytes()).unwrap().unwrap(), value(0, 9, 1_000));
        let error = db.stats().maintenance_error.expect("merges fail");
        assert!(error.what.contains("damaged") || error.what.contains(".seg"), "{error:?}");
        load(&db, "other", 3);
        others_continue(&db, &table, 4);
    });
    memory_is_given_back(&db);
    drop(table);
    println!("closed: {:?}", db.close().map_err(|error| error.to_string()));
    assert!(scenario.allocated() < 2 * MIB, "{} bytes are left", scenario.allocated());
}

/// The leaf was read, evicted and damaged before the transaction commits.
#[test]
fn a_leaf_that_is_damaged_before_a_validation_needs_it() {
    let scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    load(&db, "rows", 0);
    load(&db, "other", 0);
    db.checkpoint().unwrap();
    let table = db.open_table("rows").unwrap();
    let begin = |by_key: bool| {
        let mut txn = db.begin_with(Isolation::Serializable);
        if by_key {
            assert!(txn.get(&table, LOST.to_be_bytes()).unwrap().is_some());
        } else {
            let range = (LOST - 300).to_be_bytes()..(LOST + 300).to_be_bytes();
            assert_eq!(txn.range(&table, range).unwrap().map(Result::unwrap).count(), 600);
        }
        txn.put(&table, [0xFF; 9], "1").unwrap();
        txn
    };
    let (key, range) = (begin(true), begin(false));
    // Merged, so that the memtables since then are gone, and enough that the leaf is evicted.
    scenario.step("the leaf is evicted", &db, ALLOWED, || {
        (0..50_000)
            .for_each(|n| _ = table.put([[0xFF; 8], scattered(n)].concat(), value(n, 1, 100)).unwrap());
        load(&db, "other", 1);
        db.checkpoint().unwrap();
        let other = db.open_table("other").unwrap();
        (0..2).for_each(|_| assert_eq!(other.range(..).unwrap().map(Result::unwrap).count() as u64, ROWS));
    });
    assert!(damage(dir.path()) > 0);
    scenario.step("validations", &db, ALLOWED, || {
        is_about_damage("a validation of a key", key.commit());
        is_about_damage("a validation of a range", range.commit());
        others_continue(&db, &table, 2);
    });
    memory_is_given_back(&db);
}
