//! A command that has arrived whole: runs in a batch, by itself, or on a worker.

use fulgurite_resp::{Event, Limits, Parser};
use smallvec::SmallVec;

use super::batch::{self, Batch};
use crate::Dispatch;
use crate::args::{Args, OwnedArgs};
use crate::command::{self, Command};
use crate::execute::{INLINE_ARGUMENTS_MAX, Outcome, execute};
use crate::model::{Counts, head_key};
use crate::session::{Replies, Session};
use crate::shared::Shared;

/// So many keys of commands that have arrived are prefetched together.
const PREFETCHED_KEYS_MAX: usize = 16;

/// What an I/O thread runs commands with.
pub(super) struct Io<'s, 'c> {
    pub shared: &'s Shared,
    pub counts: &'c mut Counts,
    /// What connections read into. They keep what arrived in a buffer of their own, which is no longer than that.
    pub buffer: &'c mut [u8],
    /// Its number.
    pub thread: usize,
}

/// Where a command is in the input.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub start: usize,
    pub end: usize,
    /// Whether a batch may begin with it.
    pub begins: bool,
}

/// How a command ran.
pub(super) enum Whole {
    /// In the batch, which ends after it or does not.
    InBatch { is_last: bool },
    /// It did not: the batch ends before it.
    BeforeEnd,
    /// It did not: the batch has to be given up.
    Fails,
    /// By itself; its reply begins at `start`.
    Alone { start: usize, outcome: Outcome },
    /// It did not, and a worker has to run it.
    ForWorker(OwnedArgs),
    /// It did not: commands are paused.
    Paused(OwnedArgs),
    /// Its connection has to be closed.
    Close,
}

/// Runs a command, and appends its reply to `out`.
pub(super) fn run_whole<'s>(
    io: &mut Io<'s, '_>,
    session: &mut Session,
    out: &mut Vec<u8>,
    batch: &mut Option<Batch<'s>>,
    at: At,
    args: &Args<'_>,
) -> Whole {
    let command = command::find(&args[0]);
    let joins = command.filter(|command| joins_batch(io.shared, session, command, args));
    if batch.is_none() && joins.is_some() && at.begins {
        *batch = Batch::begin(io, session, out, at.start);
    }
    if let Some(batch) = batch {
        let Some(command) = joins else { return Whole::BeforeEnd };
        return match batch.run(io, session, out, command, args) {
            batch::Ran::Replied => Whole::InBatch { is_last: batch.is_full(at.end) },
            batch::Ran::Ends => Whole::BeforeEnd,
            batch::Ran::Fails => Whole::Fails,
            batch::Ran::Panicked => Whole::Close,
        };
    }
    if is_http(args) {
        tracing::warn!(
            "a connection is closed: it sent an HTTP request, as a web page may to attack a local server"
        );
        return Whole::Close;
    }
    let start = out.len();
    let outcome = match io.shared.config.dispatch {
        Dispatch::Queue => Outcome::Blocked,
        Dispatch::Inline => execute(io.shared, session, command, args, out, false, io.counts),
    };
    match outcome {
        Outcome::Blocked => Whole::ForWorker(OwnedArgs::copy(args)),
        Outcome::Paused => Whole::Paused(OwnedArgs::copy(args)),
        Outcome::Close => Whole::Close,
        Outcome::Replied { .. } => Whole::Alone { start, outcome },
    }
}

/// Whether a command of this session may belong to a batch.
fn joins_batch(shared: &Shared, session: &Session, command: &Command, args: &Args<'_>) -> bool {
    command.joins()
        && command.takes(args.len())
        && args.len() <= INLINE_ARGUMENTS_MAX
        && shared.config.dispatch == Dispatch::Inline
        && session.is_authenticated
        && session.multi.is_none()
        && session.replies == Replies::On
}

/// Has the processor load what the commands at the begin of the input will look up. Returns where the first command begins of which it
/// does not.
pub(super) fn prefetch(shared: &Shared, session: &Session, input: &[u8]) -> usize {
    let keyspace = shared.model.keyspaces.of(session.database);
    let mut parser = Parser::new(Limits::default());
    parser.set_authenticated(session.is_authenticated);
    let mut keys = SmallVec::<[_; PREFETCHED_KEYS_MAX]>::new();
    let mut end = 0;
    while keys.len() < PREFETCHED_KEYS_MAX
        && let Ok(parsed) = parser.parse(&input[end..])
        && let Event::Command(arguments) = parsed.event
    {
        let args = Args::of(arguments);
        if let Some(command) = command::find(&args[0]).filter(|_| args.len() <= INLINE_ARGUMENTS_MAX) {
            let room = PREFETCHED_KEYS_MAX - keys.len();
            keys.extend(command.keys_of(&args).take(room).map(|key| head_key(keyspace, key)));
        }
        end += parsed.consumed_bytes;
    }
    shared.model.tables.heads.prefetch(keys);
    end
}

/// Whether a command is the beginning of an HTTP request. A browser sends one for any page, also to a server on its own machine; what
/// follows in it would be run.
fn is_http(args: &Args<'_>) -> bool {
    args.is(0, "post") || args.is(0, "host:")
}
