//! Values in the log: references, relocations, and accounts.

use std::collections::BTreeMap;

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::{Base, Extent, Io, OutOfLine, VersionFlags};
use fulgurite_types::{Csn, Lsn};

use crate::support::*;

fn out_of_line(csn: u64, extents: &[(u64, u32)]) -> Put {
    let extents: Vec<Extent> =
        extents.iter().map(|(lsn, len)| Extent { lsn: Lsn(*lsn), len: *len }).collect();
    let value = OutOfLine { len: extents.iter().map(|e| u64::from(e.len)).sum(), checksum: 1, extents };
    let mut payload = Vec::new();
    value.encode(&mut payload);
    Put { csn, flags: VersionFlags::OUT_OF_LINE, expires_at_ms: 0, payload }
}

#[derive(Default)]
struct Ledger(BTreeMap<u32, i64>);

impl Ledger {
    fn write_out(&mut self, tree: &BTree) -> [u64; 4] {
        let report = tree.write_out().unwrap();
        for (segment, bytes) in report.accounts {
            *self.0.entry(segment).or_default() += bytes;
        }
        self.0.retain(|_, bytes| *bytes != 0);
        let recount = tree.live_accounts().unwrap();
        assert_eq!(recount, self.0.clone().into_iter().collect::<Vec<_>>());
        report.records_written
    }

    fn live(&self, segment: u32) -> i64 {
        self.0.get(&segment).copied().unwrap_or(0)
    }
}

#[test]
fn extents_count_move_and_go() {
    let store = MemStore::new();
    let mut tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    let mut ledger = Ledger::default();
    let (a, b) = (Lsn::new(1000, 8), Lsn::new(1001, 16));
    let mut batch: Batch =
        (0..60).map(|n| (format!("k{n:03}").into_bytes(), vec![Put::value(1, [0; 90])])).collect();
    batch.insert(b"big".to_vec(), vec![out_of_line(2, &[(a.0, 500), (b.0, 700)])]);
    merge(&tree, &batch, &rules(2, &[]));
    ledger.write_out(&tree);
    assert_eq!((ledger.live(1000), ledger.live(1001)), (500, 700));

    assert!(tree.find_extent(b"big", a).unwrap().is_some());
    assert!(tree.find_extent(b"big", Lsn::new(1000, 9)).unwrap().is_none());
    assert!(tree.find_extent(b"k001", a).unwrap().is_none());
    let to = Lsn::new(1002, 24);
    assert!(!tree.relocate(b"big", Csn(1), a, to).unwrap());
    assert!(!tree.relocate(b"big", Csn(2), to, a).unwrap());
    assert!(tree.relocate(b"big", Csn(2), a, to).unwrap());
    assert!(!tree.relocate(b"big", Csn(2), a, to).unwrap());
    let written = ledger.write_out(&tree);
    assert_eq!(written, [0, 0, 0, 1], "the relocation of one value is a delta record");
    assert_eq!((ledger.live(1000), ledger.live(1001), ledger.live(1002)), (0, 700, 500));

    // The same after a load; merging the version as it was before the relocation changes nothing.
    for _ in 0..20 {
        let root = tree.write_out().unwrap().root;
        tree = BTree::open(TABLE, root, store.clone(), BTreeOptions::default());
        merge(&tree, &batch, &rules(2, &[]));
        assert_eq!(tree.write_out().unwrap().records_written, [0; 4]);
        let (from, to) = if tree.find_extent(b"big", to).unwrap().is_some() { (to, a) } else { (a, to) };
        assert!(tree.relocate(b"big", Csn(2), from, to).unwrap());
        ledger.write_out(&tree);
    }

    let batch = Batch::from([(b"big".to_vec(), vec![Put::value(3, *b"small")])]);
    merge(&tree, &batch, &rules(3, &[]));
    ledger.write_out(&tree);
    assert_eq!((ledger.live(1000), ledger.live(1001), ledger.live(1002)), (0, 0, 0));
}

#[test]
fn a_full_record_comes_after_max_deltas() {
    let store = MemStore::new();
    let options = BTreeOptions { max_deltas: 3, ..BTreeOptions::default() };
    let tree = BTree::empty(TABLE, store.clone(), options);
    let mut ledger = Ledger::default();
    let batch: Batch =
        (0..60).map(|n| (format!("k{n:03}").into_bytes(), vec![Put::value(1, [0; 90])])).collect();
    merge(&tree, &batch, &rules(1, &[]));
    let mut kinds = Vec::new();
    for csn in 2..12 {
        kinds.push(ledger.write_out(&tree)[3]);
        let key = format!("k{:03}", csn % 3).into_bytes();
        merge(&tree, &Batch::from([(key, vec![Put::value(csn, *b"new")])]), &rules(csn, &[]));
        if csn % 4 == 0 {
            ledger.write_out(&tree);
            tree.evict(0);
        }
    }
    assert!(kinds.contains(&0) && kinds.contains(&1));
    let lsns: Vec<Lsn> = store.records.lock().unwrap().keys().copied().collect();
    let live = lsns.iter().filter(|lsn| {
        let body = store.records.lock().unwrap()[lsn].1.clone();
        tree.rewrite_if_live(**lsn, &body).unwrap().is_some()
    });
    assert!((1..=2).contains(&live.count()));
    assert_eq!(ledger.write_out(&tree), [0, 0, 1, 0], "a rewritten leaf is a full record");
}

/// A leaf delta record moves as one, so that a segment of such records costs what is live in it; a full record moves whole.
#[test]
fn a_delta_record_moves_as_one() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    let mut ledger = Ledger::default();
    let batch: Batch =
        (0..60).map(|n| (format!("k{n:03}").into_bytes(), vec![Put::value(1, [0; 90])])).collect();
    merge(&tree, &batch, &rules(1, &[]));
    ledger.write_out(&tree);
    merge(&tree, &Batch::from([(b"k007".to_vec(), vec![Put::value(2, *b"new")])]), &rules(2, &[]));
    assert_eq!(ledger.write_out(&tree), [0, 0, 0, 1]);
    let bodies: Vec<(Lsn, Vec<u8>)> =
        store.records.lock().unwrap().iter().map(|(lsn, (_, body))| (*lsn, body.clone())).collect();
    let [full, delta] = &bodies[..] else { panic!("{} records", bodies.len()) };
    let rewrite = |(lsn, body): &(Lsn, Vec<u8>)| tree.rewrite_if_live(*lsn, body).unwrap();
    assert_eq!(rewrite(delta), Some(delta.1.len() as u64));
    assert_eq!(ledger.write_out(&tree), [0, 0, 0, 1]);
    assert_eq!(rewrite(delta), None, "it has moved");
    assert!(rewrite(full).is_some_and(|bytes| bytes > 4_000));
    assert_eq!(ledger.write_out(&tree), [0, 0, 1, 0]);
    assert_eq!(rewrite(full), None);
    assert!(tree.get(b"k007", Csn(9), Io::Allowed).unwrap().is_some());
}
