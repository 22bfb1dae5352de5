//! Runs at a fixed rate, second by second, with Fulgurite and with an engine that is slow or stalls.

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{Fake, Fault};
use fulgurite::env::{Env, RealEnv};
use fulgurite_bench::engine::{Engine, Level};
use fulgurite_bench::workload::{Micro, TailLatency};
use fulgurite_bench::{
    Configuration, DataPoint, End, Limit, Load, Pacing, Plan, Process, Progress, Rate, Registry, Report, Run,
    Spec, Stage, Timeline,
};

/// Rows of a commit: few commits are enough for a checkpoint.
const BATCH: u64 = 200;

/// One run of a small table at a rate, to its end.
fn run(engine: &str, fault: Fault, pacing: Pacing, load: Load) -> (Run, Timeline) {
    let (run, timeline) = run_until(engine, fault, Load { pacing: Some(pacing), ..load }, |_| false);
    assert!(!run.interrupted && timeline.not_begun == 0, "{timeline:?}");
    (run, timeline)
}

/// The same until the progress is this. The report is read back from its JSON.
fn run_until(engine: &str, fault: Fault, load: Load, until: fn(&Progress) -> bool) -> (Run, Timeline) {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let workload = TailLatency { sizes: Micro::SIZES, rows: 1000, batch: BATCH, tables: 3, written: 2 };
    let plan = Plan {
        name: "tail-latency".into(),
        title: "A test".into(),
        configurations: vec![Configuration {
            label: "engine".into(),
            engine: engine.into(),
            level: Level::Sync,
        }],
        baseline: "engine".into(),
        data_points: vec![DataPoint {
            name: String::new(),
            workload: Spec::TailLatency(workload),
            load,
            cache_bytes: 64 << 20,
        }],
        rounds: 1,
        assume_power_safe_cache: false,
        notes: Vec::new(),
        dir: dir.path().to_path_buf(),
    };
    let env: Arc<dyn Env> = RealEnv::new();
    let peers: Vec<Box<dyn Engine>> = vec![Box::new(Fake::new("fake", fault))];
    let report =
        plan.run(&env, &Registry::new(peers, None), &Process::Here, &mut |progress| !until(progress));
    let report = report.expect("it begins");
    assert!(!matches!(report.end, End::Failed(_)), "{:?}", report.rows[0].not_available);
    let left = env.disk().list(dir.path()).expect("it is there");
    assert!(left.is_empty(), "left behind: {left:?}");
    let mut read = Report::from_json(&report.to_json()).expect("it reads what it wrote");
    assert_eq!(read, report);
    let run = read.rows.remove(0).runs.remove(0);
    let timeline = run.timeline.clone().expect("its seconds");
    let due: u64 = timeline.seconds.iter().map(|second| second.due).sum();
    let completed: u64 = timeline.seconds.iter().map(|second| second.completed).sum();
    assert_eq!((due, completed), (run.operations, run.operations));
    (run, timeline)
}

fn load(threads: u32, ms: u64) -> Load {
    Load::closed(threads, Limit::Time(Duration::from_millis(ms)))
}

fn at(rate: Rate) -> Pacing {
    Pacing { rate, ask_every: Some(Duration::from_millis(10)), bare_device: false }
}

const fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[test]
fn commits_are_done_when_they_are_due() {
    let (run, timeline) = run("fake", Fault::Nothing, at(Rate::PerSecond(20.0)), load(2, 1_500));
    assert_eq!((run.operations, timeline.rate), (30, Some(20.0)));
    assert!(run.elapsed_ns >= 1_450_000_000, "the last one is due after 1.45 s: {}", run.elapsed_ns);
    assert_eq!(timeline.seconds.iter().map(|second| second.due).collect::<Vec<_>>()[..2], [20, 10]);
    assert!(timeline.seconds.iter().all(|second| second.watched.is_none() && second.bare.is_none()));
    assert_eq!((timeline.bare, run.fairness.is_some()), (None, true));
}

#[test]
fn a_stall_delays_all_that_is_due_meanwhile() {
    let (open, timeline) = run("fake", Fault::Stalls, at(Rate::PerSecond(100.0)), load(1, 400));
    assert_eq!(open.operations, 40);
    // Thirty of them are due in the stall, evenly.
    assert!(open.latency.p50_ns > ns(fake::STALL) / 10, "{:?}", open.latency);
    assert!(open.latency.mean_ns > ns(fake::STALL) / 5, "{:?}", open.latency);
    assert!(timeline.seconds[0].latency.max_ns >= ns(fake::STALL) * 99 / 100, "{timeline:?}");
    // A closed loop has one operation that is slow, and omits the others.
    let (closed, timeline) = run("fake", Fault::Stalls, at(Rate::Max), load(1, 400));
    assert!(closed.latency.max_ns >= ns(fake::STALL) * 99 / 100, "{:?}", closed.latency);
    assert!(closed.latency.p50_ns < ns(fake::STALL) / 10, "{:?}", closed.latency);
    assert_eq!(timeline.rate, None);
}

#[test]
fn an_engine_that_is_too_slow_catches_up_after_the_end() {
    let (run, timeline) = run("fake", Fault::IsSlow, at(Rate::PerSecond(1000.0)), load(1, 400));
    assert_eq!(run.operations, 400);
    assert!(run.elapsed_ns >= 400 * ns(fake::SLOW), "{}", run.elapsed_ns);
    assert!(run.latency.max_ns >= 300_000_000, "the last one waits for those before: {:?}", run.latency);
    assert_eq!(timeline.seconds[0].due, 400);
}

#[test]
fn a_share_is_of_the_rate_of_the_warm_up() {
    let load = Load { warm_up: Limit::Time(Duration::from_millis(300)), ..load(2, 500) };
    let (run, timeline) = run("fake", Fault::IsSlow, at(Rate::Share(0.25)), load);
    let rate = timeline.rate.expect("a rate");
    // Two threads, less than 500 commits a second each.
    assert!((1.0..=250.0).contains(&rate), "{rate}");
    assert_eq!(run.operations, (rate * 0.5).ceil() as u64);
}

#[test]
fn a_limit_of_operations_is_that_of_each_thread() {
    let load = Load::closed(2, Limit::Operations(25));
    let pacing = Pacing { ask_every: None, ..at(Rate::PerSecond(500.0)) };
    let (run, timeline) = run("fulgurite", Fault::Nothing, pacing, load);
    assert_eq!((run.operations, run.user_bytes), (50, 50 * BATCH * 120));
    assert_eq!((timeline.seconds[0].due, timeline.seconds[0].watched), (50, None));
}

#[test]
fn checkpoints_and_the_bare_device_are_seen() {
    let pacing = Pacing { bare_device: true, ..at(Rate::Max) };
    let engine = "fulgurite:checkpoint-log-bytes=1MiB";
    let (_, timeline) = run(engine, Fault::Nothing, pacing, load(2, 5_000));
    let bare = timeline.bare.expect("bare writes");
    assert!(bare.p50_ns > 0 && bare.max_ns >= bare.p99_ns, "{bare:?}");
    // A disk that is busy with something else takes seconds now and then.
    assert!(timeline.seconds.iter().filter(|second| second.bare.is_some()).count() > 1, "{timeline:?}");
    let watched: Vec<_> = timeline.seconds.iter().filter_map(|second| second.watched).collect();
    assert!(watched.len() > 1 && watched.iter().all(|watched| watched.stats_ns_max > 0), "{watched:?}");
    assert!(
        watched.iter().any(|watched| watched.checkpoints > 0 && watched.checkpoint_ns > 0),
        "{watched:?}"
    );
    assert!(watched.iter().all(|watched| (watched.checkpoints > 0) == (watched.checkpoint_ns > 0)));
    assert!(watched.iter().all(|watched| watched.log_bytes < 64 << 20), "{watched:?}");
    assert!(watched.iter().any(|watched| watched.log_bytes > 0), "{watched:?}");
}

#[test]
fn an_interruption_ends_threads_that_wait() {
    let pacing = Some(Pacing { bare_device: true, ..at(Rate::PerSecond(0.1)) });
    let load = Load { pacing, ..load(2, 60_000) };
    let until = |progress: &Progress| matches!(progress.stage, Stage::Running(done) if done > 0);
    let (run, timeline) = run_until("fulgurite", Fault::Nothing, load, until);
    assert_eq!((run.interrupted, run.operations, timeline.not_begun), (true, 1, 0));
}
