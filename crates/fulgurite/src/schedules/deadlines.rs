//! INV-TIME-3: the time of a snapshot is before the deadline of each commit that it does not see.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::{Env, SimEnv};
use fulgurite_log::Durability;
use fulgurite_types::Csn;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::fake_log::{FakeLog, pipeline, submit_in};
use crate::deadlines::Deadlines;
use crate::snapshots::{SnapshotGuard, Snapshots};

/// The watermark at which a snapshot begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// `visible`, like a transaction.
    Visible,
    /// `read_csn`, like a `Snapshot`.
    Read,
}

#[derive(Clone, Copy)]
enum PrunerReads {
    DeadlinesFirst,
    SlotsFirst,
}

struct World {
    env: Arc<SimEnv>,
    clock: Clock,
    log: Arc<FakeLog>,
    pipeline: Arc<Pipeline<FakeLog>>,
    snapshots: Snapshots,
    deadlines: Deadlines,
    start_ms: u64,
    /// The commits that have a deadline, with it.
    before_ms: Mutex<Vec<(Csn, u64)>>,
    /// The snapshots: at which watermark they began, their CSNs and times.
    begun: Mutex<Vec<(At, Csn, u64)>>,
    expired_until_ms: AtomicU64,
}

impl World {
    fn new() -> Arc<World> {
        let (env, (log, pipeline)) = (SimEnv::new(1), pipeline(3));
        let clock = Clock::open(0, None, env.clock());
        Arc::new(World {
            start_ms: clock.now_ms(env.clock()),
            env,
            clock,
            log,
            pipeline,
            snapshots: Snapshots::new(),
            deadlines: Deadlines::new(),
            before_ms: Mutex::default(),
            begun: Mutex::default(),
            expired_until_ms: AtomicU64::new(0),
        })
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms(self.env.clock())
    }

    /// Commits before the deadline, unless it is too late.
    fn commit(&self, before_ms: u64) {
        let read_csn = || self.pipeline.read_csn();
        let (time, beginning) = self.deadlines.begin(before_ms, || self.now_ms(), read_csn);
        let on_numbered = |csn| {
            if let Some(beginning) = beginning {
                self.before_ms.lock().unwrap().push((csn, before_ms));
                beginning.numbered(csn);
            }
        };
        if let Some(csn) = submit_in(&self.pipeline, Durability::Sync, time, |_| {}, on_numbered) {
            self.pipeline.wait(csn).unwrap();
        }
    }

    fn begin(&self, at: At) -> SnapshotGuard {
        let csn = || if at == At::Visible { self.pipeline.visible() } else { self.pipeline.read_csn() };
        let read_csn = || self.pipeline.read_csn();
        let guard = self.snapshots.register(|| self.now_ms(), csn, &self.deadlines, read_csn);
        self.begun.lock().unwrap().push((at, guard.csn, guard.now_ms));
        self.assert_keeps(&guard);
        guard
    }

    /// Asserts that every pruned version has expired for the snapshot, too.
    fn assert_keeps(&self, guard: &SnapshotGuard) {
        assert!(self.expired_until_ms.load(Ordering::SeqCst) <= guard.now_ms, "pruned under a snapshot");
    }

    fn prune(&self, order: PrunerReads) {
        let now_ms = self.now_ms();
        let deadline_ms = || self.deadlines.lock(self.pipeline.read_csn()).before(now_ms, Csn::ZERO);
        let slots_ms = || self.snapshots.open().1.unwrap_or(u64::MAX);
        let until_ms = match order {
            PrunerReads::DeadlinesFirst => deadline_ms().min(slots_ms()),
            PrunerReads::SlotsFirst => slots_ms().min(deadline_ms()),
        };
        self.expired_until_ms.fetch_max(until_ms, Ordering::SeqCst);
    }

    /// Asserts that commits and snapshots have an order in which time rises and each commit is before its deadline.
    fn assert_serializable(&self) {
        let (times_ms, before_ms) = (self.log.times_ms(), self.before_ms.lock().unwrap());
        let begun = self.begun.lock().unwrap();
        for &(at, csn, now_ms) in begun.iter() {
            let newest_ms = times_ms[..csn.0 as usize].iter().copied().max();
            assert!(newest_ms <= Some(now_ms), "INV-TIME-2: a snapshot is before a commit that it sees");
            for (unseen, before_ms) in before_ms.iter().filter(|(unseen, _)| *unseen > csn) {
                assert!(now_ms < *before_ms, "INV-TIME-3: {csn} at {now_ms}, {unseen} before {before_ms}");
            }
            let mut later = begun.iter().filter(|later| (later.0, at) == (At::Visible, At::Visible));
            assert!(later.all(|later| later.1 <= csn || later.2 >= now_ms), "times of snapshots rise");
        }
    }
}

/// Threads commit with and without deadlines, time passes, snapshots begin, and a pruner prunes.
fn commits_and_snapshots() {
    let world = World::new();
    let committers = [2, 4].map(|in_ms| {
        let world = world.clone();
        thread::spawn(move || {
            world.commit(world.start_ms + in_ms);
            world.commit(world.start_ms + in_ms + 1);
        })
    });
    let ticks = {
        let world = world.clone();
        thread::spawn(move || {
            for _ in 0..3 {
                world.env.advance(Duration::from_millis(2));
                world.commit(u64::MAX);
            }
        })
    };
    let readers = [[At::Visible, At::Read], [At::Read, At::Visible]].map(|ats| {
        let world = world.clone();
        thread::spawn(move || ats.map(|at| world.begin(at)))
    });
    (0..2).for_each(|_| drop(world.begin(At::Visible)));
    world.prune(PrunerReads::DeadlinesFirst);
    let guards = readers.map(|reader| reader.join().unwrap());
    committers.into_iter().for_each(|committer| committer.join().unwrap());
    ticks.join().unwrap();
    guards.iter().flatten().for_each(|guard| world.assert_keeps(guard));
    world.assert_serializable();
}

#[test]
fn snapshots_begin_before_the_deadlines_of_commits_that_they_do_not_see() {
    shuttle::check_random(commits_and_snapshots, 20_000);
}

#[test]
fn snapshots_begin_before_the_deadlines_of_commits_that_they_do_not_see_however_threads_are_preempted() {
    shuttle::check_pct(commits_and_snapshots, 20_000, 5);
}

/// A commit's deadline passes while a snapshot begins and a pruner prunes.
fn a_deadline_and_a_pruner(order: PrunerReads) {
    let world = World::new();
    let committer = {
        let world = world.clone();
        thread::spawn(move || world.commit(world.start_ms + 2))
    };
    let pruner = {
        let world = world.clone();
        thread::spawn(move || {
            world.env.advance(Duration::from_millis(2));
            world.prune(order);
        })
    };
    let guard = world.begin(At::Visible);
    [committer, pruner].into_iter().for_each(|thread| thread.join().unwrap());
    world.assert_keeps(&guard);
    world.assert_serializable();
}

#[test]
fn what_a_snapshot_before_a_deadline_sees_live_is_not_pruned() {
    shuttle::check_pct(|| a_deadline_and_a_pruner(PrunerReads::DeadlinesFirst), 40_000, 4);
}

/// A canary: a deadline that the pruner misses sets back the time of a snapshot that begins between the pruner's two
/// reads.
#[test]
#[should_panic(expected = "pruned under a snapshot")]
fn slots_read_before_the_deadlines_lose_a_version() {
    shuttle::check_pct(|| a_deadline_and_a_pruner(PrunerReads::SlotsFirst), 40_000, 4);
}
