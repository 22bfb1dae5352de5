//! INV-TXN-15: a reader that is ended in the middle of a step returns the right value or an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use fulgurite_types::Csn;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::deadlines::Deadlines;
use crate::snapshots::{SnapshotGuard, Snapshots};

const COMMITS: u64 = 3;
const AGE_NS_MAX: u64 = 2;

/// One key that every commit writes, so that a reader at a CSN knows which version it has to find. Its values are apart
/// from its versions, and pruned later.
struct Model {
    snapshots: Snapshots,
    visible: AtomicU64,
    now_ns: AtomicU64,
    versions: Mutex<BTreeSet<u64>>,
    values: Mutex<BTreeSet<u64>>,
}

#[derive(Clone, Copy)]
enum ReaderAsks {
    AfterReading,
    BetweenReads,
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            snapshots: Snapshots::new(),
            visible: AtomicU64::new(0),
            now_ns: AtomicU64::new(0),
            versions: Mutex::new([0].into()),
            values: Mutex::new([0].into()),
        })
    }

    fn commit_all(&self) {
        for csn in 1..=COMMITS {
            self.values.lock().unwrap().insert(csn);
            self.versions.lock().unwrap().insert(csn);
            self.visible.store(csn, Ordering::SeqCst);
        }
    }

    /// Time passes, and what no snapshot sees is removed.
    fn prune(&self) {
        let now_ns = self.now_ns.fetch_add(1, Ordering::SeqCst) + 1;
        self.snapshots.end_older(now_ns, AGE_NS_MAX);
        let horizon = self.visible.load(Ordering::SeqCst);
        let open = self.snapshots.open().0;
        let mut versions = self.versions.lock().unwrap();
        let newer: Vec<(u64, u64)> = versions.iter().copied().zip(versions.iter().copied().skip(1)).collect();
        let is_seen = |from: u64, to: u64| open.iter().any(|at| from <= at.0 && at.0 < to);
        let gone = newer.into_iter().filter(|&(version, next)| next <= horizon && !is_seen(version, next));
        let gone: Vec<u64> = gone.map(|(version, _)| version).collect();
        versions.retain(|version| !gone.contains(version));
        drop(versions);
        self.values.lock().unwrap().retain(|value| !gone.contains(value));
    }

    fn begin(&self) -> SnapshotGuard {
        let begun_ns = self.now_ns.load(Ordering::SeqCst);
        let visible = || Csn(self.visible.load(Ordering::SeqCst));
        self.snapshots.register(|| 1, visible, &Deadlines::new(), visible).may_end(begun_ns)
    }

    fn version(&self, guard: &SnapshotGuard) -> Option<u64> {
        self.versions.lock().unwrap().range(..=guard.csn.0).next_back().copied()
    }

    fn value(&self, version: u64) -> Option<u64> {
        self.values.lock().unwrap().get(&version).copied()
    }

    /// One step: the value, or an error if the reader was ended.
    fn read(&self, guard: &SnapshotGuard, asks: ReaderAsks) -> Result<Option<u64>, ()> {
        let version = self.version(guard);
        let between = guard.has_ended();
        let value = version.and_then(|version| self.value(version));
        let has_ended = match asks {
            ReaderAsks::AfterReading => guard.has_ended(),
            ReaderAsks::BetweenReads => between,
        };
        if has_ended { Err(()) } else { Ok(value) }
    }
}

fn read_twice_and_commit(model: &Model, asks: ReaderAsks) {
    let guard = model.begin();
    for _ in 0..2 {
        match model.read(&guard, asks) {
            Ok(value) => assert_eq!(value, Some(guard.csn.0), "INV-TXN-15: a reader missed a value"),
            Err(()) => {
                let age = model.now_ns.load(Ordering::SeqCst) - guard.begun_ns().unwrap();
                assert!(age > AGE_NS_MAX, "only old readers are ended");
                assert!(model.read(&guard, asks).is_err() && !guard.keep(), "a reader that ended has ended");
                return;
            }
        }
    }
    if guard.keep() {
        for _ in 0..2 {
            let value = model.version(&guard).and_then(|version| model.value(version));
            assert_eq!(value, Some(guard.csn.0), "INV-TXN-15: a version was pruned under a commit");
            assert!(!guard.has_ended());
        }
    }
}

fn explore(asks: ReaderAsks) {
    let model = Model::new();
    let (committer, pruner) = (model.clone(), model.clone());
    let committer = thread::spawn(move || committer.commit_all());
    let pruner = thread::spawn(move || (0..6).for_each(|_| pruner.prune()));
    let readers = [0, 1].map(|_| {
        let model = model.clone();
        thread::spawn(move || {
            drop(model.begin());
            read_twice_and_commit(&model, asks);
        })
    });
    let idle = model.begin();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    committer.join().unwrap();
    pruner.join().unwrap();
    // The idle reader, which makes no step, keeps nothing.
    (0..=AGE_NS_MAX).for_each(|_| model.prune());
    assert_eq!(*model.versions.lock().unwrap(), [COMMITS].into());
    assert!(model.read(&idle, asks).is_err());
    drop(idle);
    assert_eq!(model.snapshots.open(), (vec![], None));
}

#[test]
fn a_reader_that_is_ended_returns_the_right_value_or_an_error() {
    shuttle::check_random(|| explore(ReaderAsks::AfterReading), 20_000);
}

#[test]
fn a_reader_that_is_ended_returns_the_right_value_or_an_error_however_threads_are_preempted() {
    shuttle::check_pct(|| explore(ReaderAsks::AfterReading), 20_000, 5);
}

/// A canary: a reader that asks before it reads the value has to miss one.
#[test]
#[should_panic(expected = "INV-TXN-15")]
fn a_reader_that_asks_before_its_last_read_misses_a_value() {
    shuttle::check_pct(|| explore(ReaderAsks::BetweenReads), 20_000, 5);
}
