//! A store in memory, a batch, and shorthands.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::{
    Base, BaseCursor, Io, MergeSource, MergeVersion, NodeKind, NodeStore, PruneRules, StoreError,
    VersionFlags,
};
use fulgurite_types::{Csn, Lsn, TableId};

pub const TABLE: TableId = TableId(7);

pub type Work = Box<dyn FnOnce() + Send>;

/// Keeps node records in memory; a few records a segment.
#[derive(Default)]
pub struct MemStore {
    pub records: Mutex<BTreeMap<Lsn, (NodeKind, Vec<u8>)>>,
    written: AtomicU64,
    pub reads: AtomicU64,
    pub body_bytes_max: AtomicU64,
    /// How many writes succeed before they fail.
    writes_left: AtomicU64,
    pub fail_reads: AtomicBool,
    /// Runs once, in the middle of a write after so many others.
    pub meanwhile: Mutex<Option<(u64, Work)>>,
}

impl MemStore {
    pub fn new() -> Arc<MemStore> {
        let store = MemStore::default();
        store.fail_writes_after(u64::MAX);
        store.body_bytes_max.store(u64::MAX, Ordering::Relaxed);
        Arc::new(store)
    }

    /// Lets so many writes succeed; then they fail.
    pub fn fail_writes_after(&self, writes: u64) {
        self.writes_left.store(writes, Ordering::Relaxed);
    }
}

impl NodeStore for MemStore {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.fail_reads.load(Ordering::Relaxed) {
            return Err("reads fail".into());
        }
        let records = self.records.lock().unwrap();
        records.get(&lsn).map(|(_, body)| body.clone()).ok_or_else(|| "no such record".into())
    }

    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        let left = self.writes_left.fetch_sub(1, Ordering::Relaxed);
        if left == 0 {
            self.writes_left.store(0, Ordering::Relaxed);
            return Err("writes fail".into());
        }
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let lsn = Lsn::new(1 + (number / 5) as u32, 64 + (number % 5) as u32 * 100_000);
        assert_eq!(body[0], kind as u8);
        let meanwhile = {
            let mut meanwhile = self.meanwhile.lock().unwrap();
            match &mut *meanwhile {
                Some((writes @ 1.., _)) => {
                    *writes -= 1;
                    None
                }
                work => work.take(),
            }
        };
        if let Some((_, work)) = meanwhile {
            work();
        }
        self.records.lock().unwrap().insert(lsn, (kind, body.to_vec()));
        Ok(lsn)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        body_len as u32 + 32
    }

    fn body_bytes_max(&self) -> usize {
        self.body_bytes_max.load(Ordering::Relaxed) as usize
    }
}

/// A version of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub csn: u64,
    pub flags: u8,
    pub expires_at_ms: u64,
    pub payload: Vec<u8>,
}

impl Put {
    pub fn value(csn: u64, payload: impl Into<Vec<u8>>) -> Put {
        Put { csn, flags: 0, expires_at_ms: 0, payload: payload.into() }
    }

    pub fn tombstone(csn: u64) -> Put {
        Put { csn, flags: VersionFlags::TOMBSTONE, expires_at_ms: 0, payload: Vec::new() }
    }
}

/// Keys with their versions by descending CSN.
pub type Batch = BTreeMap<Vec<u8>, Vec<Put>>;

pub struct Source<'b> {
    batch: std::iter::Peekable<std::collections::btree_map::Iter<'b, Vec<u8>, Vec<Put>>>,
}

impl<'b> Source<'b> {
    pub fn new(batch: &'b Batch) -> Source<'b> {
        Source { batch: batch.iter().peekable() }
    }
}

impl MergeSource for Source<'_> {
    fn peek_key(&mut self) -> Option<&[u8]> {
        self.batch.peek().map(|(key, _)| key.as_slice())
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        let (_, versions) = self.batch.next().expect("a key was peeked");
        out.extend(versions.iter().map(|put| MergeVersion {
            csn: Csn(put.csn),
            flags: VersionFlags(put.flags),
            expires_at_ms: put.expires_at_ms,
            payload: Cow::Borrowed(&put.payload),
        }));
    }
}

pub fn rules(horizon: u64, snapshots: &[u64]) -> PruneRules {
    PruneRules {
        horizon: Csn(horizon),
        snapshots: snapshots.iter().copied().map(Csn).collect(),
        expired_until_ms: 0,
        range_deletes: Arc::default(),
    }
}

pub fn small_nodes() -> BTreeOptions {
    BTreeOptions { leaf_bytes: 256, inner_bytes: 200, ..BTreeOptions::default() }
}

pub fn merge(tree: &BTree, batch: &Batch, rules: &PruneRules) {
    let mut source = Source::new(batch);
    while source.peek_key().is_some() {
        tree.merge_some(&mut source, rules, 5000).unwrap();
    }
}

pub fn get(tree: &BTree, key: &[u8], at: u64) -> Option<(u64, Vec<u8>)> {
    tree.get(key, Csn(at), Io::Allowed).unwrap().map(|version| (version.csn.0, version.payload.to_vec()))
}

/// All rows at a CSN, read forward and compared with a backward read.
pub fn rows(tree: &BTree, at: u64) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let mut cursor = tree.cursor(Csn(at));
    let mut forward = Vec::new();
    cursor.seek(&[]).unwrap();
    while let Some(key) = cursor.key() {
        let version = cursor.version();
        assert_eq!(&*cursor.pinned_key(), key);
        forward.push((key.to_vec(), version.csn.0, version.payload.to_vec()));
        cursor.next().unwrap();
    }
    let mut backward = Vec::new();
    cursor.seek_back(None).unwrap();
    while let Some(key) = cursor.key() {
        let version = cursor.version();
        backward.push((key.to_vec(), version.csn.0, version.payload.to_vec()));
        cursor.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

/// A generator whose numbers depend only on the seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}

/// The payload of a commit, so long that readers pin it.
pub fn pinned_payload(csn: u64) -> [u8; 40] {
    [csn.to_le_bytes(); 5].as_flattened().try_into().expect("five times eight")
}
