//! Collects rows into transactions and commits them.

use std::sync::Arc;

use fulgurite::env::Env;
use fulgurite::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use fulgurite::{Database, Error, Expiry, Transaction};

use super::acknowledge::Acknowledger;
use super::tables::Targets;
use crate::failure::Failure;
use crate::rows::Row;

/// A commit of this many bytes is made however few rows it has: a longer one would not fit into one frame of the log.
const BATCH_BYTES_MAX: usize = FRAME_BYTES_MAX as usize / 4 * 3;

/// Why a row was refused.
pub(super) enum Refused {
    /// The row is not fit for a table: the load can continue without it.
    Row(Error),
    /// The load can take no more rows.
    Load(Failure),
}

/// When rows are committed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Commits {
    /// After this many rows.
    Rows(u64),
    /// All at once, at the end of the input.
    Atomic,
}

/// Collects rows and commits them, while the acknowledger waits for the disk.
pub(super) struct Batches {
    db: Database,
    /// The table of all rows; `None`: each row names its own.
    table: Option<String>,
    targets: Targets,
    when: Commits,
    open: Option<Transaction>,
    open_rows: u64,
    open_bytes: usize,
    /// Rows of the open transaction that had expired.
    open_expired: u64,
    rows: u64,
    expired: u64,
    /// The database's clock when the load began, in milliseconds since 1970-01-01 UTC.
    began_ms: u64,
    commits: u64,
    /// A commit failed, and may have taken effect.
    is_outcome_unknown: bool,
    acknowledger: Acknowledger,
}

/// What a load did with its rows.
pub(super) struct Outcome {
    /// Rows that are durable.
    pub durable: u64,
    /// How many of the rows replaced something.
    pub replaced: u64,
    /// Whether `replaced` is exact, and not a lower bound.
    pub replaced_exactly: bool,
    /// How many of the rows had expired before the load began.
    pub expired: u64,
    pub commits: u64,
}

impl Batches {
    /// `table` is the table of all rows; `None`: each row names its own.
    pub fn start(
        env: &Arc<dyn Env>,
        db: &Database,
        table: Option<&str>,
        when: Commits,
        json: bool,
    ) -> Result<Batches, Failure> {
        Ok(Batches {
            db: db.clone(),
            table: table.map(String::from),
            targets: Targets::new(env, db)?,
            when,
            open: None,
            open_rows: 0,
            open_bytes: 0,
            open_expired: 0,
            rows: 0,
            expired: 0,
            began_ms: db.stats().clock.now_ms,
            commits: 0,
            is_outcome_unknown: false,
            acknowledger: Acknowledger::start(env, json)?,
        })
    }

    /// How many rows were taken, durable or not yet.
    pub fn rows(&self) -> u64 {
        self.rows + self.open_rows
    }

    /// Takes a row; returns whether that completed a batch.
    pub fn add(&mut self, row: &Row) -> Result<bool, Refused> {
        let target = match &self.table {
            Some(name) => self.targets.get(name).map_err(|error| Refused::Load(error.into()))?,
            None => self.targets.get(&row.table).map_err(refused)?,
        };
        let transaction = self.open.get_or_insert_with(|| self.db.begin());
        if self.when == Commits::Atomic && is_fit(row) {
            target.count(&row.key, transaction);
        }
        match row.expires_at_ms {
            None => transaction.put(&target.table, &row.key, &row.value),
            Some(time) => {
                let expiry = Expiry::at_unix_ms(time);
                transaction.put_expiring(&target.table, &row.key, &row.value, expiry)
            }
        }
        .map_err(refused)?;
        if self.when != Commits::Atomic {
            target.note(&row.key);
        }
        target.open_rows += 1;
        self.open_rows += 1;
        self.open_bytes += row.key.len() + row.value.len();
        self.open_expired += u64::from(row.expires_at_ms.is_some_and(|time| time <= self.began_ms));
        match self.when {
            Commits::Rows(rows_max) if self.open_rows >= rows_max || self.open_bytes >= BATCH_BYTES_MAX => {
                self.commit().map_err(Refused::Load)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Makes sure that there is a table of this name.
    pub fn add_table(&mut self, name: &str) -> Result<(), Refused> {
        self.targets.get(name).map(|_| ()).map_err(refused)
    }

    /// The input pauses: commits the rows taken so far, unless all of them belong together.
    pub fn pause(&mut self) -> Result<(), Failure> {
        if self.when == Commits::Atomic { Ok(()) } else { self.commit() }
    }

    /// Commits the rows taken since the last commit. Waits for the disk only if too many commits are in flight.
    fn commit(&mut self) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.open_rows);
        let expired = std::mem::take(&mut self.open_expired);
        self.open_bytes = 0;
        match self.open.take() {
            Some(transaction) if rows > 0 => {
                if self.when != Commits::Atomic {
                    self.targets.count_replaced()?;
                }
                let ticket = transaction.commit_deferred().inspect_err(|error| {
                    self.is_outcome_unknown |= matches!(error, Error::OutcomeUnknown { .. });
                })?;
                self.rows += rows;
                self.expired += expired;
                self.commits += 1;
                self.targets.committed();
                self.acknowledger.expect(ticket, rows)
            }
            _ => Ok(()),
        }
    }

    /// Commits the remaining rows if the load is `complete`, or if it is not atomic; waits for all commits. A failed
    /// load leaves no empty tables.
    pub fn finish(mut self, complete: bool) -> (Outcome, Result<(), Failure>) {
        let committed = match self.when {
            Commits::Atomic if !complete => {
                self.open = None;
                Ok(())
            }
            _ => self.commit(),
        };
        let (durable, waited) = self.acknowledger.finish();
        let counted = self.targets.end_counting();
        let has_failed = !complete || committed.is_err();
        // After a commit of unknown outcome a table that looks empty may have rows.
        let is_known = waited.is_ok() && counted.is_ok() && !self.is_outcome_unknown;
        let dropped = if has_failed && is_known { self.targets.drop_empty() } else { Ok(()) };
        let result = waited.and(committed).and(counted);
        let (replaced, replaced_exactly) = self.targets.replaced();
        let outcome =
            Outcome { durable, replaced, replaced_exactly, expired: self.expired, commits: self.commits };
        (outcome, result.and(dropped))
    }
}

/// Whether a table takes the row.
fn is_fit(row: &Row) -> bool {
    row.key.len() <= KEY_BYTES_MAX && row.value.len() <= VALUE_BYTES_MAX
}

fn refused(error: Error) -> Refused {
    match error {
        error @ (Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::BadTableName { .. }) => {
            Refused::Row(error)
        }
        error @ Error::TooLarge { .. } => Refused::Load(Failure::from(error).and(
            "an atomic load needs memory for all of its rows: give it more with --memory, or load into a new table without \
             --atomic, then rename it",
        )),
        error => Refused::Load(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use fulgurite::Options;
    use fulgurite::env::SimEnv;

    use super::*;

    /// Regression: a load whose only commit was refused because the disk was full left its table behind.
    #[test]
    fn a_load_whose_only_commit_is_refused_leaves_no_empty_table() {
        for when in [Commits::Atomic, Commits::Rows(1000)] {
            let sim = SimEnv::new(1);
            let env: Arc<dyn Env> = sim.clone();
            let options = Options { background: false, ..Options::default() };
            let db = Database::open_with(env.clone(), "/db", options, |_| {}).unwrap();
            db.table("kept").unwrap();
            let mut batches = Batches::start(&env, &db, Some("t"), when, false).unwrap();
            let row = Row { key: b"k".to_vec(), value: b"v".to_vec(), ..Row::default() };
            assert!(batches.add(&row).is_ok_and(|committed| !committed));
            // Room for deletes, not for puts.
            let used: u64 = sim.list_raw().iter().map(|(_, len)| *len).sum();
            sim.faults().space_bytes(Some(used + (2 << 20)));
            while db.maintain().unwrap_or(false) {}
            let (outcome, result) = batches.finish(true);
            assert!(matches!(&result, Err(Failure::Message { kind: "space", .. })), "{result:?}");
            assert_eq!((outcome.durable, outcome.commits), (0, 0));
            let names: Vec<String> =
                db.tables().unwrap().iter().map(|table| table.name().to_string()).collect();
            assert_eq!(names, ["kept"]);
        }
    }
}
