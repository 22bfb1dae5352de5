//! Steps of two passes in an order that the interface cannot ask for.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use fulgurite_types::{Csn, Lsn, TableId};

use super::*;
use crate::range_delete::RangeDeletes;
use crate::{MergeVersion, NodeKind, StoreError, VersionFlags};

const TABLE: TableId = TableId(1);

/// Keeps records in memory, one a segment.
#[derive(Default)]
struct Store(Mutex<Vec<Vec<u8>>>);

impl NodeStore for Store {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        Ok(self.0.lock().unwrap()[lsn.segment() as usize - 1].clone())
    }

    fn write_node(&self, _: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        let mut records = self.0.lock().unwrap();
        records.push(body.to_vec());
        Ok(Lsn::new(records.len() as u32, 4096))
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        body_len as u32
    }
}

/// All keys, written by one commit.
struct Commit(u8, Csn);

const KEYS: u8 = 20;

impl MergeSource for Commit {
    fn peek_key(&mut self) -> Option<&[u8]> {
        (self.0 < KEYS).then(|| std::slice::from_ref(&self.0))
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        self.0 += 1;
        let payload = Cow::Owned(vec![0; 60]);
        out.push(MergeVersion { csn: self.1, flags: VersionFlags(0), expires_at_ms: 0, payload });
    }
}

fn merge(tree: &BTree, csn: u64) {
    let rules = PruneRules {
        horizon: Csn(csn),
        snapshots: Vec::new(),
        expired_until_ms: 0,
        range_deletes: Arc::new(RangeDeletes::new()),
    };
    tree.merge(&mut Commit(0, Csn(csn)), &rules).unwrap();
}

/// A thread picks leaves; a commit is merged; a pass begins and picks the same leaves; then the records of the thread are
/// installed first. So the slots refuse those of the pass, and without a mark on the leaves it would leave them with
/// records that lack the commit.
#[test]
fn a_leaf_whose_record_was_refused_is_written_again() {
    let store = Arc::new(Store::default());
    let options = BTreeOptions { leaf_bytes: 256, inner_bytes: 128, ..BTreeOptions::default() };
    let tree = BTree::empty(TABLE, store.clone(), options.clone());
    merge(&tree, 1);
    tree.write_out().unwrap();
    merge(&tree, 2);
    let mut older = tree.begin_write_out();
    let picked_before = tree.tree.pick_some(&mut older, usize::MAX);
    merge(&tree, 3);
    let mut pass = tree.begin_write_out();
    let picked = tree.tree.pick_some(&mut pass, usize::MAX);
    assert!(picked.len() > 4 && picked.len() == picked_before.len());
    tree.tree.write_step(&picked_before, &mut older).unwrap();
    tree.tree.write_step(&picked, &mut pass).unwrap();
    let root = tree.finish_write_out(pass).unwrap().root;
    let written = BTree::open(TABLE, root, store, options);
    for key in 0..KEYS {
        let version = written.get(&[key], Csn::MAX, Io::Allowed).unwrap().unwrap();
        assert_eq!(version.csn, Csn(3), "key {key}");
    }
}
