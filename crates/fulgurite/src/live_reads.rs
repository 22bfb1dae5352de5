//! The values that a transaction has read live and that expire: its commit has to happen before they do (INV-TIME-2).

use std::sync::Arc;

use fulgurite_types::Csn;
use parking_lot::Mutex;

use crate::catalog::TableState;
use crate::{Conflict, Contended, Error, Isolation};

/// The purpose of reading a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFor {
    /// Commit validates it if the transaction is serializable.
    Reading,
    /// Commit validates it whatever the isolation.
    Update,
}

/// A value that was read while it was live and that expires.
pub(crate) struct LiveRead {
    pub expires_at_ms: u64,
    table: Arc<TableState>,
    key: Box<[u8]>,
}

impl LiveRead {
    /// The error of a commit at or after its expiry.
    pub fn conflict(&self) -> Error {
        let on = Contended::Expired(self.key.clone());
        Error::Conflict(Box::new(Conflict { table: self.table.name(), on, csn: Csn::ZERO }))
    }
}

/// Of the validated reads, the live value that expires first.
pub(crate) struct LiveReads {
    isolation: Isolation,
    first: Mutex<Option<LiveRead>>,
}

impl LiveReads {
    pub fn new(isolation: Isolation) -> LiveReads {
        LiveReads::with(isolation, None)
    }

    /// The reads of which this value expires first.
    pub fn with(isolation: Isolation, first: Option<LiveRead>) -> LiveReads {
        LiveReads { isolation, first: Mutex::new(first) }
    }

    /// Records that a value was read while it was live; an `expires_at_ms` of 0 is never.
    #[inline]
    pub fn note(&self, table: &Arc<TableState>, key: &[u8], expires_at_ms: u64, read_for: ReadFor) {
        if expires_at_ms != 0 && (self.isolation == Isolation::Serializable || read_for == ReadFor::Update) {
            let mut first = self.first.lock();
            if first.as_ref().is_none_or(|first| expires_at_ms < first.expires_at_ms) {
                *first = Some(LiveRead { expires_at_ms, table: table.clone(), key: key.into() });
            }
        }
    }

    /// The value that expires first.
    pub fn into_first(self) -> Option<LiveRead> {
        self.first.into_inner()
    }
}
