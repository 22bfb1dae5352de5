//! Where callbacks and wakers of tickets may run: on a thread that holds no lock of the engine. They are users' code,
//! which may call the engine, drop the last handle or close the database.
//!
//! INV-TXN-12: no user's code runs under a lock, a latch, an admission or the lead of a flush. A thread that takes a
//! lock under which it may flush, or under which a commit may panic, is *quiet* while it holds the lock. A quiet thread
//! does not complete tickets: it leaves them to the log's thread, and checks for ripe ones when it stops being quiet.
//!
//! Nor does a callback run inside another: if a callback commits, and so makes other tickets complete, it leaves them
//! to the log's thread. Otherwise a chain of callbacks, each of which makes the next one run, would overflow the stack.

use std::cell::Cell;

use super::Pipeline;
use fulgurite_log::CommitLog;
use fulgurite_types::sync::thread_local;

thread_local! {
    /// How many [`Quiet`]s this thread holds.
    static QUIET: Cell<u32> = const { Cell::new(0) };
    /// How many callbacks and wakers this thread is inside.
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

/// While it lives, this thread runs a user's code.
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

/// Keeps this thread from completing tickets while it lives. Created before the lock is taken, hence dropped after it.
#[must_use]
pub(crate) struct Quiet<'a, L: CommitLog> {
    pipeline: &'a Pipeline<L>,
    /// Whether the thread still holds a lock, of the log that called it, when this is dropped.
    stays_locked: bool,
}

impl<L: CommitLog> Pipeline<L> {
    /// Keeps this thread from running users' code. When the last one is dropped, the thread completes the ripe tickets.
    pub fn quiet(&self) -> Quiet<'_, L> {
        self.quiet_under(false)
    }

    /// The same for a thread inside a callback of the log, which holds locks of its own.
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
