//! What an open database takes of memory: this process counts its allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use fulgurite::env::sim::SimEnv;
use fulgurite::{Database, Options};

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: it passes every call to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Merges everything, and writes checkpoints until nothing of former ones is left.
fn settle(db: &Database) {
    for _ in 0..3 {
        db.checkpoint().unwrap();
        while db.maintain().unwrap() {}
    }
}

/// With its name, its row in the catalog, and what the simulated disk keeps of it.
#[test]
fn a_table_that_is_not_written_takes_little() {
    const TABLES: u64 = 2_000;
    let options = Options { background: false, ..Options::default() };
    let db = Database::open_with(SimEnv::new(1), "/db", options, |_| {}).unwrap();
    db.create_table("first").unwrap();
    let before = ALLOCATED.load(Ordering::Relaxed);
    let bytes_each = || (ALLOCATED.load(Ordering::Relaxed) - before) as u64 / TABLES;
    for n in 0..TABLES {
        db.create_table(&format!("t{n}")).unwrap();
    }
    settle(&db);
    assert!(bytes_each() < 2_600, "an empty table takes {} bytes", bytes_each());
    for n in 0..TABLES {
        db.table(&format!("t{n}")).unwrap().put(b"key", b"value").unwrap();
    }
    settle(&db);
    let memory = db.stats().memory;
    assert!(bytes_each() < 3_900, "a table of one row takes {} bytes, {memory:?}", bytes_each());
    assert!((300..700).contains(&(memory.account_bytes / TABLES)), "{memory:?}");
    assert!((1_200..1_900).contains(&(memory.table_bytes / TABLES)), "{memory:?}");
    let of_tables = memory.total_bytes() - memory.log_buffer_bytes;
    // What the simulated disk keeps is not counted.
    assert!(of_tables > TABLES * (bytes_each() - 1_200), "{} bytes each, {memory:?}", bytes_each());
    assert!(of_tables < TABLES * bytes_each() && memory.memtable_bytes < TABLES * 100, "{memory:?}");
    open_tickets_and_range_tombstones_count(&db);
}

/// Called by the only test: others would allocate beside it.
fn open_tickets_and_range_tombstones_count(db: &Database) {
    const COMMITS: u64 = 5_000;
    let table = db.table("first").unwrap();
    let before = (ALLOCATED.load(Ordering::Relaxed), db.stats().memory);
    let delete = |n: u64| {
        let mut txn = db.begin();
        let key = |n: u64| n.to_be_bytes();
        txn.delete_range(&table, key(2 * n)..key(2 * n + 1)).unwrap();
        txn.commit_deferred().unwrap()
    };
    let tickets: Vec<_> = (0..COMMITS).map(delete).collect();
    let memory = db.stats().memory;
    assert!(memory.tombstone_bytes > COMMITS * 100 && memory.ticket_bytes > COMMITS * 200, "{memory:?}");
    let allocated = (ALLOCATED.load(Ordering::Relaxed) - before.0) as u64;
    let charged = memory.total_bytes() - before.1.total_bytes();
    assert!(charged < allocated + allocated / 4, "{allocated} allocated, {memory:?}");
    tickets.into_iter().for_each(|ticket| _ = ticket.wait().unwrap());
    settle(db);
    // Tombstones are dropped by a checkpoint that covers a later commit.
    table.put(b"key", b"value").unwrap();
    settle(db);
    let memory = db.stats().memory;
    assert_eq!((memory.tombstone_bytes, memory.ticket_bytes), (0, 0), "{memory:?}");
}
