//! The tables that a load writes to: opened when needed, created if they do not exist, and dropped again if the load
//! fails before they have a row.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite::env::Env;
use fulgurite::{Database, Error, Table, Transaction};

use super::replaced::{Batch, Counter, Keys, Replaced};
use crate::failure::Failure;

/// A table that a load writes to.
pub(super) struct Target {
    pub name: String,
    pub table: Table,
    replaced: Arc<Mutex<Replaced>>,
    was_empty: bool,
    /// The keys of the open transaction's rows.
    keys: Keys,
    /// Rows that were committed to it.
    pub rows: u64,
    /// Rows in the open transaction.
    pub open_rows: u64,
    created: bool,
}

impl Target {
    /// Notes a row of the open transaction, to be counted before the commit.
    pub fn note(&mut self, key: &[u8]) {
        self.keys.push(key);
    }

    /// Counts a row that is about to be put into the only transaction of a load.
    pub fn count(&self, key: &[u8], transaction: &Transaction) {
        let mut keys = Keys::default();
        keys.push(key);
        lock(&self.replaced).count(&self.table, &keys, transaction);
    }
}

fn lock(replaced: &Mutex<Replaced>) -> MutexGuard<'_, Replaced> {
    replaced.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All tables that a load writes to.
pub(super) struct Targets {
    db: Database,
    counter: Option<Counter>,
    targets: Vec<Target>,
    /// The table of the last row: the next row most often has the same one.
    last: usize,
}

impl Targets {
    pub fn new(env: &Arc<dyn Env>, db: &Database) -> Result<Targets, Failure> {
        let counter = Some(Counter::start(env)?);
        Ok(Targets { db: db.clone(), counter, targets: Vec::new(), last: 0 })
    }

    /// The table `name`.
    pub fn get(&mut self, name: &str) -> Result<&mut Target, Error> {
        if self.targets.get(self.last).is_none_or(|target| target.name != name) {
            self.last = match self.targets.iter().position(|target| target.name == name) {
                Some(found) => found,
                None => self.open(name)?,
            };
        }
        Ok(&mut self.targets[self.last])
    }

    fn open(&mut self, name: &str) -> Result<usize, Error> {
        let (table, created) = match self.db.open_table(name) {
            Err(Error::UnknownTable { .. }) => (self.db.create_table(name)?, true),
            other => (other?, false),
        };
        let replaced = Replaced::new(&table);
        let name = name.to_string();
        let was_empty = replaced.was_empty();
        let (replaced, keys) = (Arc::new(Mutex::new(replaced)), Keys::default());
        self.targets.push(Target { name, table, replaced, was_empty, keys, rows: 0, open_rows: 0, created });
        Ok(self.targets.len() - 1)
    }

    /// Counts the rows of the open transaction that replace others. Only commits count as others: a transaction that
    /// begins now sees all earlier ones, durable or not.
    pub fn count_replaced(&mut self) -> Result<(), Failure> {
        let before = self.db.begin();
        let mut later = Vec::new();
        for target in self.targets.iter_mut().filter(|target| !target.keys.is_empty()) {
            if let (true, Some(counter)) = (target.was_empty, &self.counter) {
                let keys = std::mem::replace(&mut target.keys, counter.empty_keys());
                later.push(Batch { table: target.table.clone(), replaced: target.replaced.clone(), keys });
            } else {
                lock(&target.replaced).count(&target.table, &target.keys, &before);
                target.keys.clear();
            }
        }
        match &self.counter {
            Some(counter) if !later.is_empty() => counter.count(before, later),
            _ => Ok(()),
        }
    }

    /// Waits until all rows are counted.
    pub fn end_counting(&mut self) -> Result<(), Failure> {
        self.counter.take().map_or(Ok(()), Counter::finish)
    }

    /// The rows of the open transaction were committed.
    pub fn committed(&mut self) {
        for target in &mut self.targets {
            target.rows += std::mem::take(&mut target.open_rows);
        }
    }

    /// How many rows replaced an entry, and whether that is all of them.
    pub fn replaced(&self) -> (u64, bool) {
        let all = self.targets.iter().all(|target| lock(&target.replaced).is_exact());
        (self.targets.iter().map(|target| lock(&target.replaced).rows()).sum(), all)
    }

    /// The load failed: drops the tables that it created and that have no row.
    pub fn drop_empty(&self) -> Result<(), Failure> {
        for target in self.targets.iter().filter(|target| target.created && target.rows == 0) {
            self.db.drop_table(&target.name).map_err(|error| {
                Failure::from(error).within(&format!("the empty table `{}` is left behind", target.name))
            })?;
        }
        Ok(())
    }
}
