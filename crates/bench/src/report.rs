//! The settings of a benchmark and all that it measured: the content of a report's file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::metrics::{Metric, Summary};
use crate::run::Run;

/// The version of the format of a report's file.
pub const FORMAT: u32 = 3;
/// The oldest version that is still read: it called the data point of a row `point`.
pub(crate) const FORMAT_MIN: u32 = 2;

/// A benchmark: its settings and the runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the program.
    pub version: String,
    /// What was run: the name of a figure, or of a workload.
    pub name: String,
    /// The name in words.
    pub title: String,
    /// When it began, milliseconds since 1970-01-01 UTC.
    pub began_ms: u64,
    /// Where it ran.
    pub machine: Machine,
    /// Settings that hold for all rows, by name: rounds, limit, warm-up, tickets.
    pub settings: BTreeMap<String, String>,
    /// The label of the rows that the others are compared with.
    pub baseline: String,
    /// One for each engine, workload, data point and number of threads.
    pub rows: Vec<Row>,
    /// Why it ended.
    pub end: End,
    /// Notes that help to read the figures, in sentences.
    pub notes: Vec<String>,
}

/// Why a benchmark ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All of it was run.
    Complete,
    /// It was asked to end: the rows hold what was measured until then.
    Interrupted,
    /// Something failed: the rows hold what was measured until then.
    Failed(String),
}

/// The runs of one engine at one data point of the benchmark, one a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The name in plots and tables: the engine's name, with its settings here.
    pub label: String,
    /// The engine's name.
    pub engine: String,
    /// The engine's version and settings.
    pub about: String,
    /// How the engine's transactions are isolated.
    pub isolation: String,
    /// The workload's name.
    pub workload: String,
    /// The workload's parameters in words.
    pub parameters: String,
    /// The difference from other data points of the same benchmark: `A1`, `C2`; empty if only the threads differ.
    #[serde(alias = "point")]
    pub data_point: String,
    /// How many threads.
    pub threads: u32,
    /// When commits were acknowledged: a [`Level`](crate::engine::Level) in words.
    pub level: String,
    /// The memory that the engine had for data.
    pub cache_bytes: u64,
    /// Why the engine cannot do this, or how it failed; there are no runs then.
    pub not_available: Option<String>,
    /// At most one for each round.
    pub runs: Vec<Run>,
}

impl Row {
    /// The engine cannot do this, or failed: its runs of earlier rounds are void.
    pub(crate) fn give_up(&mut self, why: String) {
        self.not_available = Some(why);
        self.runs.clear();
    }

    /// The runs that count: those that reached their limit; without one, the one that was interrupted.
    pub fn counting(&self) -> impl Iterator<Item = &Run> {
        let complete = self.runs.iter().any(|run| !run.interrupted);
        self.runs.iter().filter(move |run| !run.interrupted || !complete)
    }

    /// Whether there is only an interrupted run.
    pub fn is_partial(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| run.interrupted)
    }

    /// A figure over all counting runs; `None` if none has it.
    ///
    /// # Panics
    /// If there is no metric of this name.
    pub fn summary(&self, metric: &str) -> Option<Summary> {
        let metric = Metric::named(metric);
        Summary::of(self.counting().filter_map(|run| metric.of(run)).collect())
    }

    /// The counting runs in the order of a figure, and the index of the one in the middle: 0 if there are none.
    ///
    /// # Panics
    /// If there is no metric of this name.
    pub(crate) fn runs_by(&self, metric: &str) -> (Vec<&Run>, usize) {
        let figure = |run: &Run| Metric::named(metric).of(run).unwrap_or(0.0);
        let mut runs: Vec<&Run> = self.counting().collect();
        runs.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
        let middle = runs.len().saturating_sub(1) / 2;
        (runs, middle)
    }

    /// Whether two rows have the same workload, data point and number of threads.
    pub fn is_beside(&self, other: &Row) -> bool {
        (&self.workload, &self.data_point, self.threads)
            == (&other.workload, &other.data_point, other.threads)
    }
}

/// A run during which other programs took more than this share of the machine no longer measures the engine.
const OTHERS_SHARE_MAX: f64 = 0.1;

impl Report {
    /// The rate of a row over that of the baseline in the same round, over the rounds that have both.
    pub fn ratio(&self, row: &Row) -> Option<Summary> {
        let baseline = self.rows.iter().find(|other| other.label == self.baseline && other.is_beside(row))?;
        let rate = |run: &Run| run.operations as f64 / run.elapsed_ns.max(1) as f64;
        let pairs = row.counting().filter_map(|run| {
            let paired =
                baseline.counting().find(|other| other.round == run.round && other.operations > 0)?;
            Some(rate(run) / rate(paired))
        });
        Summary::of(pairs.collect())
    }

    /// Whether it shows nothing: no figures, and no reason for their absence.
    pub(crate) fn is_void(&self) -> bool {
        self.rows.iter().all(|row| row.runs.is_empty() && row.not_available.is_none())
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(|row| row.runs.is_empty())
    }

    /// Reasons why the figures are doubtful, in sentences.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.machine.is_in_memory() {
            let what = &self.machine.file_system;
            warnings.push(format!(
                "the databases are in memory ({what}): nothing here is durable, and syncs cost nothing"
            ));
        }
        let of_runs = |of: fn(&Run) -> Option<f64>| -> Vec<f64> {
            self.rows.iter().flat_map(|row| &row.runs).filter_map(of).collect()
        };
        let doubtful = |figures: &[f64], max: f64| figures.iter().filter(|figure| **figure > max).count();
        let largest = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
        let shares = of_runs(|run| run.others_share);
        let busy = doubtful(&shares, OTHERS_SHARE_MAX);
        if busy > 0 {
            warnings.push(format!(
                "other processes and the kernel took more than {:.0} % of the processors in {busy} of {} runs, up to \
                 {:.0} %",
                OTHERS_SHARE_MAX * 100.0,
                shares.len(),
                largest(&shares) * 100.0
            ));
        }
        let drifts = of_runs(bare_drift);
        let drifted = doubtful(&drifts, BARE_DRIFT_MAX);
        if drifted > 0 {
            warnings.push(format!(
                "the bare device was more than {BARE_DRIFT_MAX} times as fast before as after, or the other way round, \
                 in {drifted} of {} runs, up to {:.1} times",
                drifts.len(),
                largest(&drifts)
            ));
        }
        warnings
    }
}

/// The bare device's speed on one side of a run over that on the other.
fn bare_drift(run: &Run) -> Option<f64> {
    let (before, after) = (run.bare_writes_per_second, run.bare_writes_per_second_after);
    (before > 0.0 && after > 0.0).then(|| before.max(after) / before.min(after))
}

/// If the device itself changes by more than this around a run, the run says little about the engine.
const BARE_DRIFT_MAX: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    use crate::report_tests::{row, sample};

    fn run(round: u32, operations: u64, interrupted: bool) -> Run {
        Run { round, interrupted, operations, elapsed_ns: 1_000_000_000, ..Run::default() }
    }

    #[test]
    fn an_interrupted_run_counts_only_alone() {
        let mut row = row("a", 1, vec![run(1, 10, true)]);
        assert!(row.is_partial());
        assert_eq!(row.summary("operations_per_second").map(|rate| rate.median), Some(10.0));
        row.runs.push(run(2, 30, false));
        assert!(!row.is_partial());
        assert_eq!(row.summary("operations_per_second").map(|rate| rate.median), Some(30.0));
        assert_eq!(row.summary("fairness"), None);
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let rows = vec![
            row("a", 1, vec![run(1, 10, false), run(2, 400, false), run(3, 90, false)]),
            row("b", 1, vec![run(1, 10, false), run(2, 100, false)]),
        ];
        let report = Report { baseline: "b".into(), rows, ..sample() };
        assert_eq!(report.ratio(&report.rows[0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
    }
}
