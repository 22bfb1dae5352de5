//! Prints how long a tree's lock is held while the tree is written out, on a store that takes a megabyte at a time at a
//! given rate: `cargo run --release -p fulgurite-index --example write_out_bench -- [million rows] [MB/s]`.
//!
//! First half of the rows are written out with nothing beside; then while rows are merged at random keys between them.
//! A probe takes the lock again and again and gives it back at once, so its longest wait is the longest hold.

#![expect(clippy::disallowed_methods, reason = "a benchmark with threads and time of its own")]

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fulgurite_index::btree::{BTree, BTreeOptions};
use fulgurite_index::{
    Base, MergeSource, MergeVersion, NodeKind, NodeStore, PruneRules, StoreError, VersionFlags,
};
use fulgurite_types::{Csn, Lsn, TableId};

/// Forgets records; takes the time that a disk would need for them.
struct Disk {
    bytes: AtomicU64,
    bytes_per_s: u64,
}

impl NodeStore for Disk {
    fn read_node(&self, _: Lsn) -> Result<Vec<u8>, StoreError> {
        Err("records are not kept".into())
    }

    fn write_node(&self, _: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        const BUFFER: u64 = 1 << 20;
        let len = body.len() as u64 + 32;
        std::hint::black_box(body.to_vec());
        let at = self.bytes.fetch_add(len, Ordering::Relaxed);
        if at / BUFFER != (at + len) / BUFFER {
            std::thread::sleep(Duration::from_nanos(BUFFER * 1_000_000_000 / self.bytes_per_s));
        }
        Ok(Lsn::new(1 + (at >> 26) as u32, (at & ((1 << 26) - 1)) as u32 + 1))
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        body_len as u32 + 32
    }
}

/// Rows `first`, `first + step`, .. of a shuffled or an ascending order.
struct Rows {
    keys: std::vec::IntoIter<u64>,
    key: Option<[u8; 16]>,
    csn: u64,
}

impl Rows {
    fn new(mut keys: Vec<u64>, csn: u64) -> Rows {
        keys.sort_unstable();
        keys.dedup();
        let mut rows = Rows { keys: keys.into_iter(), key: None, csn };
        rows.advance();
        rows
    }

    fn advance(&mut self) {
        self.key = self.keys.next().map(|key| u128::from(key).to_be_bytes());
    }
}

impl MergeSource for Rows {
    fn peek_key(&mut self) -> Option<&[u8]> {
        self.key.as_ref().map(|key| &key[..])
    }

    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>) {
        out.push(MergeVersion {
            csn: Csn(self.csn),
            flags: VersionFlags(0),
            expires_at_ms: 0,
            payload: Cow::Owned(self.csn.to_le_bytes().to_vec()),
        });
        self.advance();
    }
}

fn rules(csn: u64) -> PruneRules {
    PruneRules {
        horizon: Csn(csn),
        snapshots: Vec::new(),
        expired_until_ms: 0,
        range_deletes: Arc::default(),
    }
}

/// Milliseconds, to a hundredth.
fn ms(ns: u64) -> f64 {
    (ns / 10_000) as f64 / 100.0
}

/// Writes the tree out in steps of 1 MiB, and prints the longest wait of a probe in the steps and in the end.
fn write_out(tree: &BTree, disk: &Disk, title: &str) {
    let (phase, waits) = (AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]);
    let before = disk.bytes.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let during = phase.load(Ordering::Acquire);
                if during > 1 {
                    break;
                }
                let start = Instant::now();
                tree.evict(usize::MAX);
                let during = phase.load(Ordering::Acquire).min(1);
                waits[during as usize].fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let start = Instant::now();
        let mut pass = tree.begin_write_out();
        while !pass.is_done() {
            tree.write_some(&mut pass, 1 << 20).unwrap();
        }
        let steps = start.elapsed();
        let written = disk.bytes.load(Ordering::Relaxed) - before;
        phase.store(1, Ordering::Release);
        let report = tree.finish_write_out(pass).unwrap();
        let end = start.elapsed() - steps;
        phase.store(2, Ordering::Release);
        println!(
            "{title}: steps {steps:.2?}, {} MiB, longest hold {} ms; end {end:.2?}, {} KiB, longest hold {} ms; {:?} records",
            written >> 20,
            ms(waits[0].load(Ordering::Relaxed)),
            (disk.bytes.load(Ordering::Relaxed) - before - written) >> 10,
            ms(waits[1].load(Ordering::Relaxed)),
            &report.records_written[1..],
        );
    });
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let rows = args.next().unwrap_or(20) * 1_000_000;
    let bytes_per_s = args.next().unwrap_or(2_000) * 1_000_000;
    let disk = Arc::new(Disk { bytes: AtomicU64::new(0), bytes_per_s });
    let tree = BTree::empty(TableId(1), disk.clone(), BTreeOptions::default());
    for from in (0..rows).step_by(1 << 20) {
        let keys = (from..rows.min(from + (1 << 20))).map(|row| row * 1000).collect();
        tree.merge(&mut Rows::new(keys, 1), &rules(1)).unwrap();
    }
    write_out(&tree, &disk, "all");
    let (done, merged) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut seed = 42_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 20) % (rows * 1000)
    };
    // So that all leaves are dirty.
    tree.merge(&mut Rows::new((0..rows / 20).map(|_| random()).collect(), 2), &rules(2)).unwrap();
    write_out(&tree, &disk, "a twentieth was merged at random");
    tree.merge(&mut Rows::new((0..rows / 20).map(|_| random()).collect(), 3), &rules(3)).unwrap();
    std::thread::scope(|scope| {
        let (tree, done, merged) = (&tree, &done, &merged);
        scope.spawn(move || {
            for csn in 4.. {
                let mut batch = Rows::new((0..100_000).map(|_| random()).collect(), csn);
                while batch.key.is_some() {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    tree.merge_some(&mut batch, &rules(csn), 256 << 10).unwrap();
                }
                merged.fetch_add(100_000, Ordering::Relaxed);
            }
        });
        write_out(tree, &disk, "the same, while more is merged");
        done.store(true, Ordering::Relaxed);
    });
    println!("{} rows were merged meanwhile", merged.load(Ordering::Relaxed));
}
