//! One run in this process: a fresh store, one engine, one workload, one number of threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite::env::{Env, Joiner};
use serde::{Deserialize, Serialize};

use crate::beside::Beside;
use crate::child::Job;
use crate::engine::{Engine, Opening, Store};
use crate::files;
use crate::io::IoCounts;
use crate::machine::{self, CpuUse};
use crate::pace::Pacing;
use crate::run::{KindRun, Run, Sample};
use crate::timeline::timeline;
use crate::worker::{KindOutcome, Moment, Outcome, Shared, outcomes, work};
use crate::workload::{Done, Workload};
use crate::{Error, Result};

/// How often the watcher is asked whether to continue.
const POLL: Duration = Duration::from_millis(20);
/// How many samples a run that is limited by time has.
const SAMPLES: u64 = 25;
/// The interval of samples in other runs; it doubles each time that there are [`SAMPLES_MAX`] samples.
const SAMPLE_NS: u64 = 250_000_000;
const SAMPLES_MAX: usize = 200;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// After this many operations of each thread.
    Operations(u64),
    /// After this long.
    Time(Duration),
    /// When the clients have nothing more to do.
    Work,
    /// When the clients have nothing more to do, or after this long.
    WorkWithin(Duration),
}

/// What a run asks of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// How many there are, at least one.
    pub threads: u32,
    /// When the run is over.
    pub limit: Limit,
    /// What each thread does before the measured part: a number of operations, or as many as fit into a time. With the
    /// other limits there is no warm-up.
    pub warm_up: Limit,
    /// Commits that a thread has in flight; 0: it waits for each commit.
    pub tickets: u32,
    /// Whether the store is closed, its files dropped from the page cache, and the store opened again before the
    /// threads begin.
    pub cold: bool,
    /// The rate, and what else is watched, of a run whose figures are kept for each second; `None`: a closed loop, as a
    /// whole.
    pub pacing: Option<Pacing>,
}

impl Load {
    /// A closed loop without a warm-up, in which each thread waits for each commit.
    pub const fn closed(threads: u32, limit: Limit) -> Load {
        Load { threads, limit, warm_up: Limit::Operations(0), tickets: 0, cold: false, pacing: None }
    }
}

/// The stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The store is being filled; the share that is done, 0 to 1.
    Filling(f64),
    /// Operations run that are not measured.
    Warming,
    /// The number of measured operations.
    Running(u64),
    /// The store is being checked.
    Checking,
}

/// A run with all that it needs.
pub(crate) struct Measurement<'a> {
    /// Files, time and threads.
    pub env: &'a Arc<dyn Env>,
    /// Its settings.
    pub job: &'a Job,
    /// The job's workload.
    pub workload: &'a dyn Workload,
    /// The job's engine.
    pub engine: &'a dyn Engine,
    /// Counts the calls of this process for files, for stores that do not count their own.
    pub process_io: Option<fn() -> IoCounts>,
}

/// Called with the stage of the run, many times a second; returns whether to continue.
pub type Watcher<'a> = &'a mut dyn FnMut(Stage) -> bool;

impl Measurement<'_> {
    /// Makes the store, fills it, measures, checks its content, and closes it. `None` if the watcher ended the run
    /// before anything was measured. [`Error::Wrong`] if the store does not hold what it must.
    pub fn run(&self, watcher: Watcher<'_>) -> Result<Option<Run>> {
        let began_ns = self.env.clock().monotonic_ns();
        let mut store = self.open()?;
        let mut beside = self.beside(&store)?;
        let filled = self.workload.fill(&*store, &mut |share| watcher(Stage::Filling(share)));
        match filled {
            Err(Error::Interrupted) => {
                drop(beside);
                return store.close().map(|()| None);
            }
            filled => filled?,
        }
        if self.load().cold {
            drop(beside);
            store.close()?;
            drop(store);
            files::drop_from_page_cache(self.env, &self.job.dir)?;
            store = self.open()?;
            beside = self.beside(&store)?;
        }
        let fill_ns = self.env.clock().monotonic_ns() - began_ns;
        let run = self.measure(&store, beside, watcher);
        let closed = store.close();
        let run = run?;
        closed.map(|()| run.map(|run| Run { fill_ns, ..run }))
    }

    fn load(&self) -> Load {
        self.job.data_point.load
    }

    fn open(&self) -> Result<Arc<dyn Store>> {
        self.engine.open(&Opening {
            dir: &self.job.dir,
            tables: self.workload.shape().tables,
            cache_bytes: self.job.data_point.cache_bytes,
            level: self.job.configuration.level,
        })
    }

    /// What is watched beside the threads, if the figures are kept for each second.
    fn beside(&self, store: &Arc<dyn Store>) -> Result<Option<Beside>> {
        let start = |pacing| Beside::start(self.env, store, &self.job.dir, pacing);
        self.load().pacing.map(start).transpose()
    }

    fn measure(
        &self,
        store: &Arc<dyn Store>,
        mut beside: Option<Beside>,
        watcher: Watcher<'_>,
    ) -> Result<Option<Run>> {
        let kinds = self.workload.shape().kinds;
        let shared = Shared::new(self.env.clone(), store.clone(), self.load(), kinds.len(), self.process_io);
        let shared = Arc::new(shared);
        let (threads, started) = self.start(&shared);
        let mut interrupted = false;
        let mut poll = |stage: Stage| {
            self.env.clock().sleep(POLL);
            if !interrupted && !watcher(stage) {
                interrupted = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
        };
        while started.is_ok() && shared.cold.load(Ordering::Acquire) > 0 {
            poll(Stage::Warming);
        }
        let too_early = shared.stop.load(Ordering::Relaxed);
        let written_back = files::write_back(&self.job.dir);
        if written_back.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let device_bytes = machine::device_bytes(&**self.env, &self.job.dir);
        let begin = shared.moment();
        let mut sampler = Sampler::new(self);
        let mut sampled = Ok(());
        let began_ns = shared.open_gate();
        let begun = beside.as_mut().map_or(Ok(()), |beside| beside.begin(self.env, began_ns));
        while shared.running.load(Ordering::Acquire) > 0 {
            let done = shared.done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
            sampled = sampled.and_then(|()| sampler.look(done));
            poll(Stage::Running(done));
        }
        let died = threads.into_iter().map(Joiner::join).filter(|returned| !returned).count();
        // Only now, after the last thread has ended.
        started.and(written_back).and(sampled).and(begun)?;
        let outcomes = outcomes(&shared)?;
        let end = shared.end.lock().take().filter(|_| died == 0).ok_or(Error::Died)?;
        if interrupted && too_early {
            return Ok(None);
        }
        let seen = beside.map(Beside::end).transpose()?.unwrap_or_default();
        store.settle()?;
        files::write_back(&self.job.dir)?;
        let after = machine::device_bytes(&**self.env, &self.job.dir);
        let written = after.zip(device_bytes).map(|(after, before)| after.saturating_sub(before));
        let sums = KindOutcome::sums(&outcomes, kinds.len());
        let mut run = self.run_of(kinds, &outcomes, &sums, &begin, &end);
        run.interrupted = interrupted;
        run.device_bytes = written;
        run.disk_bytes = files::disk_bytes(self.env, &self.job.dir)?;
        run.samples = sampler.samples;
        run.timeline = timeline(&shared, seen, run.operations);
        run.peak_memory_bytes = machine::peak_memory_bytes(&**self.env);
        let done = Done {
            kinds: sums.iter().map(|sum| sum.operations + sum.warm_operations).collect(),
            rolled_back: sums.iter().map(|sum| sum.rolled_back + sum.warm_rolled_back).collect(),
        };
        run.live_bytes = self.workload.live_bytes(&done);
        watcher(Stage::Checking);
        self.workload.check(&**store, Some(&done))?;
        Ok(Some(run))
    }

    /// Starts the threads; if one cannot be started, those already started end at once.
    fn start(&self, shared: &Arc<Shared>) -> (Vec<Box<dyn Joiner>>, Result<()>) {
        let mut threads = Vec::new();
        for thread in 0..self.load().threads {
            let client = self.workload.client(thread, self.load().threads);
            let theirs = shared.clone();
            let started =
                self.env.spawn(&format!("bench-{thread}"), Box::new(move || work(&theirs, thread, client)));
            match started {
                Ok(joiner) => threads.push(joiner),
                Err(error) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    shared.running.fetch_sub(self.load().threads - thread, Ordering::AcqRel);
                    let what = format!("starting thread {} of {}", thread + 1, self.load().threads);
                    return (threads, Err(Error::io(what)(error)));
                }
            }
        }
        (threads, Ok(()))
    }

    /// `sums` has the outcomes of each of the `kinds`.
    fn run_of(
        &self,
        kinds: &[&str],
        outcomes: &[Outcome],
        sums: &[KindOutcome],
        begin: &Moment,
        end: &Moment,
    ) -> Run {
        let kind_run = |(kind, sum): (&&str, &KindOutcome)| KindRun {
            kind: kind.to_string(),
            operations: sum.operations,
            rolled_back: sum.rolled_back,
            latency: sum.latency(),
        };
        let CpuUse { own_ns, idle_share, others_share } = end.cpu.since(&begin.cpu);
        let began_ns = outcomes.iter().map(|outcome| outcome.began_ns).min().unwrap_or(0);
        let ended_ns = outcomes.iter().map(|outcome| outcome.ended_ns).max().unwrap_or(0);
        Run {
            operations: outcomes.iter().map(|outcome| outcome.operations).sum(),
            elapsed_ns: ended_ns - began_ns,
            conflicts: outcomes.iter().map(|outcome| outcome.counts.conflicts).sum(),
            user_bytes: outcomes.iter().map(|outcome| outcome.counts.user_bytes).sum(),
            latency: KindOutcome::sum(sums).latency(),
            kinds: kinds.iter().zip(sums).map(kind_run).collect(),
            counters: end.counters.since(&begin.counters),
            io: end.io.since(&begin.io),
            cpu_ns: own_ns,
            idle_share,
            others_share,
            fairness: matches!(self.load().limit, Limit::Time(_)).then(|| fairness_of(outcomes)),
            ..Run::default()
        }
    }
}

/// Samples the operations and the files at intervals.
struct Sampler<'a> {
    env: &'a Arc<dyn Env>,
    dir: &'a Path,
    began_ns: u64,
    every_ns: u64,
    next_ns: u64,
    samples: Vec<Sample>,
}

impl<'a> Sampler<'a> {
    fn new(run: &Measurement<'a>) -> Sampler<'a> {
        let every_ns = match run.load().limit {
            Limit::Time(time) => (time.as_nanos() as u64 / SAMPLES).max(1),
            _ => SAMPLE_NS,
        };
        let began_ns = run.env.clock().monotonic_ns();
        Sampler { env: run.env, dir: &run.job.dir, began_ns, every_ns, next_ns: 0, samples: Vec::new() }
    }

    fn look(&mut self, operations: u64) -> Result<()> {
        let at_ns = self.env.clock().monotonic_ns() - self.began_ns;
        if at_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = at_ns + self.every_ns;
        self.samples.push(Sample { at_ns, operations, disk_bytes: files::disk_bytes(self.env, self.dir)? });
        if self.samples.len() >= SAMPLES_MAX {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every_ns *= 2;
        }
        Ok(())
    }
}

fn fairness_of(outcomes: &[Outcome]) -> f64 {
    let rate =
        |outcome: &Outcome| outcome.operations as f64 / (outcome.ended_ns - outcome.began_ns).max(1) as f64;
    let average = outcomes.iter().map(rate).sum::<f64>() / outcomes.len().max(1) as f64;
    let slowest = outcomes.iter().map(rate).fold(f64::INFINITY, f64::min);
    if average > 0.0 { slowest / average } else { 0.0 }
}
