//! Runs one command, on whatever thread, up to its reply.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use fulgurite::{Csn, Missing, Numbered};
use fulgurite_resp::Encoder;

use crate::args::Args;
use crate::command::{self, Command};
use crate::context::Context;
use crate::model::{Counts, KeyspaceMap};
use crate::runner::{Pool, Runner};
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::stop::{Result, Stop};
use crate::tallies::Reason;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its reply was appended, if its client gets one. It may leave once this commit is durable.
    /// What it acknowledges then, if that is a commit at a level that does not wait.
    Replied { needs: Csn, commit: Option<Numbered> },
    /// It has to wait, or to read from disk, or may take long, and these threads run it. Nothing happened.
    HandOn(Pool),
    /// Commands are paused, and it runs when they are not. Nothing happened.
    Paused,
    /// Whether it happened is unknown: the connection is closed.
    Close,
}

/// A command with more arguments than this runs on a long worker: others would wait for it.
pub(crate) const INLINE_ARGUMENTS_MAX: usize = 256;

/// Runs a command that was looked up, and appends its reply to `out`: on a worker, for which it waited so long, or on an I/O thread.
/// It uses the keyspaces of `beside`, a transaction of this thread that goes on.
#[expect(clippy::too_many_arguments, reason = "each is another thing")]
pub(crate) fn execute(
    shared: &Shared,
    session: &mut Session,
    command: Option<&'static Command>,
    args: &Args<'_>,
    out: &mut Vec<u8>,
    runner: Runner,
    waited_ns: Option<u64>,
    counts: &mut Counts,
    beside: Option<KeyspaceMap>,
) -> Outcome {
    let stripe = counts.stripe;
    let name = command.map(|command| command.name);
    let hand_on = |reason, pool| {
        shared.commands.note_handed_on(stripe, name.unwrap_or("unknown"), reason);
        Outcome::HandOn(pool)
    };
    if !runner.may_take_long() && args.len() > INLINE_ARGUMENTS_MAX {
        return hand_on(Reason::Size, Pool::Long);
    }
    let start = out.len();
    let running = beside.is_none().then(|| shared.model.keyspaces.begin(counts.stripe));
    let keyspaces = beside.or(running.as_ref().map(|running| running.map)).expect("one of the two is there");
    counts.forget_gone(&keyspaces);
    let mut context = Context::new(shared, session, out, runner, counts, keyspaces);
    let ran = catch_unwind(AssertUnwindSafe(|| run_with_current_keyspaces(&mut context, command, args)));
    let (needs, commit) = (context.needs, context.unacknowledged);
    let counted = std::mem::take(&mut context.ran);
    drop(context);
    drop(running);
    let Ok(result) = ran else {
        out.truncate(start);
        tracing::error!("a command panicked; its connection is closed");
        return Outcome::Close;
    };
    match result {
        Ok(()) => {}
        Err(Stop::Reply(error)) => {
            out.truncate(start);
            Encoder::new(out, session.protocol).error(error.code, &error.message);
            if counted.is_empty() {
                shared.commands.note_rejected(stripe, name, error.code);
            }
        }
        Err(stop) => {
            out.truncate(start);
            return match stop {
                Stop::Blocked(missing) => hand_on(missing.into(), Pool::of(missing)),
                Stop::Large => hand_on(Reason::Size, Pool::Long),
                Stop::Paused => Outcome::Paused,
                Stop::Unknown => Outcome::Close,
                Stop::Conflict => hand_on(Missing::Order.into(), Pool::Workers),
                Stop::Reply(_) => unreachable!("it is above"),
            };
        }
    }
    shared.commands.note_ran(stripe, &counted, waited_ns);
    let count = if runner.may_wait() { &shared.commands.at_workers } else { &shared.commands.inline };
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

/// Runs a command, again on a thread that waits if it turns out to have former keyspaces: nothing has happened then.
fn run_with_current_keyspaces(
    context: &mut Context<'_>,
    command: Option<&'static Command>,
    args: &Args<'_>,
) -> Result<()> {
    let start = context.reply_len();
    let began_ns = context.shared.monotonic_ns();
    loop {
        match command::run(context, command, args) {
            Err(Stop::Conflict) if context.still_waits(began_ns) => {
                context.truncate_reply(start);
                context.begin_again();
            }
            outcome => return outcome,
        }
    }
}
