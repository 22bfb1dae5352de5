//! One connection: its bytes, its commands, its replies.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fulgurite::Csn;
use fulgurite_resp::{Encoder, Event, Limits, Parser};
use mio::net::TcpStream;

use super::batch::{Batch, Committed};
use super::output::Output;
use super::whole::{At, Io, Whole, prefetch, run_whole};
use crate::args::{Args, OwnedArgs};
use crate::clients::Client;
use crate::execute::Outcome;
use crate::session::Session;
use crate::shared::Shared;
use crate::worker::{Finished, Task};

/// How many commands of one connection run, and how many times it is read, before others have their turn.
const STEPS_A_TURN: usize = 64;

/// An argument that is longer is collected apart from the input.
const PIECES_FROM_BYTES: usize = 64 << 10;

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An event of its socket, a worker, or a commit.
    Event,
    /// Another turn: it has more to do.
    Turn,
    /// To be closed.
    Close,
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
    /// The commands up to here run by themselves: a batch of them was given up.
    alone_until: usize,
    /// What the commands up to here look up was prefetched.
    prefetched_until: usize,
    /// A command with large arguments that is arriving.
    large: Option<OwnedArgs>,
    /// A command that runs once commands are not paused any more.
    paused: Option<OwnedArgs>,
    pub output: Output,
    /// The socket may have more to read.
    is_readable: bool,
    /// The end of what the client sends has arrived, after what is still to be read.
    sees_end: bool,
    /// The client sends nothing more.
    has_ended: bool,
    /// No command is read any more; it is closed once its replies are sent.
    is_closing: bool,
    /// It is among the connections that wait for commits.
    pub is_waiting: bool,
    /// It is among those that have another turn.
    pub has_turn: bool,
    /// It is among those that have a command that is paused.
    pub is_paused: bool,
    /// Since when it has more replies unsent than the soft limit: a monotonic time.
    pub over_soft_limit_ms: Option<u64>,
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
            alone_until: 0,
            prefetched_until: 0,
            large: None,
            paused: None,
            output: Output::default(),
            is_readable: true,
            sees_end: false,
            has_ended: false,
            is_closing: false,
            is_waiting: false,
            has_turn: false,
            is_paused: false,
            over_soft_limit_ms: None,
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
        let Finished { session, reply, outcome, paused, .. } = finished;
        let start = self.output.bytes.len();
        self.output.bytes.extend_from_slice(&reply);
        self.note(start, outcome, &session);
        self.session = Some(session);
        self.paused = paused;
        outcome != Outcome::Close && !self.client.is_killed()
    }

    /// Whether it has a command that is paused.
    pub fn has_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Commands are not paused any more: a worker runs the one that was.
    pub fn resume(&mut self, shared: &Shared, thread: usize, token: usize) {
        if let Some(args) = self.paused.take() {
            let session = self.session.take().expect("no worker has it");
            shared.queue.push(Task { thread, token, session, args });
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

    /// Runs commands, as many as a turn has, and reads what the socket has of more.
    pub fn take_turn(&mut self, mut io: Io<'_, '_>, token: usize) -> Next {
        let argument_bytes_max = io.shared.settings.argument_bytes_max();
        if argument_bytes_max != self.argument_bytes_max {
            self.argument_bytes_max = argument_bytes_max;
            self.parser.set_limits(limits(argument_bytes_max));
        }
        let next = self.take_steps(&mut io, token);
        self.show();
        next
    }

    /// Shows its state to other threads.
    fn show(&self) {
        if let Some(session) = &self.session {
            self.client.show(session);
        }
        self.client.input_bytes.store(self.held_bytes(), Relaxed);
        self.client.unsent_bytes.store(self.output.unsent(), Relaxed);
    }

    fn take_steps(&mut self, io: &mut Io<'_, '_>, token: usize) -> Next {
        let mut batch = None;
        for _ in 0..STEPS_A_TURN {
            if self.client.is_killed() {
                return Next::Close;
            }
            let ran = self.run_command(io, &mut batch, token);
            if ran != Ran::Command
                && let Some(batch) = batch.take()
            {
                match ran {
                    Ran::Close => return Next::Close,
                    Ran::BatchFails => self.give_up_batch(&batch),
                    _ => {
                        if !self.end_batch(batch, io) {
                            return Next::Close;
                        }
                    }
                }
                continue;
            }
            match ran {
                Ran::Command => {}
                Ran::BatchEnds | Ran::BatchFails => unreachable!("there is no batch"),
                Ran::Event => return self.next(),
                Ran::Close => return Next::Close,
                Ran::Nothing if self.holds_too_much(io.shared) => return Next::Close,
                Ran::Nothing => match self.read(io.buffer) {
                    Ok(true) => {}
                    Ok(false) => return self.next(),
                    Err(_) => return Next::Close,
                },
            }
        }
        let is_known = batch.is_none_or(|batch| self.end_batch(batch, io));
        if is_known { Next::Turn } else { Next::Close }
    }

    /// Commits a batch, and notes what its replies need. If it cannot be committed, its commands run again, each by itself. False if
    /// whether it happened is unknown.
    fn end_batch(&mut self, mut batch: Batch<'_>, io: &mut Io<'_, '_>) -> bool {
        let session = self.session.as_mut().expect("no worker has it");
        match batch.commit(io, session, &mut self.output.bytes) {
            Committed::Unknown => return false,
            Committed::GivenUp => self.give_up_batch(&batch),
            Committed::Done { needs, commit } => {
                if needs > Csn::ZERO && self.output.bytes.len() > batch.replies_at {
                    self.output.hold(batch.replies_at, needs, commit);
                }
                self.drop_consumed();
            }
        }
        true
    }

    /// Takes the commands of a batch back, of which nothing happened, with their replies.
    fn give_up_batch(&mut self, batch: &Batch<'_>) {
        self.output.bytes.truncate(batch.replies_at);
        self.alone_until = self.alone_until.max(self.consumed);
        self.consumed = batch.input_at;
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
            + [&self.large, &self.paused].into_iter().flatten().map(OwnedArgs::bytes).sum::<usize>()
    }

    fn next(&self) -> Next {
        let has_sent_all = self.output.unsent() == 0;
        let is_done = self.is_closing || (self.has_ended && self.session.is_some() && self.paused.is_none());
        if is_done && has_sent_all && self.session.is_some() { Next::Close } else { Next::Event }
    }

    /// Whether it may run commands now.
    fn takes_commands(&self, shared: &Shared) -> bool {
        !self.is_closing
            && self.session.is_some()
            && self.paused.is_none()
            && self.output.unsent() < shared.config.unsent_bytes_max
    }

    /// Runs the next command that has arrived, in the batch if there is one. What does not belong to that is left for later.
    fn run_command<'s>(&mut self, io: &mut Io<'s, '_>, batch: &mut Option<Batch<'s>>, token: usize) -> Ran {
        if !self.takes_commands(io.shared) {
            return Ran::Event;
        }
        let Connection { parser, input, consumed, large, session, output, .. } = self;
        let ahead = &input[*consumed..];
        let parsed = match parser.parse(ahead) {
            Ok(parsed) => parsed,
            Err(_) if batch.is_some() => return Ran::BatchEnds,
            Err(error) => {
                let protocol = session.as_ref().map(|session| session.protocol).unwrap_or_default();
                Encoder::new(&mut output.bytes, protocol).error("ERR", &error.to_string());
                self.is_closing = true;
                return Ran::Event;
            }
        };
        let bytes = parsed.consumed_bytes;
        if batch.is_some() && !matches!(parsed.event, Event::Command(_)) {
            parser.restart();
            return Ran::BatchEnds;
        }
        let mut owned = None;
        let ran = match parsed.event {
            Event::Incomplete { .. } => Ran::Nothing,
            Event::Arguments(arguments) => {
                let large = large.get_or_insert_default();
                arguments.iter().for_each(|argument| large.push(argument));
                Ran::Command
            }
            Event::Piece(piece) => {
                let large = large.as_mut().expect("arguments come before their pieces");
                large.push_piece(piece.bytes, piece.is_last());
                Ran::Command
            }
            Event::End => {
                owned = large.take();
                Ran::Command
            }
            Event::Command(arguments) => {
                let session = session.as_mut().expect("no worker has it");
                let has_more = bytes < ahead.len();
                if has_more && *consumed >= self.prefetched_until {
                    self.prefetched_until = *consumed + prefetch(io.shared, session, ahead);
                }
                let begins = has_more && *consumed >= self.alone_until;
                let at = At { start: *consumed, end: *consumed + bytes, begins };
                let whole = run_whole(io, session, &mut output.bytes, batch, at, &Args::of(arguments));
                return self.ran_whole(io, whole, bytes, token);
            }
        };
        self.consume(bytes);
        match owned {
            Some(args) => self.hand_on(io, args, token),
            None => ran,
        }
    }

    /// A command of so many bytes ran.
    fn ran_whole(&mut self, io: &Io<'_, '_>, whole: Whole, bytes: usize, token: usize) -> Ran {
        match whole {
            Whole::InBatch { is_last } => {
                // The input stays until the batch is committed.
                self.consumed += bytes;
                if is_last { Ran::BatchEnds } else { Ran::Command }
            }
            Whole::BeforeEnd | Whole::Fails => {
                self.alone_until = self.consumed + bytes;
                if matches!(whole, Whole::Fails) { Ran::BatchFails } else { Ran::BatchEnds }
            }
            Whole::Alone { start, outcome } => {
                self.consume(bytes);
                let session = self.session.take().expect("no worker has it");
                self.note(start, outcome, &session);
                self.session = Some(session);
                Ran::Command
            }
            Whole::ForWorker(args) => {
                self.consume(bytes);
                self.hand_on(io, args, token)
            }
            Whole::Paused(args) => {
                self.consume(bytes);
                self.paused = Some(args);
                Ran::Command
            }
            Whole::Close => Ran::Close,
        }
    }

    /// Has a worker run a command.
    fn hand_on(&mut self, io: &Io<'_, '_>, args: OwnedArgs, token: usize) -> Ran {
        let session = self.session.take().expect("no worker has it");
        io.shared.queue.push(Task { thread: io.thread, token, session, args });
        Ran::Event
    }

    /// Drops consumed input.
    fn consume(&mut self, bytes: usize) {
        self.consumed += bytes;
        self.drop_consumed();
    }

    fn drop_consumed(&mut self) {
        if self.consumed == self.input.len() {
            // Thousands of connections may be idle: none of them keeps a buffer.
            self.input = Vec::new();
            (self.consumed, self.alone_until, self.prefetched_until) = (0, 0, 0);
        }
    }

    /// Reads once. False if there is nothing to read now.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<bool> {
        if self.has_ended || !self.is_readable {
            return Ok(false);
        }
        if self.consumed > 0 {
            self.input.drain(..self.consumed);
            self.alone_until = self.alone_until.saturating_sub(self.consumed);
            self.prefetched_until = self.prefetched_until.saturating_sub(self.consumed);
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

    /// Sends what may be sent. Returns what it needs next.
    pub fn send(&mut self) -> Next {
        let unsent = self.output.unsent();
        if self.output.send(&mut self.stream).is_err() {
            return Next::Close;
        }
        match self.next() {
            // Commands were not read while too much was unsent.
            Next::Event if self.output.unsent() < unsent && self.session.is_some() && self.has_input() => {
                Next::Turn
            }
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
    /// The batch ends: before what comes next, or because it is full.
    BatchEnds,
    /// The batch cannot be committed.
    BatchFails,
    /// The connection has to be closed.
    Close,
}
