//! The bytes of each record kind on disk. They never change; `docs/format/node.md` explains them.

use fulgurite_index::btree::{BTree, BTreeOptions, describe};
use fulgurite_index::{Base, Io, NodeKind, VersionFlags};
use fulgurite_types::Csn;

use crate::support::*;

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(32)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
        .collect()
}

fn record(store: &MemStore, kind: NodeKind, nth: usize) -> String {
    let records = store.records.lock().unwrap();
    hex(&records.values().filter(|(own, _)| *own == kind).nth(nth).expect("such a record was written").1)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Version 1 of the records, of the same nodes as those of the other tests.
#[test]
fn records_of_version_1_have_the_same_contents() {
    for (old, new) in [
        (include_str!("golden/internal_v1.hex"), include_str!("golden/internal.hex")),
        (include_str!("golden/internal_dues_v1.hex"), include_str!("golden/internal_dues.hex")),
        (include_str!("golden/leaf_v1.hex"), include_str!("golden/leaf.hex")),
        (include_str!("golden/leaf_bounded_v1.hex"), include_str!("golden/leaf_bounded.hex")),
        (include_str!("golden/leaf_delta_v1.hex"), include_str!("golden/leaf_delta.hex")),
    ] {
        let (old, new) = (bytes(old), bytes(new));
        assert_eq!((old[1], new[1]), (1, 2), "the versions");
        assert_eq!(describe(old).unwrap(), describe(new).unwrap());
    }
}

#[test]
fn leaf() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    let expiring =
        Put { csn: 9, flags: VersionFlags::EXPIRES, expires_at_ms: 0x0102_0304, payload: b"soon".to_vec() };
    let batch = Batch::from([
        (b"".to_vec(), vec![Put::value(3, *b"empty key")]),
        (b"apple".to_vec(), vec![Put::tombstone(8), Put::value(5, *b"red")]),
        (b"banana".to_vec(), vec![expiring]),
    ]);
    merge(&tree, &batch, &rules(9, &[6]));
    tree.write_out().unwrap();
    assert_eq!(record(&store, NodeKind::Leaf, 0), include_str!("golden/leaf.hex"));
}

#[test]
fn internal_and_bounded_leaf() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let batch: Batch =
        (0..8).map(|n| (format!("key{n}").into_bytes(), vec![Put::value(n + 1, [n as u8; 20])])).collect();
    merge(&tree, &batch, &rules(9, &[]));
    tree.write_out().unwrap();
    assert_eq!(record(&store, NodeKind::Leaf, 0), include_str!("golden/leaf_bounded.hex"));
    assert_eq!(record(&store, NodeKind::Internal, 0), include_str!("golden/internal.hex"));
}

/// Purges of some leaves are due one day: the record of the node above has the times.
#[test]
fn internal_with_dues() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let put = |n: u64| match n {
        3 => Put { csn: 4, flags: VersionFlags::EXPIRES, expires_at_ms: 0x0102_0304, payload: vec![3; 20] },
        n => Put::value(n + 1, [n as u8; 20]),
    };
    let batch: Batch = (0..8).map(|n| (format!("key{n}").into_bytes(), vec![put(n)])).collect();
    merge(&tree, &batch, &rules(9, &[]));
    let root = tree.write_out().unwrap().root;
    assert_eq!(record(&store, NodeKind::Internal, 0), include_str!("golden/internal_dues.hex"));
    let due = 0x0102_0304_u32.div_ceil(1000);
    let reopened = BTree::open(TABLE, root, store, small_nodes());
    for tree in [tree, reopened] {
        assert!(tree.due_leaves(&[], due - 1).unwrap().due.is_none());
        assert_eq!(tree.purge_due(), due);
        let found = tree.due_leaves(&[], due).unwrap().due;
        let found = found.expect("the leaf of the row that expires");
        assert!(&*found.start <= b"key3" && found.end.is_none_or(|end| &*end > b"key3"));
    }
}

#[test]
fn leaf_delta() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    let batch: Batch =
        (0..30).map(|n| (format!("key{n:02}").into_bytes(), vec![Put::value(1, [n as u8; 20])])).collect();
    merge(&tree, &batch, &rules(1, &[]));
    tree.write_out().unwrap();
    let batch = Batch::from([
        (b"key07".to_vec(), vec![Put::tombstone(2)]),
        (b"key11".to_vec(), vec![Put::value(4, *b"new"), Put::value(3, *b"kept")]),
    ]);
    merge(&tree, &batch, &rules(4, &[3]));
    let root = tree.write_out().unwrap().root;
    assert_eq!(record(&store, NodeKind::LeafDelta, 0), include_str!("golden/leaf_delta.hex"));
    let tree = BTree::open(TABLE, root, store, BTreeOptions::default());
    assert_eq!(tree.newest_csn(b"key07", Io::Allowed).unwrap(), None);
    assert_eq!(tree.newest_csn(b"key11", Io::Allowed).unwrap(), Some(Csn(4)));
    assert_eq!(get(&tree, b"key11", 3), Some((3, b"kept".to_vec())));
    assert_eq!(rows(&tree, 9).len(), 29);
}
