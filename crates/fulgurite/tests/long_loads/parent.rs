//! The parent: starts the load, kills it, opens what it left, and judges.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use fulgurite::{Database, Options};

use super::case::{Case, HUGE_BYTES, LARGE_BYTES_MAX, LARGE_ROWS, LEVELS, commit_of, key, row_of};
use super::measure::{Report, RunDelay, read_report};

/// What the parent hands to the child.
pub const CHILD: &str = "FULGURITE_LONG_CHILD";

/// No small commit takes as long.
const COMMIT_MAX: Duration = Duration::from_secs(1);

/// The database answers `stats()` within this time, whenever its thread has a processor.
const STATS_MAX: Duration = Duration::from_millis(1);

/// The log that may have to be replayed within a second.
const REPLAYED_A_SECOND: u64 = 256 << 20;

/// However little it is, a second is fine.
const REPLAY_LEAST: Duration = Duration::from_secs(1);

/// How long the parent waits for the log to be nearly as long as it has been, to kill the child just then.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

/// Something that goes on beside the load, in a directory on the same disk.
pub trait Neighbour {
    fn start(dir: &Path) -> Self;
}

/// No neighbour.
impl Neighbour for () {
    fn start(_: &Path) {}
}

/// A running child, killed in the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Where the databases are made.
fn home() -> tempfile::TempDir {
    let home = std::env::var_os("FULGURITE_LONG_DIR").map(PathBuf::from);
    tempfile::tempdir_in(home.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")))).unwrap()
}

/// Runs a case, prints its figures on a line, and fails if a promise was broken.
pub fn run<N: Neighbour>(name: &str, case: &Case) {
    let home = home();
    // In memory: the reports are no work of the disk.
    let reports = tempfile::tempdir_in("/dev/shm").unwrap();
    let (dir, report) = (home.path().join("data"), reports.path().join("report"));
    let neighbour = N::start(home.path());
    let figures = load(case, &dir, &report);
    drop(neighbour);
    let mut broken = Vec::new();
    let opened = open(case, &dir, &mut broken);
    verify(case, &opened.db, &figures, &mut broken);
    judge(case, &figures, &mut broken);
    print(name, case, &figures, &opened);
    opened.db.close().unwrap();
    assert!(broken.is_empty(), "{name}: {broken:#?}");
}

/// Runs the child, and kills it; returns its last report. It is killed when the log that no checkpoint covers is about
/// as long as it has been.
fn load(case: &Case, dir: &Path, report: &Path) -> Report {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--quiet"])
        .env(CHILD, format!("{}\n{}\n{case}", dir.display(), report.display()))
        .spawn();
    let mut running = Running(child.unwrap());
    let seconds = Duration::from_secs(number("FULGURITE_LONG_SECONDS", 20));
    let begun = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        assert!(running.0.try_wait().unwrap().is_none(), "the load has failed");
        let figures = read_report(report);
        let is_long = || figures["uncovered"] > figures["uncovered_max"] / 8 * 7;
        let waited = begun.elapsed().saturating_sub(seconds);
        if waited > PATIENCE || (!waited.is_zero() && !figures.is_empty() && is_long()) {
            break;
        }
    }
    drop(running);
    read_report(report)
}

struct Opened {
    db: Database,
    /// The log that was replayed.
    uncovered: u64,
    took: Duration,
    /// Of that: with a processor, or waiting for the disk.
    own: Duration,
}

fn open(case: &Case, dir: &Path, broken: &mut Vec<String>) -> Opened {
    // An opening to read replays the same. The fastest counts: other programs may take processors and memory's bandwidth.
    let read_only = Options { read_only: true, ..case.options() };
    let read = timed_open(dir, &read_only);
    drop(read.0);
    // Without threads that would write a checkpoint at once.
    let options = Options { create: false, background: false, ..case.options() };
    let (db, took, own) = timed_open(dir, &options);
    let (took, own) = (took.min(read.1), own.min(read.2));
    let uncovered = db.stats().uncovered_log_bytes;
    let allowed = Duration::from_secs_f64(uncovered as f64 / REPLAYED_A_SECOND as f64);
    if own > allowed.max(REPLAY_LEAST) {
        broken.push(format!("{uncovered} bytes of log took {took:?} to replay, {own:?} with a processor"));
    }
    Opened { db, uncovered, took, own }
}

/// Opens; returns the time that it took, and how much of it was not spent waiting for a processor.
fn timed_open(dir: &Path, options: &Options) -> (Database, Duration, Duration) {
    let delay = RunDelay::new();
    let (delayed, start) = (delay.ns(), Instant::now());
    let db = Database::open(dir, options.clone()).unwrap();
    let took = start.elapsed();
    (db, took, took.saturating_sub(Duration::from_nanos(delay.ns() - delayed)))
}

fn judge(case: &Case, figures: &Report, broken: &mut Vec<String>) {
    let us = |name: &str| Duration::from_micros(figures[name]);
    let share = Options::default().checkpoint_log_bytes;
    // Those of a gigabyte may have a share of excess, and one more.
    let log_max = if case.is_large > 0 { 3 * share + LARGE_BYTES_MAX } else { 2 * share };
    if figures["uncovered_max"] > log_max {
        broken.push(format!("{} bytes of log were uncovered", figures["uncovered_max"]));
    }
    if us("max_us") >= COMMIT_MAX {
        let (longest, at_ms, bare) = (us("max_us"), figures["max_at_ms"], us("sync_us_max"));
        broken.push(format!("a commit took {longest:?}, after {at_ms} ms; the longest bare write {bare:?}"));
    }
    let (usual, longest) = (us("stats_own_us_p999"), us("stats_own_us_max"));
    // A thread that frees a gigabyte takes the kernel's lock of the address space, which a page fault needs.
    let is_excused = case.is_large > 0 && longest < 100 * STATS_MAX;
    if usual > STATS_MAX.max(us("bare_us_p999")) || !is_excused && longest > STATS_MAX.max(us("bare_us_max"))
    {
        broken.push(format!("stats() took {longest:?}, and 1 call in 1,000 {usual:?}, with a processor"));
    }
}

/// Compares all rows: those of each thread are as they were after one of its commits, which is the last one that was
/// acknowledged, or a later one, if commits survive a kill.
fn verify(case: &Case, db: &Database, figures: &Report, broken: &mut Vec<String>) {
    let mut found = vec![0u64; usize::try_from(case.rows).unwrap()];
    for number in 0..case.tables {
        let table = db.open_table(&format!("t{number}")).unwrap();
        for entry in table.range(..).unwrap() {
            let (key, value) = entry.unwrap();
            let row = row_of(&key).filter(|&row| row < case.rows && case.table_of(row) == number);
            let Some((row, commit)) = row.and_then(|row| Some((row, commit_of(row, &value)?))) else {
                broken.push(format!("table {number}: the row of key {key:?} is no row of the load"));
                continue;
            };
            found[row as usize] = commit;
        }
    }
    let mut expected = vec![0u64; found.len()];
    for thread in 0..case.threads {
        let newest = found.iter().skip(thread as usize).step_by(case.threads as usize).max().copied();
        let newest = newest.unwrap_or(0);
        let acknowledged = figures[&format!("acknowledged_{thread}")];
        if case.is_synchronous() && newest < acknowledged {
            broken
                .push(format!("thread {thread}: commit {acknowledged} was acknowledged, {newest} is there"));
        }
        for commit in 1..=newest {
            case.picks(thread, commit).for_each(|row| expected[row as usize] = commit);
        }
    }
    let wrong = expected.iter().zip(&found).filter(|(expected, found)| expected != found).count();
    if wrong > 0 {
        broken.push(format!("{wrong} rows are not as the last commits left them"));
    }
    if case.is_large > 0 {
        verify_large(case, db, figures, broken);
    }
}

fn verify_large(case: &Case, db: &Database, figures: &Report, broken: &mut Vec<String>) {
    let rows = db.open_table("large").unwrap();
    let mut commits: Vec<Option<u64>> = Vec::new();
    for entry in rows.range(..).unwrap() {
        let (key, value) = entry.unwrap();
        commits.push(row_of(&key).and_then(|row| commit_of(row, &value)));
    }
    let rows_of = commits.first().copied().unwrap_or(Some(0));
    let is_whole = commits.is_empty() || commits.len() as u64 == LARGE_ROWS;
    if rows_of.is_none() || !is_whole || commits.iter().any(|commit| *commit != rows_of) {
        broken.push("the rows of a transaction of a gigabyte are not all there".into());
    }
    let huge = db.open_table("huge").unwrap().get("value").unwrap();
    let huge_of = huge.map_or(Some(0), |value| commit_of(0, &value).filter(|_| value.len() == HUGE_BYTES));
    if huge_of.is_none() {
        broken.push("the value of 512 MiB is not as it was written".into());
    }
    let newest = rows_of.max(huge_of).unwrap_or(0);
    let acknowledged = figures[&format!("acknowledged_{}", case.threads)];
    if case.is_synchronous() && newest < acknowledged {
        broken.push(format!("large commit {acknowledged} was acknowledged, {newest} is there"));
    }
    assert_eq!(row_of(&key(LARGE_ROWS)), Some(LARGE_ROWS));
}

fn print(name: &str, case: &Case, figures: &Report, opened: &Opened) {
    let ms = |name: &str| figures[name] as f64 / 1e3;
    let Case { threads, level, tables, batch, .. } = case;
    eprintln!(
        "| {name} | {threads} | {} | {tables} | {batch} | {} | {:.2}, {:.1}, {:.1}, {:.0} | {} | {:.2} ({:.2}), {} | \
         {:.2} ({:.2}), {:.2} | {:.1}, {:.2} | {:.1}, {:.0} | {} | {} | {} | {:.0} |",
        LEVELS[*level as usize].0,
        figures["rows"] * 1_000 / figures["ms"].max(1),
        ms("p50_us"),
        ms("p99_us"),
        ms("p999_us"),
        ms("max_us"),
        figures["uncovered_max"] >> 20,
        opened.took.as_secs_f64(),
        opened.own.as_secs_f64(),
        opened.uncovered >> 20,
        ms("stats_us_max"),
        ms("stats_own_us_max"),
        ms("stats_us_p999"),
        ms("bare_us_max"),
        ms("bare_us_p999"),
        ms("sync_us_p99"),
        ms("sync_us_max"),
        figures["checkpoints"],
        figures["disk_bytes"] >> 20,
        figures["rss"] >> 20,
        ms("large_max_us"),
    );
}
