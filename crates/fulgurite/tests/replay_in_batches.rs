//! Opening a database whose log is larger than the memory budget: this process counts its allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fulgurite::{Database, Options};

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: it passes every call to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BUDGET: usize = 32 << 20;
const SEGMENT_BYTES: usize = 16 << 20;
const ROWS: u64 = 300_000;
const BATCH: u64 = 500;

/// Nothing is merged, and no checkpoint is written: the log keeps everything, and the files do not change while they are copied.
fn large() -> Options {
    Options {
        memory_bytes: Some(4 << 30),
        checkpoint_log_bytes: 1 << 30,
        background: false,
        ..Options::default()
    }
}

fn small() -> Options {
    Options { memory_bytes: Some(BUDGET), background: true, ..large() }
}

/// Scatters consecutive numbers over all keys.
fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let len = if n.is_multiple_of(5_000) { 20_000 } else { 150 };
    n.to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// The rows of a table, in order.
fn rows(db: &Database, table: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let rows = db.open_table(table).unwrap().range(..).unwrap().map(Result::unwrap);
    rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// The files as a killed process leaves them.
#[expect(clippy::disallowed_methods, reason = "the copy of a directory")]
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Rows at random, overwritten and deleted, ranges deleted, long values, a transaction in chunks, tables created,
/// renamed, dropped: 100 MB of log without a checkpoint.
fn load(db: &Database) {
    let table = db.create_table("rows").unwrap();
    let dropped = db.create_table("dropped").unwrap();
    for batch in 0..ROWS / BATCH {
        db.transact(|txn| {
            for n in batch * BATCH..(batch + 1) * BATCH {
                txn.put(&table, key(n), value(n))?;
                if n.is_multiple_of(3) {
                    txn.put(&table, key(n / 2), value(n))?;
                }
                if n.is_multiple_of(7) {
                    txn.delete(&table, key(n / 3))?;
                }
                if n.is_multiple_of(7) && batch <= 300 {
                    txn.put(&dropped, key(n), value(n))?;
                }
            }
            Ok(())
        })
        .unwrap();
        match batch {
            100 => _ = db.create_table("late").unwrap(),
            300 => db.drop_table("dropped").unwrap(),
            500 => db.rename_table("late", "renamed").unwrap(),
            _ => {}
        }
        if batch.is_multiple_of(97) {
            let from = key(batch);
            let to = [&from[..2], &[0xFF; 6]].concat();
            table.delete_range(from.to_vec()..to).unwrap();
        }
        if batch == 550 {
            let renamed = db.open_table("renamed").unwrap();
            db.transact(|txn| (0..60_000).try_for_each(|n| txn.put(&renamed, key(n), value(n)))).unwrap();
        }
    }
}

#[test]
fn a_log_larger_than_the_budget_is_replayed_within_it() {
    let dir = tempfile::tempdir().unwrap();
    let (first, mut killed) = (dir.path().join("first"), dir.path().join("killed"));
    let db = Database::open(&first, large()).unwrap();
    load(&db);
    let all = ["rows", "renamed"].map(|table| rows(&db, table));
    copy(&first, &killed);
    db.close().unwrap();

    // Killed again soon after it has opened. The second opening may write the checkpoint that is overdue then.
    for life in 0..3 {
        let before = ALLOCATED.load(Relaxed);
        PEAK.store(before, Relaxed);
        let options = Options { background: life == 2, ..small() };
        let db = Database::open(&killed, options).unwrap();
        let peak = PEAK.load(Relaxed) - before;
        // Recovery reads whole segments, of 16 MiB here. All of the log in memtables is 130 MB.
        assert!(peak < BUDGET + 2 * SEGMENT_BYTES, "opening took {peak} bytes, {:?}", db.stats().memory);
        assert!(life > 0 || db.stats().memory.evicted_bytes > 0, "{:?}", db.stats().memory);
        for (table, expected) in ["rows", "renamed"].iter().zip(&all) {
            assert!(rows(&db, table) == *expected, "life {life}: {table} differs");
        }
        let names: Vec<_> = db.tables().unwrap().iter().map(fulgurite::Table::name).collect();
        assert_eq!(names, ["renamed", "rows"]);
        if life < 2 {
            let next = dir.path().join(format!("killed{life}"));
            copy(&killed, &next);
            drop(db);
            killed = next;
        } else {
            db.close().unwrap();
        }
    }
    let db = Database::open(&killed, small()).unwrap();
    assert!(rows(&db, "rows") == all[0] && rows(&db, "renamed") == all[1]);
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
}
