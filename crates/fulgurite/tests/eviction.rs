//! Databases larger than their memory budget.

use fulgurite::{Database, Error, Options, ResearchOptions};

const BUDGET: usize = 32 << 20;
const ROWS: u64 = 250_000;

fn options() -> Options {
    Options { memory_bytes: Some(BUDGET), durability: fulgurite::Durability::None, ..Options::default() }
}

/// Scatters consecutive numbers over all keys.
fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    [n.to_le_bytes().as_slice(), &round.to_le_bytes(), &[7; 160]].concat()
}

/// The most that was used, while `work` was done.
fn with_peak(db: &Database, work: impl FnOnce()) -> u64 {
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                peak = peak.max(db.stats().memory.total_bytes());
                std::thread::park_timeout(std::time::Duration::from_millis(2));
            }
            peak
        });
        work();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.join().unwrap()
    })
}

fn load(db: &Database, round: u64) {
    let table = db.table("rows").unwrap();
    for batch in 0..ROWS / 100 {
        db.transact(|txn| {
            (batch * 100..batch * 100 + 100).try_for_each(|n| txn.put(&table, key(n), value(n, round)))
        })
        .unwrap();
    }
}

/// More than twice the budget: loaded in random order, overwritten, read one by one and as a whole, reopened.
#[test]
fn a_database_larger_than_its_budget_stays_within_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    // A tenth more is usual; where all processors are busy, threads give nodes back late.
    let allowed = BUDGET as u64 / 2 * 3;
    let read = |db: &Database, round| {
        let table = db.table("rows").unwrap();
        (0..ROWS).step_by(7).for_each(|n| assert_eq!(table.get(key(n)).unwrap().unwrap(), value(n, round)));
        assert_eq!(table.range(..).unwrap().map(Result::unwrap).count() as u64, ROWS);
    };
    for round in 0..2 {
        let peak = with_peak(&db, || load(&db, round));
        assert!(peak <= allowed, "{peak} bytes while loading, {:?}", db.stats());
        let peak = with_peak(&db, || read(&db, round));
        assert!(peak <= allowed, "{peak} bytes while reading, {:?}", db.stats());
    }
    let stats = db.stats();
    assert!(stats.memory.evicted_bytes > 4 * BUDGET as u64, "{:?}", stats.memory);
    assert!(stats.memory.leaves_written_to_evict > 0 && stats.maintenance_error.is_none(), "{stats:?}");
    let (writes, nodes) = (stats.writes(), stats.log.node_record_bytes());
    assert!(writes.evictions > stats.memory.leaves_written_to_evict, "{writes:?}");
    assert_eq!(writes.evictions + writes.checkpoints + writes.copied_nodes, nodes, "{writes:?}");
    let loads = stats.memory.node_loads;
    assert!(loads.reads > 1_000 && loads.scans > 1_000 && loads.merges > 1_000, "{loads:?}");
    let waits = stats.memory.waits;
    assert!((waits.count() == 0 || waits.max_ns > 0) && waits.max_ns <= waits.total_ns, "{waits:?}");
    db.close().unwrap();

    // Without threads of its own, readers evict.
    let db = Database::open(dir.path().join("db"), Options { read_only: true, ..options() }).unwrap();
    let peak = with_peak(&db, || read(&db, 1));
    assert!(peak <= allowed, "{peak} bytes while only reading, {:?}", db.stats());
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}

/// Nodes give way to the program's own memory, and come back after it.
#[test]
fn memory_that_the_program_counts_is_part_of_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    load(&db, 0);
    db.checkpoint().unwrap();
    let table = db.table("rows").unwrap();
    let read_all = || assert_eq!(table.range(..).unwrap().map(Result::unwrap).count() as u64, ROWS);
    let nodes_of = |db: &Database| {
        read_all();
        (db.stats().memory.node_bytes, db.stats().memory.total_bytes())
    };
    let (nodes, _) = nodes_of(&db);
    let (one, other) = (db.program_memory(), db.program_memory());
    one.set(BUDGET / 4);
    other.set(BUDGET / 4);
    assert_eq!(db.stats().memory.program_bytes, BUDGET as u64 / 2);
    let (fewer, total) = nodes_of(&db);
    assert!(fewer < nodes * 2 / 3, "{nodes} bytes of nodes, then {fewer}");
    assert!(total <= BUDGET as u64 * 3 / 2, "{total} bytes, {:?}", db.stats());
    one.set(0);
    drop(other);
    assert_eq!((db.stats().memory.program_bytes, one.of_all()), (0, 0));
    let (again, _) = nodes_of(&db);
    assert!(again > fewer * 4 / 3, "{fewer} bytes of nodes, then {again}");
}

#[test]
fn a_budget_below_its_least_is_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for bytes in [0, (32 << 20) - 1] {
        let options = Options { memory_bytes: Some(bytes), ..Options::default() };
        let refused = Database::open(dir.path().join("db"), options);
        let Err(Error::BadOptions { violations }) = refused else { panic!("a budget of {bytes} bytes") };
        let said = format!("memory_bytes is {bytes}, the least is {}", 32 << 20);
        assert!(violations.iter().any(|violation| violation.contains(&said)), "{violations:?}");
    }
    assert!(!dir.path().join("db").exists());
}

/// Each of a hundred transactions is below what one may take.
#[test]
fn transactions_that_do_not_fit_together_are_refused_when_they_write_or_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    let table = db.table("rows").unwrap();
    let memory = || db.stats().memory;
    let share = BUDGET as u64 / 4;
    let value = vec![7; 1000];
    let mut refused = 0;
    let open: Vec<_> = (0..100u32)
        .map(|n| {
            let mut txn = db.begin();
            let key = |i: u32| [n.to_be_bytes(), i.to_be_bytes()].concat();
            let puts = (0..1000).take_while(|&i| match txn.put(&table, key(i), &value) {
                Ok(()) => true,
                Err(Error::TooLarge { bytes, max }) => {
                    assert!(bytes > max && max as u64 <= share);
                    refused += 1;
                    false
                }
                Err(error) => panic!("{error}"),
            });
            let puts = puts.count() as u32;
            assert!(memory().transaction_bytes <= share + 100 * (64 << 10), "{:?}", memory());
            (txn, puts)
        })
        .collect();
    assert!(refused > 90, "{refused} were refused");
    assert!(memory().transaction_bytes > share, "{:?}", memory());
    let reads: usize = (0..u32::MAX).take_while(|i| open[99].0.get(&table, i.to_be_bytes()).is_ok()).count();
    assert!(reads < 10_000, "{reads} reads");
    for (n, (txn, puts)) in open.into_iter().enumerate() {
        assert!(puts > 30, "{puts} puts of transaction {n}");
        txn.commit().unwrap();
        let prefix = (n as u32).to_be_bytes();
        assert_eq!(table.prefix(prefix).unwrap().count(), puts as usize);
    }
    assert_eq!(memory().transaction_bytes, 0);
}

#[test]
fn the_memtables_of_many_tables_share_a_quarter_of_the_budget() {
    const TABLES: u32 = 300;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    let tables: Vec<_> = (0..TABLES).map(|n| db.table(&format!("t{n}")).unwrap()).collect();
    let mut peak = 0;
    for n in 0..400u64 {
        for table in &tables {
            table.put(key(n), value(n, 0)).unwrap();
        }
        peak = peak.max(db.stats().memtable_bytes);
    }
    assert!(peak <= BUDGET as u64 / 64 * 17, "{peak} bytes of memtables, {:?}", db.stats());
    for table in &tables {
        (0..400).for_each(|n| assert_eq!(table.get(key(n)).unwrap().unwrap(), value(n, 0)));
    }
}

#[test]
fn the_budget_of_an_open_database_changes() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), Options { memory_bytes: Some(256 << 20), ..options() })
        .unwrap();
    load(&db, 0);
    assert!(db.stats().memory.total_bytes() > BUDGET as u64 / 2 * 3, "{:?}", db.stats().memory);
    let Err(Error::BadOptions { .. }) = db.set_memory_bytes(BUDGET - 1) else {
        panic!("it is below the least")
    };
    assert_eq!(db.stats().memory.budget_bytes, 256 << 20);
    db.set_memory_bytes(BUDGET).unwrap();
    let is_within = || db.stats().memory.total_bytes() <= BUDGET as u64;
    let nap = || std::thread::park_timeout(std::time::Duration::from_millis(10));
    assert!((0..6000).any(|_| is_within() || (nap(), false).1), "{:?}", db.stats());
    let table = db.table("rows").unwrap();
    db.set_memory_bytes(256 << 20).unwrap();
    // Rows still in a memtable would need no leaf.
    db.checkpoint().unwrap();
    for _ in 0..2 {
        (0..ROWS).for_each(|n| assert_eq!(table.get(key(n)).unwrap().unwrap(), value(n, 0)));
    }
    assert!(db.stats().memory.node_bytes > BUDGET as u64 / 2 * 3, "{:?}", db.stats().memory);
}

/// Rows that no other is among, enough of them that memtables are merged.
fn load_behind(table: &fulgurite::Table) {
    (0..50_000).for_each(|n| _ = table.put([[0xff; 8], key(n)].concat(), value(n, 1)).unwrap());
}

/// The leaves of all keys that a transaction has read do not fit in memory together: its commit evicted what it had loaded,
/// and loaded that again, for ever.
#[test]
fn a_transaction_that_has_read_more_leaves_than_fit_commits() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    load(&db, 0);
    let table = db.table("rows").unwrap();
    let mut txn = db.begin_with(fulgurite::Isolation::Serializable);
    (0..ROWS).step_by(13).for_each(|n| assert!(txn.get(&table, key(n)).unwrap().is_some()));
    txn.put(&table, "sum", "1").unwrap();
    load_behind(&table);
    let (done, outcome) = std::sync::mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "a commit that hangs must not hang the test")]
    std::thread::spawn(move || _ = done.send(txn.commit().is_ok()));
    assert_eq!(outcome.recv_timeout(std::time::Duration::from_secs(60)), Ok(true), "{:?}", db.stats().memory);
}

/// The same with a range, which is read under the table's gate.
#[test]
fn the_validation_of_a_long_range_stays_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    load(&db, 0);
    let table = db.table("rows").unwrap();
    let mut txn = db.begin_with(fulgurite::Isolation::Serializable);
    assert!(txn.range(&table, ..[0xe0]).unwrap().map(Result::unwrap).count() as u64 > ROWS / 5 * 4);
    txn.put(&table, [0xff; 9], "1").unwrap();
    load_behind(&table);
    db.checkpoint().unwrap();
    let peak = with_peak(&db, || _ = txn.commit().unwrap());
    assert!(peak <= BUDGET as u64 / 2 * 3, "{peak} bytes, {:?}", db.stats().memory);
}

/// What values hold cannot be evicted. Then the few nodes that are read stay, and eviction does not look for more without end.
#[test]
fn reads_hit_memory_while_values_take_more_than_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    // The collection of garbage would go on beside the reads, and load nodes.
    let research = ResearchOptions { collect: false, ..ResearchOptions::default() };
    let db = Database::open(dir.path().join("db"), Options { research, ..options() }).unwrap();
    load(&db, 0);
    db.checkpoint().unwrap();
    let table = db.table("rows").unwrap();
    let mut held = Vec::new();
    let mut by_key: Vec<u64> = (0..ROWS).collect();
    by_key.sort_unstable_by_key(|n| key(*n));
    for n in by_key.into_iter().step_by(25) {
        // A `get` would copy so short a value.
        held.push(table.range(key(n)..).unwrap().next().unwrap().unwrap());
        if db.stats().memory.lent_bytes > BUDGET as u64 {
            break;
        }
    }
    let before = db.stats().memory;
    assert!(before.lent_bytes > BUDGET as u64, "{before:?}");
    (0..300_000).for_each(|n| assert!(table.get(key(n % 50)).unwrap().is_some()));
    let after = db.stats().memory;
    assert!(after.evicted_nodes - before.evicted_nodes < 1_000, "{before:?}, {after:?}");
    drop(held);
}

/// What a dropped table had in memory is given back, although the program keeps a handle of it.
#[test]
fn a_dropped_table_gives_its_memory_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    load(&db, 0);
    let table = db.table("rows").unwrap();
    db.drop_table("rows").unwrap();
    (0..3).for_each(|_| _ = db.checkpoint().unwrap());
    let other = db.table("other").unwrap();
    // Threads give nodes back when they work on trees again.
    let work = |n: u64| {
        other.put(key(n), value(n, 0)).unwrap();
        other.get(key(n)).unwrap();
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    };
    let is_given_back = || db.stats().memory.node_bytes < BUDGET as u64 / 16;
    assert!((0..5_000).any(|n| is_given_back() || (work(n), false).1), "{:?}", db.stats().memory);
    assert!(matches!(table.get(key(1)), Err(Error::TableDropped { .. })));
}

/// Nodes that leave segments are loaded and made dirty.
#[test]
fn a_checkpoint_for_which_many_nodes_leave_segments_stays_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    let table = db.table("rows").unwrap();
    let put = |rows: &mut dyn Iterator<Item = u64>, round| {
        let rows: Vec<u64> = rows.collect();
        for batch in rows.chunks(100) {
            db.transact(|txn| batch.iter().try_for_each(|n| txn.put(&table, key(*n), value(*n, round))))
                .unwrap();
        }
    };
    // In key order, so that segments are full of whole leaves.
    let mut by_key: Vec<u64> = (0..2 * ROWS).collect();
    by_key.sort_unstable_by_key(|n| key(*n));
    put(&mut by_key.iter().copied(), 0);
    (0..2).for_each(|_| _ = db.checkpoint().unwrap());
    // Two of three stripes of some leaves each, in random order.
    let stripe = |n: u64| u64::from_be_bytes(key(n)) >> 54;
    let mut peaks = Vec::new();
    for eighth in 0..8 {
        let changed = (0..2 * ROWS).filter(|n| stripe(*n) % 3 > 0 && stripe(*n) / 3 % 8 == eighth);
        let mut changed: Vec<u64> = changed.collect();
        changed.sort_unstable_by_key(|n| key(*n));
        let while_putting = with_peak(&db, || put(&mut changed.into_iter(), 1));
        let in_checkpoint = with_peak(&db, || _ = db.checkpoint().unwrap());
        peaks.push(while_putting.max(in_checkpoint));
    }
    // A thread that evicts may lose its turn once.
    peaks.sort_unstable();
    let [.., middle, _, _, most] = peaks[..] else { unreachable!("eight of them") };
    let is_bounded = middle <= BUDGET as u64 / 4 * 5 && most <= BUDGET as u64 / 4 * 7;
    assert!(is_bounded, "{peaks:?}, {:?}", db.stats().memory);
}
