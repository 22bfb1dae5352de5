//! fjall, log-structured merge trees with a journal.

use std::sync::Arc;

use fjall::{
    Guard, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode,
    Readable, Snapshot,
};
use fulgurite_bench::engine::{
    Direction, Ended, Engine, Level, Mode, Needs, Opening, Range, Session, Statements, Store, Transaction,
    Visit, copied,
};
use fulgurite_bench::{Error, Result};

use crate::common::{ALL_LEVELS, Held, failed, not_offered, undone};

/// fjall's default size of a keyspace's memtable, bytes: the largest here.
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;
/// The smallest, bytes.
const MEMTABLE_BYTES_MIN: u64 = 1 << 20;

/// fjall with optimistic transactions: one keyspace a table.
pub struct Fjall;

impl Engine for Fjall {
    fn name(&self) -> &str {
        "fjall"
    }

    fn about(&self) -> String {
        let version = env!("FJALL_VERSION");
        format!(
            "fjall {version}, optimistic transactions; half of the cache as given is its block cache, the other half \
             is for memory tables of 1 to 64 MiB, an active and a sealed one a keyspace; sync: PersistMode::SyncData, \
             unsynced: Buffer, memory: none; no compression"
        )
    }

    fn isolation(&self) -> &str {
        "serializable: a commit fails if what it read was written meanwhile; a scan has read all the way to the end of \
         the table"
    }

    fn cannot(&self, needs: Needs, level: Level) -> Option<String> {
        not_offered(needs, level, ALL_LEVELS)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let opened =
            |source| Error::engine(format!("opening a fjall database in {}", opening.dir.display()), source);
        let memtable_bytes = opening.cache_bytes / (4 * opening.tables.len().max(1) as u64);
        let memtable_bytes = memtable_bytes.clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
        let builder = OptimisticTxDatabase::builder(opening.dir).cache_size(opening.cache_bytes / 2);
        let db = builder.open().map_err(opened)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes);
        let tables = opening.tables.iter().map(|name| db.keyspace(name, options));
        let tables = tables.collect::<Result<Vec<_>, _>>().map_err(opened)?;
        let commit = match opening.level {
            Level::Memory => None,
            Level::Unsynced => Some(PersistMode::Buffer),
            _ => Some(PersistMode::SyncData),
        };
        Ok(Arc::new(FjallStore(Held::new(OpenFjall { db, tables, commit }))))
    }
}

struct OpenFjall {
    db: OptimisticTxDatabase,
    tables: Vec<OptimisticTxKeyspace>,
    /// The persistence of each commit beside writing it into the buffer of the journal.
    commit: Option<PersistMode>,
}

struct FjallStore(Held<OpenFjall>);

impl Store for FjallStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession(self.0.get()?)))
    }

    fn settle(&self) -> Result<()> {
        self.0.get()?.db.persist(PersistMode::SyncAll).map_err(failed("syncing the journal"))
    }

    fn close(&self) -> Result<()> {
        let Some(open) = self.0.take()? else { return Ok(()) };
        open.db.persist(PersistMode::SyncAll).map_err(failed("syncing the journal"))
    }
}

struct FjallSession(Arc<OpenFjall>);

impl Session for FjallSession {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        let OpenFjall { db, tables, commit } = &*self.0;
        if mode == Mode::Read {
            let verdict = statements(&mut Reading { snapshot: db.read_tx(), tables });
            return Ok(undone(verdict)?.unwrap_or(Ended::Committed));
        }
        let txn = db.write_tx().map_err(failed("beginning to write"))?.durability(*commit);
        let mut writing = Writing { txn, tables };
        if let Some(ended) = undone(statements(&mut writing))? {
            writing.txn.rollback();
            return Ok(ended);
        }
        match writing.txn.commit().map_err(failed("committing"))? {
            Ok(()) => Ok(Ended::Committed),
            Err(fjall::Conflict) => Ok(Ended::Conflict),
        }
    }

    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.tables[table].get(key).map_err(failed("reading"))?;
        Ok(copied(found.as_deref(), value))
    }
}

fn get(view: &impl Readable, table: &OptimisticTxKeyspace, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
    let found = view.get(table.inner(), key).map_err(failed("reading"))?;
    Ok(copied(found.as_deref(), value))
}

fn scan(
    view: &impl Readable,
    tables: &[OptimisticTxKeyspace],
    range: Range<'_>,
    visit: Visit<'_>,
) -> Result<()> {
    let entries = view.range::<&[u8], _>(tables[range.table].inner(), range.bounds());
    match range.direction {
        Direction::Forward => show(entries, visit),
        Direction::Reverse => show(entries.rev(), visit),
    }
}

fn show(entries: impl Iterator<Item = Guard>, visit: Visit<'_>) -> Result<()> {
    for entry in entries {
        let (key, value) = entry.into_inner().map_err(failed("scanning"))?;
        if !visit(&key, &value)? {
            break;
        }
    }
    Ok(())
}

struct Reading<'a> {
    snapshot: Snapshot,
    tables: &'a [OptimisticTxKeyspace],
}

impl Transaction for Reading<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        get(&self.snapshot, &self.tables[table], key, value)
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        scan(&self.snapshot, self.tables, range, visit)
    }
}

struct Writing<'a> {
    txn: OptimisticWriteTx,
    tables: &'a [OptimisticTxKeyspace],
}

impl Transaction for Writing<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        get(&self.txn, &self.tables[table], key, value)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.insert(self.tables[table].inner(), key, value);
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.txn.remove(self.tables[table].inner(), key);
        Ok(())
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        scan(&self.txn, self.tables, range, visit)
    }
}
