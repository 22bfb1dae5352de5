//! The driver with an engine of its own, which lies, fails, dies and waits as the tests like it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite::env::{Env, RealEnv};
use fulgurite_bench::engine::{Counters, Pending, Statements, Store, Transaction};
use fulgurite_bench::workload::{Insert, Oltp, UpdateSearch};
use fulgurite_bench::{
    End, Engine, Error, Limit, Plan, Progress, Report, Result, Watch, Workload, draw, json,
};

/// What is wrong with the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// It loses its tenth commit.
    Loses,
    /// Its tenth commit fails.
    Fails,
    /// Its tenth commit panics.
    Panics,
    /// Every second commit has to be run again.
    Conflicts,
}

struct Fake {
    name: &'static str,
    fault: Fault,
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

struct FakeStore {
    fault: Fault,
    tables: Mutex<Vec<Rows>>,
    commits: AtomicU64,
}

struct FakeTransaction {
    tables: Vec<Rows>,
}

struct Done;

impl Engine for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn create(&self, dir: &Path, tables: &[&str]) -> Result<Arc<dyn Store>> {
        RealEnv::new().disk().create_dir_all(dir).expect("the driver gives a place");
        let tables = Mutex::new(vec![Rows::new(); tables.len()]);
        Ok(Arc::new(FakeStore { fault: self.fault, tables, commits: AtomicU64::new(0) }))
    }
}

impl Store for FakeStore {
    fn search(&self, table: usize, key: &[u8]) -> Result<bool> {
        Ok(self.tables.lock().expect("a lock")[table].contains_key(key))
    }

    fn commit(&self, statements: Statements<'_>) -> Result<u64> {
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        match self.fault {
            Fault::Fails if commit == 10 => return Err(Error::engine("committing", "the disk is gone")),
            Fault::Panics if commit == 10 => panic!("a panic that the test wants"),
            _ => {}
        }
        let mut tables = self.tables.lock().expect("a lock");
        let again = u64::from(self.fault == Fault::Conflicts && commit.is_multiple_of(2));
        for tried in 0..=again {
            let mut transaction = FakeTransaction { tables: tables.clone() };
            statements(&mut transaction)?;
            if tried == again && (self.fault != Fault::Loses || commit != 10) {
                *tables = transaction.tables;
            }
        }
        Ok(again)
    }

    fn commit_deferred(&self, statements: Statements<'_>) -> Result<(u64, Box<dyn Pending>)> {
        Ok((self.commit(statements)?, Box::new(Done)))
    }

    fn counters(&self) -> Counters {
        Counters { commits: self.commits.load(Ordering::Relaxed), ..Counters::default() }
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn rows(&self, table: usize) -> Result<u64> {
        Ok(self.tables.lock().expect("a lock")[table].len() as u64)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

impl Transaction for FakeTransaction {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.tables[table].get(key);
        found.unwrap_or(&Vec::new()).clone_into(value);
        Ok(found.is_some())
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.tables[table].insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.tables[table].remove(key);
        Ok(())
    }
}

impl Pending for Done {
    fn poll(&self) -> Option<Result<()>> {
        None
    }

    fn wait(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Watches, and stops once it has been asked often enough.
struct Watcher {
    asks_left: u64,
    shown: Vec<Progress>,
}

impl Watch for Watcher {
    fn go_on(&mut self) -> bool {
        self.asks_left = self.asks_left.saturating_sub(1);
        self.asks_left > 0
    }

    fn show(&mut self, progress: &Progress) {
        self.shown.push(progress.clone());
    }
}

struct Bench {
    dir: tempfile::TempDir,
    plan: Plan,
}

impl Bench {
    fn new(faults: &[Fault]) -> Bench {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let names = ["first", "second"];
        let engine = |(name, fault): (&&'static str, &Fault)| {
            Box::new(Fake { name, fault: *fault }) as Box<dyn Engine>
        };
        let plan = Plan {
            workload: Box::new(Insert::new(Insert::SIZES)),
            engines: names.iter().zip(faults).map(engine).collect(),
            baseline: 0,
            threads: vec![1, 3],
            limit: Limit::Transactions(20),
            warm_up: 0,
            tickets: 0,
            rounds: 2,
            dir: dir.path().to_path_buf(),
        };
        Bench { dir, plan }
    }

    fn run_watched(&self, asks: u64) -> (Report, Watcher) {
        let env: Arc<dyn Env> = RealEnv::new();
        let mut watcher = Watcher { asks_left: asks, shown: Vec::new() };
        let report = self.plan.run(&env, &mut watcher).expect("it begins");
        let left = env.disk().list(self.dir.path()).expect("it is there");
        assert!(left.is_empty(), "left behind: {left:?}");
        (report, watcher)
    }

    fn run(&self) -> Report {
        self.run_watched(u64::MAX).0
    }
}

fn runs(report: &Report) -> Vec<usize> {
    report.series.iter().map(|series| series.runs.len()).collect()
}

#[test]
fn rounds_take_turns_and_all_is_counted() {
    let bench = Bench::new(&[Fault::Nothing, Fault::Nothing]);
    let (report, watcher) = bench.run_watched(u64::MAX);
    assert!(matches!(report.end, End::Complete));
    assert_eq!(runs(&report), [2; 4]);
    assert_eq!(report.bare_writes_per_second.len(), 4, "once a round and number of threads");
    let mut order: Vec<(u32, u32, &str)> =
        watcher.shown.iter().map(|shown| (shown.round, shown.threads, shown.what.as_str())).collect();
    order.dedup();
    let whole: Vec<(u32, u32, &str)> = [(1, 1), (1, 3), (2, 1), (2, 3)]
        .iter()
        .flat_map(|(round, threads)| ["bare device", "first", "second"].map(|what| (*round, *threads, what)))
        .collect();
    assert_eq!(order, whole);
    for series in &report.series {
        for run in &series.runs {
            let transactions = 20 * u64::from(series.threads);
            assert_eq!((run.transactions, run.counters.commits), (transactions, transactions));
            assert_eq!(run.rows, [transactions]);
            assert!(run.latency.max_ns >= run.latency.p50_ns && run.latency.p50_ns > 0);
        }
    }
    assert_eq!(report.ratio(&report.series[0]), Some(1.0));
}

#[test]
fn an_engine_that_loses_a_commit_is_found_out() {
    let report = Bench::new(&[Fault::Nothing, Fault::Loses]).run();
    let End::Failed(Error::WrongRows { table, found, expected }) = &report.end else {
        panic!("{:?}", report.end);
    };
    assert_eq!((table.as_str(), *found, *expected), ("rows", 19, 20));
    assert_eq!(runs(&report), [1, 0, 0, 0], "what was measured before stays");
}

#[test]
fn an_engine_that_fails_ends_the_run_and_not_the_report() {
    let report = Bench::new(&[Fault::Nothing, Fault::Fails]).run();
    let End::Failed(error) = &report.end else { panic!("{:?}", report.end) };
    assert_eq!(error.to_string(), "committing: the disk is gone");
    assert_eq!(runs(&report), [1, 0, 0, 0]);
    let value = json(&report, &[]);
    assert_eq!((&value["state"], &value["error"]), (&"failed".into(), &error.to_string().into()));
    assert_eq!(value["series"][1]["summary"]["transactions_per_second"], serde_json::Value::Null);
    assert!(draw(&report, "half of it").expect("it draws what there is").starts_with("<svg"));
}

#[test]
fn an_engine_that_panics_does_not_hang_the_run() {
    for warm_up in [0, 20] {
        let mut bench = Bench::new(&[Fault::Panics]);
        bench.plan.warm_up = warm_up;
        assert!(matches!(bench.run().end, End::Failed(Error::Died)));
    }
}

#[test]
fn conflicts_are_counted() {
    let mut bench = Bench::new(&[Fault::Conflicts]);
    bench.plan.rounds = 1;
    let report = bench.run();
    let conflicts: Vec<u64> = report.series.iter().map(|series| series.runs[0].conflicts).collect();
    assert_eq!(conflicts, [10, 30]);
}

#[test]
fn what_was_measured_until_an_interruption_stays_and_is_marked() {
    let mut bench = Bench::new(&[Fault::Nothing, Fault::Nothing]);
    bench.plan.limit = Limit::Time(Duration::from_secs(10));
    let (report, _) = bench.run_watched(5);
    assert!(matches!(report.end, End::Interrupted));
    assert_eq!(runs(&report), [1, 0, 0, 0]);
    let series = &report.series[0];
    assert!(series.is_partial() && series.runs[0].interrupted);
    assert_eq!(series.runs[0].rows, [series.runs[0].transactions]);
    assert!(series.runs[0].fairness.is_some_and(|fairness| fairness > 0.0 && fairness <= 1.0));
    let value = json(&report, &[]);
    assert_eq!((&value["state"], &value["series"][0]["partial"]), (&"interrupted".into(), &true.into()));
    let (report, _) = bench.run_watched(1);
    assert!(matches!(report.end, End::Interrupted) && report.is_empty());
}

#[test]
fn warm_up_is_committed_and_not_measured() {
    for tickets in [0, 4] {
        let mut bench = Bench::new(&[Fault::Nothing]);
        (bench.plan.warm_up, bench.plan.tickets, bench.plan.rounds) = (7, tickets, 1);
        let report = bench.run();
        assert!(matches!(report.end, End::Complete), "{:?}", report.end);
        let run = &report.series[1].runs[0];
        assert_eq!((run.transactions, run.counters.commits), (60, 60));
        assert_eq!(run.rows, [3 * 27]);
    }
}

#[test]
fn every_workload_leaves_the_rows_it_says() {
    let workloads: [(Box<dyn Workload>, Vec<u64>); 2] = [
        (Box::new(UpdateSearch::new(UpdateSearch::SIZES, 50)), vec![50]),
        (Box::new(Oltp::new(Oltp::SIZES, 50)), vec![50, 50]),
    ];
    for (workload, rows) in workloads {
        let mut bench = Bench::new(&[Fault::Nothing]);
        (bench.plan.workload, bench.plan.rounds) = (workload, 1);
        let report = bench.run();
        assert!(matches!(report.end, End::Complete), "{:?}", report.end);
        for series in &report.series {
            assert_eq!(series.runs[0].rows, rows, "{}", report.workload);
        }
    }
}

#[test]
fn a_run_that_does_not_fit_the_disk_is_not_begun() {
    let mut bench = Bench::new(&[Fault::Nothing]);
    bench.plan.limit = Limit::Transactions(u64::MAX / 2);
    let env: Arc<dyn Env> = RealEnv::new();
    let mut watcher = Watcher { asks_left: u64::MAX, shown: Vec::new() };
    let error = bench.plan.run(&env, &mut watcher).expect_err("no disk is that large");
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("give another directory"), "{error}");
    assert!(watcher.shown.is_empty() && env.disk().list(bench.dir.path()).expect("it is there").is_empty());
}
