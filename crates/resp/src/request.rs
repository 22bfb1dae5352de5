//! The server's side: finding commands in the bytes that a client sent.
//!
//! The grammar, of which Redis checks neither the byte after a CR nor the two bytes after an argument, so neither does
//! this parser:
//!
//! ```text
//! request   = multibulk | inline
//! multibulk = "*" count CR LF, count times argument
//! argument  = "$" length CR LF, length bytes, CR LF
//! inline    = bytes without LF, LF
//! ```

use crate::error::ProtocolError;
use crate::event::{Arguments, Event, Parsed, Piece, Span};
use crate::inline;
use crate::limits::{Limits, UNAUTHENTICATED_ARGUMENT_BYTES_MAX, UNAUTHENTICATED_ARGUMENTS_MAX};
use crate::progress::{CRLF_BYTES, Line, Progress};

/// Between commands the parser keeps memory for at most so many arguments, and bytes of inline arguments.
const RETAINED_MAX: usize = 4096;

/// [`Parser::release`] leaves so many bytes of memory: thousands of connections may be idle.
const IDLE_BYTES_MAX: usize = 1 << 10;

/// Finds the commands of one connection.
///
/// The caller owns the input: it appends what arrives, passes all bytes that are not consumed, uses the event, and then
/// removes [`Parsed::consumed_bytes`] from the beginning. The parser keeps only how far it got, so the input of the
/// next call must begin where that of the last one did, after what it consumed. However the input arrives, the work is
/// linear in its length, and memory grows with the arguments that arrived, not with those that were announced.
///
/// The caller bounds its input. It need not hold an argument longer than [`Limits::pieces_from_bytes`], but it holds
/// all shorter ones until their command, or the next long argument of it, is complete.
///
/// ```
/// use fulgurite_resp::{Event, Limits, Parser};
///
/// let mut parser = Parser::new(Limits { pieces_from_bytes: 4, ..Limits::default() });
/// parser.set_authenticated(true);
/// // The input arrives in two reads.
/// let mut input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\nval".to_vec();
/// let mut unread: &[u8] = b"ue!\r\n";
/// let mut value = Vec::new();
/// loop {
///     let parsed = parser.parse(&input).expect("the request is well formed");
///     match parsed.event {
///         Event::Arguments(arguments) => {
///             assert!(arguments.iter().eq([&b"SET"[..], b"k"]));
///             assert_eq!(arguments.command_len(), 3);
///         }
///         Event::Piece(piece) => {
///             assert_eq!((piece.argument, piece.offset_bytes, piece.total_bytes), (2, value.len(), 6));
///             value.extend_from_slice(piece.bytes);
///         }
///         Event::End => break,
///         Event::Incomplete { missing_bytes } => {
///             assert_eq!(missing_bytes, 5);
///             input.extend_from_slice(std::mem::take(&mut unread));
///             continue;
///         }
///         Event::Command(arguments) => panic!("its value is large: {arguments:?}"),
///     }
///     let consumed = parsed.consumed_bytes;
///     input.drain(..consumed);
/// }
/// assert_eq!(value, b"value!");
/// ```
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    is_authenticated: bool,
    state: State,
    /// Of the current command: how many arguments it has, and how many are still to be found.
    command_len: usize,
    missing_arguments: usize,
    /// Whether the current command has large arguments, so that events of it were handed on.
    is_divided: bool,
    /// The arguments that were found since the last event, and the index of the first of them.
    found: Vec<Span>,
    first_index: usize,
    progress: Progress,
    /// The arguments of an inline command.
    inline_text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a command.
    Start,
    /// Before the length of an argument, or after the last argument.
    Length,
    /// Before the bytes of an argument of this length.
    Argument { bytes: usize },
    /// In a large argument.
    Pieces { offset_bytes: usize, total_bytes: usize },
    /// The last arguments of a divided command were handed on.
    End,
    /// The request broke the protocol.
    Failed(ProtocolError),
}

/// An event, without its slices, and how many bytes of the input it consumes.
enum Found {
    Incomplete {
        missing_bytes: usize,
    },
    /// Nothing for the caller: an empty command, or the line end after a large argument.
    Nothing {
        bytes: usize,
    },
    Command {
        bytes: usize,
    },
    Inline {
        bytes: usize,
    },
    Arguments {
        bytes: usize,
    },
    Piece {
        offset_bytes: usize,
        total_bytes: usize,
        bytes: usize,
    },
    End,
}

impl Parser {
    /// A parser of a new connection, which is not authenticated.
    pub fn new(limits: Limits) -> Parser {
        Parser {
            limits,
            is_authenticated: false,
            state: State::Start,
            command_len: 0,
            missing_arguments: 0,
            is_divided: false,
            found: Vec::new(),
            first_index: 0,
            progress: Progress::default(),
            inline_text: Vec::new(),
        }
    }

    /// Whether commands may have more than [`UNAUTHENTICATED_ARGUMENTS_MAX`] arguments, and those more than
    /// [`UNAUTHENTICATED_ARGUMENT_BYTES_MAX`]. It holds for lines that are parsed from now on: a command that changes
    /// it holds for the next one, though both arrived together.
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.is_authenticated = is_authenticated;
    }

    /// The input of the next call begins with the first byte of a command, whatever was found before: for a caller that takes back what
    /// it consumed, or that did not use an event and asks for it again.
    pub fn restart(&mut self) {
        self.state = State::Start;
        self.progress.consume();
    }

    /// Gives back what the last command took of memory but for a few arguments, unless one is arriving: a connection may be idle for long.
    pub fn release(&mut self) {
        if matches!(self.state, State::Start) && self.memory_bytes() > IDLE_BYTES_MAX {
            (self.found, self.inline_text) = (Vec::new(), Vec::new());
        }
    }

    /// How many bytes of memory it keeps: 16 for each argument of the command that is arriving, or arrived last.
    pub fn memory_bytes(&self) -> usize {
        self.found.capacity() * size_of::<Span>() + self.inline_text.capacity()
    }

    /// Changes the limits for lines that are parsed from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The next event. `input` is all that arrived and was not consumed. Empty commands (`*0`, `*-1`, an empty line)
    /// are consumed without an event, as in Redis. The caller goes on until [`Event::Incomplete`], which may consume
    /// bytes too: an [`Event::End`] needs no further input.
    ///
    /// # Errors
    /// If the request breaks the protocol. Each later call returns the same error.
    ///
    /// # Panics
    /// It may, if the input does not continue that of the last call.
    #[inline]
    pub fn parse<'a>(&'a mut self, input: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let mut skipped = 0;
        let found = loop {
            match self.find(&input[skipped..]) {
                Ok(Found::Nothing { bytes }) => skipped += bytes,
                Ok(found) => break found,
                Err(error) => {
                    self.state = State::Failed(error);
                    return Err(error);
                }
            }
        };
        let input = &input[skipped..];
        let (consumed, event) = match found {
            Found::Command { bytes } => (bytes, Event::Command(self.arguments(input))),
            Found::Inline { bytes } => (bytes, Event::Command(self.arguments(&self.inline_text))),
            Found::Arguments { bytes } => (bytes, Event::Arguments(self.arguments(input))),
            Found::Piece { offset_bytes, total_bytes, bytes } => {
                let argument = self.command_len - self.missing_arguments;
                (bytes, Event::Piece(Piece { argument, offset_bytes, total_bytes, bytes: &input[..bytes] }))
            }
            Found::End => (0, Event::End),
            Found::Incomplete { missing_bytes } => (0, Event::Incomplete { missing_bytes }),
            Found::Nothing { .. } => unreachable!("the loop skips it"),
        };
        Ok(Parsed { consumed_bytes: skipped + consumed, event })
    }

    fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        let (spans, first_index, command_len) = (&self.found[..], self.first_index, self.command_len);
        Arguments { bytes, spans, first_index, command_len }
    }

    #[inline]
    fn find(&mut self, input: &[u8]) -> Result<Found, ProtocolError> {
        match self.state {
            State::Start => self.find_start(input),
            State::Length | State::Argument { .. } => self.find_arguments(input),
            State::Pieces { offset_bytes, total_bytes } => {
                Ok(self.find_piece(input, offset_bytes, total_bytes))
            }
            State::End => {
                self.state = State::Start;
                Ok(Found::End)
            }
            State::Failed(error) => Err(error),
        }
    }

    fn find_start(&mut self, input: &[u8]) -> Result<Found, ProtocolError> {
        match input.first() {
            None => return Ok(Found::Incomplete { missing_bytes: 1 }),
            Some(b'*') => {}
            Some(_) => return self.find_inline(input),
        }
        let (count, end) = match self.progress.number_line(input, ProtocolError::TooBigCountString)? {
            Line::Incomplete { missing_bytes } => return Ok(Found::Incomplete { missing_bytes }),
            Line::Whole { number, end } => (number.ok_or(ProtocolError::InvalidMultibulkLength)?, end),
        };
        if count <= 0 {
            self.progress.consume();
            return Ok(Found::Nothing { bytes: end });
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > self.limits.arguments_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if count > UNAUTHENTICATED_ARGUMENTS_MAX && !self.is_authenticated {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        self.begin(count);
        self.progress.position = end;
        self.state = State::Length;
        self.find_arguments(input)
    }

    /// Forgets the command before.
    fn begin(&mut self, count: usize) {
        self.found.clear();
        if self.found.capacity() > RETAINED_MAX {
            self.found.shrink_to(count.max(RETAINED_MAX));
        }
        self.inline_text.clear();
        self.inline_text.shrink_to(RETAINED_MAX);
        (self.command_len, self.missing_arguments) = (count, count);
        (self.first_index, self.is_divided) = (0, false);
    }

    fn find_arguments(&mut self, input: &[u8]) -> Result<Found, ProtocolError> {
        while self.missing_arguments > 0 {
            self.progress.step(1);
            let bytes = match self.state {
                State::Argument { bytes } => bytes,
                _ => match self.progress.number_line(input, ProtocolError::TooBigBulkCountString)? {
                    Line::Incomplete { missing_bytes } => return Ok(Found::Incomplete { missing_bytes }),
                    Line::Whole { number, end } => {
                        let bytes = self.check_length(input[self.progress.position], number)?;
                        self.progress.position = end;
                        bytes
                    }
                },
            };
            if bytes > self.limits.pieces_from_bytes {
                self.state = State::Pieces { offset_bytes: 0, total_bytes: bytes };
                if self.is_divided && self.found.is_empty() {
                    // Two large arguments follow each other.
                    return Ok(Found::Nothing { bytes: self.progress.consume() });
                }
                self.is_divided = true;
                return Ok(Found::Arguments { bytes: self.progress.consume() });
            }
            // No overflow: both are at most half of what a `usize` holds.
            let end = self.progress.position + bytes;
            let next = end + CRLF_BYTES;
            if input.len() < next {
                self.state = State::Argument { bytes };
                return Ok(Found::Incomplete { missing_bytes: next - input.len() });
            }
            self.found.push(Span { start: self.progress.position, end });
            self.progress.position = next;
            self.missing_arguments -= 1;
            self.state = State::Length;
        }
        Ok(self.find_end())
    }

    /// All arguments were found.
    fn find_end(&mut self) -> Found {
        self.state = State::Start;
        if !self.is_divided {
            return Found::Command { bytes: self.progress.consume() };
        }
        if self.found.is_empty() {
            return Found::End;
        }
        self.state = State::End;
        Found::Arguments { bytes: self.progress.consume() }
    }

    fn find_piece(&mut self, input: &[u8], offset_bytes: usize, total_bytes: usize) -> Found {
        // The arguments before it were handed on.
        self.found.clear();
        let left = total_bytes - offset_bytes;
        let bytes = left.min(input.len());
        if bytes > 0 {
            self.state = State::Pieces { offset_bytes: offset_bytes + bytes, total_bytes };
            return Found::Piece { offset_bytes, total_bytes, bytes };
        }
        if left > 0 || input.len() < CRLF_BYTES {
            return Found::Incomplete { missing_bytes: left + CRLF_BYTES - input.len() };
        }
        self.missing_arguments -= 1;
        self.first_index = self.command_len - self.missing_arguments;
        self.progress.consume();
        self.state = State::Length;
        Found::Nothing { bytes: CRLF_BYTES }
    }

    /// The length of an argument, from the first byte and the number of its line.
    #[inline]
    fn check_length(&self, first: u8, number: Option<i64>) -> Result<usize, ProtocolError> {
        if first != b'$' {
            return Err(ProtocolError::ExpectedDollar(first));
        }
        let bytes_max = self.limits.argument_bytes_max.min(isize::MAX as usize / 2);
        let bytes = number.and_then(|number| usize::try_from(number).ok());
        let bytes = bytes.filter(|&bytes| bytes <= bytes_max).ok_or(ProtocolError::InvalidBulkLength)?;
        if bytes > UNAUTHENTICATED_ARGUMENT_BYTES_MAX && !self.is_authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        Ok(bytes)
    }

    fn find_inline(&mut self, input: &[u8]) -> Result<Found, ProtocolError> {
        let Some(at) = self.progress.line_end(input, b'\n', ProtocolError::TooBigInlineRequest)? else {
            return Ok(Found::Incomplete { missing_bytes: 1 });
        };
        self.begin(0);
        self.progress.consume();
        let line = &input[..at];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.inline_text, &mut self.found)
            .map_err(|_| ProtocolError::UnbalancedQuotes)?;
        self.command_len = self.found.len();
        let bytes = at + 1;
        Ok(if self.found.is_empty() { Found::Nothing { bytes } } else { Found::Inline { bytes } })
    }

    /// Bytes, lines and arguments that were looked at.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> usize {
        self.progress.steps
    }
}
