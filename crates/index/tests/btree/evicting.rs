//! Cursors over nodes that are evicted meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_index::{Base, BaseCursor, IndexError, Io, NodeKind, NodeStore, StoreError};
use fulgurite_types::{Csn, Lsn};

use super::support::*;

fn key(n: u64) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

fn batch(rows: u64, csn: u64) -> Batch {
    (0..rows).map(|n| (key(n), vec![Put::value(csn, format!("{n} {csn}"))])).collect()
}

/// Removes the records that are in no live segment, as freeing segments does.
fn free_dead_segments(store: &MemStore, tree: &fulgurite_index::btree::BTree) {
    let live: BTreeSet<u32> = tree.live_accounts().unwrap().iter().map(|(segment, _)| *segment).collect();
    store.records.lock().unwrap().retain(|lsn, _| live.contains(&lsn.segment()));
}

/// INV-IDX-12: the slots of an inner node that was evicted name old records, which are freed.
#[test]
fn a_cursor_steps_on_after_the_nodes_of_its_path_were_evicted_and_written_anew() {
    const ROWS: u64 = 2_000;
    for backward in [false, true] {
        let store = MemStore::new();
        let tree = fulgurite_index::btree::BTree::empty(TABLE, store.clone(), small_nodes());
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
    let tree = fulgurite_index::btree::BTree::empty(TABLE, store.clone(), small_nodes());
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
    for _ in 0..1000 {
        crossbeam_epoch::pin().flush();
    }
    let lent = tree.memory().lent_bytes();
    assert!(lent <= held + held / 4, "{lent} bytes are held, {held} at first");
    drop(cursors);
    for _ in 0..1000 {
        crossbeam_epoch::pin().flush();
    }
    let memory = tree.memory();
    assert_eq!((memory.node_bytes(), memory.lent_bytes()), (0, 0));
}

/// INV-IDX-12: the leaf that a cursor finds instead may begin before the child that it looks for, or end after it.
#[test]
fn a_cursor_passes_each_key_once_while_leaves_are_joined_cut_and_evicted() {
    for seed in 1..40 {
        let mut rng = Rng(seed);
        let store = MemStore::new();
        let tree = fulgurite_index::btree::BTree::empty(TABLE, store.clone(), small_nodes());
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
    let tree =
        fulgurite_index::btree::BTree::empty(TABLE, std::sync::Arc::new(Slow(store.clone())), small_nodes());
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
