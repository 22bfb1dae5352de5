//! INV-TXN-1: what a registered snapshot sees is never pruned.

use std::collections::BTreeSet;
use std::sync::Arc;

use fulgurite_types::Csn;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::deadlines::Deadlines;
use crate::snapshots::{SnapshotGuard, Snapshots};

const COMMITS: u64 = 4;

/// One key that every commit writes, so that a reader at a CSN knows which version it has to find.
struct Model {
    snapshots: Snapshots,
    visible: AtomicU64,
    versions: Mutex<BTreeSet<u64>>,
    now_ms: AtomicU64,
}

#[derive(Clone, Copy)]
enum PrunerReads {
    HorizonFirst,
    SlotsFirst,
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            snapshots: Snapshots::new(),
            visible: AtomicU64::new(0),
            versions: Mutex::new([0].into()),
            now_ms: AtomicU64::new(0),
        })
    }

    fn visible(&self) -> Csn {
        Csn(self.visible.load(Ordering::SeqCst))
    }

    fn commit_all(&self) {
        for csn in 1..=COMMITS {
            self.versions.lock().unwrap().insert(csn);
            self.now_ms.store(csn, Ordering::SeqCst);
            self.visible.store(csn, Ordering::SeqCst);
        }
    }

    fn prune(&self, order: PrunerReads) {
        let (horizon, open) = match order {
            PrunerReads::HorizonFirst => {
                let horizon = self.visible();
                (horizon, self.snapshots.open().0)
            }
            PrunerReads::SlotsFirst => {
                let open = self.snapshots.open().0;
                (self.visible(), open)
            }
        };
        let mut versions = self.versions.lock().unwrap();
        let newer: Vec<(u64, u64)> = versions.iter().copied().zip(versions.iter().copied().skip(1)).collect();
        for (version, next) in newer {
            let is_seen = open.iter().any(|at| version <= at.0 && at.0 < next);
            if next <= horizon.0 && !is_seen {
                versions.remove(&version);
            }
        }
    }

    fn register(&self) -> SnapshotGuard {
        let before = self.visible();
        let guard = self.register_at(|| self.now_ms.load(Ordering::SeqCst));
        assert!(guard.csn >= before, "a snapshot sees what was visible before it began");
        guard
    }

    /// Registers a snapshot while no commit has a deadline.
    fn register_at(&self, now_ms: impl Fn() -> u64) -> SnapshotGuard {
        self.snapshots.register(now_ms, || self.visible(), &Deadlines::new(), || self.visible())
    }

    fn assert_sees(&self, guard: &SnapshotGuard) {
        let found = self.versions.lock().unwrap().range(..=guard.csn.0).next_back().copied();
        assert_eq!(found, Some(guard.csn.0), "INV-TXN-1: a version that a snapshot sees was pruned");
    }
}

fn explore(order: PrunerReads) {
    let model = Model::new();
    let (committer, pruner) = (model.clone(), model.clone());
    let committer = thread::spawn(move || committer.commit_all());
    let pruner = thread::spawn(move || (0..4).for_each(|_| pruner.prune(order)));
    let readers = [0, 1].map(|_| {
        let model = model.clone();
        thread::spawn(move || {
            drop(model.register());
            let guard = model.register();
            model.assert_sees(&guard);
            guard
        })
    });
    let guards = readers.map(|reader| reader.join().unwrap());
    committer.join().unwrap();
    pruner.join().unwrap();
    guards.iter().for_each(|guard| model.assert_sees(guard));
    drop(guards);
    assert_eq!(model.snapshots.open(), (vec![], None));
}

#[test]
fn what_a_snapshot_sees_is_never_pruned() {
    shuttle::check_random(|| explore(PrunerReads::HorizonFirst), 40_000);
}

#[test]
fn what_a_snapshot_sees_is_never_pruned_however_threads_are_preempted() {
    shuttle::check_pct(|| explore(PrunerReads::HorizonFirst), 20_000, 5);
}

/// A canary: with the pruner's two reads swapped, the exploration has to find a missing version.
#[test]
#[should_panic(expected = "INV-TXN-1")]
fn slots_read_before_the_horizon_lose_a_version() {
    shuttle::check_pct(|| explore(PrunerReads::SlotsFirst), 20_000, 5);
}

/// The same for time: a pruner that reads the clock before the slots never prunes by a time after an open snapshot's.
#[test]
fn no_version_expires_under_a_snapshot() {
    let explore = || {
        let model = Model::new();
        let expired_until = Arc::new(AtomicU64::new(0));
        let pruner = {
            let (model, expired_until) = (model.clone(), expired_until.clone());
            thread::spawn(move || {
                model.now_ms.fetch_add(1, Ordering::SeqCst);
                let now = model.now_ms.load(Ordering::SeqCst);
                let (_, oldest) = model.snapshots.open();
                expired_until.fetch_max(oldest.map_or(now, |oldest| oldest.min(now)), Ordering::SeqCst);
            })
        };
        for _ in 0..2 {
            let guard = model.register_at(|| model.now_ms.load(Ordering::SeqCst));
            assert!(expired_until.load(Ordering::SeqCst) <= guard.now_ms);
            thread::yield_now();
            assert!(expired_until.load(Ordering::SeqCst) <= guard.now_ms);
        }
        pruner.join().unwrap();
    };
    shuttle::check_random(explore, 10_000);
}
