//! Runs one command, on whatever thread, up to its reply.

use fulgurite::Csn;
use fulgurite_resp::Encoder;

use crate::args::Args;
use crate::command;
use crate::context::Context;
use crate::model::Counts;
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::stop::Stop;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its reply was appended, if its client gets one. It may leave once this commit is durable.
    Replied { needs: Csn },
    /// It has to wait, or to read from disk, and a worker runs it. Nothing happened.
    Blocked,
    /// Whether it happened is unknown: the connection is closed.
    Close,
}

/// Runs a command, and appends its reply to `out`.
pub(crate) fn execute(
    shared: &Shared,
    session: &mut Session,
    args: &Args<'_>,
    out: &mut Vec<u8>,
    may_wait: bool,
    counts: &mut Counts,
) -> Outcome {
    let start = out.len();
    let mut context = Context::new(shared, session, out, may_wait, counts);
    let result = command::run(&mut context, args);
    let needs = context.needs;
    match result {
        Ok(()) => {}
        Err(Stop::Reply(error)) => {
            out.truncate(start);
            Encoder::new(out, session.protocol).error(error.code, &error.message);
        }
        Err(Stop::Blocked(_) | Stop::Conflict) => {
            out.truncate(start);
            return Outcome::Blocked;
        }
        Err(Stop::Unknown) => {
            out.truncate(start);
            return Outcome::Close;
        }
    }
    if matches!(session.replies, Replies::Off | Replies::Skip) {
        out.truncate(start);
    }
    session.replies = match session.replies {
        Replies::SkipNext => Replies::Skip,
        Replies::Skip => Replies::On,
        replies => replies,
    };
    Outcome::Replied { needs }
}
