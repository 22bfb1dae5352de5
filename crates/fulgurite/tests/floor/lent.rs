//! Values that the program holds.

use std::ops::Range;

use fulgurite::Value;

use super::process::{FLOOR, MIB, Random, Scenario, eventually, is_sound, open, value};

const LONG: u64 = 500;
const LONG_BYTES: usize = 4 << 10;
const HELD: u64 = 1_000;
const ALLOWED: usize = FLOOR + FLOOR / 10 + 8 * MIB;

fn long_key(n: u64) -> [u8; 9] {
    let mut key = [0xFF; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Holds rows of so many bytes, of which each keeps about so many in memory, and values of 4 KiB.
fn hold(rows: u64, row_bytes: usize, keeps: Range<u64>) {
    let scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("rows").unwrap();
    let put = |n: u64, round| table.put(n.to_be_bytes(), value(n, round, row_bytes)).unwrap();
    scenario.step("rows and long values are loaded", &db, ALLOWED, || {
        (0..rows).for_each(|n| _ = put(n, 0));
        (0..LONG).for_each(|n| _ = table.put(long_key(n), value(n, 0, LONG_BYTES)).unwrap());
        db.checkpoint().unwrap();
    });
    let before = db.stats().memory;
    assert!(before.lent_bytes < MIB as u64 && before.evicted_nodes > 0, "{before:?}");
    // Each of another leaf.
    let held: Vec<(u64, Value)> = (0..HELD)
        .map(|nth| nth * (rows / HELD))
        .map(|n| (n, table.get(n.to_be_bytes()).unwrap().unwrap()))
        .collect();
    let long: Vec<Value> = (0..LONG).map(|n| table.get(long_key(n)).unwrap().unwrap()).collect();
    scenario.step("all is overwritten and read while values are held", &db, ALLOWED, || {
        (0..rows).for_each(|n| _ = put(n, 1));
        (0..LONG).for_each(|n| _ = table.put(long_key(n), value(n, 1, LONG_BYTES)).unwrap());
        db.checkpoint().unwrap();
        let mut random = Random(3);
        for _ in 0..30_000 {
            let n = random.below(rows);
            assert_eq!(table.get(n.to_be_bytes()).unwrap().unwrap(), value(n, 1, row_bytes));
        }
        assert_eq!(table.range(..).unwrap().map(Result::unwrap).count() as u64, rows + LONG);
    });
    let with = db.stats().memory;
    let (rows_keep, long_keep) = (HELD * keeps.start, LONG * LONG_BYTES as u64);
    println!("{HELD} rows of {row_bytes} bytes and {LONG} values of 4 KiB keep {} bytes", with.lent_bytes);
    assert!(with.lent_bytes >= rows_keep + long_keep, "{with:?}");
    assert!(with.lent_bytes <= HELD * keeps.end + long_keep * 5 / 4 + MIB as u64, "{with:?}");
    for (n, held) in &held {
        assert_eq!(*held, value(*n, 0, row_bytes));
    }
    for (n, held) in long.iter().enumerate() {
        assert_eq!(*held, value(n as u64, 0, LONG_BYTES));
    }
    drop(long);
    let without_long = db.stats().memory.lent_bytes;
    assert!(without_long + long_keep <= with.lent_bytes + MIB as u64, "{without_long} of {with:?}");
    drop(held);
    assert!(eventually(|| db.stats().memory.lent_bytes < MIB as u64), "{:?}", db.stats().memory);
    is_sound(&db);
    drop(table);
    db.close().unwrap();
    assert!(scenario.allocated() < 2 * MIB, "{} bytes are left", scenario.allocated());
}

/// They are copied out of their leaves.
#[test]
fn short_rows_that_the_program_holds_while_other_work_goes_on() {
    hold(160_000, 100, 100..600);
}

/// Each keeps its leaf.
#[test]
fn rows_that_the_program_holds_while_other_work_goes_on() {
    hold(40_000, 600, 4_000..16_000);
}
