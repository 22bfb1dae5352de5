//! Short rows, many times the budget.

use fulgurite::{Database, Options, Table};

use super::process::{MIB, Random, Scenario, is_sound, options, scaled, scattered, value};

const BUDGET: usize = 64 * MIB;
const ROW_BYTES: usize = 100;
const BATCH: u64 = 100;
const ALLOWED: usize = BUDGET + BUDGET / 10 + 16 * MIB;

/// The first half in the order of keys, the others scattered.
fn key(n: u64, rows: u64) -> [u8; 9] {
    let mut key = [u8::from(n >= rows / 2); 9];
    key[1..].copy_from_slice(&if n < rows / 2 { n.to_be_bytes() } else { scattered(n) });
    key
}

fn put(db: &Database, table: &Table, rows: u64, numbers: impl Iterator<Item = u64>, round: u64) {
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        let batch: Vec<u64> = numbers.by_ref().take(BATCH as usize).collect();
        db.transact(|txn| {
            batch.iter().try_for_each(|&n| txn.put(table, key(n, rows), value(n, round, ROW_BYTES)))
        })
        .unwrap();
    }
}

#[test]
fn rows_of_many_times_the_budget() {
    let scenario = Scenario::begin();
    let rows: u64 = scaled(800_000, 4_800_000);
    let dir = tempfile::tempdir().unwrap();
    let budget = Options { memory_bytes: Some(BUDGET), log_buffer_bytes: 8 * MIB, ..options() };
    let db = Database::open(dir.path().join("db"), budget).unwrap();
    let table = db.table("rows").unwrap();
    scenario.step("rows in the order of keys", &db, ALLOWED, || put(&db, &table, rows, 0..rows / 2, 0));
    scenario.step("rows at random", &db, ALLOWED, || put(&db, &table, rows, rows / 2..rows, 0));
    scenario.step("reads at random", &db, ALLOWED, || {
        let mut random = Random(6);
        for _ in 0..rows / 8 {
            let n = random.below(rows);
            assert_eq!(table.get(key(n, rows)).unwrap().unwrap(), value(n, 0, ROW_BYTES), "row {n}");
        }
    });
    scenario.step("overwritten beside a full scan", &db, ALLOWED, || {
        let scan = table.range(..).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(7);
                put(&db, &table, rows, (0..rows / 6).map(|_| random.below(rows)), 1);
            });
            let mut scan = scan;
            let mut count = 0;
            while let Some((found, bytes)) = scan.next_entry().unwrap() {
                if count < rows / 2 {
                    assert!(found == key(count, rows) && bytes == value(count, 0, ROW_BYTES));
                }
                count += 1;
            }
            assert_eq!(count, rows);
        });
    });
    let stats = db.stats();
    assert!(stats.memory.evicted_bytes > BUDGET as u64, "{:?}", stats.memory);
    is_sound(&db);
    drop(table);
    db.close().unwrap();
    assert!(scenario.allocated() < 2 * MIB, "{} bytes are left", scenario.allocated());
}
