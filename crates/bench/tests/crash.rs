//! A process that runs a workload is killed with SIGKILL, again and again on one store: after each recovery the
//! workload's invariants hold, every acknowledged transaction is there, and no transaction is there that was never
//! begun.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::Options;
use fulgurite::env::{Env, RealEnv};
use fulgurite_bench::engine::{Level, Opening, Store};
use fulgurite_bench::retrying_session::RetryingSession;
use fulgurite_bench::workload::{Step, Tpcb, Tpcc, TpccScale, count_rows};
use fulgurite_bench::{Engine, FulguriteEngine, Result, Workload};

const DIR: &str = "FULGURITE_CRASH_DIR";
const WORKLOAD: &str = "FULGURITE_CRASH_WORKLOAD";
/// How many operations each thread does, if there is an end. Then it acknowledges one more, which it does not do.
const STEPS: &str = "FULGURITE_CRASH_STEPS";
const THREADS: u32 = 4;
const KILLS: u64 = 3;
/// The latest kill comes after this many acknowledged transactions.
const ACKNOWLEDGED_MAX: u64 = 6000;
/// The lines that the killed process writes to its standard error: one when the store is filled, and one with the kind
/// after each transaction.
const BEGIN: &str = "begin";
const ACK: &str = "ack ";

/// The counted tables by kind: each transaction of the kind adds one row to the table of its index. With the rows that
/// filling leaves there.
type Counted = &'static [(&'static str, u64)];

/// A small workload by name.
fn workload(name: &str) -> (Box<dyn Workload>, Counted) {
    let scale = TpccScale { warehouses: 2, items: 200, customers_per_district: 40, orders_per_district: 30 };
    match name {
        "tpcc" => {
            (Box::new(Tpcc { scale, bounded: false }), &[("orders", 2 * 10 * 30), ("history", 2 * 10 * 40)])
        }
        _ => (Box::new(Tpcb { branches: 3, accounts_per_branch: 100 }), &[("history", 0)]),
    }
}

/// Merges and checkpoints are frequent, so that kills hit them, too.
fn open(workload: &dyn Workload, dir: &Path) -> Result<Arc<dyn Store>> {
    let options =
        Options { memtable_bytes_max: Some(256 << 10), checkpoint_log_bytes: 1 << 20, ..Options::default() };
    let engine = FulguriteEngine::new("fulgurite", options);
    engine.open(&Opening { dir, tables: workload.shape().tables, cache_bytes: 1 << 26, level: Level::Sync })
}

fn rows(store: &dyn Store, workload: &dyn Workload, table: &str) -> u64 {
    let table = workload.shape().tables.iter().position(|name| *name == table).expect("a table of that name");
    count_rows(store, table).expect("it reads")
}

fn filled(name: &str) -> Vec<u64> {
    workload(name).1.iter().map(|(_, rows)| *rows).collect()
}

// The process that is killed.

/// Does nothing unless the process was started by one of the tests below.
#[test]
fn killed_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let (workload, counted) = workload(&std::env::var(WORKLOAD).expect("set with the others"));
    let steps = std::env::var(STEPS).map_or(u64::MAX, |steps| steps.parse().expect("a number"));
    let store = open(&*workload, Path::new(&dir)).expect("it opens");
    let is_empty = rows(&*store, &*workload, workload.shape().tables[0]) == 0;
    if is_empty {
        workload.fill(&*store, &mut |_| true).expect("it fills");
    }
    say(BEGIN);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, workload) = (&*store, &*workload);
            scope.spawn(move || run(store, workload, thread, counted.len(), steps));
        }
    });
}

/// Runs a client for `steps` operations, acknowledges one that it did not do, and waits to be killed.
fn run(store: &dyn Store, workload: &dyn Workload, thread: u32, counted: usize, steps: u64) {
    let mut client = workload.client(thread, THREADS);
    let mut session = store.session().expect("a session");
    let mut session = RetryingSession::new(&mut *session, 0);
    for _ in 0..steps {
        match client(&mut session).expect("nothing fails") {
            Step::Done(kind) if kind < counted => say(&format!("{ACK}{kind}")),
            Step::Done(_) | Step::RolledBack(_) => {}
            Step::End => panic!("it has no end"),
        }
    }
    say(&format!("{ACK}0"));
    loop {
        std::thread::park();
    }
}

/// Writes a line with one call; ends the process when the test is gone.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{what}\n").as_bytes()).expect("the test reads it");
}

// The tests.

/// One store at a time: a process that is being started holds the locks of all files that its parent has open.
static TURN: Mutex<()> = Mutex::new(());

/// How long a process runs.
#[derive(Clone, Copy)]
struct Life {
    /// It is killed after this many acknowledged transactions.
    acknowledged: u64,
    /// See [`STEPS`].
    steps: Option<u64>,
}

/// Runs the workload and kills it; returns how many transactions of each kind were acknowledged.
fn run_and_kill(name: &str, dir: &Path, life: Life, kinds: usize) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "killed_process", "--nocapture"])
        .env(DIR, dir)
        .env(WORKLOAD, name)
        .envs(life.steps.map(|steps| (STEPS, steps.to_string())))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test starts itself");
    let mut acknowledged = vec![0; kinds];
    let (mut has_begun, mut rest) = (false, String::new());
    for line in BufReader::new(child.stderr.take().expect("it is piped")).lines() {
        let line = line.expect("text");
        match line.strip_prefix(ACK).map(|kind| kind.parse::<usize>()) {
            Some(Ok(kind)) => acknowledged[kind] += 1,
            _ if line == BEGIN => has_begun = true,
            _ => rest.push_str(&line),
        }
        if has_begun && acknowledged.iter().sum::<u64>() >= life.acknowledged {
            // Lines that it wrote before are still read.
            child.kill().expect("it is a child");
        }
    }
    let status: ExitStatus = child.wait().expect("it is a child");
    assert!(
        status.code().is_none() && rest.is_empty(),
        "it or a thread ended before it was killed, {status}: {rest}"
    );
    acknowledged
}

/// Rows of a table that transactions wrote.
#[derive(Debug)]
struct Survived {
    acknowledged: u64,
    found: u64,
}

/// Runs the workload, kills it, recovers the store and checks it; returns how many rows survived in the counted tables,
/// which had `before` rows.
fn kill_once(name: &str, dir: &Path, life: Life, before: &mut [u64]) -> Vec<Survived> {
    let (workload, tables) = workload(name);
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let acknowledged = run_and_kill(name, dir, life, tables.len());
    let store = open(&*workload, dir).expect("it is recovered");
    workload.check(&*store, None).expect("all that holds at any moment holds");
    let survived = tables.iter().zip(before).zip(acknowledged).map(|(((table, _), before), acknowledged)| {
        let now = rows(&*store, &*workload, table);
        let found = now.checked_sub(*before).expect("nothing that had survived goes away");
        *before = now;
        Survived { acknowledged, found }
    });
    let survived = survived.collect();
    store.close().expect("it closes");
    survived
}

fn survives(name: &str) {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let mut before = filled(name);
    for kill in 0..KILLS {
        // The range includes the moment after the filling.
        let acknowledged = RealEnv::new().random_u64() % (ACKNOWLEDGED_MAX * (kill + 1) / KILLS);
        let life = Life { acknowledged, steps: None };
        let survived = kill_once(name, dir.path(), life, &mut before);
        println!("kill {kill} of {name}: {survived:?}");
        for Survived { acknowledged, found } in survived {
            assert!(found >= acknowledged, "{acknowledged} were acknowledged, {found} are there");
            let begun = acknowledged + u64::from(THREADS);
            assert!(found <= begun, "at most {begun} were begun, {found} are there");
        }
    }
}

#[test]
fn tpcc_survives_kills() {
    survives("tpcc");
}

#[test]
fn tpcb_survives_kills() {
    survives("tpcb");
}

/// The canary: the test detects acknowledged transactions that are lost.
#[test]
fn acknowledged_transactions_that_are_lost_are_missed() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let lies = u64::from(THREADS);
    let life = Life { acknowledged: lies * 50 + lies, steps: Some(50) };
    let survived = kill_once("tpcb", dir.path(), life, &mut filled("tpcb"));
    assert_eq!(survived[0].found + lies, survived[0].acknowledged);
}
