//! Sizes: large batches, fill, huge keys, many versions.

use fulgurite_index::btree::{BTree, BTreeOptions, EntryInfo, RecordInfo, TreeVisitor};
use fulgurite_index::{Base, IndexError, Io, MergeSource as _, NodeKind, PruneRules};
use fulgurite_types::{Csn, KeySpan, Lsn};

use crate::support::*;

#[derive(Default)]
struct Shape {
    leaves: u64,
    entries: u64,
    levels: u8,
}

impl TreeVisitor for Shape {
    fn record(&mut self, record: RecordInfo) -> Result<(), IndexError> {
        if record.kind == NodeKind::Leaf {
            self.leaves += 1;
        }
        self.levels = self.levels.max(record.level + 1);
        Ok(())
    }

    fn entry(&mut self, _entry: EntryInfo<'_>) -> Result<(), IndexError> {
        self.entries += 1;
        Ok(())
    }
}

fn shape(tree: &BTree) -> Shape {
    tree.write_out().unwrap();
    let mut shape = Shape::default();
    tree.walk(&mut shape).unwrap();
    shape
}

/// How full the leaves are in memory with such rows, without their headers.
fn fill(shape: &Shape) -> f64 {
    const ROW_BYTES: u64 = 8 + 15 + 13 + 72;
    (shape.entries * ROW_BYTES) as f64 / (shape.leaves * 8192) as f64
}

fn row(number: u64, csn: u64) -> (Vec<u8>, Vec<Put>) {
    (format!("key{number:010}").into_bytes(), vec![Put::value(csn, [7; 72])])
}

#[test]
fn a_large_batch_fills_an_empty_tree() {
    let tree = BTree::empty(TABLE, MemStore::new(), BTreeOptions::default());
    let batch: Batch = (0..100_000).map(|number| row(number, number + 1)).collect();
    merge(&tree, &batch, &rules(100_000, &[]));
    assert_eq!(tree.len_estimate(), 100_000);
    let shape = shape(&tree);
    assert_eq!(shape.entries, 100_000);
    assert_eq!(shape.levels, 3);
    assert!((0.8..1.0).contains(&fill(&shape)), "{}", fill(&shape));
    assert_eq!(get(&tree, b"key0000077777", u64::MAX).unwrap().0, 77_778);
}

/// All of them belong between two keys of one leaf, or behind its last one.
#[test]
fn a_step_ends_within_a_leaf_to_which_much_is_added() {
    const STEP_BYTES: usize = 64 << 10;
    for around in [vec![0, 1_000_000], vec![0]] {
        let tree = BTree::empty(TABLE, MemStore::new(), BTreeOptions::default());
        let few: Batch = around.iter().map(|number| row(*number, 1)).collect();
        merge(&tree, &few, &rules(1, &[]));
        let many: Batch = (1..=20_000).map(|number| row(number, 2)).collect();
        let mut source = Source::new(&many);
        let (mut steps, mut done) = (0, 0);
        while let Some(first) = source.peek_key().map(<[u8]>::to_vec) {
            tree.merge_some(&mut source, &rules(2, &[]), STEP_BYTES).unwrap();
            let taken =
                many.range(first..).take_while(|(key, _)| source.peek_key() != Some(key.as_slice())).count();
            assert!((1..=STEP_BYTES / 64).contains(&taken), "step {steps} has taken {taken} rows");
            steps += 1;
            done += taken;
            assert_eq!(tree.len_estimate() as usize, around.len() + done, "step {steps}");
        }
        assert_eq!(rows(&tree, 9).len(), around.len() + many.len());
        assert!(fill(&shape(&tree)) > 0.8, "{}", fill(&shape(&tree)));
    }
}

#[test]
fn appending_fills_leaves() {
    let tree = BTree::empty(TABLE, MemStore::new(), BTreeOptions::default());
    for chunk in 0..2000 {
        let batch: Batch = (chunk * 20..chunk * 20 + 20).map(|number| row(number, number + 1)).collect();
        merge(&tree, &batch, &rules(100_000, &[]));
    }
    let shape = shape(&tree);
    assert_eq!(shape.entries, 40_000);
    assert!(fill(&shape) > 0.9, "{}", fill(&shape));
}

#[test]
fn random_inserts_fill_leaves_to_two_thirds() {
    let tree = BTree::empty(TABLE, MemStore::new(), BTreeOptions::default());
    let mut rng = Rng(11);
    for chunk in 0..400u64 {
        let batch: Batch = (0..100).map(|_| row(rng.below(1 << 33), chunk + 1)).collect();
        merge(&tree, &batch, &rules(chunk + 1, &[]));
    }
    let fill = fill(&shape(&tree));
    assert!((0.62..0.8).contains(&fill), "{fill}");
}

#[test]
fn huge_keys_and_the_empty_key() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
    let mut batch = Batch::new();
    batch.insert(Vec::new(), vec![Put::value(1, *b"empty")]);
    for last in 0..20u8 {
        batch.insert([vec![b'k'; 65_534], vec![last]].concat(), vec![Put::value(2, [last; 10])]);
        batch.insert(vec![b'k'; usize::from(last) + 1], vec![Put::value(3, [last; 10])]);
    }
    merge(&tree, &batch, &rules(3, &[]));
    let root = tree.write_out().unwrap().root;
    let tree = BTree::open(TABLE, root, store, BTreeOptions::default());
    for (key, puts) in &batch {
        assert_eq!(get(&tree, key, 9), Some((puts[0].csn, puts[0].payload.clone())));
    }
    assert_eq!(rows(&tree, 9).len(), batch.len());
}

#[test]
fn many_versions_of_one_key() {
    let store = MemStore::new();
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let snapshots: Vec<u64> = (1..=3000).collect();
    for chunk in 0..30u64 {
        let puts: Vec<Put> = (1..=100).rev().map(|n| Put::value(chunk * 100 + n, [n as u8; 9])).collect();
        let batch = Batch::from([
            (b"a".to_vec(), vec![Put::value(chunk * 100 + 1, *b"x")]),
            (b"hot".to_vec(), puts),
            (b"z".to_vec(), vec![Put::value(chunk * 100 + 1, *b"x")]),
        ]);
        merge(&tree, &batch, &rules(chunk * 100 + 100, &snapshots));
    }
    let root = tree.write_out().unwrap().root;
    let tree = BTree::open(TABLE, root, store, small_nodes());
    for at in [1, 2, 77, 1500, 2999, 3000, 4000] {
        assert_eq!(get(&tree, b"hot", at).unwrap().0, at.min(3000));
        assert_eq!(rows(&tree, at).len(), 3);
    }
    tree.purge(KeySpan::ALL, &rules(3000, &[5])).unwrap();
    assert_eq!(tree.newest_csn(b"hot", Io::Allowed).unwrap(), Some(Csn(3000)));
    assert_eq!(get(&tree, b"hot", 5).unwrap().0, 5);
    assert_eq!(shape(&tree).entries, 2 + 2 + 2);
    assert_ne!(tree.write_out().unwrap().root, Lsn::NULL);
}

/// A snapshot keeps a version of each key. When it has ended, these go as soon as their leaf changes, whether their keys
/// do or not, and so do tombstones: on a full disk two writers, each of which has a snapshot while the other one commits, would
/// otherwise double the tree.
#[test]
fn what_no_reader_sees_any_more_goes_when_its_leaf_changes() {
    for is_reopened in [false, true] {
        let store = MemStore::new();
        let mut tree = BTree::empty(TABLE, store.clone(), BTreeOptions::default());
        let every = |step: usize, from: u64, csn: u64| -> Batch {
            (from..2000).step_by(step).map(|number| row(number, csn)).collect()
        };
        merge(&tree, &every(1, 0, 1), &rules(1, &[]));
        merge(&tree, &every(2, 0, 2), &rules(2, &[1]));
        let deleted: Batch =
            (1..2000).step_by(4).map(|number| (row(number, 3).0, vec![Put::tombstone(3)])).collect();
        merge(&tree, &deleted, &rules(3, &[1]));
        merge(&tree, &every(20, 0, 4), &rules(4, &[1]));
        let kept = shape(&tree).entries;
        assert_eq!(kept, 2000 + 1000 + 500, "the snapshot at 1 sees the first version of each row");
        if is_reopened {
            let root = tree.write_out().unwrap().root;
            tree = BTree::open(TABLE, root, store, BTreeOptions::default());
        }
        merge(&tree, &every(20, 10, 5), &rules(5, &[]));
        assert_eq!(rows(&tree, 5).len(), 1500);
        assert_eq!(shape(&tree).entries, 1500);
    }
}

/// The same for tombstones alone, which an open transaction needed, and for rows that have expired.
#[test]
fn what_is_nothing_goes_when_its_leaf_changes() {
    let expires = Put { expires_at_ms: 100, ..Put::value(2, [7; 72]) };
    for gone in [Put::tombstone(2), expires] {
        let tree = BTree::empty(TABLE, MemStore::new(), BTreeOptions::default());
        let batch: Batch = (0..20).map(|number| row(number, 1)).collect();
        merge(&tree, &batch, &rules(1, &[1]));
        let batch: Batch = (20..40).map(|number| (row(number, 2).0, vec![gone.clone()])).collect();
        merge(&tree, &batch, &rules(2, &[1]));
        assert_eq!(shape(&tree).entries, 40);
        let last = PruneRules { expired_until_ms: 100, ..rules(3, &[]) };
        merge(&tree, &Batch::from([row(0, 3)]), &last);
        assert_eq!(shape(&tree).entries, 20, "{gone:?}");
    }
}
