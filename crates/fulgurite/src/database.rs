//! The handle to a database: opening, closing, tables, transactions, maintenance.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fulgurite_env::{Env, RealEnv};
use fulgurite_log::{Log, LogStats, StagingSummary, inspect_staging};
use fulgurite_types::{Csn, Epoch, Lsn};

use crate::catalog::{NEXT_ID_KEY, check_name, encode_next_id, encode_row};
use crate::checkpoint::CheckpointReport;
use crate::collection::{CollectProgress, CollectReport};
use crate::engine::Engine;
use crate::error::OrError;
use crate::handle::Handle;
use crate::recovery::RecoveryProgress;
use crate::recovery::{Replica, open_engine};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::transaction::{Commit, Transaction};
use crate::{Error, Isolation, Options, Result, Table, Ticket};

/// An open database. Cheap to clone, good for any thread.
///
/// One process at a time has a database open for writing. A write for which a method returns `Ok` survives a power cut,
/// unless it has a lower [`Durability`](crate::Durability) or is deferred. After `fork()` every operation of the child
/// on a handle of its parent fails with [`Error::Forked`], and dropping the handle does nothing.
///
/// **The database stays open while a handle to it lives**: a `Database`, [`Table`], [`Transaction`], [`Snapshot`] or
/// [`Range`](crate::Range). The drop of the last handle closes it, with a checkpoint; [`Database::close`] closes it at
/// once and reports errors. A [`Ticket`], [`Value`](crate::Value) or [`Savepoint`](crate::Savepoint) does not keep it
/// open: each stays valid after the close.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// use fulgurite::{Database, Options};
///
/// let db = Database::open(&path, Options::default())?;
/// let users = db.table("users")?;
/// let other_handle = db.clone();                      // the same database, for another thread
/// std::thread::spawn(move || other_handle.table("users")?.put("alice", "1").map(|_| ())).join().unwrap()?;
/// assert_eq!(users.get("alice")?.unwrap(), "1");
/// drop(users);
/// db.close()?;                                        // with a checkpoint (`Options::close_timeout`)
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    engine: Handle,
}

impl Database {
    /// Opens the database in directory `path`: creates it if [`Options::create`] is set and the directory is missing or
    /// empty, else recovers it. It creates that directory and none above it: if the parent is missing (a disk is not
    /// mounted, say), it fails with [`Error::NotADatabase`].
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NotADatabase`], [`Error::NewerFormat`], [`Error::Damaged`], [`Error::BadOptions`],
    /// [`Error::Io`], [`Error::NoSpace`]. None of them has changed the data.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Database::open_with(RealEnv::new(), path, options, |_| {})
    }

    /// Like [`Database::open`]; calls `progress` as recovery advances.
    ///
    /// ```
    /// use fulgurite::{Database, Options};
    ///
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = Database::open_with_progress(&path, Options::default(), |progress| {
    ///     eprintln!("replayed {} of {} bytes", progress.done_bytes, progress.total_bytes);
    /// })?;
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::open`].
    pub fn open_with_progress(
        path: impl AsRef<Path>,
        options: Options,
        progress: impl FnMut(RecoveryProgress),
    ) -> Result<Database> {
        Database::open_with(RealEnv::new(), path, options, progress)
    }

    /// Like [`Database::open_with_progress`], in a given environment: a simulated one, or one that counts.
    ///
    /// # Errors
    /// Those of [`Database::open`].
    pub fn open_with(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: Options,
        mut progress: impl FnMut(RecoveryProgress),
    ) -> Result<Database> {
        let engine = open_engine(env, path.as_ref(), options, None, &mut progress)?;
        Ok(Database { engine: Handle::new(engine)? })
    }

    /// The database of a node of a cluster, for `fulgurite-replication`, which makes its log and those of other nodes one.
    #[doc(hidden)]
    pub fn open_replica(
        env: Arc<dyn Env>,
        path: impl AsRef<Path>,
        options: Options,
        replica: Replica,
        mut progress: impl FnMut(RecoveryProgress),
    ) -> Result<Database> {
        let engine = open_engine(env, path.as_ref(), options, Some(replica), &mut progress)?;
        Ok(Database { engine: Handle::new(engine)? })
    }

    /// This node leads, and the others are these.
    #[doc(hidden)]
    pub fn set_others(&self, nodes: &[u32]) {
        self.engine.pipeline.set_others(nodes);
    }

    /// Another node has all commits up to this one durably.
    #[doc(hidden)]
    pub fn note_other(&self, node: u32, csn: Csn) {
        self.engine.pipeline.note_other(node, csn);
    }

    /// Waits for room for entries and chunks of a leader, as a committer does: checkpoints may have to make it.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Closed`], [`Error::Poisoned`].
    #[doc(hidden)]
    pub fn admit_entries(&self, entry_bytes: usize, chunk_bytes: usize) -> Result<()> {
        self.engine.admit_entries(entry_bytes, chunk_bytes)
    }

    /// At a leader the other nodes, and the newest commit that each is known to have durably.
    #[doc(hidden)]
    pub fn others(&self) -> Vec<(u32, Csn)> {
        self.engine.pipeline.others()
    }

    /// Another node leads, or this one: errors name it.
    #[doc(hidden)]
    pub fn note_leader(&self, node: u32) {
        self.engine.pipeline.note_leader(node);
    }

    /// Its log, for `fulgurite-replication`.
    #[doc(hidden)]
    pub fn log(&self) -> &Arc<Log> {
        &self.engine.log
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

    /// Reads what a staging file ([`Options::staging`]) says of itself; no database may have it open. Writes nothing.
    ///
    /// # Errors
    /// [`Error::Io`] if there is none, [`Error::Refused`] if it is something else or was never used, [`Error::Damaged`].
    pub fn inspect_staging(path: impl AsRef<Path>) -> Result<StagingSummary> {
        inspect_staging(&*RealEnv::new(), path.as_ref()).or_error()
    }

    /// A handle to the table `name`, which must exist.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::BadTableName`], [`Error::Closed`].
    pub fn open_table(&self, name: &str) -> Result<Table> {
        self.engine.check_open()?;
        check_name(name)?;
        let state =
            self.engine.tables.by_name(name).ok_or_else(|| Error::UnknownTable { name: name.to_string() })?;
        Ok(Table::of(state, self.engine.clone()))
    }

    /// Creates the table `name`, which must not exist; durable when it returns.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], and those of [`Transaction::commit`].
    pub fn create_table(&self, name: &str) -> Result<Table> {
        let (table, ticket) = self.create_table_deferred(name).or_else(|error| Err(self.settled(error)?))?;
        self.engine.pipeline.wait(ticket.csn())?;
        Ok(table)
    }

    /// [`Database::create_table`] without waiting: the table can be used at once, and the ticket says when it is durable. A commit that writes to it is
    /// acknowledged after that.
    ///
    /// # Errors
    /// Those of [`Database::create_table`].
    pub fn create_table_deferred(&self, name: &str) -> Result<(Table, Ticket)> {
        self.engine.check_writable()?;
        check_name(name)?;
        let catalog = &self.engine.tables;
        let _quiet = self.engine.pipeline.quiet();
        let mut newest = catalog.definitions.lock();
        if catalog.by_name(name).is_some() {
            return Err(Error::TableExists { name: name.to_string() });
        }
        let id = catalog.next_id();
        let state = catalog.prepare(id, name, Lsn::NULL);
        let mut txn = Transaction::begin_single(&self.engine);
        txn.put_catalog(name.as_bytes(), &encode_row(id), Some(state.clone()))?;
        txn.put_catalog(NEXT_ID_KEY, &encode_next_id(id.0 + 1), None)?;
        let ticket = txn.commit_definition(None)?;
        *newest = ticket.csn();
        tracing::info!(path = %self.engine.files.path.display(), table = name, "made a table");
        Ok((Table::of(state, self.engine.clone()), ticket))
    }

    /// Drops the table `name` with all its keys; durable when it returns. Open snapshots still see it; its space is
    /// freed after they are gone.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], and those of [`Transaction::commit`].
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let ticket = self.drop_table_deferred(name).or_else(|error| Err(self.settled(error)?))?;
        self.engine.pipeline.wait(ticket.csn())
    }

    /// [`Database::drop_table`] without waiting: the ticket says when it is durable.
    ///
    /// # Errors
    /// Those of [`Database::drop_table`].
    pub fn drop_table_deferred(&self, name: &str) -> Result<Ticket> {
        self.engine.check_writable()?;
        let _quiet = self.engine.pipeline.quiet();
        let mut newest = self.engine.tables.definitions.lock();
        let table = self.open_table(name)?;
        let mut txn = Transaction::begin_single(&self.engine);
        txn.delete_catalog(name.as_bytes())?;
        let ticket = txn.commit_definition(Some(table.state))?;
        *newest = ticket.csn();
        tracing::info!(path = %self.engine.files.path.display(), table = name, "dropped a table");
        Ok(ticket)
    }

    /// Renames a table; durable when it returns. Handles to the table stay valid.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::TableExists`], [`Error::BadTableName`], and those of [`Transaction::commit`].
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        let ticket = self.rename_table_deferred(from, to).or_else(|error| Err(self.settled(error)?))?;
        match ticket {
            Some(ticket) => self.engine.pipeline.wait(ticket.csn()),
            None => self.wait_for_definitions(),
        }
    }

    /// [`Database::rename_table`] without waiting: the ticket says when it is durable; there is none if both names are the same.
    ///
    /// # Errors
    /// Those of [`Database::rename_table`].
    pub fn rename_table_deferred(&self, from: &str, to: &str) -> Result<Option<Ticket>> {
        self.engine.check_writable()?;
        check_name(to)?;
        let _quiet = self.engine.pipeline.quiet();
        let mut newest = self.engine.tables.definitions.lock();
        let table = self.open_table(from)?;
        if from == to {
            return Ok(None);
        }
        if self.engine.tables.by_name(to).is_some() {
            return Err(Error::TableExists { name: to.to_string() });
        }
        let mut txn = Transaction::begin_single(&self.engine);
        txn.delete_catalog(from.as_bytes())?;
        txn.put_catalog(to.as_bytes(), &encode_row(table.state.id), None)?;
        let ticket = txn.commit_definition(Some(table.state))?;
        *newest = ticket.csn();
        tracing::info!(path = %self.engine.files.path.display(), table = from, to, "renamed a table");
        Ok(Some(ticket))
    }

    /// An error that says which tables there are, once these are durable: it must not tell of a definition that a crash undoes.
    fn settled(&self, error: Error) -> Result<Error> {
        if matches!(error, Error::TableExists { .. } | Error::UnknownTable { .. }) {
            self.wait_for_definitions()?;
        }
        Ok(error)
    }

    fn wait_for_definitions(&self) -> Result<()> {
        let newest = *self.engine.tables.definitions.lock();
        self.engine.pipeline.wait(newest)
    }

    /// All tables, by name.
    pub fn tables(&self) -> Result<Vec<Table>> {
        self.engine.check_open()?;
        let tables = self.engine.tables.list().into_iter();
        Ok(tables.map(|state| Table::of(state, self.engine.clone())).collect())
    }

    /// Begins a read-write transaction under snapshot isolation.
    pub fn begin(&self) -> Transaction {
        Transaction::begin(&self.engine, Isolation::Snapshot)
    }

    /// Begins a read-write transaction.
    pub fn begin_with(&self, isolation: Isolation) -> Transaction {
        Transaction::begin(&self.engine, isolation)
    }

    /// Runs `body` in a transaction and commits it. On a conflict it runs `body` again, at most
    /// [`Options::conflict_retries_max`] times. By default durable when it returns. Any `Err` of `body` rolls back:
    /// nothing of the transaction happened.
    ///
    /// `body` may run several times: it should do nothing but use the transaction.
    ///
    /// **In `body`, use the transaction for every read and write.** `txn.get(&users, key)` reads the transaction's
    /// snapshot and its own writes, and is validated at commit. `users.get(key)` compiles, too, but is another
    /// operation: it reads the newest durable value, misses the transaction's own writes, and does not conflict when
    /// another commit changes the key meanwhile. `users.put(key, value)` is a commit of its own: it stays when `body`
    /// fails, is repeated by each retry, and if `body` has read the key, the transaction conflicts with it every time
    /// ([`Error::TooManyConflicts`]).
    ///
    /// To return an application's own error, use [`Database::transact_as`]. Do not return `Ok(Err(mine))`: it is an
    /// `Ok`, and commits.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let hits = db.table("hits")?;
    /// let count = db.transact(|txn| {
    ///     let count = txn.get(&hits, "/")?.map_or(0, |value| value.len()) + 1;
    ///     txn.put(&hits, "/", vec![b'|'; count])?;
    ///     Ok(count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of `body`, [`Error::TooManyConflicts`], and those of [`Transaction::commit`] except conflicts. A run that
    /// was too old ([`Error::SnapshotTooOld`]) is not repeated: the next one might take as long. If
    /// `body` fails and the log fails before the commits that it read are durable, the result is
    /// [`Error::OutcomeUnknown`] instead: the error of `body` may depend on data that a crash undoes.
    #[must_use = "an error says that nothing was committed, or that it is not known"]
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(Isolation::Snapshot, body).map(|(value, _)| value)
    }

    /// Like [`Database::transact`] at a given isolation; also returns the commit.
    ///
    /// # Errors
    /// Those of [`Database::transact`].
    #[must_use = "an error says that nothing was committed, or that it is not known"]
    pub fn transact_with<T>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Commit)> {
        self.engine.retry(isolation, body)
    }

    /// Like [`Database::transact`] for a `body` with errors of the application, which wrap an [`Error`] with `From`.
    /// Any `Err` of `body` rolls back and ends the retries: nothing of the transaction happened.
    ///
    /// `E` is inferred if `body` constructs such an error itself, or if the result is returned without a `?`; else
    /// write `transact_as::<_, MyError>(...)`. (Therefore [`Database::transact`] is another method: one with any `E`
    /// would need the annotation even where `E` is [`Error`].)
    ///
    /// ```
    /// use fulgurite::{Database, Options};
    ///
    /// #[derive(Debug)]
    /// enum BookingError {
    ///     SoldOut,
    ///     Storage(fulgurite::Error),
    /// }
    ///
    /// impl From<fulgurite::Error> for BookingError {
    ///     fn from(error: fulgurite::Error) -> BookingError {
    ///         BookingError::Storage(error)
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), BookingError> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path().join("data"), Options::default())?;
    /// let seats = db.table("seats")?;
    /// let booked = db.transact_as(|txn| {
    ///     txn.put(&seats, "12a", "alice")?;
    ///     if txn.get(&seats, "free")?.is_none() {
    ///         return Err(BookingError::SoldOut);
    ///     }
    ///     Ok(())
    /// });
    /// assert!(matches!(booked, Err(BookingError::SoldOut)));
    /// assert_eq!(seats.get("12a")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::transact`], as `E`.
    #[must_use = "an error says that nothing was committed, or that it is not known"]
    pub fn transact_as<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_with_as(Isolation::Snapshot, body).map(|(value, _)| value)
    }

    /// Like [`Database::transact_as`] at a given isolation; also returns the commit.
    ///
    /// # Errors
    /// Those of [`Database::transact`], as `E`.
    #[must_use = "an error says that nothing was committed, or that it is not known"]
    pub fn transact_with_as<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Commit), E> {
        self.engine.retry_as(isolation, body)
    }

    /// Like [`Database::transact`], but does not wait until the commit is durable: the [`Ticket`] that it returns
    /// completes then. Transactions that begin afterwards see the commit. [`Transaction::commit_deferred`] lists what
    /// the call may wait for. Before it runs `body` again after a conflict, and before it returns an error of `body`,
    /// it also waits until everything that `body` read is durable.
    ///
    /// ```
    /// # use fulgurite::{Database, Error, Options};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path().join("data"), Options::default())?;
    /// let hits = db.table("hits")?;
    /// let (count, ticket) = db.transact_deferred(|txn| {
    ///     let before = txn.get(&hits, "/")?.map_or(0, |value| value[0]);
    ///     txn.put(&hits, "/", [before + 1])?;
    ///     Ok(before + 1)
    /// })?;
    /// assert_eq!(count, 1);
    /// ticket.wait()?; // or `.await`, or a callback; or many of them, and then this
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::transact`]; the ticket reports whether the commit is durable.
    pub fn transact_deferred<T>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        self.transact_deferred_with(Isolation::Snapshot, body)
    }

    /// Like [`Database::transact_deferred`] at a given isolation.
    ///
    /// # Errors
    /// Those of [`Database::transact_deferred`].
    pub fn transact_deferred_with<T>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Ticket)> {
        self.engine.retry_deferred(isolation, body)
    }

    /// Like [`Database::transact_deferred`] for a `body` with errors of the application, as [`Database::transact_as`]
    /// is like [`Database::transact`]. The ticket's error is an [`Error`].
    ///
    /// # Errors
    /// Those of [`Database::transact_deferred`], as `E`.
    pub fn transact_deferred_as<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        self.transact_deferred_with_as(Isolation::Snapshot, body)
    }

    /// Like [`Database::transact_deferred_as`] at a given isolation.
    ///
    /// # Errors
    /// Those of [`Database::transact_deferred`], as `E`.
    pub fn transact_deferred_with_as<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        self.engine.retry_deferred_as(isolation, body)
    }

    /// A snapshot of now: every commit that it sees is durable, or was acknowledged at a level that does not wait for
    /// durability.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.engine)
    }

    /// Waits until the commit `csn` and all before it are durable, whatever their levels. Requests the flush.
    ///
    /// # Errors
    /// [`Error::UnknownCommit`] if no commit has that number, [`Error::OutcomeUnknown`] if the log failed.
    pub fn wait_durable(&self, csn: Csn) -> Result<()> {
        self.engine.check_process()?;
        if csn > self.engine.log.reserved_csn() {
            return Err(Error::UnknownCommit { csn });
        }
        self.engine.pipeline.wait(csn)
    }

    /// Waits until reads here show the commit `csn`, at most so long; returns whether they do. In a cluster: at a follower for what a client
    /// committed at the leader, at the leader for a commit of a former one.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], [`Error::Forked`].
    pub fn wait_applied(&self, csn: Csn, timeout: Duration) -> Result<bool> {
        let mut watch = self.watch(|| {});
        let clock = self.engine.env.clock();
        let begin_ns = clock.monotonic_ns();
        let mut pause = APPLIED_LOOK;
        while !watch.ask(csn)? {
            let waited = Duration::from_nanos(clock.monotonic_ns().saturating_sub(begin_ns));
            if waited >= timeout {
                return Ok(false);
            }
            clock.sleep(pause.min(timeout - waited));
            pause = (2 * pause).min(APPLIED_LOOK_MAX);
        }
        Ok(true)
    }

    /// Writes a checkpoint now, so that the next open has little to replay. The database writes one without this call
    /// when the log has grown ([`Options::checkpoint_log_bytes`]).
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Damaged`]: the last checkpoint stays valid, try again.
    /// [`Error::Poisoned`], [`Error::Closed`].
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.engine.check_writable()?;
        self.engine.checkpoint()
    }

    /// Collects garbage now, as far as it goes: moves live data out of the segments that have the least of it, until all that can be
    /// collected take at most `until` times their live bytes, and frees them. `until` is from 1.02 to 100; 1.1 is a good figure. The
    /// database collects without this call, down to about 1.2, and slower. Reads and commits go on meanwhile; they share the device and
    /// the processors with it. Space beside the segments is needed for a sixteenth of the live data. `progress` is called between steps.
    ///
    /// # Errors
    /// [`Error::BadOptions`] if `until` is out of range. [`Error::NoSpace`], [`Error::Io`], [`Error::Damaged`]: data that was moved by
    /// then stays moved. [`Error::Poisoned`], [`Error::Closed`], [`Error::ReadOnly`].
    pub fn collect(&self, until: f64, progress: impl FnMut(CollectProgress)) -> Result<CollectReport> {
        self.engine.check_writable()?;
        self.engine.collect(until, progress)
    }

    /// One round of the background threads' work: merge, checkpoint if one is due, keep segments ready. For databases
    /// opened with [`Options::background`] off; returns whether there was work.
    pub fn maintain(&self) -> Result<bool> {
        self.engine.check_open()?;
        if self.engine.options.read_only {
            return Ok(false);
        }
        self.engine.maintain()
    }

    /// How long a program whose commits must not wait ([`Transaction::try_commit`](crate::Transaction::try_commit)) had better hold
    /// back its writes, because merging or a checkpoint is behind: until then most are refused with
    /// [`Missing::Merging`](crate::Missing::Merging), after they were made. Zero while committers are not slowed. A few nanoseconds.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// // An event loop leaves a request that writes where it is, and serves others until then.
    /// assert!(db.commit_delay().is_zero());
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_delay(&self) -> Duration {
        self.engine.commit_delay()
    }

    /// The same, for a program that is going to wait for so long, or for events: in simulation the time passes at once, and it is zero.
    pub fn commit_delay_before_events(&self) -> Duration {
        match self.engine.commit_delay() {
            Duration::ZERO => Duration::ZERO,
            delay => self.engine.env.clock().before_events(delay),
        }
    }

    /// Changes the memory budget of the open database, [`Options::memory_bytes`], for all handles. When this returns, a smaller
    /// one holds for loads and writes from now on; nodes beyond it are evicted within moments. The bounds of a
    /// single memtable, and of the log between checkpoints, stay as they were when the database was opened.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// db.set_memory_bytes(64 << 20)?;
    /// assert_eq!(db.stats().memory.budget_bytes, 64 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadOptions`] below the least: the budget stays. [`Error::Closed`], [`Error::Forked`].
    pub fn set_memory_bytes(&self, bytes: usize) -> Result<()> {
        self.engine.check_process()?;
        self.engine.check_open()?;
        let options = Options { memory_bytes: Some(bytes), ..self.engine.options.clone() };
        options.validate_memory()?;
        self.engine.memory.set_budget(bytes, &options);
        Ok(())
    }

    /// Counters and sizes; all 0 in a child of the process that opened the database ([`Error::Forked`]).
    pub fn stats(&self) -> Stats {
        if self.engine.check_process().is_err() {
            return Stats::default();
        }
        Stats::read(&self.engine)
    }

    /// The log's own counters; all 0 where those of [`Database::stats`] are.
    pub fn log_stats(&self) -> LogStats {
        if self.engine.check_process().is_err() {
            return LogStats::default();
        }
        self.engine.log.stats()
    }

    /// The database's directory: the path that it had when it was opened.
    pub fn path(&self) -> &Path {
        &self.engine.files.path
    }

    /// Verifies everything: node records, values, the log, the accounts. Reads, writes and maintenance run meanwhile
    /// and do not wait for it; segments that become free meanwhile are freed after it.
    ///
    /// # Errors
    /// [`Error::Closed`], also if the database is closed before the check has ended. [`Error::Io`]: a read failed.
    /// Damage is not an error of the check: the report lists it.
    pub fn check(
        &self,
        progress: impl FnMut(crate::check::CheckProgress),
    ) -> Result<crate::check::CheckReport> {
        crate::check::check(&self.engine, progress)
    }

    /// Closes the database with a checkpoint, for all handles: operations on every other handle, transaction, snapshot
    /// and range fail with [`Error::Closed`] from then on. A concurrent commit is durable or refused. Waits for a
    /// checkpoint that is being written, and for a close that another thread has begun. Where memtables cannot be merged
    /// within [`Options::close_timeout`] it writes no checkpoint, and the next open replays the log; a checkpoint that
    /// another thread writes fails with [`Error::Closed`] then.
    ///
    /// Any thread may close, also in a callback of a [`Ticket`], which may run on a thread of the database itself.
    ///
    /// Without this call the drop of the last handle closes, and an error is only logged (`tracing`, level WARN). While
    /// other threads still use handles, leave the close to that drop, or stop those threads first.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Io`], [`Error::Damaged`], [`Error::Poisoned`]: every commit that was acknowledged
    /// as durable is durable, and the next open replays the commits that the last checkpoint does not cover. The
    /// database is closed even so. [`Error::Closed`] if an earlier close failed, which reported why; after one that
    /// succeeded the result is `Ok`. [`Error::WouldBlock`] in a ticket's callback while another thread is closing,
    /// because that thread may wait for the callback.
    ///
    /// # Panics
    /// If there is a bug. The database is closed even so, without a checkpoint, and the log flushes the acknowledged
    /// commits if it still can.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.engine.engine()
    }

    /// The time of the database's clock, in milliseconds since 1970-01-01 UTC: that by which keys expire and commits are ordered
    /// ([`guide::expiry`](crate::guide::expiry)). It never runs back.
    pub fn now_ms(&self) -> u64 {
        self.engine.now_ms()
    }

    /// The newest commit that transactions see which begin now; it and all before it are applied. It may not be durable yet.
    pub fn visible_csn(&self) -> Csn {
        self.engine.pipeline.visible()
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.engine
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.engine.files.path.display())
    }
}

/// How long a reader that waits for a commit pauses before it looks again, first ...
const APPLIED_LOOK: Duration = Duration::from_micros(50);
/// ... and at most.
const APPLIED_LOOK_MAX: Duration = Duration::from_millis(1);

/// The path of the log's directory in the database directory `dir`.
pub(crate) fn log_dir(dir: &Path) -> PathBuf {
    dir.join(LOG_NAME)
}

/// The name of the log's directory in the database's.
pub(crate) const LOG_NAME: &str = "log";

/// The epoch of a database that was just created.
pub(crate) const FIRST_EPOCH: Epoch = Epoch(0);
