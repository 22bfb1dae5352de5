//! Why a command ended without a reply of its own: an error reply, or what it has to wait for.

use std::borrow::Cow;

use fulgurite::{Error, Missing};

/// An error reply, with the prefix by which clients tell errors apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply {
    pub code: &'static str,
    pub message: Cow<'static, str>,
}

impl ErrorReply {
    pub const fn new(code: &'static str, message: &'static str) -> ErrorReply {
        ErrorReply { code, message: Cow::Borrowed(message) }
    }

    pub const SYNTAX: ErrorReply = ErrorReply::new("ERR", "syntax error");
    pub const NOT_AN_INTEGER: ErrorReply = ErrorReply::new("ERR", "value is not an integer or out of range");
    pub const NOT_A_FLOAT: ErrorReply = ErrorReply::new("ERR", "value is not a valid float");
    pub const OVERFLOW: ErrorReply = ErrorReply::new("ERR", "increment or decrement would overflow");
    pub const NAN: ErrorReply = ErrorReply::new("ERR", "increment would produce NaN or Infinity");
    pub const TOO_LONG: ErrorReply =
        ErrorReply::new("ERR", "string exceeds maximum allowed size (proto-max-bulk-len)");
    pub const OFFSET: ErrorReply = ErrorReply::new("ERR", "offset is out of range");
    pub const WRONG_TYPE: ErrorReply =
        ErrorReply::new("WRONGTYPE", "Operation against a key holding the wrong kind of value");
    pub const NO_AUTH: ErrorReply = ErrorReply::new("NOAUTH", "Authentication required.");
}

/// Why a command ended.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It would have to wait, or to read from disk, on a thread that does not; for what. Nothing happened.
    Blocked(Missing),
    /// It would take long on a thread that serves others; nothing happened.
    Large,
    /// Commands are paused, and it runs when they are not. Nothing happened.
    Paused,
    /// Its transaction conflicted with another one: it runs again.
    Conflict,
    /// It gets this reply; nothing happened.
    Reply(ErrorReply),
    /// Whether it happened is unknown: its connection is closed without a reply.
    Unknown,
}

impl From<ErrorReply> for Stop {
    fn from(reply: ErrorReply) -> Stop {
        Stop::Reply(reply)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        let refused = |message: String| Stop::Reply(ErrorReply { code: "MISCONF", message: message.into() });
        match error {
            Error::WouldBlock(missing) => Stop::Blocked(missing),
            Error::OutcomeUnknown { .. } => Stop::Unknown,
            Error::NoSpace { .. } => refused(format!("The disk is full, and writes are refused: {error}")),
            Error::Poisoned { .. } => refused(format!("The log failed, and writes are refused: {error}")),
            error => {
                if matches!(error, Error::Damaged(_) | Error::Io { .. }) {
                    tracing::error!(%error, "a command failed");
                }
                Stop::Reply(ErrorReply { code: "ERR", message: error.to_string().into() })
            }
        }
    }
}

/// The result of a command, or of a step of one.
pub(crate) type Result<T, E = Stop> = std::result::Result<T, E>;
