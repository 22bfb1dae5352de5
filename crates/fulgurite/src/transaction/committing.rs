//! A transaction that commits: its latches, and its validation.

use std::sync::Arc;

use fulgurite_index::Io;
use fulgurite_types::Csn;

use super::Transaction;
use crate::catalog::TableState;
use crate::commit::Committer;
use crate::commit::latches::{Gate, LatchSet};
use crate::error::OrError;
use crate::merger::freeze_if_grown;
use crate::read_set::Validated;
use crate::{Conflict, Contended, Error, Result};

/// A transaction that commits.
pub(super) struct Committing {
    pub transaction: Transaction,
    pub reads: Validated,
    /// The table that a definition changes.
    pub exclusive: Option<Arc<TableState>>,
}

impl Committer for Committing {
    fn latches(&self) -> LatchSet<'_> {
        let mut set = LatchSet::default();
        for writes in &self.transaction.writes.tables {
            set.gate(&writes.table, if writes.ranges.is_empty() { Gate::Shared } else { Gate::Exclusive });
            for (_, op) in writes.ops.iter() {
                set.key(op.hash);
            }
        }
        for read in self.reads.keys() {
            set.gate(read.table, Gate::Shared);
            set.key(read.hash());
        }
        for (table, _) in self.reads.ranges() {
            set.gate(table, Gate::Exclusive);
        }
        if let Some(table) = &self.exclusive {
            set.gate(table, Gate::Exclusive);
        }
        set
    }

    fn validate(&self, checked: Csn, io: Io) -> Result<()> {
        let transaction = &self.transaction;
        let reads = &self.reads;
        let than = transaction.snapshot.csn.max(checked);
        let written = transaction.writes.tables.iter().filter(|writes| !writes.is_empty());
        let read = reads.keys().map(|key| key.table).chain(reads.ranges().map(|(table, _)| table));
        let mut tables = written.clone().map(|writes| &writes.table).chain(read);
        if let Some(table) = tables.find(|table| table.dropped().is_some()) {
            return Err(Error::TableDropped { name: table.name().to_string() });
        }
        // No later commit has its number: none can have written what was read. One that wrote it has entered its number, and
        // that before it gave back the latches that this thread holds now (INV-TXN-2). Without latches: each visible commit has.
        if transaction.engine.pipeline.newest() <= than {
            return Ok(());
        }
        for writes in written {
            for (key, op) in writes.ops.iter().filter(|(_, op)| op.read_before) {
                validate_key(&writes.table, key, op.hash, than, io)?;
            }
        }
        for read in reads.keys() {
            validate_key(read.table, read.key, read.hash(), than, io)?;
        }
        for (table, ranges) in reads.ranges() {
            for range in ranges.iter() {
                if table.index.any_newer_in_range(range.span, than, io).or_error()? {
                    let (start, end) = range.bounds();
                    let on = Contended::Range { start: start.map(Box::from), end: end.map(Box::from) };
                    // The winning commit is applied, so it has its number.
                    return Err(conflict(table, on, transaction.engine.log.reserved_csn()));
                }
            }
        }
        Ok(())
    }

    fn before_ms(&self) -> u64 {
        self.reads.live_until_ms()
    }

    fn too_late(&self) -> Error {
        self.reads.too_late()
    }

    fn release(mut self, csn: Csn) {
        if let Some(spill) = self.transaction.spill.take() {
            spill.committed(csn);
        }
        let engine = &*self.transaction.engine;
        let bytes_max = engine.memtable_bytes_max();
        for writes in &self.transaction.writes.tables {
            freeze_if_grown(&writes.table, &engine.pipeline, bytes_max);
        }
        engine.look_at_memtables();
    }
}

fn validate_key(table: &TableState, key: &[u8], hash: u64, than: Csn, io: Io) -> Result<()> {
    match table.index.newest_csn(key, hash, than, io).or_error()? {
        None => Ok(()),
        Some(csn) => Err(conflict(table, Contended::Key(key.into()), csn)),
    }
}

#[cold]
fn conflict(table: &TableState, on: Contended, csn: Csn) -> Error {
    Error::Conflict(Box::new(Conflict { table: table.name(), on, csn }))
}
