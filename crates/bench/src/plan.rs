//! The runs of a benchmark, and their order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::Env;
use serde::{Deserialize, Serialize};

use crate::bare::BareDevice;
use crate::child::{Job, Process, with_causes};
use crate::engine::Level;
use crate::files::{Scratch, remove};
use crate::forecast::Forecast;
use crate::machine::Machine;
use crate::measurement::{Limit, Load, Stage};
use crate::number::number;
use crate::pace::{CATCH_UP, Pacing, Rate};
use crate::registry::Registry;
use crate::report::{End, FORMAT, Report, Row};
use crate::run::{Run, Timeline};
use crate::spec::Spec;
use crate::{Error, Result};

/// What to run: each configuration at each data point, in several rounds, each run with a fresh store.
///
/// A round runs, for each data point, one configuration after the other, and the bare device before and after each, so that
/// compared runs are within the same minute. Each round begins with another configuration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A short name: of a figure, or of a workload.
    pub name: String,
    /// The name in words.
    pub title: String,
    /// The compared configurations.
    pub configurations: Vec<Configuration>,
    /// The label of the configuration that the others are compared with.
    pub baseline: String,
    /// The data points at which they are compared.
    pub data_points: Vec<DataPoint>,
    /// How often all of it is run.
    pub rounds: u32,
    /// The operator's word about the device's cache: see [`Registry::find`].
    pub assume_power_safe_cache: bool,
    /// Notes that help to read the figures, in sentences.
    pub notes: Vec<String>,
    /// The directory in which a directory for the stores is made, and removed afterwards.
    pub dir: PathBuf,
}

/// One of the compared engines, with its level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Its name in tables and plots.
    pub label: String,
    /// The name of its engine.
    pub engine: String,
    /// When its commits are acknowledged.
    pub level: Level,
}

impl Configuration {
    /// Whether a user means it by this name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.label == name || self.engine == name
    }
}

/// The labels, for users to choose from.
pub(crate) fn labels(configurations: &[Configuration]) -> String {
    configurations.iter().map(|configuration| configuration.label.as_str()).collect::<Vec<_>>().join("; ")
}

/// One data point of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataPoint {
    /// Its difference from the others: `A1`; empty if only the threads differ.
    pub name: String,
    /// What the threads do.
    pub workload: Spec,
    /// The load on the store.
    pub load: Load,
    /// The memory of each engine for data.
    pub cache_bytes: u64,
}

/// Called with the progress of a benchmark, many times a second; returns whether to continue.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> bool;

/// The progress of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The current round, from 1.
    pub round: u32,
    /// How many rounds there are.
    pub rounds: u32,
    /// The current run: a configuration at a data point, or the bare device.
    pub what: String,
    /// The stage of that run.
    pub stage: Stage,
    /// Seconds since the benchmark began.
    pub done_seconds: f64,
    /// About how many are left; `None` while there is no estimate.
    pub left_seconds: Option<f64>,
}

/// The assumed highest rate for the space of a run that is limited by time: operations a second.
const OPERATIONS_PER_SECOND_MAX: f64 = 250_000.0;
/// The overhead of an operation and a table entry beside keys and values: headers, checksums, references.
const OVERHEAD_BYTES: u64 = 80;
/// What waits to be collected, beside as much as was loaded, where operations only replace it.
const GARBAGE_BYTES: u64 = 2 << 30;
/// The log, the trees, and room for a checkpoint or a compaction of them.
const COPIES: u64 = 3;
/// Segments that are kept ready, the file of the bare device, and what a disk should have left.
const SPARE_BYTES: u64 = 512 << 20;
/// The time of a run beyond its limit, seconds.
const AROUND_SECONDS: f64 = 1.0;

impl Plan {
    /// Runs all of it. If it ends early, the report has the figures until then, and says so.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NoSpace`], [`Error::Engine`] for an unknown engine: nothing was run.
    pub fn run(
        &self,
        env: &Arc<dyn Env>,
        registry: &Registry,
        process: &Process,
        watch: Watch<'_>,
    ) -> Result<Report> {
        let machine = Machine::look(&**env, &self.dir)?;
        self.check_space(&**env)?;
        let mut report = self.empty_report(env, registry, machine)?;
        let scratch = Scratch::create(env, &self.dir)?;
        let bare = BareDevice::create(env, &scratch.path().join("bare"));
        let ended = bare.and_then(|mut bare| {
            report.settings.insert("bare device".into(), bare.describe());
            let forecast = Forecast::new(self.rounds, self.expected_seconds());
            let began_ns = env.clock().monotonic_ns();
            let dir = scratch.path().join("store");
            let runner = Runner { plan: self, env, registry, process, dir: &dir, watch, forecast, began_ns };
            runner.all(&mut bare, &mut report)
        });
        report.end = ended.unwrap_or_else(|error| End::Failed(with_causes(&error)));
        if let (Err(error), End::Complete) = (scratch.remove(), &report.end) {
            report.end = End::Failed(with_causes(&error));
        }
        Ok(report)
    }

    /// The rows of the report: each configuration at each data point.
    fn rows(&self) -> impl Iterator<Item = (&DataPoint, &Configuration)> {
        let of =
            |data_point| self.configurations.iter().map(move |configuration| (data_point, configuration));
        self.data_points.iter().flat_map(of)
    }

    /// About how many bytes the largest run needs.
    pub fn needed_bytes(&self) -> u64 {
        let data_points = self.data_points.iter().map(|data_point| {
            let workload = data_point.workload.build();
            let threads = data_point.load.threads;
            let operations_in = |limit: Limit, rate: f64| match limit {
                Limit::Operations(each) => each.saturating_mul(threads.into()),
                Limit::Time(time) => (time.as_secs_f64() * rate) as u64,
                Limit::Work | Limit::WorkWithin(_) => 0,
            };
            let rate = match data_point.load.pacing.map(|pacing| pacing.rate) {
                Some(Rate::PerSecond(rate)) => rate.min(OPERATIONS_PER_SECOND_MAX),
                _ => OPERATIONS_PER_SECOND_MAX,
            };
            let work = workload.work(threads);
            let limited = operations_in(data_point.load.limit, rate)
                .saturating_add(operations_in(data_point.load.warm_up, OPERATIONS_PER_SECOND_MAX));
            let operations = match data_point.load.limit {
                Limit::Work | Limit::WorkWithin(_) => work.unwrap_or(0),
                _ => limited.min(work.unwrap_or(u64::MAX)),
            };
            let shape = workload.shape();
            let written = match shape.bytes_per_operation {
                0 => 0,
                bytes => operations.saturating_mul(bytes + OVERHEAD_BYTES),
            };
            let written = match shape.is_steady {
                true => written.min(shape.loaded_bytes.saturating_add(GARBAGE_BYTES)),
                false => written,
            };
            written.saturating_add(shape.loaded_bytes).saturating_mul(COPIES)
        });
        data_points.max().unwrap_or(0).saturating_add(SPARE_BYTES)
    }

    fn check_space(&self, env: &dyn Env) -> Result<()> {
        let free_bytes = env.disk().free_bytes(&self.dir);
        let free_bytes =
            free_bytes.map_err(Error::io(format!("asking for the free space of {}", self.dir.display())))?;
        let needed_bytes = self.needed_bytes();
        if free_bytes < needed_bytes {
            return Err(Error::NoSpace { dir: self.dir.clone(), free_bytes, needed_bytes });
        }
        Ok(())
    }

    fn empty_report(&self, env: &Arc<dyn Env>, registry: &Registry, machine: Machine) -> Result<Report> {
        let empty_row = |(data_point, configuration)| self.empty_row(registry, data_point, configuration);
        Ok(Report {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_string(),
            name: self.name.clone(),
            title: self.title.clone(),
            began_ms: env.clock().wall_ms(),
            machine,
            settings: self.settings(),
            baseline: self.baseline.clone(),
            rows: self.rows().map(empty_row).collect::<Result<_>>()?,
            end: End::Complete,
            notes: self.notes.clone(),
        })
    }

    fn empty_row(
        &self,
        registry: &Registry,
        data_point: &DataPoint,
        configuration: &Configuration,
    ) -> Result<Row> {
        let engine = registry.find(&configuration.engine, self.assume_power_safe_cache);
        let engine = engine.map_err(|why| Error::engine("choosing the engines", why))?;
        let shape = data_point.workload.build().shape();
        let mut needs = shape.needs;
        needs.tickets |= data_point.load.tickets > 0;
        Ok(Row {
            label: configuration.label.clone(),
            engine: configuration.engine.clone(),
            about: engine.about(),
            isolation: engine.isolation().to_string(),
            workload: shape.name,
            parameters: shape.about,
            data_point: data_point.name.clone(),
            threads: data_point.load.threads,
            level: configuration.level.to_string(),
            cache_bytes: data_point.cache_bytes,
            not_available: engine.cannot(needs, configuration.level),
            runs: Vec::new(),
        })
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::from([("rounds".to_string(), self.rounds.to_string())]);
        if let Some(data_point) = self.data_points.first().filter(|first| {
            self.data_points
                .iter()
                .all(|data_point| Load { threads: first.load.threads, ..data_point.load } == first.load)
        }) {
            let words = |limit: Limit, work: &str| match limit {
                Limit::Operations(each) => format!("{each} operations a thread"),
                Limit::Time(time) => format!("{} s", time.as_secs_f64()),
                Limit::Work => work.to_string(),
                Limit::WorkWithin(time) => format!("{work}, at most {} s", time.as_secs_f64()),
            };
            settings.insert("each run".into(), words(data_point.load.limit, "until all is done"));
            settings.insert("warm-up".into(), words(data_point.load.warm_up, "none"));
            if data_point.load.tickets > 0 {
                settings.insert("in flight".into(), format!("{} commits a thread", data_point.load.tickets));
            }
            if let Some(Pacing { rate, ask_every, bare_device }) = data_point.load.pacing {
                settings.insert("rate".into(), rate.to_string());
                let asked = match ask_every {
                    Some(every) => format!("every {} ms", every.as_millis()),
                    None => "never".to_string(),
                };
                settings.insert("checkpoints asked for".into(), asked);
                let beside = "durable writes of 4 KiB to a file of their own, 20 a second".to_string();
                settings.extend(bare_device.then(|| ("beside".to_string(), beside)));
            }
            if data_point.load.cold {
                settings.insert("page cache".into(), "dropped before the measured part".into());
            }
        }
        settings
    }

    fn expected_seconds(&self) -> Vec<Option<f64>> {
        let of_data_point = |data_point: &DataPoint| {
            let Limit::Time(time) = data_point.load.limit else { return None };
            let warm_up = if let Limit::Time(time) = data_point.load.warm_up { time } else { Duration::ZERO };
            Some((time + warm_up).as_secs_f64() + AROUND_SECONDS)
        };
        self.rows().map(|(data_point, _)| of_data_point(data_point)).collect()
    }
}

/// The runs, one after the other.
struct Runner<'a> {
    plan: &'a Plan,
    env: &'a Arc<dyn Env>,
    registry: &'a Registry,
    process: &'a Process,
    dir: &'a Path,
    watch: Watch<'a>,
    forecast: Forecast,
    began_ns: u64,
}

impl Runner<'_> {
    fn all(mut self, bare: &mut BareDevice, report: &mut Report) -> Result<End> {
        let Plan { data_points, configurations, rounds, .. } = self.plan;
        let mut failures = 0;
        for round in 1..=*rounds {
            for run in 0..report.rows.len() {
                // The first configuration of one round comes later in the next.
                let (index, step) = (run / configurations.len(), run % configurations.len());
                let turn = (step + round as usize - 1) % configurations.len();
                let (data_point, configuration) = (&data_points[index], &configurations[turn]);
                let run = index * configurations.len() + turn;
                let row = &mut report.rows[run];
                if row.not_available.is_some() {
                    self.forecast.finished(round, run, 0.0);
                    continue;
                }
                if !self.show(round, "the bare device", Stage::Warming) {
                    return Ok(End::Interrupted);
                }
                let bare_writes_per_second = bare.writes_per_second()?;
                match self.one(round, run, data_point, configuration) {
                    Ok(Some(measured)) => {
                        let interrupted = measured.interrupted;
                        report.notes.extend(cut(configuration, data_point, &measured));
                        report.notes.extend(behind(configuration, data_point, &measured));
                        let bare_writes_per_second_after = bare.writes_per_second()?;
                        row.runs.push(Run {
                            round,
                            bare_writes_per_second,
                            bare_writes_per_second_after,
                            ..measured
                        });
                        if interrupted {
                            return Ok(End::Interrupted);
                        }
                    }
                    Ok(None) => return Ok(End::Interrupted),
                    Err(Error::Refused(why)) => row.give_up(why),
                    Err(error) => {
                        // An engine that fails does not stop the others; its row gives the reason.
                        failures += 1;
                        row.give_up(format!("failed: {}", with_causes(&error)));
                    }
                }
            }
        }
        match failures {
            0 => Ok(End::Complete),
            1 => Ok(End::Failed("1 row failed: its reason is in the table".into())),
            _ => Ok(End::Failed(format!("{failures} rows failed: their reasons are in the table"))),
        }
    }

    /// Shows the progress; returns whether to continue.
    fn show(&mut self, round: u32, what: &str, stage: Stage) -> bool {
        (self.watch)(&Progress {
            round,
            rounds: self.plan.rounds,
            what: what.to_string(),
            stage,
            done_seconds: seconds_since(self.env, self.began_ns),
            left_seconds: self.forecast.left_seconds(),
        })
    }

    fn one(
        &mut self,
        round: u32,
        run: usize,
        data_point: &DataPoint,
        configuration: &Configuration,
    ) -> Result<Option<Run>> {
        let (env, registry, process) = (self.env, self.registry, self.process);
        let made = env.disk().create_dir_all(self.dir);
        made.map_err(Error::io(format!("making {}", self.dir.display())))?;
        let job = Job {
            configuration: configuration.clone(),
            data_point: data_point.clone(),
            assume_power_safe_cache: self.plan.assume_power_safe_cache,
            dir: self.dir.to_path_buf(),
        };
        let what = format!("{}, {}", configuration.label, describe(data_point));
        let began_ns = env.clock().monotonic_ns();
        let ran = process.run(env, registry, &job, &mut |stage| {
            self.forecast.now(round, run, seconds_since(env, began_ns), share_done(data_point, stage));
            self.show(round, &what, stage)
        });
        let removed = remove(self.dir);
        let ran = ran?;
        removed?;
        self.forecast.finished(round, run, seconds_since(env, began_ns));
        Ok(ran)
    }
}

/// The share of a run that is done, if its operations show it; 0 otherwise.
fn share_done(data_point: &DataPoint, stage: Stage) -> f64 {
    match (stage, data_point.load.limit) {
        (Stage::Running(done), Limit::Operations(each)) => {
            done as f64 / each.saturating_mul(data_point.load.threads.into()).max(1) as f64
        }
        _ => 0.0,
    }
}

/// A note that a run was cut before its work was done.
fn cut(configuration: &Configuration, data_point: &DataPoint, run: &Run) -> Option<String> {
    let Limit::WorkWithin(time) = data_point.load.limit else { return None };
    let work = data_point.workload.build().work(data_point.load.threads)?;
    (run.operations < work && !run.interrupted).then(|| {
        format!(
            "{}, {}: cut after {} s, with {} of {work} done; its rate is of these",
            configuration.label,
            describe(data_point),
            time.as_secs_f64(),
            run.operations
        )
    })
}

/// A note that a run did not keep to its rate.
fn behind(configuration: &Configuration, data_point: &DataPoint, run: &Run) -> Option<String> {
    let Timeline { rate, not_begun, .. } = run.timeline.as_ref()?;
    (*not_begun > 0).then(|| {
        format!(
            "{}, {}: {not_begun} operations that were due had not begun {} s after the end: {} a second is more than it \
             sustains",
            configuration.label,
            describe(data_point),
            CATCH_UP.as_secs(),
            number(rate.unwrap_or(0.0))
        )
    })
}

fn describe(data_point: &DataPoint) -> String {
    let threads = match data_point.load.threads {
        1 => "1 thread".to_string(),
        threads => format!("{threads} threads"),
    };
    if data_point.name.is_empty() { threads } else { format!("{}, {threads}", data_point.name) }
}

fn seconds_since(env: &Arc<dyn Env>, then_ns: u64) -> f64 {
    (env.clock().monotonic_ns() - then_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report_tests::paced;
    use crate::workload::{Micro, TailLatency};

    fn at(rate: Rate) -> DataPoint {
        let workload = TailLatency { sizes: Micro::SIZES, rows: 1, batch: 1, tables: 1, written: 1 };
        let limit = Limit::Time(Duration::from_secs(1000));
        let pacing = Some(Pacing { rate, ask_every: None, bare_device: false });
        let load = Load { pacing, ..Load::closed(1, limit) };
        DataPoint { name: String::new(), workload: Spec::TailLatency(workload), load, cache_bytes: 1 }
    }

    fn plan(data_points: Vec<DataPoint>) -> Plan {
        Plan {
            name: String::new(),
            title: String::new(),
            configurations: Vec::new(),
            baseline: String::new(),
            data_points,
            rounds: 1,
            assume_power_safe_cache: false,
            notes: Vec::new(),
            dir: PathBuf::new(),
        }
    }

    #[test]
    fn a_run_that_fell_behind_its_rate_has_a_note() {
        let data_point = at(Rate::PerSecond(100.0));
        let configuration =
            Configuration { label: "a".into(), engine: "fulgurite".into(), level: Level::Sync };
        let mut run = paced(1, 100);
        assert_eq!(behind(&configuration, &data_point, &run), None);
        run.timeline.as_mut().expect("its seconds").not_begun = 7;
        let note = "a, 1 thread: 7 operations that were due had not begun 10 s after the end: 100 a second is more than \
                    it sustains";
        assert_eq!(behind(&configuration, &data_point, &run).as_deref(), Some(note));
    }

    #[test]
    fn a_rate_says_how_much_space_a_run_needs() {
        let needed = |rate| plan(vec![at(rate)]).needed_bytes() - SPARE_BYTES;
        let row_bytes = Micro::SIZES.row_bytes();
        let written = COPIES * (100 * 1000 * (row_bytes + OVERHEAD_BYTES) + row_bytes);
        assert_eq!(needed(Rate::PerSecond(100.0)), written);
        let most = COPIES * (2 * row_bytes + GARBAGE_BYTES);
        assert_eq!(needed(Rate::Max), most, "250,000 a second would be 50 GB, but they replace each other");
    }
}
