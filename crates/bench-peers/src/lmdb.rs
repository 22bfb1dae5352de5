//! LMDB, a B+tree in a mapped file whose pages are copied when they change.

use std::sync::Arc;

use fulgurite_bench::engine::{
    Direction, Ended, Engine, Level, Mode, Needs, Opening, Range, Session, Statements, Store, Transaction,
    Visit, copied,
};
use fulgurite_bench::{Error, Result};
use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn};

use crate::common::{Held, WRITTEN_LEVELS, failed, not_offered, undone};

/// How far the file may grow, bytes: this reserves address space only.
const MAP_BYTES: usize = 256 << 30;
/// How many threads may read at once.
const READERS_MAX: u32 = 1024;

/// LMDB by the crate `heed`: one named database a table, if there are several.
pub struct Lmdb;

impl Engine for Lmdb {
    fn name(&self) -> &str {
        "lmdb"
    }

    fn about(&self) -> String {
        let heed::LmdbVersion { major, minor, patch, .. } = heed::lmdb_version();
        format!(
            "LMDB {major}.{minor}.{patch}, map of {} GiB, {READERS_MAX} readers, cached by the page cache alone; a \
             single table is the database without a name; \
             unsynced: MDB_NOSYNC",
            MAP_BYTES >> 30
        )
    }

    fn isolation(&self) -> &str {
        "serializable: one writer at a time, readers see snapshots"
    }

    fn cannot(&self, needs: Needs, level: Level) -> Option<String> {
        let unbounded = "it maps its file, and how much of it is in memory is up to the kernel".to_string();
        not_offered(needs, level, WRITTEN_LEVELS).or(needs.bounded_memory.then_some(unbounded))
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let opened = |source| {
            Error::engine(format!("opening an LMDB environment in {}", opening.dir.display()), source)
        };
        let flags = match opening.level {
            Level::Unsynced => EnvFlags::NO_SYNC,
            _ => EnvFlags::empty(),
        };
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(READERS_MAX).max_dbs(opening.tables.len() as u32);
        // SAFETY: the flag only leaves out syncs, and only LMDB writes to the files of a benchmark's directory.
        let env = unsafe { options.flags(flags).open(opening.dir) }.map_err(opened)?;
        let tables = open_tables(&env, opening.tables).map_err(opened)?;
        Ok(Arc::new(OpenLmdb(Held::new(Database { env, tables }))))
    }
}

type Table = heed::Database<'static, Bytes, Bytes>;

/// A single table is the database without a name: the root of named ones is a page more to write with each commit.
fn open_tables(env: &Env, names: &[&str]) -> heed::Result<Vec<Table>> {
    let is_alone = names.len() == 1;
    let create = |name: &&str| -> heed::Result<Table> {
        let name = (!is_alone).then_some(*name);
        let created = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
            opener.create_database(txn, name).map(CommitOrAbort::<_, heed::Error>::Commit)
        })?;
        created.into()
    };
    names.iter().map(create).collect()
}

struct Database {
    env: Env,
    tables: Vec<Table>,
}

struct OpenLmdb(Held<Database>);

impl Store for OpenLmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession(self.0.get()?)))
    }

    fn settle(&self) -> Result<()> {
        self.0.get()?.env.force_sync().map_err(failed("syncing the environment"))
    }

    fn close(&self) -> Result<()> {
        let Some(Database { env, .. }) = self.0.take()? else { return Ok(()) };
        env.force_sync().map_err(failed("syncing the environment"))?;
        env.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbSession(Arc<Database>);

impl Session for LmdbSession {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        let Database { env, tables } = &*self.0;
        if mode == Mode::Read {
            let txn = env.read_txn().map_err(failed("beginning to read"))?;
            let verdict = statements(&mut Reading { txn: &txn, tables });
            return Ok(undone(verdict)?.unwrap_or(Ended::Committed));
        }
        let txn = env.write_txn().map_err(failed("beginning to write"))?;
        let mut writing = Writing { txn, tables };
        if let Some(ended) = undone(statements(&mut writing))? {
            writing.txn.abort();
            return Ok(ended);
        }
        writing.txn.commit().map_err(failed("committing"))?;
        Ok(Ended::Committed)
    }
}

fn get(table: &Table, txn: &RoTxn<'_>, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
    let found = table.get(txn, key).map_err(failed("reading"))?;
    Ok(copied(found, value))
}

fn scan(tables: &[Table], txn: &RoTxn<'_>, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
    let (table, keys) = (&tables[range.table], range.bounds());
    match range.direction {
        Direction::Forward => show(table.range(txn, &keys).map_err(failed("scanning"))?, visit),
        Direction::Reverse => show(table.rev_range(txn, &keys).map_err(failed("scanning"))?, visit),
    }
}

fn show<'t>(
    entries: impl Iterator<Item = heed::Result<(&'t [u8], &'t [u8])>>,
    visit: Visit<'_>,
) -> Result<()> {
    for entry in entries {
        let (key, value) = entry.map_err(failed("scanning"))?;
        if !visit(key, value)? {
            break;
        }
    }
    Ok(())
}

struct Reading<'a> {
    txn: &'a RoTxn<'a>,
    tables: &'a [Table],
}

impl Transaction for Reading<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        get(&self.tables[table], self.txn, key, value)
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        scan(self.tables, self.txn, range, visit)
    }
}

struct Writing<'a> {
    txn: RwTxn<'a>,
    tables: &'a [Table],
}

impl Transaction for Writing<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        get(&self.tables[table], &self.txn, key, value)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.tables[table].put(&mut self.txn, key, value).map_err(failed("writing"))
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.tables[table].delete(&mut self.txn, key).map(|_| ()).map_err(failed("deleting"))
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        scan(self.tables, &self.txn, range, visit)
    }
}
