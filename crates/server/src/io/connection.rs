//! One connection: its bytes, its commands, its replies.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite::{Csn, Numbered};
use fulgurite_resp::{Encoder, Event, Limits, Parser};
use mio::net::TcpStream;

use super::arriving::Arriving;
use super::batch::Batch;
use super::deadlines::LongReplyProgress;
use super::output::Output;
use super::whole::{ARGUMENTS_OF_ONE_KEY, Io, Joining, LookUps, Whole, prefetch, read_ahead, run_whole};
use crate::Dispatch;
use crate::args::{Args, OwnedArgs};
use crate::clients::Client;
use crate::execute::Outcome;
use crate::long_reply::UNSENT_BYTES_MAX;
use crate::model::INLINE_VALUE_BYTES_MAX;
use crate::runner::Pool;
use crate::session::Session;
use crate::shared::Shared;
use crate::worker::{Finished, Task, Work};

/// How many commands of one connection run, and how many times it is read then, before others have their turn.
pub(super) const STEPS_A_TURN: usize = 64;

/// A connection with a command for which a batch had to be given up joins none for so long, in milliseconds: if all batches fail, each
/// connection has ten of them fail a second, of at most as many commands as a batch may have.
const ALONE_MS: u64 = 100;

/// A command that was left for later for so long, in milliseconds, is left no more: others may go ahead of it each time, and a worker
/// waits for its turn.
const LEFT_MS_MAX: u64 = 500;

fn may_be_left(left_at_ms: Option<u64>, now_ms: u64) -> bool {
    left_at_ms.is_none_or(|at_ms| now_ms < at_ms + LEFT_MS_MAX)
}

/// An argument that is longer is taken out of the input piece by piece.
const PIECES_FROM_BYTES: usize = 64 << 10;

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An event of its socket, a worker, or a commit.
    Event,
    /// Another turn: it has more to do.
    Turn,
    /// Another turn once commits are not slowed.
    Later,
    /// To be closed.
    Close,
}

/// A turn of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// How many steps are left.
    pub steps: usize,
    /// Whether other connections have theirs after it, in this round.
    pub others_follow: bool,
    /// A monotonic time.
    pub now_ms: u64,
}

/// A command that ran: where its reply begins, how many bytes it had, and the token of its connection.
struct At {
    start: usize,
    bytes: usize,
    token: usize,
}

/// How a turn ended, or why it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    Ended(Next),
    /// The batch has to be committed before it goes on.
    EndsBatch,
    /// The batch has to be given up.
    FailsBatch,
    /// The same, and the connection has to be closed.
    Panicked,
}

/// A connection.
pub(super) struct Connection {
    pub stream: TcpStream,
    /// What other threads see of it.
    pub client: Arc<Client>,
    /// `None` while a worker has it.
    session: Option<Box<Session>>,
    parser: Parser,
    argument_bytes_max: usize,
    /// What arrived, from the first byte on that is not consumed.
    input: Vec<u8>,
    consumed: usize,
    /// Where its commands in a batch begin, which is not committed yet: from there on the input stays.
    in_batch: Option<usize>,
    /// What had arrived up to here had done so when the batch accepted a command.
    accepted_until: usize,
    /// The commands up to here run by themselves: a batch of them was given up.
    alone_until: usize,
    /// Until this monotonic time all do.
    alone_until_ms: u64,
    /// What the commands up to here look up was prefetched.
    prefetched_until: usize,
    /// What the commands up to here look up is being read, if it is on disk.
    read_ahead_until: usize,
    /// A command with large arguments that is arriving.
    large: Option<Arriving>,
    /// A command that runs once commands are not paused any more.
    paused: Option<OwnedArgs>,
    /// How many bytes the command has that a worker runs.
    at_worker_bytes: usize,
    pub output: Output,
    /// The socket may have more to read.
    is_readable: bool,
    /// The end of what the client sends has arrived, after what is still to be read.
    sees_end: bool,
    /// The client sends nothing more.
    has_ended: bool,
    /// The socket failed.
    has_failed: bool,
    /// No command is read any more; it is closed once its replies are sent.
    is_closing: bool,
    /// The commit with which it is among the connections that wait.
    pub waits_for: Option<Csn>,
    /// It is among those that have another turn.
    pub has_turn: bool,
    /// It is among those that have replies which may be sent.
    pub is_in_outbox: bool,
    /// When the command that comes next was left for later, a monotonic time.
    left_at_ms: Option<u64>,
    /// It is among those whose commands run later.
    pub is_slowed: bool,
    /// It is among those that have a command that is paused.
    pub is_paused: bool,
    /// Since when it has more replies unsent than the soft limit: a monotonic time.
    pub over_soft_limit_ms: Option<u64>,
    /// How far its client has taken a long reply, when that was last looked at.
    pub long_reply: Option<LongReplyProgress>,
    /// When it sent a command last, by [`super::activity::Activity`].
    pub active_in: u64,
}

impl Connection {
    pub fn new(stream: TcpStream, session: Session, argument_bytes_max: usize) -> Connection {
        let mut parser = Parser::new(limits(argument_bytes_max));
        parser.set_authenticated(session.is_authenticated);
        Connection {
            stream,
            client: session.client.clone(),
            session: Some(Box::new(session)),
            parser,
            argument_bytes_max,
            input: Vec::new(),
            consumed: 0,
            in_batch: None,
            accepted_until: 0,
            alone_until: 0,
            alone_until_ms: 0,
            prefetched_until: 0,
            read_ahead_until: 0,
            large: None,
            paused: None,
            at_worker_bytes: 0,
            output: Output::default(),
            is_readable: true,
            sees_end: false,
            has_ended: false,
            has_failed: false,
            is_closing: false,
            waits_for: None,
            has_turn: false,
            is_in_outbox: false,
            left_at_ms: None,
            is_slowed: false,
            is_paused: false,
            over_soft_limit_ms: None,
            long_reply: None,
            active_in: 0,
        }
    }

    /// The socket is ready.
    pub fn note_ready(&mut self, is_readable: bool, sees_end: bool) {
        self.is_readable |= is_readable || sees_end;
        self.sees_end |= sees_end;
    }

    /// No command is read any more.
    pub fn begin_close(&mut self) {
        self.is_closing = true;
    }

    /// Whether it sent `SHUTDOWN`.
    pub fn has_shut_down(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_shut_down)
    }

    /// Whether a worker runs a command of it.
    pub fn is_at_worker(&self) -> bool {
        self.session.is_none()
    }

    /// A worker ran its command. Returns false if the connection has to be closed.
    pub fn finish(&mut self, finished: Finished) -> bool {
        let Finished { session, reply, outcome, paused, storing, .. } = finished;
        if outcome != Outcome::Close {
            let start = self.output.bytes.len();
            self.output.append(reply);
            self.note(start, outcome, &session);
        }
        self.session = Some(session);
        self.paused = paused;
        self.at_worker_bytes = 0;
        if let Some(storing) = storing {
            self.large.get_or_insert_default().go_on(storing);
        }
        outcome != Outcome::Close && !self.client.is_killed()
    }

    /// Whether it has a command that is paused.
    pub fn has_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Whether its next command may be left for later still.
    pub fn may_be_left(&self, now_ms: u64) -> bool {
        may_be_left(self.left_at_ms, now_ms)
    }

    /// Commands are not paused any more: a worker runs the one that was.
    pub fn resume(&mut self, shared: &Shared, thread: usize, token: usize) {
        if let Some(args) = self.paused.take() {
            let session = self.session.take().expect("no worker has it");
            let queued_ns = shared.monotonic_ns();
            self.at_worker_bytes = args.bytes();
            let work = Work::Command(args);
            shared.queues.push(Task { thread, token, session, work, pool: Pool::Workers, queued_ns });
        }
    }

    /// How many bytes of its last reply were not read yet. 0 while a worker reads some.
    pub fn long_reply_left(&self) -> usize {
        self.session.as_ref().and_then(|session| session.long_reply.as_ref()).map_or(0, |reply| reply.left())
    }

    /// Has a worker read the next piece of its last reply, if little is unsent.
    pub fn continue_reply(&mut self, shared: &Shared, thread: usize, token: usize) {
        let is_due = self.output.unsent() < UNSENT_BYTES_MAX;
        if let Some(session) = self.session.take_if(|session| is_due && session.long_reply.is_some()) {
            let queued_ns = shared.monotonic_ns();
            let pool = session.long_reply.as_ref().map_or(Pool::Workers, |reply| reply.pool());
            let work = Work::ReadPiece;
            shared.queues.push(Task { thread, token, session, work, pool, queued_ns });
        }
    }

    /// Notes the outcome of a command whose reply begins at `start`.
    fn note(&mut self, start: usize, outcome: Outcome, session: &Session) {
        if let Outcome::Replied { needs, commit } = outcome
            && needs > Csn::ZERO
            && self.output.bytes.len() > start
        {
            self.output.hold(start, needs, commit);
        }
        self.parser.set_authenticated(session.is_authenticated);
        self.is_closing |= session.has_quit;
    }

    /// Runs commands, as many as a turn has left, and reads what the socket has of more. Others have a turn after it or not.
    pub fn take_turn<'s>(
        &mut self,
        mut io: Io<'s, '_>,
        batch: &mut Option<Batch<'s>>,
        token: usize,
        turn: &mut Turn,
    ) -> Turned {
        let argument_bytes_max = io.shared.settings.argument_bytes_max();
        if argument_bytes_max != self.argument_bytes_max {
            self.argument_bytes_max = argument_bytes_max;
            self.parser.set_limits(limits(argument_bytes_max));
        }
        let turned = self.take_steps(&mut io, batch, token, turn);
        self.show();
        turned
    }

    /// Shows its state to other threads.
    fn show(&self) {
        if let Some(session) = &self.session {
            self.client.show(session);
        }
    }

    /// Shows how much its buffers take.
    pub fn show_memory(&self) {
        let input_bytes = self.held_bytes() + self.parser.memory_bytes() + self.at_worker_bytes;
        self.client.input_bytes.store(input_bytes, Relaxed);
        self.client.unsent_bytes.store(self.output.unsent(), Relaxed);
        self.client.count_memory();
    }

    fn take_steps<'s>(
        &mut self,
        io: &mut Io<'s, '_>,
        batch: &mut Option<Batch<'s>>,
        token: usize,
        turn: &mut Turn,
    ) -> Turned {
        while turn.steps > 0 {
            turn.steps -= 1;
            if self.client.is_killed() || self.has_failed {
                return Turned::Ended(Next::Close);
            }
            match self.run_command(io, batch, token, turn) {
                Ran::Command => {}
                Ran::BatchEnds => return Turned::EndsBatch,
                Ran::BatchFails => return Turned::FailsBatch,
                Ran::Panicked => return Turned::Panicked,
                Ran::Event => return Turned::Ended(self.next()),
                Ran::Later => return Turned::Ended(Next::Later),
                Ran::Close => return Turned::Ended(Next::Close),
                Ran::Nothing if self.holds_too_much(io.shared) => return Turned::Ended(Next::Close),
                Ran::Nothing => match self.read(io.buffer) {
                    Ok(true) => {}
                    Ok(false) => return Turned::Ended(self.next()),
                    Err(_) => return Turned::Ended(Next::Close),
                },
            }
        }
        Turned::Ended(Next::Turn)
    }

    /// Whether commands of it are in the batch that goes on.
    pub fn is_in_batch(&self) -> bool {
        self.in_batch.is_some()
    }

    /// The batch is committed: notes what its replies need.
    pub fn batch_is_committed(&mut self, csn: Csn, needs: Csn, commit: Option<Numbered>) {
        let session = self.session.as_mut().expect("no worker has it");
        session.own = session.own.max(csn);
        self.output.batch_is_committed(needs, commit);
        self.in_batch = None;
        self.left_at_ms = None;
        self.drop_consumed();
    }

    /// Nothing of the batch happened: takes its commands back, with their replies. They run again, each by itself.
    pub fn give_up_batch(&mut self) {
        let Some(input_at) = self.in_batch.take() else { return };
        self.output.give_up_batch();
        self.alone_until = self.alone_until.max(self.consumed);
        self.consumed = input_at;
        self.parser.restart();
    }

    /// Whether the command that is arriving is longer than it may be.
    fn holds_too_much(&self, shared: &Shared) -> bool {
        let held = self.held_bytes();
        let is_too_much = held > shared.settings.query_bytes_max();
        if is_too_much {
            tracing::warn!(
                bytes = held,
                "a connection is closed: its command is longer than query_bytes_max"
            );
        }
        is_too_much
    }

    /// How many bytes arrived that were not run yet.
    fn held_bytes(&self) -> usize {
        self.input.len()
            + self.large.as_ref().map_or(0, Arriving::bytes)
            + self.paused.as_ref().map_or(0, OwnedArgs::bytes)
    }

    fn next(&self) -> Next {
        let has_sent_all = self.output.unsent() == 0 && self.long_reply_left() == 0;
        // Commands that were taken back from a batch have no replies yet.
        let has_run_all = self.paused.is_none() && self.consumed >= self.alone_until;
        let is_done = self.is_closing || (self.has_ended && has_run_all);
        if is_done && has_sent_all && self.session.is_some() { Next::Close } else { Next::Event }
    }

    /// Whether it may run commands now.
    fn takes_commands(&self, shared: &Shared) -> bool {
        !self.is_closing
            && self.session.as_ref().is_some_and(|session| session.long_reply.is_none())
            && self.paused.is_none()
            && self.output.unsent() < shared.config.unsent_bytes_max
    }

    /// Runs the next command that has arrived, in the batch if it may join that.
    fn run_command<'s>(
        &mut self,
        io: &mut Io<'s, '_>,
        batch: &mut Option<Batch<'s>>,
        token: usize,
        turn: &Turn,
    ) -> Ran {
        if !self.takes_commands(io.shared) {
            return Ran::Event;
        }
        let is_member = self.in_batch.is_some();
        let Connection { parser, input, consumed, large, session, output, .. } = self;
        let ahead = &input[*consumed..];
        let parsed = match parser.parse(ahead) {
            Ok(parsed) => parsed,
            Err(_) if is_member => return Ran::BatchEnds,
            Err(error) => {
                let protocol = session.as_ref().map(|session| session.protocol).unwrap_or_default();
                Encoder::new(&mut output.bytes, protocol).error("ERR", &error.to_string());
                self.is_closing = true;
                return Ran::Event;
            }
        };
        let bytes = parsed.consumed_bytes;
        let mut work = None;
        let ran = match parsed.event {
            Event::Incomplete { .. } => Ran::Nothing,
            // It is taken apart from the input, which has to stay.
            Event::Arguments(_) | Event::Piece(_) | Event::End if is_member => {
                parser.restart();
                return Ran::BatchEnds;
            }
            Event::Arguments(arguments) => {
                large.get_or_insert_default().push(arguments);
                Ran::Command
            }
            Event::Piece(piece) => {
                let large = large.as_mut().expect("arguments come before their pieces");
                let session = session.as_ref().expect("no worker has it");
                work = large.push_piece(io.shared, session, piece).map(Work::Store);
                Ran::Command
            }
            Event::End => {
                work = large.take().map(|large| Work::Command(large.finish()));
                Ran::Command
            }
            Event::Command(arguments) => {
                let session = session.as_mut().expect("no worker has it");
                let has_more = bytes < ahead.len();
                let looks_up_several = has_more || arguments.len() > ARGUMENTS_OF_ONE_KEY;
                if looks_up_several && *consumed >= self.prefetched_until {
                    self.prefetched_until = *consumed + prefetch(io, session, ahead);
                }
                let may = *consumed >= self.alone_until && turn.now_ms >= self.alone_until_ms;
                let begins = may && (has_more || turn.others_follow);
                let is_accepted = is_member && *consumed < self.accepted_until;
                let was_given_up = *consumed < self.alone_until;
                let may_be_left = !was_given_up && may_be_left(self.left_at_ms, turn.now_ms);
                let joining = Joining { is_member, is_accepted, may, begins, may_be_left, bytes };
                let start = output.bytes.len();
                let whole = run_whole(io, session, &mut output.bytes, batch, joining, &Args::of(arguments));
                return self.ran_whole(io, whole, At { start, bytes, token }, batch, turn);
            }
        };
        self.consume(bytes);
        match work {
            Some(work) => self.hand_on(io, pool_of_arrived(&work), work, token),
            None => ran,
        }
    }

    /// A command ran.
    fn ran_whole(
        &mut self,
        io: &Io<'_, '_>,
        whole: Whole,
        At { start, bytes, token }: At,
        batch: &mut Option<Batch<'_>>,
        turn: &Turn,
    ) -> Ran {
        self.left_at_ms = match whole {
            Whole::Later => self.left_at_ms.or(Some(turn.now_ms)),
            Whole::Alone { .. } | Whole::ForWorker { .. } | Whole::Paused(_) | Whole::Close => None,
            // Until it is committed.
            _ => self.left_at_ms,
        };
        match whole {
            Whole::InBatch { is_last } => {
                // The input stays until the batch is committed.
                if self.in_batch.is_none() || self.consumed >= self.accepted_until {
                    self.accepted_until = self.input.len();
                }
                if self.in_batch.is_none() {
                    self.in_batch = Some(self.consumed);
                    self.output.begin_batch(start);
                    batch.as_mut().expect("it ran in it").members.push(token);
                }
                self.consumed += bytes;
                if is_last { Ran::BatchEnds } else { Ran::Command }
            }
            Whole::BeforeEnd => Ran::BatchEnds,
            Whole::AloneAfterEnd => {
                self.alone_until = self.consumed + bytes;
                Ran::BatchEnds
            }
            Whole::Fails => {
                self.alone_until = self.consumed + bytes;
                self.alone_until_ms = turn.now_ms + ALONE_MS;
                Ran::BatchFails
            }
            Whole::Panicked => Ran::Panicked,
            Whole::Alone { outcome } => {
                self.consume(bytes);
                let session = self.session.take().expect("no worker has it");
                self.note(start, outcome, &session);
                self.session = Some(session);
                Ran::Command
            }
            Whole::ForWorker { args, pool } => {
                if pool == Pool::Workers && io.shared.config.dispatch == Dispatch::Inline {
                    self.read_ahead_from_disk(io.shared);
                }
                self.consume(bytes);
                self.hand_on(io, pool, Work::Command(args), token)
            }
            Whole::Later => Ran::Later,
            Whole::Paused(args) => {
                self.consume(bytes);
                self.paused = Some(args);
                Ran::Command
            }
            Whole::Close => Ran::Close,
        }
    }

    /// The command that comes next runs on a worker: what it and those behind it look up is read meanwhile.
    fn read_ahead_from_disk(&mut self, shared: &Shared) {
        if self.consumed >= self.read_ahead_until {
            let session = self.session.as_ref().expect("no worker has it");
            self.read_ahead_until = self.consumed + read_ahead(shared, session, &self.input[self.consumed..]);
        }
    }

    /// Has a thread of a pool do something.
    fn hand_on(&mut self, io: &Io<'_, '_>, pool: Pool, work: Work, token: usize) -> Ran {
        let session = self.session.take().expect("no worker has it");
        let queued_ns = io.shared.monotonic_ns();
        self.at_worker_bytes = match &work {
            Work::Command(args) => args.bytes(),
            // The connection counts what arrives of a value.
            Work::ReadPiece | Work::Store(_) => 0,
        };
        io.shared.queues.push(Task { thread: io.thread, token, session, work, pool, queued_ns });
        Ran::Event
    }

    /// Reads what has arrived, before the connection has its turn, and adds what its command looks up. Several commands, or one with several
    /// keys, are enough to be prefetched by themselves.
    pub fn read_ahead(&mut self, shared: &Shared, buffer: &mut [u8], look_ups: &mut LookUps) {
        let has_input = self.consumed < self.input.len() || self.in_batch.is_some() || self.large.is_some();
        if has_input || self.client.is_killed() || !self.takes_commands(shared) {
            return;
        }
        match self.read(buffer) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => return self.has_failed = true,
        }
        let session = self.session.as_ref().expect("it takes commands");
        if look_ups.add_single(shared, session, &self.input) {
            self.prefetched_until = self.input.len();
        }
    }

    /// Drops consumed input.
    fn consume(&mut self, bytes: usize) {
        self.consumed += bytes;
        self.drop_consumed();
    }

    fn drop_consumed(&mut self) {
        self.parser.release();
        if self.consumed == self.input.len() && self.in_batch.is_none() {
            // Thousands of connections may be idle: none of them keeps a buffer.
            self.input = Vec::new();
            (self.consumed, self.alone_until) = (0, 0);
            (self.prefetched_until, self.read_ahead_until) = (0, 0);
        }
    }

    /// Reads once. False if there is nothing to read now.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<bool> {
        if self.has_ended || !self.is_readable {
            return Ok(false);
        }
        if self.consumed > 0 && self.in_batch.is_none() {
            self.input.drain(..self.consumed);
            self.alone_until = self.alone_until.saturating_sub(self.consumed);
            self.prefetched_until = self.prefetched_until.saturating_sub(self.consumed);
            self.read_ahead_until = self.read_ahead_until.saturating_sub(self.consumed);
            self.consumed = 0;
        }
        let read = loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(0) => {
                self.has_ended = true;
                Ok(false)
            }
            Ok(len) => {
                self.input.extend_from_slice(&buffer[..len]);
                // Fewer bytes than there was room for are all that there were: the next ones are an event.
                self.is_readable = len == buffer.len() || self.sees_end;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads and drops what has arrived, before the socket is closed: one with unread input is reset, and replies on their way are lost.
    pub fn drop_unread(&mut self, buffer: &mut [u8]) {
        for _ in 0..STEPS_A_TURN {
            match self.stream.read(buffer) {
                Ok(len) if len > 0 => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// Sends what may be sent at once. Returns what it needs next.
    pub fn send(&mut self) -> Next {
        let unsent = self.output.unsent();
        let Ok(takes_more) = self.output.send(&mut self.stream) else { return Next::Close };
        // Commands were not read while too much was unsent.
        let may_read = self.output.unsent() < unsent && self.session.is_some() && self.has_input();
        match self.next() {
            Next::Event if takes_more || may_read => Next::Turn,
            next => next,
        }
    }

    fn has_input(&self) -> bool {
        !self.is_closing && (self.consumed < self.input.len() || self.is_readable)
    }
}

fn limits(argument_bytes_max: usize) -> Limits {
    Limits { argument_bytes_max, pieces_from_bytes: PIECES_FROM_BYTES, ..Limits::default() }
}

/// The result of looking for a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ran {
    /// One ran, or a part of one was taken.
    Command,
    /// None has arrived.
    Nothing,
    /// None may run now.
    Event,
    /// None may run before commits are not slowed.
    Later,
    /// The batch ends: before what comes next, or because it is full.
    BatchEnds,
    /// The batch cannot be committed.
    BatchFails,
    /// The same, and the connection has to be closed.
    Panicked,
    /// The connection has to be closed.
    Close,
}

/// The pool for what came of a large argument.
fn pool_of_arrived(work: &Work) -> Pool {
    match work {
        Work::Command(args) if args.bytes() <= INLINE_VALUE_BYTES_MAX => Pool::Workers,
        Work::Command(_) => Pool::Long,
        // Stored pieces are commits, which wait for room.
        Work::Store(_) | Work::ReadPiece => Pool::Waiting,
    }
}
