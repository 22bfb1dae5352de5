//! Readers, cursors and a maintenance thread at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite_index::btree::BTree;
use fulgurite_index::{Base, BaseCursor, Io};
use fulgurite_types::Csn;

use crate::support::*;

const KEYS: u64 = 3000;
const ROUNDS: u64 = 300;

fn key(number: u64) -> Vec<u8> {
    format!("{number:07}").into_bytes()
}

/// Every key below `KEYS` that is a multiple of three always exists; its payload is its CSN. The others are written and
/// removed.
fn maintain(tree: &BTree, merged: &AtomicU64) {
    let mut rng = Rng(42);
    for csn in 2..ROUNDS {
        let mut batch = Batch::new();
        let from = rng.below(KEYS);
        for number in from..from + rng.below(400) {
            let comes = rng.below(3) > 0 || number.is_multiple_of(3);
            let put = if comes { Put::value(csn, pinned_payload(csn)) } else { Put::tombstone(csn) };
            batch.insert(key(number), vec![put]);
        }
        merge(tree, &batch, &rules(csn, &[]));
        merged.store(csn, Ordering::Release);
        match rng.below(4) {
            0 => drop(tree.write_out().unwrap()),
            1 => drop(tree.evict(rng.below(100_000) as usize)),
            _ => {}
        }
    }
}

fn check_gets(tree: &BTree, merged: &AtomicU64, done: &AtomicBool, seed: u64) {
    let mut rng = Rng(seed);
    while !done.load(Ordering::Relaxed) {
        let number = rng.below(KEYS / 3) * 3;
        if rng.below(4) == 0 {
            // The look-ups of this key and others begin where it finds them, now and later.
            let keys = [key(number), key(rng.below(KEYS)), key(rng.below(KEYS))];
            tree.prefetch(&keys.each_ref().map(|key| (&key[..], 0)));
        }
        let version = tree
            .get(&key(number), Csn::MAX, Io::Allowed)
            .unwrap()
            .expect("multiples of three are always there");
        assert_eq!(*version.payload, pinned_payload(version.csn.0));
        let before = merged.load(Ordering::Acquire);
        let again = tree.get(&key(number), Csn::MAX, Io::Allowed).unwrap().unwrap();
        assert!(again.csn >= version.csn, "versions never go back");
        assert!(before >= version.csn.0 || version.csn.0 == before + 1);
    }
}

/// Passes that write the tree out in steps, as a checkpointer does. Each root, opened on its own, has all that was
/// merged before its pass began; the accounts are those of the records below the last one.
fn write_out_in_steps(tree: &BTree, store: &Arc<MemStore>, merged: &AtomicU64, done: &AtomicBool) {
    let mut last_csns = vec![0; KEYS as usize / 3];
    while !done.load(Ordering::Relaxed) {
        let before: Vec<u64> =
            (0..KEYS).step_by(3).map(|n| get(tree, &key(n), u64::MAX).unwrap().0).collect();
        assert!(merged.load(Ordering::Acquire) + 1 >= before.iter().copied().max().unwrap());
        let mut pass = tree.begin_write_out();
        while !pass.is_done() {
            tree.write_some(&mut pass, 2000).unwrap();
        }
        let root = tree.finish_write_out(pass).unwrap().root;
        let written = BTree::open(TABLE, root, store.clone(), small_nodes());
        for ((n, before), last) in (0..KEYS).step_by(3).zip(before).zip(&mut last_csns) {
            let (csn, payload) =
                get(&written, &key(n), u64::MAX).expect("multiples of three are always there");
            assert!(csn >= before && csn >= *last, "an older record replaced a newer one");
            assert_eq!(payload, pinned_payload(csn));
            *last = csn;
        }
    }
}

fn check_scans(tree: &BTree, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let mut cursor = tree.cursor(Csn::MAX);
        cursor.seek(&[]).unwrap();
        let mut last: Option<Vec<u8>> = None;
        let mut always = 0;
        let mut pins = Vec::new();
        while let Some(own) = cursor.key() {
            assert!(last.as_deref().is_none_or(|last| last < own), "each key once, in order");
            let version = cursor.version();
            assert!(version.payload.is_empty() || *version.payload == pinned_payload(version.csn.0));
            let (csn, payload) = (version.csn, cursor.pinned_payload());
            assert_eq!(&*payload, version.payload);
            let number: u64 = std::str::from_utf8(own).unwrap().parse().unwrap();
            always += u64::from(number.is_multiple_of(3) && number < KEYS);
            last = Some(own.to_vec());
            pins.push((csn, payload, cursor.pinned_key()));
            cursor.next().unwrap();
        }
        assert_eq!(always, KEYS / 3);
        assert!(
            pins.iter().all(|(csn, payload, key)| payload.is_empty()
                || **payload == pinned_payload(csn.0) && key.len() == 7)
        );
    }
}

#[test]
fn readers_see_everything_while_the_tree_changes() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let batch: Batch =
        (0..KEYS).step_by(3).map(|n| (key(n), vec![Put::value(1, pinned_payload(1))])).collect();
    merge(&tree, &batch, &rules(1, &[]));
    let (merged, done) = (AtomicU64::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in [7, 8] {
            let (tree, merged, done) = (&tree, &merged, &done);
            scope.spawn(move || check_gets(tree, merged, done, seed));
        }
        scope.spawn(|| check_scans(&tree, &done));
        scope.spawn(|| write_out_in_steps(&tree, &store, &merged, &done));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| maintain(&tree, &merged)));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
    tree.write_out().unwrap();
    assert_eq!(tree.dirty_bytes(), 0);
    assert_eq!(tree.evict(0), tree.resident_bytes());
}
