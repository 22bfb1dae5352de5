//! Databases larger than their memory budget.

use fulgurite::{Database, Error, Options};

const BUDGET: usize = 32 << 20;
const ROWS: u64 = 400_000;

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
    db.close().unwrap();

    // Without threads of its own, readers evict.
    let db = Database::open(dir.path().join("db"), Options { read_only: true, ..options() }).unwrap();
    let peak = with_peak(&db, || read(&db, 1));
    assert!(peak <= allowed, "{peak} bytes while only reading, {:?}", db.stats());
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
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
