//! Errors of requests and of replies.

use std::fmt;

/// A request that breaks the protocol. The server sends `-ERR ` and the text, which is that of Redis, and closes the
/// connection: the parser cannot find the next command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number of arguments is not a number, or above [`Limits::arguments_max`](crate::Limits::arguments_max).
    InvalidMultibulkLength,
    /// The length of an argument is not a number, negative, or above
    /// [`Limits::argument_bytes_max`](crate::Limits::argument_bytes_max).
    InvalidBulkLength,
    /// More than [`UNAUTHENTICATED_ARGUMENTS_MAX`](crate::UNAUTHENTICATED_ARGUMENTS_MAX) arguments before
    /// authentication.
    UnauthenticatedMultibulkLength,
    /// An argument of more than
    /// [`UNAUTHENTICATED_ARGUMENT_BYTES_MAX`](crate::UNAUTHENTICATED_ARGUMENT_BYTES_MAX) bytes before authentication.
    UnauthenticatedBulkLength,
    /// An inline command has no line end within [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
    TooBigInlineRequest,
    /// The number of arguments has no line end within [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
    TooBigCountString,
    /// The length of an argument has no line end within [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
    TooBigBulkCountString,
    /// An argument begins with this byte instead of `$`.
    ExpectedDollar(u8),
    /// A quote of an inline command is not closed, or the closing one is not followed by a blank.
    UnbalancedQuotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::TooBigInlineRequest => "too big inline request",
            ProtocolError::TooBigCountString => "too big mbulk count string",
            ProtocolError::TooBigBulkCountString => "too big bulk count string",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            // Redis prints the byte itself, and a space for each of CR and LF.
            ProtocolError::ExpectedDollar(byte) => {
                f.write_str("Protocol error: expected '$', got '")?;
                match byte {
                    b'\r' | b'\n' => f.write_str(" ")?,
                    b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                    _ => write!(f, "\\x{byte:02x}")?,
                }
                return f.write_str("'");
            }
        };
        write!(f, "Protocol error: {text}")
    }
}

impl std::error::Error for ProtocolError {}

/// A reply that breaks the protocol. The client cannot find the next reply; it closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// No reply begins with this byte.
    UnknownType(u8),
    /// A length is not a number, negative, or not allowed here.
    InvalidLength,
    /// An integer, double, boolean, null, big number or verbatim string has another form.
    InvalidValue,
    /// A string is not followed by CR and LF, or a line holds one of them alone.
    MissingLineEnd,
    /// Aggregates are nested deeper than [`REPLY_DEPTH_MAX`](crate::REPLY_DEPTH_MAX).
    TooDeep,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplyError::UnknownType(byte) => write!(f, "no reply begins with the byte 0x{byte:02x}"),
            ReplyError::InvalidLength => f.write_str("a length in the reply is not valid"),
            ReplyError::InvalidValue => f.write_str("a value in the reply has not the form of its type"),
            ReplyError::MissingLineEnd => f.write_str("CR and LF are missing in the reply"),
            ReplyError::TooDeep => write!(f, "the reply is nested deeper than {}", crate::REPLY_DEPTH_MAX),
        }
    }
}

impl std::error::Error for ReplyError {}
