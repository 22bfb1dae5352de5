//! The event loop of an I/O thread.
//!
//! A round: take what happened, read what several connections have sent, let each run its commands, those that write together in a batch
//! ([`super::batch`]), then let go the replies whose commits are durable. While replies wait, the thread has a flush done, once the
//! commands have arrived that follow the replies of the last one ([`super::patience`]). It writes the log itself if all connections wait
//! for that: one that leads replies without a switch to another thread and back. Otherwise it leaves that to the log's thread, and reads
//! the next commands meanwhile.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::yield_now;
use std::time::Duration;

use fulgurite::{Csn, Watch};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use smallvec::SmallVec;

use super::activity::Activity;
use super::batch::{Batch, Committed};
use super::connection::{Connection, Next, STEPS_A_TURN, Turn, Turned};
use super::deadlines::keep_alive;
use super::inbox::{Inbox, Message, WAKE};
use super::patience::{Gathering, IdlePolling};
use super::waiting::Waiting;
use super::whole::{Io, LookUps};
use crate::clients::{Client, Origin};
use crate::model::Counts;
use crate::session::Session;
use crate::shared::Shared;
use crate::worker::Finished;
use crate::{Dispatch, Flushing, StartError};

/// The token of the first listener; those below belong to connections.
const LISTENERS: usize = usize::MAX - 1_024;

/// If a flush takes longer, in nanoseconds, the thread leaves it to the log's thread.
const LEADS_UP_TO_NS: u64 = 1_000_000;

/// How many bytes a read asks for.
const READ_BYTES: usize = 16 << 10;

/// So many connections are read before their commands run: as many as a batch has commands.
const READ_TOGETHER: usize = 16;

/// Replies wait for others, to be sent together, until those of so many connections do.
const SENT_TOGETHER: usize = 64;

/// ... or so many commands have run, which take about two milliseconds if they are short.
const STEPS_SENT_TOGETHER: usize = 1_024;

/// ... or they have so many bytes.
const BYTES_SENT_TOGETHER: usize = 256 << 10;

/// How many connections are accepted in a round.
const ACCEPTS_A_ROUND: usize = 256;

/// When it is tried again to accept connections, if there was no descriptor for one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// How often a server that stops looks whether it is done.
const LOOK: Duration = Duration::from_millis(10);

/// How long a server that stops waits for replies.
const PATIENCE: Duration = Duration::from_secs(5);

/// A round of the event loop.
struct Round<'s> {
    shared: &'s Shared,
    /// What the commands that write have in common, if there are several.
    batch: Option<Batch<'s>>,
    /// How many connections have their turn yet.
    turns_left: usize,
}

/// Connections that have replies which may be sent.
#[derive(Default)]
struct Outbox {
    tokens: Vec<usize>,
    /// How many bytes they had when they came.
    bytes: usize,
    /// How many steps connections made since the first came.
    steps: usize,
}

impl Outbox {
    fn is_full(&self) -> bool {
        self.tokens.len() >= SENT_TOGETHER
            || self.bytes >= BYTES_SENT_TOGETHER
            || self.steps >= STEPS_SENT_TOGETHER
    }
}

/// An I/O thread.
pub(crate) struct IoThread {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    poll: Poll,
    inbox: Arc<Inbox>,
    listeners: Vec<TcpListener>,
    /// By token.
    pub(super) connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections that have another turn.
    turns: Vec<usize>,
    outbox: Outbox,
    waiting: Waiting,
    gathering: Gathering,
    idle_polling: IdlePolling,
    watch: Watch,
    /// The log's thread was asked to flush up to this commit.
    asked: Csn,
    counts: Counts,
    activity: Activity,
    buffer: Box<[u8]>,
    look_ups: LookUps,
    /// Connections that have another turn once commits are not slowed, the first one first.
    pub(super) slowed: Vec<usize>,
    /// Connections that have a command which is paused.
    pub(super) paused: Vec<usize>,
    /// When all of those were last looked at.
    pub(super) looked_at_slowed_ms: u64,
    /// A monotonic time, of this round.
    pub(super) now_ms: u64,
    /// When connections were last looked at that may be idle for too long, or may not take their replies.
    pub(super) looked_ms: u64,
    /// A listener may have connections that were not accepted yet.
    accepts_again: bool,
}

impl IoThread {
    pub fn new(
        shared: &Arc<Shared>,
        number: usize,
        poll: Poll,
        mut listeners: Vec<TcpListener>,
        counts: Counts,
    ) -> Result<IoThread, StartError> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(LISTENERS + index), Interest::READABLE)?;
        }
        let inbox = shared.inboxes[number].clone();
        let waking = inbox.clone();
        let watch = shared.db.watch(move || waking.wake());
        Ok(IoThread {
            shared: shared.clone(),
            number,
            poll,
            inbox,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            turns: Vec::new(),
            outbox: Outbox::default(),
            waiting: Waiting::default(),
            gathering: Gathering::default(),
            idle_polling: IdlePolling::new(shared.config.idle_poll),
            watch,
            asked: Csn(0),
            counts,
            activity: Activity::default(),
            buffer: vec![0; READ_BYTES].into(),
            look_ups: LookUps::new(),
            slowed: Vec::new(),
            looked_at_slowed_ms: 0,
            paused: Vec::new(),
            now_ms: shared.monotonic_ms(),
            looked_ms: 0,
            accepts_again: false,
        })
    }

    /// Runs until the server stops.
    pub fn run(mut self) {
        let shared = self.shared.clone();
        let mut events = Events::with_capacity(1_024);
        let mut stops_at = None;
        loop {
            let timeout = match stops_at {
                _ if !self.turns.is_empty() || self.gathering.is_putting_off() => Some(Duration::ZERO),
                _ if self.accepts_again => Some(ACCEPT_AGAIN),
                Some(_) => Some(LOOK),
                None => self.until_deadline(),
            };
            if let Err(error) = self.await_events(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "an I/O thread ends: waiting for events failed");
                return;
            }
            self.round(&events, &shared);
            if self.shared.is_stopping.load(Ordering::SeqCst) {
                let until = *stops_at.get_or_insert_with(|| self.begin_stop());
                if self.is_done() || self.now() >= until {
                    return;
                }
            }
        }
    }

    /// Waits for events, and stays awake for the first moments.
    fn await_events(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            self.poll.poll(events, timeout)?;
            if events.is_empty() && self.turns.is_empty() {
                let (from_ns, to_ns) = self.yield_processor();
                self.gathering.yielded(from_ns, to_ns);
            }
            return Ok(());
        }
        let mut now_ns = self.shared.env.clock().monotonic_ns();
        while self.idle_polling.goes_on(now_ns) {
            self.poll.poll(events, Some(Duration::ZERO))?;
            if !events.is_empty() {
                self.idle_polling.succeeds();
                return Ok(());
            }
            let (from_ns, to_ns) = self.yield_processor();
            if !self.idle_polling.yielded(from_ns, to_ns) {
                break;
            }
            now_ns = to_ns;
        }
        self.poll.poll(events, timeout)
    }

    /// Yields the processor; returns when, and when it was back.
    fn yield_processor(&self) -> (u64, u64) {
        let clock = self.shared.env.clock();
        let from_ns = clock.monotonic_ns();
        yield_now();
        (from_ns, clock.monotonic_ns())
    }

    fn round(&mut self, events: &Events, shared: &Shared) {
        let now_ns = shared.env.clock().monotonic_ns();
        self.now_ms = now_ns / 1_000_000;
        self.activity.tick(now_ns);
        if std::mem::take(&mut self.accepts_again) {
            (0..self.listeners.len()).for_each(|index| self.accept(index));
        }
        let mut tokens = std::mem::take(&mut self.turns);
        for token in &tokens {
            if let Some(connection) = &mut self.connections[*token] {
                connection.has_turn = false;
            }
        }
        let mut listeners = SmallVec::<[usize; 4]>::new();
        for event in events {
            match event.token() {
                WAKE => {}
                Token(token) if token >= LISTENERS => listeners.push(token - LISTENERS),
                Token(token) => {
                    if let Some(Some(connection)) = self.connections.get_mut(token) {
                        connection.note_ready(event.is_readable(), event.is_read_closed());
                        tokens.push(token);
                    }
                }
            }
        }
        let mut round = Round { shared, batch: None, turns_left: tokens.len() };
        for some in tokens.chunks(READ_TOGETHER) {
            self.read_ahead(some);
            for token in some {
                round.turns_left -= 1;
                self.turn(*token, &mut round);
            }
        }
        // After the turns of those that have ended, which make room.
        listeners.into_iter().for_each(|index| self.accept(index));
        for message in self.inbox.take() {
            match message {
                Message::Look => {}
                Message::Connection(stream) => self.add(stream),
                Message::Finished(finished) => self.finish(finished, &mut round),
                Message::Kill { token, id } => self.kill(token, id),
            }
        }
        self.end_batch(&mut round);
        self.send_outbox();
        self.keep_deadlines();
        self.bound_buffers();
        self.settle();
    }

    // Connections.

    /// Accepts connections. The listener says once that there are some, so those that are left are remembered.
    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_A_ROUND {
            match self.listeners[index].accept() {
                Ok((stream, _)) => self.welcome(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted; it is tried again");
                    break;
                }
            }
        }
        self.accepts_again = true;
    }

    /// Hands a new connection to the I/O thread whose turn it is.
    fn welcome(&mut self, mut stream: TcpStream) {
        let shared = &self.shared;
        if shared.is_stopping.load(Ordering::SeqCst) {
            return;
        }
        if shared.connected.fetch_add(1, Ordering::SeqCst) >= shared.settings.clients_max() {
            shared.connected.fetch_sub(1, Ordering::SeqCst);
            shared.rejected.fetch_add(1, Ordering::Relaxed);
            _ = stream.write_all(b"-ERR max number of clients reached\r\n");
            return;
        }
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst) as usize;
        let thread = number % shared.inboxes.len();
        if thread == self.number {
            self.add(stream);
        } else {
            shared.inboxes[thread].send(Message::Connection(stream));
        }
    }

    fn add(&mut self, mut stream: TcpStream) {
        let shared = &self.shared;
        if shared.is_stopping.load(Ordering::SeqCst) {
            shared.connected.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let token = self.free.pop().unwrap_or(self.connections.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut stream, Token(token), interest);
        if let Err(error) = registered.and_then(|()| stream.set_nodelay(true)) {
            tracing::warn!(%error, "a connection is closed");
            shared.connected.fetch_sub(1, Ordering::SeqCst);
            return self.free.push(token);
        }
        if let Some(keepalive) = shared.settings.keepalive()
            && let Err(error) = keep_alive(&stream, keepalive)
        {
            tracing::debug!(%error, "a connection is not probed");
        }
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let origin = Origin {
            id: shared.next_id(),
            thread: self.number,
            token,
            address: stream.peer_addr().unwrap_or(unknown),
            local: stream.local_addr().unwrap_or(unknown),
            descriptor: stream.as_raw_fd(),
            created_ms: self.now_ms,
        };
        let client = Arc::new(Client::new(origin, shared.db.program_memory()));
        shared.clients.add(&client);
        let session = Session::new(client, !shared.settings.has_password(), shared.durability());
        let connection = Connection::new(stream, session, shared.settings.argument_bytes_max());
        if token == self.connections.len() {
            self.connections.push(Some(connection));
        } else {
            self.connections[token] = Some(connection);
        }
        // What it has sent already is no event.
        self.after(token, Next::Turn);
    }

    pub(super) fn close(&mut self, token: usize) {
        let Some(connection) = &mut self.connections[token] else { return };
        if connection.is_at_worker() {
            // Its token is free once the worker is done.
            connection.begin_close();
            return;
        }
        let Some(mut connection) = self.connections[token].take() else { return };
        if connection.is_in_outbox {
            while connection.output.send(&mut connection.stream).is_ok_and(|takes_more| takes_more) {}
        }
        if connection.waits_for.is_some() {
            self.waiting.left();
        }
        _ = self.poll.registry().deregister(&mut connection.stream);
        connection.drop_unread(&mut self.buffer);
        self.turns.retain(|other| *other != token);
        self.slowed.retain(|other| *other != token);
        self.paused.retain(|other| *other != token);
        self.free.push(token);
        self.shared.clients.remove(connection.client.origin.id);
        if connection.has_shut_down() {
            self.shared.last_open.lock().push(connection.stream);
        }
        self.shared.connected.fetch_sub(1, Ordering::SeqCst);
    }

    // Commands.

    /// Reads what connections have sent that have their turns now, and has the processor load what their commands look up: for all at once,
    /// not each when its command runs.
    fn read_ahead(&mut self, tokens: &[usize]) {
        if tokens.len() < 2 || self.shared.config.dispatch == Dispatch::Queue {
            return;
        }
        let IoThread { shared, connections, buffer, look_ups, .. } = self;
        let read = catch_unwind(AssertUnwindSafe(|| {
            for token in tokens {
                if let Some(connection) = &mut connections[*token] {
                    connection.read_ahead(shared, buffer, look_ups);
                }
            }
            look_ups.prefetch(shared);
        }));
        // What it panics at, the command of that connection may do, too, and closes that.
        if read.is_err() {
            tracing::error!("an I/O thread panicked before the turns of some connections, which go on");
        }
    }

    /// Lets a connection run its commands.
    fn turn<'s>(&mut self, token: usize, round: &mut Round<'s>) {
        let Some(connection) = &mut self.connections[token] else { return };
        self.activity.note(&mut connection.active_in);
        self.gathering.turned();
        connection.client.active_ms.store(self.now_ms, Ordering::Relaxed);
        let others_follow = round.turns_left > 0;
        let mut turn = Turn { steps: STEPS_A_TURN, others_follow, now_ms: self.now_ms };
        loop {
            let IoThread { connections, counts, buffer, look_ups, number, .. } = self;
            let Some(connection) = &mut connections[token] else { return };
            let Round { shared, batch, .. } = round;
            let io = Io { shared, counts, look_ups, buffer, thread: *number };
            let turned = catch_unwind(AssertUnwindSafe(|| connection.take_turn(io, batch, token, &mut turn)));
            match turned {
                Ok(Turned::Ended(next)) => {
                    self.outbox.steps += STEPS_A_TURN - turn.steps;
                    return self.after(token, next);
                }
                Ok(Turned::EndsBatch) => self.end_batch(round),
                Ok(Turned::FailsBatch) => self.give_up_batch(round),
                Ok(Turned::Panicked) => {
                    self.give_up_batch(round);
                    return self.close(token);
                }
                Err(_) => {
                    tracing::error!("an I/O thread panicked in the turn of a connection, which is closed");
                    self.give_up_batch(round);
                    // Its replies may be those of anything.
                    if let Some(connection) = &mut self.connections[token] {
                        connection.is_in_outbox = false;
                    }
                    return self.close(token);
                }
            }
        }
    }

    /// A worker ran a command.
    fn finish(&mut self, finished: Finished, round: &mut Round<'_>) {
        let token = finished.token;
        let Some(connection) = &mut self.connections[token] else { return };
        if connection.finish(finished) {
            self.turn(token, round);
        } else {
            self.close(token);
        }
    }

    /// Commits the batch of the round, if there is one.
    fn end_batch(&mut self, round: &mut Round<'_>) {
        let Some(mut batch) = round.batch.take() else { return };
        let committed = catch_unwind(AssertUnwindSafe(|| batch.commit(round.shared, &mut self.counts)))
            .unwrap_or_else(|_| {
                tracing::error!("a commit panicked; its connections are closed");
                Committed::Unknown
            });
        match committed {
            Committed::Done { csn, needs, commit } => {
                self.each_member(
                    batch,
                    |connection| connection.batch_is_committed(csn, needs, commit),
                    Next::Event,
                );
            }
            Committed::GivenUp => self.each_member(batch, Connection::give_up_batch, Next::Turn),
            Committed::Unknown => self.each_member(batch, |_| {}, Next::Close),
        }
    }

    /// Gives the batch of the round up, if there is one: nothing of it happened.
    fn give_up_batch(&mut self, round: &mut Round<'_>) {
        if let Some(batch) = round.batch.take() {
            self.each_member(batch, Connection::give_up_batch, Next::Turn);
        }
    }

    /// A batch has ended: does `work` for each connection that has commands in it, and files it for what it needs next.
    fn each_member(&mut self, mut batch: Batch<'_>, work: impl Fn(&mut Connection), next: Next) {
        // A connection that was closed since is gone, and what has its token by now is in no batch.
        let members = std::mem::take(&mut batch.members);
        drop(batch);
        for token in members {
            if let Some(connection) = &mut self.connections[token]
                && connection.is_in_batch()
            {
                work(connection);
                self.after(token, next);
            }
        }
    }

    /// After a connection had its turn: notes whether there is something to send, and files it where it waits.
    fn after(&mut self, token: usize, next: Next) {
        let Some(connection) = &mut self.connections[token] else { return };
        connection.output.release(self.watch.reached(), |commit| self.watch.acknowledge(commit));
        if next != Next::Close && connection.output.is_ready() && !connection.is_in_outbox {
            connection.is_in_outbox = true;
            self.outbox.tokens.push(token);
            self.outbox.bytes += connection.output.unsent();
        }
        let has_much = connection.output.unsent() >= BYTES_SENT_TOGETHER;
        self.file(token, next);
        if has_much || self.outbox.is_full() {
            self.send_outbox();
        }
    }

    /// Sends what may be sent. The first reply wakes a client that sleeps, and a client of several connections is awake for the others:
    /// to wake it costs as much as to send ten.
    fn send_outbox(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        for token in outbox.tokens.drain(..) {
            self.send(token);
        }
        self.outbox.tokens = outbox.tokens;
    }

    fn send(&mut self, token: usize) {
        let Some(connection) = &mut self.connections[token] else { return };
        connection.is_in_outbox = false;
        let next = connection.send();
        self.file(token, next);
    }

    /// Files a connection where it waits.
    pub(super) fn file(&mut self, token: usize, mut next: Next) {
        let Some(connection) = &mut self.connections[token] else { return };
        // What is sent in a moment does not count yet, nor what is sent in the next turn.
        let is_to_be_sent = connection.is_in_outbox;
        let hard_bytes = self.shared.settings.output_limit().hard_bytes;
        let is_over = hard_bytes > 0 && connection.output.unsent() > hard_bytes;
        if is_over && !is_to_be_sent && next != Next::Turn {
            tracing::warn!("a connection is closed: it leaves more replies than client-output-buffer-limit");
            next = Next::Close;
        }
        if next == Next::Close {
            return self.close(token);
        }
        if !is_to_be_sent {
            connection.continue_reply(&self.shared, self.number, token);
            connection.show_memory();
        }
        if connection.has_paused() && !connection.is_paused {
            connection.is_paused = true;
            self.paused.push(token);
        }
        if let Some(needs) = connection.output.needs().filter(|_| connection.waits_for.is_none()) {
            connection.waits_for = Some(needs);
            self.waiting.add(needs, token);
        }
        if next == Next::Later && !connection.is_slowed {
            connection.is_slowed = true;
            self.slowed.push(token);
        }
        if next == Next::Turn && !connection.has_turn {
            connection.has_turn = true;
            self.turns.push(token);
        }
    }

    // Replies.

    /// Lets the replies go whose commits are durable, and has the others' written.
    fn settle(&mut self) {
        loop {
            let reached = self.watch.reached();
            let Some(first) = self.waiting.first() else { return self.gathering.stops() };
            let now_ns = self.shared.env.clock().monotonic_ns();
            if first <= reached {
                self.gathering.ended(self.waiting.connections(), now_ns);
                self.release(reached);
                continue;
            }
            // A flush that is going on needs no other one: it says when it has ended.
            // Connections that are left for later do not come soon.
            let (waiting, active) = (self.waiting.connections(), self.activity.connections());
            if !self.slowed.is_empty() {
                self.gathering.puts_off_no_more();
            } else if first > self.asked && self.gathering.puts_off(waiting, active, now_ns) {
                return;
            }
            match self.flush(first, now_ns) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.fail(&error),
            }
        }
    }

    /// Has commits written, here or by the log's thread. Whether `first` may be acknowledged.
    fn flush(&mut self, first: Csn, now_ns: u64) -> fulgurite::Result<bool> {
        self.gathering.begins(now_ns);
        let leads = match self.shared.config.flushing {
            Flushing::Auto => self.is_idle(),
            Flushing::Lead => true,
            Flushing::Watch => false,
        };
        if leads && self.watch.lead()? {
            return Ok(true);
        }
        self.asked = first;
        self.watch.ask(first)
    }

    /// Whether no connection has anything to do before a flush, and hardly another one is active: all others would wait for the disk, too.
    /// If that takes long, those that are active now and then would wait for nothing.
    fn is_idle(&self) -> bool {
        self.turns.is_empty()
            && self.activity.connections() <= self.waiting.connections()
            && self.gathering.flush_ns() <= LEADS_UP_TO_NS
    }

    fn release(&mut self, reached: Csn) {
        while let Some((needs, token)) = self.waiting.take(reached) {
            let Some(connection) = &mut self.connections[token] else { continue };
            // Else the token was another connection's when this was filed.
            if connection.waits_for.take_if(|filed| *filed == needs).is_none() {
                continue;
            }
            self.waiting.left();
            connection.output.release(reached, |commit| self.watch.acknowledge(commit));
            self.send(token);
        }
    }

    /// No commit becomes durable any more: whether those that wait happened is unknown, so their clients get no reply.
    fn fail(&mut self, error: &fulgurite::Error) {
        let waiting = self.waiting.take_all();
        tracing::error!(%error, connections = waiting.len(), "commits on their way are lost or not, and their connections are closed");
        for (needs, token) in waiting {
            if let Some(connection) = &mut self.connections[token]
                && connection.waits_for.take_if(|filed| *filed == needs).is_some()
            {
                self.close(token);
            }
        }
    }

    // The end.

    /// Reads no command any more; returns until when replies are awaited.
    fn begin_stop(&mut self) -> Duration {
        self.listeners.clear();
        for token in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[token] {
                connection.begin_close();
                self.send(token);
            }
        }
        self.now() + PATIENCE
    }

    /// A monotonic time.
    fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.env.clock().monotonic_ns())
    }

    fn is_done(&self) -> bool {
        self.connections.iter().all(Option::is_none)
    }
}
