//! More tables than the budget has room for.

use fulgurite::{Database, Table};

use super::process::{FLOOR, MIB, Random, Scenario, is_sound, open, scaled, value};

const ROWS: u64 = 3;
const ROW_BYTES: usize = 60;

/// What a table takes whether it is in memory or not: its name, its state, its place in the catalog, its accounts.
const TABLE_BYTES: usize = 2_400;

fn name(n: u64) -> String {
    format!("table{n:05}")
}

fn is_right(table: &Table, n: u64, rounds: &[u8]) {
    for (row, round) in rounds.iter().enumerate() {
        let found = table.get((row as u64).to_be_bytes()).unwrap().unwrap();
        assert_eq!(found, value(n, u64::from(*round), ROW_BYTES), "row {row} of table {n}");
    }
}

fn all_are_right(db: &Database, rounds: &[[u8; ROWS as usize]]) {
    for (n, rounds) in rounds.iter().enumerate() {
        let table = db.open_table(&name(n as u64)).unwrap();
        is_right(&table, n as u64, rounds);
        assert_eq!(table.range(..).unwrap().map(Result::unwrap).count() as u64, ROWS);
    }
}

/// Each creation waits for the disk: where the machine has a file system in memory, there are more of them.
#[test]
fn tables_of_a_few_rows_each() {
    let scenario = Scenario::begin();
    let in_memory = tempfile::tempdir_in("/dev/shm");
    let tables: u64 = if in_memory.is_ok() { 10_000 } else { scaled(1_000, 10_000) };
    let dir = in_memory.unwrap_or_else(|_| tempfile::tempdir().unwrap());
    // While merges wait, tables have two memtables, some hundred bytes more for each. That does not grow with the writes: six times
    // as many have the same peak.
    let allowed = FLOOR + tables as usize * TABLE_BYTES + 12 * MIB;
    let db = open(dir.path());
    let handles: Vec<Table> = scenario.step("tables are created", &db, allowed, || {
        (0..tables).map(|n| db.create_table(&name(n)).unwrap()).collect()
    });
    let mut rounds = vec![[0; ROWS as usize]; tables as usize];
    let put = |n: u64, row: u64, round: u8| {
        handles[n as usize].put(row.to_be_bytes(), value(n, u64::from(round), ROW_BYTES)).unwrap();
    };
    scenario.step("a few rows each", &db, allowed, || {
        (0..tables).for_each(|n| (0..ROWS).for_each(|row| put(n, row, 0)));
    });
    scenario.step("rows of random ones are written and read", &db, allowed, || {
        let mut random = Random(1);
        for round in 0..scaled(tables / 2, 3 * tables) {
            let (n, row, round) = (random.below(tables), random.below(ROWS), round as u8);
            put(n, row, round);
            rounds[n as usize][row as usize] = round;
            let other = random.below(tables);
            is_right(&handles[other as usize], other, &rounds[other as usize]);
        }
    });
    scenario.step("a checkpoint", &db, allowed, || db.checkpoint().unwrap());
    scenario.step("all are read", &db, allowed, || all_are_right(&db, &rounds));
    is_sound(&db);
    drop(handles);
    db.close().unwrap();
    assert!(scenario.allocated() < 4 * MIB, "{} bytes are left", scenario.allocated());

    let db = open(dir.path());
    scenario.step("reopened", &db, allowed, || all_are_right(&db, &rounds));
    is_sound(&db);
}
