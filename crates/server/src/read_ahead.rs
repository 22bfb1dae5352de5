//! Rows that the commands of a pipeline will look up are read from disk while these wait for their turn.
//!
//! A connection's commands run one after the other, so one that pipelines its commands would have one read from disk on its way at a time,
//! where a device does several times as many at once. So threads of their own read the rows that are not in memory, and the commands
//! find them there. That changes nothing of what a command does: the threads drop what they read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::model::LookUp;
use crate::shared::Shared;

/// How many threads read ahead: so many reads are on their way at once.
pub(crate) const THREADS: usize = 8;

/// So many rows wait at most. Of more, commands read for themselves: what is read long before its command may have left memory again.
const WAITING_MAX: usize = 64;

/// Rows with longer keys are not read ahead: those that wait take no memory that the budget would have to count.
const KEY_BYTES_MAX: usize = 1 << 10;

/// The rows that are to be read.
#[derive(Default)]
pub(crate) struct ReadAhead {
    state: Mutex<State>,
    changed: Condvar,
    /// How many rows were read.
    pub rows: AtomicU64,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<LookUp>,
    is_closed: bool,
}

impl ReadAhead {
    /// Has rows read, as many as there is room for.
    pub fn push(&self, look_ups: impl IntoIterator<Item = LookUp>) {
        for look_up in look_ups.into_iter().filter(|look_up| look_up.key_bytes() <= KEY_BYTES_MAX) {
            let mut state = self.state.lock();
            if state.waiting.len() >= WAITING_MAX {
                return;
            }
            state.waiting.push_back(look_up);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Has the threads end.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.waiting.clear();
        state.is_closed = true;
        drop(state);
        self.changed.notify_all();
    }

    fn pop(&self) -> Option<LookUp> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(look_up) = state.waiting.pop_front() {
                return Some(look_up);
            }
            self.changed.wait(&mut state);
        }
    }
}

/// Reads rows until it is closed.
pub(crate) fn run(shared: &Shared) {
    while let Some(look_up) = shared.read_ahead.pop() {
        shared.model.read(&look_up);
        shared.read_ahead.rows.fetch_add(1, Ordering::Relaxed);
    }
}
