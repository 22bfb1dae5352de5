//! Readers and cursors beside merges that cut and join, passes of writing out, eviction that writes leaves, and the freeing of
//! dead segments, each on threads of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_index::btree::BTree;
use fulgurite_index::{AccountChange, Base, BaseCursor, EvictionStep, NodeKind, NodeStore, StoreError};
use fulgurite_types::{Csn, DiskReads, Lsn};

use crate::support::*;

const KEYS: u64 = 2_000;
/// Keys that always exist are multiples of this; the others come and go, so that leaves and inner nodes are cut and joined.
const ALWAYS: u64 = 20;
const COMMITS: u64 = 150;

fn key(number: u64) -> Vec<u8> {
    format!("{number:07}").into_bytes()
}

/// Records in memory, and the reads that go on.
struct Store {
    records: Arc<MemStore>,
    reads: DiskReads,
    newest_segment: AtomicU64,
}

impl NodeStore for Store {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        std::thread::yield_now();
        self.records.read_node(lsn)
    }

    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        let lsn = self.records.write_node(kind, body)?;
        self.newest_segment.fetch_max(u64::from(lsn.segment()), Ordering::SeqCst);
        std::thread::yield_now();
        Ok(lsn)
    }

    fn disk_reads(&self) -> Option<&DiskReads> {
        Some(&self.reads)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        self.records.node_bytes(body_len)
    }
}

struct World {
    tree: BTree,
    store: Arc<Store>,
    /// The newest commit that is merged, of each key that always exists.
    merged: Vec<AtomicU64>,
    done: AtomicBool,
    accounts: Mutex<BTreeMap<u32, i64>>,
}

impl World {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// A third of the commits each delete what may go of a range, write a few keys, and write many.
    fn merge_all(&self, seed: u64) {
        let mut rng = Rng(seed);
        for csn in 2..COMMITS {
            let from = rng.below(KEYS);
            let len = if csn % 3 == 2 { 40 } else { 1 + rng.below(KEYS) };
            let batch = (from..(from + len).min(KEYS)).map(|number| {
                let stays = number.is_multiple_of(ALWAYS) || csn % 3 != 1;
                let put = if stays { Put::value(csn, pinned_payload(csn)) } else { Put::tombstone(csn) };
                (key(number), vec![put])
            });
            merge(&self.tree, &batch.collect(), &rules(csn, &[]));
            for number in (from..(from + len).min(KEYS)).filter(|number| number.is_multiple_of(ALWAYS)) {
                self.merged[(number / ALWAYS) as usize].store(csn, Ordering::Release);
            }
        }
    }

    fn book(&self, changes: &[AccountChange]) {
        let mut accounts = self.accounts.lock().unwrap();
        changes.iter().for_each(|(segment, bytes)| *accounts.entry(*segment).or_default() += bytes);
    }

    /// A checkpoint, and then the segments are freed that it left dead and whose reads have ended.
    fn write_out_and_free(&self) {
        let mut retired = Vec::new();
        while !self.is_done() {
            let first = self.store.newest_segment.load(Ordering::SeqCst) as u32;
            let mut pass = self.tree.begin_write_out();
            while !pass.is_done() {
                self.book(&self.tree.write_some(&mut pass, 2000).unwrap());
            }
            self.book(&self.tree.finish_write_out(pass).unwrap().accounts);
            let mut accounts = self.accounts.lock().unwrap();
            let dead: Vec<u32> =
                accounts.range(..first).filter(|(_, bytes)| **bytes == 0).map(|(own, _)| *own).collect();
            dead.iter().for_each(|segment| _ = accounts.remove(segment));
            retired.extend(dead.into_iter().map(|segment| (segment, self.store.reads.retire())));
            let mut records = self.store.records.records.lock().unwrap();
            retired.retain(|(segment, since)| {
                let is_free = self.store.reads.have_ended(*since);
                if is_free {
                    records.retain(|lsn, _| lsn.segment() != *segment);
                }
                !is_free
            });
        }
    }

    fn evict(&self, seed: u64) {
        let mut rng = Rng(seed);
        while !self.is_done() {
            self.tree.memory().begin_batch();
            let write_bytes = if rng.below(2) == 0 { 2000 } else { 0 };
            let step = EvictionStep {
                bytes: 1 + rng.below(20_000) as usize,
                slots: 1 + rng.below(300) as usize,
                write_bytes,
                unread_only: rng.below(4) == 0,
                ..EvictionStep::ALL_CLEAN
            };
            self.tree.evict_some(&step).unwrap();
            if rng.below(16) == 0 {
                self.tree.evict(0);
            }
        }
    }

    /// Half of the look-ups begin where a prefetch found their key, some time ago.
    fn check_gets(&self, seed: u64) {
        let mut rng = Rng(seed);
        let mut prefetched = [0; 8];
        while !self.is_done() {
            if rng.below(20) == 0 {
                prefetched = prefetched.map(|_| rng.below(KEYS / ALWAYS));
                let keys = prefetched.map(|index| key(index * ALWAYS));
                self.tree.prefetch(&keys.each_ref().map(|key| (&key[..], 0)));
            }
            let index = match rng.below(2) {
                0 => prefetched[rng.below(8) as usize],
                _ => rng.below(KEYS / ALWAYS),
            };
            let merged = self.merged[index as usize].load(Ordering::Acquire);
            let (csn, payload) = get(&self.tree, &key(index * ALWAYS), u64::MAX).expect("it is always there");
            assert!(csn >= merged, "key {}: {csn} was read, {merged} merged", index * ALWAYS);
            assert_eq!(payload, pinned_payload(csn));
        }
    }

    /// Cursors that rest now and then, over nodes that are evicted, written anew and freed meanwhile.
    fn check_scans(&self, seed: u64, forward: bool) {
        let mut rng = Rng(seed);
        while !self.is_done() {
            let merged = self.merged.iter().map(|csn| csn.load(Ordering::Acquire));
            let mut merged: Vec<u64> = merged.collect();
            let mut cursor = self.tree.cursor(Csn::MAX);
            if forward { cursor.seek(&[]) } else { cursor.seek_back(None) }.unwrap();
            let mut last: Option<Vec<u8>> = None;
            while let Some(own) = cursor.key() {
                let in_order = |last: &Vec<u8>| if forward { **last < *own } else { **last > *own };
                assert!(last.as_ref().is_none_or(in_order), "each key once, in order");
                let version = cursor.version();
                assert!(version.payload.is_empty() || *version.payload == pinned_payload(version.csn.0));
                let number: u64 = std::str::from_utf8(own).unwrap().parse().unwrap();
                if number.is_multiple_of(ALWAYS) {
                    let merged = std::mem::take(&mut merged[(number / ALWAYS) as usize]);
                    assert!(
                        version.csn.0 >= merged,
                        "key {number}: {} was read, {merged} merged",
                        version.csn
                    );
                }
                last = Some(own.to_vec());
                if rng.below(50) == 0 {
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                if forward { cursor.next() } else { cursor.prev() }.unwrap();
            }
            assert!(merged.iter().all(|csn| *csn == 0), "keys are missing");
        }
    }
}

/// The name of a thread, and what it does until the work is done.
type Work<'a> = (&'static str, Box<dyn FnOnce() + Send + 'a>);

/// INV-IDX-1, INV-IDX-11, INV-IDX-12, INV-IDX-13 and INV-READ-1 at once: a read of a record that was freed fails.
fn life(seed: u64) {
    let store = Arc::new(Store {
        records: MemStore::new(),
        reads: DiskReads::default(),
        newest_segment: AtomicU64::new(0),
    });
    let tree = BTree::empty(TABLE, store.clone(), small_nodes());
    let batch: Batch = (0..KEYS).map(|n| (key(n), vec![Put::value(1, pinned_payload(1))])).collect();
    merge(&tree, &batch, &rules(1, &[]));
    let merged = (0..KEYS / ALWAYS).map(|_| AtomicU64::new(1)).collect();
    let done = AtomicBool::new(false);
    let world = World { tree, store, merged, done, accounts: Mutex::default() };
    std::thread::scope(|scope| {
        let world = &world;
        let work: [Work<'_>; 6] = [
            ("gets", Box::new(move || world.check_gets(seed + 7))),
            ("gets", Box::new(move || world.check_gets(seed + 8))),
            ("scan", Box::new(move || world.check_scans(seed + 10, true))),
            ("scan back", Box::new(move || world.check_scans(seed + 11, false))),
            ("evict", Box::new(move || world.evict(seed + 9))),
            ("write out", Box::new(move || world.write_out_and_free())),
        ];
        let threads = work.map(|(name, work)| {
            let work = move || {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                world.done.store(true, Ordering::Relaxed);
                outcome.map_err(|_| name)
            };
            scope.spawn(work)
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.merge_all(seed)));
        world.done.store(true, Ordering::Relaxed);
        outcome.unwrap();
        for thread in threads {
            thread.join().unwrap().expect("the thread has panicked");
        }
    });
    let World { tree, accounts, .. } = &world;
    world.book(&tree.write_out().unwrap().accounts);
    assert_eq!(tree.dirty_bytes(), 0);
    assert_eq!((tree.evict(0), tree.resident_bytes()), (0, 0));
    let booked: Vec<_> = accounts.lock().unwrap().iter().map(|(own, bytes)| (*own, *bytes)).collect();
    let booked: Vec<_> = booked.into_iter().filter(|(_, bytes)| *bytes != 0).collect();
    let mut counted = tree.live_accounts().unwrap();
    counted.sort_unstable();
    assert_eq!(booked, counted, "the accounts are those of the records");
    assert!(rows(tree, u64::MAX).len() as u64 >= KEYS / ALWAYS);
    nothing_is_lent(tree.memory());
}

#[test]
fn readers_see_everything_while_nodes_are_evicted_and_dead_segments_freed() {
    let seeds = std::env::var("FULGURITE_EVICTING_SEEDS").map_or(2, |seeds| seeds.parse().expect("a number"));
    (1..=seeds).for_each(life);
}

/// Nodes that left the tree are dropped once the epoch has advanced.
fn nothing_is_lent(memory: &fulgurite_index::IndexMemory) {
    for _ in 0..10_000 {
        crossbeam_epoch::pin().flush();
        if memory.lent_bytes() == 0 {
            return;
        }
        // A thread that is pinned may have lost its turn.
        std::thread::park_timeout(std::time::Duration::from_micros(200));
    }
    panic!("{} bytes are lent: {memory:?}", memory.lent_bytes());
}
