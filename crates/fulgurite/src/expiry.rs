//! When values expire: the type, and the operations that read and change it. The rules are in
//! [`guide::expiry`](crate::guide::expiry).

use std::time::{Duration, SystemTime};

use crate::engine::Engine;
use crate::live_reads::ReadFor;

use crate::{Commit, Result, Snapshot, Table, Transaction};

/// When a value expires. A [`Duration`] and a [`SystemTime`] convert to it.
///
/// The database stores the moment, in milliseconds, rounded up. A duration counts from the call that writes the value,
/// not from the commit, on the database's clock ([`ClockStatus`](crate::ClockStatus)).
///
/// ```
/// use std::time::Duration;
///
/// use fulgurite::{Database, Expiry, Options};
///
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = Database::open(dir.path().join("data"), Options::default())?;
/// let sessions = db.table("sessions")?;
/// sessions.put_expiring("8f31", "alice", Duration::from_secs(1800))?;
/// assert!(matches!(sessions.expiry("8f31")?, Some(Expiry::At(_))));
/// // Seen again: another half hour.
/// assert!(sessions.expire_at("8f31", Duration::from_secs(1800))?);
/// // Remembered.
/// assert!(sessions.persist("8f31")?);
/// assert_eq!(sessions.expiry("8f31")?, Some(Expiry::Never));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It does not expire.
    Never,
    /// From this moment on the key reads as if it had been deleted; at once if the moment has passed.
    At(SystemTime),
    /// This long after the call that writes it. Never returned by reads, which return the stored moment.
    After(Duration),
}

impl Expiry {
    /// The moment in milliseconds since 1970-01-01 UTC.
    pub fn at_unix_ms(ms: u64) -> Expiry {
        Expiry::At(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
    }

    /// The stored form, in milliseconds since 1970-01-01 UTC; 0 is never.
    fn stored_ms(self, engine: &Engine) -> u64 {
        match self {
            Expiry::Never => 0,
            Expiry::At(time) => {
                time.duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| whole_ms(since).max(1))
            }
            Expiry::After(duration) => engine.now_ms().saturating_add(whole_ms(duration)).max(1),
        }
    }

    fn from_stored(ms: u64) -> Expiry {
        if ms == 0 { Expiry::Never } else { Expiry::at_unix_ms(ms) }
    }
}

/// The moment that a version stores; `None`: never.
pub(crate) fn moment_of(expires_at_ms: u64) -> Option<SystemTime> {
    (expires_at_ms != 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_millis(expires_at_ms))
}

/// Rounded up.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl From<Duration> for Expiry {
    fn from(duration: Duration) -> Expiry {
        Expiry::After(duration)
    }
}

impl From<SystemTime> for Expiry {
    fn from(time: SystemTime) -> Expiry {
        Expiry::At(time)
    }
}

/// `None` is never.
impl From<Option<SystemTime>> for Expiry {
    fn from(time: Option<SystemTime>) -> Expiry {
        time.map_or(Expiry::Never, Expiry::At)
    }
}

impl Transaction {
    /// Writes `key`, whether or not it exists, with an expiry.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn put_expiring(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        let expires_at_ms = expiry.into().stored_ms(self.engine());
        self.write_bytes(table, key.as_ref(), Some(value.as_ref()), expires_at_ms)
    }

    /// Like [`Transaction::insert`], with an expiry. A key that has expired does not exist.
    ///
    /// # Errors
    /// Those of [`Transaction::insert`].
    pub fn insert_expiring(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        let expires_at_ms = expiry.into().stored_ms(self.engine());
        self.insert_bytes(table, key.as_ref(), value.as_ref(), expires_at_ms)
    }

    /// Like [`Transaction::compare_and_swap`] with a new value, which gets an expiry.
    ///
    /// # Errors
    /// Those of [`Transaction::compare_and_swap`].
    pub fn compare_and_swap_expiring(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool> {
        let expires_at_ms = expiry.into().stored_ms(self.engine());
        self.swap_bytes(table, key.as_ref(), expected, Some(new.as_ref()), expires_at_ms)
    }

    /// Has the transaction commit before `expiry`, when what it read of `key` expires by a rule of the application, which the
    /// database does not know. From that moment on, by the time that orders commits, the commit fails with
    /// [`Error::Conflict`](crate::Error::Conflict) on an [expired](crate::Contended::Expired) key, as it does after
    /// [`Transaction::get_for_update`] of a value with that expiry. Of several moments the first counts. A transaction that
    /// writes nothing does not commit, and this has no effect on it, except in [`Transaction::try_commit_validated`].
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let offers = db.table("offers")?;
    /// let until = SystemTime::now() + Duration::from_secs(60); // of the record "lamp", which says so itself
    /// let mut txn = db.begin();
    /// txn.commit_before(&offers, "lamp", until)?;
    /// txn.put(&offers, "lamp/sold-to", "alice")?;
    /// txn.commit()?;                                      // or a conflict, once the minute is over
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDatabase`](crate::Error::WrongDatabase), [`Error::KeyTooLong`](crate::Error::KeyTooLong).
    pub fn commit_before(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        let expires_at_ms = expiry.into().stored_ms(self.engine());
        self.note_expiry(table, key.as_ref(), expires_at_ms)
    }

    /// When the value of `key` expires; `None` if the key does not exist. Counts as a read of the key.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn expiry(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let stored_ms = self.stored_expiry(table, key.as_ref(), ReadFor::Reading)?;
        Ok(stored_ms.map(Expiry::from_stored))
    }

    /// Gives the value of `key` another expiry. Returns false, and does nothing, if the key does not exist. Counts as
    /// [`Transaction::get_for_update`] and as a write: the value is written again, and read for that if it is large.
    ///
    /// # Errors
    /// Those of [`Transaction::get_for_update`] and [`Transaction::put`].
    pub fn expire_at(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool> {
        let expires_at_ms = expiry.into().stored_ms(self.engine());
        self.set_expiry(table, key.as_ref(), expires_at_ms)
    }

    /// Removes the expiry of the value of `key`, and returns whether it had one. If it had one, counts as
    /// [`Transaction::expire_at`], else as [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// Those of [`Transaction::expire_at`].
    pub fn persist(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        match self.stored_expiry(table, key, ReadFor::Update)? {
            None | Some(0) => Ok(false),
            Some(_) => self.set_expiry(table, key, 0),
        }
    }

    fn set_expiry(&mut self, table: &Table, key: &[u8], expires_at_ms: u64) -> Result<bool> {
        let Some(value) = self.get_for_update(table, key)? else { return Ok(false) };
        self.write_bytes(table, key, Some(&value), expires_at_ms)?;
        Ok(true)
    }
}

impl Snapshot {
    /// When the value of `key` expires; `None` if the key does not exist in the snapshot.
    ///
    /// # Errors
    /// Those of [`Snapshot::get`].
    pub fn expiry(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let version = self.version(table, key.as_ref())?;
        Ok(version.map(|version| Expiry::from_stored(version.expires_at_ms)))
    }
}

impl Table {
    /// Writes `key`, whether or not it exists, with an expiry; by default durable when it returns.
    ///
    /// # Errors
    /// Those of [`Transaction::put`] and [`Transaction::commit`], except [`Error::Conflict`](crate::Error::Conflict):
    /// the write is blind.
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<Commit> {
        let expires_at_ms = expiry.into().stored_ms(&self.engine);
        self.write_bytes(key.as_ref(), Some(value.as_ref()), expires_at_ms)
    }

    /// Like [`Table::insert`], with an expiry. A key that has expired does not exist.
    ///
    /// # Errors
    /// Those of [`Table::insert`].
    pub fn insert_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<Commit> {
        let key = key.as_ref();
        let value = value.as_ref();
        let expiry = expiry.into();
        let insert = |txn: &mut Transaction| txn.insert_expiring(self, key, value, expiry);
        self.retry_single(insert).map(|((), commit)| commit)
    }

    /// Like [`Table::compare_and_swap`] with a new value, which gets an expiry.
    ///
    /// # Errors
    /// Those of [`Table::compare_and_swap`].
    pub fn compare_and_swap_expiring(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool> {
        let key = key.as_ref();
        let new = new.as_ref();
        let expiry = expiry.into();
        self.retry_bool(|txn| txn.compare_and_swap_expiring(self, key, expected, new, expiry))
    }

    /// When the value of `key` expires; `None` if the key does not exist. Reads the version that [`Table::get`] reads.
    ///
    /// # Errors
    /// Those of [`Table::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let version = self.live_version(key.as_ref())?;
        Ok(version.map(|version| Expiry::from_stored(version.expires_at_ms)))
    }

    /// Gives the value of `key` another expiry. Returns false, and does nothing, if the key does not exist. The value
    /// is written again.
    ///
    /// # Errors
    /// Those of [`Table::compare_and_swap`], and [`Error::Damaged`](crate::Error::Damaged) and
    /// [`Error::Io`](crate::Error::Io) from reading the value.
    pub fn expire_at(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Result<bool> {
        let key = key.as_ref();
        let expiry = expiry.into();
        self.retry_bool(|txn| txn.expire_at(self, key, expiry))
    }

    /// Removes the expiry of the value of `key`, and returns whether it had one.
    ///
    /// # Errors
    /// Those of [`Table::expire_at`].
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.retry_bool(|txn| txn.persist(self, key))
    }

    fn retry_bool(&self, body: impl FnMut(&mut Transaction) -> Result<bool>) -> Result<bool> {
        self.retry_single(body).map(|(done, _)| done)
    }
}
