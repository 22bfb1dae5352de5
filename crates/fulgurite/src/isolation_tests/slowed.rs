//! Commits that background work slows, and what counts as log that no checkpoint covers.

use std::sync::mpsc::channel;
use std::time::Duration;

use fulgurite_env::sim::CrashKind;
use fulgurite_env::{Env, RealEnv, SimEnv};

use super::support::*;
use crate::{Attempt, Database, Missing, Options, Result};

const SHARE: u64 = 1 << 20;

fn options() -> Options {
    Options { checkpoint_log_bytes: SHARE, ..Options::default() }
}

/// Commits rows whose operation list takes about `bytes`.
fn commit_list(db: &Database, bytes: usize) -> Result<()> {
    let table = db.table("lists")?;
    let mut txn = db.begin();
    for n in 0..bytes as u32 / 512 {
        txn.put(&table, n.to_be_bytes(), [7; 500])?;
    }
    txn.commit().map(drop)
}

/// INV-CKPT-8: lists in chunks are replayed, so they make a checkpoint due, and they count when they were replayed.
#[test]
fn operation_lists_in_chunks_are_log() {
    let env = SimEnv::new(1);
    let quiet = || Options { background: false, ..options() };
    let db = open(&env, quiet());
    commit_list(&db, 300 << 10).unwrap();
    let uncovered = |db: &Database| db.stats().uncovered_log_bytes;
    let (list, groups) = (uncovered(&db), db.stats().log.written_bytes);
    assert!(list > 290 << 10 && groups < 100 << 10, "{list} {groups}");
    let crashed = env.crash(CrashKind::PowerCut, 1);
    let recovered = open(&crashed, quiet());
    assert!(uncovered(&recovered) > 290 << 10, "{}", uncovered(&recovered));
    recovered.checkpoint().unwrap();
    assert!(uncovered(&recovered) < 10 << 10, "{}", uncovered(&recovered));
    let checkpoints = db.stats().checkpoints;
    while db.maintain().unwrap() {}
    assert_eq!(db.stats().checkpoints, checkpoints, "not due yet");
    commit_list(&db, 2 << 20).unwrap();
    while db.maintain().unwrap() {}
    assert_eq!(db.stats().checkpoints, checkpoints + 1);
    assert!(uncovered(&db) < 10 << 10, "{}", uncovered(&db));
}

/// The log has outgrown its share while a checkpoint is written: a commit waits for that once, not for each table.
#[test]
fn a_commit_to_many_tables_is_slowed_once() {
    let db = open(&SimEnv::new(1), options());
    let tables: Vec<_> = (0..100).map(|n| db.table(&format!("t{n}")).unwrap()).collect();
    let engine = db.engine();
    let no_checkpoint = engine.checkpointer.lock();
    let running = engine.pacing.begin();
    (0..6).for_each(|_| engine.growth.count_list(SHARE / 4, 0));
    let mut txn = db.begin();
    tables.iter().for_each(|table| txn.put(table, "key", [7; 100]).unwrap());
    txn.commit().unwrap();
    let waited = db.stats().waits.checkpoint;
    assert!(waited.count == 1 && waited.max_ns < 1_000_000_000, "{waited}");
    drop(running);
    tables[0].put("key", "value").unwrap();
    assert_eq!(db.stats().waits.checkpoint.count, 1, "no checkpoint is written");
    drop(no_checkpoint);
}

/// INV-CKPT-9: replay makes more of short rows than they take of the log.
#[test]
fn short_rows_make_a_checkpoint_due_for_the_memory_of_their_replay() {
    let quiet = || Options { memory_bytes: Some(32 << 20), background: false, ..Options::default() };
    let put = |db: &Database, count: u32| {
        let table = db.table("t").unwrap();
        let mut txn = db.begin();
        (0..count).for_each(|n| txn.put(&table, n.to_be_bytes(), "").unwrap());
        txn.commit().unwrap();
        while db.maintain().unwrap() {}
        db.stats().checkpoints
    };
    let env = SimEnv::new(1);
    let db = open(&env, quiet());
    assert_eq!(put(&db, 25_000), 0, "less than half of a quarter of the budget");
    let recovered = open(&env.crash(CrashKind::Kill, 1), quiet());
    assert!(recovered.stats().uncovered_log_bytes < 1 << 20, "a tenth of the log's share");
    assert_eq!((put(&recovered, 2_000), put(&recovered, 10_000)), (0, 1), "what was replayed counts");
    drop(db);
}

/// INV-CKPT-9.
#[test]
fn commits_are_slowed_for_the_memory_of_their_replay() {
    let db = open(&SimEnv::new(1), Options { memory_bytes: Some(32 << 20), ..Options::default() });
    let (table, engine) = (db.table("t").unwrap(), db.engine());
    let no_checkpoint = engine.checkpointer.lock();
    let running = engine.pacing.begin();
    let waits_after = |ops: u64| {
        engine.growth.count_ops(ops);
        table.put("key", [7; 10_000]).unwrap();
        db.stats().waits.checkpoint.count
    };
    // Its regular bytes are a quarter of the share, with a thousandth of its operations.
    engine.growth.count_list(2 << 30, 1_000_000);
    assert_eq!([waits_after(55_000), waits_after(25_000)], [0, 1], "a quarter more than their share");
    drop(running);
    drop(no_checkpoint);
}

/// Where committers are slowed, those that must not wait go ahead by a little, and then are refused until a time that is known.
#[test]
fn commits_that_must_not_wait_know_when_to_come_again() {
    let env = SimEnv::new(1);
    let db = open(&env, Options { memory_bytes: Some(32 << 20), ..Options::default() });
    let (table, engine) = (db.table("t").unwrap(), db.engine());
    let no_checkpoint = engine.checkpointer.lock();
    let running = engine.pacing.begin();
    let try_put = || {
        let mut txn = db.begin();
        txn.put(&table, "key", [7; 100]).unwrap();
        match txn.try_commit().unwrap() {
            Attempt::Committed(_) => true,
            Attempt::Blocked(_, missing) => {
                assert_eq!(missing, Missing::Merging);
                false
            }
        }
    };
    assert!((0..100).all(|_| try_put()) && db.commit_delay().is_zero(), "nothing is slowed");
    engine.growth.count_ops(64_000);
    let gone_ahead = (0..100_000).take_while(|_| try_put()).count();
    assert!((1..100_000).contains(&gone_ahead), "{gone_ahead}");
    let delay = db.commit_delay();
    assert!(delay > Duration::ZERO && delay < Duration::from_millis(100), "{delay:?}");
    // For a program that would wait for it, it passes at once in simulation.
    assert!(db.commit_delay_before_events().is_zero() && db.commit_delay().is_zero() && try_put());
    drop(running);
    drop(no_checkpoint);
}

/// INV-CKPT-8: the excess of transactions that no checkpoint covers is bounded.
#[test]
fn a_transaction_with_an_excess_waits_for_a_checkpoint_if_there_is_much_of_it() {
    let db = open(&SimEnv::new(1), options());
    let no_checkpoint = db.engine().checkpointer.lock();
    db.engine().growth.count_list(SHARE / 4 + SHARE - 1, 0);
    commit_list(&db, SHARE as usize / 2).unwrap();
    assert!(db.engine().growth.uncovered().excess > SHARE);
    commit_list(&db, SHARE as usize / 8).unwrap();
    let (done, outcome) = channel();
    let writing = db.clone();
    let writer = RealEnv::new()
        .spawn("writes", Box::new(move || done.send(commit_list(&writing, SHARE as usize / 2)).unwrap()));
    let early = outcome.recv_timeout(Duration::from_millis(200));
    assert!(early.is_err(), "it did not wait");
    drop(no_checkpoint);
    outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(writer.unwrap().join());
    assert!(db.stats().checkpoints > 0);
}
