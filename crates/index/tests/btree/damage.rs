//! Damaged records: an error that names the record, or a tree that can be read; never a panic.

use std::ops::Bound;
use std::sync::Arc;

use fulgurite_base::{Csn, Lsn};
use fulgurite_index::btree::BTree;
use fulgurite_index::{IndexError, StaticCursor, StaticPart};

use crate::support::*;

fn build() -> (Arc<MemStore>, Lsn, Batch) {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let mut batch = Batch::new();
    for number in 0..60u64 {
        let versions = vec![Put::value(100 + number, [1; 12]), Put::value(number, [2; 10])];
        batch.insert(format!("key{:03}", number * 7).into_bytes(), versions);
    }
    fold(&tree, &batch, &rules(200, &[99]));
    tree.image().unwrap();
    fold(&tree, &Batch::from([(b"key014".to_vec(), vec![Put::value(300, *b"x")])]), &rules(300, &[99]));
    let root = tree.image().unwrap().root;
    (store, root, batch)
}

/// Reads everything; whether all of it could be read.
fn read_all(store: &Arc<MemStore>, root: Lsn, batch: &Batch) -> Result<usize, IndexError> {
    let tree = BTree::open(TABLE, root, store.clone(), small_nodes());
    for key in batch.keys() {
        tree.get(key, Csn(150))?;
        tree.newest_csn(key)?;
    }
    let mut cursor = tree.cursor(Csn::MAX);
    cursor.seek(Bound::Unbounded)?;
    let mut rows = 0;
    while cursor.key().is_some() {
        cursor.version();
        cursor.next()?;
        rows += 1;
    }
    cursor.seek_back(Bound::Unbounded)?;
    while cursor.key().is_some() {
        cursor.prev()?;
    }
    tree.fold(&mut Source::new(batch), &rules(300, &[]))?;
    tree.evict(0);
    Ok(rows)
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
