//! Commands that arrived together, in one transaction.
//!
//! A client that pipelines sends many commands that write. Each in a transaction of its own begins it, takes latches, reserves log
//! and commits; together they do that once. The commands of a batch follow each other in one connection, none of another
//! comes between them, and all of them happen at once: that is one of the orders in which they may run. No reply leaves before
//! the commit of all is durable.
//!
//! What may go wrong for one of them is not looked into here: the batch is given up, nothing of it happened, and each of its commands runs
//! by itself. Only an error reply of a command that had written nothing stays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use fulgurite::{Csn, Numbered};
use fulgurite_resp::Encoder;

use super::whole::Io;
use crate::args::Args;
use crate::command::{self, Command};
use crate::context::Context;
use crate::exec::Exec;
use crate::locks::HeldMore;
use crate::model::Running;
use crate::session::Session;
use crate::stop::Stop;

/// A batch ends when its commands have so many bytes: the replies to the first ones wait for the last one.
const BYTES_MAX: usize = 64 << 10;

/// The transaction of several commands that write.
pub(super) struct Batch<'s> {
    /// `None` while a command runs.
    exec: Option<Box<Exec>>,
    locks: HeldMore<'s>,
    running: Running<'s>,
    now_ms: u64,
    /// Where its replies begin in the output, and its commands in the input.
    pub replies_at: usize,
    pub input_at: usize,
    commands: u64,
}

/// How a command of a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// Its reply was appended.
    Replied,
    /// It does not fit in, and nothing of it happened: the batch ends before it.
    Ends,
    /// The batch has to be given up.
    Fails,
    /// It panicked: its connection is closed.
    Panicked,
}

/// How the commit of a batch ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Committed {
    /// What its replies need, and the commit that they acknowledge if that is at a level that does not wait.
    Done { needs: Csn, commit: Option<Numbered> },
    /// Nothing happened.
    GivenUp,
    /// Whether it happened is unknown: its connection is closed.
    Unknown,
}

impl<'s> Batch<'s> {
    /// Begins one for commands at `input_at`; `None` if none can begin now.
    pub fn begin(
        io: &mut Io<'s, '_>,
        session: &mut Session,
        out: &mut Vec<u8>,
        input_at: usize,
    ) -> Option<Batch<'s>> {
        let replies_at = out.len();
        let running = io.shared.model.keyspaces.begin(io.counts.stripe);
        io.counts.forget_gone(&running.map);
        let mut context = Context::new(io.shared, session, out, false, io.counts, running.map);
        context.begin_exec().ok()?;
        let (exec, now_ms) = (context.exec.take(), context.now_ms);
        Some(Batch { exec, locks: HeldMore::default(), running, now_ms, replies_at, input_at, commands: 0 })
    }

    /// Whether it has enough commands, which end at `input_at`.
    pub fn is_full(&self, input_at: usize) -> bool {
        input_at - self.input_at >= BYTES_MAX
    }

    /// Runs a command that may belong to it.
    pub fn run(
        &mut self,
        io: &mut Io<'s, '_>,
        session: &mut Session,
        out: &mut Vec<u8>,
        command: &'static Command,
        args: &Args<'_>,
    ) -> Ran {
        if !io.shared.locks.try_lock_more(&mut self.locks, session.database, command.keys_of(args)) {
            return Ran::Ends;
        }
        let start = out.len();
        let map = self.running.map;
        let mut context = Context::at(self.now_ms, io.shared, session, out, false, io.counts, map);
        context.exec = self.exec.take();
        let before = context.exec.as_ref().map(|exec| exec.changes());
        let ran = catch_unwind(AssertUnwindSafe(|| command::run(&mut context, Some(command), args)));
        self.exec = context.exec.take();
        drop(context);
        let has_written = self.exec.as_ref().map(|exec| exec.changes()) != before;
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(Stop::Reply(error))) if !has_written => {
                out.truncate(start);
                Encoder::new(out, session.protocol).error(error.code, &error.message);
            }
            Ok(Err(Stop::Blocked(_) | Stop::Large | Stop::Paused)) if !has_written => {
                out.truncate(start);
                return Ran::Ends;
            }
            Ok(Err(_)) => return Ran::Fails,
            Err(_) => {
                tracing::error!("a command panicked; its connection is closed");
                return Ran::Panicked;
            }
        }
        self.commands += 1;
        Ran::Replied
    }

    /// Commits it.
    pub fn commit(&mut self, io: &mut Io<'_, '_>, session: &mut Session, out: &mut Vec<u8>) -> Committed {
        let map = self.running.map;
        let mut context = Context::at(self.now_ms, io.shared, session, out, false, io.counts, map);
        context.exec = self.exec.take();
        match context.commit_exec() {
            Ok(()) => {}
            Err(Stop::Unknown) => return Committed::Unknown,
            Err(_) => return Committed::GivenUp,
        }
        let committed = Committed::Done { needs: context.needs, commit: context.unacknowledged };
        io.shared.commands.inline.fetch_add(self.commands, Ordering::Relaxed);
        committed
    }
}
