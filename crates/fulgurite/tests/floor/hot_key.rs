//! A key with more versions, all of which snapshots need, than are usual for a table.

use fulgurite::{Database, Snapshot, Table};

use super::process::{FLOOR, MIB, Scenario, eventually, is_sound, open, value};

const VERSIONS: u64 = 10_000;

fn hot_key(what: &str, value_bytes: usize, allowed: usize) {
    let scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("rows").unwrap();
    let others =
        |round| (0..2_000u64).for_each(|n| _ = table.put(n.to_be_bytes(), value(n, round, 100)).unwrap());
    others(0);
    db.checkpoint().unwrap();
    let snapshots: Vec<Snapshot> =
        scenario.step(&format!("{what}: overwritten under snapshots"), &db, allowed, || {
            let snapshots = (0..VERSIONS).map(|version| {
                table.put("hot", value(version, 0, value_bytes)).unwrap();
                db.snapshot()
            });
            snapshots.collect()
        });
    scenario.step(&format!("{what}: merged and written"), &db, allowed, || {
        others(1);
        db.checkpoint().unwrap();
    });
    let read = |step: usize| {
        for (version, snapshot) in snapshots.iter().enumerate().rev().step_by(step) {
            let found = snapshot.get(&table, "hot").unwrap().unwrap();
            assert!(found == value(version as u64, 0, value_bytes), "version {version}");
        }
    };
    scenario.step(&format!("{what}: each snapshot reads"), &db, allowed, || read(1));
    table.put("hot", "last").unwrap();
    scenario.step(&format!("{what}: and again after another checkpoint"), &db, allowed, || {
        db.checkpoint().unwrap();
        read(7);
    });
    let with = db.stats().memory;
    drop(snapshots);
    scenario.step(&format!("{what}: pruned"), &db, allowed, || gives_back(&db, &table));
    let without = db.stats().memory;
    println!("{what}: {} bytes, {} without snapshots", with.total_bytes(), without.total_bytes());
    is_sound(&db);
    drop(table);
    db.close().unwrap();
    assert!(scenario.allocated() < 2 * MIB, "{} bytes are left", scenario.allocated());
}

/// What only snapshots needed is given back by the next merges.
fn gives_back(db: &Database, table: &Table) {
    let is_back = eventually(|| {
        table.put("hot", "last").unwrap();
        db.checkpoint().unwrap();
        db.stats().memory.node_bytes < MIB as u64
    });
    assert!(is_back, "{:?}", db.stats().memory);
    assert_eq!(table.get("hot").unwrap().unwrap(), "last");
}

#[test]
fn short_values_of_a_hot_key_under_snapshots() {
    hot_key("20 bytes", 20, FLOOR + 8 * MIB);
}

#[test]
fn values_of_a_hot_key_that_take_half_of_the_budget_under_snapshots() {
    hot_key("1,000 bytes", 1_000, 4 * FLOOR);
}

#[test]
fn values_of_a_hot_key_out_of_line_under_snapshots() {
    hot_key("1,500 bytes", 1_500, FLOOR + 8 * MIB);
}
