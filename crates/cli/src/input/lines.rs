//! Lines of a source.

use std::ops::Range;

use fulgurite::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use memchr::memchr;

use super::{Event, Source};
use crate::failure::Failure;

/// A byte takes at most this many bytes in a line: JSON writes a control character as `\u0000`.
pub(crate) const ESCAPED_BYTES_MAX: usize = 6;
/// Longest line in bytes: the longest row with each of its bytes escaped, and room for the syntax around it.
const LINE_BYTES_MAX: usize = ESCAPED_BYTES_MAX * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + (1 << 20);

/// What comes next from [`Lines`].
pub(crate) enum Step {
    /// A line, for [`Lines::get`].
    Line(Range<usize>),
    /// No input for a while.
    Idle,
    /// A signal asked to end.
    Interrupted,
    /// The end of the input.
    End,
}

/// Splits a source into lines, which end with `\n` or `\r\n`; the last one may end with neither.
pub(crate) struct Lines {
    source: Source,
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// No line ends between `start` and here.
    searched: usize,
    number: u64,
}

impl Lines {
    pub fn new(source: Source) -> Lines {
        Lines { source, buffer: Vec::new(), start: 0, searched: 0, number: 0 }
    }

    /// The number of the last line given, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The input's name for messages.
    pub fn source_name(&self) -> &str {
        self.source.name()
    }

    /// The bytes of the last line given.
    pub fn get(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The next line.
    pub fn next(&mut self) -> Result<Step, Failure> {
        loop {
            if let Some(found) = memchr(b'\n', &self.buffer[self.searched..]) {
                let end = self.searched + found;
                return Ok(self.line(end, end + 1));
            }
            self.searched = self.buffer.len();
            match self.source.next()? {
                Event::Data(chunk) => self.append(chunk)?,
                Event::Idle => return Ok(Step::Idle),
                Event::Interrupted => return Ok(Step::Interrupted),
                Event::End if self.start == self.buffer.len() => return Ok(Step::End),
                Event::End => return Ok(self.line(self.buffer.len(), self.buffer.len())),
            }
        }
    }

    fn line(&mut self, end: usize, next: usize) -> Step {
        let start = std::mem::replace(&mut self.start, next);
        self.searched = next;
        self.number += 1;
        let carriage_return = end > start && next > end && self.buffer[end - 1] == b'\r';
        Step::Line(start..if carriage_return { end - 1 } else { end })
    }

    fn append(&mut self, chunk: Vec<u8>) -> Result<(), Failure> {
        if self.start == self.buffer.len() {
            self.buffer = chunk;
        } else {
            self.buffer.drain(..self.start);
            self.buffer.extend_from_slice(&chunk);
        }
        self.searched -= self.start;
        self.start = 0;
        if self.searched > LINE_BYTES_MAX {
            return Err(Failure::new(format!(
                "{}, line {}: it has more than {LINE_BYTES_MAX} bytes",
                self.source_name(),
                self.number + 1
            )));
        }
        Ok(())
    }
}
