//! Nanoseconds an operation of a tree in memory: 1,000,000 random keys of 13 bytes with values of 72 bytes.
//!
//! ```text
//! cargo run --release -p fulgurite-index --example btree_bench
//! ```
#![expect(clippy::disallowed_methods, reason = "a benchmark measures wall time")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::{
    Base, BaseCursor, Io, MergeSource, MergeVersion, NodeKind, NodeStore, PruneRules, StoreError,
    VersionFlags,
};
use fulgurite_types::{Csn, Lsn, TableId};

const KEYS: u64 = 1_000_000;
const BATCH: u64 = 65_536;

#[derive(Default)]
struct MemStore(Mutex<BTreeMap<Lsn, Vec<u8>>>);

impl NodeStore for MemStore {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        Ok(self.0.lock().unwrap()[&lsn].clone())
    }

    fn write_node(&self, _kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        let mut records = self.0.lock().unwrap();
        let lsn = Lsn(records.last_key_value().map_or(Lsn::new(1, 0).0, |(lsn, _)| lsn.0) + 65_536);
        records.insert(lsn, body.to_vec());
        Ok(lsn)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        body_len as u32 + 32
    }
}

struct Batch<'b> {
    keys: std::iter::Peekable<std::slice::Iter<'b, Vec<u8>>>,
    csn: Csn,
}

impl MergeSource for Batch<'_> {
    fn peek_key(&mut self) -> Option<&[u8]> {
        self.keys.peek().map(|key| key.as_slice())
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        self.keys.next();
        let payload = Cow::Borrowed([7; 72].as_slice());
        out.push(MergeVersion { csn: self.csn, flags: VersionFlags::default(), expires_at_ms: 0, payload });
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{:013x}", number >> 12).into_bytes()
}

fn measure<T>(what: &str, operations: u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let elapsed_ns = start.elapsed().as_nanos() as f64;
    println!("{what:<44} {:>9.1} ns/op", elapsed_ns / operations as f64);
    result
}

/// The batch's keys, allocated in key order, so that the tree is measured and not the batch.
fn sorted_batch(mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    keys.sort();
    keys.dedup();
    keys.to_vec()
}

fn merge(tree: &BTree, keys: &[Vec<u8>], csn: u64) {
    let rules = PruneRules {
        horizon: Csn(csn),
        snapshots: Vec::new(),
        expired_until_ms: 0,
        range_deletes: Arc::default(),
    };
    tree.merge(&mut Batch { keys: keys.iter().peekable(), csn: Csn(csn) }, &rules).unwrap();
}

fn scan(tree: &BTree, pins: bool) -> u64 {
    let mut cursor = tree.cursor(Csn::MAX);
    let mut rows = 0;
    cursor.seek(&[]).unwrap();
    while cursor.key().is_some() {
        if pins {
            black_box((cursor.pinned_key(), cursor.version()));
        }
        rows += 1;
        cursor.next().unwrap();
    }
    rows
}

fn main() {
    let mut rng = Rng(88_172_645_463_325_252);
    let random: Vec<Vec<u8>> = (0..KEYS).map(|_| key(rng.next())).collect();
    let sorted = sorted_batch(random.clone());

    let store = Arc::new(MemStore::default());
    let bulk = BTree::empty(TableId(1), store.clone(), BTreeOptions::default());
    measure("merge 1 M sorted keys into an empty tree", KEYS, || merge(&bulk, &sorted, 1));
    drop(bulk);

    let tree = BTree::empty(TableId(1), store.clone(), BTreeOptions::default());
    let chunks: Vec<_> = random.chunks(BATCH as usize).map(|chunk| sorted_batch(chunk.to_vec())).collect();
    measure("merge 1 M random keys, 64 Ki at a time", KEYS, || {
        for (csn, chunk) in chunks.iter().enumerate() {
            merge(&tree, chunk, csn as u64 + 1);
        }
    });
    println!("{:<44} {:>9.1} MB", "resident", tree.resident_bytes() as f64 / 1e6);
    for round in 0..3 {
        let updates = (0..BATCH).map(|_| random[(rng.next() >> 20) as usize % random.len()].clone());
        let batch = sorted_batch(updates.collect());
        measure("merge 64 Ki updates", batch.len() as u64, || merge(&tree, &batch, 100 + round));
        let batch = sorted_batch((0..BATCH).map(|_| key(rng.next())).collect());
        measure("merge 64 Ki new keys", batch.len() as u64, || merge(&tree, &batch, 200 + round));
    }
    for _ in 0..3 {
        measure("get, random, newest", KEYS, || {
            for key in &random {
                black_box(tree.get(key, Csn::MAX, Io::Allowed).unwrap().unwrap());
            }
        });
        measure("get, random, absent", KEYS, || {
            for _ in 0..KEYS {
                black_box(tree.get(&key(rng.next()), Csn::MAX, Io::Allowed).unwrap());
            }
        });
        let rows = tree.len_estimate();
        measure("scan, next and key", rows, || assert_eq!(scan(&tree, false), rows));
        measure("scan, key and version pinned", rows, || assert_eq!(scan(&tree, true), rows));
    }
    let report = measure("writing out the whole tree", tree.len_estimate(), || tree.write_out().unwrap());
    measure("evict everything", tree.len_estimate(), || tree.evict(0));
    let cold = BTree::open(TableId(1), report.root, store, BTreeOptions::default());
    measure("scan, loading every leaf", tree.len_estimate(), || scan(&cold, true));
}
