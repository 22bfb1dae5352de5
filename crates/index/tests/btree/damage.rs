//! Damaged records give an error that names the record, or a readable tree; never a panic.

use std::sync::Arc;

use fulgurite_index::btree::{BTree, describe};
use fulgurite_index::{Base, BaseCursor, IndexError, Io, NodeKind};
use fulgurite_types::{Csn, KeySpan, Lsn, key_after};

use crate::support::*;

fn build() -> (Arc<MemStore>, Lsn, Batch) {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let mut batch = Batch::new();
    for number in 0..60u64 {
        let versions = vec![Put::value(100 + number, [1; 12]), Put::value(number, [2; 10])];
        batch.insert(format!("key{:03}", number * 7).into_bytes(), versions);
    }
    merge(&tree, &batch, &rules(200, &[99]));
    tree.write_out().unwrap();
    merge(&tree, &Batch::from([(b"key014".to_vec(), vec![Put::value(300, *b"x")])]), &rules(300, &[99]));
    let root = tree.write_out().unwrap().root;
    (store, root, batch)
}

/// Reads everything; fails if a part cannot be read.
fn read_all(store: &Arc<MemStore>, root: Lsn, batch: &Batch) -> Result<usize, IndexError> {
    let tree = BTree::open(TABLE, root, store.clone(), small_nodes());
    for key in batch.keys() {
        tree.get(key, Csn(150), Io::Allowed)?;
        tree.newest_csn(key, Io::Allowed)?;
    }
    let mut cursor = tree.cursor(Csn::MAX);
    cursor.seek(&[])?;
    let mut rows = 0;
    while cursor.key().is_some() {
        cursor.version();
        cursor.next()?;
        rows += 1;
    }
    cursor.seek_back(None)?;
    while cursor.key().is_some() {
        cursor.prev()?;
    }
    tree.merge(&mut Source::new(batch), &rules(300, &[]))?;
    tree.evict(0);
    Ok(rows)
}

/// A fence that separates "k" from "k\0x" is "k\0", the end of a range that ends with "k".
#[test]
fn a_reverse_scan_reads_no_leaf_after_its_end() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let keys = (0..60u64).flat_map(|number| ["", "\0x", "\0y"].map(|end| format!("key{number:03}{end}")));
    let batch: Batch = keys.map(|key| (key.into_bytes(), vec![Put::value(7, [1; 12])])).collect();
    merge(&tree, &batch, &rules(200, &[]));
    let root = tree.write_out().unwrap().root;
    let records = store.records.lock().unwrap().clone();
    let mut is_fence_met = false;
    for (lsn, (_, body)) in &records {
        let node = describe(body.clone()).unwrap();
        if node.kind != NodeKind::Leaf {
            continue;
        }
        store.records.lock().unwrap().get_mut(lsn).unwrap().1[0] ^= 1;
        for key in batch.keys().filter(|key| **key < node.lower) {
            let tree = BTree::open(TABLE, root, store.clone(), small_nodes());
            let mut cursor = tree.cursor(Csn::MAX);
            let end = key_after(key);
            is_fence_met |= *end == *node.lower;
            cursor.seek_back(Some(&end)).expect("the damaged leaf is after the range");
            assert_eq!(cursor.key(), Some(&key[..]));
        }
        *store.records.lock().unwrap() = records.clone();
    }
    assert!(is_fence_met, "no range ends at a fence");
}

#[test]
fn no_flipped_bit_panics() {
    let (store, root, batch) = build();
    assert_eq!(read_all(&store, root, &batch).unwrap(), batch.len());
    let lsns: Vec<Lsn> = store.records.lock().unwrap().keys().copied().collect();
    let (mut caught, mut rng) = (0, Rng(3));
    for lsn in lsns {
        let whole = store.records.lock().unwrap()[&lsn].1.clone();
        for byte in 0..whole.len() {
            store.records.lock().unwrap().get_mut(&lsn).unwrap().1[byte] ^= 1 << rng.below(8);
            caught += usize::from(check(read_all(&store, root, &batch)));
            store.records.lock().unwrap().get_mut(&lsn).unwrap().1.clone_from(&whole);
        }
    }
    assert!(caught > 500, "{caught} flips were caught");
}

/// Whether damage was found.
fn check(result: Result<usize, IndexError>) -> bool {
    match result {
        Ok(_) => false,
        Err(IndexError::Corrupt { table, .. }) => {
            assert_eq!(table, TABLE);
            true
        }
        Err(IndexError::Store { .. }) => true,
        Err(IndexError::WouldBlock | IndexError::Unordered) => panic!("reads were allowed"),
        Err(error @ IndexError::LeafTooLong { .. }) => panic!("{error}"),
    }
}

#[test]
fn no_cut_or_noise_panics() {
    let (store, root, batch) = build();
    let mut rng = Rng(9);
    let lsns: Vec<Lsn> = store.records.lock().unwrap().keys().copied().collect();
    for round in 0..3000 {
        let lsn = if round % 2 == 0 { root } else { lsns[rng.below(lsns.len() as u64) as usize] };
        let whole = store.records.lock().unwrap()[&lsn].1.clone();
        let mut damaged = whole.clone();
        match rng.below(3) {
            0 => damaged.truncate(rng.below(whole.len() as u64) as usize),
            1 => damaged.extend((0..rng.below(40)).map(|_| 0)),
            _ => {
                let from = rng.below(whole.len() as u64) as usize;
                damaged[from..].iter_mut().take(8).for_each(|byte| *byte = rng.next() as u8);
            }
        }
        store.records.lock().unwrap().get_mut(&lsn).unwrap().1 = damaged;
        check(read_all(&store, root, &batch));
        store.records.lock().unwrap().get_mut(&lsn).unwrap().1 = whole;
    }
}

#[test]
fn errors_name_the_record() {
    let (store, root, batch) = build();
    store.records.lock().unwrap().get_mut(&root).unwrap().1[8] ^= 1;
    match read_all(&store, root, &batch) {
        Err(IndexError::Corrupt { lsn, what, .. }) => {
            assert_eq!(lsn, root);
            assert!(what.contains("table"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    store.records.lock().unwrap().remove(&root);
    assert!(matches!(read_all(&store, root, &batch), Err(IndexError::Store { lsn, .. }) if lsn == root));
}

/// All keys of a cursor that skips unreadable nodes, and the spans that it skipped.
fn read_around(store: &Arc<MemStore>, root: Lsn, forward: bool) -> (Vec<Vec<u8>>, Vec<KeySpan>) {
    let tree = BTree::open(TABLE, root, store.clone(), small_nodes());
    let mut cursor = tree.cursor(Csn::MAX);
    let (mut keys, mut unread) = (Vec::new(), Vec::new());
    let mut moved = match forward {
        true => cursor.seek(&[]),
        false => cursor.seek_back(None),
    };
    loop {
        moved = match moved {
            Ok(()) => {
                assert_eq!(cursor.unread(), None);
                let Some(key) = cursor.key() else { return (keys, unread) };
                keys.push(key.to_vec());
                if forward { cursor.next() } else { cursor.prev() }
            }
            Err(_) => {
                unread.push(cursor.unread().expect("a node was not read"));
                assert!(cursor.key().is_none());
                cursor.skip_unread(forward)
            }
        };
    }
}

/// One bad node costs its own keys and no others: each key is returned, or is in a reported span.
#[test]
fn a_cursor_continues_after_nodes_that_cannot_be_read() {
    let (store, root, batch) = build();
    let whole = store.records.lock().unwrap().clone();
    let lsns: Vec<Lsn> = whole.keys().copied().collect();
    let (mut rng, mut passed, mut given) = (Rng(5), 0, 0);
    for round in 0..400 {
        let bad: Vec<Lsn> = (0..1 + round % 4).map(|_| lsns[rng.below(lsns.len() as u64) as usize]).collect();
        bad.iter().for_each(|lsn| {
            store.records.lock().unwrap().remove(lsn);
        });
        let (keys, spans) = read_around(&store, root, true);
        let (mut backward, mut spans_backward) = read_around(&store, root, false);
        store.records.lock().unwrap().clone_from(&whole);
        backward.reverse();
        spans_backward.reverse();
        assert_eq!((&keys, &spans), (&backward, &spans_backward), "{bad:?}");
        for key in batch.keys() {
            let unread = spans.iter().filter(|span| span.contains(key)).count();
            assert_eq!(unread + usize::from(keys.contains(key)), 1, "{key:?}: {spans:?}");
        }
        passed += spans.len();
        given += keys.len();
    }
    assert!(passed > 200 && given > 400 * batch.len() / 4, "{passed} spans passed, {given} keys given");
}

/// One bad node keeps nothing else from being merged, however small its neighbours become: what was merged does not depend on
/// them. Once the node can be read again the tree is as if it always could.
#[test]
fn neighbours_of_a_node_that_cannot_be_read_become_empty() {
    let (store, root, batch) = build();
    let whole = store.records.lock().unwrap().clone();
    let mut tried = 0;
    for (lsn, record) in whole.iter().filter(|(lsn, _)| **lsn != root) {
        *store.records.lock().unwrap() = whole.clone();
        store.records.lock().unwrap().remove(lsn);
        let (_, unread) = read_around(&store, root, true);
        let [bad] = &unread[..] else { continue };
        let tree = BTree::open(TABLE, root, store.clone(), small_nodes());
        let others = || batch.keys().filter(|key| !bad.contains(key));
        for key in others() {
            let tombstone = Batch::from([(key.clone(), vec![Put::tombstone(400)])]);
            tree.merge(&mut Source::new(&tombstone), &rules(400, &[])).unwrap();
        }
        assert_eq!(others().filter(|key| tree.newest_csn(key, Io::Allowed).unwrap().is_some()).count(), 0);
        let written = tree.write_out().unwrap().root;
        assert_eq!(read_around(&store, written, true), (Vec::new(), unread.clone()));
        store.records.lock().unwrap().insert(*lsn, record.clone());
        let tree = BTree::open(TABLE, written, store.clone(), small_nodes());
        let left: Vec<_> = rows(&tree, 400).into_iter().map(|(key, ..)| key).collect();
        let expected: Vec<_> = batch.keys().filter(|key| bad.contains(key)).cloned().collect();
        assert_eq!(left, expected, "{bad:?}");
        merge(&tree, &batch, &rules(500, &[]));
        assert_eq!(rows(&tree, 500).len(), batch.len());
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}

/// Leaves that are due are found behind an inner node that cannot be read.
#[test]
fn the_look_for_purges_goes_on_behind_an_unreadable_inner_node() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let put = Put { csn: 7, flags: 0, expires_at_ms: 5_000, payload: vec![1; 20] };
    let batch: Batch = (0..300).map(|n| (format!("{n:06}").into_bytes(), vec![put.clone()])).collect();
    merge(&tree, &batch, &rules(7, &[]));
    let root = tree.write_out().unwrap().root;
    let whole = store.records.lock().unwrap().clone();
    let mut tried = 0;
    for (lsn, (_, body)) in &whole {
        let node = describe(body.clone()).unwrap();
        if node.kind != NodeKind::Internal || *lsn == root {
            continue;
        }
        *store.records.lock().unwrap() = whole.clone();
        store.records.lock().unwrap().remove(lsn);
        let tree = BTree::open(TABLE, root, store.clone(), small_nodes());
        let (mut from, mut failures, mut due) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let step = tree.due_leaves(&from, 10).unwrap();
            failures.extend(step.failed);
            due.extend(step.due.map(|due| KeySpan::new(due.start, due.end)));
            let Some(next) = step.next else { break };
            assert!(next > from);
            from = next;
        }
        assert!(
            matches!(&failures[..], [IndexError::Store { lsn: failed, .. }] if failed == lsn),
            "{failures:?}"
        );
        for key in batch.keys() {
            let is_below = *key >= node.lower && node.upper.as_ref().is_none_or(|upper| key < upper);
            assert_eq!(due.iter().any(|span| span.contains(key)), !is_below, "{key:?} beside {node:?}");
        }
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}
