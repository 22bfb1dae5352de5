//! What happens beside each write of a pass that writes a tree out (INV-IDX-11).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use fulgurite_index::btree::{BTree, BTreeOptions, DeltaRule};
use fulgurite_index::{AccountChange, Base, IndexError};
use fulgurite_types::{KeySpan, Lsn};

use crate::support::*;

const ROWS: u64 = 300;

fn options() -> BTreeOptions {
    BTreeOptions { delta_rule: DeltaRule::ByteShare { share: 1 }, max_deltas: 2, ..small_nodes() }
}

/// Rows `from..` in steps of `step`, of one commit.
fn batch(from: u64, step: usize, csn: u64) -> Batch {
    let key = |number: u64| format!("{number:06}").into_bytes();
    (from..ROWS * 10).step_by(step).map(|n| (key(n), vec![Put::value(csn, [csn as u8; 20])])).collect()
}

struct World {
    store: Arc<MemStore>,
    tree: BTree,
    accounts: BTreeMap<u32, i64>,
    /// The newest commit of each row.
    rows: BTreeMap<Vec<u8>, u64>,
}

impl World {
    fn new() -> World {
        let store = MemStore::new();
        let tree = BTree::empty(TABLE, store.clone(), options());
        let mut world = World { store, tree, accounts: BTreeMap::new(), rows: BTreeMap::new() };
        let first = batch(0, 10, 1);
        world.learn(&first);
        merge(&world.tree, &first, &rules(1, &[]));
        world
    }

    fn learn(&mut self, batch: &Batch) {
        self.rows.extend(batch.iter().map(|(key, puts)| (key.clone(), puts[0].csn)));
    }

    fn book(&mut self, changes: &[AccountChange]) {
        for (segment, bytes) in changes {
            *self.accounts.entry(*segment).or_default() += bytes;
        }
        self.accounts.retain(|_, bytes| *bytes != 0);
    }

    /// Writes the tree out in steps of `bytes_max` bytes; returns the root.
    fn write_out(&mut self, bytes_max: usize) -> Lsn {
        let mut pass = self.tree.begin_write_out();
        while !pass.is_done() {
            let changes = self.tree.write_some(&mut pass, bytes_max).unwrap();
            self.book(&changes);
        }
        let report = self.tree.finish_write_out(pass).unwrap();
        self.book(&report.accounts);
        report.root
    }

    /// The rows of the tree below `root`, whose records are those that are booked.
    fn written(&self, root: Lsn) -> BTreeMap<Vec<u8>, u64> {
        let written = BTree::open(TABLE, root, self.store.clone(), options());
        let counted = written.live_accounts().unwrap();
        assert_eq!(counted, self.accounts.clone().into_iter().collect::<Vec<_>>(), "the accounts");
        rows(&written, u64::MAX).into_iter().map(|(key, csn, _)| (key, csn)).collect()
    }
}

/// How many records a pass writes after all leaves have changed.
fn writes() -> u64 {
    let mut world = World::new();
    world.write_out(2000);
    merge(&world.tree, &batch(0, 10, 2), &rules(2, &[]));
    world.tree.write_out().unwrap().records_written.iter().sum()
}

/// What happens beside a write: the changes of accounts that it is given are booked after the pass.
type Accounted = Box<dyn FnOnce(&Mutex<Vec<AccountChange>>) + Send>;

/// Does the work that `work` prepares while the record `after` of a pass is written, and checks that pass and the next.
fn work_beside_write(after: u64, work: impl FnOnce(&mut World) -> Accounted) {
    let mut world = World::new();
    world.write_out(2000);
    let second = batch(0, 10, 2);
    world.learn(&second);
    merge(&world.tree, &second, &rules(2, &[]));
    let mut merged_before = world.rows.clone();
    let work = work(&mut world);
    merged_before.retain(|key, _| world.rows.contains_key(key));
    let changes = Arc::new(Mutex::new(Vec::new()));
    let given = changes.clone();
    *world.store.meanwhile.lock().unwrap() = Some((after, Box::new(move || work(&given))));
    let root = world.write_out(2000);
    assert!(world.store.meanwhile.lock().unwrap().is_none(), "write {after} does not exist");
    world.book(&changes.lock().unwrap());
    let found = world.written(root);
    for (key, csn) in merged_before {
        assert!(found.get(&key) >= Some(&csn), "{key:?} is lost: beside write {after}");
    }
    let root = world.write_out(2000);
    assert_eq!(world.tree.dirty_bytes(), 0);
    assert!(world.written(root) == world.rows, "beside write {after}");
}

/// Beside each write of a pass leaves are cut: all of them, so that inner nodes are cut, too, or a few, so that inner nodes
/// keep their slots. Merges need the tree's lock, so no write holds it. A parent that counts as exact although it names a
/// child's record from before the child's split makes this fail: the accounts lack that record, and the pass after this one
/// loses what was merged into the new leaves.
#[test]
fn leaves_are_cut_beside_each_write() {
    for (after, gap) in (0..writes()).flat_map(|after| [5, 90, 500].map(|gap| (after, gap))) {
        work_beside_write(after, |world| {
            let mut third = batch(3, gap, 3);
            third.extend(batch(4, gap, 3));
            third.extend(batch(6, gap, 3));
            world.learn(&third);
            let tree = world.tree.clone();
            Box::new(move |_| merge(&tree, &third, &rules(3, &[])))
        });
    }
}

/// Beside each write of a pass most rows are removed, so that nodes join at all levels.
#[test]
fn nodes_are_joined_beside_each_write() {
    for after in 0..writes() {
        work_beside_write(after, |world| {
            let removed: Batch = batch(0, 10, 3)
                .into_iter()
                .enumerate()
                .filter(|(index, _)| !index.is_multiple_of(20))
                .map(|(_, (key, _))| (key, vec![Put::tombstone(3)]))
                .collect();
            world.rows.retain(|key, _| !removed.contains_key(key));
            let tree = world.tree.clone();
            Box::new(move |_| merge(&tree, &removed, &rules(3, &[])))
        });
    }
}

/// Beside each write of a pass all leaves change and are written again, as eviction does, before the pass ends.
#[test]
fn leaves_are_written_beside_each_write() {
    for after in 0..writes() {
        work_beside_write(after, |world| {
            let third = batch(0, 10, 3);
            world.learn(&third);
            let tree = world.tree.clone();
            Box::new(move |changes| {
                merge(&tree, &third, &rules(3, &[]));
                let mut pass = tree.begin_write_out();
                changes.lock().unwrap().extend(tree.write_some(&mut pass, 1 << 20).unwrap());
            })
        });
    }
}

/// Steps of any size write each leaf once, and then each inner node.
#[test]
fn steps_leave_out_nothing() {
    for bytes_max in [1, 300, 2000, 5000, 1 << 20] {
        let mut world = World::new();
        world.write_out(bytes_max);
        let second = batch(0, 10, 2);
        world.learn(&second);
        merge(&world.tree, &second, &rules(2, &[]));
        let root = world.write_out(bytes_max);
        assert_eq!(world.tree.dirty_bytes(), 0);
        assert!(world.written(root) == world.rows, "in steps of {bytes_max} bytes");
    }
}

/// A leaf that no record holds is named by its key, and is written when the snapshots that keep its versions are closed.
#[test]
fn a_leaf_that_is_too_long_is_named() {
    let mut world = World::new();
    let root = world.write_out(2000);
    world.store.body_bytes_max.store(2000, Ordering::Relaxed);
    let key = b"000100\xff".to_vec();
    let versions: Vec<Put> = (2..100).rev().map(|csn| Put::value(csn, [0; 30])).collect();
    let snapshots: Vec<u64> = (2..100).collect();
    merge(&world.tree, &Batch::from([(key.clone(), versions)]), &rules(100, &snapshots));
    let refused = |error: IndexError| match error {
        IndexError::LeafTooLong { table, key: named, bytes, bytes_max } => {
            assert_eq!((table, &named, bytes_max), (TABLE, &key, 2000));
            assert!(bytes > 98 * 30);
        }
        error => panic!("{error}"),
    };
    refused(world.tree.write_out().unwrap_err());
    let mut pass = world.tree.begin_write_out();
    refused(world.tree.write_some(&mut pass, 1 << 20).unwrap_err());
    assert_eq!(world.tree.written_root(), root);

    world.tree.purge(KeySpan::new(&b""[..], None), &rules(100, &[])).unwrap();
    world.rows.insert(key, 99);
    let root = world.write_out(2000);
    assert_eq!(world.tree.dirty_bytes(), 0);
    assert!(world.written(root) == world.rows);
}

/// All versions of a key share its bytes in the record, which would be short: but the leaf that is read from it would be too long.
#[test]
fn a_leaf_that_is_too_long_in_memory_is_refused() {
    let world = World::new();
    world.store.body_bytes_max.store(2000, Ordering::Relaxed);
    let key = [&b"000100"[..], &[0xff; 200]].concat();
    let versions: Vec<Put> = (2..32).rev().map(|csn| Put::value(csn, [])).collect();
    let snapshots: Vec<u64> = (2..32).collect();
    merge(&world.tree, &Batch::from([(key.clone(), versions)]), &rules(32, &snapshots));
    let refused = world.tree.write_out().unwrap_err();
    assert!(
        matches!(&refused, IndexError::LeafTooLong { key: named, bytes, .. } if *named == key && *bytes > 30 * 200),
        "{refused}"
    );
}
