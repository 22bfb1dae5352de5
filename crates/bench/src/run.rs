//! One run: a fresh database, one engine, one number of threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite::env::{Env, Joiner};

use crate::engine::{Counters, Engine, Store};
use crate::machine::CpuUse;
use crate::plan::Limit;
use crate::worker::{Load, Moment, Outcome, Shared, histogram, outcomes, work};
use crate::workload::Workload;
use crate::{Error, Result};

/// How often the watcher is asked whether to go on.
const POLL: Duration = Duration::from_millis(20);

/// What one run measured.
#[derive(Clone, Debug)]
pub struct Run {
    /// The round it was part of, from 1.
    pub round: u32,
    /// Whether it was ended before its limit.
    pub interrupted: bool,
    /// Transactions that were answered.
    pub transactions: u64,
    /// From the first thread's beginning to the last one's end.
    pub elapsed_ns: u64,
    /// How often a transaction had to be run again.
    pub conflicts: u64,
    /// What the engine counted meanwhile.
    pub counters: Counters,
    /// From the beginning of a transaction to its answer.
    pub latency: Latency,
    /// Processor time of this process, nanoseconds.
    pub cpu_ns: u64,
    /// The part of the machine's processor time that was idle, 0 to 1; `None` for a run too short to tell.
    pub idle_share: Option<f64>,
    /// The part that went to other processes and to the kernel, 0 to 1.
    pub others_share: Option<f64>,
    /// The slowest thread's transactions a second over the average thread's; of a run that is limited by time.
    pub fairness: Option<f64>,
    /// What the bare device did just before: blocks of 4 KiB a second.
    pub bare_writes_per_second: f64,
    /// The rows of each table at the end, counted, in the order of the workload's tables.
    pub rows: Vec<u64>,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Their average.
    pub mean_ns: u64,
    /// Half of them are at most this.
    pub p50_ns: u64,
    /// 99 % of them are at most this.
    pub p99_ns: u64,
    /// 99.9 % of them are at most this.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What a run is about.
pub(crate) struct Setting<'a> {
    pub env: &'a Arc<dyn Env>,
    pub workload: &'a dyn Workload,
    pub engine: &'a dyn Engine,
    /// Where the database is made; nothing is there yet.
    pub dir: &'a Path,
    pub load: Load,
    pub round: u32,
    pub bare_writes_per_second: f64,
}

impl Setting<'_> {
    /// Makes the database, measures, counts the rows and closes the database. `go_on` is asked again and again with the
    /// number of measured transactions; `None` if it said no before anything was measured.
    pub fn run(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<Option<Run>> {
        let store = self.engine.create(self.dir, self.workload.tables())?;
        self.workload.preload(&*store)?;
        let run = self.measure(&store, go_on);
        let closed = store.close();
        let run = run?;
        closed.map(|()| run)
    }

    fn measure(&self, store: &Arc<dyn Store>, go_on: &mut dyn FnMut(u64) -> bool) -> Result<Option<Run>> {
        let shared = Arc::new(Shared::new(self.env.clone(), store.clone(), self.load));
        let (threads, started) = self.start(&shared);
        let mut interrupted = false;
        let mut poll = |done: u64| {
            self.env.clock().sleep(POLL);
            if !interrupted && !go_on(done) {
                interrupted = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
        };
        while started.is_ok() && shared.cold.load(Ordering::Acquire) > 0 {
            poll(0);
        }
        let too_early = shared.stop.load(Ordering::Relaxed);
        let begin = shared.moment();
        shared.open_gate();
        while shared.running.load(Ordering::Acquire) > 0 {
            poll(shared.done.iter().map(|done| done.load(Ordering::Relaxed)).sum());
        }
        let died = threads.into_iter().map(Joiner::join).filter(|returned| !returned).count();
        started?;
        let outcomes = outcomes(&shared)?;
        let end = shared.end.lock().take().filter(|_| died == 0).ok_or(Error::Died)?;
        if interrupted && too_early {
            return Ok(None);
        }
        let mut run = self.run_of(outcomes, &begin, &end);
        run.interrupted = interrupted;
        run.rows = self.check_rows(&**store, run.transactions)?;
        Ok(Some(run))
    }

    /// Starts the threads; if one cannot be started, those that were end at once.
    fn start(&self, shared: &Arc<Shared>) -> (Vec<Box<dyn Joiner>>, Result<()>) {
        let mut threads = Vec::new();
        for thread in 0..self.load.threads {
            let client = self.workload.client(thread, self.load.threads);
            let theirs = shared.clone();
            let started =
                self.env.spawn(&format!("bench-{thread}"), Box::new(move || work(&theirs, thread, client)));
            match started {
                Ok(joiner) => threads.push(joiner),
                Err(error) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    shared.running.fetch_sub(self.load.threads - thread, Ordering::AcqRel);
                    let what = format!("starting thread {} of {}", thread + 1, self.load.threads);
                    return (threads, Err(Error::io(what)(error)));
                }
            }
        }
        (threads, Ok(()))
    }

    fn run_of(&self, outcomes: Vec<Outcome>, begin: &Moment, end: &Moment) -> Run {
        let CpuUse { own_ns, idle_share, others_share } = end.cpu.since(&begin.cpu);
        let began_ns = outcomes.iter().map(|outcome| outcome.began_ns).min().unwrap_or(0);
        let ended_ns = outcomes.iter().map(|outcome| outcome.ended_ns).max().unwrap_or(0);
        Run {
            round: self.round,
            interrupted: false,
            transactions: outcomes.iter().map(|outcome| outcome.transactions).sum(),
            elapsed_ns: ended_ns - began_ns,
            conflicts: outcomes.iter().map(|outcome| outcome.conflicts).sum(),
            counters: end.counters.since(&begin.counters),
            latency: latency_of(&outcomes),
            cpu_ns: own_ns,
            idle_share,
            others_share,
            fairness: matches!(self.load.limit, Limit::Time(_)).then(|| fairness_of(&outcomes)),
            bare_writes_per_second: self.bare_writes_per_second,
            rows: Vec::new(),
        }
    }

    /// Counts the rows: what was acknowledged has to be there.
    fn check_rows(&self, store: &dyn Store, transactions: u64) -> Result<Vec<u64>> {
        store.settle()?;
        let all = transactions + self.load.warm_up * u64::from(self.load.threads);
        let mut counted = Vec::new();
        for (table, expected) in self.workload.rows_after(all).into_iter().enumerate() {
            let found = store.rows(table)?;
            if found != expected {
                let table = self.workload.tables()[table].to_string();
                return Err(Error::WrongRows { table, found, expected });
            }
            counted.push(found);
        }
        Ok(counted)
    }
}

fn latency_of(outcomes: &[Outcome]) -> Latency {
    let mut all = histogram();
    let (mut sum_ns, mut count) = (0, 0);
    for outcome in outcomes {
        all.add(&outcome.latency_ns).expect("all histograms have the same bounds");
        sum_ns += outcome.latency_sum_ns;
        count += outcome.transactions;
    }
    Latency {
        mean_ns: sum_ns / count.max(1),
        p50_ns: all.value_at_quantile(0.5),
        p99_ns: all.value_at_quantile(0.99),
        p999_ns: all.value_at_quantile(0.999),
        max_ns: all.max(),
    }
}

fn fairness_of(outcomes: &[Outcome]) -> f64 {
    let rate =
        |outcome: &Outcome| outcome.transactions as f64 / (outcome.ended_ns - outcome.began_ns).max(1) as f64;
    let average = outcomes.iter().map(rate).sum::<f64>() / outcomes.len().max(1) as f64;
    let slowest = outcomes.iter().map(rate).fold(f64::INFINITY, f64::min);
    if average > 0.0 { slowest / average } else { 0.0 }
}
