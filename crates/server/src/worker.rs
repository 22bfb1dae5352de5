//! Workers: they run what may wait for the disk, for other commands, or take long, each in a pool of its own (INV-SRV-8).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite::Csn;
use parking_lot::{Condvar, Mutex};

use crate::args::OwnedArgs;
use crate::command::find;
use crate::divide::divide;
use crate::execute::{Outcome, execute};
use crate::io::{Message, Storing};
use crate::model::Counts;
use crate::pace;
use crate::runner::{Pool, Runner};
use crate::session::Session;
use crate::shared::Shared;

/// What a worker does for a connection.
pub(crate) enum Work {
    /// Runs a command.
    Command(OwnedArgs),
    /// Reads the next piece of its reply.
    ReadPiece,
    /// Stores what has arrived of a value.
    Store(Box<Storing>),
}

/// Work on its way to a worker.
pub(crate) struct Task {
    /// The I/O thread to which its connection belongs, and the connection's token there.
    pub thread: usize,
    pub token: usize,
    pub session: Box<Session>,
    pub work: Work,
    /// The threads that do it.
    pub pool: Pool,
    /// When it was queued: a monotonic time.
    pub queued_ns: u64,
}

/// What a worker did.
pub(crate) struct Finished {
    pub token: usize,
    pub session: Box<Session>,
    pub reply: Vec<u8>,
    pub outcome: Outcome,
    /// The command, if it was not run because commands are paused.
    pub paused: Option<OwnedArgs>,
    /// The value that is arriving.
    pub storing: Option<Box<Storing>>,
}

/// What waits for the threads of each pool. Each connection has one task at most.
#[derive(Default)]
pub(crate) struct Queues([Queue; Pool::ALL.len()]);

impl Queues {
    pub fn push(&self, task: Task) {
        self.of(task.pool).push(task);
    }

    /// Has the threads of a pool end once they have run what is queued.
    pub fn close(&self, pool: Pool) {
        self.of(pool).close();
    }

    fn of(&self, pool: Pool) -> &Queue {
        &self.0[pool as usize]
    }
}

#[derive(Default)]
struct Queue {
    state: Mutex<(VecDeque<Task>, bool)>,
    changed: Condvar,
}

impl Queue {
    fn push(&self, task: Task) {
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

    fn close(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

/// Runs the tasks of a pool until its queue is closed.
pub(crate) fn run(shared: &Arc<Shared>, mut counts: Counts, pool: Pool) {
    if pool == Pool::Long {
        shared.env.lower_priority();
    }
    let runner = pool.runner();
    while let Some(Task { thread, token, mut session, work, queued_ns, .. }) = shared.queues.of(pool).pop() {
        pace::begin(&shared.env);
        let waited_ns = shared.monotonic_ns().saturating_sub(queued_ns);
        let mut reply = Vec::new();
        let (mut paused, mut storing) = (None, None);
        let outcome = match work {
            Work::Command(args) => {
                let outcome =
                    run_command(shared, &mut session, &args, runner, waited_ns, &mut reply, &mut counts);
                if let Outcome::HandOn(next) = outcome {
                    // A worker has waited for a moment.
                    let pool = if next == Pool::Workers { Pool::Waiting } else { next };
                    let work = Work::Command(args);
                    shared.queues.push(Task { thread, token, session, work, pool, queued_ns });
                    continue;
                }
                paused = (outcome == Outcome::Paused).then_some(args);
                outcome
            }
            Work::ReadPiece => without_panic(|| read_piece(shared, &mut session, &mut reply, &mut counts)),
            Work::Store(mut value) => {
                let outcome = without_panic(|| {
                    value.store(shared);
                    DONE
                });
                storing = Some(value);
                outcome
            }
        };
        let walked = session.walked.take().filter(|_| pool == Pool::Long);
        let finished = Finished { token, session, reply, outcome, paused, storing };
        shared.inboxes[thread].send(Message::Finished(finished));
        if let Some((database, key)) = walked {
            let divided = catch_unwind(AssertUnwindSafe(|| divide(shared, counts.stripe, database, &key)));
            if divided.is_err() {
                tracing::error!("a worker panicked while it divided a sorted set");
            }
        }
    }
}

/// Work that has no reply of its own, and needs no commit.
const DONE: Outcome = Outcome::Replied { needs: Csn::ZERO, commit: None };

fn run_command(
    shared: &Shared,
    session: &mut Session,
    args: &OwnedArgs,
    runner: Runner,
    waited_ns: u64,
    reply: &mut Vec<u8>,
    counts: &mut Counts,
) -> Outcome {
    let slices = args.args();
    match execute(shared, session, find(&slices[0]), &slices, reply, runner, Some(waited_ns), counts, None) {
        Outcome::HandOn(_) if runner == Runner::LongWorker => {
            tracing::error!("a command would not wait on a long worker; its connection is closed");
            Outcome::Close
        }
        outcome => outcome,
    }
}

/// Reads the next piece of the reply of a session. If it cannot be read the connection is closed, once all before that piece is sent.
fn read_piece(shared: &Shared, session: &mut Session, out: &mut Vec<u8>, counts: &mut Counts) -> Outcome {
    let Some(mut reply) = session.long_reply.take() else { return DONE };
    match reply.read_piece(shared, session, counts, out) {
        Ok(true) => {}
        Ok(false) => session.long_reply = Some(reply),
        Err(stop) => {
            shared.commands.cut_replies.fetch_add(1, Relaxed);
            tracing::error!(?stop, "a reply ends in the middle: its connection is closed");
            out.clear();
            session.has_quit = true;
        }
    }
    DONE
}

fn without_panic(work: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("a worker panicked; the connection that it worked for is closed");
        Outcome::Close
    })
}
