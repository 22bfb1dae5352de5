//! The estimate of a table's number of keys.

use crate::common;

use fulgurite::env::sim::SimEnv;
use fulgurite::{Database, Options, Table};

fn open(sim: &std::sync::Arc<SimEnv>, memtable_bytes_max: usize) -> Database {
    let options = Options { memtable_bytes_max: Some(memtable_bytes_max), ..common::options() };
    Database::open_with(sim.clone(), common::PATH, options, |_| {}).unwrap()
}

fn write(db: &Database, table: &Table, keys: impl Iterator<Item = u32>, value: Option<&[u8]>) {
    let mut txn = db.begin();
    for key in keys {
        match value {
            Some(value) => txn.put(table, key.wrapping_mul(0x9e37_79b1).to_be_bytes(), value).unwrap(),
            None => txn.delete(table, key.wrapping_mul(0x9e37_79b1).to_be_bytes()).unwrap(),
        }
    }
    txn.commit().unwrap();
}

#[track_caller]
fn about(table: &Table, what: &str) {
    let (exact, estimate) = (table.range(..).unwrap().count() as f64, table.len_estimate() as f64);
    let (low, high) = (exact * 0.85 - 3.0, exact * 1.15 + 3.0);
    assert!(low <= estimate && estimate <= high, "{what}: {estimate} for {exact}");
}

/// Keys that were overwritten many times, deleted, deleted with ranges, merged and not merged, after opening too.
#[test]
fn the_estimate_of_a_tables_keys_is_about_right() {
    for memtable_bytes_max in [64 << 10, 64 << 20] {
        let sim = SimEnv::new(1);
        let mut db = open(&sim, memtable_bytes_max);
        let mut table = db.table("t").unwrap();
        for reopened in [false, true] {
            let say = |what: &str| format!("{what}, memtables of {memtable_bytes_max}, reopened {reopened}");
            about(&table, &say("at first"));
            for round in 0..9u8 {
                write(&db, &table, 0..3000, Some(&[round; 20]));
                about(&table, &say("overwritten"));
                while db.maintain().unwrap() {}
            }
            write(&db, &table, (0..3000).step_by(3), None);
            about(&table, &say("a third deleted"));
            write(&db, &table, 3000..12_000, Some(b"new"));
            about(&table, &say("new ones"));
            table.delete_range([0x40].as_slice()..[0xa0].as_slice()).unwrap();
            about(&table, &say("a range deleted"));
            write(&db, &table, 5000..6000, Some(b"again"));
            about(&table, &say("some again"));
            db.checkpoint().unwrap();
            about(&table, &say("after a checkpoint"));
            table.delete_range(..).unwrap();
            about(&table, &say("all deleted"));
            write(&db, &table, 0..500, Some(b"anew"));
            about(&table, &say("some anew"));
            db.checkpoint().unwrap();
            about(&table, &say("after another checkpoint"));
            drop(table);
            db.close().unwrap();
            db = open(&sim, memtable_bytes_max);
            table = db.table("t").unwrap();
        }
    }
}
