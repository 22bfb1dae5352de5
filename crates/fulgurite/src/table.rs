//! A handle to a table: single operations, each a transaction of its own.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use fulgurite_index::Version;
use fulgurite_index::table::ReadPoint;
use fulgurite_types::{Csn, hash_key};

use crate::catalog::TableState;
use crate::engine::Engine;
use crate::error::OrError;
use crate::handle::Handle;
use crate::scan::{Bounds, Range};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::write_set::check_key;
use crate::{Commit, Error, Isolation, KeyRange, Result, Value};

/// A handle to a table; cheap to clone, good for any thread.
///
/// Each method is a transaction of one operation, at the level [`Options::durability`](crate::Options::durability): by
/// default a write is durable when it returns. To write several keys atomically, or a value that depends on a read, use
/// [`Database::begin`](crate::Database::begin) or [`Database::transact`](crate::Database::transact).
#[derive(Clone)]
pub struct Table {
    pub(crate) state: Arc<TableState>,
    pub(crate) engine: Handle,
}

impl Table {
    /// The table's name; it may have been renamed since the handle was made.
    pub fn name(&self) -> String {
        self.state.name().to_string()
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
        let pin = crossbeam_epoch::pin();
        match self.live_version(key, &pin) {
            Ok(Some(version)) => self.engine.values.resolve(self.state.id, key, version).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The newest version of a key, if it is live.
    #[inline]
    pub(crate) fn live_version(&self, key: &[u8], pin: &Guard) -> Result<Option<Version>> {
        let index = &self.state.index;
        self.live_version_by(
            key,
            pin,
            |hash, at| index.get_newest(key, hash, at, 0).or_error(),
            |hash, at| index.get(key, hash, at).or_error(),
        )
    }

    /// Asks for the newest version, and if the read needs a snapshot, for the version of a snapshot (INV-TXN-14).
    #[inline]
    fn live_version_by(
        &self,
        key: &[u8],
        _pin: &Guard,
        newest: impl FnOnce(u64, Csn) -> Result<Option<Version>>,
        seen: impl FnOnce(u64, ReadPoint) -> Result<Option<Version>>,
    ) -> Result<Option<Version>> {
        check_key(key)?;
        self.engine.check_open()?;
        self.engine.counters.gets.count();
        let hash = hash_key(self.state.id, key);
        let at = self.engine.pipeline.read_csn();
        self.state.check_seen(at)?;
        self.engine.hooks.reached("read CSN taken");
        // Looked at where it is: moving a version costs about as much as judging it.
        let found = newest(hash, at);
        self.engine.hooks.reached("newest version found");
        match &found {
            Ok(version) if !self.engine.reads.needs_no_snapshot(version.as_ref(), at) => {
                self.version_in_a_snapshot(hash, seen)
            }
            _ => found,
        }
    }

    #[cold]
    fn version_in_a_snapshot(
        &self,
        hash: u64,
        seen: impl FnOnce(u64, ReadPoint) -> Result<Option<Version>>,
    ) -> Result<Option<Version>> {
        let snapshot = self.engine.reads.snapshot(|| self.engine.pipeline.read_csn());
        self.state.check_seen(snapshot.csn)?;
        seen(hash, ReadPoint { csn: snapshot.csn, now_ms: snapshot.now_ms })
    }

    /// Like [`Table::get`], but [`Error::WouldBlock`] instead of a read from disk.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], and those of [`Table::get`].
    pub fn try_get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.try_get_bytes(key.as_ref())
    }

    fn try_get_bytes(&self, key: &[u8]) -> Result<Option<Value>> {
        let index = &self.state.index;
        let version = self.live_version_by(
            key,
            &crossbeam_epoch::pin(),
            |hash, at| index.try_get_newest(key, hash, at, 0).or_error(),
            |hash, at| index.try_get(key, hash, at).or_error(),
        )?;
        let Some(version) = version else { return Ok(None) };
        if version.flags.is_out_of_line() {
            return Err(Error::WouldBlock);
        }
        self.engine.values.resolve(self.state.id, key, version).map(Some)
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
    /// between range deletes of the same keys: some 40 microseconds with 100 of them, a millisecond with 500.
    ///
    /// # Errors
    /// Those of [`Transaction::delete_range`] and [`Transaction::commit`]; the operation is blind and never conflicts.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<Commit> {
        self.delete_bounds(&Bounds::new(range.start(), range.end())?)
    }

    /// Deletes all keys that start with `prefix`; costs the same however many there are.
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and [`Transaction::commit`]; the operation is blind and never conflicts.
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Commit> {
        self.delete_bounds(&Bounds::prefix(prefix.as_ref())?)
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
        self.engine.retry(Isolation::Snapshot, |txn| txn.insert(self, key, value)).map(|((), commit)| commit)
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
        self.engine
            .retry(Isolation::Snapshot, |txn| txn.compare_and_swap(self, key, expected, new))
            .map(|(swapped, _)| swapped)
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
        let _pin = crossbeam_epoch::pin();
        self.state.index.len_estimate(at)
    }

    pub(crate) fn write_bytes(&self, key: &[u8], value: Option<&[u8]>, expires_at_ms: u64) -> Result<Commit> {
        if !Engine::needs_transaction(value) {
            return self.engine.write_one(&self.state, key, value, expires_at_ms);
        }
        let mut txn = self.begin();
        txn.write_bytes(self, key, value, expires_at_ms)?;
        txn.commit()
    }

    fn delete_bounds(&self, bounds: &Bounds) -> Result<Commit> {
        let mut txn = self.begin();
        txn.delete_bounds(self, bounds)?;
        txn.commit()
    }

    fn begin(&self) -> Transaction {
        Transaction::begin(&self.engine, Isolation::Snapshot)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.name())
    }
}
