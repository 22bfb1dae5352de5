//! Commands that arrived together, of one connection or of several, in one transaction.
//!
//! Each command that writes, in a transaction of its own, begins it, takes latches, reserves log and commits; those of a round of the
//! event loop do that once. They follow each other, no other command comes between them, and all of them happen at once: that is one
//! of the orders in which they may run. No reply leaves before the commit of all is durable.
//!
//! **INV-SRV-3.** *A command that joins a batch sees all that was acknowledged before it arrived*, although the batch may have begun
//! before: what it reads in the transaction is validated at the commit, also if nothing is written
//! ([`fulgurite::Transaction::try_commit_validated`]), and it does not join a batch that began in another millisecond, or before
//! a database got another keyspace ([`Batch::accepts`]).
//!
//! What may go wrong for one of them is not looked into here: the batch is given up, nothing of it happened, and each of its commands runs
//! by itself. Only an error reply of a command that had written nothing stays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use fulgurite::{Csn, Durability, Numbered};
use fulgurite_resp::Encoder;

use super::whole::Io;
use crate::args::Args;
use crate::command::{self, Command};
use crate::context::Context;
use crate::exec::{Exec, unacknowledged};
use crate::locks::HeldMore;
use crate::model::{Counts, KeyspaceMap, Running};
use crate::runner::Runner;
use crate::session::Session;
use crate::shared::Shared;
use crate::stop::Stop;
use crate::tallies::Ran as CommandRan;

/// A batch ends when its commands have so many bytes, or have written so many: the replies to the first ones wait for the last one.
const BYTES_MAX: usize = 64 << 10;

/// A command that has one write so many does not belong to it: a longer transaction would have to wait at its commit.
const WRITTEN_BYTES_MAX: usize = 192 << 10;

/// ... or are so many: what the transaction looks up stays in the processor's nearest caches, and others wait less for its keys.
const COMMANDS_MAX: usize = 16;

/// ... or so many others ran beside it: commands of other threads may wait for its keys.
const BESIDE_MAX: u64 = 64;

/// The transaction of several commands that write.
pub(super) struct Batch<'s> {
    /// `None` while a command runs.
    exec: Option<Box<Exec>>,
    locks: HeldMore<'s>,
    running: Running<'s>,
    now_ms: u64,
    durability: Durability,
    ran: Vec<CommandRan>,
    /// How many commands ran beside it.
    beside: u64,
    bytes: usize,
    /// The tokens of the connections that have commands in it.
    pub members: Vec<usize>,
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
    /// It panicked: its connection is closed, and the batch has to be given up.
    Panicked,
}

/// How the commit of a batch ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Committed {
    /// The newest commit that its connections were shown, what their replies need, and the commit that they acknowledge if that is at a
    /// level that does not wait.
    Done { csn: Csn, needs: Csn, commit: Option<Numbered> },
    /// Nothing happened.
    GivenUp,
    /// Whether it happened is unknown: its connections are closed.
    Unknown,
}

impl<'s> Batch<'s> {
    /// Begins one with a command of this session; `None` if none can begin now.
    pub fn begin(io: &mut Io<'s, '_>, session: &mut Session) -> Option<Batch<'s>> {
        let running = io.shared.model.keyspaces.begin(io.counts.stripe);
        io.counts.forget_gone(&running.map);
        let durability = session.durability;
        let mut unused = Vec::new();
        let mut context =
            Context::new(io.shared, session, &mut unused, Runner::IoThread, io.counts, running.map);
        context.begin_exec().ok()?;
        let (exec, now_ms) = (context.exec.take(), context.now_ms);
        drop(context);
        let locks = HeldMore::default();
        let (ran, members) = (Vec::new(), Vec::new());
        Some(Batch { exec, locks, running, now_ms, durability, ran, beside: 0, bytes: 0, members })
    }

    /// Whether a command that has arrived by now may join it.
    pub fn accepts(&self, shared: &Shared, session: &Session) -> bool {
        session.durability == self.durability
            && self.exec.as_ref().is_some_and(|exec| session.own <= exec.snapshot_csn())
            && shared.db.now_ms() == self.now_ms
            && self.is_current(shared)
    }

    /// Whether another command may run beside it. It accepts none any more after its millisecond, so nothing is lost if it ends then.
    pub fn lets_one_run(&mut self, shared: &Shared) -> bool {
        self.beside += 1;
        self.beside <= BESIDE_MAX && shared.db.now_ms() == self.now_ms && self.is_current(shared)
    }

    /// Whether the databases have the keyspaces that they had when it began.
    fn is_current(&self, shared: &Shared) -> bool {
        shared.model.keyspaces.current() == self.running.map
    }

    /// Those keyspaces.
    pub fn keyspaces(&self) -> KeyspaceMap {
        self.running.map
    }

    /// Whether it has enough commands.
    pub fn is_full(&self) -> bool {
        self.bytes.max(self.written_bytes()) >= BYTES_MAX || self.ran.len() >= COMMANDS_MAX
    }

    fn written_bytes(&self) -> usize {
        self.exec.as_ref().map_or(0, |exec| exec.written_bytes())
    }

    /// Runs a command of so many bytes that may belong to it.
    pub fn run(
        &mut self,
        io: &mut Io<'s, '_>,
        session: &mut Session,
        out: &mut Vec<u8>,
        command: &'static Command,
        args: &Args<'_>,
        bytes: usize,
    ) -> Ran {
        let snapshot = self.exec.as_ref().map_or(Csn::ZERO, |exec| exec.snapshot_csn());
        let keys = command.keys_of(args);
        if !io.shared.locks.try_lock_more(&mut self.locks, snapshot, session.database, keys) {
            return Ran::Ends;
        }
        let start = out.len();
        let map = self.running.map;
        let mut context = Context::at(self.now_ms, io.shared, session, out, Runner::IoThread, io.counts, map);
        context.exec = self.exec.take();
        let exec = context.exec.as_ref().expect("no command runs");
        let before = exec.changes();
        let ran = catch_unwind(AssertUnwindSafe(|| command::run(&mut context, Some(command), args)));
        self.exec = context.exec.take();
        let counted = std::mem::take(&mut context.ran);
        drop(context);
        // No later read of the connection is older than what this transaction shows.
        session.own = session.own.max(snapshot);
        let has_written = self.exec.as_ref().is_none_or(|exec| exec.changes() != before);
        match ran {
            Ok(Ok(())) if self.written_bytes() < WRITTEN_BYTES_MAX => {}
            Ok(Err(Stop::Reply(error))) if !has_written => {
                out.truncate(start);
                Encoder::new(out, session.protocol).error(error.code, &error.message);
            }
            Ok(Err(Stop::Blocked(_) | Stop::Large | Stop::Paused)) if !has_written => {
                out.truncate(start);
                return Ran::Ends;
            }
            Ok(_) => {
                out.truncate(start);
                return Ran::Fails;
            }
            Err(_) => {
                out.truncate(start);
                tracing::error!("a command panicked; its connection is closed");
                return Ran::Panicked;
            }
        }
        self.ran.extend(counted);
        self.bytes += bytes;
        Ran::Replied
    }

    /// Commits it.
    pub fn commit(&mut self, shared: &Shared, counts: &mut Counts) -> Committed {
        let Some(exec) = self.exec.take() else { return Committed::GivenUp };
        let began_ns = shared.monotonic_ns();
        match exec.try_commit(&shared.model, counts) {
            Ok(commit) => {
                let commands = self.ran.len() as u64;
                // Each command has its share of the commit.
                let share_ns = (shared.monotonic_ns() - began_ns) / commands.max(1);
                self.ran.iter_mut().for_each(|ran| ran.processing_ns += share_ns);
                shared.commands.note_ran(counts.stripe, &self.ran, None);
                shared.commands.inline.fetch_add(commands, Ordering::Relaxed);
                let Numbered { csn, needs, .. } = commit;
                self.locks.note(csn);
                Committed::Done { csn, needs, commit: unacknowledged(self.durability, commit) }
            }
            Err(Stop::Unknown) => Committed::Unknown,
            Err(_) => Committed::GivenUp,
        }
    }
}
