//! Loads of nodes are counted by cause.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use fulgurite_index::btree::BTree;
use fulgurite_index::{Base, BaseCursor, IndexError, Io, NodeLoads};
use fulgurite_types::{Csn, KeySpan, Lsn};

use crate::support::*;

fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// The loads of `work`, with nothing in memory before. Each of them read one record.
fn loads_of(work: impl FnOnce(&BTree)) -> NodeLoads {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let rows: Batch = (0..500).map(|n| (key(n), vec![Put::value(1, [1; 20])])).collect();
    merge(&tree, &rows, &rules(1, &[]));
    tree.write_out().unwrap();
    assert_eq!(tree.evict(0), 0);
    assert_eq!(tree.memory().node_loads(), NodeLoads::default());
    store.reads.store(0, Ordering::Relaxed);
    work(&tree);
    let loads = tree.memory().node_loads();
    assert_eq!(loads.total(), store.reads.load(Ordering::Relaxed));
    loads
}

#[test]
fn loads_are_counted_by_cause_and_hits_are_not() {
    let get = |tree: &BTree| assert!(tree.get(&key(7), Csn::MAX, Io::Allowed).unwrap().is_some());
    let loads = loads_of(get);
    assert!(loads.reads > 1 && loads.reads == loads.total(), "{loads:?}");
    let twice = loads_of(|tree| (0..2).for_each(|_| get(tree)));
    assert_eq!(twice, loads);

    let loads = loads_of(|tree| {
        let mut cursor = tree.cursor(Csn::MAX);
        cursor.seek(&[]).unwrap();
        while cursor.key().is_some() {
            cursor.next().unwrap();
        }
    });
    assert!(loads.scans > 50 && loads.scans == loads.total(), "{loads:?}");

    let loads = loads_of(|tree| merge(tree, &batch_of_one(), &rules(2, &[])));
    assert!(loads.merges > 1 && loads.merges == loads.total(), "{loads:?}");
    let all = KeySpan::new([].as_slice(), None);
    let loads = loads_of(|tree| tree.purge(all, &rules(2, &[])).unwrap());
    assert!(loads.merges > 50 && loads.merges == loads.total(), "{loads:?}");

    let loads = loads_of(|tree| assert_eq!(tree.newest_csn(&key(7), Io::Impatient).unwrap(), Some(Csn(1))));
    assert!(loads.validation > 1 && loads.validation == loads.total(), "{loads:?}");
    let loads = loads_of(|tree| assert!(!tree.any_newer_in_range(all, Csn(1), Io::Allowed).unwrap()));
    assert!(loads.validation > 50 && loads.validation == loads.total(), "{loads:?}");
    let loads = loads_of(|tree| {
        let refused = tree.any_newer_in_range(all, Csn(1), Io::MemoryOnly);
        assert!(matches!(refused, Err(IndexError::WouldBlock)), "{refused:?}");
    });
    assert_eq!(loads.total(), 0, "{loads:?}");

    let loads = loads_of(|tree| assert!(tree.find_extent(&key(7), Lsn::new(1, 9)).unwrap().is_none()));
    assert!(loads.maintenance > 1 && loads.maintenance == loads.total(), "{loads:?}");
    let loads = loads_of(|tree| {
        let segments: BTreeSet<u32> = (1..1_000).collect();
        assert_eq!(tree.leave_some(&segments, &[], usize::MAX), None);
    });
    assert!(loads.maintenance > 50 && loads.maintenance == loads.total(), "{loads:?}");
}

fn batch_of_one() -> Batch {
    [(key(7), vec![Put::value(2, [2; 20])])].into_iter().collect()
}
