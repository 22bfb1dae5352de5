//! The acknowledged commits that each level of durability keeps, after each kind of crash.

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use crate::common::rng::Rng;
use fulgurite::env::Env;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Durability, Options, Table};

const INTERVAL: Duration = Duration::from_millis(20);
const ASYNC: Durability = Durability::Async { interval: INTERVAL };
const COMMITS: u64 = 60;

/// The acknowledged commits that have to be there. Those that are there are always a prefix of all commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    All,
    /// All that were acknowledged longer ago than the interval.
    Older,
    /// Any prefix.
    Prefix,
}

const CRASHES: [CrashKind; 3] = [CrashKind::Kill, CrashKind::OsCrash, CrashKind::PowerCut];

fn promise(level: Durability) -> Promise {
    match level {
        Durability::Sync | Durability::NoBarrier => Promise::All,
        Durability::Async { .. } => Promise::Older,
        _ => Promise::Prefix,
    }
}

/// A disk as the levels assume it: with a power-safe cache for [`Durability::NoBarrier`], else with a volatile one.
fn disk(seed: u64, levels: &[Durability]) -> Arc<SimEnv> {
    let sim = SimEnv::new(seed);
    sim.faults().power_safe_cache(levels.contains(&Durability::NoBarrier));
    sim
}

fn open(sim: &Arc<SimEnv>) -> Database {
    let options = Options { assume_power_safe_cache: true, ..common::options() };
    Database::open_with(sim.clone(), common::PATH, options, |_| {}).unwrap()
}

/// A commit that was acknowledged.
struct Acknowledged {
    nth: u64,
    level: Durability,
    at_ns: u64,
}

/// Commits, each at one of `levels`, while time passes and maintenance runs now and then. Returns the commits, and when
/// maintenance ran last.
fn session(
    sim: &Arc<SimEnv>,
    db: &Database,
    levels: &[Durability],
    rng: &mut Rng,
) -> (Vec<Acknowledged>, u64) {
    let table = db.table("t").unwrap();
    let mut acknowledged = Vec::new();
    let mut maintained_ns = 0;
    for nth in 1..=COMMITS {
        let level = levels[rng.below(levels.len() as u64) as usize];
        let mut txn = db.begin();
        txn.set_durability(level).unwrap();
        txn.put(&table, b"newest", &nth.to_be_bytes()).unwrap();
        txn.put(&table, &nth.to_be_bytes(), &rng.bytes(300)).unwrap();
        let deferred = rng.below(3) == 0;
        let committed =
            if deferred { txn.commit_deferred().and_then(|ticket| ticket.wait()) } else { txn.commit() };
        committed.unwrap();
        assert_eq!(newest(&table), nth, "a committer sees its acknowledged commit");
        acknowledged.push(Acknowledged { nth, level, at_ns: sim.clock().monotonic_ns() });
        sim.advance(Duration::from_millis(rng.below(8)));
        if rng.below(6) == 0 {
            db.maintain().unwrap();
            maintained_ns = sim.clock().monotonic_ns();
        }
    }
    (acknowledged, maintained_ns)
}

fn newest(table: &Table) -> u64 {
    let bytes = table.get(b"newest").unwrap();
    bytes.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()))
}

/// The newest commit that is there; all before it have to be there, too, and none after it.
fn recovered(sim: &Arc<SimEnv>) -> u64 {
    let db = open(sim);
    let Ok(table) = db.open_table("t") else { return 0 };
    let newest = newest(&table);
    for nth in 1..=COMMITS {
        let is_there = table.get(&nth.to_be_bytes()).unwrap().is_some();
        assert_eq!(is_there, nth <= newest, "commit {nth} of {newest}: not a prefix");
    }
    assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    newest
}

fn crash_and_look(levels: &[Durability], seed: u64) {
    for kind in CRASHES {
        let sim = disk(seed, levels);
        let db = open(&sim);
        let (acknowledged, maintained_ns) = session(&sim, &db, levels, &mut Rng::new(seed));
        let after = sim.crash(kind, seed);
        drop(db);
        let newest = recovered(&after);
        for commit in acknowledged {
            let is_old = commit.at_ns + INTERVAL.as_nanos() as u64 <= maintained_ns;
            let has_to_be_there = match promise(commit.level) {
                Promise::All => true,
                Promise::Older => is_old,
                Promise::Prefix => false,
            };
            assert!(
                !has_to_be_there || commit.nth <= newest,
                "seed {seed}, {kind:?}: commit {} of level {:?} is missing, {newest} is the newest",
                commit.nth,
                commit.level
            );
        }
    }
}

#[test]
fn each_level_keeps_what_it_promises() {
    for level in [Durability::Sync, Durability::NoBarrier, ASYNC, Durability::None] {
        (1..=8).for_each(|seed| crash_and_look(&[level], seed));
    }
}

#[test]
fn mixed_levels_keep_what_each_promises() {
    let levels = [Durability::Sync, Durability::NoBarrier, ASYNC, Durability::None, ASYNC, Durability::None];
    (1..=40).for_each(|seed| crash_and_look(&levels, seed));
}

/// A canary: commits that no flush made durable do get lost, so the tests above can fail.
#[test]
fn a_commit_that_nothing_made_durable_is_lost_with_the_process() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    txn.set_durability(Durability::None).unwrap();
    txn.put(&table, b"newest", &1u64.to_be_bytes()).unwrap();
    txn.commit().unwrap();
    assert_eq!(recovered(&sim.crash(CrashKind::Kill, 1)), 0);
}

#[test]
fn a_commit_that_was_waited_for_or_closed_is_durable_at_any_level() {
    type MakeDurable = fn(Database, fulgurite::Csn);
    let ways: [(&str, MakeDurable); 3] = [
        ("wait_durable", |db, csn| db.wait_durable(csn).unwrap()),
        ("checkpoint", |db, csn| assert!(db.checkpoint().unwrap().covered >= csn)),
        ("close", |db, _| db.close().unwrap()),
    ];
    for (way, make_durable) in ways {
        for level in [ASYNC, Durability::None, Durability::NoBarrier] {
            let sim = disk(1, &[level]);
            let db = open(&sim);
            let table = db.table("t").unwrap();
            let mut txn = db.begin();
            txn.set_durability(level).unwrap();
            txn.put(&table, b"newest", &1u64.to_be_bytes()).unwrap();
            txn.put(&table, &1u64.to_be_bytes(), b"v").unwrap();
            let csn = txn.commit().unwrap().csn;
            make_durable(db.clone(), csn);
            for kind in CRASHES {
                assert_eq!(recovered(&sim.crash(kind, 1)), 1, "{way}, {level:?}, {kind:?}");
            }
        }
    }
}
