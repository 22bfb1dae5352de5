//! Content of a new collection that is stored before the head which refers to it: so a result of a million members is neither one
//! transaction in memory, nor one commit for which the commits of all others wait.
//!
//! As with values that arrive ([`crate::arrivals`]): the rows are written under a fresh id, in transactions of their own, which do not
//! wait to be durable. The first one names the id as garbage, too; the command's own transaction deletes that record, and writes the head.
//! Commits are durable in their order, so at every crash either the head is there and all rows are, or the id is garbage. The id is
//! among those under which values arrive (INV-SRV-4) until the command's commit has its number.

use std::sync::Arc;

use fulgurite::{Durability, Error, Transaction};

use super::tables::{Garbage, Model, garbage_key};
use crate::arrivals::Arrivals;
use crate::stop::{Result, Stop};

/// So many rows of an id, or bytes, are of the command's own transaction.
const OWN_ROWS_MAX: usize = 1_024;
const OWN_BYTES_MAX: usize = 256 << 10;

/// Each other transaction has so many rows, or bytes: those of others wait for its commit, and the processor may, too.
const ROWS_MAX: usize = 128;
const BYTES_MAX: usize = 64 << 10;

/// What is stored for one command.
pub(crate) struct Staging {
    arrivals: Arc<Arrivals>,
    id: Option<u64>,
    /// Rows and bytes of the current transaction: first the command's own one.
    rows: usize,
    bytes: usize,
    is_own_full: bool,
    batch: Option<Transaction>,
}

impl Staging {
    pub fn new(arrivals: &Arc<Arrivals>) -> Staging {
        Staging { arrivals: arrivals.clone(), id: None, rows: 0, bytes: 0, is_own_full: false, batch: None }
    }

    /// All content of this fresh id is written once, and is not read by the command.
    pub fn begin(&mut self, id: u64) {
        if self.id.is_none() {
            self.id = Some(id);
        }
    }

    /// Whether a row does not belong to the command's own transaction.
    pub fn takes(&mut self, row: &[u8], value: &[u8]) -> bool {
        if self.id.is_none_or(|id| !row.starts_with(&id.to_be_bytes())) {
            return false;
        }
        self.is_own_full |= self.rows >= OWN_ROWS_MAX || self.bytes >= OWN_BYTES_MAX;
        if !self.is_own_full {
            self.rows += 1;
            self.bytes += row.len() + value.len();
        }
        self.is_own_full
    }

    /// Stores a row that it takes.
    pub fn put(&mut self, model: &Model, row: &[u8], value: &[u8]) -> Result<()> {
        let Some(id) = self.id else { unreachable!("it takes rows of an id alone") };
        if self.batch.is_none() {
            let is_first = self.arrivals.insert(id);
            let mut txn = model.db.begin();
            txn.set_durability(Durability::None)?;
            if is_first {
                txn.put(&model.tables.garbage, garbage_key(Garbage::Content(id)), b"")?;
            }
            self.batch = Some(txn);
            (self.rows, self.bytes) = (0, 0);
        }
        let batch = self.batch.as_mut().expect("it was begun above");
        batch.put(&model.tables.content, row, value)?;
        self.rows += 1;
        self.bytes += row.len() + value.len();
        if self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<()> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        match batch.commit_numbered() {
            Ok(_) => Ok(()),
            Err(Error::Conflict(_)) => Err(Stop::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the rest. If anything was stored, it is garbage until the command's own transaction, `txn`, is committed.
    pub fn finish(&mut self, model: &Model, txn: &mut Transaction) -> Result<()> {
        self.commit()?;
        if let Some(id) = self.id.filter(|_| self.is_own_full) {
            txn.delete(&model.tables.garbage, garbage_key(Garbage::Content(id)))?;
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.arrivals.remove(id);
        }
    }
}
