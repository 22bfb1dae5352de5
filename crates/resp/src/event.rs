//! Events of the request parser, and the arguments that they carry.

use std::ops::Index;

/// A call of [`Parser::parse`](crate::Parser::parse).
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// How many bytes the caller removes from the beginning of its input before the next call, after it has used the
    /// event.
    pub consumed_bytes: usize,
    /// What was found.
    pub event: Event<'a>,
}

/// What the parser found.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The input holds no further event.
    Incomplete {
        /// The line or the argument that is arriving needs at least so many bytes more, at least 1. It may be as long
        /// as [`Limits::argument_bytes_max`](crate::Limits::argument_bytes_max) and 2: a caller reserves no more than
        /// it can spare, and reads fewer. For an argument in pieces it counts to the argument's end.
        missing_bytes: usize,
    },
    /// A whole command, of at least one argument.
    Command(Arguments<'a>),
    /// Arguments of a command that has large ones: those before its first large argument (there may be none), between
    /// two of them, or after the last.
    Arguments(Arguments<'a>),
    /// Bytes of a large argument.
    Piece(Piece<'a>),
    /// The end of a command that has large arguments.
    End,
}

/// Bytes of an argument of more than [`Limits::pieces_from_bytes`](crate::Limits::pieces_from_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The argument's index in the command.
    pub argument: usize,
    /// Where in the argument the bytes begin: the sum of the lengths of its earlier pieces.
    pub offset_bytes: usize,
    /// Length of the argument.
    pub total_bytes: usize,
    /// The bytes, at least one.
    pub bytes: &'a [u8],
}

impl Piece<'_> {
    /// Whether the argument ends here.
    pub fn is_last(&self) -> bool {
        self.offset_bytes + self.bytes.len() == self.total_bytes
    }
}

/// Where an argument is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub start: usize,
    pub end: usize,
}

/// Consecutive arguments of a command, as slices of the input; those of an inline command, of the parser's buffer.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) spans: &'a [Span],
    pub(crate) first_index: usize,
    pub(crate) command_len: usize,
}

impl<'a> Arguments<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The index in the command of the first of them: 0 in an [`Event::Command`].
    pub fn first_index(&self) -> usize {
        self.first_index
    }

    /// How many arguments the whole command has.
    pub fn command_len(&self) -> usize {
        self.command_len
    }

    /// The argument at this index among these.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        Some(&self.bytes[span.start..span.end])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.start..span.end])
    }
}

impl Index<usize> for Arguments<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        let span = self.spans[index];
        &self.bytes[span.start..span.end]
    }
}

impl std::fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|argument| argument.escape_ascii().to_string())).finish()
    }
}
