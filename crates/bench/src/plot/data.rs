//! The data of a plot from a report: series by category, and samples over time.

use crate::head::distinct;
use crate::metrics::{Summary, mib};
use crate::report::{Report, Row};
use crate::run::{Run, Sample};
use crate::table::Differences;

/// The content of a plot at one category of one series.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<T> {
    Value(T),
    /// The engine cannot do this, or the figure means nothing there.
    NotAvailable,
    /// The report has no such row.
    Absent,
}

impl<T> Entry<T> {
    pub fn value(&self) -> Option<&T> {
        if let Entry::Value(value) = self { Some(value) } else { None }
    }

    fn of(row: Option<&Row>, value: impl FnOnce(&Row) -> Option<T>) -> Entry<T> {
        match row {
            None => Entry::Absent,
            Some(row) if row.runs.is_empty() && row.not_available.is_none() => Entry::Absent,
            Some(row) => value(row).map_or(Entry::NotAvailable, Entry::Value),
        }
    }
}

/// The rows of a report as series with one row for each category.
pub struct Layers<'a> {
    pub categories: Vec<String>,
    pub series: Vec<(String, Vec<Option<&'a Row>>)>,
}

impl<'a> Layers<'a> {
    /// Threads are the categories; vertices belong to the series.
    pub fn by_threads(report: &'a Report) -> Layers<'a> {
        let differences = Differences { threads: false, ..Differences::of(report) };
        let mut threads: Vec<u32> = report.rows.iter().map(|row| row.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let named = report.rows.iter().map(|row| {
            let series = joined(&[series_name(report, row), differences.name(row)]);
            (row.threads.to_string(), series, row)
        });
        Layers::of(threads.iter().map(u32::to_string).collect(), named.collect())
    }

    /// Data points, with any other difference, are the categories.
    pub fn by_data_points(report: &'a Report) -> Layers<'a> {
        let differences = Differences::of(report);
        let named = report.rows.iter().map(|row| (differences.name(row), series_name(report, row), row));
        let named: Vec<(String, String, &Row)> = named.collect();
        Layers::of(distinct(named.iter().map(|(category, ..)| category.clone())), named)
    }

    /// From rows, each with its category and its series.
    fn of(categories: Vec<String>, named: Vec<(String, String, &'a Row)>) -> Layers<'a> {
        let names = distinct(named.iter().map(|(_, series, _)| series.clone()));
        let find = |category: &String, series: &String| {
            let found = named.iter().find(|(at, of, _)| (at, of) == (category, series));
            found.map(|(.., row)| *row)
        };
        let series = names.into_iter().map(|name| {
            let rows = categories.iter().map(|category| find(category, &name)).collect();
            (name, rows)
        });
        Layers { series: series.collect(), categories }
    }

    /// A figure for each category of each series.
    pub fn entries(&self, metric: &str) -> Vec<Vec<Entry<Summary>>> {
        let entry = |row: &Option<&Row>| Entry::of(*row, |row| row.summary(metric));
        self.series.iter().map(|(_, rows)| rows.iter().map(entry).collect()).collect()
    }

    /// Several figures for each category of each series; a figure that means nothing is 0 if another one means
    /// something.
    pub fn stacks(&self, metrics: &[&str]) -> Vec<Vec<Entry<Vec<f64>>>> {
        let stack = |row: &Row| {
            let figures = metrics.iter().map(|metric| Some(row.summary(metric)?.median));
            let figures: Vec<Option<f64>> = figures.collect();
            let any = figures.iter().any(Option::is_some);
            any.then(|| figures.into_iter().map(|figure| figure.unwrap_or(0.0).max(0.0)).collect())
        };
        let entry = |row: &Option<&Row>| Entry::of(*row, stack);
        self.series.iter().map(|(_, rows)| rows.iter().map(entry).collect()).collect()
    }
}

/// The figure of seconds that is known over time.
const LOG_ABOVE_CHECKPOINT: &str = "log_above_checkpoint_mib";
/// The figure that makes a run the middle one where its seconds are shown.
pub(crate) const TAIL: &str = "p99_latency_us";

/// The samples of a run.
#[derive(Debug, PartialEq)]
pub struct Trace {
    /// The index of its series.
    pub series: usize,
    /// Whether it is the median run of its row.
    pub is_median: bool,
    /// Seconds and values.
    pub values: Vec<(f64, f64)>,
}

/// The series of a plot over time, and the samples of all counting runs.
///
/// # Panics
/// If the figure is not a sampled one.
pub fn traces(report: &Report, metric: &str) -> (Vec<String>, Vec<Trace>) {
    let of_run = match metric {
        "operations_per_second" => rates,
        "disk_mib" => |run: &Run| sampled(run, |bytes| bytes / f64::from(1 << 20)),
        "space_amplification" => |run: &Run| {
            let live = run.live_bytes.filter(|live| *live > 0);
            live.map_or(Vec::new(), |live| sampled(run, |bytes| bytes / live as f64))
        },
        LOG_ABOVE_CHECKPOINT => log_above_checkpoint,
        _ => panic!("`{metric}` is not known over time"),
    };
    let middle_of = if metric == LOG_ABOVE_CHECKPOINT { TAIL } else { "operations_per_second" };
    let of_rows: Vec<String> = report.rows.iter().map(|row| row_name(report, row)).collect();
    let names = distinct(of_rows.iter().cloned());
    let mut traces = Vec::new();
    for (row, name) in report.rows.iter().zip(&of_rows) {
        let series = names.iter().position(|known| known == name).unwrap_or(0);
        let (runs, middle) = row.runs_by(middle_of);
        let trace = |(index, run)| Trace { series, is_median: index == middle, values: of_run(run) };
        traces.extend(runs.into_iter().enumerate().map(trace));
    }
    (names, traces)
}

/// Operations a second from one sample to the next, at the time of the later one.
fn rates(run: &Run) -> Vec<(f64, f64)> {
    let begin = Sample::default();
    let before = std::iter::once(&begin).chain(&run.samples);
    let pairs = before.zip(&run.samples).filter(|(before, after)| after.at_ns > before.at_ns);
    let rate = |(before, after): (&Sample, &Sample)| {
        let operations = after.operations.saturating_sub(before.operations) as f64;
        (after.at_ns as f64 / 1e9, operations * 1e9 / (after.at_ns - before.at_ns) as f64)
    };
    pairs.map(rate).collect()
}

fn sampled(run: &Run, value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let samples = run.samples.iter();
    samples.map(|sample| (sample.at_ns as f64 / 1e9, value(sample.disk_bytes as f64))).collect()
}

/// At the end of each second.
fn log_above_checkpoint(run: &Run) -> Vec<(f64, f64)> {
    let seconds = run.timeline.iter().flat_map(|timeline| &timeline.seconds).enumerate();
    seconds.filter_map(|(index, second)| Some((index as f64 + 1.0, mib(second.watched?.log_bytes)))).collect()
}

/// The label, and in what the row differs from others.
pub(crate) fn row_name(report: &Report, row: &Row) -> String {
    joined(&[series_name(report, row), Differences::of(report).name(row)])
}

/// The label, with the durability if one label has several.
fn series_name(report: &Report, row: &Row) -> String {
    let others = report.rows.iter().filter(|other| other.label == row.label);
    let differs = others.into_iter().any(|other| other.level != row.level);
    joined(&[row.label.clone(), if differs { row.level.clone() } else { String::new() }])
}

fn joined(texts: &[String]) -> String {
    let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::{rounds, row, run, sample};

    #[test]
    fn threads_are_in_order_and_series_as_in_the_report() {
        let mut report = sample();
        report.rows.rotate_left(3);
        report.rows.push(row("new", 2, rounds(50)));
        let layers = Layers::by_threads(&report);
        assert_eq!(layers.categories, ["2", "8", "64"]);
        let names: Vec<&str> = layers.series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["fulgurite", "rocksdb", "lmdb", "new"]);
        let entries = layers.entries("operations_per_second");
        assert_eq!(entries[0][0], Entry::Absent);
        assert_eq!(entries[0][1].value().map(|rate| rate.median), Some(96_000.0));
        assert_eq!(entries[2][1..], [Entry::NotAvailable, Entry::NotAvailable]);
    }

    #[test]
    fn durabilities_of_one_label_are_series() {
        let mut report = sample();
        report.rows = vec![row("a", 8, rounds(50)), row("a", 8, rounds(60)), row("b", 8, rounds(70))];
        report.rows[1].level = "async:10ms".into();
        report.rows[2].data_point = "A2".into();
        let layers = Layers::by_data_points(&report);
        let names: Vec<&str> = layers.series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            (names, layers.categories),
            (vec!["a, sync", "a, async:10ms", "b"], vec!["".into(), "A2".into()])
        );
    }

    #[test]
    fn stacks_have_a_part_for_each_metric() {
        let mut report = sample();
        report.rows[0].runs.truncate(1);
        report.rows[0].runs[0].live_bytes = None;
        let stacks = Layers::by_threads(&report).stacks(&["reads", "space_amplification"]);
        assert_eq!(stacks[0][0], Entry::Value(vec![1_000.0, 0.0]));
        assert_eq!(stacks[2][0], Entry::NotAvailable);
    }

    #[test]
    fn samples_become_rates_and_sizes() {
        let mut report = sample();
        report.rows = vec![row("a", 8, vec![run(1, 100), run(2, 300), run(3, 200)])];
        let (names, traces) = traces(&report, "operations_per_second");
        assert_eq!(names, ["a"]);
        assert_eq!(traces.iter().map(|trace| trace.is_median).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(traces[1].values[..3], [(0.1, 200.0), (0.2, 200.0), (0.3, 100.0)]);
        let space = super::traces(&report, "space_amplification").1;
        assert_eq!(space[1].values[0], (0.1, 0.3));
    }
}
