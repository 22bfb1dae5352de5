//! A session is stopped in each change that it makes to the disk, by a power cut and by a kill. Opening the remaining
//! disk has to recover the state after some commit at or after the last acknowledged one.
//!
//! By default a quarter of the operations is tried, others for other seeds. `FULGURITE_CRASH_ALL=1` tries all,
//! `FULGURITE_CRASH_SEED=n` tries another session.

mod common;

use std::sync::{Arc, Mutex};

use common::images::{Plan, Tally, against, at_each_operation};
use common::model::History;
use common::tap::{Observer, Tap};
use common::workload::Workload;
use fulgurite::Options;
use fulgurite::env::sim::SimEnv;

/// Runs the session on `tap`, built from an observer; returns the tally of crashes.
fn session(plan: &Plan, options: Options, tap: impl FnOnce(&Arc<SimEnv>, Observer) -> Arc<Tap>) -> Tally {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let history = Arc::new(Mutex::new(History::default()));
    let evicts = options.research.evict_everything;
    let sim = SimEnv::new(plan.seed);
    let observer = at_each_operation(plan.clone(), tally.clone(), against(history.clone()));
    let db = common::open_as(tap(&sim, observer), options).unwrap();
    let mut workload = Workload::new(db, &sim, &history, plan.seed).unwrap();
    workload.run(160, true).unwrap();
    let log = workload.db.log_stats();
    let large =
        log.segments_freed > 0 && log.bulk_records > 500 && log.written_bytes > 2 << 20 && log.marks > 0;
    assert!(large, "the session is too small: {log:?}");
    assert!(log.moved_value_bytes > 100_000, "too little was collected: {log:?}");
    let copied = workload.db.stats().collection.copied_node_bytes;
    assert!(copied > 50_000 || !evicts, "{copied} bytes of records of nodes were copied");
    drop(workload);
    let commits = history.lock().unwrap().submitted();
    assert!(commits >= 200, "only {commits} commits");
    std::mem::take(&mut tally.lock().unwrap())
}

#[test]
fn every_change_of_the_disk_may_be_the_last() {
    let plan = Plan::from_env("--test crash_every_step", 4, 1);
    session(&plan, common::options(), Tap::new).conclude(1);
}

/// Dirty leaves are written, and evicted, between all steps: no checkpoint names their records yet.
#[test]
fn every_change_of_the_disk_may_be_the_last_while_dirty_leaves_are_evicted() {
    let plan = Plan::from_env("--test crash_every_step", 8, 1);
    session(&plan, common::evicting(), Tap::new).conclude(1);
}

/// Commits are staged in persistent memory.
#[test]
fn every_change_of_the_disk_may_be_the_last_while_commits_are_staged() {
    let plan = Plan::from_env("--test crash_every_step", 4, 1);
    session(&plan, common::staged(), Tap::new).conclude(1);
}

/// The canary: on a disk that only claims to sync, commits must be found missing.
#[test]
fn a_disk_that_lies_is_caught() {
    let plan = Plan { test: "", seed: 1, stride: 60, images: 2 };
    let tally = session(&plan, common::options(), Tap::lying);
    assert!(!tally.failures.is_empty(), "{} images of a disk that never syncs were all fine", tally.images);
}
