//! The ownership of an open database: every handle of a user owns a [`Handle`], and the drop of the last one closes.

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::background::Background;
use crate::commit::quiet::is_in_callback;
use crate::engine::Engine;
use crate::{Error, Missing, Result};

/// A share of an open database: databases, tables, transactions, snapshots and ranges each own one. The threads of the
/// database itself own only the [`Engine`], so that they do not keep it open.
///
/// A struct that owns a `Handle` declares it last, so that its other fields are dropped before the database closes.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Closer>);

/// Closes the database, at the latest when the last [`Handle`] is dropped.
///
/// Any thread may be the closer, also one of the database's own: a ticket's callback may drop the last handle. The
/// closer holds no lock, because closing runs the callbacks of tickets, and joins threads that may be in one.
struct Closer {
    engine: Arc<Engine>,
    background: Mutex<Option<Background>>,
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// A closer is at work.
    Closing,
    Closed,
    ClosedWithError,
}

impl Handle {
    /// The first share of a database that was just opened.
    pub fn new(engine: Arc<Engine>) -> Result<Handle> {
        let background = if engine.options.background { Some(Background::start(&engine)?) } else { None };
        let background = Mutex::new(background);
        let state = Mutex::new(State::Open);
        Ok(Handle(Arc::new(Closer { engine, background, state, closed: Condvar::new() })))
    }

    /// Closes the database for all handles.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }
}

impl Deref for Handle {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0.engine
    }
}

impl Closer {
    fn close(&self) -> Result<()> {
        self.engine.check_process()?;
        let mut state = self.state.lock();
        loop {
            match *state {
                State::Open => break,
                State::Closed => return Ok(()),
                State::ClosedWithError => return Err(Error::Closed),
                // The closer may wait for the thread that runs this callback.
                State::Closing if is_in_callback() => return Err(Error::WouldBlock(Missing::Close)),
                State::Closing => self.closed.wait(&mut state),
            }
        }
        *state = State::Closing;
        drop(state);
        let mut end = End { closer: self, state: State::ClosedWithError, has_panicked: true };
        let start_ns = self.engine.env.clock().monotonic_ns();
        let outcome = self.close_once();
        end.has_panicked = false;
        if outcome.is_ok() {
            end.state = State::Closed;
            let ns = self.engine.env.clock().monotonic_ns().saturating_sub(start_ns);
            tracing::info!(path = %self.engine.files.path.display(), took_ms = ns / 1_000_000, "closed");
        }
        outcome
    }

    fn close_once(&self) -> Result<()> {
        self.engine.bound_merging();
        let background = self.background.lock().take();
        if let Some(background) = background {
            background.stop();
        }
        self.engine.close_once()
    }
}

/// Publishes the result of closing. After a panic the database counts as closed: its threads may have ended, so nothing
/// may wait for them. The log is flushed even so: it may hold commits that were acknowledged and are not durable yet.
/// The lock of the directory is kept until the last handle is dropped: if the flush panics, too, the log may still
/// write.
struct End<'a> {
    closer: &'a Closer,
    state: State,
    has_panicked: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let engine = &self.closer.engine;
        if self.has_panicked {
            engine.files.close();
            engine.pipeline.begin_close();
            if !engine.options.read_only {
                let close_log = || {
                    if let Err(error) = engine.log.close() {
                        tracing::warn!(%error, path = %engine.files.path.display(), "closing a log after a panic");
                    }
                };
                let _ = std::panic::catch_unwind(AssertUnwindSafe(close_log));
            }
        }
        *self.closer.state.lock() = self.state;
        self.closer.closed.notify_all();
        if self.has_panicked {
            engine.pipeline.fail_tickets("closing the database panicked");
        }
    }
}

impl Closer {
    /// In a child of `fork()` the database is not closed and never dropped: its drop would join threads that the child
    /// does not have, and take locks that they may hold. Only the child's copies of the descriptors that hold the
    /// directory's lock are closed, so that the lock ends with the parent.
    fn leave_to_the_parent(&mut self) {
        std::mem::forget(self.engine.clone());
        std::mem::forget(self.background.get_mut().take());
        self.engine.files.leave_lock_to_the_parent();
        self.engine.log.leave_to_the_parent();
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        if self.engine.check_process().is_err() {
            return self.leave_to_the_parent();
        }
        if *self.state.get_mut() != State::Open {
            return;
        }
        if let Err(error) = self.close() {
            tracing::warn!(%error, path = %self.engine.files.path.display(), "closing a database");
        }
    }
}
