//! The figures and tables of the papers that Fulgurite is based on, as plans: what each compares, at a scale that takes
//! a few minutes on two processors.
//!
//! Features that an engine does not have yet (data larger than memory, staging, LSM tables, a server) are in their
//! figure all the same, as a row that says so.

mod flashtkv;
mod flush;
mod niosit;
mod peers;
mod slides;
mod wisckey;

use std::path::PathBuf;
use std::time::Duration;

use crate::command::parse;
use crate::engine::Level;
use crate::measurement::{Limit, Load};
use crate::plan::{Configuration, DataPoint, Plan};
use crate::plot::{Kind, PlotSpec, X};
use crate::report::Report;
use crate::spec::Spec;
use crate::table::TableSpec;

/// A figure or table.
pub(crate) struct Figure {
    /// The name for users and files.
    pub name: &'static str,
    /// Other names: of figures of the same paper that the same runs produce, and short ones.
    pub aliases: &'static [&'static str],
    /// What it shows, and where it is from.
    pub title: &'static str,
    pub build: fn(&Settings) -> Experiment,
}

/// All of them, by paper.
pub(crate) fn figures() -> impl Iterator<Item = &'static Figure> {
    let papers: [&[Figure]; 6] = [
        &flush::FIGURES,
        &wisckey::FIGURES,
        &flashtkv::FIGURES,
        &niosit::FIGURES,
        &slides::FIGURES,
        &peers::FIGURES,
    ];
    papers.into_iter().flatten()
}

/// The user's settings.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// Multiply the rows that are there beforehand; 1 is what takes a few minutes.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse::scale)]
    pub scale: f64,
    /// How long each run of those that are limited by time takes.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds)]
    pub seconds: Option<Duration>,
    /// How often all of it is run [default: 1 to 5, by the figure].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Only these numbers of threads, where the figure has several.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Vec<u32>,
}

impl Settings {
    fn rows(&self, rows: u64) -> u64 {
        ((rows as f64 * self.scale).round() as u64).max(1)
    }

    fn time(&self, seconds: f64) -> Limit {
        Limit::Time(self.seconds.unwrap_or(Duration::from_secs_f64(seconds)))
    }

    fn threads(&self, threads: &[u32]) -> Vec<u32> {
        if self.threads.is_empty() { threads.to_vec() } else { self.threads.clone() }
    }
}

/// What a figure compares, and how it is shown.
#[derive(Clone)]
pub(crate) struct Experiment {
    pub configurations: Vec<Configuration>,
    /// The label of one of them.
    pub baseline: &'static str,
    pub data_points: Vec<DataPoint>,
    /// How many rounds to run if the user does not say.
    pub rounds: u32,
    pub notes: Vec<String>,
    pub view: View,
}

/// How a report is shown.
#[derive(Clone)]
pub(crate) struct View {
    pub table: &'static TableSpec,
    /// Each with the suffix of its file's name after the name of the figure.
    pub plots: Vec<(&'static str, PlotSpec)>,
}

impl View {
    /// The columns that fit on a terminal: special tables are not shortened.
    pub fn terminal(&self) -> &'static TableSpec {
        if *self.table == TableSpec::FULL { &TableSpec::TERMINAL } else { self.table }
    }
}

impl Experiment {
    /// Three rounds, shown with all figures.
    fn new(
        configurations: Vec<Configuration>,
        baseline: &'static str,
        data_points: Vec<DataPoint>,
    ) -> Experiment {
        let view = View { table: &TableSpec::FULL, plots: Vec::new() };
        Experiment { configurations, baseline, data_points, rounds: 3, notes: Vec::new(), view }
    }

    fn rounds(self, rounds: u32) -> Experiment {
        Experiment { rounds, ..self }
    }

    fn note(mut self, note: impl Into<String>) -> Experiment {
        self.notes.push(note.into());
        self
    }

    fn table(mut self, table: &'static TableSpec) -> Experiment {
        self.view.table = table;
        self
    }

    /// Adds a plot; `suffix` is that of its file.
    fn plot(mut self, suffix: &'static str, plot: PlotSpec) -> Experiment {
        self.view.plots.push((suffix, plot));
        self
    }

    /// The plan of the figure. The baseline is the first configuration if its own is not among them.
    pub fn plan(
        self,
        figure: &Figure,
        rounds: Option<u32>,
        assume_power_safe_cache: bool,
        dir: PathBuf,
    ) -> Plan {
        let labels = || self.configurations.iter().map(|configuration| configuration.label.as_str());
        let baseline = labels().find(|label| *label == self.baseline).or(labels().next());
        Plan {
            name: figure.name.to_string(),
            title: figure.title.to_string(),
            baseline: baseline.unwrap_or_default().to_string(),
            data_points: self.data_points,
            rounds: rounds.unwrap_or(self.rounds),
            assume_power_safe_cache,
            notes: self.notes,
            dir,
            configurations: self.configurations,
        }
    }
}

/// How to show a report that was read from a file: like its figure, or like a workload.
pub(crate) fn view_of(report: &Report) -> View {
    let settings = Settings { scale: 1.0, seconds: None, rounds: None, threads: Vec::new() };
    match figures().find(|figure| figure.name == report.name) {
        Some(figure) => (figure.build)(&settings).view,
        None => workload_view(&report.name, report.rows.iter().map(|row| row.data_point.as_str())),
    }
}

/// How to show the report of a workload.
pub(crate) fn workload_view<'a>(name: &str, mut data_points: impl Iterator<Item = &'a str>) -> View {
    let first = data_points.next();
    let x = if data_points.all(|data_point| Some(data_point) == first) { X::Threads } else { X::DataPoints };
    let plot = match name {
        "tail-latency" => TAILS,
        "delete-queue" => over_time("Operations a second over time", "operations_per_second"),
        "overwrite-steady" => over_time("Bytes on the disk over time", "disk_mib"),
        _ => rates("Operations a second", x),
    };
    let table = match name {
        "commit" => &TableSpec::TABLE_1,
        "tpcc" => &TableSpec::TPC_C,
        "page-vs-log" => &TableSpec::IO,
        "tail-latency" => &TableSpec::TAILS,
        _ => &TableSpec::FULL,
    };
    let mut plots = vec![("", plot)];
    if name == "tail-latency" {
        plots.push((
            "-log",
            over_time("The log above the last checkpoint over time", "log_above_checkpoint_mib"),
        ));
    }
    View { table, plots }
}

const TAILS: PlotSpec = PlotSpec {
    title: "Latency over time: p99 (solid) and the longest (dashed) of each second",
    x: X::Time,
    y: "p99_latency_us",
    kind: Kind::Tails,
    log_y: true,
};

pub(crate) fn rates(title: &'static str, x: X) -> PlotSpec {
    PlotSpec {
        title,
        x,
        y: "operations_per_second",
        kind: if x == X::DataPoints { Kind::Bars } else { Kind::Lines },
        log_y: false,
    }
}

fn over_time(title: &'static str, y: &'static str) -> PlotSpec {
    PlotSpec { title, x: X::Time, y, kind: Kind::Lines, log_y: false }
}

fn bars(title: &'static str, y: &'static str, log_y: bool) -> PlotSpec {
    PlotSpec { title, x: X::DataPoints, y, kind: Kind::Bars, log_y }
}

/// Engines under their own names, as `--engine` takes them, each commit durable. A comma at the end names none.
fn engines(names: &str) -> Vec<Configuration> {
    names.split_terminator(',').map(|name| configuration(name, name, Level::Sync)).collect()
}

/// A configuration with a label of its own.
fn configuration(label: &str, engine: &str, level: Level) -> Configuration {
    Configuration { label: label.to_string(), engine: engine.to_string(), level }
}

/// An engine at several levels, which its labels name.
fn at_levels(engine: &str, levels: &[Level]) -> Vec<Configuration> {
    levels.iter().map(|level| configuration(&format!("{engine}, {level}"), engine, *level)).collect()
}

/// A data point for each number of threads.
fn over_threads(threads: &[u32], workload: &Spec, limit: Limit) -> Vec<DataPoint> {
    threads.iter().map(|threads| data_point("", workload.clone(), *threads, limit)).collect()
}

/// A data point with a cache for all data.
fn data_point(name: &str, workload: Spec, threads: u32, limit: Limit) -> DataPoint {
    let warm_up = match limit {
        Limit::Time(time) => Limit::Time(time.min(WARM_UP)),
        _ => Limit::Operations(0),
    };
    let load = Load { warm_up, ..Load::closed(threads, limit) };
    DataPoint { name: name.to_string(), workload, load, cache_bytes: ALL_IN_MEMORY }
}

/// The warm-up of runs that are limited by time.
const WARM_UP: Duration = Duration::from_millis(500);

/// Enough for every data set of the figures.
const ALL_IN_MEMORY: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::plot::plot;
    use crate::report_tests::sample;

    #[test]
    fn names_are_unique_and_plans_can_be_made() {
        let mut names = HashSet::new();
        for figure in figures() {
            for name in std::iter::once(&figure.name).chain(figure.aliases) {
                assert!(names.insert(*name), "{name} is there twice");
            }
            let settings = Settings { scale: 0.01, seconds: None, rounds: None, threads: vec![2] };
            let experiment = (figure.build)(&settings);
            let labels: HashSet<&str> =
                experiment.configurations.iter().map(|one| one.label.as_str()).collect();
            assert!(labels.contains(experiment.baseline), "{name}", name = figure.name);
            assert_eq!(labels.len(), experiment.configurations.len(), "{}", figure.name);
            assert!(!experiment.data_points.is_empty(), "{}", figure.name);
            draw_all(&experiment.view);
            experiment.data_points.iter().for_each(|data_point| drop(data_point.workload.build()));
        }
    }

    /// All plots are of metrics that exist, and those over time of sampled ones.
    fn draw_all(view: &View) {
        assert!(!view.plots.is_empty());
        view.plots.iter().for_each(|(_, spec)| assert!(plot(&sample(), spec).ends_with("</svg>\n")));
    }

    #[test]
    fn every_workload_can_be_drawn() {
        for name in ["delete-queue", "overwrite-steady", "commit", "tail-latency"] {
            draw_all(&workload_view(name, ["A1", "A2"].into_iter()));
        }
    }
}
