//! Workers: they run the commands that may wait.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::args::OwnedArgs;
use crate::command::find;
use crate::execute::{Outcome, execute};
use crate::io::Message;
use crate::model::Counts;
use crate::session::Session;
use crate::shared::Shared;

/// A command on its way to a worker.
pub(crate) struct Task {
    /// The I/O thread to which its connection belongs, and the connection's token there.
    pub thread: usize,
    pub token: usize,
    pub session: Box<Session>,
    pub args: OwnedArgs,
}

/// A command that a worker ran.
pub(crate) struct Finished {
    pub token: usize,
    pub session: Box<Session>,
    pub reply: Vec<u8>,
    pub outcome: Outcome,
    /// The command, if it was not run because commands are paused.
    pub paused: Option<OwnedArgs>,
}

/// Commands that wait for a worker. Each connection has one at most.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<(VecDeque<Task>, bool)>,
    changed: Condvar,
}

impl Queue {
    pub fn push(&self, task: Task) {
        self.state.lock().0.push_back(task);
        self.changed.notify_one();
    }

    /// The next task; `None` once the queue is closed and empty.
    fn pop(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.0.pop_front() {
                return Some(task);
            }
            if state.1 {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Has the workers end once they have run what is queued.
    pub fn close(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

/// Runs tasks until the queue is closed.
pub(crate) fn run(shared: &Arc<Shared>, mut counts: Counts) {
    while let Some(Task { thread, token, mut session, args }) = shared.queue.pop() {
        let mut reply = Vec::new();
        let slices = args.args();
        let command = find(&slices[0]);
        let outcome =
            match execute(shared, &mut session, command, &slices, &mut reply, true, &mut counts, None) {
                Outcome::Blocked => {
                    tracing::error!("a command would not wait on a worker; its connection is closed");
                    Outcome::Close
                }
                outcome => outcome,
            };
        drop(slices);
        let paused = (outcome == Outcome::Paused).then_some(args);
        shared.inboxes[thread].send(Message::Finished(Finished { token, session, reply, outcome, paused }));
    }
}
