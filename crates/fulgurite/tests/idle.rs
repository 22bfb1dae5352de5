//! An idle database sleeps, and wakes for every kind of work.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use fulgurite::env::sim::SimEnv;
use fulgurite::env::{Env, RealEnv};
use fulgurite::{Database, Durability, Error, Options, Stats};

/// A condition that does not hold after this long never will.
const FOR_EVER: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options { background: true, ..common::options() }
}

fn pause(ms: u64) {
    RealEnv::new().clock().sleep(Duration::from_millis(ms));
}

/// Waits for work that the database does without a call.
fn wait_for(what: &str, db: &Database, is_done: impl Fn(&Stats) -> bool) {
    let env = RealEnv::new();
    let start_ns = env.clock().monotonic_ns();
    while !is_done(&db.stats()) {
        let waited = Duration::from_nanos(env.clock().monotonic_ns() - start_ns);
        assert!(waited < FOR_EVER, "{what} does not happen: {:?}", db.stats());
        pause(1);
    }
}

#[test]
fn a_commit_without_a_waiter_becomes_durable_in_an_idle_database() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.table("t").unwrap();
    for round in 0..40u64 {
        // Some commits arrive while the threads go to sleep, some when they sleep.
        pause(round % 20 * 2);
        let mut txn = db.begin();
        txn.set_durability(Durability::None).unwrap();
        txn.put(&table, b"key", &round.to_be_bytes()).unwrap();
        let csn = txn.commit().unwrap().csn;
        wait_for("durability", &db, |stats| stats.durable >= csn);
    }
    db.close().unwrap();
}

#[test]
fn an_idle_database_merges_checkpoints_and_frees_what_a_burst_left() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.table("t").unwrap();
    for round in 0..6u64 {
        pause(round * 10);
        let before = db.stats();
        for n in 0..20u64 {
            table.put(n.to_be_bytes(), [1; 4000]).unwrap();
        }
        wait_for("merging", &db, |stats| stats.merges > before.merges && stats.memtable_bytes < 70_000);
        for n in 0..20u64 {
            table.put(n.to_be_bytes(), [2; 60_000]).unwrap();
        }
        wait_for("a checkpoint", &db, |stats| stats.checkpoints > before.checkpoints);
    }
    // No overwritten value is left; the readers' epochs have to pass first.
    for _ in 0..2 {
        table.put("last", "").unwrap();
        db.checkpoint().unwrap();
    }
    let freed = db.stats().log.segments_freed;
    wait_for("freeing", &db, |stats| stats.log.segments_freed > freed || stats.segments.bulk <= 3);
    db.close().unwrap();
}

/// Each read would look at a long memtable first. A short one stays.
#[test]
fn an_idle_database_merges_a_memtable_that_is_not_full() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes_max: None, checkpoint_log_bytes: 1 << 30, ..options() };
    let db = Database::open(dir.path(), options).unwrap();
    let tables = ["long", "short"].map(|name| db.create_table(name).unwrap());
    for (table, rows) in tables.iter().zip([20_000_u64, 50]) {
        for first in (0..rows).step_by(1_000) {
            let mut txn = db.begin();
            (first..rows.min(first + 1_000))
                .try_for_each(|row| txn.put(table, row.to_be_bytes(), [1; 100]))
                .unwrap();
            txn.commit().unwrap();
        }
    }
    assert!(db.stats().memtable_entries >= 20_050);
    wait_for("merging", &db, |stats| stats.merges > 0 && stats.memtable_entries < 20_000);
    let Stats { merges, checkpoints, .. } = db.stats();
    assert_eq!((merges, checkpoints), (1, 0));
    assert!((50..100).contains(&db.stats().memtable_entries), "{}", db.stats().memtable_entries);
    db.close().unwrap();
}

/// The chunks of an open transaction take space before any commit does: they wake the merger, too.
#[test]
fn a_transaction_that_writes_ahead_into_an_idle_database_is_refused_before_the_disk_is_full() {
    let sim = SimEnv::new(5);
    let db = Database::open_with(sim.clone(), common::PATH, options(), |_| {}).unwrap();
    let table = db.table("t").unwrap();
    pause(50);
    let used: u64 = sim.list_raw().iter().map(|(_, len)| len).sum();
    sim.faults().space_bytes(Some(used + (40 << 20)));
    let mut txn = db.begin();
    let refused = (0..1000u32).find_map(|n| {
        pause(1);
        txn.put(&table, n.to_be_bytes(), vec![3; 400_000]).err()
    });
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
    drop(txn);
    let free = sim.disk().free_bytes("/".as_ref()).unwrap();
    assert!(free > 0, "space for a checkpoint was kept");
    table.delete("a").unwrap();
    db.close().unwrap();
}

#[test]
fn a_deferred_commit_of_an_idle_database_reports_that_the_log_failed() {
    let sim = SimEnv::new(6);
    let db = Database::open_with(sim.clone(), common::PATH, options(), |_| {}).unwrap();
    let table = db.table("t").unwrap();
    pause(50);
    let mut txn = db.begin();
    txn.put(&table, "key", "value").unwrap();
    sim.faults().fail_all_writes(true);
    let (report, outcome) = std::sync::mpsc::channel();
    txn.commit_deferred().unwrap().on_complete(move |outcome| _ = report.send(outcome.is_err()));
    assert_eq!(outcome.recv_timeout(FOR_EVER), Ok(true));
    assert!(db.stats().poisoned.is_some());
}

const DIR: &str = "FULGURITE_IDLE_DIR";
const PAUSE_MS: &str = "FULGURITE_IDLE_PAUSE_MS";
const IDLE_MS: u64 = 1000;

/// Does nothing unless the process was started by the test below.
#[test]
fn traced_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let pause_ms: u64 = std::env::var(PAUSE_MS).expect("set with the other").parse().expect("a number");
    let db = Database::open(dir, Options::default()).expect("an empty directory");
    let table = db.table("t").expect("it is created");
    for n in 0..2000u32 {
        let mut txn = db.begin();
        let level = if n % 2 == 0 { Durability::None } else { Durability::Sync };
        txn.set_durability(level).expect("both can be had");
        txn.put(&table, n.to_be_bytes(), [0; 1000]).expect("it fits");
        txn.commit().expect("nothing fails");
    }
    db.checkpoint().expect("nothing fails");
    db.checkpoint().expect("nothing fails");
    table.put("last", "").expect("nothing fails");
    pause(pause_ms);
    eprintln!("idle begins");
    pause(IDLE_MS);
    eprintln!("idle ends");
    std::process::exit(0);
}

/// The calls that began while the process was idle, its own of the test left out; `None` if it cannot be traced.
fn calls_while_idle(pause_ms: u64) -> Option<Vec<String>> {
    let traces =
        Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    if !traces.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace is missing, or may not trace here");
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let record = dir.path().join("record");
    let mut command = Command::new("strace");
    command.arg("-f").arg("-o").arg(&record).arg(std::env::current_exe().expect("the test itself"));
    command.args(["--exact", "traced_process", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir.path().join("db")).env(PAUSE_MS, pause_ms.to_string());
    let output = command.output().expect("strace runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the process failed: {said}");
    #[expect(clippy::disallowed_methods, reason = "a record of strace's is no file of a database")]
    let record = String::from_utf8_lossy(&std::fs::read(record).expect("strace wrote it")).into_owned();
    let lines: Vec<&str> = record.lines().collect();
    let position = |what| lines.iter().position(|line| line.contains(what)).expect("the process said it");
    let own = |line: &&&str| ["clock_nanosleep", "write(2", "resumed"].iter().any(|own| line.contains(own));
    let idle = &lines[position("idle begins") + 1..position("idle ends")];
    Some(idle.iter().filter(|line| !own(line)).map(ToString::to_string).collect())
}

#[test]
fn an_idle_database_makes_no_system_calls() {
    let mut seen = Vec::new();
    // On a busy machine it takes a while until all work is done.
    for pause_ms in [1000, 4000, 16_000] {
        let Some(calls) = calls_while_idle(pause_ms) else { return };
        if calls.is_empty() {
            return;
        }
        seen = calls;
    }
    panic!("{} system calls in {IDLE_MS} ms: {:#?}", seen.len(), &seen[..seen.len().min(30)]);
}
