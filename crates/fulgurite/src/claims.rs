//! Claims: the keys that open transactions have popped, which other pops skip.
//!
//! Claims are in memory only and guarantee nothing: validation at commit decides which transaction gets an entry. They
//! keep workers at one end of a table from conflicting with each other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use fulgurite_env::Process;
use parking_lot::Mutex;

use crate::catalog::TableState;

/// The claimed keys of a table, each with the transaction that claimed it.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<Box<[u8]>, u64>>);

/// A claim of an open transaction; dropping it lets other transactions pop the key.
pub(crate) struct Claim {
    /// The process that made the claim. A child of `fork()` must not take the lock of the claims.
    process: Process,
    table: Arc<TableState>,
    key: Box<[u8]>,
    /// How many savepoints its transaction had made.
    pub after_savepoints: u64,
}

/// The outcome of claiming a key.
pub(crate) enum Claiming {
    Done(Claim),
    /// The transaction has claimed it already.
    Own,
    /// Another transaction has claimed it.
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
