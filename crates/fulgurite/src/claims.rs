//! Keys that open transactions have popped: what other pops pass over.
//!
//! Claims live in memory only and promise nothing: what a transaction popped is decided at its commit, by validation.
//! They keep workers at one end of a table from running into each other's conflicts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use fulgurite_env::Process;
use parking_lot::Mutex;

use crate::catalog::TableState;

/// The claimed keys of a table, each with the transaction that has it.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<Box<[u8]>, u64>>);

/// A claim of an open transaction; dropping it lets others pop the key.
pub(crate) struct Claim {
    /// Which has the lock of the claims; not a child of it.
    process: Process,
    table: Arc<TableState>,
    key: Box<[u8]>,
    /// How many savepoints its transaction had made.
    pub after_savepoints: u64,
}

/// What came of claiming a key.
pub(crate) enum Claiming {
    Done(Claim),
    /// The transaction has it already.
    Own,
    /// Another transaction has it.
    Taken,
}

impl Claim {
    /// Claims a key for a transaction, unless it is claimed.
    pub fn try_new(table: &Arc<TableState>, key: &[u8], transaction: u64, after_savepoints: u64) -> Claiming {
        match table.claims.0.lock().entry(key.into()) {
            Entry::Occupied(owner) if *owner.get() == transaction => return Claiming::Own,
            Entry::Occupied(_) => return Claiming::Taken,
            Entry::Vacant(vacant) => vacant.insert(transaction),
        };
        Claiming::Done(Claim {
            process: Process::current(),
            table: table.clone(),
            key: key.into(),
            after_savepoints,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        self.table.claims.0.lock().remove(&self.key);
    }
}
