//! What a benchmark runs, and in which order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fulgurite::env::Env;

use crate::bare::BareDevice;
use crate::engine::Engine;
use crate::forecast::{Forecast, Step};
use crate::machine::Machine;
use crate::report::{End, Report, Series};
use crate::run::{Run, Setting};
use crate::scratch::{Scratch, remove};
use crate::worker::Load;
use crate::workload::Workload;
use crate::{Error, Result};

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this many transactions of each thread.
    Transactions(u64),
    /// After this long.
    Time(Duration),
}

/// What to run: each engine with each number of threads, in several rounds, each run with a fresh database.
///
/// A round is, for each number of threads, the bare device and then one engine after the other, so that what is compared
/// ran in the same minute.
pub struct Plan {
    /// What the threads do.
    pub workload: Box<dyn Workload>,
    /// What is compared.
    pub engines: Vec<Box<dyn Engine>>,
    /// The engine that the others are compared with, by its place in `engines`.
    pub baseline: usize,
    /// Numbers of threads, none of them 0.
    pub threads: Vec<u32>,
    /// When each run is over.
    pub limit: Limit,
    /// Transactions of each thread that are not measured, before those that are.
    pub warm_up: u64,
    /// How many commits a thread has in flight; 0: it waits for each.
    pub tickets: u32,
    /// How often all of it is run.
    pub rounds: u32,
    /// Where a directory for the databases is made, and removed afterwards.
    pub dir: PathBuf,
}

/// Whoever watches a benchmark.
pub trait Watch {
    /// Whether to go on; asked many times a second.
    fn go_on(&mut self) -> bool;

    /// Is told how far it has come, many times a second.
    fn show(&mut self, progress: &Progress);
}

/// How far a benchmark has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The round at hand, from 1.
    pub round: u32,
    /// What runs: an engine, or the bare device.
    pub what: String,
    /// With how many threads.
    pub threads: u32,
    /// Transactions of this run so far.
    pub transactions: u64,
    /// Seconds since the benchmark began.
    pub done_seconds: f64,
    /// About how many are left; `None` while there is nothing to tell it by.
    pub left_seconds: Option<f64>,
}

/// What is taken to be the highest rate of commits when space is reckoned for a run that is limited by time.
const COMMITS_PER_SECOND_MAX: u64 = 250_000;
/// What a commit and a table entry take beside keys and values: headers, checksums, references.
const OVERHEAD_BYTES: u64 = 80;
/// The log, the trees, and room for a checkpoint of them.
const COPIES: u64 = 3;
/// Segments that are kept ready, the file of the bare device, and what a disk should have left.
const SPARE_BYTES: u64 = 512 << 20;

impl Plan {
    /// Runs all of it. What was measured before an end came too early is in the report, which says so.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NoSpace`]: nothing was run.
    pub fn run(&self, env: &Arc<dyn Env>, watch: &mut dyn Watch) -> Result<Report> {
        let machine = Machine::look(&**env, &self.dir)?;
        self.check_space(&**env)?;
        let scratch = Scratch::create(env, &self.dir)?;
        let mut report = self.empty_report(machine);
        let mut forecast = Forecast::new(self);
        let bare = BareDevice::create(env, &scratch.path().join("bare"));
        let ended = bare.and_then(|mut bare| {
            let mut rounds = Rounds { plan: self, env, dir: scratch.path(), watch, report: &mut report };
            rounds.run(&mut bare, &mut forecast)
        });
        report.end = ended.unwrap_or_else(End::Failed);
        if let (Err(error), End::Complete) = (scratch.remove(), &report.end) {
            report.end = End::Failed(error);
        }
        Ok(report)
    }

    /// About how many bytes the largest run takes.
    pub fn needed_bytes(&self) -> u64 {
        let threads = self.threads.iter().copied().max().unwrap_or(1).into();
        let transactions = match self.limit {
            Limit::Transactions(each) => each.saturating_add(self.warm_up).saturating_mul(threads),
            Limit::Time(time) => (time.as_secs_f64() * COMMITS_PER_SECOND_MAX as f64) as u64,
        };
        let written = transactions.saturating_mul(self.workload.bytes_per_transaction() + OVERHEAD_BYTES);
        let sizes = self.workload.sizes();
        let row_bytes = (sizes.key_bytes + sizes.value_bytes) as u64 + OVERHEAD_BYTES;
        let preloaded =
            self.workload.preloaded().saturating_mul(row_bytes * self.workload.tables().len() as u64);
        written.saturating_add(preloaded).saturating_mul(COPIES).saturating_add(SPARE_BYTES)
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

    fn empty_report(&self, machine: Machine) -> Report {
        let engines: Vec<String> = self.engines.iter().map(|engine| engine.name().to_string()).collect();
        let series = self.threads.iter().flat_map(|threads| {
            engines.iter().map(|engine| Series {
                engine: engine.clone(),
                threads: *threads,
                runs: Vec::new(),
            })
        });
        Report {
            workload: self.workload.name(),
            sizes: self.workload.sizes(),
            preloaded: self.workload.preloaded(),
            limit: self.limit,
            warm_up: self.warm_up,
            tickets: self.tickets,
            rounds: self.rounds,
            baseline: engines[self.baseline].clone(),
            machine,
            bare_writes_per_second: Vec::new(),
            bare_is_direct: false,
            series: series.collect(),
            end: End::Complete,
        }
    }

    fn load(&self, threads: u32) -> Load {
        Load { threads, limit: self.limit, warm_up: self.warm_up, tickets: self.tickets }
    }
}

/// The runs, one after the other.
struct Rounds<'a> {
    plan: &'a Plan,
    env: &'a Arc<dyn Env>,
    dir: &'a Path,
    watch: &'a mut dyn Watch,
    report: &'a mut Report,
}

impl Rounds<'_> {
    fn run(&mut self, bare: &mut BareDevice, forecast: &mut Forecast) -> Result<End> {
        let began_ns = self.env.clock().monotonic_ns();
        self.report.bare_is_direct = bare.is_direct();
        for round in 1..=self.plan.rounds {
            for (place, threads) in self.plan.threads.iter().enumerate() {
                self.show_bare(round, *threads, began_ns, forecast);
                if !self.watch.go_on() {
                    return Ok(End::Interrupted);
                }
                let writes_per_second = bare.writes_per_second()?;
                self.report.bare_writes_per_second.push(writes_per_second);
                for engine in 0..self.plan.engines.len() {
                    let step = Step { round, threads: place, engine };
                    let run = self.one(step, writes_per_second, began_ns, forecast)?;
                    let interrupted = run.as_ref().is_none_or(|run| run.interrupted);
                    let series = &mut self.report.series[place * self.plan.engines.len() + engine];
                    series.runs.extend(run);
                    if interrupted {
                        return Ok(End::Interrupted);
                    }
                }
            }
        }
        Ok(End::Complete)
    }

    fn show_bare(&mut self, round: u32, threads: u32, began_ns: u64, forecast: &Forecast) {
        let done_seconds = seconds_since(&**self.env, began_ns);
        self.watch.show(&Progress {
            round,
            what: "bare device".to_string(),
            threads,
            transactions: 0,
            done_seconds,
            left_seconds: forecast.left_seconds(),
        });
    }

    fn one(
        &mut self,
        step: Step,
        bare_writes_per_second: f64,
        began_ns: u64,
        forecast: &mut Forecast,
    ) -> Result<Option<Run>> {
        let (plan, env) = (self.plan, self.env);
        let threads = plan.threads[step.threads];
        let engine = &*plan.engines[step.engine];
        let dir = self.dir.join("db");
        let setting = Setting {
            env,
            workload: &*plan.workload,
            engine,
            dir: &dir,
            load: plan.load(threads),
            round: step.round,
            bare_writes_per_second,
        };
        let run_began_ns = env.clock().monotonic_ns();
        let mut progress = Progress {
            round: step.round,
            what: engine.name().to_string(),
            threads,
            transactions: 0,
            done_seconds: 0.0,
            left_seconds: None,
        };
        let run = setting.run(&mut |transactions| {
            forecast.now(step, transactions, seconds_since(&**env, run_began_ns));
            progress.transactions = transactions;
            progress.done_seconds = seconds_since(&**env, began_ns);
            progress.left_seconds = forecast.left_seconds();
            self.watch.show(&progress);
            self.watch.go_on()
        });
        let removed = remove(&dir);
        let run = run?;
        removed?;
        forecast.finished(step, seconds_since(&**env, run_began_ns));
        Ok(run)
    }
}

fn seconds_since(env: &dyn Env, then_ns: u64) -> f64 {
    (env.clock().monotonic_ns() - then_ns) as f64 / 1e9
}
