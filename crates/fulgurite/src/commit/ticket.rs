//! A commit that is awaited later.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fulgurite_base::Csn;

use crate::sync::{Condvar, Mutex};
use crate::{Commit, Error, Result};

type Callback = Box<dyn FnOnce(Result<Commit>) + Send>;

/// A commit on its way: applied, visible to its own process, durable soon.
///
/// Wait for it, poll it, give it a callback, or `.await` it; it completes without a thread of its own. Dropping a
/// ticket does not undo the commit.
#[derive(Clone)]
pub struct Ticket {
    state: Arc<TicketState>,
}

pub(crate) struct TicketState {
    csn: Csn,
    inner: Mutex<Inner>,
    changed: Condvar,
    cause: Cause,
}

/// Waits until a commit is durable and visible; false if that will not be, or not be known.
type Cause = Box<dyn Fn(Csn) -> bool + Send + Sync>;

#[derive(Default)]
struct Inner {
    outcome: Option<Outcome>,
    wakers: Vec<Waker>,
    callbacks: Vec<Callback>,
}

#[derive(Clone)]
enum Outcome {
    Durable,
    Unknown(Arc<str>),
}

impl Ticket {
    /// A ticket for `csn`; `cause` waits for its durability.
    pub(crate) fn new(csn: Csn, cause: Cause) -> Ticket {
        Ticket {
            state: Arc::new(TicketState { csn, inner: Mutex::default(), changed: Condvar::new(), cause }),
        }
    }

    /// A ticket that is complete from the start.
    pub(crate) fn done(csn: Csn) -> Ticket {
        let ticket = Ticket::new(csn, Box::new(|_| true));
        ticket.state.inner.lock().outcome = Some(Outcome::Durable);
        ticket
    }

    pub(crate) fn state(&self) -> Arc<TicketState> {
        self.state.clone()
    }

    /// The commit's number.
    pub fn csn(&self) -> Csn {
        self.state.csn
    }

    /// Waits until the commit is durable. Causes the flush; does not wait for a timer.
    pub fn wait(&self) -> Result<Commit> {
        if (self.state.cause)(self.state.csn) {
            // Not left to the thread that completes tickets: this may be that thread, in a callback.
            self.state.complete(Outcome::Durable);
        }
        let mut inner = self.state.inner.lock();
        loop {
            if let Some(outcome) = &inner.outcome {
                return self.result(outcome);
            }
            self.state.changed.wait(&mut inner);
        }
    }

    /// Whether it is durable by now: `None` if that is not known yet.
    pub fn poll(&self) -> Option<Result<Commit>> {
        self.state.inner.lock().outcome.as_ref().map(|outcome| self.result(outcome))
    }

    /// Calls `callback` once, when the commit is durable or its outcome is unknown: at once if that is known, else on
    /// the thread that completes it. It must not block.
    pub fn on_complete(&self, callback: impl FnOnce(Result<Commit>) + Send + 'static) {
        let outcome = {
            let mut inner = self.state.inner.lock();
            match &inner.outcome {
                None => {
                    inner.callbacks.push(Box::new(callback));
                    return;
                }
                Some(outcome) => outcome.clone(),
            }
        };
        callback(self.result(&outcome));
    }

    fn result(&self, outcome: &Outcome) -> Result<Commit> {
        outcome.result(self.state.csn)
    }
}

impl Outcome {
    fn result(&self, csn: Csn) -> Result<Commit> {
        match self {
            Outcome::Durable => Ok(Commit { csn }),
            Outcome::Unknown(why) => Err(Error::OutcomeUnknown { csn, source: why.to_string().into() }),
        }
    }
}

impl Future for Ticket {
    type Output = Result<Commit>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Commit>> {
        let mut inner = self.state.inner.lock();
        match &inner.outcome {
            Some(outcome) => Poll::Ready(self.result(outcome)),
            None => {
                if !inner.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    inner.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl TicketState {
    fn complete(&self, outcome: Outcome) {
        let (wakers, callbacks) = {
            let mut inner = self.inner.lock();
            if inner.outcome.is_some() {
                return;
            }
            inner.outcome = Some(outcome.clone());
            self.changed.notify_all();
            (std::mem::take(&mut inner.wakers), std::mem::take(&mut inner.callbacks))
        };
        for waker in wakers {
            contain("a waker", || waker.wake());
        }
        for callback in callbacks {
            contain("a callback", || callback(outcome.result(self.csn)));
        }
    }
}

/// Calls what a user handed in: its panic must not reach the thread that flushes the log for everybody, nor keep other
/// tickets from completing.
fn contain(what: &str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("{what} of a ticket panicked");
    }
}

/// The tickets that are not complete.
#[derive(Default)]
pub(crate) struct Tickets {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_csn: BTreeMap<Csn, Vec<Arc<TicketState>>>,
    /// Why no ticket completes any more.
    ended: Option<Arc<str>>,
}

impl Tickets {
    /// Files a ticket. The caller checks afterwards whether it is complete already, so that none is missed.
    pub fn add(&self, state: Arc<TicketState>) {
        let ended = {
            let mut open = self.open.lock();
            match open.ended.clone() {
                Some(why) => why,
                None => {
                    open.by_csn.entry(state.csn).or_default().push(state);
                    return;
                }
            }
        };
        state.complete(Outcome::Unknown(ended));
    }

    /// Completes all tickets at or below `csn`.
    pub fn complete_up_to(&self, csn: Csn) {
        let done = {
            let mut open = self.open.lock();
            if open.by_csn.first_key_value().is_none_or(|(&first, _)| first > csn) {
                return;
            }
            let rest = open.by_csn.split_off(&csn.next());
            std::mem::replace(&mut open.by_csn, rest)
        };
        for state in done.into_values().flatten() {
            state.complete(Outcome::Durable);
        }
    }

    /// Completes all tickets with an unknown outcome, and those that are filed later.
    pub fn fail(&self, why: &str) {
        let (all, why) = {
            let mut open = self.open.lock();
            let why = open.ended.get_or_insert_with(|| why.into()).clone();
            (std::mem::take(&mut open.by_csn), why)
        };
        for state in all.into_values().flatten() {
            state.complete(Outcome::Unknown(why.clone()));
        }
    }
}

impl Drop for Tickets {
    /// Nobody is left who could complete them.
    fn drop(&mut self) {
        self.fail("the database was closed before the commit was known to be durable");
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn ticket(csn: u64) -> Ticket {
        Ticket::new(Csn(csn), Box::new(|_| false))
    }

    #[test]
    fn tickets_complete_in_any_form() {
        let tickets = Tickets::default();
        let (first, second) = (ticket(1), ticket(2));
        tickets.add(first.state());
        tickets.add(second.state());
        let called = Arc::new(AtomicUsize::new(0));
        let counter = called.clone();
        first.on_complete(move |result| {
            assert_eq!(result.unwrap().csn, Csn(1));
            counter.fetch_add(1, Ordering::Relaxed);
        });
        assert!(first.poll().is_none());
        tickets.complete_up_to(Csn(1));
        assert_eq!(called.load(Ordering::Relaxed), 1);
        assert_eq!(first.wait().unwrap().csn, Csn(1));
        assert!(second.poll().is_none());
        tickets.fail("the disk is gone");
        assert!(matches!(second.wait(), Err(Error::OutcomeUnknown { csn: Csn(2), .. })));
    }
}
