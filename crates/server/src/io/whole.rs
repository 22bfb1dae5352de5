//! A command that has arrived whole: runs in a batch, by itself, or on a worker.

use std::sync::atomic::Ordering;

use fulgurite_resp::{Event, Limits, Parser};

use super::batch::{self, Batch};
use crate::Dispatch;
use crate::args::{Args, OwnedArgs};
use crate::command::{self, Command};
use crate::execute::{INLINE_ARGUMENTS_MAX, Outcome, execute};
use crate::model::{Counts, LookUp, TableKey, head_key};
use crate::runner::{Pool, Runner};
use crate::session::{Replies, Session};
use crate::shared::Shared;
use crate::tallies::Reason;

/// So many keys of commands that have arrived are prefetched together.
const PREFETCHED_KEYS_MAX: usize = 32;

/// Fields and members with longer names, and keys, are not: each connection that has its turn may have one.
const MEMBER_BYTES_MAX: usize = 1 << 10;

/// A command with more arguments may have several keys.
pub(super) const ARGUMENTS_OF_ONE_KEY: usize = 4;

/// What an I/O thread runs commands with.
pub(super) struct Io<'s, 'c> {
    pub shared: &'s Shared,
    pub counts: &'c mut Counts,
    /// Empty.
    pub look_ups: &'c mut LookUps,
    /// What connections read into. They keep what arrived in a buffer of their own, which is no longer than that.
    pub buffer: &'c mut [u8],
    /// Its number.
    pub thread: usize,
}

/// How a command stands to batches.
#[derive(Clone, Copy)]
pub(super) struct Joining {
    /// Whether commands of its connection are in the batch: it comes after them.
    pub is_member: bool,
    /// Whether it had arrived when the batch accepted one of them.
    pub is_accepted: bool,
    /// Whether it may run in one.
    pub may: bool,
    /// Whether others may follow it in one: if there is none, one begins.
    pub begins: bool,
    /// Whether it may be left for later.
    pub may_be_left: bool,
    /// How many bytes it has.
    pub bytes: usize,
}

/// How a command ran.
pub(super) enum Whole {
    /// In the batch, which ends after it or does not.
    InBatch { is_last: bool },
    /// It did not: the batch ends before it.
    BeforeEnd,
    /// It did not: the batch ends before it, and it runs by itself.
    AloneAfterEnd,
    /// It did not: the batch has to be given up.
    Fails,
    /// By itself.
    Alone { outcome: Outcome },
    /// It did not, and a worker has to run it.
    ForWorker { args: OwnedArgs, pool: Pool },
    /// It did not, and is not consumed: commits are slowed.
    Later,
    /// It did not: commands are paused.
    Paused(OwnedArgs),
    /// Its connection has to be closed.
    Close,
    /// In the batch, which has to be given up, and its connection to be closed.
    Panicked,
}

/// Runs a command, and appends its reply to `out`.
pub(super) fn run_whole<'s>(
    io: &mut Io<'s, '_>,
    session: &mut Session,
    out: &mut Vec<u8>,
    batch: &mut Option<Batch<'s>>,
    joining: Joining,
    args: &Args<'_>,
) -> Whole {
    let command = command::find(&args[0]);
    let joins = command.filter(|command| joins_batch(io.shared, session, command, args));
    let mut accepts = joining.is_accepted;
    if batch.is_none() && joins.is_some() && joining.may_be_left && !io.shared.db.commit_delay().is_zero() {
        io.shared.commands.left_for_later.fetch_add(1, Ordering::Relaxed);
        return Whole::Later;
    }
    let joins = joins.filter(|_| joining.may);
    if batch.is_none() && joins.is_some() && joining.begins {
        *batch = Batch::begin(io, session);
        accepts = true;
    }
    if let Some(batch) = batch {
        match joins {
            Some(command) if accepts || batch.accepts(io.shared, session) => {
                return match batch.run(io, session, out, command, args, joining.bytes) {
                    batch::Ran::Replied => Whole::InBatch { is_last: batch.is_full() },
                    batch::Ran::Ends => Whole::AloneAfterEnd,
                    batch::Ran::Fails => Whole::Fails,
                    batch::Ran::Panicked => Whole::Panicked,
                };
            }
            None if !joining.is_member && reads_beside(io.shared, session, command, batch) => {}
            _ => return Whole::BeforeEnd,
        }
    }
    if is_http(args) {
        tracing::warn!(
            "a connection is closed: it sent an HTTP request, as a web page may to attack a local server"
        );
        return Whole::Close;
    }
    let outcome = match reason_to_hand_on(io.shared, session, command, args) {
        Some(reason) => {
            let name = command.map_or("unknown", |command| command.name);
            io.shared.commands.note_handed_on(io.counts.stripe, name, reason);
            Outcome::HandOn(Pool::Workers)
        }
        None => {
            let map = batch.as_ref().map(Batch::keyspaces);
            execute(io.shared, session, command, args, out, Runner::IoThread, None, io.counts, map)
        }
    };
    match outcome {
        Outcome::HandOn(pool) => Whole::ForWorker { args: OwnedArgs::copy(args), pool },
        Outcome::Paused => Whole::Paused(OwnedArgs::copy(args)),
        Outcome::Close => Whole::Close,
        Outcome::Replied { .. } => Whole::Alone { outcome },
    }
}

/// Why a worker runs a command that this thread does not try to run.
fn reason_to_hand_on(
    shared: &Shared,
    session: &Session,
    command: Option<&Command>,
    args: &Args<'_>,
) -> Option<Reason> {
    let is_read = |command: &&Command| {
        command.has_flag("readonly")
            && command.has_keys()
            && args.len() <= INLINE_ARGUMENTS_MAX
            && session.multi.is_none()
    };
    match (shared.config.dispatch, command.filter(is_read)) {
        (Dispatch::Inline, _) => None,
        (Dispatch::Queue, _) | (Dispatch::Filter, None) => Some(Reason::Dispatch),
        (Dispatch::Filter, Some(command)) => {
            let keyspace = shared.model.keyspaces.of(session.database);
            let may_contain = |key| {
                let filter = shared.model.tables.heads.memtables_may_contain(head_key(keyspace, key));
                filter.map_or(true, |filter| filter.may_contain)
            };
            command.keys_of(args).any(may_contain).then_some(Reason::Filter)
        }
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

/// Whether a command may run while a batch of other connections goes on: it reads what is acknowledged, in the same keyspaces.
fn reads_beside(
    shared: &Shared,
    session: &Session,
    command: Option<&Command>,
    batch: &mut Batch<'_>,
) -> bool {
    command.is_some_and(|command| command.has_flag("readonly"))
        && session.multi.is_none()
        && batch.lets_one_run(shared)
}

/// What commands that have arrived will look up. An I/O thread fills and empties the same again and again.
pub(super) struct LookUps {
    /// It consumes none of what has arrived.
    parser: Parser,
    rows: Rows,
}

#[derive(Default)]
struct Rows {
    keys: Vec<TableKey>,
    /// Rows of the heads, and names of fields or members.
    members: Vec<(TableKey, TableKey)>,
}

impl LookUps {
    pub fn new() -> LookUps {
        LookUps { parser: Parser::new(Limits::default()), rows: Rows::default() }
    }

    /// Adds those of the commands at the begin of the input. Returns where the first command begins of which it does not.
    fn add_input(&mut self, shared: &Shared, session: &Session, input: &[u8]) -> usize {
        let mut end = 0;
        while self.rows.keys.len() < PREFETCHED_KEYS_MAX
            && let Some((args, bytes)) = parse(&mut self.parser, session, &input[end..])
        {
            self.rows.add(shared, session, &args);
            end += bytes;
        }
        end
    }

    /// Adds those of a command with one key, if it is all that there is of the input; returns whether it is.
    pub fn add_single(&mut self, shared: &Shared, session: &Session, input: &[u8]) -> bool {
        let Some((args, bytes)) = parse(&mut self.parser, session, input) else { return false };
        let is_single = bytes == input.len() && args.len() <= ARGUMENTS_OF_ONE_KEY;
        if is_single {
            self.rows.add(shared, session, &args);
        }
        is_single
    }

    /// Has the processor load it, if that is more than one look-up, and forgets it.
    pub fn prefetch(&mut self, shared: &Shared) {
        let mut rows = std::mem::take(&mut self.rows);
        if rows.keys.len() > 1 {
            shared.model.tables.heads.prefetch(&rows.keys);
        }
        if rows.members.len() > 1 {
            shared.model.prefetch_members(&rows.members);
        }
        self.parser.release();
        rows.keys.clear();
        rows.members.clear();
        // If it panicked, they are gone, and with them what it panicked at.
        self.rows = rows;
    }
}

impl Rows {
    /// Adds those of a command.
    fn add(&mut self, shared: &Shared, session: &Session, args: &Args<'_>) {
        let is_short = args.len() <= INLINE_ARGUMENTS_MAX;
        let Some(command) = command::find(&args[0]).filter(|_| is_short) else { return };
        let keyspace = shared.model.keyspaces.of(session.database);
        let room = PREFETCHED_KEYS_MAX - self.keys.len();
        self.keys.extend(command.keys_of(args).take(room).map(|key| head_key(keyspace, key)));
        let member = args.get(1).zip(command.member_of(args));
        let short = member.filter(|(key, name)| key.len() + name.len() <= MEMBER_BYTES_MAX);
        self.members.extend(short.map(|(key, name)| (head_key(keyspace, key), TableKey::from_slice(name))));
    }
}

/// Has the processor load what the commands at the begin of the input look up. Returns where the first command begins of which it does not.
pub(super) fn prefetch(io: &mut Io<'_, '_>, session: &Session, input: &[u8]) -> usize {
    let end = io.look_ups.add_input(io.shared, session, input);
    io.look_ups.prefetch(io.shared);
    end
}

/// A worker will run the first command of the input: has the rows read meanwhile that are on disk of those that its keys but the first one
/// name, and the commands behind it. Returns where the first command begins of which it has not.
pub(super) fn read_ahead(shared: &Shared, session: &Session, input: &[u8]) -> usize {
    let mut look_ups = LookUps::new();
    let end = look_ups.add_input(shared, session, input);
    let Rows { keys, members } = look_ups.rows;
    if keys.len() > 1 {
        let rows = keys.into_iter().skip(1).map(|row| LookUp { row, name: None });
        let names = members.into_iter().map(|(row, name)| LookUp { row, name: Some(name) });
        shared.read_ahead.push(rows.chain(names).filter(|look_up| shared.model.is_on_disk(look_up)));
    }
    end
}

/// The command at the begin of the input, and how many bytes it has.
fn parse<'a>(parser: &'a mut Parser, session: &Session, input: &'a [u8]) -> Option<(Args<'a>, usize)> {
    parser.restart();
    parser.set_authenticated(session.is_authenticated);
    let parsed = parser.parse(input).ok()?;
    let Event::Command(arguments) = parsed.event else { return None };
    Some((Args::of(arguments), parsed.consumed_bytes))
}

/// Whether a command is the beginning of an HTTP request. A browser sends one for any page, also to a server on its own machine; what
/// follows in it would be run.
fn is_http(args: &Args<'_>) -> bool {
    args.is(0, "post") || args.is(0, "host:")
}
