//! Where callbacks and wakers of tickets may run: on a thread that holds no lock of the engine, because they are users'
//! code, which may call the engine, drop the last handle or close the database.
//!
//! INV-TXN-12: no user's code runs under a lock, a latch or the leadership of a flush. A thread that takes a lock under
//! which it may flush, or under which a commit may die, is *quiet* while it holds it: what makes tickets complete leaves
//! them to the log's thread meanwhile, and the thread itself looks for them when it stops being quiet.
//!
//! Nor does it run inside of other users' code: a callback that commits, and so makes other tickets complete, leaves them
//! to the log's thread. A chain of callbacks of which each makes the next one run would else end with the stack.

use std::cell::Cell;

use super::Pipeline;
use super::commit_log::CommitLog;
use crate::sync::thread_local;

thread_local! {
    /// How many [`Quiet`]s this thread has.
    static QUIET: Cell<u32> = const { Cell::new(0) };
    /// How many callbacks and wakers this thread is inside of.
    static CALLBACKS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread must not run users' code.
pub(super) fn is_quiet() -> bool {
    QUIET.with(|quiet| quiet.get() > 0)
}

/// Whether this thread runs a user's callback or waker.
pub(crate) fn is_in_callback() -> bool {
    CALLBACKS.with(|callbacks| callbacks.get() > 0)
}

/// Notes that a user's code runs, while it lives.
pub(super) struct InCallback;

impl InCallback {
    pub fn new() -> InCallback {
        CALLBACKS.with(|callbacks| callbacks.set(callbacks.get() + 1));
        InCallback
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        CALLBACKS.with(|callbacks| callbacks.set(callbacks.get() - 1));
    }
}

/// Keeps this thread from completing tickets while it lives. It is taken before the lock, so that it is dropped after.
#[must_use]
pub(crate) struct Quiet<'a, L: CommitLog> {
    pipeline: &'a Pipeline<L>,
    /// Whether the thread is still under a lock when this is dropped: one of the log's, which calls.
    stays_locked: bool,
}

impl<L: CommitLog> Pipeline<L> {
    /// Keeps this thread from running users' code; when the last is dropped it completes the tickets that are ripe.
    pub fn quiet(&self) -> Quiet<'_, L> {
        self.quiet_under(false)
    }

    /// For what the log calls while it holds locks of its own.
    pub(super) fn quiet_in_the_log(&self) -> Quiet<'_, L> {
        self.quiet_under(true)
    }

    fn quiet_under(&self, stays_locked: bool) -> Quiet<'_, L> {
        QUIET.with(|quiet| quiet.set(quiet.get() + 1));
        Quiet { pipeline: self, stays_locked }
    }
}

impl<L: CommitLog> Drop for Quiet<'_, L> {
    fn drop(&mut self) {
        QUIET.with(|quiet| quiet.set(quiet.get() - 1));
        if !self.stays_locked {
            self.pipeline.complete_ripe_tickets();
        }
    }
}
