//! Reads of a transaction from memory only. One that would need a read from disk leaves the transaction as it was.

use fulgurite_types::{hash_key, key_after};

use super::Transaction;
use crate::key_range::given;
use crate::live_reads::ReadFor;
use crate::scan::Direction;
use crate::try_range::Asked;
use crate::write_set::{WriteOp, WriteValue, check_key};
use crate::{Error, KeyRange, Missing, RangeLimits, Result, Table, TryRange, Value};

impl Transaction {
    /// Like [`Transaction::get`], but [`Error::WouldBlock`] instead of a read from disk: the key then does not count as read,
    /// and the call may be made again.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] with [`Missing::Node`] or [`Missing::Value`] (a value that this transaction itself wrote ahead,
    /// too), and those of [`Transaction::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::Error;
    ///
    /// let users = db.table("users")?;
    /// users.put("alice", "1")?;
    /// let txn = db.begin();
    /// let alice = match txn.try_get(&users, "alice") {
    ///     Err(Error::WouldBlock(_)) => txn.get(&users, "alice")?,         // on a thread that may wait
    ///     alice => alice?,
    /// };
    /// assert_eq!(alice.unwrap(), "1");
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.try_get_bytes(table, key.as_ref(), ReadFor::Reading)
    }

    /// Like [`Transaction::get_for_update`], but [`Error::WouldBlock`] instead of a read from disk, as
    /// [`Transaction::try_get`] does.
    ///
    /// # Errors
    /// Those of [`Transaction::try_get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// users.put("alice", "1")?;
    /// let mut txn = db.begin();
    /// assert_eq!(txn.try_get_for_update(&users, "alice")?.unwrap(), "1");
    /// txn.put(&users, "last", "alice")?;
    /// users.put("alice", "2")?;
    /// assert!(txn.commit().is_err());                     // what it read has changed
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_get_for_update(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.try_get_bytes(table, key.as_ref(), ReadFor::Update)
    }

    fn try_get_bytes(&self, table: &Table, key: &[u8], read_for: ReadFor) -> Result<Option<Value>> {
        self.mine(table)?;
        check_key(key)?;
        let hash = hash_key(table.state.id, key);
        self.engine.reads.step(&self.snapshot, || match self.writes.own(table.state.id, key, hash) {
            Some(own) => self.try_own(table, key, hash, own, read_for),
            None => self.try_stored(table, key, hash, read_for),
        })
    }

    fn try_own(
        &self,
        table: &Table,
        key: &[u8],
        hash: u64,
        own: Option<&WriteOp>,
        read_for: ReadFor,
    ) -> Result<Option<Value>> {
        if own.is_some_and(|op| matches!(op.value, WriteValue::Chunks(_))) {
            return Err(Error::WouldBlock(Missing::Value));
        }
        if read_for == ReadFor::Update {
            self.record_key(table, key, hash, read_for)?;
        }
        self.own_value(&table.state, key, own)
    }

    /// Reads first and records then: nothing is recorded if something is not in memory.
    fn try_stored(&self, table: &Table, key: &[u8], hash: u64, read_for: ReadFor) -> Result<Option<Value>> {
        table.state.check_seen(self.snapshot.csn)?;
        let newest = self.engine.read_in_memory(&table.state, key, hash, self.snapshot.csn)?;
        let csn = newest.csn();
        let version = newest.seen(self.snapshot.now_ms);
        let expires_at_ms = version.as_ref().map_or(0, |version| version.expires_at_ms);
        let value = version.map(|version| self.engine.values.resident(version)).transpose()?;
        self.record_key(table, key, hash, read_for)?;
        self.reads.saw(csn);
        self.reads.live().note(&table.state, key, expires_at_ms, read_for);
        Ok(value)
    }

    fn record_key(&self, table: &Table, key: &[u8], hash: u64, read_for: ReadFor) -> Result<()> {
        let budget = self.budget_of_reads(key.len())?;
        match read_for {
            ReadFor::Reading => self.reads.key(&table.state, key, hash, budget),
            ReadFor::Update => self.reads.key_for_update(&table.state, key, hash, budget),
        }
    }

    /// The first entries of `range` in key order, own writes included, from memory only: see
    /// [`Snapshot::try_range`](crate::Snapshot::try_range). The keys up to the last entry that it returns count as read, present
    /// or not; those of the whole range if it returns no rest.
    ///
    /// # Errors
    /// Those of [`Transaction::range`] and of its entries.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::RangeLimits;
    ///
    /// let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.put(&users, "alice", "1")?;
    /// let read = txn.try_range(&users, "a".."b", RangeLimits::default())?;
    /// assert_eq!(read.entries.len(), 1);
    /// assert!(read.rest.is_none() && read.missing.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_range(&self, table: &Table, range: impl KeyRange, limits: RangeLimits) -> Result<TryRange> {
        self.try_read(table, Asked::new(range, limits, Direction::Forward)?)
    }

    /// The last entries of `range`, from its end: like [`Transaction::try_range`] otherwise.
    ///
    /// # Errors
    /// Those of [`Transaction::try_range`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::RangeLimits;
    ///
    /// let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.put(&users, "alice", "1")?;
    /// txn.put(&users, "bob", "2")?;
    /// let limits = RangeLimits { entries: 1, ..RangeLimits::default() };
    /// assert_eq!(txn.try_range_back(&users, .., limits)?.entries[0].0, "bob");
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_range_back(
        &self,
        table: &Table,
        range: impl KeyRange,
        limits: RangeLimits,
    ) -> Result<TryRange> {
        self.try_read(table, Asked::new(range, limits, Direction::Backward)?)
    }

    fn try_read(&self, table: &Table, asked: Asked<impl KeyRange>) -> Result<TryRange> {
        self.mine(table)?;
        self.engine.reads.step(&self.snapshot, || table.state.check_seen(self.snapshot.csn))?;
        let range = self.unread_range(table, asked.span.clone())?.in_memory();
        let mut first_to_expire: Option<(u64, Vec<u8>)> = None;
        let read = asked.read(range, |key, expires_at_ms| {
            let is_first = first_to_expire.as_ref().is_none_or(|(first, _)| expires_at_ms < *first);
            if expires_at_ms != 0 && is_first {
                first_to_expire = Some((expires_at_ms, key.to_vec()));
            }
        })?;
        let mut whole = given(&asked.range, &asked.span);
        let after = read.entries.last().map(|(last, _)| key_after(last));
        match (&read.rest, read.entries.last(), asked.direction) {
            (None, ..) => {}
            (Some(_), None, _) => return Ok(read),
            (Some(_), Some(_), Direction::Forward) => {
                whole.span.end = after.as_deref();
                whole.ends_with_key = true;
            }
            (Some(_), Some((last, _)), Direction::Backward) => {
                whole.span.start = last;
                whole.starts_after_key = false;
            }
        }
        self.reads.range(&table.state, whole, self.budget_of_reads(whole.span.start.len())?)?;
        self.reads.saw(self.snapshot.csn);
        if let Some((expires_at_ms, key)) = first_to_expire {
            self.reads.live().note(&table.state, &key, expires_at_ms, ReadFor::Reading);
        }
        Ok(read)
    }
}
