//! What happens to connections without an event of theirs: they are idle for too long, do not take their replies, were killed, or
//! have a command that was paused.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mio::net::TcpStream;
use rustix::net::sockopt;

use super::connection::Next;
use super::event_loop::IoThread;
use super::inbox::Message;
use crate::clients::Origin;
use crate::model::PIECE_BYTES;
use crate::shared::Shared;

/// How far a client has taken a long reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongReplyProgress {
    /// How much of it was not read yet.
    left: usize,
    /// How many bytes were read, and not sent yet.
    unsent: usize,
    /// Since when it is there: a monotonic time.
    since_ms: u64,
}

impl LongReplyProgress {
    /// Whether a piece was read or sent since. One of its elements may be longer than a piece.
    fn has_moved_on(&self, now: &LongReplyProgress) -> bool {
        self.left != now.left || self.unsent >= now.unsent + PIECE_BYTES
    }
}

/// How often connections are looked at that may have reached a deadline.
const LOOK_MS: u64 = 1_000;

/// The longest wait for the end of a pause: `CLIENT UNPAUSE` wakes the thread, but another pause may change the end.
const PAUSE_LOOK: Duration = Duration::from_secs(1);

/// The shortest wait until commits are not slowed, which may be sooner than it was known.
const SLOWED_LOOK: Duration = Duration::from_millis(1);

/// How often connections are looked at whose commands may not be left for longer.
const SLOWED_LOOK_ALL_MS: u64 = 50;

/// So many connections have their turn at once then: most of thousands would be left for later again.
const RESUMED_A_ROUND: usize = 64;

/// How many probes without a reply end a connection.
const PROBES: u32 = 3;

/// Has the operating system probe a connection on which nothing arrives.
pub(super) fn keep_alive(stream: &TcpStream, after: Duration) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, after)?;
    sockopt::set_tcp_keepintvl(stream, (after / PROBES).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

impl IoThread {
    /// How long the thread may wait for events.
    pub(super) fn until_deadline(&self) -> Option<Duration> {
        let look = Duration::from_millis(LOOK_MS);
        let look = self.has_deadlines().then_some(look);
        let pause = (!self.paused.is_empty()).then(|| {
            let remaining = self.shared.pause.remaining(self.shared.monotonic_ms());
            remaining.clamp(Duration::from_millis(1), PAUSE_LOOK)
        });
        let slowed = (!self.slowed.is_empty()).then(|| {
            let delay = self.shared.db.commit_delay_before_events();
            delay.clamp(SLOWED_LOOK, Duration::from_millis(SLOWED_LOOK_ALL_MS))
        });
        look.into_iter().chain(pause).chain(slowed).min()
    }

    /// Whether connections may be overdue, although nothing happens to them.
    fn has_deadlines(&self) -> bool {
        self.shared.settings.has_deadlines() || self.shared.long_replies() > 0
    }

    /// Does what is due.
    pub(super) fn keep_deadlines(&mut self) {
        if !self.slowed.is_empty() {
            self.resume_slowed();
        }
        if !self.paused.is_empty() && self.shared.pause.remaining(self.shared.monotonic_ms()).is_zero() {
            for token in std::mem::take(&mut self.paused) {
                if let Some(connection) = &mut self.connections[token] {
                    connection.is_paused = false;
                    connection.resume(&self.shared, self.number, token);
                }
            }
        }
        if self.has_deadlines() && self.now_ms >= self.looked_ms + LOOK_MS {
            self.looked_ms = self.now_ms;
            for token in 0..self.connections.len() {
                if self.is_overdue(token) {
                    tracing::info!("a connection is closed: it is idle, or does not take its replies");
                    self.close(token);
                }
            }
        }
    }

    /// Gives connections whose commands were left for later another turn: some, if commits are not slowed, and all that may not be left for
    /// longer.
    fn resume_slowed(&mut self) {
        let mut left = if self.shared.db.commit_delay().is_zero() { RESUMED_A_ROUND } else { 0 };
        if left == 0 && self.now_ms < self.looked_at_slowed_ms + SLOWED_LOOK_ALL_MS {
            return;
        }
        self.looked_at_slowed_ms = self.now_ms;
        for token in std::mem::take(&mut self.slowed) {
            let Some(connection) = &mut self.connections[token] else { continue };
            if left > 0 || !connection.may_be_left(self.now_ms) {
                left = left.saturating_sub(1);
                connection.is_slowed = false;
                self.file(token, Next::Turn);
            } else {
                self.slowed.push(token);
            }
        }
    }

    /// Whether a connection is idle, has too many replies, or does not take a long one, for longer than it may.
    fn is_overdue(&mut self, token: usize) -> bool {
        let settings = &self.shared.settings;
        let Some(connection) = &mut self.connections[token] else { return false };
        let limit = settings.output_limit();
        let left = connection.long_reply_left();
        let now = LongReplyProgress { left, unsent: connection.output.unsent(), since_ms: self.now_ms };
        let progress = connection.long_reply.filter(|before| !before.has_moved_on(&now)).unwrap_or(now);
        connection.long_reply = (left > 0).then_some(progress);
        let piece_ms = self.shared.config.reply_piece_timeout.as_millis();
        if left > 0 && u128::from(self.now_ms - progress.since_ms) >= piece_ms {
            return true;
        }
        let is_over = limit.soft_bytes > 0 && connection.output.unsent() + left > limit.soft_bytes;
        let since_ms = connection.over_soft_limit_ms.filter(|_| is_over).unwrap_or(self.now_ms);
        connection.over_soft_limit_ms = is_over.then_some(since_ms);
        if is_over && self.now_ms - since_ms >= limit.soft_s.saturating_mul(1_000) {
            return true;
        }
        let idle_ms = self.now_ms.saturating_sub(connection.client.active_ms.load(Relaxed));
        let waits = connection.is_at_worker() || connection.has_paused() || connection.is_slowed;
        !waits && settings.idle_max().is_some_and(|max| u128::from(idle_ms) > max.as_millis())
    }

    /// Closes the connections with the largest buffers, of all threads, if all together take more than they may (`maxmemory-clients`).
    pub(super) fn bound_buffers(&self) {
        let Shared { settings, directives, clients, inboxes, .. } = &*self.shared;
        let Some(bytes_max) = directives.buffer_bytes_max() else { return };
        // The longest command of one fits in any case.
        let bytes_max = bytes_max.max(settings.query_bytes_max());
        if clients.bytes() <= bytes_max {
            return;
        }
        for client in clients.kill_largest(bytes_max) {
            let bytes = client.buffer_bytes();
            tracing::warn!(bytes, bytes_max, "a connection is closed: all take more than maxmemory-clients");
            let Origin { thread, token, id, .. } = client.origin;
            inboxes[thread].send(Message::Kill { token, id });
        }
    }

    /// Closes a connection that another one killed.
    pub(super) fn kill(&mut self, token: usize, id: u64) {
        let connection = self.connections.get(token).and_then(Option::as_ref);
        if connection.is_some_and(|connection| connection.client.origin.id == id) {
            self.close(token);
        }
    }
}
