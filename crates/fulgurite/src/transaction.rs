//! Read-write transactions: a snapshot, a private write set, and validation at commit.

mod begin;
mod committing;
mod ends;
pub(crate) mod memory;
mod numbered;
mod savepoints;
mod taken;
mod tries;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_index::Version;
use fulgurite_log::Durability;
use fulgurite_types::{Csn, KeySpan, hash_key, limits};

use self::committing::Committing;
use self::memory::TransactionCharge;
pub use self::numbered::{Attempt, Numbered};
use self::savepoints::Savepoints;
use self::taken::Taken;
use crate::catalog::TableState;
use crate::claims::Claim;
use crate::commit::prepare::prepare;
use crate::commit::ticket::Ticket;
use crate::engine::Engine;
use crate::handle::Handle;
use crate::key_range::{GivenRange, given, span_of, span_of_prefix};
use crate::latency::Timed;
use crate::live_reads::ReadFor;
use crate::operations::ShortBytes;
use crate::read_set::ReadSet;
use crate::scan::Range;
use crate::snapshots::SnapshotGuard;
use crate::space::budget::Kind;
use crate::space::need::WriteCost;
use crate::spill::Spill;
use crate::write_set::{Budget, Cost, WriteOp, WriteSet, WriteValue, check_key, check_value};
use crate::{Acks, Error, Isolation, KeyRange, Result, Table, Value};

/// An acknowledged commit: durable, unless a lower [`Durability`] was asked for.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let users = db.table("users")?;
/// let first = users.put("alice", "1")?;
/// let second = users.put("bob", "2")?;
/// assert!(first.csn < second.csn);                    // commits are numbered in their order
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its number. Commits are numbered from 1, without gaps, in commit order. For a transaction that wrote nothing,
    /// the number of the newest commit that it saw.
    pub csn: Csn,
}

/// A point inside a transaction to which the transaction can be rolled back.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let users = db.table("users")?;
/// let mut txn = db.begin();
/// txn.put(&users, "alice", "1")?;
/// let before_bob = txn.savepoint();
/// txn.put(&users, "bob", "2")?;
/// txn.rollback_to(before_bob)?;
/// txn.commit()?;
/// assert!(users.get("alice")?.is_some() && users.get("bob")?.is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is rolled back unless it is given to `rollback_to`"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    transaction: u64,
    number: u64,
}

/// A read-write transaction.
///
/// It reads the snapshot that was current when it began, plus its own writes. Its writes are private until it commits;
/// dropping it discards them. Of two transactions that read and wrote the same key, the first to commit wins and the
/// other gets [`Error::Conflict`]. A blind write, of a key that the transaction has not read, never conflicts; nor does
/// a transaction that wrote nothing. Deleting a range writes every key in it, present or not.
///
/// A transaction may read commits that are not durable yet. Its own [`Transaction::commit`] returns only when all of
/// those are durable, whatever its own level. Commits at [`Durability::Async`] and [`Durability::None`] are excepted,
/// because their writers accepted that a crash may undo them.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let (from, to) = (db.table("checking")?, db.table("savings")?);
/// from.put("alice", [100])?;
/// to.put("alice", [0])?;
/// let mut txn = db.begin();
/// let (a, b) = (txn.get(&from, "alice")?.unwrap()[0], txn.get(&to, "alice")?.unwrap()[0]);
/// txn.put(&from, "alice", [a - 30])?;
/// txn.put(&to, "alice", [b + 30])?;
/// txn.commit()?;                                      // both, durable, or neither
/// assert_eq!(to.get("alice")?.unwrap(), [30]);
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    snapshot: SnapshotGuard,
    isolation: Isolation,
    durability: Durability,
    acks: Acks,
    writes: WriteSet,
    reads: ReadSet,
    spill: Option<Spill>,
    savepoints: Savepoints,
    charge: TransactionCharge,
    /// The keys that it popped.
    claims: Vec<Claim>,
    taken: Taken,
    makes_room: bool,
    /// Identifies its savepoints and claims; 0 until there is one.
    id: u64,
    new_table: Option<Arc<TableState>>,
    engine: Handle,
}

impl Transaction {
    /// The durability that this transaction's commit must reach before it is acknowledged. Initially
    /// [`Options::durability`](crate::Options::durability).
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Sets the durability that this transaction's commit must reach before it is acknowledged. Fails here already, and
    /// not only at the commit, if the database cannot provide the level.
    ///
    /// # Errors
    /// [`Error::UnsupportedDurability`]: the transaction keeps its level and continues.
    pub fn set_durability(&mut self, durability: Durability) -> Result<()> {
        self.durability = self.engine.level(durability)?;
        Ok(())
    }

    /// Sets how many replicas of a cluster have the commit when [`Transaction::commit`] returns, or its ticket is complete. Initially
    /// [`Acks::Quorum`]. [`Transaction::commit_numbered`] and [`Transaction::try_commit`], which make no ticket, take no other.
    pub fn set_acks(&mut self, acks: Acks) {
        self.acks = acks;
    }

    /// The number of the newest commit that this transaction sees.
    pub fn snapshot_csn(&self) -> Csn {
        self.snapshot.csn
    }

    /// The state of a table handle, if it belongs to this database.
    fn mine<'t>(&self, table: &'t Table) -> Result<&'t Arc<TableState>> {
        self.engine.state_of(table)
    }

    /// The value of `key`, or `None`.
    ///
    /// # Errors
    /// [`Error::TableDropped`], [`Error::WrongDatabase`], [`Error::KeyTooLong`], [`Error::TooLarge`] (reads take of the
    /// transaction's memory budget), [`Error::Damaged`], [`Error::Io`], [`Error::Closed`]: the transaction continues.
    /// [`Error::SnapshotTooOld`]: it does not.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_bytes(table, key.as_ref())
    }

    fn get_bytes(&self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.mine(table)?;
        check_key(key)?;
        let hash = hash_key(table.state.id, key);
        self.engine.reads.step(&self.snapshot, || match self.writes.own(table.state.id, key, hash) {
            Some(own) => self.own_value(&table.state, key, own),
            None => {
                self.reads.key(&table.state, key, hash, self.budget_of_reads(key.len())?)?;
                self.read(&table.state, key, hash, ReadFor::Reading)
            }
        })
    }

    /// Like [`Transaction::get`], but a commit that writes anything fails with [`Error::Conflict`] if another
    /// transaction wrote the key after this one began, or if the value has expired by then: at any isolation level, and
    /// even if this transaction does not write the key.
    ///
    /// # Errors
    /// Those of [`Transaction::get`]: the transaction continues.
    pub fn get_for_update(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_for_update_bytes(table, key.as_ref())
    }

    fn get_for_update_bytes(&self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.mine(table)?;
        check_key(key)?;
        let hash = hash_key(table.state.id, key);
        self.engine.reads.step(&self.snapshot, || {
            self.reads.key_for_update(&table.state, key, hash, self.budget_of_reads(key.len())?)?;
            match self.writes.own(table.state.id, key, hash) {
                Some(own) => self.own_value(&table.state, key, own),
                None => self.read(&table.state, key, hash, ReadFor::Update),
            }
        })
    }

    /// The budget of reads: what the writes and the savepoints leave of the transaction's one budget. Charges what a read
    /// of `key_bytes` adds to them.
    fn budget_of_reads(&self, key_bytes: usize) -> Result<Budget> {
        let others = self.writes.cost.memory + self.savepoints.bytes();
        self.raise_charge(others + self.reads.bytes() + key_bytes)?;
        Ok(Budget::new(self.engine.options.transaction_bytes_max).beside(others))
    }

    /// The same for writes.
    fn budget_of_writes(&self, bytes: usize) -> Result<Budget> {
        let others = self.reads.bytes() + self.savepoints.bytes();
        self.raise_charge(others + self.writes.cost.memory + bytes)?;
        Ok(Budget::new(self.engine.options.transaction_bytes_max).beside(others))
    }

    /// How many bytes of memory its sets take.
    fn bytes(&self) -> usize {
        self.writes.cost.memory + self.reads.bytes() + self.savepoints.bytes()
    }

    #[inline]
    fn raise_charge(&self, bytes: usize) -> Result<()> {
        self.charge.raise(bytes, &self.engine.memory.transactions)
    }

    fn own_value(&self, table: &TableState, key: &[u8], own: Option<&WriteOp>) -> Result<Option<Value>> {
        let Some(op) = own else { return Ok(None) };
        self.engine.values.own(table.id, key, op, self.snapshot.now_ms)
    }

    fn read(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        hash: u64,
        read_for: ReadFor,
    ) -> Result<Option<Value>> {
        let version = self.version(table, key, hash, read_for)?;
        version.map(|version| self.engine.values.resolve(table.id, key, version)).transpose()
    }

    fn version(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        hash: u64,
        read_for: ReadFor,
    ) -> Result<Option<Version>> {
        table.check_seen(self.snapshot.csn)?;
        let newest = self.engine.read_at(table, key, hash, self.snapshot.csn)?;
        // Only the last write to the key matters, also to one without a value (INV-TXN-17).
        self.reads.saw(newest.csn());
        let Some(version) = newest.seen(self.snapshot.now_ms) else { return Ok(None) };
        self.reads.live().note(table, key, version.expires_at_ms, read_for);
        Ok(Some(version))
    }

    /// When the value of `key` expires, 0 for never; `None` if there is none. Counts as a read.
    pub(crate) fn stored_expiry(&self, table: &Table, key: &[u8], read_for: ReadFor) -> Result<Option<u64>> {
        self.mine(table)?;
        check_key(key)?;
        let hash = hash_key(table.state.id, key);
        let own = self.writes.own(table.state.id, key, hash);
        let budget = self.budget_of_reads(key.len())?;
        match read_for {
            ReadFor::Update => self.reads.key_for_update(&table.state, key, hash, budget)?,
            ReadFor::Reading if own.is_none() => self.reads.key(&table.state, key, hash, budget)?,
            ReadFor::Reading => {}
        }
        if let Some(own) = own {
            let live = own.filter(|op| op.is_live_at(self.snapshot.now_ms));
            return Ok(live.map(|op| op.expires_at_ms));
        }
        let version =
            self.engine.reads.step(&self.snapshot, || self.version(&table.state, key, hash, read_for))?;
        Ok(version.map(|version| version.expires_at_ms))
    }

    /// Has the transaction commit before `expires_at_ms`; 0 is never.
    pub(crate) fn note_expiry(&self, table: &Table, key: &[u8], expires_at_ms: u64) -> Result<()> {
        self.mine(table)?;
        check_key(key)?;
        self.reads.live().note(&table.state, key, expires_at_ms, ReadFor::Update);
        Ok(())
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// See [`ReadSet::needs`].
    pub(crate) fn read_needs(&self) -> Csn {
        self.reads.needs()
    }

    /// Writes `key`, whether or not it exists. The new value does not expire, even if the old one did; see
    /// [`Transaction::put_expiring`].
    ///
    /// A value of 128 KiB or more is written ahead: to disk at once, before the commit, with a sync after every 4 MiB.
    /// So the commit is short, however long the values are, and does not delay other commits. Once the transaction has
    /// used half of [`Options::transaction_bytes_max`](crate::Options::transaction_bytes_max), every value longer than
    /// [`Options::inline_bytes_max`](crate::Options::inline_bytes_max) is written ahead.
    ///
    /// # Errors
    /// [`Error::WrongDatabase`], [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::TooLarge`]. For values that
    /// are written ahead also [`Error::NoSpace`], [`Error::Io`], [`Error::Poisoned`], [`Error::ReadOnly`] and
    /// [`Error::Closed`]. Nothing was changed; the transaction continues. [`Error::SnapshotTooOld`]: it does not.
    pub fn put(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write_bytes(table, key.as_ref(), Some(value.as_ref()), 0)
    }

    /// Deletes `key`. Succeeds if the key does not exist, too. A blind write: it reads nothing.
    ///
    /// # Errors
    /// [`Error::WrongDatabase`], [`Error::KeyTooLong`], [`Error::TooLarge`]. Nothing was changed; the transaction
    /// continues. [`Error::SnapshotTooOld`]: it does not.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<()> {
        self.write_bytes(table, key.as_ref(), None, 0)
    }

    /// Writes `key`, or deletes it (`None`); does not read it. An `expires_at_ms` of 0 is never.
    pub(crate) fn write_bytes(
        &mut self,
        table: &Table,
        key: &[u8],
        value: Option<&[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        self.write(self.engine.state_of(table)?, key, value, expires_at_ms, false)
    }

    /// Writes `key` if it does not exist, else fails with [`Error::KeyExists`]. Counts as a read of the key. The value
    /// does not expire.
    ///
    /// # Errors
    /// [`Error::KeyExists`], and those of [`Transaction::get`] and [`Transaction::put`].
    pub fn insert(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.insert_bytes(table, key.as_ref(), value.as_ref(), 0)
    }

    pub(crate) fn insert_bytes(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &[u8],
        expires_at_ms: u64,
    ) -> Result<()> {
        if self.get(table, key)?.is_some() {
            return Err(Error::KeyExists { table: table.name(), key: key.into() });
        }
        self.write(self.engine.state_of(table)?, key, Some(value), expires_at_ms, true)
    }

    /// Writes `new` (`None` deletes the key) if the value equals `expected` (`None`: the key does not exist). Returns
    /// whether it was equal. Either way it reads the key like [`Transaction::get_for_update`]. The new value does not
    /// expire, even if the old one did.
    ///
    /// # Errors
    /// Those of [`Transaction::get`] and [`Transaction::put`].
    pub fn compare_and_swap(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.swap_bytes(table, key.as_ref(), expected, new, 0)
    }

    pub(crate) fn swap_bytes(
        &mut self,
        table: &Table,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        expires_at_ms: u64,
    ) -> Result<bool> {
        let found = self.get_for_update(table, key)?;
        if found.as_deref() != expected {
            return Ok(false);
        }
        self.write(self.engine.state_of(table)?, key, new, expires_at_ms, true)?;
        Ok(true)
    }

    fn write(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        value: Option<&[u8]>,
        expires_at_ms: u64,
        read_before: bool,
    ) -> Result<()> {
        check_key(key)?;
        self.engine.reads.begin_step(&self.snapshot)?;
        let hash = hash_key(table.id, key);
        let value = match value {
            None => WriteValue::Delete,
            Some(value) => {
                self.taken.written(table.id, key);
                self.write_value(table, key, value)?
            }
        };
        let read_before = read_before || self.reads.has_read(table.id, key, hash);
        let op = WriteOp { value, expires_at_ms, read_before, hash };
        let budget = self.budget_of_writes(Cost::of(key, &op).memory)?;
        self.writes.put(table, key, op, budget)
    }

    fn write_value(&mut self, table: &TableState, key: &[u8], value: &[u8]) -> Result<WriteValue> {
        check_value(value)?;
        let left = self.charge.left(&self.engine.memory.transactions);
        let budget = self.engine.options.transaction_bytes_max.min(left);
        let budget_half_used = self.bytes() + value.len() > budget / 2;
        let spills = value.len() >= limits::SPILL_BYTES_MIN
            || (budget_half_used && value.len() > self.engine.options.inline_bytes_max);
        if !spills {
            return Ok(WriteValue::Inline(ShortBytes::from_slice(value)));
        }
        self.engine.check_writable()?;
        self.engine.pipeline.check_may_write_ahead()?;
        let _admitted = self.engine.admit_by_room(Kind::Puts, || WriteCost::of_chunks(value.len()))?;
        self.engine.wakeups.chunk_written();
        let spill = self.spill.get_or_insert_with(|| self.engine.new_spill(&self.snapshot));
        Ok(WriteValue::Chunks(Arc::new(spill.value(table.id, key, value)?)))
    }

    /// Deletes all keys in `range`. The cost does not depend on how many there are.
    ///
    /// # Errors
    /// [`Error::WrongDatabase`], [`Error::KeyTooLong`] for a bound, [`Error::TooLarge`]. Nothing was changed; the
    /// transaction continues. [`Error::SnapshotTooOld`]: it does not.
    pub fn delete_range(&mut self, table: &Table, range: impl KeyRange) -> Result<()> {
        self.delete_span(table, span_of(&range)?)
    }

    /// Deletes all keys that start with `prefix`. The cost does not depend on how many there are.
    ///
    /// # Errors
    /// Those of [`Transaction::delete_range`].
    pub fn delete_prefix(&mut self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_span(table, span_of_prefix(prefix.as_ref())?)
    }

    pub(crate) fn delete_span(&mut self, table: &Table, span: KeySpan) -> Result<()> {
        self.mine(table)?;
        self.engine.reads.begin_step(&self.snapshot)?;
        if let Some(range) = span.storable() {
            let budget = self.budget_of_writes(Cost::of_range(&range).memory)?;
            self.writes.delete_range(&table.state, range.clone(), budget)?;
            self.reads.delete_range(&table.state, range.borrowed());
        }
        Ok(())
    }

    /// The entries of `range` in key order, own writes included; `.rev()` iterates backward.
    ///
    /// All keys of the range count as read, present or not, however far the iteration gets. Writing one of them
    /// afterwards may conflict, as after a [`Transaction::get`]; in a serializable transaction a write of any of them
    /// by another transaction is a conflict. [`Transaction::first`] and [`Transaction::last`] read no more than they
    /// have to.
    ///
    /// # Errors
    /// [`Error::TableDropped`], [`Error::WrongDatabase`], [`Error::KeyTooLong`] for a bound, [`Error::TooLarge`],
    /// [`Error::Closed`]. Each entry may fail with [`Error::Damaged`], [`Error::Io`] or [`Error::Closed`], which ends
    /// the iteration. Both fail with [`Error::SnapshotTooOld`] when the transaction was ended.
    pub fn range<'a>(&'a self, table: &Table, range: impl KeyRange) -> Result<Range<'a>> {
        let span = span_of(&range)?;
        self.record_range(table, given(&range, &span))?;
        self.range_of(table, span)
    }

    /// The entries whose keys start with `prefix`, in key order; see [`Transaction::range`].
    ///
    /// # Errors
    /// Those of [`Transaction::range`].
    pub fn prefix<'a>(&'a self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Range<'a>> {
        let span = span_of_prefix(prefix.as_ref())?;
        self.record_range(table, GivenRange::new(span.borrowed()))?;
        self.range_of(table, span)
    }

    fn record_range(&self, table: &Table, range: GivenRange<'_>) -> Result<()> {
        self.mine(table)?;
        self.engine.reads.step(&self.snapshot, || table.state.check_seen(self.snapshot.csn))?;
        self.reads.range(&table.state, range, self.budget_of_reads(range.span.start.len())?)?;
        self.reads.saw(self.snapshot.csn);
        Ok(())
    }

    fn range_of<'a>(&'a self, table: &Table, span: KeySpan) -> Result<Range<'a>> {
        Ok(self.unread_range(table, span)?.noting(self.reads.live()))
    }

    /// Marks this point of the transaction. Takes memory of the transaction's budget only if something was written or
    /// rolled back since the last savepoint.
    pub fn savepoint(&mut self) -> Savepoint {
        let transaction = self.identity();
        let mark = self.writes.savepoint();
        Savepoint { transaction, number: self.savepoints.make(mark) }
    }

    fn identity(&mut self) -> u64 {
        static TRANSACTIONS: AtomicU64 = AtomicU64::new(1);
        if self.id == 0 {
            self.id = TRANSACTIONS.fetch_add(1, Ordering::Relaxed);
        }
        self.id
    }

    /// Undoes all writes since `savepoint`. That savepoint stays valid; later ones become invalid. Reads still count.
    ///
    /// # Errors
    /// [`Error::UnknownSavepoint`] if it belongs to another transaction, or was made after one that was rolled back to.
    /// [`Error::SnapshotTooOld`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.engine.reads.begin_step(&self.snapshot)?;
        let is_own = savepoint.transaction == self.id;
        let mark = is_own.then(|| self.savepoints.roll_back_to(savepoint.number)).flatten();
        self.writes.rollback_to(mark.ok_or(Error::UnknownSavepoint)?);
        self.charge.lower(self.bytes());
        self.taken.undone();
        self.claims.retain(|claim| claim.after_savepoints < savepoint.number);
        Ok(())
    }

    /// Commits, and returns when the commit has the durability that [`Transaction::durability`] demands: by default,
    /// when it survives a power cut.
    ///
    /// # Errors
    /// After these nothing of the transaction happened, and a crash does not change that:
    /// - [`Error::Conflict`]: another transaction committed first, or a value that this one depends on expired. Run it
    ///   again.
    /// - [`Error::SnapshotTooOld`]: it was ended before its commit began. Run it again.
    /// - [`Error::TableDropped`], [`Error::TooLarge`], [`Error::Refused`], [`Error::ReadOnly`]: it will never succeed
    ///   as it is.
    /// - [`Error::NoSpace`]: the disk is full; deletes are refused last. Free space and run it again.
    /// - [`Error::Io`], [`Error::Damaged`]: writing ahead failed, or a read for validation or merging. Other
    ///   transactions continue.
    /// - [`Error::Poisoned`]: the log failed earlier. Open the database again.
    /// - [`Error::Closed`]: the database was closed, before the commit or while it was on its way to the disk.
    /// - [`Error::NotLeader`], [`Error::NoQuorum`], in a cluster: run it on the leader, or once a quorum is there.
    ///
    /// After [`Error::ReplicasBehind`], in a cluster, it happened and stays, but not all replicas have it ([`Acks::All`]).
    ///
    /// After this one the transaction happened as a whole or not at all:
    /// - [`Error::OutcomeUnknown`]: the log failed while the commit was on its way. This process may or may not show
    ///   it. The next open of the database decides, and then the outcome stays. To learn it, look for what the
    ///   transaction wrote. To be able to run the transaction again in any case, have it write something unique (a
    ///   request's id).
    ///
    /// A transaction that wrote nothing may fail with [`Error::Closed`], [`Error::SnapshotTooOld`], or with [`Error::OutcomeUnknown`] if the
    /// commits that it read are not known to be durable.
    pub fn commit(self) -> Result<Commit> {
        let engine = self.engine.clone();
        let timed = self.timed(&engine);
        let needs = self.reads.needs();
        let pipeline = &engine.pipeline;
        if self.is_read_only(&engine)? {
            let csn = self.snapshot.csn;
            drop(self);
            pipeline.wait(needs)?;
            return Ok(Commit { csn });
        }
        let syncs = self.durability.waits();
        self.write_commit(&engine, None, syncs, |csn| {
            pipeline.wait_acknowledged(csn, needs, timed)?;
            Ok(Commit { csn })
        })
    }

    /// Commits without waiting for durability. The returned ticket completes when the commit has the durability that
    /// [`Transaction::durability`] demands; at [`Durability::Async`] and [`Durability::None`] it is complete from the
    /// start, unless the transaction read synchronous commits that are not durable yet, or waits for all replicas. Transactions of this process
    /// that begin afterwards see the commit, on every thread.
    ///
    /// The caller syncs nothing for its commit: the thread that writes the commit to the log also syncs the large
    /// values that [`Transaction::put`] has written ahead. The call may wait for memory and order:
    /// - **merging**, while a table that it writes has several times
    ///   [`Options::memtable_bytes_max`](crate::Options::memtable_bytes_max) in memtables that are not merged yet:
    ///   milliseconds, if more is written than the disk takes;
    /// - **a checkpoint**, while the log has outgrown
    ///   [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes): 0.4 s at most, unless the transaction writes
    ///   more than 64 KiB;
    /// - **the log's buffer**, while [`Options::log_buffer_bytes`](crate::Options::log_buffer_bytes) are committed and
    ///   not written yet: the call writes and syncs them itself if no other thread does;
    /// - **a segment of the log**, if commits come faster than the log's thread makes segments;
    /// - **latches**, while other commits of the same keys, or of ranges around them, are validated and applied; and
    ///   **earlier commits**, until they are applied: microseconds;
    /// - **reads from disk**, when it validates keys or ranges that it read long ago;
    /// - **writing ahead**: a commit of many operations with values of some hundred bytes and more (above 240 KB)
    ///   writes them ahead first, and syncs every 4 MiB of them.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn commit_deferred(self) -> Result<Ticket> {
        let engine = self.engine.clone();
        let timed = self.timed(&engine);
        let needs = self.reads.needs();
        let pipeline = &engine.pipeline;
        if self.is_read_only(&engine)? {
            return Ok(pipeline.ticket(self.snapshot.csn, needs, None));
        }
        self.write_commit(&engine, None, false, |csn| pipeline.acknowledge_deferred(csn, needs, timed))
    }

    /// The commit begins now.
    fn timed(&self, engine: &Engine) -> Timed {
        // Alone, a node is its quorum.
        let acks = if engine.log.role().is_some() { self.acks } else { Acks::Quorum };
        Timed { acks, ..engine.pipeline.stopwatch().start(self.durability) }
    }

    /// Fails if the transaction asks for other acknowledgements than a quorum's, which a number alone cannot tell.
    pub(crate) fn check_acks(&self) -> Result<()> {
        if self.acks == Acks::Quorum {
            return Ok(());
        }
        let acks = self.acks;
        let what = format!(
            "a commit without a ticket is acknowledged by a quorum, not by {acks:?}: use `commit` or `commit_deferred`"
        );
        Err(Error::Refused { what })
    }

    /// Discards the transaction: nothing happened. The same as dropping it.
    pub fn rollback(self) {}

    /// Discards the transaction, and returns when all synchronous commits that it read are durable: only then may an
    /// error that depends on its reads leave the process.
    pub(crate) fn rollback_durable(self) -> Result<()> {
        let engine = self.engine.clone();
        let needs = self.reads.needs();
        drop(self);
        engine.check_process()?;
        engine.pipeline.wait(needs)
    }

    /// Writes a row of the catalog. Applying the commit creates the table.
    pub(crate) fn put_catalog(
        &mut self,
        key: &[u8],
        row: &[u8],
        new_table: Option<Arc<TableState>>,
    ) -> Result<()> {
        let root = self.engine.tables.root.clone();
        self.new_table = new_table.or(self.new_table.take());
        self.write(&root, key, Some(row), 0, false)
    }

    pub(crate) fn delete_catalog(&mut self, key: &[u8]) -> Result<()> {
        let root = self.engine.tables.root.clone();
        self.write(&root, key, None, 0, false)
    }

    /// Commits a definition, one that drops or renames `changed` if there is that, without waiting.
    pub(crate) fn commit_definition(mut self, changed: Option<Arc<TableState>>) -> Result<Ticket> {
        let engine = self.engine.clone();
        self.durability = Durability::Sync;
        let timed = engine.pipeline.stopwatch().start(self.durability);
        let pipeline = &engine.pipeline;
        self.write_commit(&engine, changed, false, |csn| pipeline.acknowledge_deferred(csn, Csn::ZERO, timed))
    }

    /// Whether the transaction wrote nothing. Fails if the database is closed, or the transaction was ended.
    fn is_read_only(&self, engine: &Engine) -> Result<bool> {
        let is_empty = self.writes.is_empty();
        if is_empty {
            engine.check_open()?;
            engine.reads.begin_step(&self.snapshot)?;
        }
        Ok(is_empty)
    }

    /// Prepares the writes and commits them. `exclusive` is the table that a definition changes: its gate is held
    /// exclusively. With `syncs` this thread syncs the chunks that were written ahead, because its caller waits for
    /// durability anyhow and others need not; without, the thread that writes the commit's group syncs them before it
    /// writes.
    fn write_commit<A>(
        mut self,
        engine: &Engine,
        exclusive: Option<Arc<TableState>>,
        syncs: bool,
        acknowledge: impl FnOnce(Csn) -> Result<A>,
    ) -> Result<A> {
        engine.check_writable()?;
        engine.reads.begin_commit(&self.snapshot)?;
        engine.hooks.reached("commit begun");
        engine.wait_for_excess(self.writes.cost.memory)?;
        // Search for puts only where the disk is short of room.
        let is_plenty = engine.room.is_plenty();
        let kind = if is_plenty || self.only_puts() { Kind::Puts } else { Kind::Deletes };
        let _admitted = engine.admit_by_room(kind, || self.writes.cost_on_disk())?;
        let ahead = self.spill.as_ref().map_or(0, Spill::bytes);
        let bytes = (self.writes.cost.memory + ahead) / self.writes.tables.len().max(1);
        engine.wait_for_maintenance(self.writes.tables.iter().map(|writes| &*writes.table), bytes)?;
        // The operations are encoded, and applied from a copy of their own.
        self.charge.raise_anyway(self.bytes() + self.writes.cost.operations, &engine.memory.transactions);
        let (mut frame, work) = prepare(
            &engine.tables,
            &mut self.writes,
            self.new_table.take(),
            engine.options.inline_bytes_max,
            &|| engine.reads.readers(),
            &|| engine.new_spill(&self.snapshot),
            &mut self.spill,
        )?;
        if let Some(spill) = &self.spill {
            engine.growth.count_ahead(spill.bytes() as u64);
        }
        if let Some(spill) = self.spill.as_ref().filter(|_| syncs) {
            spill.sync()?;
        }
        let reads = std::mem::replace(&mut self.reads, ReadSet::new(self.isolation, Csn::ZERO));
        let reads = reads.into_validated();
        let level = self.durability;
        frame.is_local = self.acks == Acks::Local && engine.log.role().is_some();
        engine.commit(Committing { transaction: self, reads, exclusive }, level, frame, work, acknowledge)
    }
}
