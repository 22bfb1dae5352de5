//! `EXEC` of commands that only read: they run in one snapshot, some for each piece of the reply.

use fulgurite::{Error, Snapshot};

use crate::args::OwnedArgs;
use crate::command;
use crate::context::Context;
use crate::long_reply::LongReply;
use crate::model::{Counts, KeyspaceMap, PIECE_BYTES};
use crate::runner::Runner;
use crate::session::Session;
use crate::shared::Shared;
use crate::stop::{Result, Stop};

/// A piece that is half as long ends: a reply that is long itself may begin after it.
const COMMANDS_BYTES_MAX: usize = PIECE_BYTES / 2;

/// Commands of a transaction that run at one commit and one time. While it lives, the database keeps what they read.
#[derive(Clone, Debug)]
pub(crate) struct LongExec {
    snapshot: Snapshot,
    now_ms: u64,
    keyspaces: KeyspaceMap,
    commands: Vec<OwnedArgs>,
    /// The first one that did not run.
    next: usize,
    /// What is left of the reply of the one before.
    rest: Option<Box<LongReply>>,
}

impl LongExec {
    /// Commands that run as this one does.
    pub fn new(context: &Context<'_>, snapshot: Snapshot, commands: Vec<OwnedArgs>) -> LongExec {
        let (now_ms, keyspaces) = (context.now_ms, context.keyspaces);
        LongExec { snapshot, now_ms, keyspaces, commands, next: 0, rest: None }
    }

    /// How many commands, and parts of a reply that was begun, are to come.
    pub fn left(&self) -> usize {
        self.commands.len() - self.next + self.rest.as_ref().map_or(0, |rest| rest.left())
    }

    /// Runs the next commands, and appends their replies, until these have the length of a piece.
    pub fn read_piece(
        &mut self,
        shared: &Shared,
        session: &mut Session,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        while out.len() - start < COMMANDS_BYTES_MAX {
            if let Some(rest) = &mut self.rest {
                let is_last = rest.read_piece(shared, session, counts, out)?;
                if !is_last {
                    break;
                }
                self.rest = None;
                continue;
            }
            let Some(args) = self.commands.get_mut(self.next) else { break };
            let args = std::mem::take(args);
            self.next += 1;
            self.rest = self.run(&args, shared, session, counts, out)?;
        }
        Ok(())
    }

    /// Runs a command. Returns what is left of its reply.
    fn run(
        &self,
        args: &OwnedArgs,
        shared: &Shared,
        session: &mut Session,
        counts: &mut Counts,
        out: &mut Vec<u8>,
    ) -> Result<Option<Box<LongReply>>> {
        let (start, stripe) = (out.len(), counts.stripe);
        let mut context =
            Context::at(self.now_ms, shared, session, out, Runner::LongWorker, counts, self.keyspaces);
        context.snapshot = Some(self.snapshot.clone());
        let ran = command::run_command(&mut context, &args.args());
        shared.commands.note_ran(stripe, &context.ran, Some(0));
        match ran {
            Ok(()) => Ok(context.session.long_reply.take()),
            Err(Stop::Reply(error)) => {
                // Nothing of what is to come can be read any more.
                if let Err(ended @ Error::SnapshotTooOld { .. }) =
                    self.snapshot.get(&shared.model.tables.heads, [0])
                {
                    return Err(ended.into());
                }
                context.truncate_reply(start);
                context.reply().error(error.code, &error.message);
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }
}
