//! A transaction that is many times as long as the budget.

use super::process::{FLOOR, MIB, Scenario, is_sound, open, scaled, value};

const VALUE_BYTES: usize = MIB;
/// What a value that is being written or read takes: the test's copy, the engine's while it is read.
const ALLOWED: usize = FLOOR + FLOOR / 10 + 8 * MIB;

#[test]
fn a_transaction_of_many_times_the_budget() {
    let scenario = Scenario::begin();
    let values: u64 = scaled(256, 1024);
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("values").unwrap();
    scenario.step("a long transaction", &db, ALLOWED, || {
        let mut txn = db.begin();
        for n in 0..values {
            txn.put(&table, n.to_be_bytes(), value(n, 0, VALUE_BYTES)).unwrap();
            if n % 50 == 0 {
                assert!(
                    txn.get(&table, (n / 2).to_be_bytes()).unwrap().unwrap() == value(n / 2, 0, VALUE_BYTES)
                );
            }
        }
        txn.commit().unwrap();
    });
    let read = |db: &fulgurite::Database| {
        let table = db.open_table("values").unwrap();
        let mut entries = table.range(..).unwrap();
        for n in 0..values {
            let (key, found) = entries.next_entry().unwrap().unwrap();
            assert!(key == n.to_be_bytes() && found == value(n, 0, VALUE_BYTES), "value {n}");
        }
        assert!(entries.next_entry().unwrap().is_none());
    };
    scenario.step("its values are read", &db, ALLOWED, || read(&db));
    scenario.step("one that is rolled back", &db, ALLOWED, || {
        let mut txn = db.begin();
        (0..values / 4).for_each(|n| txn.put(&table, n.to_be_bytes(), value(n, 1, VALUE_BYTES)).unwrap());
        txn.rollback();
    });
    assert_eq!(db.stats().memory.transaction_bytes, 0);
    is_sound(&db);
    drop(table);
    db.close().unwrap();
    let db = open(dir.path());
    scenario.step("reopened, its values are read", &db, ALLOWED, || read(&db));
}
