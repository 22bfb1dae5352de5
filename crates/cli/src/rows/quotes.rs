//! Finds what a lenient CSV reader lets pass: quotes that never close, and text after a closing quote.

use std::collections::VecDeque;
use std::io::{self, Read};

/// The state of the bytes so far within a record (RFC 4180).
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// A quote inside a quoted field: it closes the field, or the next byte is a second one.
    Quote,
}

/// A fault in the quotes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Text follows the closing quote of a field.
    TextBehind,
    /// The rest of the file is in a field that is never closed: how many rows it held is unknown.
    NeverClosed,
}

/// Passes bytes through and watches their quotes.
pub(super) struct QuoteWatch<R> {
    inner: R,
    delimiter: u8,
    state: State,
    given: u64,
    ended: bool,
    /// Offsets of text that follows a closing quote, oldest first.
    behind_quotes: VecDeque<u64>,
}

impl<R: Read> QuoteWatch<R> {
    pub fn new(inner: R, delimiter: u8) -> QuoteWatch<R> {
        let (state, behind_quotes) = (State::FieldStart, VecDeque::new());
        QuoteWatch { inner, delimiter, state, given: 0, ended: false, behind_quotes }
    }

    pub fn inner_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// The fault in the quotes of the record that ends at byte `end`; the caller asks for records in order.
    pub fn fault_before(&mut self, end: u64) -> Option<Fault> {
        let mut fault = None;
        while self.behind_quotes.front().is_some_and(|at| *at < end) {
            self.behind_quotes.pop_front();
            fault = Some(Fault::TextBehind);
        }
        if self.ended && self.state == State::Quoted && end >= self.given {
            fault = Some(Fault::NeverClosed);
        }
        fault
    }

    fn watch(&mut self, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            self.state = match (self.state, byte) {
                (State::Quoted, b'"') => State::Quote,
                (State::Quoted, _) | (State::Quote | State::FieldStart, b'"') => State::Quoted,
                (_, b'\n' | b'\r') => State::FieldStart,
                (_, byte) if byte == self.delimiter => State::FieldStart,
                (State::Quote, _) => {
                    self.behind_quotes.push_back(self.given + index as u64);
                    State::Plain
                }
                (State::FieldStart | State::Plain, _) => State::Plain,
            };
        }
        self.given += bytes.len() as u64;
    }
}

impl<R: Read> Read for QuoteWatch<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.ended |= read == 0 && !buf.is_empty();
        self.watch(&buf[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<bool> {
        let watch = QuoteWatch::new(text.as_bytes(), b',');
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(watch);
        let mut record = csv::ByteRecord::new();
        let mut faults = Vec::new();
        while reader.read_byte_record(&mut record).unwrap() {
            let end = reader.position().byte();
            faults.push(reader.get_mut().fault_before(end).is_some());
        }
        faults
    }

    #[test]
    fn good_quotes_pass() {
        assert_eq!(faults("a,\"b\",c\n\"x\"\"y\",\"two\nlines\"\r\nplain\"quote,5\"\n\"last\""), [false; 4]);
        assert_eq!(faults("\"\",\"\"\n\"\"\"\"\n"), [false; 2]);
    }

    #[test]
    fn bad_quotes_are_found_in_their_record() {
        assert_eq!(faults("1,a\n2,\"oops\n3,c\n4,d\n"), [false, true]);
        assert_eq!(faults("1,\"x\"tail\n2,b\n"), [true, false]);
        assert_eq!(faults("1,\"a\" ,z\n2,\"ok\"\n"), [true, false]);
    }
}
