//! Cursors over nodes that are evicted meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::{
    AccountChange, Base, BaseCursor, EvictionStep, IndexError, Io, MergeSource, NodeKind, NodeStore,
    StoreError,
};
use fulgurite_types::{Csn, Lsn};

use super::support::*;

fn key(n: u64) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

fn batch(rows: u64, csn: u64) -> Batch {
    (0..rows).map(|n| (key(n), vec![Put::value(csn, format!("{n} {csn}"))])).collect()
}

/// Removes the records that are in no live segment, as freeing segments does.
fn free_dead_segments(store: &MemStore, tree: &BTree) {
    let live: BTreeSet<u32> = tree.live_accounts().unwrap().iter().map(|(segment, _)| *segment).collect();
    store.records.lock().unwrap().retain(|lsn, _| live.contains(&lsn.segment()));
}

/// INV-IDX-12: the slots of an inner node that was evicted name old records, which are freed.
#[test]
fn a_cursor_steps_on_after_the_nodes_of_its_path_were_evicted_and_written_anew() {
    const ROWS: u64 = 2_000;
    for backward in [false, true] {
        let store = MemStore::new();
        let tree = BTree::empty(TABLE, store.clone(), small_nodes());
        merge(&tree, &batch(ROWS, 1), &rules(1, &[1]));
        tree.write_out().unwrap();
        let mut cursor = tree.cursor(Csn(1));
        if backward { cursor.seek_back(None) } else { cursor.seek(&[]) }.unwrap();
        for csn in [2, 3] {
            assert_eq!(tree.evict(0), 0);
            merge(&tree, &batch(ROWS, csn), &rules(csn, &[1]));
            tree.write_out().unwrap();
        }
        assert_eq!(tree.evict(0), 0);
        free_dead_segments(&store, &tree);
        for n in 0..ROWS {
            let n = if backward { ROWS - 1 - n } else { n };
            assert_eq!(cursor.key(), Some(&*key(n)));
            assert_eq!(cursor.version().payload, format!("{n} 1").as_bytes());
            if backward { cursor.prev() } else { cursor.next() }.unwrap();
            if n % 500 == 250 {
                tree.evict(0);
            }
        }
        assert_eq!(cursor.key(), None);
    }
}

/// INV-IDX-12: nothing is loaded into slots that no tree has, where eviction does not find it.
#[test]
fn what_cursors_load_can_be_evicted() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    merge(&tree, &batch(20_000, 1), &rules(1, &[]));
    tree.write_out().unwrap();
    let sought = |n: u64| {
        let mut cursor = tree.cursor(Csn(1));
        cursor.seek(&key(n * 100)).unwrap();
        cursor
    };
    let mut cursors: Vec<_> = (0..200).map(sought).collect();
    assert_eq!(tree.evict(0), 0);
    let held = tree.memory().lent_bytes();
    assert!(held > 200 * 256, "each has a leaf: {held}");
    for (n, cursor) in (0u64..).zip(&mut cursors) {
        (0..60).for_each(|_| cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(&*key(n * 100 + 60)));
    }
    assert_eq!(tree.evict(0), 0);
    // Threads of other tests may be pinned, and have to run first.
    let flush_until = |is_done: &dyn Fn() -> bool| {
        for _ in 0..10_000 {
            crossbeam_epoch::pin().flush();
            if is_done() {
                return;
            }
            std::thread::park_timeout(Duration::from_micros(500));
        }
        panic!("{:?}, {held} bytes were held at first", tree.memory());
    };
    flush_until(&|| tree.memory().lent_bytes() <= held + held / 4);
    drop(cursors);
    flush_until(&|| (tree.memory().node_bytes(), tree.memory().lent_bytes()) == (0, 0));
}

/// INV-IDX-14: eviction looks at a tree only while it has something to give.
#[test]
fn a_tree_is_listed_while_it_has_something_to_evict() {
    for rows in [3, 2_000] {
        let store = MemStore::new();
        let tree = BTree::empty(TABLE, store.clone(), small_nodes());
        let memory = tree.memory().clone();
        let is_listed = || memory.next_evictable(None) == Some(TABLE);
        let evict = |write_bytes: usize| {
            let step = EvictionStep { write_bytes, ..EvictionStep::ALL_CLEAN };
            // Two in which a node may be spared, and one that takes it, for each level; and one that finds nothing.
            (0..16).for_each(|_| _ = tree.evict_some(&step).unwrap());
        };
        merge(&tree, &batch(rows, 1), &rules(1, &[]));
        if rows == 2_000 {
            evict(0);
            assert!(is_listed(), "another step may write leaves");
        }
        evict(usize::MAX);
        assert!(!is_listed() && tree.is_dirty(), "only a checkpoint can write the rest");
        tree.write_out().unwrap();
        assert!(is_listed() && memory.next_evictable(Some(TABLE)).is_none());
        evict(0);
        assert!(!is_listed() && tree.resident_bytes() == 0, "nothing is left");
        assert!(tree.get(&key(1), Csn(1), Io::Allowed).unwrap().is_some());
        assert!(is_listed(), "a node was loaded");
        drop(tree);
        assert!(memory.next_evictable(None).is_none(), "the tree is gone");
    }
}

/// INV-IDX-12: the inner nodes that a cursor keeps name slots of leaves that were cut since.
#[test]
fn an_idle_cursor_keeps_no_leaf_that_was_cut_but_its_own() {
    const ROWS: u64 = 2_000;
    for backward in [false, true] {
        let store = MemStore::new();
        let tree = BTree::empty(TABLE, store.clone(), small_nodes());
        merge(&tree, &batch(ROWS, 1), &rules(1, &[1]));
        let mut cursor = tree.cursor(Csn(1));
        if backward { cursor.seek_back(None) } else { cursor.seek(&[]) }.unwrap();
        // All versions stay: leaves are cut, and cut again.
        for csn in 2..6 {
            merge(&tree, &batch(ROWS, csn), &rules(csn, &(1..=csn).collect::<Vec<_>>()));
        }
        tree.write_out().unwrap();
        assert_eq!(tree.evict(0), 0);
        // Other tests may hold the epoch up.
        let is_little = || {
            crossbeam_epoch::pin().flush();
            std::thread::park_timeout(Duration::from_millis(1));
            tree.memory().lent_bytes() < 8 << 10
        };
        assert!((0..5_000).any(|_| is_little()), "one cursor keeps {} bytes", tree.memory().lent_bytes());
        for n in 0..ROWS {
            let n = if backward { ROWS - 1 - n } else { n };
            assert_eq!(cursor.key(), Some(&*key(n)));
            assert_eq!(cursor.version().payload, format!("{n} 1").as_bytes());
            if backward { cursor.prev() } else { cursor.next() }.unwrap();
        }
        assert_eq!(cursor.key(), None);
    }
}

/// INV-IDX-12: the leaf that a cursor finds instead may begin before the child that it looks for, or end after it.
#[test]
fn a_cursor_passes_each_key_once_while_leaves_are_joined_cut_and_evicted() {
    for seed in 1..40 {
        let mut rng = Rng(seed);
        let store = MemStore::new();
        let tree = BTree::empty(TABLE, store.clone(), small_nodes());
        let mut csn = 1;
        merge(&tree, &batch(800, csn), &rules(1, &[1]));
        tree.write_out().unwrap();
        let (mut forward, mut backward) = (tree.cursor(Csn(1)), tree.cursor(Csn(1)));
        forward.seek(&[]).unwrap();
        backward.seek_back(None).unwrap();
        for n in 0..800 {
            if rng.below(20) == 0 {
                csn += 1;
                let from = rng.below(800);
                let rows = from..(from + rng.below(200)).min(800);
                let fresh = |n: u64| {
                    let put = if csn % 2 == 0 { Put::tombstone(csn) } else { Put::value(csn, vec![1; 60]) };
                    (key(n), vec![put])
                };
                merge(&tree, &rows.map(fresh).collect(), &rules(csn, &[1]));
                tree.write_out().unwrap();
                free_dead_segments(&store, &tree);
            }
            if rng.below(10) == 0 {
                tree.evict(rng.below(20_000) as usize);
            }
            assert_eq!(forward.key(), Some(&*key(n)), "seed {seed}");
            assert_eq!(backward.key(), Some(&*key(799 - n)), "seed {seed}");
            assert_eq!(forward.version().payload, format!("{n} 1").as_bytes());
            forward.next().unwrap();
            backward.prev().unwrap();
        }
        assert!(forward.key().is_none() && backward.key().is_none());
    }
}

/// A store whose reads take so long that all threads miss a node before the first of them has it.
struct Slow(std::sync::Arc<MemStore>);

impl NodeStore for Slow {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        std::thread::park_timeout(Duration::from_millis(100));
        self.0.read_node(lsn)
    }

    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        self.0.write_node(kind, body)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        self.0.node_bytes(body_len)
    }
}

#[test]
fn all_that_miss_a_node_share_one_read_and_a_failed_one_is_tried_again() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, std::sync::Arc::new(Slow(store.clone())), small_nodes());
    merge(&tree, &batch(30, 1), &rules(1, &[]));
    tree.write_out().unwrap();
    assert_eq!(tree.evict(0), 0);
    let all_get = || {
        let barrier = std::sync::Barrier::new(8);
        let get = |_| {
            barrier.wait();
            tree.get(&key(7), Csn(1), Io::Allowed).map(|version| version.is_some())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || get(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    };
    store.fail_reads.store(true, Ordering::Relaxed);
    assert!(all_get().iter().all(|found| matches!(found, Err(IndexError::Store { .. }))));
    store.fail_reads.store(false, Ordering::Relaxed);
    store.reads.store(0, Ordering::Relaxed);
    assert!(all_get().iter().all(|found| matches!(found, Ok(true))));
    // A root and a leaf.
    assert_eq!(store.reads.load(Ordering::Relaxed), 2);
}

fn some(slots: usize, write_bytes: usize) -> EvictionStep {
    EvictionStep { slots, write_bytes, ..EvictionStep::ALL_CLEAN }
}

/// INV-IDX-13: what eviction wrote is dirty for the next write-out, whose report counts it; nothing is lost by it.
#[test]
fn dirty_leaves_are_written_and_evicted_and_the_next_report_counts_them() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    merge(&tree, &batch(2_000, 1), &rules(1, &[]));
    let before = tree.resident_bytes();
    let mut written = 0;
    for _ in 0..20_000 {
        written += tree.evict_some(&some(20, 500)).unwrap().written_leaves;
    }
    assert!(written > 400 && tree.resident_bytes() < before / 3, "{written}: {}", tree.resident_bytes());
    assert!(tree.is_dirty() && tree.written_root().is_null());
    let report = tree.write_out().unwrap();
    assert_eq!(report.accounts, tree.live_accounts().unwrap());
    assert_eq!(tree.evict(0), 0);
    assert_eq!(rows(&tree, 1).len(), 2_000);
}

/// INV-IDX-13: an inner node follows its leaves once they were written and evicted, with the slots that it has for them. Merges
/// and write-outs find its newest record, although no other record names it yet.
#[test]
fn dirty_inner_nodes_are_written_and_evicted_and_the_next_report_counts_them() {
    const ROWS: u64 = 2_000;
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    merge(&tree, &batch(ROWS, 1), &rules(1, &[]));
    let mut accounts: BTreeMap<u32, i64> = BTreeMap::new();
    let mut count = |changes: Vec<AccountChange>| {
        changes.into_iter().for_each(|(segment, bytes)| *accounts.entry(segment).or_default() += bytes);
        accounts.retain(|_, bytes| *bytes != 0);
        accounts.clone().into_iter().collect::<Vec<_>>()
    };
    for csn in 2..5 {
        let written: u64 =
            (0..1_000).map(|_| tree.evict_some(&some(1_000, 5_000)).unwrap().written_inner_nodes).sum();
        assert!(written > 10, "{written}");
        // The root is left: a checkpoint sees by it that the tree has changed.
        assert!(tree.resident_bytes() < 1_000 && tree.is_dirty(), "{}", tree.resident_bytes());
        if csn == 3 {
            let report = tree.write_out().unwrap();
            assert_eq!(count(report.accounts), tree.live_accounts().unwrap());
        }
        merge(&tree, &batch(ROWS, csn), &rules(csn, &[]));
    }
    let mut pass = tree.begin_write_out();
    while !pass.is_done() {
        _ = count(tree.write_some(&mut pass, 500).unwrap());
        tree.evict_some(&some(100, 5_000)).unwrap();
    }
    let report = tree.finish_write_out(pass).unwrap();
    assert_eq!(count(report.accounts), tree.live_accounts().unwrap());
    let reopened = BTree::open(TABLE, report.root, store, small_nodes());
    assert_eq!(rows(&reopened, 4).len() as u64, ROWS);
    assert_eq!(rows(&reopened, 4), rows(&tree, 4));
}

/// A checkpoint sees by the root that a tree has changed: a root that is a leaf is written by none but a checkpoint.
#[test]
fn a_root_that_is_a_leaf_is_not_written_by_eviction() {
    let tree = BTree::empty(TABLE, MemStore::new(), small_nodes());
    merge(&tree, &batch(3, 1), &rules(1, &[]));
    for _ in 0..5 {
        assert_eq!(tree.evict_some(&some(usize::MAX, usize::MAX)).unwrap().written_leaves, 0);
    }
    assert!(tree.is_dirty() && tree.resident_bytes() > 0);
}

/// Leaves that cannot be written stay, clean ones go, and later nothing is missing.
#[test]
fn clean_leaves_are_evicted_while_writes_fail() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    merge(&tree, &batch(2_000, 1), &rules(1, &[]));
    tree.write_out().unwrap();
    merge(&tree, &(0..50).map(|n| (key(n), vec![Put::value(2, "new")])).collect(), &rules(2, &[]));
    let (before, dirty) = (tree.resident_bytes(), tree.dirty_bytes());
    store.fail_writes_after(0);
    let outcomes: Vec<_> = (0..4).map(|_| tree.evict_some(&some(usize::MAX, usize::MAX))).collect();
    assert!(outcomes.iter().any(Result::is_err), "{outcomes:?}");
    assert!(tree.resident_bytes() < before / 2 && tree.dirty_bytes() == dirty);
    store.fail_writes_after(u64::MAX);
    tree.write_out().unwrap();
    assert_eq!(tree.evict(0), 0);
    assert_eq!(rows(&tree, 2).iter().filter(|(_, csn, _)| *csn == 2).count(), 50);
}

/// Of reads of a hot set of a third of the memory, how many in a hundred went to disk, with `beside(n)` done before the nth.
fn missed(mut beside: impl FnMut(&BTree, u64)) -> u64 {
    let options = BTreeOptions { leaf_bytes: 1024, inner_bytes: 4096, ..BTreeOptions::default() };
    let tree = BTree::empty(TABLE, MemStore::new(), options);
    merge(&tree, &batch(20_000, 1), &rules(1, &[]));
    tree.write_out().unwrap();
    tree.evict(0);
    let budget = 150_000;
    let mut random = 1u64;
    let (mut missed, reads) = (0, 15_000);
    for n in 0..reads {
        beside(&tree, n);
        if tree.resident_bytes() > budget {
            tree.memory().begin_batch();
            // As eviction does: rounds, and one over all leaves where those over unread ones gave nothing.
            let (mut barren, mut worked) = (0, false);
            while tree.resident_bytes() > budget / 16 * 15 && barren < 4 {
                let unread_only = barren == 0 && tree.memory().has_many_unread();
                let bytes = tree.resident_bytes() - budget / 16 * 15;
                let evicted =
                    tree.evict_some(&EvictionStep { bytes, unread_only, ..some(64, 10_000) }).unwrap();
                worked |= evicted.nodes + evicted.spared + evicted.written_leaves > 0;
                if evicted.is_round_over {
                    barren = if std::mem::take(&mut worked) { 0 } else { barren + 1 };
                    if barren == 2 {
                        tree.write_out().unwrap();
                    }
                }
            }
        }
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let hot = key((random >> 33) % 2_000);
        missed += u64::from(tree.get(&hot, Csn(1), Io::MemoryOnly).is_err());
        drop(get(&tree, &hot, 1));
    }
    missed * 100 / reads
}

#[test]
fn leaves_that_are_read_often_stay_beside_scans() {
    let mut cursor = None;
    let forward = missed(|tree, n| {
        let cursor = cursor.get_or_insert_with(|| tree.cursor(Csn(1)));
        match n {
            0 => cursor.seek(&key(4_000)).unwrap(),
            _ => cursor.next().unwrap(),
        }
    });
    // Most of a leaf for each read of the hot set, against the hand.
    let mut cursor = None;
    let reverse = missed(|tree, _| {
        let cursor = cursor.get_or_insert_with(|| tree.cursor(Csn(1)));
        for _ in 0..16 {
            match cursor.key() {
                Some(key) if key >= &*self::key(4_000) => cursor.prev().unwrap(),
                _ => cursor.seek_back(None).unwrap(),
            }
        }
    });
    // A leaf has some twenty rows: pages of five pass each leaf four times.
    let pages = missed(|tree, n| {
        let mut cursor = tree.cursor(Csn(1));
        cursor.seek(&key(4_000 + n / 5 * 5)).unwrap();
    });
    assert!(forward <= 1 && reverse <= 12 && pages <= 1, "{forward}, {reverse}, {pages} in a hundred");
}

#[test]
fn leaves_that_are_read_often_stay_beside_merges_into_others() {
    let merges = missed(|tree, n| {
        let at = 4_000 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 16_000;
        let change = vec![Put::value(n + 2, "changed".to_string())];
        merge(tree, &BTreeMap::from([(key(at), change)]), &rules(n + 2, &[]));
    });
    assert!(merges <= 18, "{merges} in a hundred");
}

/// A store that has another thread evict while a node is read from it, if it has one: asks, and waits for the answer.
struct EvictsMeanwhile(Arc<MemStore>, Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl NodeStore for EvictsMeanwhile {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        if let Some((ask, answer)) = &*self.1.lock().unwrap() {
            ask.send(())?;
            answer.recv_timeout(Duration::from_secs(20)).map_err(|_| "eviction waits for this read")?;
        }
        self.0.read_node(lsn)
    }

    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        self.0.write_node(kind, body)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        self.0.node_bytes(body_len)
    }
}

/// A merge holds the tree's lock, which eviction takes, over no read.
#[test]
fn eviction_does_not_wait_for_a_read_of_a_merge() {
    let store = Arc::new(EvictsMeanwhile(MemStore::new(), Mutex::default()));
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    merge(&tree, &batch(2_000, 1), &rules(1, &[]));
    tree.write_out().unwrap();
    tree.evict(0);
    let ((ask, asked), (done, answer)) = (channel(), channel());
    *store.1.lock().unwrap() = Some((ask, answer));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for () in asked {
                tree.evict_some(&some(1, 0)).unwrap();
                _ = done.send(());
            }
        });
        let sparse =
            (0..2_000).step_by(150).map(|n| (key(n), vec![Put::value(2, format!("{n} 2"))])).collect();
        let mut source = Source::new(&sparse);
        let mut outcome = Ok(());
        while outcome.is_ok() && source.peek_key().is_some() {
            outcome = tree.merge_some(&mut source, &rules(2, &[]), 5000);
        }
        *store.1.lock().unwrap() = None;
        outcome.unwrap();
    });
    assert_eq!(rows(&tree, 2).iter().filter(|(_, csn, _)| *csn == 2).count(), 14);
}

#[expect(clippy::disallowed_methods, reason = "a thread that hangs must not hang the test")]
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, answer) = channel();
    std::thread::spawn(move || _ = done.send(work()));
    answer.recv_timeout(Duration::from_secs(20)).ok()
}

/// A root that took over the node of its only child, whose slot left the tree, counted as one that had left: a seek began again
/// for ever.
#[test]
fn a_cursor_seeks_in_a_tree_that_lost_a_level() {
    for kept in [20, 40, 60, 100, 200, 300] {
        let store = MemStore::new();
        let tree = BTree::empty(TABLE, store.clone(), small_nodes());
        merge(&tree, &batch(2_000, 1), &rules(1, &[]));
        tree.write_out().unwrap();
        merge(&tree, &(kept..2_000).map(|n| (key(n), vec![Put::tombstone(2)])).collect(), &rules(2, &[]));
        tree.write_out().unwrap();
        // Some leaves go, the root stays.
        let resident = tree.resident_bytes();
        let left = tree.evict(resident - resident / 4);
        let seeking = tree.clone();
        let found = within(move || {
            let mut cursor = seeking.cursor(Csn(2));
            cursor.seek(&[]).unwrap();
            let mut n = 0;
            while cursor.key().is_some() {
                n += 1;
                cursor.next().unwrap();
            }
            n
        });
        assert_eq!(found, Some(kept), "kept {kept}, resident {resident}, left {left}");
    }
}

/// A store that evicts everything in the middle of each read, if it has a tree.
struct EvictsAll(Arc<MemStore>, Mutex<Option<BTree>>);

impl NodeStore for EvictsAll {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        let body = self.0.read_node(lsn);
        let tree = self.1.lock().unwrap().clone();
        if let Some(tree) = tree {
            tree.evict(0);
        }
        body
    }

    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        self.0.write_node(kind, body)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        self.0.node_bytes(body_len)
    }
}

/// The node above is evicted while a cursor reads an inner node below it, which goes into a slot that no tree has, and does
/// not know it.
#[test]
fn a_cursor_steps_on_after_the_node_above_was_evicted_during_its_read() {
    const ROWS: u64 = 2_000;
    let mem = MemStore::new();
    let store = Arc::new(EvictsAll(mem.clone(), Mutex::default()));
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    merge(&tree, &batch(ROWS, 1), &rules(1, &[1]));
    tree.write_out().unwrap();
    assert_eq!(tree.evict(0), 0);
    let mut cursor = tree.cursor(Csn(1));
    *store.1.lock().unwrap() = Some(tree.clone());
    cursor.seek(&[]).unwrap();
    *store.1.lock().unwrap() = None;
    // Every leaf is written anew, and the old records are freed.
    for csn in [2, 3] {
        merge(&tree, &batch(ROWS, csn), &rules(csn, &[1]));
        tree.write_out().unwrap();
    }
    tree.evict(0);
    free_dead_segments(&mem, &tree);
    for n in 0..ROWS {
        assert_eq!(cursor.key(), Some(&*key(n)));
        cursor.next().unwrap_or_else(|error| panic!("row {n}: {error}"));
    }
    assert_eq!(cursor.key(), None);
}
