//! Fulgurite under measurement.

use std::path::Path;
use std::sync::Arc;

use fulgurite::env::RealEnv;
use fulgurite::{Database, LogStats, Options, Table, Ticket};

use crate::engine::{Counters, Engine, Pending, Statements, Store, Transaction};
use crate::{Error, Result};

/// Fulgurite with given options; its name is that of the flush scheme in them.
#[derive(Clone, Debug)]
pub struct FulguriteEngine {
    /// How databases are opened.
    pub options: Options,
}

impl Engine for FulguriteEngine {
    fn name(&self) -> &str {
        self.options.flush_scheme.name()
    }

    fn create(&self, dir: &Path, tables: &[&str]) -> Result<Arc<dyn Store>> {
        let created = |source| Error::engine(format!("creating a database in {}", dir.display()), source);
        let db = Database::open_with(RealEnv::new(), dir, self.options.clone(), |_| {}).map_err(created)?;
        let tables = tables.iter().map(|name| db.create_table(name)).collect::<Result<Vec<_>, _>>();
        let tables = tables.map_err(created)?;
        Ok(Arc::new(OpenDatabase { db, tables }))
    }
}

struct OpenDatabase {
    db: Database,
    tables: Vec<Table>,
}

fn failed(what: &'static str) -> impl Fn(fulgurite::Error) -> Error {
    move |source| Error::engine(what, source)
}

impl OpenDatabase {
    /// Runs and ends a transaction until `end` does not conflict; also returns how often it did.
    fn retry<T>(
        &self,
        statements: Statements<'_>,
        end: impl Fn(fulgurite::Transaction) -> fulgurite::Result<T>,
    ) -> Result<(u64, T)> {
        let mut conflicts = 0;
        loop {
            let mut open = OpenTransaction { txn: self.db.begin(), tables: &self.tables };
            statements(&mut open)?;
            match end(open.txn) {
                Ok(value) => return Ok((conflicts, value)),
                Err(fulgurite::Error::Conflict { .. }) => conflicts += 1,
                Err(error) => return Err(failed("committing")(error)),
            }
        }
    }
}

impl Store for OpenDatabase {
    fn search(&self, table: usize, key: &[u8]) -> Result<bool> {
        Ok(self.tables[table].get(key).map_err(failed("searching"))?.is_some())
    }

    fn commit(&self, statements: Statements<'_>) -> Result<u64> {
        Ok(self.retry(statements, fulgurite::Transaction::commit)?.0)
    }

    fn commit_deferred(&self, statements: Statements<'_>) -> Result<(u64, Box<dyn Pending>)> {
        let (conflicts, ticket) = self.retry(statements, fulgurite::Transaction::commit_deferred)?;
        Ok((conflicts, Box::new(ticket)))
    }

    fn counters(&self) -> Counters {
        counters_of(&self.db.log_stats())
    }

    fn settle(&self) -> Result<()> {
        let newest = self.db.stats().visible;
        self.db.wait_durable(newest).map_err(failed("waiting until all is durable"))
    }

    fn rows(&self, table: usize) -> Result<u64> {
        let mut rows = 0;
        for entry in self.tables[table].range(..).map_err(failed("counting rows"))? {
            entry.map_err(failed("counting rows"))?;
            rows += 1;
        }
        Ok(rows)
    }

    fn close(&self) -> Result<()> {
        self.db.clone().close().map_err(failed("closing the database"))
    }
}

fn counters_of(log: &LogStats) -> Counters {
    Counters {
        commits: log.commits,
        groups: log.groups - log.hints,
        sync_locks: log.sync_locks,
        sync_lock_ns: log.sync_lock_ns,
        writes: log.writes,
        written_bytes: log.written_bytes,
        write_ns: log.write_ns,
        syncs: log.syncs,
        sync_ns: log.sync_ns,
        requests_completed: log.requests_completed,
        flush_waits: log.flush_waits,
        flush_wait_ns: log.flush_wait_ns,
        parks: log.parks,
        wakes: log.wakes,
    }
}

struct OpenTransaction<'a> {
    txn: fulgurite::Transaction,
    tables: &'a [Table],
}

impl Transaction for OpenTransaction<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.txn.get(&self.tables[table], key).map_err(failed("reading"))?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(&self.tables[table], key, value).map_err(failed("writing"))
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.txn.delete(&self.tables[table], key).map_err(failed("deleting"))
    }
}

impl Pending for Ticket {
    fn poll(&self) -> Option<Result<()>> {
        Ticket::poll(self).map(|outcome| outcome.map(|_| ()).map_err(failed("committing")))
    }

    fn wait(self: Box<Self>) -> Result<()> {
        Ticket::wait(&self).map(|_| ()).map_err(failed("committing"))
    }
}
