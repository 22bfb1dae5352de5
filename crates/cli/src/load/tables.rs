//! The tables that a load writes to: opened when they are needed, created if they do not exist, and dropped again if the
//! load fails before they have a row.

use fulgurite::{Database, Error, Table};

use super::replaced::Replaced;
use crate::failure::Failure;

/// A table that a load writes to.
pub(super) struct Target {
    pub name: String,
    pub table: Table,
    pub replaced: Replaced,
    /// Rows that were committed to it.
    pub rows: u64,
    /// Rows in the open transaction.
    pub open_rows: u64,
    created: bool,
}

/// All tables that a load writes to.
pub(super) struct Targets {
    db: Database,
    targets: Vec<Target>,
    /// Where the last row went: the next one most often goes there, too.
    last: usize,
}

impl Targets {
    pub fn new(db: &Database) -> Targets {
        Targets { db: db.clone(), targets: Vec::new(), last: 0 }
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
        self.targets.push(Target { name, table, replaced, rows: 0, open_rows: 0, created });
        Ok(self.targets.len() - 1)
    }

    /// Counts the rows of the open transaction that replace others. Only commits count as others: a transaction that
    /// begins now sees those before it, on their way to the disk or not.
    pub fn settle_replaced(&mut self) {
        let mut before = self.db.begin();
        for target in &mut self.targets {
            target.replaced.settle(&target.table, &mut before);
        }
    }

    /// The rows of the open transaction were committed.
    pub fn committed(&mut self) {
        for target in &mut self.targets {
            target.rows += std::mem::take(&mut target.open_rows);
        }
    }

    /// How many rows replaced what was stored under their key, and whether that is all of them.
    pub fn replaced(&self) -> (u64, bool) {
        let all = self.targets.iter().all(|target| target.replaced.is_exact());
        (self.targets.iter().map(|target| target.replaced.rows()).sum(), all)
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
