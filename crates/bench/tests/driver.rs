//! The driver, with Fulgurite and with an engine that loses commits, fails, dies, refuses and waits on demand.

mod fake;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fake::{Fake, Fault, Seen};
use fulgurite::env::{Env, RealEnv};
use fulgurite_bench::engine::{Direction, Level};
use fulgurite_bench::workload::{self, Micro, MicroMix, Oltp, Order, Scan, ScanLength, Tpcc, TpccScale};
use fulgurite_bench::{
    Configuration, DataPoint, End, Engine, Error, Limit, Load, Plan, Process, Progress, Registry, Report,
    Result, Run, Spec, Stage, text_table,
};
use fulgurite_bench::{TableSpec, markdown};

const INSERT: Spec = micro(1, MicroMix::Insert);
const fn micro(rows: u64, mix: MicroMix) -> Spec {
    Spec::Micro(Micro { sizes: Micro::SIZES, rows, mix })
}

/// Bytes of a key and a value of [`INSERT`].
const ROW_BYTES: u64 = 120;
const TWENTY: Load = Load::closed(1, Limit::Operations(20));

/// A plan with engines of these faults, in a directory of its own.
struct Bench {
    dir: tempfile::TempDir,
    registry: Registry,
    seen: Vec<Arc<Seen>>,
    plan: Plan,
}

impl Bench {
    /// Each engine inserts twenty rows with one thread, in one round.
    fn new(faults: &[Fault]) -> Bench {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let engines = ["first", "second", "third"].into_iter().zip(faults);
        let engines: Vec<Fake> = engines.map(|(name, fault)| Fake::new(name, *fault)).collect();
        let seen = engines.iter().map(|engine| engine.seen.clone()).collect();
        let configurations = engines.iter().map(|engine| configuration(engine.name)).collect();
        let peers = engines.into_iter().map(|engine| Box::new(engine) as Box<dyn Engine>).collect();
        let plan = Plan {
            name: "test".into(),
            title: "A test".into(),
            configurations,
            baseline: "first".into(),
            data_points: vec![data_point("", INSERT, TWENTY)],
            rounds: 1,
            assume_power_safe_cache: false,
            notes: Vec::new(),
            dir: dir.path().to_path_buf(),
        };
        Bench { dir, registry: Registry::new(peers, None), seen, plan }
    }

    /// Fulgurite alone.
    fn fulgurite(workload: Spec, load: Load) -> Bench {
        let mut bench = Bench::new(&[]);
        (bench.plan.configurations, bench.plan.baseline) =
            (vec![configuration("fulgurite")], "fulgurite".into());
        bench.plan.data_points = vec![data_point("", workload, load)];
        bench
    }

    /// Runs the plan until `until` is true of its progress; returns all progress, too.
    fn begin(&self, until: fn(&Progress) -> bool) -> (Result<Report>, Vec<Progress>) {
        let env: Arc<dyn Env> = RealEnv::new();
        let mut shown = Vec::new();
        let report = self.plan.run(&env, &self.registry, &Process::Here, &mut |progress| {
            shown.push(progress.clone());
            !shown.iter().any(until)
        });
        let left = env.disk().list(self.dir.path()).expect("it is there");
        assert!(left.is_empty(), "left behind: {left:?}");
        (report, shown)
    }

    /// The error of a plan that does not begin.
    fn refused(&self) -> Error {
        let (report, shown) = self.begin(|_| false);
        assert!(shown.is_empty() && self.opened().iter().all(|opened| *opened == 0));
        report.expect_err("it does not begin")
    }

    fn run_until(&self, until: fn(&Progress) -> bool) -> Report {
        let report = self.begin(until).0.expect("it begins");
        let read = Report::from_json(&report.to_json()).expect("it reads what it wrote");
        assert_eq!(read, report);
        assert!(text_table(&report, &TableSpec::FULL).contains("A test"));
        assert!(markdown(&report, &TableSpec::FULL).contains("A test"));
        report
    }

    fn run(&self) -> Report {
        self.run_until(|_| false)
    }

    /// Runs a plan that has to succeed, and returns its only run.
    fn only_run(&self) -> Run {
        let mut report = self.run();
        assert_eq!(report.end, End::Complete, "{:?}", report.rows[0].not_available);
        assert_eq!(runs(&report), [1]);
        report.rows.remove(0).runs.remove(0)
    }

    fn opened(&self) -> Vec<u64> {
        self.seen.iter().map(|seen| seen.opened.load(Ordering::Relaxed)).collect()
    }
}

fn configuration(engine: &str) -> Configuration {
    Configuration { label: engine.into(), engine: engine.into(), level: Level::Sync }
}

fn data_point(name: &str, workload: Spec, load: Load) -> DataPoint {
    DataPoint { name: name.into(), workload, load, cache_bytes: 64 << 20 }
}

fn runs(report: &Report) -> Vec<usize> {
    report.rows.iter().map(|row| row.runs.len()).collect()
}

fn reason(report: &Report, row: usize) -> &str {
    report.rows[row].not_available.as_deref().expect("a reason")
}

// Order.

#[test]
fn rounds_take_turns_beside_the_bare_device() {
    let mut bench = Bench::new(&[Fault::Nothing, Fault::Nothing]);
    bench.plan.data_points = [("A", 1), ("B", 3)]
        .map(|(name, threads)| data_point(name, INSERT, Load { threads, ..TWENTY }))
        .into();
    bench.plan.rounds = 2;
    let (report, shown) = bench.begin(|_| false);
    let report = report.expect("it begins");
    assert_eq!((&report.end, runs(&report)), (&End::Complete, vec![2; 4]));
    let mut order: Vec<(u32, &str)> = shown.iter().map(|shown| (shown.round, shown.what.as_str())).collect();
    order.dedup();
    let a = ["first, A, 1 thread", "second, A, 1 thread"];
    let b = ["first, B, 3 threads", "second, B, 3 threads"];
    // Each round begins with another engine.
    let rounds = [[a[0], a[1], b[0], b[1]], [a[1], a[0], b[1], b[0]]];
    let whole: Vec<(u32, &str)> = (rounds.into_iter().zip(1..))
        .flat_map(|(runs, round)| runs.map(|run| [(round, "the bare device"), (round, run)]))
        .flatten()
        .collect();
    assert_eq!(order, whole);
    assert!(shown.iter().all(|shown| shown.rounds == 2 && shown.done_seconds >= 0.0));
    for pair in report.rows.chunks(2) {
        let [first, second] = pair else { panic!("two engines at each data point") };
        assert!(first.is_beside(second) && first.data_point == second.data_point);
        for (index, (one, other)) in first.runs.iter().zip(&second.runs).enumerate() {
            let operations = 20 * u64::from(first.threads);
            assert_eq!((one.round, other.round), (index as u32 + 1, index as u32 + 1));
            assert_eq!((one.operations, one.counters.commits), (operations, operations));
            for run in [one, other] {
                assert!(run.bare_writes_per_second > 0.0 && run.bare_writes_per_second_after > 0.0);
            }
        }
    }
    assert_eq!(report.ratio(&report.rows[0]).map(|ratio| (ratio.min, ratio.max)), Some((1.0, 1.0)));
    assert_eq!(bench.opened(), [4, 4], "a fresh store for each run");
}

#[test]
fn the_time_left_is_estimated_before_the_first_run_ends() {
    let mut bench = Bench::new(&[Fault::Nothing, Fault::Cannot]);
    bench.plan.data_points[0].load.limit = Limit::Time(Duration::from_millis(100));
    bench.plan.rounds = 2;
    let (_, shown) = bench.begin(|_| false);
    let left: Vec<f64> = shown.iter().filter_map(|shown| shown.left_seconds).collect();
    assert_eq!(left.len(), shown.len(), "a limit of time gives an estimate at once");
    assert!(left.iter().all(|left| (0.0..5.0).contains(left)), "{left:?}");
    assert!(left.last() < left.first(), "{left:?}");
}

// Limits.

#[test]
fn operations_are_those_of_each_thread() {
    let mut bench = Bench::new(&[Fault::Nothing]);
    bench.plan.data_points[0].load.threads = 3;
    let run = bench.only_run();
    assert_eq!((run.operations, run.counters.commits, run.conflicts), (60, 60, 0));
    assert_eq!((run.user_bytes, run.live_bytes), (60 * ROW_BYTES, Some(60 * ROW_BYTES)));
    assert_eq!(run.fairness, None);
    let latency = run.latency;
    assert!([latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns].is_sorted(), "{latency:?}");
    assert!(latency.p50_ns > 0 && latency.mean_ns <= latency.max_ns, "{latency:?}");
}

#[test]
fn time_ends_a_run_and_is_sampled() {
    let mut bench = Bench::new(&[Fault::IsSlow]);
    let time = Duration::from_millis(250);
    bench.plan.data_points[0].load = Load { threads: 2, limit: Limit::Time(time), ..TWENTY };
    let run = bench.only_run();
    let elapsed = Duration::from_nanos(run.elapsed_ns);
    assert!(elapsed >= time && !run.interrupted, "{elapsed:?}");
    assert!(run.latency.p50_ns >= fake::SLOW.as_nanos() as u64, "{:?}", run.latency);
    assert!(run.fairness.is_some_and(|fairness| fairness > 0.0 && fairness <= 1.0), "{:?}", run.fairness);
    assert!((2..=25).contains(&run.samples.len()), "{:?}", run.samples);
    assert!(run.samples.is_sorted_by(|a, b| a.at_ns < b.at_ns && a.operations <= b.operations));
    let last = run.samples.last().expect("there are some");
    assert!(
        last.operations > 0
            && last.operations <= run.operations
            && last.at_ns <= run.elapsed_ns + 100_000_000
    );
}

#[test]
fn clients_that_end_end_the_run() {
    let workload =
        Spec::Load(workload::Load { sizes: Micro::SIZES, rows: 95, order: Order::Random, batch: 10 });
    let mut bench = Bench::new(&[Fault::Nothing]);
    for limit in [Limit::Work, Limit::Operations(1000), Limit::Time(Duration::from_secs(100))] {
        bench.plan.data_points = vec![data_point("", workload.clone(), Load { threads: 3, limit, ..TWENTY })];
        let run = bench.only_run();
        assert_eq!((run.operations, run.user_bytes), (10, 95 * ROW_BYTES), "{limit:?}");
    }
}

// Counting.

#[test]
fn warm_up_is_checked_and_not_measured() {
    for tickets in [0, 4] {
        let mut bench = Bench::new(&[Fault::Nothing]);
        bench.plan.data_points[0].load =
            Load { threads: 3, warm_up: Limit::Operations(7), tickets, ..TWENTY };
        let run = bench.only_run();
        assert_eq!((run.operations, run.counters.commits), (60, 60));
        assert_eq!((run.user_bytes, run.live_bytes), (60 * ROW_BYTES, Some(3 * 27 * ROW_BYTES)));
        assert_eq!(run.kinds[0].operations, 60);
    }
    let mut bench = Bench::new(&[Fault::Loses]);
    bench.plan.data_points[0].load.warm_up = Limit::Operations(15);
    let report = bench.run();
    assert!(reason(&report, 0).contains("holds 34 rows instead of 35"), "{}", reason(&report, 0));
}

#[test]
fn tickets_are_how_many_commits_are_in_flight() {
    for tickets in [1, 4, 100] {
        let mut bench = Bench::new(&[Fault::Nothing]);
        bench.plan.data_points[0].load.tickets = tickets;
        let run = bench.only_run();
        assert_eq!((run.operations, run.kinds[0].operations), (20, 20));
        let in_flight = bench.seen[0].in_flight_max.load(Ordering::Relaxed);
        assert_eq!(in_flight, u64::from(tickets.min(20)));
    }
    let load = Load { threads: 2, tickets: 8, warm_up: Limit::Operations(3), ..TWENTY };
    for (workload, rows) in [(INSERT, 46), (micro(30, MicroMix::UpdateSearch), 30)] {
        let run = Bench::fulgurite(workload, load).only_run();
        assert_eq!((run.operations, run.live_bytes), (40, Some(rows * ROW_BYTES)));
    }
}

#[test]
fn conflicts_are_counted_and_run_again() {
    let mut bench = Bench::new(&[Fault::Conflicts]);
    for tickets in [0, 4] {
        bench.plan.data_points[0].load = Load { threads: 3, tickets, ..TWENTY };
        let run = bench.only_run();
        // Every second attempt conflicts, and the last one does not.
        assert_eq!((run.operations, run.conflicts, run.counters.commits), (60, 59, 119));
        assert_eq!(run.user_bytes, 60 * ROW_BYTES, "what was undone does not count");
    }
}

#[test]
fn the_kinds_are_all_operations() {
    let scale = TpccScale { warehouses: 1, items: 100, customers_per_district: 30, orders_per_district: 30 };
    let load = Load { threads: 2, limit: Limit::Operations(150), warm_up: Limit::Operations(10), ..TWENTY };
    for (workload, rolls_back) in [
        (micro(50, MicroMix::UpdateSearch), false),
        (Spec::Oltp(Oltp { sizes: Oltp::SIZES, rows: 50 }), false),
        (Spec::Tpcc(Tpcc { scale, bounded: false }), true),
    ] {
        let run = Bench::fulgurite(workload.clone(), load).only_run();
        let names: Vec<&str> = run.kinds.iter().map(|kind| kind.kind.as_str()).collect();
        assert_eq!(names, workload.build().shape().kinds);
        let rolled_back: u64 = run.kinds.iter().map(|kind| kind.rolled_back).sum();
        let done: u64 = run.kinds.iter().map(|kind| kind.operations).sum();
        assert_eq!((done + rolled_back, run.operations), (300, 300));
        assert!(rolled_back == 0 || rolls_back, "{rolled_back} were rolled back");
        assert!(run.kinds.iter().all(|kind| kind.latency.max_ns <= run.latency.max_ns));
        assert!(run.user_bytes > 0 && run.io.syncs > 0 && run.disk_bytes > 0 && run.fill_ns > 0, "{run:?}");
    }
}

#[test]
fn a_cold_store_was_closed_and_opened_again() {
    let workload = micro(2000, MicroMix::Read { miss_percent: 20 });
    let load = Load { threads: 2, limit: Limit::Operations(300), ..TWENTY };
    for cold in [false, true] {
        let mut bench = Bench::fulgurite(workload.clone(), Load { cold, ..load });
        let counting = Fake::new("counting", Fault::Nothing);
        let seen = counting.seen.clone();
        bench.registry = Registry::new(vec![Box::new(counting)], None);
        bench.plan.configurations.push(configuration("counting"));
        let report = bench.run();
        assert_eq!((&report.end, report.rows[0].runs[0].operations), (&End::Complete, 600));
        assert_eq!(seen.opened.load(Ordering::Relaxed), if cold { 2 } else { 1 });
        assert_eq!(report.settings.contains_key("page cache"), cold);
    }
}

#[test]
fn scans_count_the_rows_that_are_there() {
    let load = Load { limit: Limit::Operations(5), ..TWENTY };
    for direction in [Direction::Forward, Direction::Reverse] {
        let workload =
            Spec::Scan(Scan { sizes: Micro::SIZES, rows: 300, length: ScanLength::Long, direction });
        let mut bench = Bench::new(&[Fault::Nothing]);
        bench.plan.data_points = vec![data_point("", workload, load)];
        let run = bench.only_run();
        assert_eq!((run.operations, run.user_bytes), (5, 0));
    }
}

// Failures.

#[test]
fn an_engine_that_loses_a_commit_is_detected_and_leaves_the_others() {
    let bench = Bench::new(&[Fault::Nothing, Fault::Loses, Fault::Nothing]);
    let report = bench.run();
    assert_eq!(runs(&report), [1, 0, 1]);
    assert_eq!(report.end, End::Failed("1 row failed: its reason is in the table".into()));
    let expected = "failed: after the run the table `rows` holds 19 rows instead of 20: the figures are void";
    assert_eq!(reason(&report, 1), expected);
    let table = text_table(&report, &TableSpec::FULL);
    assert!(table.contains("n/a (1)") && table.contains(expected), "{table}");
}

#[test]
fn an_engine_that_fails_says_why_and_is_not_run_again() {
    for (fault, opened, what) in [
        (Fault::Fails, 1, "failed: committing: the disk is gone"),
        (Fault::FailsLater, 2, "failed: committing: the disk is gone"),
        (Fault::DoesNotOpen, 1, "failed: opening: the disk is gone"),
        (Fault::DoesNotClose, 1, "failed: closing: the disk is gone"),
    ] {
        let mut bench = Bench::new(&[fault, Fault::Nothing]);
        bench.plan.rounds = 3;
        let report = bench.run();
        assert_eq!((runs(&report), bench.opened()), (vec![0, 3], vec![opened, 3]), "{fault:?}");
        assert_eq!(reason(&report, 0), what);
        assert!(matches!(report.end, End::Failed(_)));
        assert_eq!(report.ratio(&report.rows[1]), None, "there is no baseline any more");
    }
}

#[test]
fn an_engine_that_fails_while_it_warms_up_ends() {
    let mut bench = Bench::new(&[Fault::Fails, Fault::Nothing]);
    bench.plan.data_points[0].load = Load { threads: 3, warm_up: Limit::Operations(1000), ..TWENTY };
    let report = bench.run();
    assert_eq!((reason(&report, 0), runs(&report)), ("failed: committing: the disk is gone", vec![0, 1]));
}

#[test]
fn a_thread_that_fails_or_panics_ends_those_beside_it() {
    let died = format!("failed: {}", Error::Died);
    let failed = "failed: committing: the disk is gone";
    for (fault, why) in
        [(Fault::Fails, failed), (Fault::FailsAndLocks, failed), (Fault::Panics, died.as_str())]
    {
        for warm_up in [0, 15_000] {
            let mut bench = Bench::new(&[fault]);
            let limit = Limit::Time(Duration::from_secs(30));
            bench.plan.data_points[0].load =
                Load { threads: 2, warm_up: Limit::Operations(warm_up), limit, ..TWENTY };
            let (report, shown) = bench.begin(|_| false);
            let report = report.expect("it begins");
            assert_eq!((runs(&report), reason(&report, 0)), (vec![0], why));
            let seconds = shown.last().map(|shown| shown.done_seconds);
            assert!(seconds.is_some_and(|seconds| seconds < 15.0), "{fault:?}: {seconds:?}");
        }
    }
}

#[test]
fn an_unsupported_run_is_not_started() {
    let mut bench = Bench::new(&[Fault::Cannot, Fault::Refuses, Fault::Nothing]);
    bench.plan.rounds = 2;
    let report = bench.run();
    assert_eq!((&report.end, runs(&report)), (&End::Complete, vec![0, 0, 2]));
    assert_eq!(reason(&report, 0), "it has nothing");
    assert_eq!(reason(&report, 1), "the machine has no such device");
    assert_eq!(bench.opened(), [0, 1, 2], "one said it beforehand, one when it was opened");
}

#[test]
fn fulgurite_stages_in_tmpfs_or_says_that_there_is_none() {
    let mut bench = Bench::fulgurite(INSERT, TWENTY);
    bench.plan.configurations[0].level = Level::Staged;
    let report = bench.run();
    let expected = usize::from(std::path::Path::new("/dev/shm").is_dir());
    assert_eq!((&report.end, runs(&report)), (&End::Complete, vec![expected]));
    assert!(expected == 1 || reason(&report, 0).contains("tmpfs"));
}

// Interruptions.

#[test]
fn an_interruption_before_anything_is_measured_leaves_nothing() {
    let bench = Bench::new(&[Fault::Nothing]);
    let report = bench.run_until(|_| true);
    assert_eq!((&report.end, bench.opened()), (&End::Interrupted, vec![0]));
    let workload = micro(100_000, MicroMix::Read { miss_percent: 0 });
    let endless =
        Load { limit: Limit::Time(Duration::from_secs(100)), warm_up: Limit::Operations(u64::MAX), ..TWENTY };
    let bench = Bench::fulgurite(workload, endless);
    let stages: [fn(&Progress) -> bool; 2] = [
        |progress| matches!(progress.stage, Stage::Filling(share) if share > 0.01),
        |progress| progress.what != "the bare device" && progress.stage == Stage::Warming,
    ];
    for until in stages {
        let report = bench.run_until(until);
        assert!(report.end == End::Interrupted && report.is_empty(), "{:?}", report.end);
        assert_eq!(report.rows[0].not_available, None);
    }
}

#[test]
fn an_interrupted_run_stays_and_is_marked() {
    let mut bench = Bench::new(&[Fault::IsSlow, Fault::IsSlow]);
    bench.plan.data_points[0].load = Load { threads: 2, limit: Limit::Operations(u64::MAX), ..TWENTY };
    bench.plan.data_points[0].workload = micro(100, MicroMix::Read { miss_percent: 0 });
    let report = bench.run_until(|progress| matches!(progress.stage, Stage::Running(done) if done > 50));
    assert_eq!((&report.end, runs(&report)), (&End::Interrupted, vec![1, 0]));
    let (row, run) = (&report.rows[0], &report.rows[0].runs[0]);
    assert!(row.is_partial() && run.interrupted && run.operations > 50);
    assert!(run.bare_writes_per_second > 0.0 && !run.samples.is_empty());
    assert!(text_table(&report, &TableSpec::FULL).contains("not run"));
}

#[test]
fn an_interruption_keeps_the_rounds_that_are_complete() {
    let mut bench = Bench::new(&[Fault::IsSlow, Fault::IsSlow]);
    bench.plan.rounds = 3;
    bench.plan.data_points[0].load.limit = Limit::Operations(100);
    let report = bench.run_until(|progress| {
        progress.round == 2 && matches!(progress.stage, Stage::Running(done) if done > 0)
    });
    assert_eq!((&report.end, runs(&report)), (&End::Interrupted, vec![1, 2]));
    let interrupted: Vec<bool> = report.rows[1].runs.iter().map(|run| run.interrupted).collect();
    assert_eq!(interrupted, [false, true]);
    assert_eq!((report.rows[0].is_partial(), report.rows[0].counting().count()), (false, 1));
}

// Runs that do not begin.

#[test]
fn a_run_that_does_not_fit_the_disk_is_not_begun() {
    let mut bench = Bench::new(&[Fault::Nothing]);
    let short = Limit::Time(Duration::from_secs(1));
    for (limit, warm_up) in [
        (Limit::Operations(u64::MAX), 0),
        (Limit::Time(Duration::from_secs(1 << 40)), 0),
        (Limit::Operations(1), u64::MAX),
        (short, u64::MAX),
    ] {
        bench.plan.data_points[0].load = Load { limit, warm_up: Limit::Operations(warm_up), ..TWENTY };
        let error = bench.refused();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        assert!(error.to_string().contains("give another directory"), "{error}");
    }
}

#[test]
fn an_unknown_engine_is_an_error() {
    let mut bench = Bench::new(&[Fault::Nothing]);
    bench.plan.configurations.push(configuration("fourth"));
    let expected = "choosing the engines: there is no engine `fourth`: there are fulgurite, first";
    assert_eq!(bench.refused().to_string(), expected);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let mut bench = Bench::new(&[Fault::Nothing]);
    bench.plan.dir.push("missing");
    let error = bench.refused();
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("missing"), "{error}");
}
