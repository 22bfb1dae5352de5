//! One thread of a run.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use fulgurite::env::Env;
use parking_lot::{Condvar, Mutex};

use crate::engine::{Counters, Store};
use crate::io::IoCounts;
use crate::latencies::Latencies;
use crate::machine::CpuTimes;
use crate::measurement::{Limit, Load};
use crate::pace::{Pacing, Rate, Schedule, sleep_exactly};
use crate::retrying_session::{Counts, RetryingSession};
use crate::run::Latency;
use crate::seconds::{Seconds, SecondsOfThread};
use crate::workload::{Client, Step};
use crate::{Error, Result};

/// The state that the threads of a run share.
pub(crate) struct Shared {
    pub env: Arc<dyn Env>,
    pub store: Arc<dyn Store>,
    pub load: Load,
    pub kinds: usize,
    /// Threads that are still warming up.
    pub cold: AtomicU32,
    /// Threads that have not finished.
    pub running: AtomicU32,
    /// Set to make all threads end after their current operation.
    pub stop: AtomicBool,
    /// Set when a thread failed: the others then do not retry conflicts.
    failed: AtomicBool,
    gate: (Mutex<bool>, Condvar),
    /// Measured operations of each thread so far.
    pub done: Vec<CachePadded<AtomicU64>>,
    /// The moment when the last thread finished.
    pub end: Mutex<Option<Moment>>,
    pub outcomes: Mutex<Vec<Result<Outcome>>>,
    /// The file calls of the process, if a store does not count its own.
    pub process_io: Option<fn() -> IoCounts>,
    /// Operations a second of the warm-up, of all threads that have warmed up.
    warm_rate: Mutex<f64>,
    /// When the measured part began.
    began_ns: OnceLock<u64>,
    /// When operations are due, in an open loop.
    pub schedule: OnceLock<Schedule>,
    /// The operations of each second, if the load is paced.
    pub seconds: Option<Mutex<Seconds>>,
}

/// The counters at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub cpu: CpuTimes,
    pub counters: Counters,
    pub io: IoCounts,
}

/// The results of a thread.
pub(crate) struct Outcome {
    pub began_ns: u64,
    pub ended_ns: u64,
    /// Measured operations.
    pub operations: u64,
    pub counts: Counts,
    pub kinds: Vec<KindOutcome>,
}

/// The results for one kind, of a thread or of several.
pub(crate) struct KindOutcome {
    pub operations: u64,
    pub rolled_back: u64,
    /// The operations before the measured part.
    pub warm_operations: u64,
    pub warm_rolled_back: u64,
    latencies: Latencies,
}

impl KindOutcome {
    fn new() -> KindOutcome {
        KindOutcome {
            operations: 0,
            rolled_back: 0,
            warm_operations: 0,
            warm_rolled_back: 0,
            latencies: Latencies::new(),
        }
    }

    /// All together.
    pub fn sum<'a>(outcomes: impl IntoIterator<Item = &'a KindOutcome>) -> KindOutcome {
        outcomes.into_iter().fold(KindOutcome::new(), |mut sum, one| {
            sum.operations += one.operations;
            sum.rolled_back += one.rolled_back;
            sum.warm_operations += one.warm_operations;
            sum.warm_rolled_back += one.warm_rolled_back;
            sum.latencies.add(&one.latencies);
            sum
        })
    }

    /// Each of the `kinds` kinds, of all threads.
    pub fn sums(outcomes: &[Outcome], kinds: usize) -> Vec<KindOutcome> {
        let of_kind = |kind| KindOutcome::sum(outcomes.iter().map(|outcome| &outcome.kinds[kind]));
        (0..kinds).map(of_kind).collect()
    }

    pub fn latency(&self) -> Latency {
        self.latencies.summary()
    }
}

impl Shared {
    pub fn new(
        env: Arc<dyn Env>,
        store: Arc<dyn Store>,
        load: Load,
        kinds: usize,
        process_io: Option<fn() -> IoCounts>,
    ) -> Shared {
        Shared {
            env,
            store,
            load,
            kinds,
            cold: AtomicU32::new(load.threads),
            running: AtomicU32::new(load.threads),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            gate: Default::default(),
            done: (0..load.threads).map(|_| CachePadded::default()).collect(),
            end: Mutex::new(None),
            outcomes: Mutex::default(),
            process_io,
            warm_rate: Mutex::new(0.0),
            began_ns: OnceLock::new(),
            schedule: OnceLock::new(),
            seconds: load.pacing.map(|_| Mutex::new(Seconds::new(load.threads))),
        }
    }

    pub fn moment(&self) -> Moment {
        Moment { counters: self.store.counters(), cpu: CpuTimes::now(&*self.env), io: self.io() }
    }

    fn io(&self) -> IoCounts {
        self.store.io().or_else(|| self.process_io.map(|counts| counts())).unwrap_or_default()
    }

    /// Starts the measured part; returns when it began.
    pub fn open_gate(&self) -> u64 {
        let began_ns = *self.began_ns.get_or_init(|| self.now_ns());
        let rate = self.load.pacing.and_then(|Pacing { rate, .. }| match rate {
            Rate::Max => None,
            Rate::PerSecond(rate) => Some(rate),
            Rate::Share(share) => Some(share * *self.warm_rate.lock()),
        });
        if let Some(rate) = rate {
            self.schedule.get_or_init(|| Schedule::new(began_ns, rate, &self.load));
        }
        *self.gate.0.lock() = true;
        self.gate.1.notify_all();
        began_ns
    }

    fn pass_gate(&self) {
        let mut open = self.gate.0.lock();
        while !*open {
            self.gate.1.wait(&mut open);
        }
    }

    fn now_ns(&self) -> u64 {
        self.env.clock().monotonic_ns()
    }

    /// Records the failure of a thread: all others end as soon as they can.
    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Decrements the count on drop, also in a panic.
struct CountDown<'a>(&'a AtomicU32);

impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends the run if its thread panics.
struct StopOnPanic<'a>(&'a Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

/// The body of thread number `thread`: warms up, waits for the gate, measures.
pub(crate) fn work(shared: &Shared, thread: u32, client: Client) {
    let _running = CountDown(&shared.running);
    let _stopping = StopOnPanic(shared);
    let cold = CountDown(&shared.cold);
    let outcome = measured(shared, thread, client, cold);
    if outcome.is_err() {
        shared.fail();
    }
    let mut outcomes = shared.outcomes.lock();
    outcomes.push(outcome);
    if outcomes.len() == shared.load.threads as usize {
        *shared.end.lock() = Some(shared.moment());
    }
}

fn measured(shared: &Shared, thread: u32, client: Client, cold: CountDown<'_>) -> Result<Outcome> {
    let mut session = shared.store.session()?;
    let mut worker = Worker {
        shared,
        thread: thread as usize,
        client,
        ended: false,
        kinds: (0..shared.kinds).map(|_| KindOutcome::new()).collect(),
        seconds: shared.seconds.as_ref().map(|seconds| SecondsOfThread::new(seconds, thread as usize)),
    };
    let warm = worker.warm_up(&mut RetryingSession::new(&mut *session, 0).until(&shared.failed));
    if warm.is_err() {
        // Otherwise the other threads would first warm up to their end.
        shared.fail();
    }
    drop(cold);
    shared.pass_gate();
    warm?;
    let tickets = shared.load.tickets as usize;
    worker.measure(&mut RetryingSession::new(&mut *session, tickets).until(&shared.failed))
}

struct Worker<'a> {
    shared: &'a Shared,
    thread: usize,
    client: Client,
    /// Whether the client is done.
    ended: bool,
    kinds: Vec<KindOutcome>,
    seconds: Option<SecondsOfThread<'a>>,
}

impl Worker<'_> {
    fn warm_up(&mut self, session: &mut RetryingSession<'_>) -> Result<()> {
        let began_ns = self.shared.now_ns();
        let mut begun = 0;
        loop {
            let over = match self.shared.load.warm_up {
                Limit::Operations(operations) => begun >= operations,
                Limit::Time(time) => u128::from(self.shared.now_ns() - began_ns) >= time.as_nanos(),
                Limit::Work | Limit::WorkWithin(_) => true,
            };
            if over || self.ended || self.shared.stopped() {
                break;
            }
            begun += 1;
            match (self.client)(session)? {
                Step::Done(kind) => self.kinds[kind].warm_operations += 1,
                Step::RolledBack(kind) => self.kinds[kind].warm_rolled_back += 1,
                Step::End => self.ended = true,
            }
        }
        let elapsed_ns = self.shared.now_ns() - began_ns;
        *self.shared.warm_rate.lock() += begun as f64 * 1e9 / elapsed_ns.max(1) as f64;
        Ok(())
    }

    fn measure(mut self, session: &mut RetryingSession<'_>) -> Result<Outcome> {
        let shared = self.shared;
        let schedule = shared.schedule.get();
        let began_ns = schedule.map_or_else(|| shared.now_ns(), Schedule::began_ns);
        let mut outcome = Outcome {
            began_ns,
            ended_ns: began_ns,
            operations: 0,
            counts: session.counts(),
            kinds: Vec::new(),
        };
        match schedule {
            Some(schedule) => {
                sleep_exactly();
                while !self.ended
                    && let Some(due_ns) = schedule.take(shared.env.clock(), || shared.stopped())
                {
                    self.operation(session, &mut outcome, Some(due_ns))?;
                }
            }
            None => {
                let mut begun = 0;
                while !self.ended && !shared.stopped() && !self.is_over(begun, &outcome) {
                    begun += 1;
                    self.operation(session, &mut outcome, None)?;
                }
            }
        }
        while let Some(commit) = session.pending().pop_front() {
            commit.pending.wait()?;
            self.record(&mut outcome, commit.kind, false, commit.began_ns);
        }
        outcome.counts = session.counts();
        outcome.kinds = self.kinds;
        Ok(outcome)
    }

    fn is_over(&self, begun: u64, outcome: &Outcome) -> bool {
        match self.shared.load.limit {
            Limit::Operations(operations) => begun >= operations,
            Limit::Time(time) | Limit::WorkWithin(time) => {
                u128::from(outcome.ended_ns - outcome.began_ns) >= time.as_nanos()
            }
            Limit::Work => false,
        }
    }

    /// Does the next operation. Its latency counts from `due_ns`; in a closed loop from the end of the last one, or with
    /// tickets from its beginning. Without tickets it waits for it, with tickets only if that many commits are in flight
    /// already.
    fn operation(
        &mut self,
        session: &mut RetryingSession<'_>,
        outcome: &mut Outcome,
        due_ns: Option<u64>,
    ) -> Result<()> {
        let tickets = session.tickets();
        if session.pending().len() >= tickets
            && let Some(commit) = session.pending().pop_front()
        {
            commit.pending.wait()?;
            self.record(outcome, commit.kind, false, commit.began_ns);
        }
        let began_ns = match due_ns {
            Some(due_ns) => due_ns,
            None if tickets == 0 => outcome.ended_ns,
            None => self.shared.now_ns(),
        };
        let before = session.pending().len();
        let step = (self.client)(session)?;
        match (step, session.pending().get_mut(before)) {
            (Step::End, _) => self.ended = true,
            (Step::Done(kind), Some(commit)) => (commit.kind, commit.began_ns) = (kind, began_ns),
            (Step::Done(kind), None) => self.record(outcome, kind, false, began_ns),
            (Step::RolledBack(kind), _) => self.record(outcome, kind, true, began_ns),
        }
        while let Some(durable) = session.pending().front().and_then(|commit| commit.pending.poll()) {
            durable?;
            if let Some(commit) = session.pending().pop_front() {
                self.record(outcome, commit.kind, false, commit.began_ns);
            }
        }
        Ok(())
    }

    /// Records an operation that began at `began_ns` and is complete now.
    fn record(&mut self, outcome: &mut Outcome, kind: usize, rolled_back: bool, began_ns: u64) {
        let now_ns = self.shared.now_ns();
        let latency_ns = now_ns - began_ns;
        outcome.ended_ns = now_ns;
        outcome.operations += 1;
        let kind = &mut self.kinds[kind];
        match rolled_back {
            true => kind.rolled_back += 1,
            false => kind.operations += 1,
        }
        kind.latencies.record(latency_ns);
        if let (Some(seconds), Some(gate_ns)) = (&mut self.seconds, self.shared.began_ns.get()) {
            seconds.record(began_ns - gate_ns, now_ns - gate_ns);
        }
        self.shared.done[self.thread].store(outcome.operations, Ordering::Relaxed);
    }
}

/// The outcomes of all threads, or the error of the first that failed.
pub(crate) fn outcomes(shared: &Shared) -> Result<Vec<Outcome>> {
    let mut outcomes = std::mem::take(&mut *shared.outcomes.lock());
    // Interrupted threads gave up because another one failed.
    outcomes.sort_by_key(|outcome| matches!(outcome, Err(Error::Interrupted)));
    let outcomes = outcomes.into_iter().collect::<Result<Vec<Outcome>>>()?;
    if outcomes.len() < shared.load.threads as usize { Err(Error::Died) } else { Ok(outcomes) }
}
