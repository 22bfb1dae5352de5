//! Explores schedules of a tree that is written out while it changes: `cargo test -p fulgurite-index --features shuttle`.
//! Threads switch at the tree's lock and at each read and write of the store.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fulgurite_types::sync::{AtomicU64, Mutex, Ordering};
use fulgurite_types::{Csn, Lsn, TableId};
use shuttle::thread;

use super::*;
use crate::range_delete::RangeDeletes;
use crate::{MergeVersion, NodeKind, StoreError, VersionFlags};

const TABLE: TableId = TableId(1);
const KEYS: u8 = 24;
const ROUNDS: u64 = 4;

/// Keeps records in memory, a few in a segment.
#[derive(Default)]
struct Store(Mutex<Vec<Vec<u8>>>);

impl NodeStore for Store {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        Ok(self.0.lock()[(lsn.segment() - 1) as usize * 4 + lsn.offset() as usize / 4096 - 1].clone())
    }

    fn write_node(&self, _: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        let mut records = self.0.lock();
        records.push(body.to_vec());
        let number = records.len() as u32 - 1;
        Ok(Lsn::new(1 + number / 4, (1 + number % 4) * 4096))
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        body_len as u32
    }
}

/// A batch of one commit: keys, each with a value or deleted.
struct Batch(VecDeque<(u8, Option<u64>)>, Csn);

impl MergeSource for Batch {
    fn peek_key(&mut self) -> Option<&[u8]> {
        self.0.front().map(|(key, _)| std::slice::from_ref(key))
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        let Some((_, value)) = self.0.pop_front() else { return };
        let flags = VersionFlags(if value.is_some() { 0 } else { VersionFlags::TOMBSTONE });
        let payload = value.map_or(Vec::new(), |value| vec![value as u8; 60]);
        out.push(MergeVersion { csn: self.1, flags, expires_at_ms: 0, payload: Cow::Owned(payload) });
    }
}

/// Every third key is written by each commit; the keys between come and go, so that leaves are cut and joined.
fn batch(csn: u64) -> Batch {
    let goes = |key: u8| csn.is_multiple_of(2) && key / 8 == (csn / 2 % 3) as u8;
    let written = (0..KEYS).filter(|key| key.is_multiple_of(3) || key / 8 == (csn / 2 % 3) as u8);
    Batch(written.map(|key| (key, (key.is_multiple_of(3) || !goes(key)).then_some(csn))).collect(), Csn(csn))
}

struct World {
    tree: BTree,
    store: Arc<Store>,
    /// The newest commit that is merged.
    merged: AtomicU64,
    accounts: Mutex<BTreeMap<u32, i64>>,
}

impl World {
    fn new() -> Arc<World> {
        let store = Arc::new(Store::default());
        let tree = BTree::open(TABLE, Lsn::NULL, store.clone(), options());
        let world = World { tree, store, merged: AtomicU64::new(0), accounts: Mutex::default() };
        world.merge(1);
        Arc::new(world)
    }

    fn merge(&self, csn: u64) {
        let rules = PruneRules {
            horizon: Csn(csn),
            snapshots: Vec::new(),
            expired_until_ms: 0,
            range_deletes: Arc::new(RangeDeletes::new()),
        };
        let mut batch = batch(csn);
        while batch.peek_key().is_some() {
            self.tree.merge_some(&mut batch, &rules, 1).unwrap();
        }
        self.merged.store(csn, Ordering::SeqCst);
    }

    /// Moves all records that are live.
    fn move_records(&self) {
        let written = self.store.0.lock().len() as u32;
        let lsns = (0..written).map(|number| Lsn::new(1 + number / 4, (1 + number % 4) * 4096));
        let records: Vec<_> = lsns.map(|lsn| (lsn, self.store.read_node(lsn).unwrap())).collect();
        let records: Vec<_> = records.iter().map(|(lsn, body)| (*lsn, &body[..])).collect();
        self.tree.move_records(&records, false).unwrap();
    }

    fn book(&self, changes: &[AccountChange]) {
        let mut accounts = self.accounts.lock();
        for (segment, bytes) in changes {
            *accounts.entry(*segment).or_default() += bytes;
        }
    }

    /// A checkpoint's pass: the tree on disk holds what was merged before it began, and nothing is older than in the
    /// one before. Its records are those that are booked.
    fn write_out(&self, last: &mut [u64]) {
        let merged = self.merged.load(Ordering::SeqCst);
        let mut pass = self.tree.begin_write_out();
        while !pass.is_done() {
            let changes = self.tree.write_some(&mut pass, 200).unwrap();
            self.book(&changes);
        }
        let report = self.tree.finish_write_out(pass).unwrap();
        self.book(&report.accounts);
        let written = BTree::open(TABLE, report.root, self.store.clone(), options());
        for key in (0..KEYS).step_by(3) {
            let csn = newest(&written, key);
            let before = &mut last[usize::from(key)];
            assert!(csn >= merged.max(*before), "key {key}: {csn} on disk, {merged} merged, {before} before");
            *before = csn;
        }
        let mut counted = written.live_accounts().unwrap();
        counted.sort_unstable();
        let accounts = self.accounts.lock();
        let booked = accounts.iter().map(|(segment, bytes)| (*segment, *bytes));
        let booked: Vec<_> = booked.filter(|(_, bytes)| *bytes != 0).collect();
        assert_eq!(booked, counted, "the accounts are those of the records");
    }
}

fn options() -> BTreeOptions {
    BTreeOptions {
        leaf_bytes: 256,
        inner_bytes: 128,
        max_deltas: 2,
        delta_rule: DeltaRule::ByteShare { share: 2 },
    }
}

fn newest(tree: &BTree, key: u8) -> u64 {
    let version = tree.get(&[key], Csn::MAX, Io::Allowed).unwrap();
    version.expect("multiples of three are always there").csn.0
}

/// A checkpointer, a merger that cuts and joins, a reader, and eviction of single leaves, dirty ones too. Its changes of the
/// accounts are in the checkpointer's reports.
fn write_out_while_it_changes() {
    let step = EvictionStep { bytes: 1, slots: 5, write_bytes: 1, ..EvictionStep::ALL_CLEAN };
    write_out_while_evicting(step, 8);
}

/// The same with eviction of all that it can take at once, inner nodes too.
fn write_out_while_all_is_evicted() {
    write_out_while_evicting(EvictionStep { write_bytes: usize::MAX, ..EvictionStep::ALL_CLEAN }, 4);
}

fn write_out_while_evicting(step: EvictionStep, steps: usize) {
    let world = World::new();
    fn start(world: &Arc<World>, body: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<()> {
        let world = world.clone();
        thread::spawn(move || body(&world))
    }
    let threads = [
        start(&world, |world| (0..2).for_each(|_| world.move_records())),
        start(&world, |world| (2..=ROUNDS).for_each(|csn| world.merge(csn))),
        start(&world, |world| {
            let mut last = vec![0; usize::from(KEYS)];
            (0..2).for_each(|_| world.write_out(&mut last));
        }),
        start(&world, move |world| (0..steps).for_each(|_| _ = world.tree.evict_some(&step).unwrap())),
        start(&world, |world| {
            for key in (0..KEYS).step_by(6) {
                let merged = world.merged.load(Ordering::SeqCst);
                assert!(newest(&world.tree, key) >= merged, "a reader misses what is merged");
            }
        }),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.write_out(&mut vec![ROUNDS; usize::from(KEYS)]);
    assert_eq!(world.tree.dirty_bytes(), 0);
}

/// A parent that names a child's record from before the child's split makes this fail.
#[test]
fn a_tree_is_written_out_while_it_changes() {
    shuttle::check_random(write_out_while_it_changes, if cfg!(debug_assertions) { 3_000 } else { 30_000 });
}

#[test]
fn a_tree_is_written_out_while_all_of_it_is_evicted() {
    shuttle::check_random(
        write_out_while_all_is_evicted,
        if cfg!(debug_assertions) { 3_000 } else { 30_000 },
    );
    shuttle::check_pct(
        write_out_while_all_is_evicted,
        if cfg!(debug_assertions) { 3_000 } else { 30_000 },
        4,
    );
}

/// The same with threads that rest for long.
#[test]
fn a_tree_is_written_out_while_threads_rest() {
    shuttle::check_pct(write_out_while_it_changes, if cfg!(debug_assertions) { 3_000 } else { 30_000 }, 4);
}
