//! Runs one command, on whatever thread, up to its reply.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use fulgurite::{Csn, Numbered};
use fulgurite_resp::Encoder;

use crate::args::Args;
use crate::command::{self, Command};
use crate::context::Context;
use crate::model::{Counts, KeyspaceMap};
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::stop::Stop;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its reply was appended, if its client gets one. It may leave once this commit is durable.
    /// What it acknowledges then, if that is a commit at a level that does not wait.
    Replied { needs: Csn, commit: Option<Numbered> },
    /// It has to wait, or to read from disk, and a worker runs it. Nothing happened.
    Blocked,
    /// Commands are paused, and it runs when they are not. Nothing happened.
    Paused,
    /// Whether it happened is unknown: the connection is closed.
    Close,
}

/// A command with more arguments than this runs on a worker: others would wait for it.
pub(crate) const INLINE_ARGUMENTS_MAX: usize = 256;

/// Runs a command that was looked up, and appends its reply to `out`. It uses the keyspaces of `beside`, a transaction of this thread that
/// goes on.
#[expect(clippy::too_many_arguments, reason = "each is another thing")]
pub(crate) fn execute(
    shared: &Shared,
    session: &mut Session,
    command: Option<&'static Command>,
    args: &Args<'_>,
    out: &mut Vec<u8>,
    may_wait: bool,
    counts: &mut Counts,
    beside: Option<KeyspaceMap>,
) -> Outcome {
    if !may_wait && args.len() > INLINE_ARGUMENTS_MAX {
        shared.commands.hand_on_for_size();
        return Outcome::Blocked;
    }
    let start = out.len();
    let running = beside.is_none().then(|| shared.model.keyspaces.begin(counts.stripe));
    let keyspaces = beside.or(running.as_ref().map(|running| running.map)).expect("one of the two is there");
    counts.forget_gone(&keyspaces);
    let mut context = Context::new(shared, session, out, may_wait, counts, keyspaces);
    let ran = catch_unwind(AssertUnwindSafe(|| command::run(&mut context, command, args)));
    let (needs, commit) = (context.needs, context.unacknowledged);
    drop(context);
    drop(running);
    let Ok(result) = ran else {
        tracing::error!("a command panicked; its connection is closed");
        return Outcome::Close;
    };
    match result {
        Ok(()) => {}
        Err(Stop::Reply(error)) => {
            out.truncate(start);
            Encoder::new(out, session.protocol).error(error.code, &error.message);
        }
        Err(Stop::Blocked(missing)) => {
            shared.commands.hand_on(missing);
            out.truncate(start);
            return Outcome::Blocked;
        }
        Err(Stop::Large) => {
            shared.commands.hand_on_for_size();
            out.truncate(start);
            return Outcome::Blocked;
        }
        Err(Stop::Paused) => {
            out.truncate(start);
            return Outcome::Paused;
        }
        Err(Stop::Conflict) => unreachable!("a command that conflicts runs again"),
        Err(Stop::Unknown) => {
            out.truncate(start);
            return Outcome::Close;
        }
    }
    let count = if may_wait { &shared.commands.at_workers } else { &shared.commands.inline };
    count.fetch_add(1, Ordering::Relaxed);
    if matches!(session.replies, Replies::Off | Replies::Skip) {
        out.truncate(start);
        session.long_reply = None;
    }
    session.replies = match session.replies {
        Replies::SkipNext => Replies::Skip,
        Replies::Skip => Replies::On,
        replies => replies,
    };
    Outcome::Replied { needs, commit }
}
