//! Nodes that leave segments, and delta records that are too long where room is scarce.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::{Base, DATA_ACCOUNT, NodeKind};
use fulgurite_types::Lsn;

use crate::support::*;

/// Rows of about 100 bytes: a leaf has between 40 and 80 of them. With the inner node above them, they fill segments of the store: the
/// first delta record is in a segment without full ones.
const ROWS: usize = 2_060;

fn batch(rows: impl Iterator<Item = usize>, csn: u64) -> Batch {
    rows.map(|n| (format!("{n:06}").into_bytes(), vec![Put::value(csn, [csn as u8; 80])])).collect()
}

/// A tree that was written out, and of which then every row of number `step` changed.
fn changed(step: usize) -> (Arc<MemStore>, BTree) {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    merge(&tree, &batch(0..ROWS, 1), &rules(1, &[]));
    tree.write_out().unwrap();
    merge(&tree, &batch((0..ROWS).step_by(step), 2), &rules(2, &[]));
    (store, tree)
}

/// The LSNs of full records of leaves.
fn full_records(store: &MemStore) -> Vec<Lsn> {
    let records = store.records.lock().unwrap();
    records.iter().filter(|(_, (kind, _))| *kind == NodeKind::Leaf).map(|(lsn, _)| *lsn).collect()
}

/// Makes the nodes in segments leave them, in steps, and writes the tree out, whether room is scarce or not; returns
/// how many full and delta records of leaves it wrote.
fn write_out(tree: &BTree, leaving: &BTreeSet<u32>, is_scarce: bool) -> (u64, u64) {
    let mut from = Some(Vec::new());
    while let Some(key) = from {
        from = tree.leave_some(leaving, &key, 20_000);
        assert!(from.as_ref().is_none_or(|next| *next > key));
    }
    let mut pass = tree.begin_write_out();
    pass.set_scarce_room(is_scarce);
    let written = tree.finish_write_out(pass).unwrap().records_written;
    assert_eq!(tree.dirty_bytes(), 0);
    (written[NodeKind::Leaf as usize], written[NodeKind::LeafDelta as usize])
}

/// The segments with live bytes, but for the one that the store writes to.
fn sealed(tree: &BTree) -> BTreeSet<u32> {
    let segments = tree.live_accounts().unwrap().into_iter().map(|(segment, _)| segment);
    let mut segments: BTreeSet<u32> = segments.filter(|segment| *segment != DATA_ACCOUNT).collect();
    segments.pop_last();
    segments
}

fn live_in(tree: &BTree, segments: &BTreeSet<u32>) -> i64 {
    let accounts = tree.live_accounts().unwrap();
    accounts.iter().filter(|(segment, _)| segments.contains(segment)).map(|(_, bytes)| bytes).sum()
}

#[test]
fn a_leaf_that_leaves_a_segment_is_written_in_full() {
    let (store, tree) = changed(20);
    let full = full_records(&store);
    let leaving = BTreeSet::from([full[0].segment(), full[11].segment()]);
    let left = full.iter().filter(|lsn| leaving.contains(&lsn.segment())).count() as u64;
    assert!(left > 4 && full.len() as u64 > 2 * left);
    assert_eq!(write_out(&tree, &leaving, false), (left, full.len() as u64 - left));
    assert_eq!(live_in(&tree, &leaving), 0, "the inner nodes above have left, too");
    // The others stay where they are, below their next delta records.
    merge(&tree, &batch((0..ROWS).step_by(20), 3), &rules(3, &[]));
    assert_eq!(write_out(&tree, &leaving, false), (0, full.len() as u64));
}

/// Clean leaves leave, too, in memory or not; one whose delta record alone is there gets the next delta record.
#[test]
fn clean_leaves_leave() {
    for evicts in [false, true] {
        let (store, tree) = changed(20);
        let leaves = full_records(&store).len() as u64;
        let before: BTreeSet<u32> = full_records(&store).iter().map(|lsn| lsn.segment()).collect();
        assert_eq!(write_out(&tree, &BTreeSet::new(), false), (0, leaves));
        if evicts {
            tree.evict(0);
        }
        let of_deltas: BTreeSet<u32> = sealed(&tree).difference(&before).copied().collect();
        let (full, deltas) = write_out(&tree, &of_deltas, false);
        assert!(full == 0 && deltas > leaves - 5);
        assert_eq!(live_in(&tree, &of_deltas), 0);
        let rest = BTreeSet::from([*before.first().unwrap()]);
        let (full, deltas) = write_out(&tree, &rest, false);
        assert!((1..6).contains(&full) && deltas == 0);
        assert_eq!((live_in(&tree, &rest), write_out(&tree, &rest, false)), (0, (0, 0)));
        let all = sealed(&tree);
        let (full, deltas) = write_out(&tree, &all, false);
        assert!(full > leaves - 10 && deltas == 0);
        assert_eq!(live_in(&tree, &all), 0);
        assert_eq!(rows(&tree, 9).len(), ROWS);
    }
}

/// A tree that was opened leaves segments without a read but of the nodes that leave. Of a leaf that was not loaded it knows
/// the newest record only.
#[test]
fn a_tree_that_was_opened_leaves_what_it_knows() {
    let (store, tree) = changed(20);
    let before: BTreeSet<u32> = full_records(&store).iter().map(|lsn| lsn.segment()).collect();
    write_out(&tree, &BTreeSet::new(), false);
    let opened = BTree::open(TABLE, tree.written_root(), store.clone(), BTreeOptions::default());
    let leaves = full_records(&store).len() as u64;
    assert_eq!(write_out(&opened, &before, false), (0, 0));
    get(&opened, b"000100", 9).unwrap();
    assert_eq!(write_out(&opened, &before, false), (1, 0));
    rows(&opened, 9);
    assert_eq!(write_out(&opened, &before, false), (leaves - 1, 0));
    assert_eq!(live_in(&opened, &before), 0);
}

/// A leaf that cannot be read stays, and keeps no other from leaving.
#[test]
fn a_leaf_that_cannot_be_read_stays() {
    let (store, tree) = changed(20);
    let all: BTreeSet<u32> = full_records(&store).iter().map(|lsn| lsn.segment()).collect();
    write_out(&tree, &all, false);
    tree.evict(20_000);
    store.fail_reads.store(true, Ordering::Relaxed);
    let accounts = tree.live_accounts();
    assert!(accounts.is_err());
    let now: BTreeSet<u32> = full_records(&store).iter().map(|lsn| lsn.segment()).collect();
    let (full, _) = write_out(&tree, &now, false);
    assert!(full > 0 && full < full_records(&store).len() as u64 / 2);
}

/// Delta records are up to a half of their leaves, and up to a quarter where room is scarce.
#[test]
fn delta_records_are_short_where_room_is_scarce() {
    for (step, is_scarce, is_delta) in
        [(3, false, true), (3, true, false), (5, true, true), (5, false, true), (1, false, false)]
    {
        let (store, tree) = changed(step);
        let leaves = full_records(&store).len() as u64;
        let expected = if is_delta { (0, leaves) } else { (leaves, 0) };
        assert_eq!(write_out(&tree, &BTreeSet::new(), is_scarce), expected, "one of {step}, {is_scarce}");
    }
}

/// A delta record that is too long where room is scarce moves as a full record, and costs as much.
#[test]
fn a_long_delta_record_moves_as_a_full_one() {
    for (step, is_delta) in [(3, false), (5, true)] {
        let (store, tree) = changed(step);
        write_out(&tree, &BTreeSet::new(), false);
        let records = store.records.lock().unwrap().clone();
        let (lsn, (_, body)) = records.iter().find(|(_, (kind, _))| *kind == NodeKind::LeafDelta).unwrap();
        let cost = tree.rewrite_if_live(*lsn, body).unwrap().unwrap();
        assert_eq!(cost == body.len() as u64, is_delta, "one of {step}: {cost} bytes");
        let expected = if is_delta { (0, 1) } else { (1, 0) };
        assert_eq!(write_out(&tree, &BTreeSet::new(), true), expected);
    }
}
