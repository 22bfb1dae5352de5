//! INV-TXN-14: a read of one key without a snapshot finds a key that always had a value.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::{Env, LockMode, Locking, SimEnv};
use fulgurite_index::range_delete::RangeDeletes;
use fulgurite_index::{Pinned, PruneRules, Version, VersionFlags};
use fulgurite_log::Durability;
use fulgurite_types::Csn;
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::fake_log::{FakeLog, pipeline, submit_in};
use crate::files::Files;
use crate::reads::Reads;

/// The versions of one key, a lease that is renewed: the CSN of each, and when it expires.
type Versions = Vec<(Csn, u64)>;

/// The newest version at or below a CSN.
fn newest(versions: &Versions, at: Csn) -> Option<(Csn, u64)> {
    versions.iter().copied().filter(|(csn, _)| *csn <= at).max()
}

struct World {
    env: Arc<SimEnv>,
    pipeline: Arc<Pipeline<FakeLog>>,
    reads: Reads<FakeLog>,
    start_ms: u64,
    memtables: Arc<Mutex<Versions>>,
    base: Mutex<Versions>,
}

/// When the version expires that the key has from the start, in milliseconds after it.
const FIRST_MS: u64 = 2;
/// The same for the version that renews it.
const SECOND_MS: u64 = 1000;

impl World {
    /// The key has one version, which is durable, and is in the memtables.
    fn new() -> Arc<World> {
        let (env, (_, pipeline)) = (SimEnv::new(1), pipeline(3));
        let dir = Path::new("/db");
        env.disk().create_dir_all(dir).unwrap();
        let home = env.disk().open_dir(dir).unwrap();
        let Locking::Taken(lock) = home.lock("LOCK", LockMode::Exclusive).unwrap() else { unreachable!() };
        let clock = Arc::new(Clock::open(0, None, env.clock()));
        let reads = Reads::new(pipeline.clone(), Arc::new(Files::new(home, lock)), clock, env.clone());
        let world = Arc::new(World {
            start_ms: reads.now_ms(),
            env,
            pipeline,
            reads,
            memtables: Arc::default(),
            base: Mutex::default(),
        });
        assert!(world.write(u64::MAX, world.start_ms + FIRST_MS));
        world
    }

    /// Commits a version of the key, and waits until it is synced. False if it is too late.
    fn write(&self, before_ms: u64, expires_at_ms: u64) -> bool {
        let read_csn = || self.pipeline.read_csn();
        let (time, beginning) = self.reads.deadlines.begin(before_ms, || self.reads.now_ms(), read_csn);
        let on_numbered = |csn| {
            if let Some(beginning) = beginning {
                beginning.numbered(csn);
            }
        };
        let memtables = self.memtables.clone();
        let apply = move |csn| memtables.lock().unwrap().push((csn, expires_at_ms));
        let Some(csn) = submit_in(&self.pipeline, Durability::Sync, time, apply, on_numbered) else {
            return false;
        };
        self.pipeline.wait_horizon(csn).unwrap();
        true
    }

    /// Merges the memtables up to a boundary at or below the horizon: writes the base, then drops them.
    fn merge(&self, boundary: Csn) {
        let rules = self.reads.prune_rules_of(&Arc::new(RangeDeletes::new()));
        let mut merged = self.base.lock().unwrap().clone();
        merged.extend(self.memtables.lock().unwrap().iter().filter(|(csn, _)| *csn <= boundary));
        merged.sort_unstable();
        *self.base.lock().unwrap() = pruned(&merged, &rules);
        self.memtables.lock().unwrap().retain(|(csn, _)| *csn > boundary);
    }

    /// What [`fulgurite_index::table::Table::get_newest`] finds: the newest version in the memtables at or below a CSN,
    /// or else the newest in the base.
    fn get_newest(&self, at: Csn) -> Option<Version> {
        let recent = newest(&self.memtables.lock().unwrap(), at);
        let (csn, expires_at_ms) = recent.or_else(|| newest(&self.base.lock().unwrap(), Csn::MAX))?;
        let flags = VersionFlags(VersionFlags::EXPIRES);
        Some(Version { csn, flags, expires_at_ms, payload: Pinned::EMPTY })
    }

    /// What a snapshot finds.
    fn get(&self, at: Csn, now_ms: u64) -> bool {
        let recent = newest(&self.memtables.lock().unwrap(), at);
        let found = recent.or_else(|| newest(&self.base.lock().unwrap(), at));
        found.is_some_and(|(_, expires_at_ms)| now_ms < expires_at_ms)
    }

    /// A single operation, as `Table::live_version` does it: whether the key has a value.
    fn is_live(&self) -> bool {
        let begun_ms = self.reads.now_ms();
        let at = self.pipeline.read_csn();
        let found = self.get_newest(at);
        if self.reads.needs_no_snapshot(found.as_ref(), at) {
            // It returns what it found, which must not have expired before it began.
            return found.is_some_and(|version| version.is_live_at(begun_ms));
        }
        let snapshot = self.reads.snapshot(|| self.pipeline.read_csn());
        self.get(snapshot.csn, snapshot.now_ms)
    }
}

/// What pruning keeps of a key's versions.
fn pruned(versions: &Versions, rules: &PruneRules) -> Versions {
    let next = |csn: Csn| versions.iter().map(|(next, _)| *next).find(|next| *next > csn).unwrap_or(Csn::MAX);
    let is_seen = |csn: Csn| {
        let at_horizon = rules.horizon.max(csn);
        at_horizon < next(csn) || rules.snapshots.iter().any(|at| (csn..next(csn)).contains(at))
    };
    let kept: Versions = versions.iter().copied().filter(|(csn, _)| is_seen(*csn)).collect();
    match kept[..] {
        [(csn, expires_at_ms)]
            if expires_at_ms <= rules.expired_until_ms
                && csn <= rules.horizon
                && rules.snapshots.first().is_none_or(|oldest| csn <= *oldest) =>
        {
            vec![]
        }
        _ => kept,
    }
}

/// The lease is renewed, time passes, memtables that end at the first version and later ones are merged, and readers
/// look.
fn reads_beside_a_renewal_and_merges() {
    let world = World::new();
    let renewer = {
        let world = world.clone();
        thread::spawn(move || world.write(world.start_ms + FIRST_MS, world.start_ms + SECOND_MS))
    };
    let ticks = {
        let world = world.clone();
        thread::spawn(move || world.env.advance(Duration::from_millis(FIRST_MS + 1)))
    };
    let merger = {
        let world = world.clone();
        thread::spawn(move || {
            world.merge(Csn(1));
            world.merge(world.pipeline.horizon());
        })
    };
    let readers = [0, 1].map(|_| {
        let world = world.clone();
        thread::spawn(move || world.is_live())
    });
    let found = readers.map(|reader| reader.join().unwrap());
    ticks.join().unwrap();
    merger.join().unwrap();
    if renewer.join().unwrap() {
        assert_eq!(found, [true; 2], "INV-TXN-14: there was no moment without a value");
        assert!(world.is_live());
    }
}

#[test]
fn a_single_read_finds_a_key_that_always_had_a_value() {
    shuttle::check_random(reads_beside_a_renewal_and_merges, 20_000);
}

#[test]
fn a_single_read_finds_a_key_that_always_had_a_value_however_threads_are_preempted() {
    shuttle::check_pct(reads_beside_a_renewal_and_merges, 40_000, 5);
}
