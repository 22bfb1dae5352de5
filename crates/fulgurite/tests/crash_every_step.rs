//! A session is stopped in each change that it makes to the disk, by a power cut and by a kill. Whatever that leaves,
//! opening it has to give the state after some commit at or after the last acknowledged one.
//!
//! By default every so-manieth operation is tried. `FULGURITE_CRASH_ALL=1` tries all, `FULGURITE_CRASH_SEED=n` another
//! session.

mod common;

use std::sync::{Arc, Mutex};

use common::images::{Plan, Tally, against, at_each_operation};
use common::model::History;
use common::tap::Tap;
use common::workload::Workload;
use fulgurite::env::sim::SimEnv;

#[test]
fn every_change_of_the_disk_may_be_the_last() {
    let plan = Plan::from_env("--test crash_every_step", 12, 1);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let history = Arc::new(Mutex::new(History::default()));
    let sim = SimEnv::new(plan.seed);
    let observer = at_each_operation(plan.clone(), tally.clone(), against(history.clone()));
    let tap = Tap::new(&sim, observer);
    let db = common::open(tap).unwrap();
    let mut workload = Workload::new(db, &sim, &history, plan.seed).unwrap();
    workload.run(160, true).unwrap();
    let commits = history.lock().unwrap().submitted();
    assert!(commits >= 200, "only {commits} commits");
    drop(workload);
    println!("{commits} commits");
    tally.lock().unwrap().conclude(1);
}
