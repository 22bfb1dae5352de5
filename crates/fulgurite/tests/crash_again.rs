//! Crashes one after the other: without a checkpoint between, in the middle of recovery, after a clean close. The log
//! then has several epochs, with torn and unacknowledged groups after the end of each.

mod common;

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use common::images::{Plan, Tally, at_each_operation};
use common::model::History;
use common::rng::Rng;
use common::tap::Tap;
use common::verify::{verify, verify_image};
use common::workload::Workload;
use fulgurite::env::sim::{CrashKind, SimEnv};
use fulgurite::{Database, Options};

/// The lives of one database: each opens it, compares, works for a while, and stops at some operation.
struct Life {
    history: Arc<Mutex<History>>,
    rng: Rng,
    /// The options of each life, by its number.
    options: fn(u64) -> Options,
    opened: Cell<u64>,
}

impl Life {
    fn new(seed: u64) -> Life {
        Life {
            history: Arc::default(),
            rng: Rng::new(seed),
            options: |_| common::options(),
            opened: Cell::new(seed),
        }
    }

    fn open(&self, sim: &Arc<SimEnv>) -> Result<Database, String> {
        let options = (self.options)(self.opened.replace(self.opened.get() + 1));
        let db = common::open_as(sim.clone(), options).map_err(|error| format!("opening failed: {error}"))?;
        let mut history = self.history.lock().unwrap();
        let csn = verify(&db, &**sim, &history)?;
        history.recovered(csn);
        Ok(db)
    }

    /// Works until the machine stops, after at most `operations` changes of the disk; returns the remaining disk.
    fn work(&mut self, sim: &Arc<SimEnv>, operations: u64, checkpoints: bool) -> Result<Arc<SimEnv>, String> {
        let db = self.open(sim)?;
        let faults = sim.faults();
        faults.crash_at(faults.op_count() + 1 + self.rng.below(operations));
        let seed = self.rng.next();
        let mut workload = Workload::new(db, sim, &self.history, seed).map_err(|error| error.to_string())?;
        let steps = self.rng.between(1, 40);
        if let Err(error) = workload.run(steps, checkpoints)
            && !faults.has_crashed()
        {
            return Err(format!("working failed: {error}"));
        }
        faults.crash_now();
        let kind = if self.rng.one_in(3) { CrashKind::Kill } else { CrashKind::PowerCut };
        Ok(sim.crash(kind, self.rng.next()))
    }
}

fn seeds(test: &str, default: u64) -> Vec<u64> {
    let all = common::setting("FULGURITE_CRASH_ALL").is_some_and(|value| value != 0);
    match common::setting("FULGURITE_CRASH_SEED") {
        Some(seed) => {
            println!("{test}: seed {seed} alone");
            vec![seed]
        }
        None => (1..=if all { 20 * default } else { default }).collect(),
    }
}

fn again(test: &str, seed: u64) -> String {
    format!("again: FULGURITE_CRASH_SEED={seed} cargo test -p fulgurite --test crash_again {test}")
}

#[test]
fn many_crashes_without_a_checkpoint() {
    const TEST: &str = "many_crashes_without_a_checkpoint";
    for seed in seeds(TEST, 25) {
        let mut life = Life::new(seed);
        let mut sim = SimEnv::new(seed);
        for nth in 1..=4 {
            let left = life.work(&sim, 120, false);
            sim =
                left.unwrap_or_else(|what| panic!("seed {seed}, life {nth}: {what}\n{}", again(TEST, seed)));
        }
        let outcome = life.open(&sim);
        outcome.unwrap_or_else(|what| panic!("seed {seed}, at the end: {what}\n{}", again(TEST, seed)));
    }
}

#[test]
fn many_crashes_with_checkpoints() {
    const TEST: &str = "many_crashes_with_checkpoints";
    for seed in seeds(TEST, 15) {
        let mut life = Life::new(seed ^ 0xc0ffee);
        let mut sim = SimEnv::new(seed);
        for nth in 1..=6 {
            let left = life.work(&sim, 300, true);
            sim =
                left.unwrap_or_else(|what| panic!("seed {seed}, life {nth}: {what}\n{}", again(TEST, seed)));
        }
        let outcome = life.open(&sim);
        outcome.unwrap_or_else(|what| panic!("seed {seed}, at the end: {what}\n{}", again(TEST, seed)));
    }
}

#[test]
fn many_crashes_with_staged_commits() {
    const TEST: &str = "many_crashes_with_staged_commits";
    for seed in seeds(TEST, 25) {
        let mut life = Life { options: |_| common::staged(), ..Life::new(seed ^ 0x57a6) };
        let mut sim = SimEnv::new(seed);
        for nth in 1..=5 {
            let left = life.work(&sim, 200, seed % 2 == 0);
            sim =
                left.unwrap_or_else(|what| panic!("seed {seed}, life {nth}: {what}\n{}", again(TEST, seed)));
        }
        let outcome = life.open(&sim);
        outcome.unwrap_or_else(|what| panic!("seed {seed}, at the end: {what}\n{}", again(TEST, seed)));
    }
}

/// Another combination of legal options in each life.
#[test]
fn many_crashes_with_extreme_options() {
    const TEST: &str = "many_crashes_with_extreme_options";
    for seed in seeds(TEST, 25) {
        let mut life = Life { options: common::extremes::options, ..Life::new(seed * 1000) };
        let mut sim = SimEnv::new(seed);
        for nth in 1..=6 {
            let left = life.work(&sim, 200, seed % 2 == 0);
            sim =
                left.unwrap_or_else(|what| panic!("seed {seed}, life {nth}: {what}\n{}", again(TEST, seed)));
        }
        let outcome = life.open(&sim);
        outcome.unwrap_or_else(|what| panic!("seed {seed}, at the end: {what}\n{}", again(TEST, seed)));
    }
}

/// Every change that opening makes to the disk may be the last, also when opening the remaining disk.
#[test]
fn recovery_may_crash_anywhere() {
    const TEST: &str = "recovery_may_crash_anywhere";
    let tally = Arc::new(Mutex::new(Tally::default()));
    for seed in seeds(TEST, 4) {
        let mut life = Life::new(seed ^ 0xfeed);
        let mut sim = SimEnv::new(seed);
        for nth in 0..3 {
            let left = life.work(&sim, 150, nth == 1);
            sim =
                left.unwrap_or_else(|what| panic!("seed {seed}, life {nth}: {what}\n{}", again(TEST, seed)));
        }
        let plan = Plan { test: "--test crash_again recovery", seed, stride: 1, images: 2 };
        let history = life.history.lock().unwrap().clone();
        let check = move |left: &Arc<SimEnv>, image_seed: u64| {
            // The second recovery is stopped, too, at an operation of its own.
            let faults = left.faults();
            faults.crash_at(1 + image_seed % 12);
            let second = common::open(left.clone());
            drop(second);
            let kind = if image_seed.is_multiple_of(5) { CrashKind::Kill } else { CrashKind::PowerCut };
            let left = if faults.has_crashed() { left.crash(kind, image_seed) } else { left.clone() };
            verify_image(&left, &history, image_seed).map(|csn| csn - history.acknowledged())
        };
        let tap = Tap::new(&sim, at_each_operation(plan, tally.clone(), check));
        common::open(tap).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", again(TEST, seed)));
    }
    tally.lock().unwrap().conclude(100);
}

/// A clean close leaves nothing that a crash during the next opening could undo.
#[test]
fn a_clean_close_and_then_a_crash() {
    const TEST: &str = "a_clean_close_and_then_a_crash";
    for seed in seeds(TEST, 10) {
        let history = Arc::new(Mutex::new(History::default()));
        let sim = SimEnv::new(seed);
        let db = common::open(sim.clone()).unwrap();
        let mut workload = Workload::new(db.clone(), &sim, &history, seed).unwrap();
        workload.run(25, seed % 2 == 0).unwrap();
        drop(workload);
        db.close().unwrap();
        {
            let mut history = history.lock().unwrap();
            let all = history.submitted();
            history.acknowledge(all);
        }
        let history = history.lock().unwrap().clone();
        for image in 0..4 {
            let kind = if image % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
            let left = sim.crash(kind, seed << 8 | image);
            let outcome = verify_image(&left, &history, image);
            outcome.unwrap_or_else(|what| {
                panic!("seed {seed}, {kind:?}, image {image}: {what}\n{}", again(TEST, seed))
            });
        }
    }
}
