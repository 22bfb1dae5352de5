//! Records that are moved out of their segments.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_index::btree::{
    BTree, BTreeOptions, EntryInfo, NodeDescription, RecordInfo, TreeVisitor, describe,
};
use fulgurite_index::{AccountChange, Base, EvictionStep, IndexError, MovedNodes, NodeKind};
use fulgurite_types::Lsn;

use crate::support::*;

const ROWS: usize = 2_000;

fn key(n: usize) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

fn batch(rows: impl Iterator<Item = usize>, csn: u64) -> Batch {
    rows.map(|n| (key(n), vec![Put::value(csn, [csn as u8; 80])])).collect()
}

struct World {
    store: Arc<MemStore>,
    tree: BTree,
    /// What reports have named.
    accounts: Vec<AccountChange>,
}

impl World {
    /// A tree on disk: every leaf has a full record, those of every fourth row of the first half a leaf delta record, too.
    fn new() -> World {
        let store = MemStore::new();
        let options = BTreeOptions { inner_bytes: 200, ..BTreeOptions::default() };
        let tree = BTree::empty(TABLE, store.clone(), options);
        let mut world = World { store, tree, accounts: Vec::new() };
        merge(&world.tree, &batch(0..ROWS, 1), &rules(1, &[]));
        world.write_out();
        merge(&world.tree, &batch((0..ROWS / 2).step_by(20), 2), &rules(2, &[]));
        world.write_out();
        world.evict();
        world
    }

    fn evict(&self) {
        self.tree.evict_some(&EvictionStep { write_bytes: usize::MAX, ..EvictionStep::ALL_CLEAN }).unwrap();
        self.tree.evict(0);
    }

    /// Reads all leaves once, and evicts them: the inner nodes stay, and know where the full records are.
    fn evict_leaves(&self) {
        rows(&self.tree, 9);
        self.tree.evict_some(&EvictionStep { unread_only: true, ..EvictionStep::ALL_CLEAN }).unwrap();
        self.store.reads.store(0, Ordering::Relaxed);
    }

    /// The reports add up to the records on disk.
    fn write_out(&mut self) {
        self.accounts.extend(self.tree.write_out().unwrap().accounts);
        self.accounts.sort_unstable();
        self.accounts.dedup_by(|later, first| {
            let is_same = later.0 == first.0;
            first.1 += if is_same { later.1 } else { 0 };
            is_same
        });
        self.accounts.retain(|(_, bytes)| *bytes != 0);
        assert_eq!(self.accounts, self.tree.live_accounts().unwrap());
    }

    fn records(&self, kind: NodeKind) -> Vec<(Lsn, Vec<u8>)> {
        let records = self.store.records.lock().unwrap();
        let of_kind = records.iter().filter(|(_, (own, _))| *own == kind);
        of_kind.map(|(lsn, (_, body))| (*lsn, body.clone())).collect()
    }

    fn move_all(&self, records: &[(Lsn, Vec<u8>)]) -> MovedNodes {
        let records: Vec<_> = records.iter().map(|(lsn, body)| (*lsn, &body[..])).collect();
        self.tree.move_records(&records, false).unwrap()
    }

    /// The records of the written tree.
    fn live(&self) -> BTreeSet<Lsn> {
        struct Live(BTreeSet<Lsn>);
        impl TreeVisitor for Live {
            fn record(&mut self, record: RecordInfo) -> Result<(), IndexError> {
                self.0.insert(record.lsn);
                Ok(())
            }

            fn entry(&mut self, _: EntryInfo<'_>) -> Result<(), IndexError> {
                Ok(())
            }
        }
        let mut live = Live(BTreeSet::new());
        self.tree.walk_written(self.tree.written_root(), &mut live).unwrap();
        live.0
    }

    /// How many records were read since the last call.
    fn reads(&self) -> u64 {
        self.store.reads.swap(0, Ordering::Relaxed)
    }

    fn check(mut self, csn: u64) {
        self.write_out();
        assert_eq!(rows(&self.tree, csn).len(), ROWS);
        let opened =
            BTree::open(TABLE, self.tree.written_root(), self.store.clone(), BTreeOptions::default());
        assert_eq!(rows(&opened, csn), rows(&self.tree, csn));
    }
}

/// Bytes of records, as the accounts count them.
fn bytes_of(records: &[(Lsn, Vec<u8>)]) -> u64 {
    records.iter().map(|(_, body)| body.len() as u64 + 32).sum()
}

#[test]
fn records_of_leaves_on_disk_are_copied_as_they_are() {
    let world = World::new();
    world.evict_leaves();
    let (full, deltas) = (world.records(NodeKind::Leaf), world.records(NodeKind::LeafDelta));
    let alone = &full[deltas.len()..];
    assert!(deltas.len() > 5 && alone.len() > 5);
    assert_eq!(world.move_all(&deltas), MovedNodes { bytes: bytes_of(&deltas), copied: bytes_of(&deltas) });
    assert_eq!(world.move_all(alone), MovedNodes { bytes: bytes_of(alone), copied: bytes_of(alone) });
    assert_eq!(world.reads(), 0, "nothing is read, and no leaf is loaded");
    let now = world.records(NodeKind::Leaf);
    assert!(now[full.len()..].iter().map(|(_, body)| body).eq(alone.iter().map(|(_, body)| body)));
    assert_eq!(world.move_all(&deltas), MovedNodes::default(), "they have moved");
    assert_eq!(world.move_all(alone), MovedNodes::default());
    world.check(9);
}

/// The leaf delta record is read, and the full one is what both make.
#[test]
fn a_full_record_takes_its_delta_record_along() {
    let world = World::new();
    let (full, deltas) = (world.records(NodeKind::Leaf), world.records(NodeKind::LeafDelta));
    let changed = &full[..deltas.len()];
    world.evict_leaves();
    let moved = world.move_all(changed);
    assert_eq!((moved.bytes, world.reads()), (moved.copied, deltas.len() as u64));
    let now = world.records(NodeKind::Leaf);
    assert_eq!(moved.bytes, bytes_of(&now[full.len()..]));
    assert_eq!(world.move_all(changed), MovedNodes::default());
    assert_eq!(world.move_all(&deltas), MovedNodes::default(), "it is part of the full one");
    assert_eq!(world.reads(), 0, "where a full record is, is known of a leaf that was loaded once");
    assert_eq!(get(&world.tree, &key(20), 9).unwrap().0, 2);
    world.check(9);
}

/// It knows its former record as its own.
#[test]
fn a_leaf_that_is_in_memory_becomes_dirty() {
    let mut world = World::new();
    rows(&world.tree, 9);
    let full = world.records(NodeKind::Leaf);
    let inner = world.records(NodeKind::Internal);
    let moved = world.move_all(&full);
    assert!(moved.bytes > 0 && moved.copied == 0);
    assert!(world.tree.dirty_bytes() > 0);
    world.write_out();
    assert_eq!(world.move_all(&full), MovedNodes::default());
    assert_eq!(world.move_all(&inner), MovedNodes::default(), "their records name the new ones");
    world.check(9);
}

/// INV-IDX-15: while the copies are written, leaves are loaded, changed, written again, or found in other slots, because the inner
/// node above was evicted.
#[test]
fn what_happens_meanwhile_counts() {
    type Meanwhile = fn(&BTree);
    let cases: [(&str, Meanwhile); 5] = [
        ("read", |tree| _ = rows(tree, 9)),
        ("read and evicted", |tree| {
            rows(tree, 9);
            tree.evict(0);
        }),
        ("evicted, with the inner nodes, and read", |tree| {
            tree.evict(0);
            rows(tree, 9);
        }),
        ("evicted, with the inner nodes", |tree| {
            tree.evict(0);
            rows(tree, 9);
            tree.evict(0);
        }),
        ("changed, written and evicted", |tree| {
            merge(tree, &batch((0..ROWS).step_by(20), 3), &rules(3, &[]));
            tree.evict_some(&EvictionStep { write_bytes: usize::MAX, ..EvictionStep::ALL_CLEAN }).unwrap();
            tree.evict(0);
        }),
    ];
    for (what, meanwhile) in cases {
        for kind in [NodeKind::Leaf, NodeKind::LeafDelta] {
            let mut world = World::new();
            let records = world.records(kind);
            let tree = world.tree.clone();
            *world.store.meanwhile.lock().unwrap() = Some((3, Box::new(move || meanwhile(&tree))));
            world.move_all(&records);
            assert!(world.store.meanwhile.lock().unwrap().is_none(), "{what}");
            let newest = if what.starts_with("changed") { 3 } else { 2 };
            assert_eq!(get(&world.tree, &key(20), 9).unwrap().0, newest, "{what}");
            world.write_out();
            assert_eq!(get(&world.tree, &key(20), 9).unwrap().0, newest, "{what}");
            let lsns: BTreeSet<Lsn> = records.iter().map(|(lsn, _)| *lsn).collect();
            assert!(world.live().is_disjoint(&lsns), "{what}: a record was left where it was");
            // The next records are based on those that were moved.
            merge(&world.tree, &batch((7..ROWS).step_by(20), 4), &rules(4, &[]));
            world.write_out();
            assert!(world.live().is_disjoint(&lsns), "{what}: a record is based on one that was moved");
            world.check(9);
        }
    }
}

/// Records that were written before a failure are installed, and the rest stays.
#[test]
fn a_failed_write_moves_no_more() {
    let world = World::new();
    let full = world.records(NodeKind::Leaf);
    world.store.fail_writes_after(4);
    let records: Vec<_> = full.iter().map(|(lsn, body)| (*lsn, &body[..])).collect();
    assert!(world.tree.move_records(&records, false).is_err());
    world.store.fail_writes_after(u64::MAX);
    assert_eq!(world.records(NodeKind::Leaf).len(), full.len() + 4);
    world.check(9);
}

/// Records below an inner node that cannot be read stay where they are, and no others.
#[test]
fn an_unreadable_inner_node_keeps_the_records_below_it() {
    let mut world = World::new();
    let root = world.tree.written_root();
    let live = world.live();
    let inner = world.records(NodeKind::Internal).into_iter().filter(|(lsn, _)| live.contains(lsn));
    let inner: Vec<_> = inner.map(|(lsn, body)| (lsn, describe(body).unwrap())).collect();
    let above_leaves = || inner.iter().filter(|(lsn, node)| node.level == 1 && *lsn != root);
    let children =
        |node: &NodeDescription| node.children.iter().map(|(_, lsn)| *lsn).collect::<BTreeSet<_>>();
    let (bad, node) = above_leaves().max_by(|a, b| a.1.lower.cmp(&b.1.lower)).unwrap();
    // Full records that have no leaf delta record.
    let newest: BTreeSet<Lsn> = above_leaves().flat_map(|(_, node)| children(node)).collect();
    let records: Vec<_> =
        world.records(NodeKind::Leaf).into_iter().filter(|(lsn, _)| newest.contains(lsn)).collect();
    let removed = world.store.records.lock().unwrap().remove(bad).unwrap();
    world.tree = BTree::open(TABLE, root, world.store.clone(), BTreeOptions::default());
    let given: Vec<_> = records.iter().map(|(lsn, body)| (*lsn, &body[..])).collect();
    let moved = world.tree.move_records(&given, false);
    assert!(matches!(&moved, Err(IndexError::Store { lsn, .. }) if lsn == bad), "{moved:?}");
    world.store.records.lock().unwrap().insert(*bad, removed);
    world.tree.write_out().unwrap();
    let live = world.live();
    let stayed: BTreeSet<Lsn> =
        records.iter().map(|(lsn, _)| *lsn).filter(|lsn| live.contains(lsn)).collect();
    let below: BTreeSet<Lsn> = children(node).into_iter().filter(|lsn| newest.contains(lsn)).collect();
    let below: BTreeSet<Lsn> =
        below.into_iter().filter(|lsn| records.iter().any(|(own, _)| own == lsn)).collect();
    assert!(!below.is_empty() && records.len() > below.len() + 5);
    assert_eq!(stayed, below);
    assert_eq!(rows(&world.tree, 9).len(), ROWS);
}
