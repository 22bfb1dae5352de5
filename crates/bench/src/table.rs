//! A report as tables of texts, for any output format.

use std::collections::BTreeMap;

use crate::head::distinct;
use crate::metrics::{METRICS, Metric, Summary};
use crate::number::{number, ratio};
use crate::report::{Report, Row};
use crate::run::KindRun;

/// The figures of a table, beside the workload, the engine, the threads and the ratio to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSpec(
    /// Names of [`METRICS`](crate::METRICS), separated by blanks.
    pub &'static str,
);

impl TableSpec {
    /// Figures of any benchmark.
    pub const FULL: TableSpec = TableSpec(
        "operations_per_second mean_latency_us p50_latency_us p99_latency_us p999_latency_us max_latency_us \
         cpu_seconds peak_memory_mib device_mib write_amplification space_amplification syncs of_bare_writes \
         fairness idle_share",
    );
    /// Figures that fit on a line of a terminal.
    pub const TERMINAL: TableSpec = TableSpec(
        "operations_per_second p50_latency_us p99_latency_us syncs_per_operation write_amplification",
    );
    /// Table 1 of Son, Yeom and Han (2017): where the time of a transaction goes, and how well syncs are shared.
    pub const TABLE_1: TableSpec = TableSpec(
        "operations_per_second of_bare_writes p50_latency_us p99_latency_us mean_latency_us sync_lock_us \
         sync_us flush_wait_us sync_locks log_syncs consolidation aggregation",
    );
    /// The figures of TPC-C: new orders a minute, and what kept orders from being placed.
    pub const TPC_C: TableSpec = TableSpec(
        "new_orders_per_minute operations_per_second mean_latency_us p50_latency_us p99_latency_us \
         rolled_back_share conflict_share cpu_us syncs_per_operation write_amplification peak_memory_mib",
    );
    /// The time of a fixed amount of writing, and the share of it in syncs.
    pub const WRITING: TableSpec = TableSpec(
        "elapsed_seconds operations_per_second p50_latency_us p99_latency_us us_per_kib sync_share syncs \
         write_amplification",
    );
    /// The writes to the device of the log, and their sizes.
    pub const WAL: TableSpec = TableSpec(
        "operations_per_second p50_latency_us p99_latency_us written_mib_per_second writes_per_second \
         kib_per_write syncs_per_operation",
    );
    /// File calls by kind, and the time that they would take on a slow flash device.
    pub const IO: TableSpec = TableSpec(
        "operations_per_second reads random_writes sequential_writes syncs device_mib estimated_io_seconds",
    );

    /// Latencies at a fixed rate, and what may have caused the longest ones.
    pub const TAILS: TableSpec = TableSpec(
        "operations_per_second target_rate p50_latency_us p99_latency_us p999_latency_us max_latency_us \
         checkpoints stats_max_us bare_max_us",
    );

    /// Where a server ran commands, and how long reads waited for that.
    pub const SERVER: TableSpec = TableSpec(
        "operations_per_second p50_latency_us p99_latency_us held_share held_waiting_us held_processing_us \
         other_waiting_us other_processing_us inline_share switches_per_operation",
    );

    fn metrics(&self) -> impl Iterator<Item = &'static Metric> {
        self.0.split(' ').map(Metric::named)
    }
}

/// Texts in columns.
#[derive(Default)]
pub(crate) struct Grid {
    pub heads: Vec<Head>,
    pub rows: Vec<GridRow>,
    /// Why rows are not available: the first is `n/a (1)`.
    pub reasons: Vec<String>,
}

pub(crate) struct Head {
    pub text: String,
    /// Aligned right.
    pub is_number: bool,
}

pub(crate) struct GridRow {
    pub entries: Vec<String>,
    /// Whether it is the first row of a group that is compared.
    pub opens_group: bool,
}

/// The text below a table with a row that [`label`] marks.
pub(crate) const PARTIAL_NOTE: &str =
    "partial: the run was ended before its limit, the figures are of what was done until then";

/// The text for a figure that means nothing or is unknown.
pub(crate) const MISSING: &str = "–";

/// The rows that are compared with each other, in the order of the report.
pub(crate) fn groups(report: &Report) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in &report.rows {
        match groups.iter_mut().find(|group| group[0].is_beside(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The properties beside the label by which rows of one report differ.
pub(crate) struct Differences {
    pub workload: bool,
    pub data_point: bool,
    pub threads: bool,
    pub level: bool,
}

impl Differences {
    pub fn of(report: &Report) -> Differences {
        let differs = |same: fn(&Row, &Row) -> bool| {
            report.rows.first().is_some_and(|first| report.rows.iter().any(|row| !same(first, row)))
        };
        // A property that follows from the name of the data point is left out.
        let beside = |same: fn(&Row, &Row) -> bool| {
            let mut seen: BTreeMap<&str, &Row> = BTreeMap::new();
            report.rows.iter().any(|row| {
                let first = *seen.entry(&row.data_point).or_insert(row);
                !same(first, row)
                    || row.data_point.is_empty() && report.rows.iter().any(|other| !same(row, other))
            })
        };
        Differences {
            workload: beside(|a, b| a.workload == b.workload),
            data_point: differs(|a, b| a.data_point == b.data_point),
            threads: beside(|a, b| a.threads == b.threads),
            level: differs(|a, b| a.level == b.level),
        }
    }

    fn heads(&self) -> Vec<Head> {
        let mut heads = Vec::new();
        let columns = [(self.workload, "workload"), (self.data_point, "point")];
        heads.extend(columns.into_iter().filter(|(shown, _)| *shown).map(|(_, text)| text_head(text)));
        heads.push(number_head("threads"));
        heads.push(text_head("engine"));
        heads.extend(self.level.then(|| text_head("durability")));
        heads
    }

    fn entries(&self, row: &Row) -> Vec<String> {
        let mut entries = Vec::new();
        entries.extend(self.workload.then(|| row.workload.clone()));
        entries.extend(self.data_point.then(|| row.data_point.clone()));
        entries.push(row.threads.to_string());
        entries.push(label(row));
        entries.extend(self.level.then(|| row.level.clone()));
        entries
    }

    /// The properties of a row in words: `update A1, 8 threads`; empty if all rows are alike.
    pub fn name(&self, row: &Row) -> String {
        let names = [
            self.workload.then_some(&row.workload),
            Some(&row.data_point).filter(|data_point| self.data_point && !data_point.is_empty()),
        ];
        let mut name = Vec::from_iter(names.into_iter().flatten().map(String::as_str)).join(" ");
        if self.threads {
            let comma = if name.is_empty() { "" } else { ", " };
            name +=
                &format!("{comma}{} {}", row.threads, if row.threads == 1 { "thread" } else { "threads" });
        }
        name
    }
}

/// The mark of the fastest engine of a line.
const FASTEST: &str = "▲";
/// The text above a grid of [`Grid::of_rates`].
const RATES_TITLE: &str = "Operations a second; ▲ marks the fastest of a line";

impl Grid {
    /// The rates alone, a line for each data point and a column for each label: shows the fastest engine of each at a
    /// glance. `None` if there is one data point, or one label.
    pub fn of_rates(report: &Report) -> Option<Grid> {
        let differences = Differences::of(report);
        let groups = groups(report);
        let labels = distinct(report.rows.iter().map(|row| row.label.as_str()));
        if groups.len() < 2 || labels.len() < 2 {
            return None;
        }
        let rates = |group: &[&Row]| -> Vec<Option<f64>> {
            let rate = |label: &&str| {
                let row = group.iter().find(|row| row.label == **label)?;
                Some(row.summary("operations_per_second")?.median)
            };
            labels.iter().map(rate).collect()
        };
        let entries = |group: &Vec<&Row>| {
            let rates = rates(group);
            let best = rates.iter().flatten().copied().fold(0.0, f64::max);
            let entry = |rate: &Option<f64>| match rate {
                None => "n/a".to_string(),
                Some(rate) if *rate == best => format!("{} {FASTEST}", number(*rate)),
                Some(rate) => number(*rate),
            };
            let entries = std::iter::once(differences.name(group[0])).chain(rates.iter().map(entry));
            GridRow { entries: entries.collect(), opens_group: false }
        };
        Some(Grid {
            heads: std::iter::once(text_head(""))
                .chain(labels.iter().map(|label| number_head(label)))
                .collect(),
            rows: groups.iter().map(entries).collect(),
            reasons: Vec::new(),
        })
    }

    /// A row for each row of the report.
    ///
    /// # Panics
    /// If there is no metric of a name in `spec`.
    pub fn of(report: &Report, spec: &TableSpec) -> Grid {
        const RATE: &str = "operations_per_second";
        let differences = Differences::of(report);
        let compares = report.rows.iter().any(|row| row.label != report.baseline && !row.runs.is_empty());
        // After the rate, as its ratio; first if there is no rate.
        let rate = spec.metrics().position(|metric| metric.name == RATE);
        let ratio_at = compares.then(|| rate.map_or(0, |at| at + 1));

        let mut heads = differences.heads();
        let first_figure = heads.len();
        heads.extend(spec.metrics().map(|metric| number_head(metric.label)));
        if let Some(at) = ratio_at {
            heads.insert(first_figure + at, number_head("to baseline"));
        }
        let mut grid = Grid { heads, rows: Vec::new(), reasons: Vec::new() };
        for group in groups(report) {
            for (index, row) in group.into_iter().enumerate() {
                let mut entries = differences.entries(row);
                entries.extend(spec.metrics().map(|metric| median(row.summary(metric.name))));
                if let Some(at) = ratio_at {
                    entries.insert(first_figure + at, spread(report.ratio(row), ratio));
                }
                if let Some(state) = grid.state(row) {
                    entries.truncate(first_figure);
                    entries.push(state);
                    entries.resize(grid.heads.len(), String::new());
                }
                grid.rows.push(GridRow { entries, opens_group: index == 0 });
            }
        }
        grid
    }

    /// The text instead of figures; `None` if there are figures.
    fn state(&mut self, row: &Row) -> Option<String> {
        let Some(reason) = &row.not_available else {
            return row.runs.is_empty().then(|| "not run".to_string());
        };
        let reason = format!("{}: {reason}", row.label);
        let known = self.reasons.iter().position(|known| *known == reason);
        let number = known.unwrap_or_else(|| {
            self.reasons.push(reason);
            self.reasons.len() - 1
        });
        Some(format!("n/a ({})", number + 1))
    }

    /// The rates, the figures of `spec` and those by kind of operation, each with a title.
    pub fn all(report: &Report, spec: &TableSpec) -> Vec<(String, Grid)> {
        let rates = Grid::of_rates(report).map(|rates| (RATES_TITLE.to_string(), rates));
        let figures = ("Figures".to_string(), Grid::of(report, spec));
        rates.into_iter().chain([figures]).chain(Grid::of_kinds(report)).collect()
    }

    /// All metrics of rows that are compared with each other, medians and the smallest and the largest round, with what
    /// the rows have in common: a row for each metric that any of them has, a column for each row that was run.
    pub fn of_metrics(report: &Report) -> Vec<(String, Grid)> {
        let differences = Differences::of(report);
        let mut grids = Vec::new();
        for group in groups(report) {
            let rows: Vec<&Row> = group.iter().copied().filter(|row| !row.runs.is_empty()).collect();
            if rows.is_empty() {
                continue;
            }
            let heads = rows.iter().map(|row| number_head(&format!("{}, {}", row.label, row.level)));
            let mut grid =
                Grid { heads: [text_head("metric")].into_iter().chain(heads).collect(), ..Grid::default() };
            for metric in METRICS {
                let summaries: Vec<Option<Summary>> =
                    rows.iter().map(|row| row.summary(metric.name)).collect();
                if summaries.iter().any(Option::is_some) {
                    let figures = summaries.into_iter().map(|summary| spread(summary, number));
                    let entries = [metric.name.to_string()].into_iter().chain(figures).collect();
                    grid.rows.push(GridRow { entries, opens_group: false });
                }
            }
            grids.push((differences.name(group[0]), grid));
        }
        grids
    }

    /// A row for each kind of operation of each row, with a title; one grid for each workload that has several kinds.
    pub fn of_kinds(report: &Report) -> Vec<(String, Grid)> {
        let has_kinds = |row: &&Row| row.runs.iter().any(|run| run.kinds.len() > 1);
        let workloads = report.rows.iter().filter(has_kinds).map(|row| row.workload.as_str());
        distinct(workloads)
            .into_iter()
            .map(|workload| (format!("{workload} by kind of operation"), kinds_of_workload(report, workload)))
            .collect()
    }
}

fn kinds_of_workload(report: &Report, workload: &str) -> Grid {
    let differences = Differences { workload: false, ..Differences::of(report) };
    let mut heads = differences.heads();
    heads.push(text_head("kind"));
    heads.extend(KIND_METRICS.map(|metric| number_head(Metric::named(metric).label)));
    heads.push(number_head("rolled back"));
    let mut rows = Vec::new();
    for group in groups(report) {
        for row in group.into_iter().filter(|row| row.workload == workload) {
            let kinds = row.counting().next().map_or(&[][..], |run| &run.kinds);
            for (index, kind) in kinds.iter().enumerate() {
                let mut entries = differences.entries(row);
                entries.push(kind.kind.clone());
                entries.extend(kind_figures(row, &kind.kind).map(median));
                rows.push(GridRow { entries, opens_group: index == 0 });
            }
        }
    }
    Grid { heads, rows, reasons: Vec::new() }
}

const KIND_METRICS: [&str; 3] = ["operations_per_second", "p50_latency_us", "p99_latency_us"];

/// [`KIND_METRICS`] of one kind, and how many were rolled back.
fn kind_figures(row: &Row, kind: &str) -> [Option<Summary>; 4] {
    let summary = |of: fn(&KindRun, f64) -> f64| {
        let values = row.counting().filter_map(|run| {
            let kind = run.kinds.iter().find(|known| known.kind == kind)?;
            Some(of(kind, run.elapsed_ns.max(1) as f64 / 1e9))
        });
        Summary::of(values.collect())
    };
    [
        summary(|kind, seconds| (kind.operations + kind.rolled_back) as f64 / seconds),
        summary(|kind, _| kind.latency.p50_ns as f64 / 1e3),
        summary(|kind, _| kind.latency.p99_ns as f64 / 1e3),
        summary(|kind, _| kind.rolled_back as f64),
    ]
}

/// The label of a row, marked if its figures are of an interrupted run.
fn label(row: &Row) -> String {
    if row.is_partial() { format!("{} (partial)", row.label) } else { row.label.clone() }
}

fn median(summary: Option<Summary>) -> String {
    summary.map_or(MISSING.to_string(), |summary| number(summary.median))
}

/// `1.42 (1.31–1.50)`, with numbers as `text` writes them.
fn spread(summary: Option<Summary>, text: fn(f64) -> String) -> String {
    summary.map_or(MISSING.to_string(), |Summary { median, min, max }| {
        format!("{} ({}–{})", text(median), text(min), text(max))
    })
}

pub(crate) fn text_head(text: &str) -> Head {
    Head { text: text.into(), is_number: false }
}

pub(crate) fn number_head(text: &str) -> Head {
    Head { text: text.into(), is_number: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::{rounds, row, run, sample};

    fn lines(grid: &Grid) -> Vec<String> {
        grid.rows.iter().map(|row| row.entries.join("|")).collect()
    }

    const SPEC: TableSpec = TableSpec("operations_per_second p99_latency_us");

    #[test]
    fn all_tables_show_metrics_that_exist() {
        use TableSpec as T;
        for spec in [T::FULL, T::TERMINAL, T::TABLE_1, T::TPC_C, T::IO, T::WRITING, T::WAL, T::TAILS] {
            assert!(spec.metrics().count() > 4);
        }
    }

    #[test]
    fn rates_side_by_side_show_the_fastest() {
        let grid = Grid::of_rates(&sample()).expect("two data points, three labels");
        let heads: Vec<&str> = grid.heads.iter().map(|head| head.text.as_str()).collect();
        assert_eq!(heads, ["", "fulgurite", "rocksdb", "lmdb"]);
        assert_eq!(lines(&grid).len(), 2);
        for line in lines(&grid) {
            let entries: Vec<&str> = line.split('|').collect();
            assert!(entries[1].ends_with(FASTEST) && !entries[2].ends_with(FASTEST), "{line}");
            assert_eq!(entries[3], "n/a");
        }
        let one = Report { rows: sample().rows.drain(..2).collect(), ..sample() };
        assert!(Grid::of_rates(&one).is_none(), "one data point");
    }

    #[test]
    fn rows_have_figures_ratios_and_reasons() {
        let grid = Grid::of(&sample(), &SPEC);
        let heads: Vec<&str> = grid.heads.iter().map(|head| head.text.as_str()).collect();
        assert_eq!(heads, ["threads", "engine", "op/s", "to baseline", "p99 us"]);
        let expected = [
            "8|fulgurite|96,000|1.50 (1.50–1.50)|333",
            "8|rocksdb|64,000|1.00 (1.00–1.00)|500",
            "8|lmdb|n/a (1)||",
            "64|fulgurite|768,000|1.50 (1.50–1.50)|41.7",
            "64|rocksdb|512,000|1.00 (1.00–1.00)|62.5",
            "64|lmdb|n/a (1)||",
        ];
        assert_eq!(lines(&grid), expected);
        assert_eq!(grid.reasons, ["lmdb: it has no <transactions> | of several statements"]);
    }

    #[test]
    fn rows_of_a_group_are_put_together() {
        let mut report = sample();
        report.rows.swap(1, 4);
        let grid = Grid::of(&report, &SPEC);
        let opening = grid.rows.iter().filter(|row| row.opens_group).map(|row| row.entries[0].as_str());
        assert_eq!(opening.collect::<Vec<_>>(), ["8", "64"]);
    }

    #[test]
    fn only_what_differs_has_a_column() {
        let mut report = sample();
        report.rows = vec![row("a", 1, rounds(100)), row("a", 1, vec![])];
        report.rows[1].data_point = "A2".into();
        report.rows[1].level = "async:10ms".into();
        report.baseline = "a".into();
        let grid = Grid::of(&report, &SPEC);
        assert_eq!(
            lines(&grid),
            ["|1|a|sync|100|42,100", "A2|1|a|async:10ms|not run|"]
                .map(|line| { line.replace("42,100", "320,000") })
        );
        let differences = Differences::of(&report);
        assert_eq!(report.rows.iter().map(|row| differences.name(row)).collect::<Vec<_>>(), ["", "A2"]);
    }

    #[test]
    fn an_interrupted_run_is_marked() {
        let mut report = sample();
        let mut ended = run(1, 1_000);
        ended.interrupted = true;
        report.rows = vec![row("a", 1, vec![ended])];
        assert_eq!(Grid::of(&report, &SPEC).rows[0].entries[1], "a (partial)");
    }

    #[test]
    fn kinds_have_their_own_table() {
        let mut kinds = Grid::of_kinds(&sample());
        let (title, grid) = kinds.remove(0);
        assert_eq!((title.as_str(), kinds.len()), ("insert by kind of operation", 0));
        assert_eq!(
            lines(&grid)[..2],
            ["8|fulgurite|new-order|48,000|104|417|960", "8|fulgurite|read|48,000|62.5|250|0"]
        );
    }
}
