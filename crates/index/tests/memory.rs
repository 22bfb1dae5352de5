//! What is charged is what is allocated: this process counts its allocations, and compares.
#![cfg(not(feature = "shuttle"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::memtables::{BlockBuilder, BlockOp};
use fulgurite_index::range_delete::Readers;
use fulgurite_index::table::{ReadPoint, Table, TableOptions};
use fulgurite_index::{
    Base, BaseCursor, IndexMemory, Io, MergeSource, MergeVersion, NodeKind, NodeStore, PruneRules,
    StoreError, Version, VersionFlags,
};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId, hash_key};

/// Bytes that are allocated now, without what the store below keeps.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static IS_UNCOUNTED: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count(bytes: isize) {
    if !IS_UNCOUNTED.get() {
        ALLOCATED.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: it passes every call to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Without counting what it allocates, which must not be freed while the test runs.
fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    IS_UNCOUNTED.set(true);
    let result = work();
    IS_UNCOUNTED.set(false);
    result
}

const TABLE: TableId = TableId(7);

#[derive(Default)]
struct Store {
    records: Mutex<BTreeMap<Lsn, Vec<u8>>>,
    written: AtomicU64,
    memory: Arc<IndexMemory>,
}

impl NodeStore for Store {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        Ok(self.records.lock().unwrap()[&lsn].clone())
    }

    fn write_node(&self, _kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let lsn = Lsn::new(1 + (number / 100) as u32, 64 + (number % 100) as u32 * 8);
        uncounted(|| self.records.lock().unwrap().insert(lsn, body.to_vec()));
        Ok(lsn)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        body_len as u32
    }

    fn memory(&self) -> Option<&Arc<IndexMemory>> {
        Some(&self.memory)
    }
}

/// Rows `first`, `first + step`, ... below `end`, written by one commit.
struct Rows {
    next: u64,
    end: u64,
    step: u64,
    csn: u64,
    key: [u8; 8],
}

fn rows(range: std::ops::Range<u64>, step: u64, csn: u64) -> Rows {
    Rows { next: range.start, end: range.end, step, csn, key: [0; 8] }
}

impl MergeSource for Rows {
    fn peek_key(&mut self) -> Option<&[u8]> {
        self.key = self.next.to_be_bytes();
        (self.next < self.end).then_some(&self.key)
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        self.next += self.step;
        let payload = Cow::Owned(vec![self.csn as u8; 40]);
        out.push(MergeVersion {
            csn: Csn(self.csn),
            flags: VersionFlags::default(),
            expires_at_ms: 0,
            payload,
        });
    }
}

fn rules(horizon: u64) -> PruneRules {
    PruneRules {
        horizon: Csn(horizon),
        snapshots: vec![],
        expired_until_ms: 0,
        range_deletes: Arc::default(),
    }
}

/// Frees what left the trees, as far as nothing holds it.
fn end_epochs() {
    for _ in 0..1000 {
        crossbeam_epoch::pin().flush();
    }
}

struct Check {
    memory: Arc<IndexMemory>,
    allocated_before: isize,
}

impl Check {
    /// That what is charged is what is allocated but for a hundredth, and some fixed bytes.
    fn charged(&self, after: &str) -> usize {
        end_epochs();
        let memory = &self.memory;
        let of_table = memory.memtable_bytes() + memory.table_bytes();
        let charged = memory.node_bytes() + memory.slot_bytes() + of_table;
        let allocated = (ALLOCATED.load(Ordering::Relaxed) - self.allocated_before) as usize;
        assert!(
            allocated.abs_diff(charged) < allocated / 100 + 20_000,
            "{after}: {allocated} allocated, {memory:?}"
        );
        charged
    }
}

/// Range tombstones: apart from each other, then touching, then dropped.
fn range_tombstones(table: &Table<BTree>, check: &Check) {
    let memory = &check.memory;
    let deletes = table.range_deletes();
    let allocated_before = ALLOCATED.load(Ordering::Relaxed);
    let none = Readers { from: Csn(1), snapshots: vec![] };
    let insert = |start: u64, end: u64, csn: u64| {
        let (start, end) = (start.to_be_bytes(), end.to_be_bytes());
        deletes.insert(KeySpan::new(&start[..], Some(&end[..])), Csn(csn), &none);
    };
    let assert_charged = || {
        let allocated = (ALLOCATED.load(Ordering::Relaxed) - allocated_before) as usize;
        let charged = memory.tombstone_bytes();
        assert!(charged.abs_diff(allocated) < allocated / 5 + 500, "{allocated} allocated, {memory:?}");
        charged
    };
    (0..10_000).for_each(|n| insert(4 * n, 4 * n + 2, n + 1));
    assert!(assert_charged() > 10_000 * 100);
    (0..10_000).for_each(|n| insert(4 * n + 2, 4 * n + 4, n + 20_000));
    assert!(assert_charged() > 20_000 * 100);
    let used = memory.used_bytes();
    assert!(used > memory.memtable_bytes() + 20_000 * 100);
    deletes.drop_up_to(Csn(50_000));
    assert_eq!((assert_charged(), memory.used_bytes() < used), (0, true));
}

/// One test: others would allocate beside it.
#[test]
fn what_is_charged_is_what_is_allocated() {
    let store = uncounted(|| Arc::new(Store::default()));
    let check = Check { memory: store.memory.clone(), allocated_before: ALLOCATED.load(Ordering::Relaxed) };
    let memory = &store.memory;

    let tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    tree.merge(&mut rows(0..50_000, 1, 1), &rules(1)).unwrap();
    let loaded = check.charged("loading");
    assert!(loaded > 50_000 * 48 && memory.lent_bytes() == 0);
    tree.write_out().unwrap();
    let slots = memory.slot_bytes();
    tree.merge(&mut rows(0..50_000, 40, 2), &rules(2)).unwrap();
    check.charged("changing a few rows of each leaf");
    assert!(memory.slot_bytes() >= slots + 50_000 / 40 * 10, "the keys that changed: {slots}, {memory:?}");
    tree.write_out().unwrap();
    assert_eq!(tree.evict(0), 0);
    assert!(check.charged("evicting everything") < 2_000);

    // Values, and a cursor, of leaves that are evicted.
    let value = |n: u64| tree.get(&n.to_be_bytes(), Csn::MAX, Io::Allowed).unwrap().unwrap();
    let held: Vec<Version> = (0..50_000).step_by(5_000).map(value).collect();
    let mut cursor = tree.cursor(Csn::MAX);
    cursor.seek(&70u64.to_be_bytes()).unwrap();
    assert_eq!(check.memory.lent_bytes(), 0);
    tree.evict(0);
    let lent = check.charged("evicting what is held");
    assert!(memory.lent_bytes() >= 10 * 4_000 && memory.node_bytes() == memory.lent_bytes(), "{memory:?}");
    drop(held);
    assert!(check.charged("dropping the values") < lent);
    drop(cursor);
    assert!(check.charged("dropping the cursor") < 2_000);
    assert_eq!((memory.lent_bytes(), memory.dirty_bytes()), (0, 0));
    drop(tree);
    assert_eq!(check.charged("dropping the tree"), 0);
    assert_eq!((memory.node_bytes(), memory.slot_bytes(), memory.dirty_bytes()), (0, 0, 0));

    let tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    let table = Arc::new(Table::new(TABLE, tree, TableOptions { inline_max: 1000 }));
    assert!(check.charged("a new table") < 3_000);
    let mut csn = 0;
    let mut commit = |rows: std::ops::Range<u64>| {
        csn += 1;
        let mut block = BlockBuilder::new(TABLE, 0, 0);
        for n in rows {
            let (key, hash) = (n.to_be_bytes(), hash_key(TABLE, &n.to_be_bytes()));
            let (flags, payload) = (VersionFlags::default(), &[csn as u8; 40][..]);
            block.push(BlockOp {
                key: &key,
                hash,
                flags,
                expires_at_ms: 0,
                payload,
                value_offset: None,
                checksum: 0,
            });
        }
        table.apply(block.finish(), Csn(csn), Lsn::NULL);
    };
    (0..20_000).for_each(|n| commit(n..n + 1));
    commit(20_000..40_000);
    assert!(check.charged("commits") > 40_000 * 100);
    let at = ReadPoint { csn: Csn(20_001), now_ms: 0 };
    let get = |n: u64| {
        let key = n.to_be_bytes();
        table.get(&key, hash_key(TABLE, &key), at, Io::Allowed).unwrap().unwrap()
    };
    let (small, large) = (get(17), get(30_000));
    table.freeze(Csn(20_001));
    while table.merge_oldest(&rules(20_001)).unwrap() {}
    table.memtables().reclaim();
    check.charged("merging");
    let block_bytes = 20_000 * 100;
    assert!(memory.memtable_bytes() > block_bytes, "a reader holds a commit's versions: {memory:?}");
    drop(large);
    check.charged("dropping a value");
    range_tombstones(&table, &check);
    assert!(memory.memtable_bytes() < 10_000, "{memory:?}");
    drop(small);
    drop(table);
    assert_eq!(check.charged("dropping the table"), 0);
}
