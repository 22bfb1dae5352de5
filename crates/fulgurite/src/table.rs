//! A handle to a table: single operations, each a transaction of its own.

use std::sync::Arc;

use fulgurite_index::table::ReadPoint;
use fulgurite_index::{Io, Version};
use fulgurite_log::Durability;
use fulgurite_types::{KeySpan, hash_key};
use smallvec::SmallVec;

use crate::catalog::TableState;
use crate::error::OrError;
use crate::handle::Handle;
use crate::key_range::{span_of, span_of_prefix};
use crate::scan::Range;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::write_set::check_key;
use crate::{Commit, Error, KeyRange, Result, Value};

/// A handle to a table; cheap to clone, good for any thread.
///
/// Each method is a transaction of one operation, at the level [`Options::durability`](crate::Options::durability): by
/// default a write is durable when it returns. [`Table::with_durability`] gives a handle with another level. To write several keys atomically, or a value that depends on a read, use
/// [`Database::begin`](crate::Database::begin) or [`Database::transact`](crate::Database::transact).
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let users = db.table("users")?;
/// users.put("alice", "1")?;                           // durable
/// users.insert("bob", "2")?;                          // fails if there is a bob
/// assert!(users.compare_and_swap("bob", Some(b"2"), Some(b"3"))?);
/// users.delete("alice")?;
/// let names: Vec<String> = users
///     .range(..)?
///     .map(|entry| Ok(String::from_utf8_lossy(&entry?.0).into_owned()))
///     .collect::<fulgurite::Result<_>>()?;
/// assert_eq!(names, ["bob"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Table {
    pub(crate) state: Arc<TableState>,
    /// The level of its single operations.
    pub(crate) durability: Durability,
    pub(crate) engine: Handle,
}

impl Table {
    /// The table's name; it may have been renamed since the handle was made.
    pub fn name(&self) -> String {
        self.state.name().to_string()
    }

    pub(crate) fn of(state: Arc<TableState>, engine: Handle) -> Table {
        Table { state, durability: engine.options.effective(engine.options.durability), engine }
    }

    /// A handle to the same table, whose single operations commit at this level. Transactions have a level of their own.
    ///
    /// ```
    /// use fulgurite::{Database, Durability, Options};
    ///
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path().join("data"), Options::default())?;
    /// let users = db.table("users")?;
    /// let visits = users.with_durability(Durability::None)?;
    /// users.put("alice", "engineer")?;                    // durable when it returns
    /// visits.put("alice/last", "today")?;                 // visible, and durable soon
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::UnsupportedDurability`].
    pub fn with_durability(&self, durability: Durability) -> Result<Table> {
        Ok(Table { durability: self.engine.level(durability)?, ..self.clone() })
    }

    /// The level of the handle's single operations.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The value of `key`, or `None`: the newest that is durable, or was acknowledged at a level that does not wait for
    /// durability.
    ///
    /// # Errors
    /// [`Error::TableDropped`], [`Error::KeyTooLong`], [`Error::Damaged`], [`Error::Io`], [`Error::Closed`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_bytes(key.as_ref())
    }

    fn get_bytes(&self, key: &[u8]) -> Result<Option<Value>> {
        match self.live_version_in_memory(key) {
            Ok(Some(version)) => match self.engine.values.in_memory(version) {
                Ok(value) => Ok(Some(value)),
                Err(_) => self.get_from_disk(key),
            },
            Err(Error::WouldBlock(_)) => self.get_from_disk(key),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks the version up once it has begun a read from disk, so that its value stays readable although no snapshot keeps it
    /// (INV-READ-1).
    #[cold]
    fn get_from_disk(&self, key: &[u8]) -> Result<Option<Value>> {
        let _read = self.engine.disk_reads.begin();
        let Some(version) = self.newest_live(key, Io::Allowed)? else { return Ok(None) };
        self.engine.hooks.reached("version to be read found");
        self.engine.values.resolve(self.state.id, key, version).map(Some)
    }

    /// The newest version of a key, if it is live.
    pub(crate) fn live_version(&self, key: &[u8]) -> Result<Option<Version>> {
        match self.live_version_in_memory(key) {
            Err(Error::WouldBlock(_)) => self.newest_live(key, Io::Allowed),
            found => found,
        }
    }

    /// The same, but [`Error::WouldBlock`] instead of a read from disk.
    #[inline]
    fn live_version_in_memory(&self, key: &[u8]) -> Result<Option<Version>> {
        check_key(key)?;
        self.engine.check_open()?;
        self.engine.counters.gets.count();
        // One for all look-ups.
        let _pin = crossbeam_epoch::pin();
        self.newest_live(key, Io::MemoryOnly)
    }

    /// Asks for the newest version, and if that does not settle the read, for the version of a snapshot (INV-TXN-14).
    #[inline]
    fn newest_live(&self, key: &[u8], io: Io) -> Result<Option<Version>> {
        let hash = hash_key(self.state.id, key);
        let at = self.engine.pipeline.read_csn();
        self.state.check_seen(at)?;
        self.engine.hooks.reached("read CSN taken");
        // Looked at where it is: moving a version costs about as much as judging it.
        let found = self.state.index.get_newest(key, hash, at, 0, io).or_error();
        self.engine.hooks.reached("newest version found");
        match &found {
            Ok(version) if !self.engine.reads.needs_no_snapshot(version.as_ref(), at) => {
                self.version_in_a_snapshot(key, hash, io)
            }
            _ => found,
        }
    }

    #[cold]
    fn version_in_a_snapshot(&self, key: &[u8], hash: u64, io: Io) -> Result<Option<Version>> {
        let snapshot = self.engine.reads.snapshot(|| self.engine.pipeline.read_csn());
        self.state.check_seen(snapshot.csn)?;
        self.state.index.get(key, hash, snapshot.at(), io).or_error()
    }

    /// Has the processor load what look-ups of these keys read of memory, all at once: the look-ups that follow are faster, because
    /// each would wait for its loads one after the other. For threads that know several keys before they read them. It has no
    /// effect on what they read, and reads nothing from disk.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// users.put("alice", "1")?;
    /// let keys = ["alice", "bob"];
    /// users.prefetch(keys);
    /// for key in keys {
    ///     println!("{:?}", users.get(key)?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefetch<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) {
        let keys: SmallVec<[K; 16]> = keys.into_iter().collect();
        if self.engine.check_open().is_ok() {
            self.state.index.prefetch(keys.iter().map(AsRef::as_ref));
        }
    }

    /// Like [`Table::get`], but [`Error::WouldBlock`] instead of a read from disk.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], and those of [`Table::get`].
    pub fn try_get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.try_get_bytes(key.as_ref())
    }

    fn try_get_bytes(&self, key: &[u8]) -> Result<Option<Value>> {
        let Some(version) = self.live_version_in_memory(key)? else { return Ok(None) };
        self.engine.values.resident(version).map(Some)
    }

    /// Writes `key`; by default durable when it returns. Removes an expiry that the key had: [`Table::put_expiring`]
    /// sets one.
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and [`Transaction::commit`]; the operation is blind and never conflicts.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Commit> {
        self.write_bytes(key.as_ref(), Some(value.as_ref()), 0)
    }

    /// Deletes `key`; fine if it does not exist.
    ///
    /// # Errors
    /// Those of [`Transaction::delete`] and [`Transaction::commit`]; the operation is blind and never conflicts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Commit> {
        self.write_bytes(key.as_ref(), None, 0)
    }

    /// Deletes all keys in `range`; costs the same however many there are. It costs more while many snapshots are open
    /// that were begun between range deletes of the same keys (`docs/performance.md` has figures).
    ///
    /// # Errors
    /// Those of [`Transaction::delete_range`] and [`Transaction::commit`]; the operation is blind and never conflicts.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<Commit> {
        self.delete_span(span_of(&range)?)
    }

    /// Deletes all keys that start with `prefix`; costs the same however many there are.
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and [`Transaction::commit`]; the operation is blind and never conflicts.
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Commit> {
        self.delete_span(span_of_prefix(prefix.as_ref())?)
    }

    /// Writes `key` if it does not exist, else fails with [`Error::KeyExists`].
    ///
    /// # Errors
    /// [`Error::KeyExists`], [`Error::TooManyConflicts`], and those of [`Transaction::put`] and
    /// [`Transaction::commit`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Commit> {
        self.insert_bytes(key.as_ref(), value.as_ref())
    }

    fn insert_bytes(&self, key: &[u8], value: &[u8]) -> Result<Commit> {
        self.retry_single(|txn| txn.insert(self, key, value)).map(|((), commit)| commit)
    }

    /// Writes `new` (`None` deletes) if the value is `expected` (`None`: the key does not exist). Returns whether it
    /// was. The new value does not expire, whatever the old one did.
    ///
    /// # Errors
    /// [`Error::TooManyConflicts`], and those of [`Transaction::put`] and [`Transaction::commit`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.swap_bytes(key.as_ref(), expected, new)
    }

    fn swap_bytes(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        self.retry_single(|txn| txn.compare_and_swap(self, key, expected, new)).map(|(swapped, _)| swapped)
    }

    /// The entries of `range` in order, at a snapshot of now; `.rev()` reverses the order. `..` is the whole table.
    ///
    /// # Errors
    /// Those of [`Transaction::range`].
    pub fn range(&self, range: impl KeyRange) -> Result<Range<'static>> {
        Snapshot::take(&self.engine).range(self, range)
    }

    /// The entries whose keys start with `prefix`, in order, at a snapshot of now.
    ///
    /// # Errors
    /// Those of [`Transaction::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'static>> {
        Snapshot::take(&self.engine).prefix(self, prefix)
    }

    /// About how many keys the table has: within some percent, unless snapshots keep many old versions. Expired keys
    /// are left out only where they are recent. It samples the tree, and takes up to some milliseconds. 0 in a child of
    /// the process that opened the database ([`Error::Forked`]).
    pub fn len_estimate(&self) -> u64 {
        if self.engine.check_process().is_err() {
            return 0;
        }
        let at = ReadPoint { csn: self.engine.pipeline.read_csn(), now_ms: self.engine.now_ms() };
        self.state.index.len_estimate(at)
    }

    fn delete_span(&self, span: KeySpan) -> Result<Commit> {
        let mut txn = self.begin();
        txn.delete_span(self, span)?;
        txn.commit()
    }

    /// Begins the transaction of a single operation.
    pub(crate) fn begin(&self) -> Transaction {
        Transaction::begin_single(&self.engine).at_level(self.durability)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.name())
    }
}
