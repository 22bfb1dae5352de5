//! Why a server does not start.

use std::fmt;
use std::net::SocketAddr;

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// Options are out of range: every violation at once, a sentence for each.
    Config {
        /// The sentences.
        violations: Vec<String>,
    },
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The operating system refused a thread, or an event queue.
    Io(std::io::Error),
    /// The database failed.
    Database(fulgurite::Error),
    /// A newer version of the program wrote the data model. Nothing was changed.
    NewerModel {
        /// The version that was found.
        found: u8,
        /// The newest that this program reads.
        supported: u8,
    },
    /// A record of the data model is damaged or missing. Nothing was changed.
    Model {
        /// Which.
        what: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config { violations } => write!(f, "bad options: {}", violations.join("; ")),
            StartError::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            StartError::Io(source) => write!(f, "cannot start the server's threads: {source}"),
            StartError::Database(source) => write!(f, "{source}"),
            StartError::NewerModel { found, supported } => write!(
                f,
                "the tables of the server have format {found}, and this program reads up to {supported}: use a newer one"
            ),
            StartError::Model { what } => write!(f, "{what}: restore the database from a copy"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::Listen { source, .. } | StartError::Io(source) => Some(source),
            StartError::Database(source) => Some(source),
            _ => None,
        }
    }
}

impl From<fulgurite::Error> for StartError {
    fn from(source: fulgurite::Error) -> StartError {
        StartError::Database(source)
    }
}

impl From<std::io::Error> for StartError {
    fn from(source: std::io::Error) -> StartError {
        StartError::Io(source)
    }
}
