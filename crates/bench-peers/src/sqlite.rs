//! SQLite with a write-ahead log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_bench::engine::{
    Direction, Ended, Engine, Level, Mode, Needs, Opening, Range, Session, Statements, Store, Transaction,
    Visit, copied,
};
use fulgurite_bench::{Error, Result};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection, ErrorCode, Params, Row, params_from_iter};

use crate::common::{Held, WRITTEN_LEVELS, failed, not_offered, retried, undone};

/// The file in the directory of the database.
const FILE: &str = "peer.sqlite";
/// A transaction that waits longer than this for a lock has conflicted.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// SQLite with a write-ahead log: one table without row numbers, keyed by bytes, a table.
pub struct Sqlite;

impl Engine for Sqlite {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn about(&self) -> String {
        format!(
            "SQLite {}, journal_mode=WAL, WITHOUT ROWID, a connection a session: each has a cache as large as given, \
             and soft_heap_limit bounds them together; writers queue at a mutex before BEGIN IMMEDIATE, as the busy \
             handler only sleeps and tries again; sync: synchronous=FULL, unsynced: NORMAL",
            rusqlite::version()
        )
    }

    fn isolation(&self) -> &str {
        "serializable: one writer at a time, readers see snapshots"
    }

    fn cannot(&self, needs: Needs, level: Level) -> Option<String> {
        not_offered(needs, level, WRITTEN_LEVELS)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
        let opened =
            |source| Error::engine(format!("opening a SQLite database in {}", opening.dir.display()), source);
        let open = OpenSqlite {
            path: opening.dir.join(FILE),
            cache_kib: i64::try_from(opening.cache_bytes >> 10).unwrap_or(i64::MAX),
            level: opening.level,
            tables: opening.tables.iter().map(|name| Statement::of(name)).collect(),
            writer: Mutex::new(()),
        };
        let own = open.connect().map_err(opened)?;
        for name in opening.tables {
            let create = format!(
                "CREATE TABLE IF NOT EXISTS \"{name}\" (k BLOB NOT NULL PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"
            );
            own.execute(&create, []).map_err(opened)?;
        }
        Ok(Arc::new(SqliteStore { open: Held::new(open), own: Mutex::new(Some(own)) }))
    }
}

/// The text of each statement on a table.
struct Statement {
    get: String,
    put: String,
    delete: String,
    /// Forward, reverse, and both from a key.
    scans: [String; 4],
}

impl Statement {
    /// Most statements of a connection that stay prepared, for each table.
    const KINDS: usize = 7;

    fn of(table: &str) -> Statement {
        let scan =
            |bound: &str, order: &str| format!("SELECT k, v FROM \"{table}\" {bound} ORDER BY k {order}");
        Statement {
            get: format!("SELECT v FROM \"{table}\" WHERE k = ?1"),
            put: format!("INSERT OR REPLACE INTO \"{table}\" (k, v) VALUES (?1, ?2)"),
            delete: format!("DELETE FROM \"{table}\" WHERE k = ?1"),
            scans: [
                scan("", "ASC"),
                scan("", "DESC"),
                scan("WHERE k >= ?1", "ASC"),
                scan("WHERE k <= ?1", "DESC"),
            ],
        }
    }

    fn scan(&self, range: Range<'_>) -> &str {
        &self.scans
            [2 * usize::from(range.from.is_some()) + usize::from(range.direction == Direction::Reverse)]
    }
}

struct OpenSqlite {
    path: PathBuf,
    cache_kib: i64,
    level: Level,
    tables: Vec<Statement>,
    writer: Mutex<()>,
}

impl OpenSqlite {
    /// A connection, with the settings of each.
    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update_and_check(None, "soft_heap_limit", self.cache_kib << 10, |_| Ok(()))?;
        connection.pragma_update(None, "cache_size", -self.cache_kib)?;
        let synchronous = match self.level {
            Level::Unsynced => "normal",
            _ => "full",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        Ok(connection)
    }
}

struct SqliteStore {
    open: Held<OpenSqlite>,
    /// Stays open as long as the store, so that closing the last session does not end the log.
    own: Mutex<Option<Connection>>,
}

impl Store for SqliteStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let open = self.open.get()?;
        let connection = open.connect().map_err(failed("opening a connection"))?;
        connection.set_prepared_statement_cache_capacity(Statement::KINDS * open.tables.len() + 4);
        Ok(Box::new(SqliteSession { open, connection }))
    }

    fn settle(&self) -> Result<()> {
        match &*self.own.lock() {
            Some(own) => checkpoint(own, "FULL"),
            None => Ok(()),
        }
    }

    fn close(&self) -> Result<()> {
        self.open.take()?;
        let Some(own) = self.own.lock().take() else { return Ok(()) };
        checkpoint(&own, "TRUNCATE")?;
        own.close().map_err(|(_, error)| Error::engine("closing the database", error))
    }
}

/// Syncs the log, and writes all of it into the database.
fn checkpoint(connection: &Connection, mode: &str) -> Result<()> {
    let run = |row: &rusqlite::Row<'_>| row.get::<_, bool>(0);
    let busy = connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], run);
    match busy.map_err(failed("checkpointing"))? {
        false => Ok(()),
        true => Err(Error::engine("checkpointing", "other connections were in the way for too long")),
    }
}

/// An error of SQLite: a lock that was not granted is a conflict.
fn refused(what: &'static str) -> impl Fn(rusqlite::Error) -> Error {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Conflict,
        _ => Error::engine(what, error),
    }
}

struct SqliteSession {
    open: Arc<OpenSqlite>,
    connection: Connection,
}

impl SqliteSession {
    fn run(&self, begin: &'static str, writes: bool, statements: Statements<'_>) -> Result<Ended> {
        let ended = self.attempt(begin, writes, statements);
        let undone = if self.connection.is_autocommit() {
            Ok(())
        } else {
            self.change("ROLLBACK", [], "rolling back")
        };
        match ended {
            Err(Error::Conflict) => undone.map(|()| Ended::Conflict),
            ended => ended.and_then(|ended| undone.map(|()| ended)),
        }
    }

    /// Runs statements and commits; if they roll back, the transaction is left open.
    fn attempt(&self, begin: &'static str, writes: bool, statements: Statements<'_>) -> Result<Ended> {
        self.change(begin, [], begin)?;
        if let Some(ended) = undone(statements(&mut Open { session: self, writes }))? {
            return Ok(ended);
        }
        self.change("COMMIT", [], "committing")?;
        Ok(Ended::Committed)
    }

    fn change(&self, text: &str, parameters: impl Params, what: &'static str) -> Result<()> {
        let run = |mut statement: CachedStatement<'_>| statement.execute(parameters);
        self.connection.prepare_cached(text).and_then(run).map(|_| ()).map_err(refused(what))
    }

    fn look_up(&self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut look = || {
            let mut statement = self.connection.prepare_cached(&self.open.tables[table].get)?;
            let mut rows = statement.query([key])?;
            let row = rows.next()?;
            let found =
                row.map(|row| row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)).transpose()?;
            Ok(copied(found, value))
        };
        look().map_err(refused("reading"))
    }

    fn show(&self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        let text = self.open.tables[range.table].scan(range);
        let mut statement = self.connection.prepare_cached(text).map_err(refused("scanning"))?;
        let mut rows = statement.query(params_from_iter(range.from)).map_err(refused("scanning"))?;
        while let Some(row) = rows.next().map_err(refused("scanning"))? {
            let (key, value) = entry(row).map_err(refused("scanning"))?;
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}

fn entry<'r>(row: &'r Row<'_>) -> rusqlite::Result<(&'r [u8], &'r [u8])> {
    Ok((row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?))
}

impl Session for SqliteSession {
    fn transact(&mut self, mode: Mode, statements: Statements<'_>) -> Result<Ended> {
        if mode == Mode::Read {
            return self.run("BEGIN DEFERRED", false, statements);
        }
        let _turn = self.open.writer.lock();
        self.run("BEGIN IMMEDIATE", true, statements)
    }

    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        retried(|| self.look_up(table, key, value))
    }
}

/// A transaction that was begun.
struct Open<'a> {
    session: &'a SqliteSession,
    writes: bool,
}

impl Open<'_> {
    fn statements(&self, table: usize) -> Result<&Statement> {
        if self.writes { Ok(&self.session.open.tables[table]) } else { Err(Error::READ_ONLY) }
    }
}

impl Transaction for Open<'_> {
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.session.look_up(table, key, value)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.session.change(&self.statements(table)?.put, (key, value), "writing")
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.session.change(&self.statements(table)?.delete, (key,), "deleting")
    }

    fn scan(&mut self, range: Range<'_>, visit: Visit<'_>) -> Result<()> {
        self.session.show(range, visit)
    }
}
