//! The replies of a connection, in order, and how far they may be sent.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};

use fulgurite::{Csn, Numbered};

/// A buffer that is larger than this is given back once it is empty.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// So many bytes take the system some tens of microseconds; then other connections have their turns.
const SENT_AT_ONCE: usize = 64 << 10;

/// Replies that are not sent yet.
///
/// **INV-SRV-1.** *No byte of a reply is sent before the commit that the reply needs is durable, nor before all replies in front of
/// it.* [`Output::held`] has, in the order of the replies, the commit that each needs and where it ends; what has no entry needs
/// none, or no other than the entry before it. [`Output::send`] sends up to the end of the reply before the first entry, and nothing of
/// replies to commands of a batch that is not committed yet: those follow all others.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub bytes: Vec<u8>,
    /// How many of them are sent.
    sent: usize,
    held: VecDeque<Held>,
    /// Where the replies begin whose commands are in a batch that goes on.
    uncommitted_at: Option<usize>,
}

/// A reply that waits, with those after it.
#[derive(Debug)]
struct Held {
    needs: Csn,
    /// Where it begins.
    start: usize,
    /// The commit that it acknowledges, if that is one at a level that does not wait.
    commit: Option<Numbered>,
}

impl Output {
    /// A reply was appended that begins at `start`, needs a commit, and acknowledges one.
    pub fn hold(&mut self, start: usize, needs: Csn, commit: Option<Numbered>) {
        if commit.is_some() || self.held.back().is_none_or(|before| before.needs < needs) {
            self.held.push_back(Held { needs, start, commit });
        }
    }

    /// The replies from `start` on are to commands of a batch.
    pub fn begin_batch(&mut self, start: usize) {
        self.uncommitted_at = Some(start);
    }

    /// The batch is committed: its replies need a commit, and acknowledge one.
    pub fn batch_is_committed(&mut self, needs: Csn, commit: Option<Numbered>) {
        if let Some(start) = self.uncommitted_at.take()
            && needs > Csn::ZERO
            && self.bytes.len() > start
        {
            self.hold(start, needs, commit);
        }
    }

    /// Nothing of the batch happened: takes its replies back.
    pub fn give_up_batch(&mut self) {
        if let Some(start) = self.uncommitted_at.take() {
            self.bytes.truncate(start);
        }
    }

    /// The commit that the first reply needs which may not be sent yet.
    pub fn needs(&self) -> Option<Csn> {
        self.held.front().map(|held| held.needs)
    }

    /// Commits up to `reached` are durable. Calls `acknowledge` with the commits that replies acknowledge which may be sent now.
    pub fn release(&mut self, reached: Csn, mut acknowledge: impl FnMut(Numbered)) {
        while let Some(held) = self.held.pop_front_if(|held| held.needs <= reached) {
            held.commit.into_iter().for_each(&mut acknowledge);
        }
    }

    /// How many bytes are not sent.
    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether bytes may be sent now.
    pub fn is_ready(&self) -> bool {
        self.sent < self.end()
    }

    fn end(&self) -> usize {
        let uncommitted_at = self.uncommitted_at.unwrap_or(self.bytes.len());
        self.held.front().map_or(uncommitted_at, |held| held.start)
    }

    /// Appends a reply.
    pub fn append(&mut self, reply: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = reply;
        } else {
            self.bytes.extend_from_slice(&reply);
        }
    }

    /// Sends what may be sent, as far as the connection takes it, and about [`SENT_AT_ONCE`] bytes. Returns whether it would take more.
    pub fn send(&mut self, stream: &mut impl Write) -> std::io::Result<bool> {
        let mut left = SENT_AT_ONCE;
        let mut takes_more = true;
        while self.is_ready() && left > 0 && takes_more {
            let end = self.end().min(self.sent + left);
            match stream.write(&self.bytes[self.sent..end]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.sent += sent;
                    left -= sent;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => takes_more = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.drop_sent();
        Ok(takes_more && self.is_ready())
    }

    /// Gives the memory of what is sent back: at once if all is, else once that is half of the buffer.
    fn drop_sent(&mut self) {
        if self.unsent() == 0 {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES_MAX);
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.held.iter_mut().for_each(|held| held.start -= self.sent);
            self.uncommitted_at = self.uncommitted_at.map(|start| start - self.sent);
        } else {
            return;
        }
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `room` bytes, then no more.
    struct Socket {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.taken.extend_from_slice(&bytes[..count]);
            self.room -= count;
            Ok(count)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn reply(output: &mut Output, text: &str, needs: u64) {
        let start = output.bytes.len();
        output.bytes.extend_from_slice(text.as_bytes());
        if needs > 0 {
            output.hold(start, Csn(needs), None);
        }
    }

    fn sent(output: &mut Output, socket: &mut Socket, room: usize) -> String {
        socket.room = room;
        output.send(socket).unwrap();
        String::from_utf8(std::mem::take(&mut socket.taken)).unwrap()
    }

    #[test]
    fn replies_leave_in_order_and_not_before_what_they_need() {
        let mut output = Output::default();
        let mut socket = Socket { taken: Vec::new(), room: 0 };
        // The third needs less than the second, and follows it; the fourth needs nothing itself.
        for (text, needs) in [("a", 0), ("b", 5), ("c", 3), ("d", 0), ("e", 7)] {
            reply(&mut output, text, needs);
        }
        assert_eq!(output.needs(), Some(Csn(5)));
        assert_eq!(sent(&mut output, &mut socket, 10), "a");
        output.release(Csn(4), |_| {});
        assert_eq!(sent(&mut output, &mut socket, 10), "");
        output.release(Csn(5), |_| {});
        assert_eq!((output.needs(), output.is_ready()), (Some(Csn(7)), true));
        assert_eq!(sent(&mut output, &mut socket, 2), "bc");
        reply(&mut output, "f", 7);
        assert_eq!(sent(&mut output, &mut socket, 10), "d");
        output.release(Csn(7), |_| {});
        assert_eq!((sent(&mut output, &mut socket, 10), output.unsent()), ("ef".into(), 0));
        assert!(output.needs().is_none() && !output.is_ready());
    }

    #[test]
    fn replies_of_a_batch_leave_once_its_commit_is_durable() {
        let mut output = Output::default();
        let mut socket = Socket { taken: Vec::new(), room: 0 };
        reply(&mut output, &"a".repeat(300), 0);
        output.begin_batch(300);
        reply(&mut output, "bc", 0);
        assert_eq!(sent(&mut output, &mut socket, 299).len(), 299);
        assert_eq!(sent(&mut output, &mut socket, 9), "a");
        assert!(!output.is_ready() && output.needs().is_none());
        output.batch_is_committed(Csn(3), None);
        assert!(!output.is_ready());
        output.begin_batch(output.bytes.len());
        reply(&mut output, "d", 0);
        output.release(Csn(3), |_| {});
        assert_eq!(sent(&mut output, &mut socket, 9), "bc");
        output.give_up_batch();
        assert_eq!((output.unsent(), output.is_ready()), (0, false));
        reply(&mut output, "e", 0);
        assert_eq!(sent(&mut output, &mut socket, 9), "e");
    }

    /// A reader that is slow, and never lets the buffer become empty.
    #[test]
    fn a_slow_reader_keeps_what_it_has_not_read_alone() {
        let mut output = Output::default();
        let mut socket = Socket { taken: Vec::new(), room: 0 };
        for _ in 0..500 {
            reply(&mut output, &"x".repeat(7_000), 0);
            let room = output.unsent().min(7_000) - 10;
            sent(&mut output, &mut socket, room);
        }
        assert!(output.unsent() < 20_000 && output.bytes.len() < 60_000, "{}", output.bytes.len());
    }

    #[test]
    fn a_long_reply_leaves_a_piece_at_a_time() {
        let mut output = Output::default();
        let mut socket = Socket { taken: Vec::new(), room: usize::MAX };
        let text = "x".repeat(2 * SENT_AT_ONCE + 1);
        output.append(text.clone().into_bytes());
        reply(&mut output, "held", 1);
        assert_eq!([(); 3].map(|()| output.send(&mut socket).unwrap()), [true, true, false]);
        assert_eq!(String::from_utf8(std::mem::take(&mut socket.taken)).unwrap(), text);
        output.append(b"next".to_vec());
        output.release(Csn(1), |_| {});
        socket.room = 3;
        assert!(!output.send(&mut socket).unwrap(), "the connection takes no more");
        socket.room = 9;
        assert!(!output.send(&mut socket).unwrap() && socket.taken == b"heldnext");
    }

    #[test]
    fn sent_bytes_take_no_memory_for_long() {
        let mut output = Output::default();
        let mut socket = Socket { taken: Vec::new(), room: 0 };
        reply(&mut output, &"x".repeat(300_000), 0);
        reply(&mut output, "held", 1);
        let lens = [0; 5].map(|_| sent(&mut output, &mut socket, 400_000).len());
        assert_eq!((lens.iter().sum::<usize>(), lens[0]), (300_000, SENT_AT_ONCE));
        assert_eq!(output.bytes.len(), 4);
        output.release(Csn(1), |_| {});
        assert_eq!(sent(&mut output, &mut socket, 10), "held");
        assert!(output.bytes.capacity() <= KEPT_BYTES_MAX);
    }
}
