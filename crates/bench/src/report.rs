//! What a benchmark measured.

use crate::Error;
use crate::machine::Machine;
use crate::metrics::{METRICS, Summary};
use crate::plan::Limit;
use crate::run::Run;
use crate::workload::Sizes;

/// The settings of a benchmark and all that it measured.
#[derive(Debug)]
pub struct Report {
    /// The workload's name.
    pub workload: &'static str,
    /// How long its keys and values are.
    pub sizes: Sizes,
    /// Rows before each run.
    pub preloaded: u64,
    /// When each run was over.
    pub limit: Limit,
    /// Transactions of each thread that were not measured.
    pub warm_up: u64,
    /// Commits that each thread had in flight; 0: it waited for each.
    pub tickets: u32,
    /// Rounds that were wanted.
    pub rounds: u32,
    /// The engine that the others are compared with.
    pub baseline: String,
    /// Where it ran.
    pub machine: Machine,
    /// What the bare device did, each time that it was measured: one block of 4 KiB at a time, each durable before the
    /// next.
    pub bare_writes_per_second: Vec<f64>,
    /// Whether that went around the page cache.
    pub bare_is_direct: bool,
    /// One for each engine and number of threads: by threads, then in the order of the engines.
    pub series: Vec<Series>,
    /// Why it ended.
    pub end: End,
}

/// Why a benchmark ended.
#[derive(Debug)]
pub enum End {
    /// All of it was run.
    Complete,
    /// It was asked to end.
    Interrupted,
    /// Something failed.
    Failed(Error),
}

/// The runs of one engine with one number of threads, one a round.
#[derive(Clone, Debug)]
pub struct Series {
    /// The engine.
    pub engine: String,
    /// How many threads it had.
    pub threads: u32,
    /// At most one for each round.
    pub runs: Vec<Run>,
}

impl Series {
    /// The runs that count: those that came to their limit; without one, the one that was interrupted.
    pub fn counting(&self) -> impl Iterator<Item = &Run> {
        let complete = self.runs.iter().any(|run| !run.interrupted);
        self.runs.iter().filter(move |run| !run.interrupted || !complete)
    }

    /// Whether nothing but an interrupted run is there.
    pub fn is_partial(&self) -> bool {
        self.counting().all(|run| run.interrupted)
    }

    /// A figure over all runs that count; `None` if none has it.
    ///
    /// # Panics
    /// If there is no metric of this name.
    pub fn summary(&self, metric: &str) -> Option<Summary> {
        let metric = METRICS.iter().find(|known| known.name == metric).expect("a metric of that name");
        Summary::of(self.counting().filter_map(|run| metric.of(run)).collect())
    }
}

/// A run of which other programs took more than this part of the machine is no longer a measurement of the engine.
const OTHERS_SHARE_MAX: f64 = 0.1;

impl Report {
    /// The rate of a series over that of the baseline with as many threads; both medians.
    pub fn ratio(&self, series: &Series) -> Option<f64> {
        let baseline = self.find(&self.baseline, series.threads)?;
        let rate = |series: &Series| Some(series.summary("transactions_per_second")?.median);
        Some(rate(series)? / rate(baseline)?)
    }

    /// The series of an engine and a number of threads.
    pub fn find(&self, engine: &str, threads: u32) -> Option<&Series> {
        self.series.iter().find(|series| series.engine == engine && series.threads == threads)
    }

    /// Whether anything was measured.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.runs.is_empty())
    }

    /// What makes the figures doubtful, in sentences.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.machine.is_in_memory() {
            let what = &self.machine.device.file_system;
            warnings.push(format!(
                "the databases lie in memory ({what}): nothing here is durable, and syncs cost nothing"
            ));
        }
        let shares = || self.series.iter().flat_map(|series| &series.runs).filter_map(|run| run.others_share);
        let busy = shares().filter(|share| *share > OTHERS_SHARE_MAX).count();
        if busy > 0 {
            warnings.push(format!(
                "other processes and the kernel took more than {:.0} % of the processors in {busy} of {} runs, up to \
                 {:.0} %",
                OTHERS_SHARE_MAX * 100.0,
                shares().count(),
                shares().fold(0.0, f64::max) * 100.0
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Latency;

    fn run(transactions: u64, interrupted: bool) -> Run {
        Run {
            round: 1,
            interrupted,
            transactions,
            elapsed_ns: 1_000_000_000,
            conflicts: 0,
            counters: Default::default(),
            latency: Latency::default(),
            cpu_ns: 0,
            idle_share: None,
            others_share: None,
            fairness: None,
            bare_writes_per_second: 100.0,
            rows: Vec::new(),
        }
    }

    #[test]
    fn an_interrupted_run_counts_only_alone() {
        let mut series = Series { engine: "a".into(), threads: 1, runs: vec![run(10, true)] };
        assert!(series.is_partial());
        assert_eq!(series.summary("transactions_per_second").map(|rate| rate.median), Some(10.0));
        series.runs.push(run(30, false));
        assert!(!series.is_partial());
        assert_eq!(series.summary("transactions_per_second").map(|rate| rate.median), Some(30.0));
        assert_eq!(series.summary("of_bare_writes").map(|rate| rate.median), Some(0.3));
        assert_eq!(series.summary("fairness"), None);
    }
}
