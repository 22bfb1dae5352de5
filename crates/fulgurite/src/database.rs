//! Opening, closing, and everything that concerns a database as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_base::{Csn, Epoch, Lsn};
use fulgurite_env::{Env, RealEnv};
use fulgurite_log::LogStats;
use parking_lot::Mutex;

use crate::background::Background;
use crate::catalog::{NEXT_ID_KEY, check_name, encode_next_id, encode_row};
use crate::checkpoint::CheckpointReport;
use crate::core::Core;
use crate::open::open_core;
use crate::recovery::RecoveryProgress;
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::transaction::{Commit, Transaction};
use crate::{Error, Isolation, Options, Result, Table};

/// An open database. Cheap to clone, good for any thread; the last clone that goes closes it.
///
/// One process at a time holds a database. Everything that its methods return `Ok` for survives a power cut, unless a
/// lower [`Durability`](crate::Durability) was asked for.
#[derive(Clone)]
pub struct Database {
    core: Arc<Core>,
    /// Closes the database when the last clone goes.
    _closer: Arc<Closer>,
}

impl Database {
    /// Opens the database in directory `path`: creates it if [`Options::create`] says so and the directory is missing
    /// or empty, else recovers it.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NotADatabase`], [`Error::NewerFormat`], [`Error::Damaged`], [`Error::BadOptions`],
    /// [`Error::Io`], [`Error::NoSpace`]. None of them has changed the data.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Database::open_with(RealEnv::new(), path, options, |_| {})
    }

    /// Like [`Database::open`], in a given environment, and reports how far recovery has come.
    pub fn open_with(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: Options,
        mut progress: impl FnMut(RecoveryProgress),
    ) -> Result<Database> {
        let core = Arc::new(open_core(env, path.as_ref(), options, &mut progress)?);
        let background = if core.options.background { Some(Background::start(&core)?) } else { None };
        let closer =
            Closer { core: core.clone(), background: Mutex::new(background), done: Mutex::new(false) };
        Ok(Database { core, _closer: Arc::new(closer) })
    }

    /// A handle to the table `name`, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::BadTableName`], and those of [`Transaction::commit`].
    pub fn table(&self, name: &str) -> Result<Table> {
        match self.open_table(name) {
            Err(Error::UnknownTable { .. }) => {}
            other => return other,
        }
        match self.create_table(name) {
            Err(Error::TableExists { .. }) => self.open_table(name),
            other => other,
        }
    }

    /// A handle to the table `name`, which must exist.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::BadTableName`], [`Error::Closed`].
    pub fn open_table(&self, name: &str) -> Result<Table> {
        self.core.check_open()?;
        check_name(name)?;
        let state =
            self.core.catalog.by_name(name).ok_or_else(|| Error::UnknownTable { name: name.to_string() })?;
        Ok(Table { core: self.core.clone(), state })
    }

    /// Creates the table `name`, which must not exist; durable when it returns.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], and those of [`Transaction::commit`].
    pub fn create_table(&self, name: &str) -> Result<Table> {
        self.core.check_writable()?;
        check_name(name)?;
        let catalog = &self.core.catalog;
        let _definitions = catalog.definitions.lock();
        if catalog.by_name(name).is_some() {
            return Err(Error::TableExists { name: name.to_string() });
        }
        let id = catalog.next_id();
        let state = catalog.prepare(id, name, Lsn::NULL);
        let mut txn = Transaction::begin(&self.core, Isolation::Snapshot);
        txn.put_catalog(name.as_bytes(), &encode_row(id), Some(state.clone()))?;
        txn.put_catalog(NEXT_ID_KEY, &encode_next_id(id.0 + 1), None)?;
        txn.commit_definition(None)?;
        Ok(Table { core: self.core.clone(), state })
    }

    /// Drops the table `name` with all that is in it; durable when it returns. Open snapshots still see it; its space
    /// returns when they are gone.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], and those of [`Transaction::commit`].
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.core.check_writable()?;
        let _definitions = self.core.catalog.definitions.lock();
        let table = self.open_table(name)?;
        let mut txn = Transaction::begin(&self.core, Isolation::Snapshot);
        txn.delete_catalog(name.as_bytes())?;
        txn.commit_definition(Some(table.state))?;
        Ok(())
    }

    /// Renames a table; handles to it stay good.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::TableExists`], [`Error::BadTableName`], and those of [`Transaction::commit`].
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.core.check_writable()?;
        check_name(to)?;
        let _definitions = self.core.catalog.definitions.lock();
        let table = self.open_table(from)?;
        if from == to {
            return Ok(());
        }
        if self.core.catalog.by_name(to).is_some() {
            return Err(Error::TableExists { name: to.to_string() });
        }
        let mut txn = Transaction::begin(&self.core, Isolation::Snapshot);
        txn.delete_catalog(from.as_bytes())?;
        txn.put_catalog(to.as_bytes(), &encode_row(table.state.id), None)?;
        txn.commit_definition(Some(table.state))?;
        Ok(())
    }

    /// All tables, by name.
    pub fn tables(&self) -> Result<Vec<Table>> {
        self.core.check_open()?;
        let tables = self.core.catalog.list().into_iter();
        Ok(tables.map(|state| Table { core: self.core.clone(), state }).collect())
    }

    /// Begins a read-write transaction under snapshot isolation.
    pub fn begin(&self) -> Transaction {
        Transaction::begin(&self.core, Isolation::Snapshot)
    }

    /// Begins a read-write transaction.
    pub fn begin_with(&self, isolation: Isolation) -> Transaction {
        Transaction::begin(&self.core, isolation)
    }

    /// Runs `body` in a transaction and commits it; again, with a limit ([`Options::conflict_retries_max`]), when it
    /// conflicts. By default durable when it returns. `body` may run several times: it should do nothing but use the
    /// transaction, and read through it: what it reads through a [`Table`] is not validated.
    ///
    /// # Errors
    /// Whatever `body` returns, [`Error::TooManyConflicts`], and those of [`Transaction::commit`] but conflicts.
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.core.retry(Isolation::Snapshot, body).map(|(value, _)| value)
    }

    /// Like [`Database::transact`] at a given isolation; also returns the commit.
    pub fn transact_with<T>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Commit)> {
        self.core.retry(isolation, body)
    }

    /// The database as of now: everything in it is durable, or was answered at a level that does not wait for that.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.core)
    }

    /// Waits until the commit `csn` and all before it are durable, whatever their levels. Causes the flush.
    ///
    /// # Errors
    /// [`Error::UnknownCommit`] if there is none of that number, [`Error::OutcomeUnknown`] if the log failed.
    pub fn wait_durable(&self, csn: Csn) -> Result<()> {
        if csn > self.core.log.reserved_csn() {
            return Err(Error::UnknownCommit { csn });
        }
        self.core.pipeline.wait(csn)
    }

    /// Writes a checkpoint now. The database writes one by itself when the log has grown; this is for those who want
    /// the next open to be quick.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Damaged`]: the last checkpoint stands, try again. [`Error::Poisoned`],
    /// [`Error::Closed`].
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.core.check_writable()?;
        self.core.checkpoint()
    }

    /// One round of the work that the background threads do: fold, checkpoint if one is due, keep segments ready. For
    /// databases opened with [`Options::background`] off; returns whether there was any.
    pub fn maintain(&self) -> Result<bool> {
        self.core.check_open()?;
        self.core.maintain()
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        Stats::read(&self.core)
    }

    /// The log's own counters.
    pub fn log_stats(&self) -> LogStats {
        self.core.log.stats()
    }

    /// Where the database lies.
    pub fn path(&self) -> &Path {
        &self.core.dir
    }

    /// Verifies everything: node records, values, the log, the accounts. Runs beside reads and writes.
    pub fn check(
        &self,
        progress: impl FnMut(crate::check::CheckProgress),
    ) -> Result<crate::check::CheckReport> {
        crate::check::check(&self.core, progress)
    }

    /// Closes the database with a checkpoint, and says whether that worked. Other handles get [`Error::Closed`]
    /// afterwards. Dropping the last handle does the same and cannot report anything.
    pub fn close(self) -> Result<()> {
        self._closer.close()
    }

    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.core.dir.display())
    }
}

/// Ends the background threads and the log.
struct Closer {
    core: Arc<Core>,
    background: Mutex<Option<Background>>,
    /// Whether it is closed. Held while it is being closed, so that a second caller returns after the first.
    done: Mutex<bool>,
}

impl Closer {
    fn close(&self) -> Result<()> {
        let mut done = self.done.lock();
        if std::mem::replace(&mut *done, true) {
            return Ok(());
        }
        if let Some(background) = self.background.lock().take() {
            background.stop();
        }
        let core = &self.core;
        let outcome = if core.log.poisoned().is_none() { core.checkpoint().map(|_| ()) } else { Ok(()) };
        {
            // Whoever folds or checkpoints now is waited for; whoever comes later looks at the flag under the lock.
            let _maintenance = core.maintenance.lock();
            core.closed.store(true, Ordering::Release);
        }
        core.pipeline.begin_close();
        let closed = core.log.close().map_err(Error::from).and_then(|()| core.note_clean_close());
        core.pipeline.fail_tickets("the database was closed before the commit was known to be durable");
        core.lock.lock().take();
        outcome.and(closed)
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, path = %self.core.dir.display(), "closing a database");
        }
    }
}

/// A directory's place in messages.
pub(crate) fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// The epoch of a database that was just created.
pub(crate) const FIRST_EPOCH: Epoch = Epoch(0);
