//! Conversion of the lower crates' errors. Not by `From`: that would be public, and `?` would convert an error without
//! a decision about what the caller may believe.

use fulgurite_index::IndexError;
use fulgurite_log::LogError;

use super::{CsnRange, Damage, Error, Missing, Result};

/// Converts a result of a lower crate.
pub(crate) trait OrError<T> {
    fn or_error(self) -> Result<T>;
}

impl<T> OrError<T> for Result<T, LogError> {
    fn or_error(self) -> Result<T> {
        self.map_err(Error::of_log)
    }
}

impl<T> OrError<T> for Result<T, IndexError> {
    fn or_error(self) -> Result<T> {
        self.map_err(Error::of_index)
    }
}

impl Error {
    #[cold]
    pub(crate) fn of_index(error: IndexError) -> Error {
        match error {
            IndexError::Store { table, lsn, source } => match source.downcast::<LogError>() {
                Ok(error) => match *error {
                    LogError::Damaged(mut damage) => {
                        damage.what = format!("the node record of table {table} there: {}", damage.what);
                        Error::of_log(LogError::Damaged(damage))
                    }
                    error => Error::of_log(error),
                },
                Err(source) => Error::Io {
                    what: format!("the node record at {lsn} of table {table} could not be read or written"),
                    source,
                },
            },
            error @ IndexError::LeafTooLong { .. } => Error::Refused { what: error.to_string() },
            IndexError::WouldBlock => Error::WouldBlock(Missing::Node),
            IndexError::Unordered => Error::WouldBlock(Missing::Order),
            IndexError::Corrupt { table, lsn, what } => {
                let mut damage = Damage::new(format!("the node record of table {table} there: {what}"));
                damage.path = Some(format!("{:010}.seg", lsn.segment()).into());
                damage.offset = Some(lsn.offset().into());
                damage.into()
            }
        }
    }

    #[cold]
    pub(crate) fn of_log(error: LogError) -> Error {
        match error {
            LogError::NoSpace { path, source } => {
                Error::NoSpace { what: format!("there is no room for {}: {source}", path.display()) }
            }
            LogError::Damaged(damage) => {
                let csns = damage.csns.map(|(first, last)| CsnRange { first, last });
                let mut ours = Damage::new(damage.what).in_file(damage.path);
                (ours.offset, ours.csns) = (Some(damage.offset), csns);
                ours.into()
            }
            LogError::Poisoned(cause) => Error::Poisoned { what: cause.to_string(), at_risk: None },
            LogError::Closed => Error::Closed,
            LogError::NotLeader => Error::NotLeader { leader: None },
            LogError::Io { action, path, source } => {
                Error::Io { what: format!("could not {action} {}", path.display()), source: Box::new(source) }
            }
            LogError::Sink { csn, source } => match source.downcast::<Error>() {
                Ok(error) => *error,
                Err(source) => {
                    let mut damage = Damage::new(format!("commit {csn} cannot be replayed")).of_commit(csn);
                    damage.source = Some(source);
                    damage.into()
                }
            },
            other => Error::Refused { what: other.to_string() },
        }
    }
}
