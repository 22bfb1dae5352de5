//! Why a command ends without success, and its exit code.

use std::io;
use std::process::ExitCode;

use fulgurite::{Error, ErrorKind};
use serde_json::json;

use crate::stderr;

/// All exit codes: in the help, in the man page and in `docs/command-line.md`.
pub(crate) const EXIT_CODES: &str = "\
EXIT CODES:
  0    success
  1    it failed at run time
  2    the command line is wrong
  3    the database is damaged, or `export --skip-damaged` left something out
  4    another process has the database open
  5    there is no such key
  130  a signal (SIGINT, SIGTERM) ended a load, an export to a file or a probe;
       what it reported until then holds
  143  what a shell reports of any other command that SIGTERM ended; 130 if
       SIGINT did";

/// Something failed at run time.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
pub(crate) const DAMAGED: u8 = 3;
const LOCKED: u8 = 4;
const NOT_FOUND: u8 = 5;
/// What a shell reports for a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// The end of a command that did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of the output has closed it: nothing is wrong.
    ReaderGone,
    /// A message for standard error and an exit code.
    Message {
        text: String,
        code: u8,
        /// The kind of failure, in one word for programs.
        kind: &'static str,
    },
    /// The message was printed already; this exit code remains.
    Said { code: u8 },
}

impl Failure {
    /// It failed at run time.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure::Message { text: text.into(), code: FAILED, kind: "failed" }
    }

    /// There is no such key.
    pub fn not_found(text: impl Into<String>) -> Failure {
        Failure::Message { text: text.into(), code: NOT_FOUND, kind: "not_found" }
    }

    /// The command line is wrong in a way that its parser does not see.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::Message { text: text.into(), code: USAGE, kind: "usage" }
    }

    /// The database is damaged, and the command has reported the damage.
    pub fn damaged() -> Failure {
        Failure::Said { code: DAMAGED }
    }

    /// The database is damaged.
    pub fn of_damage(text: impl Into<String>) -> Failure {
        Failure::Message { text: text.into(), code: DAMAGED, kind: "restore" }
    }

    /// A signal asked the command to end, and it has reported what it did until then.
    pub fn interrupted() -> Failure {
        Failure::Said { code: INTERRUPTED }
    }

    /// A signal asked the command to end before it did anything permanent.
    pub fn interrupted_before(what: &str) -> Failure {
        Failure::Message { text: format!("interrupted: {what}"), code: INTERRUPTED, kind: "interrupted" }
    }

    /// Writing to standard output failed.
    pub fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::new(format!("writing standard output: {error}")),
        }
    }

    /// Reading or writing a file failed.
    pub fn file(action: &str, name: &str, error: &io::Error) -> Failure {
        Failure::new(format!("{action} {name}: {error}"))
    }

    /// The same failure with `context` in front of its message.
    pub fn within(self, context: &str) -> Failure {
        match self {
            Failure::Message { text, code, kind } => {
                Failure::Message { text: format!("{context}: {text}"), code, kind }
            }
            other => other,
        }
    }

    /// The same failure with `addition` after its message.
    pub fn and(self, addition: &str) -> Failure {
        match self {
            Failure::Message { text, code, kind } => {
                Failure::Message { text: format!("{text}; {addition}"), code, kind }
            }
            other => other,
        }
    }

    /// The failure of a read from an open database: adds what to do about damage.
    pub fn of_reading(self) -> Failure {
        match self {
            Failure::Message { code: DAMAGED, .. } => {
                self.and("restore a backup, or save what can be read with `fulgurite export --skip-damaged`")
            }
            other => other,
        }
    }

    /// Prints the message, if there is one, as a line of text or as a JSON object, and returns the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::ReaderGone => ExitCode::SUCCESS,
            Failure::Said { code } => ExitCode::from(code),
            Failure::Message { text, code, kind } => {
                match stderr::is_for_programs() {
                    true => stderr::object(&json!({ "error": text, "kind": kind, "exit_code": code })),
                    false => stderr::line(&format!("error: {}", text.replace('\n', " "))),
                }
                ExitCode::from(code)
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Damaged { .. } => DAMAGED,
            Error::Locked { .. } => LOCKED,
            _ => FAILED,
        };
        let kind = match error.kind() {
            ErrorKind::Retry => "retry",
            ErrorKind::Request => "request",
            ErrorKind::Space => "space",
            ErrorKind::Reopen => "reopen",
            ErrorKind::Restore => "restore",
            ErrorKind::Environment => "environment",
            _ => "failed",
        };
        Failure::Message { text: with_causes(&error), code, kind }
    }
}

/// The error's message, and those of its causes that the message does not already quote.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let cause = io::Error::other("no such device");
        let error = Error::Io { what: "reading a".into(), source: Box::new(cause) };
        assert_eq!(with_causes(&error), "reading a: no such device");
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        assert!(matches!(Failure::output(io::ErrorKind::BrokenPipe.into()), Failure::ReaderGone));
    }
}
