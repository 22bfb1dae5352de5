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
use crate::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering};
use crate::{Commit, Error, Result};

type Callback = Box<dyn FnOnce(Result<Commit>) + Send>;

/// A commit on its way: applied, visible to its own process, durable soon.
///
/// Wait for it, look at it, give it a callback, or `.await` it; it completes without a thread of its own. Dropping a
/// ticket does not undo the commit, but then its failure is told to no one. *Durable* stands for what the commit's [`Durability`](crate::Durability) demands: at
/// a level that does not wait for the disk, a ticket is complete from the start.
#[derive(Clone)]
#[must_use = "a commit is not known to be durable before its ticket says so: wait for it, await it or give it a callback"]
pub struct Ticket {
    csn: Csn,
    /// `None` if it was complete from the start.
    state: Option<Arc<TicketState>>,
}

/// What makes tickets complete.
pub(crate) trait Settle: Send + Sync {
    /// Waits until what the ticket waits for is durable and visible, and completes it; leaves it alone if that will not
    /// be, or not be known.
    fn settle(&self, ticket: &TicketState);
}

/// Nobody listens.
const PENDING: u8 = 0;
/// Somebody does: `listeners` has to be looked at.
const HEARD: u8 = 1;
const DURABLE: u8 = 2;
const UNKNOWN: u8 = 3;

/// A ticket that was not complete from the start. `phase` only ever rises; it reaches `HEARD` and `UNKNOWN` under the
/// lock of `listeners`, `DURABLE` without it, so that completing a ticket to which nobody listens takes one exchange.
pub(crate) struct TicketState {
    csn: Csn,
    /// What has to be durable.
    due: Csn,
    /// For what concerns the commit itself; a transaction that wrote nothing has a ticket, too.
    timed: Option<Timed>,
    phase: AtomicU8,
    listeners: Mutex<Listeners>,
    changed: Condvar,
    pipeline: Weak<dyn Settle>,
    /// In which it completes.
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
}

impl Ticket {
    /// A ticket that is complete from the start.
    pub(crate) fn done(csn: Csn) -> Ticket {
        Ticket { csn, state: None }
    }

    /// The ticket of what was filed.
    pub(crate) fn of(state: Arc<TicketState>) -> Ticket {
        Ticket { csn: state.csn, state: Some(state) }
    }

    /// The commit's number.
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// Waits until the commit is durable. Causes the flush; does not wait for a timer.
    pub fn wait(&self) -> Result<Commit> {
        match &self.state {
            None => Ok(Commit { csn: self.csn }),
            Some(state) => state.wait(),
        }
    }

    /// The outcome, if it is known by now; `None` if the commit is still on its way. Never waits. (To be called again and
    /// again by an executor there is the [`Future`] that a ticket is.)
    pub fn try_wait(&self) -> Option<Result<Commit>> {
        match &self.state {
            None => Some(Ok(Commit { csn: self.csn })),
            Some(state) => state.outcome(),
        }
    }

    /// Calls `callback` once, when the commit is durable or its outcome is unknown: at once if that is known, else on
    /// the thread that completes it. That may be any thread that commits, or one of the database; no lock is held, so the
    /// callback may use the database, drop the last handle to it, or close it. It should not block: other tickets may
    /// wait for the same thread. What its commits complete is told when it has returned, by a thread of the database;
    /// without those ([`Options::background`](crate::Options::background)), by
    /// [`Database::maintain`](crate::Database::maintain).
    pub fn on_complete(&self, callback: impl FnOnce(Result<Commit>) + Send + 'static) {
        if let Some(state) = &self.state
            && let Some(mut listeners) = state.listen()
        {
            listeners.callbacks.push(Box::new(callback));
            return;
        }
        callback(self.try_wait().expect("who cannot listen any more finds it complete"));
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
        Poll::Ready(self.try_wait().expect("who cannot listen any more finds it complete"))
    }
}

impl TicketState {
    /// A ticket for commit `csn` that completes when everything up to `due` is durable.
    pub fn new(csn: Csn, due: Csn, timed: Option<Timed>, pipeline: Weak<dyn Settle>) -> Arc<TicketState> {
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

    /// What has to be durable.
    pub fn due(&self) -> Csn {
        self.due
    }

    /// The commit's level, and when it was called for; `None` if nothing was written.
    pub fn timed(&self) -> Option<Timed> {
        self.timed
    }

    fn wait(&self) -> Result<Commit> {
        if let Some(outcome) = self.outcome() {
            return outcome;
        }
        if let Some(pipeline) = self.pipeline.upgrade() {
            // Not left to the thread that completes tickets: this may be that thread, in a callback.
            pipeline.settle(self);
        }
        if let Some(mut listeners) = self.listen() {
            while self.phase.load(Ordering::Acquire) < DURABLE {
                self.changed.wait(&mut listeners);
            }
        }
        self.outcome().expect("who cannot listen any more finds it complete")
    }

    fn outcome(&self) -> Option<Result<Commit>> {
        match self.phase.load(Ordering::Acquire) {
            DURABLE => Some(Ok(Commit { csn: self.csn })),
            _ if !self.process.is_current() => Some(Err(self.unknown(FORKED))),
            UNKNOWN => {
                let why = self.listeners.lock().why.clone();
                Some(Err(self.unknown(&why.unwrap_or_default())))
            }
            _ => None,
        }
    }

    fn unknown(&self, why: &str) -> Error {
        Error::OutcomeUnknown { csn: self.csn, source: why.to_string().into(), at_risk: None }
    }

    /// The listeners, to which the completer will look; `None` if the ticket is complete, or will never be in this
    /// process.
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

    /// Makes it complete and runs what users handed in; false if it was complete.
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
            self.tell(listeners, || Ok(Commit { csn: self.csn }));
        }
        is_first
    }

    /// Ends it with an unknown outcome, unless it is complete; runs what users handed in.
    pub fn fail(&self, why: &Arc<str>) {
        let mut listeners = self.listeners.lock();
        if self.phase.load(Ordering::Acquire) >= DURABLE {
            return;
        }
        listeners.why = Some(why.clone());
        let exchange = |from| self.phase.compare_exchange(from, UNKNOWN, Ordering::AcqRel, Ordering::Acquire);
        // Another may complete it meanwhile; nobody but the holder of the lock makes it heard.
        if exchange(PENDING).is_ok() || exchange(HEARD).is_ok() {
            self.tell(listeners, || Err(self.unknown(why)));
        }
    }

    fn tell(&self, mut listeners: MutexGuard<'_, Listeners>, outcome: impl Fn() -> Result<Commit>) {
        self.changed.notify_all();
        let wakers = std::mem::take(&mut listeners.wakers);
        let callbacks = std::mem::take(&mut listeners.callbacks);
        drop(listeners);
        for waker in wakers {
            contain("a waker", || waker.wake());
        }
        for callback in callbacks {
            contain("a callback", || callback(outcome()));
        }
    }
}

/// Calls what a user handed in: its panic must not reach the thread that flushes the log for everybody, nor keep other
/// tickets from completing.
fn contain(what: &str, call: impl FnOnce()) {
    let _inside = InCallback::new();
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("{what} of a ticket panicked");
    }
}
