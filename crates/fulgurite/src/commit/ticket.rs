//! A commit that is awaited later.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use fulgurite_env::Process;
use fulgurite_types::Csn;

use super::quiet::InCallback;
use crate::latency::Timed;
use crate::{Acks, Commit, Error, Result};
use fulgurite_types::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering};

type Callback = Box<dyn FnOnce(Result<Commit>) + Send>;

/// A commit on its way to the disk: applied, visible to its own process, durable soon.
///
/// Wait for it, poll it, give it a callback, or `.await` it; it needs no thread of its own to complete. Dropping a
/// ticket does not undo the commit, but a failure then goes unreported. Here *durable* means what the commit's
/// [`Durability`](crate::Durability) asks for: at a level that does not wait for the disk, a ticket is complete from
/// the start, unless the transaction read synchronous commits that are not durable yet. In a cluster as many replicas have it as
/// the transaction asked for ([`Transaction::set_acks`](crate::Transaction::set_acks)), whatever its level.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let events = db.table("events")?;
/// let mut txn = db.begin();
/// txn.put(&events, "1", "started")?;
/// let ticket = txn.commit_deferred()?;                // visible to transactions that begin now
/// assert!(ticket.try_wait().is_none_or(|outcome| outcome.is_ok()));
/// ticket.wait()?;                                     // durable
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a commit is not known to be durable before its ticket says so: wait for it, await it or give it a callback"]
pub struct Ticket {
    csn: Csn,
    /// `None` if it was complete from the start.
    state: Option<Arc<TicketState>>,
}

/// Completes tickets; the pipeline.
pub(crate) trait Finish: Send + Sync {
    /// Waits until the ticket's `due` is durable and visible, and completes the ticket. Does nothing if the wait fails.
    fn finish(&self, ticket: &TicketState);
}

/// Not complete, and without listeners.
const PENDING: u8 = 0;
/// Not complete, and the completing thread has to look at `listeners`.
const HEARD: u8 = 1;
const DURABLE: u8 = 2;
const UNKNOWN: u8 = 3;
/// The commit did not happen: the node that was to number it was deposed.
const REFUSED: u8 = 4;
/// A quorum has it, and not all replicas had it in time, as was asked for.
const BEHIND: u8 = 5;

/// A ticket that was not complete from the start. `phase` only ever rises. It reaches `HEARD`, `UNKNOWN`, `REFUSED` and `BEHIND` under the
/// lock of `listeners`, and `DURABLE` from `PENDING` without it, so that completing a ticket without listeners takes
/// one exchange.
pub(crate) struct TicketState {
    csn: Csn,
    /// The CSN up to which all commits have to be durable and visible.
    due: Csn,
    /// The commit's level and start; `None` for a transaction that wrote nothing.
    timed: Option<Timed>,
    phase: AtomicU8,
    listeners: Mutex<Listeners>,
    changed: Condvar,
    pipeline: Weak<dyn Finish>,
    /// The process that completes it; a child of `fork()` does not.
    process: Process,
}

const FORKED: &str =
    "the database was opened in another process, of which this one is a fork: wait for the commit there";

#[derive(Default)]
struct Listeners {
    wakers: Vec<Waker>,
    callbacks: Vec<Callback>,
    /// Why it is `UNKNOWN`.
    why: Option<Arc<str>>,
    /// How many replicas have it, of how many, if it is `BEHIND`.
    have: (usize, usize),
}

impl Ticket {
    /// A ticket that is complete from the start.
    pub(crate) fn done(csn: Csn) -> Ticket {
        Ticket { csn, state: None }
    }

    /// The ticket of a filed state.
    pub(crate) fn of(state: Arc<TicketState>) -> Ticket {
        Ticket { csn: state.csn, state: Some(state) }
    }

    /// The commit's number.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// Waits until the commit is durable. Starts the flush itself and waits for no timer; for all replicas
    /// ([`Acks::All`](crate::Acks::All)) no longer than a commit waits for a quorum.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`]: the log failed or the database was closed before the commit was known to be durable,
    /// or this process is a child, by `fork()`, of the one that committed. In a cluster [`Error::NotLeader`]: it did not happen; and
    /// [`Error::ReplicasBehind`], if the transaction asked for all replicas ([`Transaction::set_acks`](crate::Transaction::set_acks)).
    pub fn wait(&self) -> Result<Commit> {
        match &self.state {
            None => Ok(Commit { csn: self.csn }),
            Some(state) => state.wait(),
        }
    }

    /// The outcome, if it is known; `None` while the commit is on its way. Never waits. Executors poll the
    /// [`Future`] that a ticket is instead.
    pub fn try_wait(&self) -> Option<Result<Commit>> {
        match &self.state {
            None => Some(Ok(Commit { csn: self.csn })),
            Some(state) => state.outcome(),
        }
    }

    /// Calls `callback` once, when the commit is durable or its outcome is unknown: at once if that is known already,
    /// else on the thread that completes the ticket. That may be any thread that commits, or one of the database. It
    /// holds no lock, so the callback may use the database, drop the last handle to it, or close it.
    ///
    /// A callback should not block: other tickets may wait for the same thread. Tickets that its own commits complete
    /// get their callbacks after it has returned, on a thread of the database; without those
    /// ([`Options::background`](crate::Options::background)), in [`Database::maintain`](crate::Database::maintain).
    pub fn on_complete(&self, callback: impl FnOnce(Result<Commit>) + Send + 'static) {
        if let Some(state) = &self.state
            && let Some(mut listeners) = state.listen()
        {
            listeners.callbacks.push(Box::new(callback));
            return;
        }
        callback(self.try_wait().expect("a ticket that takes no listener has an outcome"));
    }
}

impl Future for Ticket {
    type Output = Result<Commit>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Commit>> {
        if let Some(state) = &self.state
            && let Some(mut listeners) = state.listen()
        {
            if !listeners.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                listeners.wakers.push(context.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(self.try_wait().expect("a ticket that takes no listener has an outcome"))
    }
}

impl TicketState {
    /// A ticket for commit `csn`, which completes when all commits up to `due` are durable and visible.
    pub fn new(csn: Csn, due: Csn, timed: Option<Timed>, pipeline: Weak<dyn Finish>) -> Arc<TicketState> {
        Arc::new(TicketState {
            csn,
            due,
            timed,
            phase: AtomicU8::new(PENDING),
            listeners: Mutex::default(),
            changed: Condvar::new(),
            pipeline,
            process: Process::current(),
        })
    }

    /// The commit's number.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// The CSN up to which all commits have to be durable and visible.
    pub fn due(&self) -> Csn {
        self.due
    }

    /// The commit's level and start; `None` for a transaction that wrote nothing.
    pub fn timed(&self) -> Option<Timed> {
        self.timed
    }

    /// Whether it has an outcome.
    pub fn is_complete(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= DURABLE
    }

    /// How many replicas have the commit when the ticket completes.
    pub fn acks(&self) -> Acks {
        self.timed.map_or(Acks::Quorum, |timed| timed.acks)
    }

    fn wait(&self) -> Result<Commit> {
        if let Some(outcome) = self.outcome() {
            return outcome;
        }
        if let Some(pipeline) = self.pipeline.upgrade() {
            // Do not wait for the thread that completes tickets: this may be that thread, inside a callback.
            pipeline.finish(self);
        }
        if let Some(mut listeners) = self.listen() {
            while self.phase.load(Ordering::Acquire) < DURABLE {
                self.changed.wait(&mut listeners);
            }
        }
        self.outcome().expect("a ticket that takes no listener has an outcome")
    }

    fn outcome(&self) -> Option<Result<Commit>> {
        match self.phase.load(Ordering::Acquire) {
            DURABLE => Some(Ok(Commit { csn: self.csn })),
            _ if !self.process.is_current() => Some(Err(self.unknown(FORKED))),
            UNKNOWN => {
                let why = self.listeners.lock().why.clone();
                Some(Err(self.unknown(&why.unwrap_or_default())))
            }
            REFUSED => Some(Err(Error::NotLeader { leader: None })),
            BEHIND => Some(Err(self.behind(self.listeners.lock().have))),
            _ => None,
        }
    }

    fn behind(&self, (have, want): (usize, usize)) -> Error {
        Error::ReplicasBehind { csn: self.csn, have, want }
    }

    fn unknown(&self, why: &str) -> Error {
        Error::OutcomeUnknown { csn: self.csn, source: why.to_string().into(), at_risk: None }
    }

    /// The listeners, at which the completing thread will look; `None` if the ticket is complete, or never will be in
    /// this process.
    fn listen(&self) -> Option<MutexGuard<'_, Listeners>> {
        if !self.process.is_current() {
            return None;
        }
        let listeners = self.listeners.lock();
        match self.phase.compare_exchange(PENDING, HEARD, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(HEARD) => Some(listeners),
            Err(_) => None,
        }
    }

    /// Completes the ticket and runs its callbacks and wakers; false if it was complete already.
    pub fn complete(&self) -> bool {
        let exchange = |from| self.phase.compare_exchange(from, DURABLE, Ordering::AcqRel, Ordering::Acquire);
        match exchange(PENDING) {
            Ok(_) => return true,
            Err(HEARD) => {}
            Err(_) => return false,
        }
        let listeners = self.listeners.lock();
        let is_first = exchange(HEARD).is_ok();
        if is_first {
            self.report(listeners, || Ok(Commit { csn: self.csn }));
        }
        is_first
    }

    /// Ends the ticket with an unknown outcome, unless it is complete; runs its callbacks and wakers.
    pub fn fail(&self, why: &Arc<str>) {
        let mut listeners = self.listeners.lock();
        if self.phase.load(Ordering::Acquire) >= DURABLE {
            return;
        }
        listeners.why = Some(why.clone());
        let exchange = |from| self.phase.compare_exchange(from, UNKNOWN, Ordering::AcqRel, Ordering::Acquire);
        // Another thread may complete it between the exchanges; only the holder of the lock moves it to HEARD.
        if exchange(PENDING).is_ok() || exchange(HEARD).is_ok() {
            self.report(listeners, || Err(self.unknown(why)));
        }
    }

    /// Ends the ticket of a commit that did not happen; runs its callbacks and wakers.
    pub fn refuse(&self) {
        let listeners = self.listeners.lock();
        let exchange = |from| self.phase.compare_exchange(from, REFUSED, Ordering::AcqRel, Ordering::Acquire);
        if exchange(PENDING).is_ok() || exchange(HEARD).is_ok() {
            self.report(listeners, || Err(Error::NotLeader { leader: None }));
        }
    }

    /// Ends the ticket of a commit that a quorum has and not all replicas, as was asked for; runs its callbacks and wakers.
    pub fn fall_behind(&self, have: (usize, usize)) {
        let mut listeners = self.listeners.lock();
        if self.phase.load(Ordering::Acquire) >= DURABLE {
            return;
        }
        listeners.have = have;
        let exchange = |from| self.phase.compare_exchange(from, BEHIND, Ordering::AcqRel, Ordering::Acquire);
        if exchange(PENDING).is_ok() || exchange(HEARD).is_ok() {
            self.report(listeners, || Err(self.behind(have)));
        }
    }

    fn report(&self, mut listeners: MutexGuard<'_, Listeners>, outcome: impl Fn() -> Result<Commit>) {
        self.changed.notify_all();
        let wakers = std::mem::take(&mut listeners.wakers);
        let callbacks = std::mem::take(&mut listeners.callbacks);
        drop(listeners);
        for waker in wakers {
            contain("a waker of a ticket", || waker.wake());
        }
        for callback in callbacks {
            contain("a callback of a ticket", || callback(outcome()));
        }
    }
}

/// Runs a user's callback or waker. Its panic must not reach the thread, which may be the one that flushes the log, nor
/// keep other tickets from completing.
pub(super) fn contain(what: &str, call: impl FnOnce()) {
    let _inside = InCallback::new();
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("{what} panicked");
    }
}
