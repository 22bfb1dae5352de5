//! Rows into transactions, transactions into commits.

use std::sync::Arc;

use fulgurite::env::Env;
use fulgurite::limits::FRAME_BYTES_MAX;
use fulgurite::{Database, Error, Table, Transaction};

use super::acknowledge::Acknowledger;
use crate::failure::Failure;
use crate::rows::Row;

/// A commit of this many bytes is made however few rows it has: longer ones would not fit one frame of the log.
const BATCH_BYTES_MAX: usize = FRAME_BYTES_MAX as usize / 4 * 3;

/// Why a row was not taken.
pub(super) enum Refused {
    /// It is not fit for a table: the load can go on without it.
    Row(Error),
    /// Nothing can be taken any more.
    Load(Failure),
}

/// Gathers rows and commits them; the acknowledger waits for the disk meanwhile.
pub(super) struct Batches {
    db: Database,
    table: Table,
    rows_max: u64,
    open: Option<Transaction>,
    open_rows: u64,
    open_bytes: usize,
    rows: u64,
    commits: u64,
    acknowledger: Acknowledger,
}

impl Batches {
    pub fn start(
        env: &Arc<dyn Env>,
        db: &Database,
        table: &Table,
        rows_max: u64,
        json: bool,
    ) -> Result<Batches, Failure> {
        Ok(Batches {
            db: db.clone(),
            table: table.clone(),
            rows_max,
            open: None,
            open_rows: 0,
            open_bytes: 0,
            rows: 0,
            commits: 0,
            acknowledger: Acknowledger::start(env, json)?,
        })
    }

    /// How many rows were committed, durable or on their way.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes a row; returns whether that completed a batch.
    pub fn add(&mut self, row: &Row) -> Result<bool, Refused> {
        let transaction = self.open.get_or_insert_with(|| self.db.begin());
        match transaction.put(&self.table, &row.key, &row.value) {
            Ok(()) => {}
            Err(error @ (Error::KeyTooLong { .. } | Error::ValueTooLong { .. })) => {
                return Err(Refused::Row(error));
            }
            Err(error) => return Err(Refused::Load(error.into())),
        }
        self.open_rows += 1;
        self.open_bytes += row.key.len() + row.value.len();
        if self.open_rows < self.rows_max && self.open_bytes < BATCH_BYTES_MAX {
            return Ok(false);
        }
        self.commit().map_err(Refused::Load)?;
        Ok(true)
    }

    /// Commits the rows taken since the last commit, without waiting for the disk unless it is far behind.
    pub fn commit(&mut self) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.open_rows);
        self.open_bytes = 0;
        match self.open.take() {
            Some(transaction) if rows > 0 => {
                let ticket = transaction.commit_deferred()?;
                self.rows += rows;
                self.commits += 1;
                self.acknowledger.expect(ticket, rows)
            }
            _ => Ok(()),
        }
    }

    /// Commits what is left and waits for all of it. Returns how many rows are durable, the number of commits, and
    /// what failed.
    pub fn finish(mut self) -> (u64, u64, Result<(), Failure>) {
        let committed = self.commit();
        let (durable, waited) = self.acknowledger.finish();
        (durable, self.commits, waited.and(committed))
    }
}
