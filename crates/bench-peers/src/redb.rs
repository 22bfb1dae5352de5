//! redb, a B+tree whose pages are copied when they change.

use std::sync::Arc;

use fulgurite_bench::engine::{
    Direction, Ended, Engine, Level, Mode, Needs, Opening, Range, Session, Statements, Store, Transaction,
    Visit, copied,
};
use fulgurite_bench::{Error, Result};
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Table,
    TableDefinition, WriteTransaction,
};

use crate::common::{Held, failed, not_offered, undone};

/// The file in the directory of the database.
const FILE: &str = "peer.redb";
/// It writes only when it syncs.
const LEVELS: &[Level] = &[Level::Sync, Level::Memory];

/// redb with its own defaults but for the size of the cache.
pub struct Redb;

impl Engine for Redb {
    fn name(&self) -> &str {
        "redb"
    }

    fn about(&self) -> String {
        let version = env!("REDB_VERSION");
        format!(
            "redb {version}, cache as given; memory: Durability::None, which keeps what is new in memory until the \
             next synced commit"
        )
    }

    fn isolation(&self) -> &str {
        "serializable: one writer at a time, readers see snapshots"
    }

    fn cannot(&self, needs: Needs, level: Level) -> Option<String> {
        not_offered(needs, level, LEVELS)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let opened = |source: redb::Error| {
            Error::engine(format!("opening a redb database in {}", opening.dir.display()), source)
        };
        let names = opening.tables.iter().map(|name| name.to_string()).collect();
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(opening.cache_bytes).unwrap_or(usize::MAX));
        let db = builder.create(opening.dir.join(FILE)).map_err(|error| opened(error.into()))?;
        let durability = match opening.level {
            Level::Memory => Durability::None,
            _ => Durability::Immediate,
        };
        let open = OpenRedb { db, names, durability };
        open.create_tables().map_err(opened)?;
        Ok(Arc::new(RedbStore(Held::new(open))))
    }
}

/// The definition of a table: keys and values are bytes.
fn definition(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

struct OpenRedb {
    db: Database,
    names: Vec<String>,
    durability: Durability,
}

impl OpenRedb {
    fn create_tables(&self) -> Result<(), redb::Error> {
        let txn = self.db.begin_write()?;
        for name in &self.names {
            txn.open_table(definition(name))?;
        }
        Ok(txn.commit()?)
    }

    /// Commits an empty transaction durably: with it all earlier commits become durable.
    fn sync(&self) -> Result<(), redb::Error> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        Ok(txn.commit()?)
    }
}

struct RedbStore(Held<OpenRedb>);

impl Store for RedbStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession(self.0.get()?)))
    }

    fn settle(&self) -> Result<()> {
        self.0.get()?.sync().map_err(failed("syncing the database"))
    }

    fn close(&self) -> Result<()> {
        let Some(open) = self.0.take()? else { return Ok(()) };
        open.sync().map_err(failed("syncing the database"))?;
        open.db.close().map_err(failed("closing the database"))
    }
}

struct RedbSession(Arc<OpenRedb>);

impl RedbSession {
    fn read(&self, statements: Statements<'_>) -> Result<Ended> {
        let txn = self.0.db.begin_read().map_err(failed("beginning to read"))?;
        let verdict = statements(&mut Reading { txn: &txn, tables: Tables::new(&self.0.names) });
        Ok(undone(verdict)?.unwrap_or(Ended::Committed))
    }

    fn write(&self, statements: Statements<'_>) -> Result<Ended> {
        let mut txn = self.0.db.begin_write().map_err(failed("beginning to write"))?;
        txn.set_durability(self.0.durability).map_err(failed("beginning to write"))?;
        let verdict = statements(&mut Writing { txn: &txn, tables: Tables::new(&self.0.names) });
        if let Some(ended) = undone(verdict)? {
            txn.abort().map_err(failed("rolling back"))?;
            return Ok(ended);
        }
        txn.commit().map_err(failed("committing"))?;
        Ok(Ended::Committed)
    }
}

impl Session for RedbSession {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        match mode {
            Mode::Read => self.read(statements),
            Mode::Write => self.write(statements),
        }
    }

    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let txn = self.0.db.begin_read().map_err(failed("beginning to read"))?;
        let opened = txn.open_table(definition(&self.0.names[table]));
        get(&opened.map_err(failed("opening a table"))?, key, value)
    }
}

type Bytes = &'static [u8];

fn get(table: &impl ReadableTable<Bytes, Bytes>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
    let found = table.get(key).map_err(failed("reading"))?;
    Ok(copied(found.as_ref().map(|found| found.value()), value))
}

fn scan(table: &impl ReadableTable<Bytes, Bytes>, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
    let mut entries = table.range::<&[u8]>(range.bounds()).map_err(failed("scanning"))?;
    let mut next = || match range.direction {
        Direction::Forward => entries.next(),
        Direction::Reverse => entries.next_back(),
    };
    while let Some(entry) = next() {
        let (key, value) = entry.map_err(failed("scanning"))?;
        if !visit(key.value(), value.value())? {
            break;
        }
    }
    Ok(())
}

/// The tables of a transaction, each opened when it is used first.
struct Tables<'a, T> {
    names: &'a [String],
    opened: Vec<Option<T>>,
}

impl<'a, T> Tables<'a, T> {
    fn new(names: &'a [String]) -> Tables<'a, T> {
        Tables { names, opened: names.iter().map(|_| None).collect() }
    }

    fn get<E: Into<redb::Error>>(
        &mut self,
        number: usize,
        open: impl FnOnce(TableDefinition<'_, Bytes, Bytes>) -> Result<T, E>,
    ) -> Result<&mut T> {
        let table = &mut self.opened[number];
        if table.is_none() {
            let opened = open(definition(&self.names[number])).map_err(Into::into);
            *table = Some(opened.map_err(failed("opening a table"))?);
        }
        Ok(table.as_mut().expect("opened above"))
    }
}

struct Reading<'a> {
    txn: &'a ReadTransaction,
    tables: Tables<'a, ReadOnlyTable<Bytes, Bytes>>,
}

impl Reading<'_> {
    fn table(&mut self, number: usize) -> Result<&mut ReadOnlyTable<Bytes, Bytes>> {
        self.tables.get(number, |definition| self.txn.open_table(definition))
    }
}

impl Transaction for Reading<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        get(self.table(table)?, key, value)
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        scan(self.table(range.table)?, range, visit)
    }
}

struct Writing<'a> {
    txn: &'a WriteTransaction,
    tables: Tables<'a, Table<'a, Bytes, Bytes>>,
}

impl<'a> Writing<'a> {
    fn table(&mut self, number: usize) -> Result<&mut Table<'a, Bytes, Bytes>> {
        self.tables.get(number, |definition| self.txn.open_table(definition))
    }
}

impl Transaction for Writing<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        get(self.table(table)?, key, value)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.table(table)?.insert(key, value).map(|_| ()).map_err(failed("writing"))
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.table(table)?.remove(key).map(|_| ()).map_err(failed("deleting"))
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        scan(self.table(range.table)?, range, visit)
    }
}
