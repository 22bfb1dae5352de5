//! What the child measures, and the file in which it leaves that for the parent: it will be killed.
//!
//! The machine's own delays are told apart from waits of the engine's. A bare thread sleeps a millisecond at a time and
//! measures how much later it wakes. A bare file on the same disk gets a block and a sync every 20 ms. A call of `stats()` is measured as it is, and less the time for which its thread was
//! ready to run and had no processor (`/proc/thread-self/schedstat`).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fulgurite::{Database, Stats};
use histogram::AtomicHistogram;

/// How often `stats()` is called.
const SAMPLE: Duration = Duration::from_millis(5);

/// How often the report is written: each so many samples.
const REPORT_SAMPLES: u64 = 10;

/// The most memory that a load may take.
const RSS_BYTES_MAX: u64 = 10 << 30;

pub struct Meters {
    pub begun: Instant,
    report: PathBuf,
    /// Latencies of small commits in nanoseconds.
    commits: AtomicHistogram,
    commit_ns_max: AtomicU64,
    /// When the longest commit ended, in milliseconds since the load began.
    commit_max_at_ms: AtomicU64,
    pub rows: AtomicU64,
    /// The newest acknowledged commit of each thread; of the thread of large transactions last.
    acknowledged: Vec<AtomicU64>,
    large_ns_max: AtomicU64,
    late_ns_max: AtomicU64,
    late: AtomicHistogram,
    sync_ns_max: AtomicU64,
    syncs: AtomicHistogram,
}

/// The time for which the calling thread waited for a processor.
pub struct RunDelay(File);

impl RunDelay {
    pub fn new() -> RunDelay {
        RunDelay(File::open("/proc/thread-self/schedstat").unwrap())
    }

    pub fn ns(&self) -> u64 {
        let mut text = [0; 80];
        let len = self.0.read_at(&mut text, 0).unwrap();
        let text = std::str::from_utf8(&text[..len]).unwrap();
        text.split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

fn quantile_us(histogram: &AtomicHistogram, quantile: f64) -> u64 {
    let bucket = histogram.load().quantile_bucket(quantile).ok().flatten();
    bucket.map_or(0, |bucket| bucket.end() / 1_000)
}

fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap() * 4096
}

impl Meters {
    pub fn new(report: &Path, threads: u64) -> Meters {
        let histogram = || AtomicHistogram::new(5, 40).unwrap();
        Meters {
            begun: Instant::now(),
            report: report.to_path_buf(),
            commits: histogram(),
            commit_ns_max: AtomicU64::new(0),
            commit_max_at_ms: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            acknowledged: (0..=threads).map(|_| AtomicU64::new(0)).collect(),
            large_ns_max: AtomicU64::new(0),
            late_ns_max: AtomicU64::new(0),
            late: histogram(),
            sync_ns_max: AtomicU64::new(0),
            syncs: histogram(),
        }
    }

    fn ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap()
    }

    /// A thread's small commit was acknowledged.
    pub fn committed(&self, thread: u64, commit: u64, took: Duration, rows: u64) {
        let ns = nanos(took);
        self.commits.increment(ns.min((1 << 40) - 1)).unwrap();
        if ns > self.commit_ns_max.fetch_max(ns, Relaxed) {
            self.commit_max_at_ms.store(self.ms(), Relaxed);
        }
        self.rows.fetch_add(rows, Relaxed);
        self.acknowledged[thread as usize].store(commit, Relaxed);
    }

    /// A large transaction was acknowledged.
    pub fn committed_large(&self, commit: u64, took: Duration) {
        self.large_ns_max.fetch_max(nanos(took), Relaxed);
        self.acknowledged.last().unwrap().store(commit, Relaxed);
    }

    /// The bare thread.
    pub fn sleep_bare(&self) -> ! {
        const NAP: Duration = Duration::from_millis(1);
        loop {
            let start = Instant::now();
            std::thread::sleep(NAP);
            let late = nanos(start.elapsed().saturating_sub(NAP));
            self.late_ns_max.fetch_max(late, Relaxed);
            self.late.increment(late.min((1 << 40) - 1)).unwrap();
        }
    }

    /// Writes a block of a file that has it already, and syncs it, again and again.
    pub fn sync_bare(&self, dir: &Path) -> ! {
        const NAP: Duration = Duration::from_millis(20);
        let file = File::create(dir.join("bare.bin")).unwrap();
        let block = [7; 4096];
        file.write_all_at(&block, 0).unwrap();
        file.sync_all().unwrap();
        loop {
            std::thread::sleep(NAP);
            let start = Instant::now();
            file.write_all_at(&block, 0).unwrap();
            file.sync_data().unwrap();
            let took = nanos(start.elapsed());
            self.sync_ns_max.fetch_max(took, Relaxed);
            self.syncs.increment(took.min((1 << 40) - 1)).unwrap();
        }
    }

    /// Asks for stats again and again, and writes the report.
    pub fn sample(&self, db: &Database) -> ! {
        let delay = RunDelay::new();
        let mut uncovered_max = 0;
        let (mut stats_ns_max, mut stats_own_ns_max) = (0, 0);
        let calls = AtomicHistogram::new(5, 40).unwrap();
        let own_calls = AtomicHistogram::new(5, 40).unwrap();
        let mut trace = Trace::new();
        for sample in 1u64.. {
            std::thread::sleep(SAMPLE);
            let delayed = delay.ns();
            let start = Instant::now();
            let stats = db.stats();
            let took = nanos(start.elapsed());
            let own = took.saturating_sub(delay.ns() - delayed);
            stats_ns_max = stats_ns_max.max(took);
            stats_own_ns_max = stats_own_ns_max.max(own);
            calls.increment(took).unwrap();
            own_calls.increment(own).unwrap();
            uncovered_max = uncovered_max.max(stats.uncovered_log_bytes);
            assert!(stats.poisoned.is_none(), "{:?}", stats.poisoned);
            if sample % REPORT_SAMPLES != 0 {
                continue;
            }
            trace.line(self, &stats);
            let mut figures = self.figures(&stats);
            figures.extend([
                ("uncovered_max".into(), uncovered_max),
                ("stats_us_max".into(), stats_ns_max / 1_000),
                ("stats_own_us_max".into(), stats_own_ns_max / 1_000),
                ("stats_us_p999".into(), quantile_us(&calls, 0.999)),
                ("stats_own_us_p999".into(), quantile_us(&own_calls, 0.999)),
            ]);
            self.write(&figures);
        }
        unreachable!("it samples for ever")
    }

    fn figures(&self, stats: &Stats) -> Report {
        let rss = rss_bytes();
        assert!(rss < RSS_BYTES_MAX, "{rss} bytes of memory");
        let us = |ns: &AtomicU64| ns.load(Relaxed) / 1_000;
        let mut figures = Report::from(
            [
                ("ms", self.ms()),
                ("rows", self.rows.load(Relaxed)),
                ("p50_us", quantile_us(&self.commits, 0.5)),
                ("p99_us", quantile_us(&self.commits, 0.99)),
                ("p999_us", quantile_us(&self.commits, 0.999)),
                ("max_us", us(&self.commit_ns_max)),
                ("max_at_ms", self.commit_max_at_ms.load(Relaxed)),
                ("large_max_us", us(&self.large_ns_max)),
                ("bare_us_max", us(&self.late_ns_max)),
                ("bare_us_p999", quantile_us(&self.late, 0.999)),
                ("sync_us_max", us(&self.sync_ns_max)),
                ("sync_us_p99", quantile_us(&self.syncs, 0.99)),
                ("uncovered", stats.uncovered_log_bytes),
                ("checkpoints", stats.checkpoints),
                ("disk_bytes", stats.segment_bytes),
                ("rss", rss),
            ]
            .map(|(name, figure)| (name.to_string(), figure)),
        );
        for (thread, commit) in self.acknowledged.iter().enumerate() {
            figures.insert(format!("acknowledged_{thread}"), commit.load(Relaxed));
        }
        figures
    }

    fn write(&self, figures: &Report) {
        let text: String = figures.iter().map(|(name, figure)| format!("{name} {figure}\n")).collect();
        let new = self.report.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &self.report).unwrap();
    }
}

/// Figures by name.
pub type Report = BTreeMap<String, u64>;

/// The newest report, empty before the first.
pub fn read_report(path: &Path) -> Report {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let figure = |line: &str| {
        let (name, figure) = line.split_once(' ').unwrap();
        (name.to_string(), figure.parse().unwrap())
    };
    text.lines().map(figure).collect()
}

/// With `FULGURITE_LONG_TRACE` a line each second says what the database does.
struct Trace {
    is_wanted: bool,
    seconds: u64,
    rows: u64,
}

impl Trace {
    fn new() -> Trace {
        Trace { is_wanted: std::env::var_os("FULGURITE_LONG_TRACE").is_some(), seconds: 0, rows: 0 }
    }

    fn line(&mut self, meters: &Meters, stats: &Stats) {
        let seconds = meters.begun.elapsed().as_secs();
        if !self.is_wanted || seconds == self.seconds {
            return;
        }
        self.seconds = seconds;
        let rows = meters.rows.load(Relaxed);
        let mib = |bytes: u64| bytes >> 20;
        let wait = |wait: fulgurite::Latency| format!("{}x {} ms", wait.count, wait.max_ns / 1_000_000);
        let checkpoint = stats.checkpoint.map(|now| (now.pace, mib(now.done_bytes), mib(now.total_bytes)));
        eprintln!(
            "{seconds:4} s {:7} rows/s, max {} ms; MiB: uncovered {}, dirty {}, memtables {}, segments {}, rss {}; \
             {} checkpoints, {checkpoint:?}; waits: merging {}, memtables {}, checkpoint {}, space {}; {} segment waits; {} snapshots; {:?}",
            rows - self.rows,
            meters.commit_ns_max.load(Relaxed) / 1_000_000,
            mib(stats.uncovered_log_bytes),
            mib(stats.dirty_bytes),
            mib(stats.memtable_bytes),
            mib(stats.segment_bytes),
            mib(rss_bytes()),
            stats.checkpoints,
            wait(stats.waits.merging),
            wait(stats.waits.memtables),
            wait(stats.waits.checkpoint),
            wait(stats.waits.space),
            stats.log.segment_waits,
            stats.snapshots,
            stats.maintenance_error,
        );
        self.rows = rows;
    }
}
