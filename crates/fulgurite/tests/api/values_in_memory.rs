//! Values that are not in leaves: cached within the memory budget.

use fulgurite::{Database, Durability, Error, Options, Table};

const BUDGET: usize = 32 << 20;
const BYTES: usize = 4096;
const VALUES: u64 = 14_000;
const HOT: u64 = 4_000;

fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().iter().copied().cycle().take(BYTES).collect()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A database of 57 MB of values, all of them on disk.
fn loaded(dir: &std::path::Path) -> Database {
    let options = Options {
        memory_bytes: Some(BUDGET),
        log_buffer_bytes: 2 << 20,
        durability: Durability::None,
        ..Options::default()
    };
    let db = Database::open(dir, options).unwrap();
    let table = db.table("values").unwrap();
    for batch in 0..VALUES / 100 {
        let numbers = batch * 100..batch * 100 + 100;
        db.transact(|txn| numbers.clone().try_for_each(|n| txn.put(&table, key(n), value(n)))).unwrap();
    }
    db.checkpoint().unwrap();
    db
}

/// A database whose values, of which `count` are put in each round, all fit its budget.
fn roomy(dir: &std::path::Path, rounds: u64, count: u64) -> Database {
    let options = Options {
        memory_bytes: Some(64 << 20),
        log_buffer_bytes: 2 << 20,
        durability: Durability::None,
        ..Options::default()
    };
    let db = Database::open(dir, options).unwrap();
    let table = db.table("values").unwrap();
    for round in 0..rounds {
        for n in 0..count {
            table.put(key(n), value(n + round)).unwrap();
        }
        db.checkpoint().unwrap();
    }
    db
}

/// Nothing was read: they were in memtables, and stay in memory when these are merged.
#[test]
fn values_that_were_written_stay_in_memory_where_it_has_room_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let (rounds, count) = (12, 5_000);
    let db = roomy(&dir.path().join("db"), rounds, count);
    let table = db.open_table("values").unwrap();
    for n in 0..count {
        assert_eq!(table.try_get(key(n)).unwrap().unwrap(), value(n + rounds - 1));
    }
    // 20 MB in each round: what was replaced has left the cache.
    let memory = db.stats().memory;
    assert_eq!((memory.value_misses, memory.evicted_values), (0, 0), "{memory:?}");
    assert!(memory.value_bytes < count * (BYTES as u64 + 600), "{memory:?}");
    (0..count).for_each(|n| _ = table.delete(key(n)).unwrap());
    db.checkpoint().unwrap();
    assert_eq!(db.stats().memory.value_bytes, 0, "{:?}", db.stats().memory);
}

/// The database is larger than its budget: few of the values that were written and not read pressed out others.
#[test]
fn values_that_were_only_written_stay_out_of_memory_where_it_is_scarce() {
    let dir = tempfile::tempdir().unwrap();
    let db = loaded(&dir.path().join("db"));
    let first = db.stats().memory;
    let table = db.open_table("values").unwrap();
    for round in 0..20 {
        for n in 0..VALUES / 20 {
            table.put(key(n * 20 + round), value(n)).unwrap();
        }
        db.checkpoint().unwrap();
    }
    let memory = db.stats().memory;
    let evicted = memory.evicted_values - first.evicted_values;
    assert!(evicted < VALUES / 2, "{evicted} values were evicted that nothing read, {memory:?}");
    assert!(memory.total_bytes() < BUDGET as u64 * 11 / 10, "{memory:?}");
}

/// Whether the value was in memory.
fn read(table: &Table, n: u64) -> bool {
    match table.try_get(key(n)) {
        Ok(found) => {
            assert_eq!(found.unwrap(), value(n));
            true
        }
        Err(Error::WouldBlock(_)) => {
            assert_eq!(table.get(key(n)).unwrap().unwrap(), value(n));
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Numbers below `end`, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

#[test]
fn a_hot_set_of_half_the_budget_stays_in_memory_beside_a_full_scan() {
    let dir = tempfile::tempdir().unwrap();
    let db = loaded(&dir.path().join("db"));
    let table = db.open_table("values").unwrap();
    (0..HOT).for_each(|n| _ = read(&table, n));
    assert!((0..HOT).all(|n| read(&table, n)), "half of the budget is not cached");
    let mut random = Random(7);
    let (mut reads, mut hits) = (0, 0);
    for round in 0..3 {
        // All were new when the first scan began.
        if round == 1 {
            (reads, hits) = (0, 0);
        }
        let mut scan = table.range(key(HOT)..).unwrap();
        while let Some((_, scanned)) = scan.next_entry().unwrap() {
            assert_eq!(scanned.len(), BYTES);
            for _ in 0..2 {
                reads += 1;
                hits += u64::from(read(&table, random.below(HOT)));
            }
        }
    }
    assert!(hits * 100 >= reads * 97, "{hits} of {reads}, {:?}", db.stats().memory);
    let memory = db.stats().memory;
    assert!(memory.evicted_values > VALUES && memory.total_bytes() < BUDGET as u64 * 11 / 10, "{memory:?}");
    assert!(memory.value_hits >= hits && memory.value_misses >= 3 * (VALUES - HOT), "{memory:?}");
}

#[test]
fn held_values_count_as_lent_and_press_out_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let db = loaded(&dir.path().join("db"));
    let table = db.open_table("values").unwrap();
    let held: Vec<_> = (0..5_000).map(|n| table.get(key(n)).unwrap().unwrap()).collect();
    (5_000..VALUES).for_each(|n| _ = read(&table, n));
    let memory = db.stats().memory;
    assert!(memory.lent_bytes >= 4_000 * BYTES as u64, "{memory:?}");
    assert!(memory.total_bytes() < BUDGET as u64 * 11 / 10, "{memory:?}");
    assert!(held.iter().enumerate().all(|(n, held)| *held == value(n as u64)));
    drop(held);
    assert!(db.stats().memory.lent_bytes < 1 << 20, "{:?}", db.stats().memory);
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

/// Each is in a leaf of its own.
#[test]
fn short_values_do_not_keep_their_leaves_where_memory_is_scarce() {
    let dir = tempfile::tempdir().unwrap();
    let db = loaded(&dir.path().join("db"));
    let rows = db.table("rows").unwrap();
    for batch in 0..400u64 {
        let numbers = batch * 500..batch * 500 + 500;
        db.transact(|txn| numbers.clone().try_for_each(|n| txn.put(&rows, key(n), [n as u8; 100]))).unwrap();
    }
    db.checkpoint().unwrap();
    let values = db.open_table("values").unwrap();
    (0..VALUES).for_each(|n| _ = read(&values, n));
    assert!(db.stats().memory.evicted_bytes > 0);
    let held: Vec<_> = (0..2_000).map(|n| rows.get(key(n * 100)).unwrap().unwrap()).collect();
    let lent = db.stats().memory.lent_bytes;
    // Those that are read while eviction has just made room keep theirs, of 8 KiB.
    assert!((2_000 * 100..2_000 * 2_000).contains(&lent), "{lent} bytes for 2,000 values of 100");
    assert!(held.iter().enumerate().all(|(n, held)| *held == [(n * 100) as u8; 100]));
}

/// A value that is longer than the budget is read: its bytes are lent to the program, which asked for them.
#[test]
fn a_value_longer_than_the_budget_is_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = loaded(&dir.path().join("db"));
    let table = db.open_table("values").unwrap();
    let long: Vec<u8> = (0..2 * BUDGET).map(|n| (n / 7) as u8).collect();
    table.put("long", &long).unwrap();
    let read = table.get("long").unwrap().unwrap();
    assert!(read == long);
    let memory = db.stats().memory;
    assert!(memory.lent_bytes >= long.len() as u64, "{memory:?}");
    drop(read);
    let memory = db.stats().memory;
    assert!(memory.total_bytes() < BUDGET as u64, "{memory:?}");
    // Others go on meanwhile and afterwards.
    let _held = table.get("long").unwrap().unwrap();
    assert_eq!(table.get(key(3)).unwrap().unwrap(), value(3));
    table.put(key(3), "new").unwrap();
    assert_eq!(table.get(key(3)).unwrap().unwrap(), "new");
}
