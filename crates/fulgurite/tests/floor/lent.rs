//! Values that the program holds.

use fulgurite::Value;

use super::process::{FLOOR, MIB, Random, Scenario, eventually, is_sound, open, value};

const ROWS: u64 = 120_000;
const ROW_BYTES: usize = 100;
const LONG: u64 = 500;
const LONG_BYTES: usize = 4 << 10;
const HELD: u64 = 1_000;
const ALLOWED: usize = FLOOR + FLOOR / 10 + 8 * MIB;

fn long_key(n: u64) -> [u8; 9] {
    let mut key = [0xFF; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    key
}

#[test]
fn values_that_the_program_holds_while_other_work_goes_on() {
    let scenario = Scenario::begin();
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("rows").unwrap();
    let put = |n: u64, round| table.put(n.to_be_bytes(), value(n, round, ROW_BYTES)).unwrap();
    scenario.step("rows and long values are loaded", &db, ALLOWED, || {
        (0..ROWS).for_each(|n| _ = put(n, 0));
        (0..LONG).for_each(|n| _ = table.put(long_key(n), value(n, 0, LONG_BYTES)).unwrap());
        db.checkpoint().unwrap();
    });
    let before = db.stats().memory;
    assert!(before.lent_bytes < MIB as u64, "{before:?}");
    // Each of another leaf.
    let held: Vec<(u64, Value)> = (0..HELD)
        .map(|nth| nth * (ROWS / HELD))
        .map(|n| (n, table.get(n.to_be_bytes()).unwrap().unwrap()))
        .collect();
    let long: Vec<Value> = (0..LONG).map(|n| table.get(long_key(n)).unwrap().unwrap()).collect();
    scenario.step("all is overwritten and read while values are held", &db, ALLOWED, || {
        (0..ROWS).for_each(|n| _ = put(n, 1));
        (0..LONG).for_each(|n| _ = table.put(long_key(n), value(n, 1, LONG_BYTES)).unwrap());
        db.checkpoint().unwrap();
        let mut random = Random(3);
        for _ in 0..30_000 {
            let n = random.below(ROWS);
            assert_eq!(table.get(n.to_be_bytes()).unwrap().unwrap(), value(n, 1, ROW_BYTES));
        }
        assert_eq!(table.range(..).unwrap().map(Result::unwrap).count() as u64, ROWS + LONG);
    });
    let with = db.stats().memory;
    let (rows_keep, long_keep) = (HELD * 4_000, LONG * LONG_BYTES as u64);
    println!("{HELD} rows and {LONG} values of 4 KiB keep {} bytes", with.lent_bytes);
    assert!(with.lent_bytes >= rows_keep + long_keep, "{with:?}");
    for (n, held) in &held {
        assert_eq!(*held, value(*n, 0, ROW_BYTES));
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
