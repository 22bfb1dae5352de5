//! One thread of a run.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use fulgurite::env::Env;
use hdrhistogram::Histogram;
use parking_lot::{Condvar, Mutex};

use crate::engine::{Counters, Pending, Store};
use crate::machine::CpuTimes;
use crate::plan::Limit;
use crate::workload::{Choice, Client};
use crate::{Error, Result};

/// The longest latency that is told apart from longer ones: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// What a run asks of each thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub threads: u32,
    pub limit: Limit,
    /// Transactions before the measured ones.
    pub warm_up: u64,
    /// Commits that a thread has in flight; 0: it waits for each.
    pub tickets: u32,
}

/// What the threads of a run share.
pub(crate) struct Shared {
    pub env: Arc<dyn Env>,
    pub store: Arc<dyn Store>,
    pub load: Load,
    /// Threads that are not warm yet.
    pub cold: AtomicU32,
    /// Threads that have not finished.
    pub running: AtomicU32,
    /// Set to have all end after the transaction at hand.
    pub stop: AtomicBool,
    gate: (Mutex<bool>, Condvar),
    /// Measured transactions of each thread so far.
    pub done: Vec<CachePadded<AtomicU64>>,
    /// The moment when the last thread finished.
    pub end: Mutex<Option<Moment>>,
    pub outcomes: Mutex<Vec<Result<Outcome>>>,
}

/// The counters at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub cpu: CpuTimes,
    pub counters: Counters,
}

/// What a thread did.
pub(crate) struct Outcome {
    pub began_ns: u64,
    pub ended_ns: u64,
    /// Measured transactions.
    pub transactions: u64,
    /// How often one had to be run again.
    pub conflicts: u64,
    pub latency_sum_ns: u64,
    pub latency_ns: Histogram<u64>,
}

/// An empty histogram.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are good")
}

impl Shared {
    pub fn new(env: Arc<dyn Env>, store: Arc<dyn Store>, load: Load) -> Shared {
        Shared {
            env,
            store,
            load,
            cold: AtomicU32::new(load.threads),
            running: AtomicU32::new(load.threads),
            stop: AtomicBool::new(false),
            gate: Default::default(),
            done: (0..load.threads).map(|_| CachePadded::default()).collect(),
            end: Mutex::new(None),
            outcomes: Mutex::default(),
        }
    }

    pub fn moment(&self) -> Moment {
        Moment { counters: self.store.counters(), cpu: CpuTimes::now(&*self.env) }
    }

    /// Lets the measured part begin.
    pub fn open_gate(&self) {
        *self.gate.0.lock() = true;
        self.gate.1.notify_all();
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

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Counts one thread less when it goes, a panic included.
struct CountDown<'a>(&'a AtomicU32);

impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of thread number `thread`: warms up, waits for the gate, measures.
pub(crate) fn work(shared: &Shared, thread: u32, client: Box<dyn Client>) {
    let _running = CountDown(&shared.running);
    let cold = CountDown(&shared.cold);
    let mut worker =
        Worker { shared, thread: thread as usize, client, conflicts: 0, in_flight: VecDeque::new() };
    let warm = worker.warm_up();
    drop(cold);
    shared.pass_gate();
    let outcome = warm.and_then(|()| worker.measure());
    if outcome.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    let mut outcomes = shared.outcomes.lock();
    outcomes.push(outcome);
    if outcomes.len() == shared.load.threads as usize {
        *shared.end.lock() = Some(shared.moment());
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    thread: usize,
    client: Box<dyn Client>,
    conflicts: u64,
    /// Commits that are not known to be durable yet, with the time when each began.
    in_flight: VecDeque<(u64, Box<dyn Pending>)>,
}

impl Worker<'_> {
    fn warm_up(&mut self) -> Result<()> {
        for _ in 0..self.shared.load.warm_up {
            if self.shared.stopped() {
                break;
            }
            self.transaction()?;
        }
        self.conflicts = 0;
        Ok(())
    }

    /// Does the next transaction and waits for it.
    fn transaction(&mut self) -> Result<()> {
        let store = &*self.shared.store;
        match self.client.choose() {
            Choice::Search => self.client.search(store),
            Choice::Commit => {
                self.conflicts += store.commit(&mut |open| self.client.statements(open))?;
                Ok(())
            }
        }
    }

    fn measure(&mut self) -> Result<Outcome> {
        let began_ns = self.shared.now_ns();
        let mut outcome = Outcome {
            began_ns,
            ended_ns: began_ns,
            transactions: 0,
            conflicts: 0,
            latency_sum_ns: 0,
            latency_ns: histogram(),
        };
        let mut begun = 0;
        while !self.shared.stopped() && !self.is_over(begun, &outcome) {
            begun += 1;
            match self.shared.load.tickets {
                0 => {
                    let began_ns = outcome.ended_ns;
                    self.transaction()?;
                    self.record(&mut outcome, began_ns);
                }
                tickets => self.deferred_transaction(tickets as usize, &mut outcome)?,
            }
        }
        while let Some((began_ns, pending)) = self.in_flight.pop_front() {
            pending.wait()?;
            self.record(&mut outcome, began_ns);
        }
        outcome.conflicts = self.conflicts;
        Ok(outcome)
    }

    fn is_over(&self, begun: u64, outcome: &Outcome) -> bool {
        match self.shared.load.limit {
            Limit::Transactions(transactions) => begun >= transactions,
            Limit::Time(time) => u128::from(outcome.ended_ns - outcome.began_ns) >= time.as_nanos(),
        }
    }

    /// Does the next transaction; waits only if `tickets` commits are in flight already.
    fn deferred_transaction(&mut self, tickets: usize, outcome: &mut Outcome) -> Result<()> {
        if self.in_flight.len() >= tickets
            && let Some((began_ns, pending)) = self.in_flight.pop_front()
        {
            pending.wait()?;
            self.record(outcome, began_ns);
        }
        let began_ns = self.shared.now_ns();
        let store = &*self.shared.store;
        match self.client.choose() {
            Choice::Search => {
                self.client.search(store)?;
                self.record(outcome, began_ns);
            }
            Choice::Commit => {
                let (conflicts, pending) = store.commit_deferred(&mut |open| self.client.statements(open))?;
                self.conflicts += conflicts;
                self.in_flight.push_back((began_ns, pending));
            }
        }
        while let Some(durable) = self.in_flight.front().and_then(|(_, pending)| pending.poll()) {
            durable?;
            if let Some((began_ns, _)) = self.in_flight.pop_front() {
                self.record(outcome, began_ns);
            }
        }
        Ok(())
    }

    /// A transaction that began at `began_ns` has been answered.
    fn record(&self, outcome: &mut Outcome, began_ns: u64) {
        let now_ns = self.shared.now_ns();
        let latency_ns = now_ns - began_ns;
        outcome.ended_ns = now_ns;
        outcome.latency_ns.saturating_record(latency_ns);
        outcome.latency_sum_ns += latency_ns;
        outcome.transactions += 1;
        self.shared.done[self.thread].store(outcome.transactions, Ordering::Relaxed);
    }
}

/// The outcomes of all threads.
pub(crate) fn outcomes(shared: &Shared) -> Result<Vec<Outcome>> {
    let outcomes: Result<Vec<Outcome>> = shared.outcomes.lock().drain(..).collect();
    let outcomes = outcomes?;
    if outcomes.len() < shared.load.threads as usize { Err(Error::Died) } else { Ok(outcomes) }
}
