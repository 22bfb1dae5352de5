//! Options that all workloads have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::Resettable;

use super::output::Outputs;
use super::parse::{bytes, check_unique, scale, seconds, warm_up};
use super::{Failure, Program};
use crate::engine::Level;
use crate::measurement::{Limit, Load};
use crate::pace::Pacing;
use crate::plan::{Configuration, DataPoint, Plan, labels};
use crate::spec::Spec;

/// More rows than any disk holds, and few enough that their bytes do not overflow.
const ROWS_MAX: f64 = 1e12;

/// What to compare, how often and for how long.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunArgs {
    /// A directory on the disk to be measured.
    #[arg(default_value = ".")]
    pub(super) dir: PathBuf,
    /// The engines to compare; `list` shows them [default: fulgurite].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(super) engine: Vec<String>,
    /// The one that the others are compared with [default: the first].
    #[arg(long, value_name = "NAME")]
    pub(super) baseline: Option<String>,
    /// Numbers of threads [default: depends on the workload].
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) threads: Vec<u32>,
    /// Run so many operations of each thread.
    #[arg(long, alias = "transactions", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) operations: Option<u64>,
    /// Run this long.
    #[arg(long, value_name = "SECONDS", conflicts_with = "operations", value_parser = seconds)]
    pub(super) seconds: Option<Duration>,
    /// What each thread does before the measured part: N operations, or as many as in a time (2s, 500ms) [default: 1s
    /// before runs that are limited by time, otherwise 0].
    #[arg(long, value_name = "N|TIME", value_parser = warm_up)]
    pub(super) warm_up: Option<Limit>,
    /// How often all of it is run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// How durable commits are when they are acknowledged: sync, unsynced, memory, async:TIME (async:10ms), no-barrier,
    /// staged.
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',', default_value = "sync")]
    pub(super) durability: Vec<Level>,
    /// The memory of each engine for data. Fulgurite has its memtables and log buffers in it, too, and takes 32MiB at least.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = bytes)]
    pub(super) cache: u64,
    /// Multiply the rows that are there beforehand.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    pub(super) scale: f64,
    /// Drop the store from the page cache after filling it.
    #[arg(long)]
    pub(super) cold: bool,
    /// Your word that the device's cache survives a power cut: for no-barrier on a device that says it has a volatile one.
    #[arg(long)]
    pub(super) assume_power_safe_cache: bool,
    #[command(flatten)]
    pub(super) outputs: Outputs,
}

/// A workload's defaults for the command line.
pub(super) struct Wanted {
    pub name: &'static str,
    pub title: String,
    /// By the names of data points; the name is empty if there is only one.
    pub specs: Vec<(String, Spec)>,
    pub engines: &'static [&'static str],
    pub threads: &'static [u32],
    pub limit: Limit,
    /// Instead of a second before runs that are limited by time.
    pub warm_up: Option<Limit>,
    pub tickets: u32,
    pub pacing: Option<Pacing>,
}

impl RunArgs {
    /// Adds the options to a workload's command, whose description stays.
    pub(super) fn add_to(workload: clap::Command) -> clap::Command {
        let (about, long_about) = (workload.get_about().cloned(), workload.get_long_about().cloned());
        RunArgs::augment_args(workload)
            .about(Resettable::from(about))
            .long_about(Resettable::from(long_about))
    }

    /// Rows at this scale, at least one.
    pub(super) fn scaled(&self, rows: u64) -> Result<u64, Failure> {
        let scaled = (rows as f64 * self.scale).round();
        match scaled <= ROWS_MAX {
            true => Ok((scaled as u64).max(1)),
            false => {
                Err(Failure::usage(format!("{rows} times --scale {} is more than {ROWS_MAX}", self.scale)))
            }
        }
    }

    /// The plan of the run.
    pub(super) fn plan(&self, program: &Program, wanted: Wanted) -> Result<Plan, Failure> {
        let configurations = self.configurations(program, wanted.engines)?;
        let baseline = self.baseline_of(&configurations)?;
        let threads = if self.threads.is_empty() { wanted.threads.to_vec() } else { self.threads.clone() };
        check_unique("threads", &threads)?;
        let limit = match (self.operations, self.seconds) {
            (Some(each), _) => Limit::Operations(each),
            (_, Some(time)) if matches!(wanted.limit, Limit::WorkWithin(_)) => Limit::WorkWithin(time),
            (_, Some(time)) => Limit::Time(time),
            _ => wanted.limit,
        };
        let default_warm_up = match limit {
            Limit::Time(_) => Limit::Time(Duration::from_secs(1)),
            _ => Limit::Operations(0),
        };
        let warm_up = self.warm_up.or(wanted.warm_up).unwrap_or(default_warm_up);
        let (tickets, cold, pacing) = (wanted.tickets, self.cold, wanted.pacing);
        let load = |threads| Load { threads, limit, warm_up, tickets, cold, pacing };
        let data_points = wanted.specs.iter().flat_map(|(name, spec)| {
            threads.iter().map(|threads| DataPoint {
                name: name.clone(),
                workload: spec.clone(),
                load: load(*threads),
                cache_bytes: self.cache,
            })
        });
        if self.durability.contains(&Level::NoBarrier) {
            eprintln!(
                "warning: what no-barrier acknowledges is durable only if the device's cache survives a power cut"
            );
        }
        Ok(Plan {
            name: wanted.name.to_string(),
            title: wanted.title,
            configurations,
            baseline,
            data_points: data_points.collect(),
            rounds: self.rounds,
            assume_power_safe_cache: self.assume_power_safe_cache,
            notes: Vec::new(),
            dir: self.dir.clone(),
        })
    }

    fn configurations(&self, program: &Program, engines: &[&str]) -> Result<Vec<Configuration>, Failure> {
        let names: Vec<String> = match self.engine.is_empty() {
            true => engines.iter().map(|name| name.to_string()).collect(),
            false => self.engine.clone(),
        };
        check_unique("engine", &names)?;
        check_unique("durability", &self.durability)?;
        let mut configurations = Vec::new();
        for engine in names {
            program.registry.find(&engine, self.assume_power_safe_cache).map_err(Failure::usage)?;
            for level in &self.durability {
                let label = match self.durability.len() {
                    1 => engine.clone(),
                    _ => format!("{engine}, {level}"),
                };
                configurations.push(Configuration { label, engine: engine.clone(), level: *level });
            }
        }
        Ok(configurations)
    }

    fn baseline_of(&self, configurations: &[Configuration]) -> Result<String, Failure> {
        let Some(baseline) = &self.baseline else {
            return Ok(configurations.first().map_or(String::new(), |first| first.label.clone()));
        };
        let found = configurations.iter().find(|configuration| configuration.is_called(baseline));
        let found = found.ok_or_else(|| {
            let labels = labels(configurations);
            Failure::usage(format!("--baseline {baseline} is not among the engines that run: {labels}"))
        })?;
        Ok(found.label.clone())
    }
}
