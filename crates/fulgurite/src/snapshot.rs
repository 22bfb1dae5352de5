//! Read-only views of the whole database at one commit.

use std::sync::Arc;

use fulgurite_index::Version;
use fulgurite_types::{Csn, KeySpan, hash_key};

use crate::engine::Engine;
use crate::handle::Handle;
use crate::key_range::{given, span_of, span_of_prefix};
use crate::salvage::Salvage;
use crate::scan::{Range, RangeSnapshot};
use crate::snapshots::SnapshotGuard;
use crate::write_set::check_key;
use crate::{KeyRange, Result, Table, Value};

/// The whole database as of one commit. Every commit in it is durable, or was acknowledged at a level that does not
/// wait for durability. A snapshot is cheap to clone, and usable from any thread.
///
/// While it lives, the versions that it sees stay on disk: drop it as soon as it is not needed any more. One that is older
/// than [`Options::max_snapshot_age`](crate::Options::max_snapshot_age) is ended.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let stock = db.table("stock")?;
/// stock.put("lamps", "7")?;
/// let before = db.snapshot();
/// stock.put("lamps", "6")?;
/// assert_eq!(before.get(&stock, "lamps")?.unwrap(), "7");
/// assert_eq!(before.range(&stock, ..)?.count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    guard: Arc<SnapshotGuard>,
    engine: Handle,
}

impl Snapshot {
    pub(crate) fn take(engine: &Handle) -> Snapshot {
        Snapshot::take_at(engine, || engine.pipeline.read_csn())
    }

    /// `csn` never falls, and is never below the horizon (INV-TXN-1).
    pub(crate) fn take_at(engine: &Handle, csn: impl Fn() -> Csn) -> Snapshot {
        let guard = engine.reads.ending_snapshot(csn);
        Snapshot { engine: engine.clone(), guard: Arc::new(guard) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The number of the newest commit in it.
    pub fn csn(&self) -> Csn {
        self.guard.csn
    }

    /// The value of `key`, or `None`.
    ///
    /// # Errors
    /// Those of [`Transaction::get`](crate::Transaction::get), except [`Error::TooLarge`](crate::Error::TooLarge):
    /// reads of a snapshot are not recorded.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_bytes(table, key.as_ref())
    }

    fn get_bytes(&self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.engine.reads.step(&self.guard, || {
            let version = self.find(table, key)?;
            version.map(|version| self.engine.values.resolve(table.state.id, key, version)).transpose()
        })
    }

    /// Like [`Snapshot::get`], but [`Error::WouldBlock`](crate::Error::WouldBlock) instead of a read from disk.
    ///
    /// # Errors
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) with [`Missing::Node`](crate::Missing::Node) or
    /// [`Missing::Value`](crate::Missing::Value), and those of [`Snapshot::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::Error;
    ///
    /// let users = db.table("users")?;
    /// users.put("alice", "1")?;
    /// let snapshot = db.snapshot();
    /// let alice = match snapshot.try_get(&users, "alice") {
    ///     Err(Error::WouldBlock(_)) => snapshot.get(&users, "alice")?,    // on a thread that may wait
    ///     alice => alice?,
    /// };
    /// assert_eq!(alice.unwrap(), "1");
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.try_get_bytes(table, key.as_ref())
    }

    fn try_get_bytes(&self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.engine.reads.step(&self.guard, || {
            let hash = self.check_readable(table, key)?;
            let newest = self.engine.read_in_memory(&table.state, key, hash, self.guard.csn)?;
            let version = newest.seen(self.guard.now_ms);
            version.map(|version| self.engine.values.resident(version)).transpose()
        })
    }

    pub(crate) fn version(&self, table: &Table, key: &[u8]) -> Result<Option<Version>> {
        self.engine.reads.step(&self.guard, || self.find(table, key))
    }

    fn find(&self, table: &Table, key: &[u8]) -> Result<Option<Version>> {
        let hash = self.check_readable(table, key)?;
        Ok(self.engine.read_at(&table.state, key, hash, self.guard.csn)?.seen(self.guard.now_ms))
    }

    /// The hash of a key of a table that the snapshot sees.
    fn check_readable(&self, table: &Table, key: &[u8]) -> Result<u64> {
        self.engine.state_of(table)?;
        check_key(key)?;
        table.state.check_seen(self.guard.csn)?;
        Ok(hash_key(table.state.id, key))
    }

    /// The entries of `range` in key order; `.rev()` iterates backward. `..` is the whole table.
    ///
    /// # Errors
    /// Those of [`Transaction::range`](crate::Transaction::range), except [`Error::TooLarge`](crate::Error::TooLarge).
    pub fn range(&self, table: &Table, range: impl KeyRange) -> Result<Range<'static>> {
        self.range_of(table, span_of(&range)?)
    }

    /// The entries whose keys start with `prefix`, in key order.
    ///
    /// # Errors
    /// Those of [`Snapshot::range`].
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Range<'static>> {
        self.range_of(table, span_of_prefix(prefix.as_ref())?)
    }

    /// The entries of `range` in key order, without those that cannot be read: the iterator names each range that it
    /// leaves out where that would have come. For rescuing the rest of a damaged table; [`Snapshot::range`] ends at the
    /// first error.
    ///
    /// # Errors
    /// Those of [`Snapshot::range`].
    pub fn salvage(&self, table: &Table, range: impl KeyRange) -> Result<Salvage> {
        let span = span_of(&range)?;
        let given = given(&range, &span);
        Ok(Salvage::new(self.range_of(table, span.clone())?, given))
    }

    pub(crate) fn range_of(&self, table: &Table, span: KeySpan) -> Result<Range<'static>> {
        self.engine.state_of(table)?;
        self.engine.reads.step(&self.guard, || table.state.check_seen(self.guard.csn))?;
        Range::new(&self.engine, &table.state, span, None, RangeSnapshot::Shared(self.guard.clone()))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot(csn {})", self.csn())
    }
}
