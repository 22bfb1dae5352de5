//! What other threads tell an I/O thread.

use mio::net::TcpStream;
use mio::{Poll, Token, Waker};
use parking_lot::Mutex;

use crate::worker::Finished;

/// The token of wake-ups.
pub(super) const WAKE: Token = Token(usize::MAX);

/// A message to an I/O thread.
pub(crate) enum Message {
    /// A connection that it is to have.
    Connection(TcpStream),
    /// A worker ran a command.
    Finished(Finished),
    /// Close the connection with this token, if it still has this number.
    Kill { token: usize, id: u64 },
    /// Look around: commits are durable, or the server stops.
    Look,
}

/// The messages to one I/O thread.
pub(crate) struct Inbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

impl Inbox {
    pub fn new(poll: &Poll) -> std::io::Result<Inbox> {
        Ok(Inbox { messages: Mutex::default(), waker: Waker::new(poll.registry(), WAKE)? })
    }

    /// Sends a message. Wakes the thread for the first of several.
    pub fn send(&self, message: Message) {
        let is_first = {
            let mut messages = self.messages.lock();
            messages.push(message);
            messages.len() == 1
        };
        if is_first {
            self.wake();
        }
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "an I/O thread could not be woken");
        }
    }

    /// Takes all messages.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock())
    }
}
