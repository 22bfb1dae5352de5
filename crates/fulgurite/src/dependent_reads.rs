//! Reads that say which commits have to be durable before their results may leave the process.
//!
//! **INV-TXN-17.** *No result leaves before its `needs` is durable, so no reader outside sees what a power cut undoes.* Let a
//! read find the write with number c: the key's newest version, live or not, or the newest range tombstone that covers the
//! key, if that is newer; and let s be the newest commit above `Async` that has a number. Then `needs` is min(c, s), or zero if
//! all commits up to that are durable already.
//!
//! - *It is enough.* All commits above `Async` up to c are at or below min(c, s): c was visible when it was found, and each of
//!   them entered its number before it was applied, so s, loaded **after** the look-up, is at or above them. (Loaded before, s
//!   could miss the very commit that was found: where range tombstones were dropped, the look-up moves up to a newer CSN than
//!   it was given.) The durable commits are a prefix of all commits. So once `needs` is durable, c itself is, or it is a commit at
//!   `Async` or `None`, whose writer accepted that a crash may undo it, and every commit above `Async` that it read or replaced
//!   is durable. What was found stays true, or is superseded by a commit after c.
//! - *Only the write that was found matters.* That no later one up to the read's CSN wrote the key stays true in every prefix.
//! - *Neither is anything of the base undurable.* A memtable is merged, and a version pruned or purged, only at or below the
//!   horizon, which is at or below the durable CSN. So nothing depends on whether a version was found in the memtables or in
//!   the base, or on a merge between the two look-ups; and a key whose deletion was pruned is absent at zero. Recovery makes
//!   durable what it replays, before the database serves.
//! - *The path of INV-TXN-14 keeps it.* What a snapshot finds is judged by the same rule, after the look-up in it.
//!
//! With it a read may begin above the CSN of INV-TXN-6: at any visible commit.

use std::time::SystemTime;

use fulgurite_index::table::Newest;
use fulgurite_index::{Io, Version};
use fulgurite_types::{Csn, hash_key};

use crate::engine::Engine;
use crate::error::OrError;
use crate::expiry::moment_of;
use crate::write_set::check_key;
use crate::{Database, Error, Missing, Result, Snapshot, Table, Transaction, Value};

/// What a read found, and what it depends on: [`Table::read_at`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// The value; `None`: the key has none.
    pub value: Option<Value>,
    /// When the value expires; `None`: never, or there is no value.
    pub expires_at: Option<SystemTime>,
    /// The number of the commit that wrote the key last: that put the value, or deleted the key or a range with it, or put
    /// what has expired. [`Csn::ZERO`] if no write of the key is known: none was made, or a delete was pruned. (See
    /// [`Table::newest_csn`].)
    pub csn: Csn,
    /// The commit that has to be durable before the result may leave the process; [`Csn::ZERO`] if all that it depends on is
    /// durable, or was acknowledged at a level that does not wait for durability. Never above `csn`, nor above the newest
    /// commit that waits for durability. [`Database::wait_durable`](crate::Database::wait_durable) waits for it.
    pub needs: Csn,
    /// Whether a memtable had the key's newest version; else the base had it, or there is none.
    pub in_memtables: bool,
}

/// The last write to a key, and the version if it may be live.
struct LastWrite {
    csn: Csn,
    in_memtables: bool,
    version: Option<Version>,
}

impl LastWrite {
    /// For a reader at `now_ms`.
    fn of(newest: Newest, now_ms: u64) -> LastWrite {
        let in_memtables = newest.in_memtables;
        LastWrite { csn: newest.csn(), in_memtables, version: newest.seen(now_ms) }
    }
}

impl Table {
    /// The value of `key`, and what it depends on. Sees all that [`Table::get`] sees, and all commits up to `at`: the number
    /// of a commit of the caller that is not durable yet ([`Numbered::csn`](crate::Numbered::csn),
    /// [`Ticket::csn`](crate::Ticket::csn)). [`Csn::ZERO`]: no commit. Waits until it is visible, microseconds; a number that
    /// no commit has yet counts as the newest.
    ///
    /// A server gives its reply away only when [`Found::needs`] is durable. Then no client sees anything that a power cut
    /// undoes, whatever the levels of the commits: [`guide::durability`](crate::guide::durability#replies-that-wait).
    ///
    /// # Errors
    /// Those of [`Table::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::Csn;
    ///
    /// let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.put(&users, "alice", "1")?;
    /// let ticket = txn.commit_deferred()?;                // visible, not durable yet
    /// let found = users.read_at("alice", ticket.csn())?;
    /// assert_eq!(found.value.unwrap(), "1");
    /// assert_eq!(found.csn, ticket.csn());
    /// db.wait_durable(found.needs)?;                      // now it may leave the process
    /// assert_eq!(users.read_at("alice", Csn::ZERO)?.needs, Csn::ZERO);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_at(&self, key: impl AsRef<[u8]>, at: Csn) -> Result<Found> {
        self.read_bytes_at(key.as_ref(), at)
    }

    fn read_bytes_at(&self, key: &[u8], at: Csn) -> Result<Found> {
        match self.try_read_bytes_at(key, at) {
            Err(Error::WouldBlock(_)) => self.read_from_disk_at(key, at),
            found => found,
        }
    }

    /// Like [`Table::read_at`], but [`Error::WouldBlock`] instead of a read from disk.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] with [`Missing::Node`] or [`Missing::Value`], or with [`Missing::Order`] if `at` is not visible yet;
    /// and those of [`Table::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::{Csn, Error};
    ///
    /// let users = db.table("users")?;
    /// let written = users.put("alice", "1")?;
    /// let found = match users.try_read_at("alice", Csn::ZERO) {
    ///     Err(Error::WouldBlock(_)) => users.read_at("alice", Csn::ZERO)?,    // on a thread that may wait
    ///     found => found?,
    /// };
    /// assert_eq!((found.csn, found.needs), (written.csn, Csn::ZERO));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_read_at(&self, key: impl AsRef<[u8]>, at: Csn) -> Result<Found> {
        self.try_read_bytes_at(key.as_ref(), at)
    }

    fn try_read_bytes_at(&self, key: &[u8], at: Csn) -> Result<Found> {
        check_key(key)?;
        self.engine.check_open()?;
        self.engine.counters.gets.count();
        // One for all look-ups.
        let _pin = crossbeam_epoch::pin();
        let last = self.last_write(key, at, Io::MemoryOnly)?;
        self.found(last, |version| self.engine.values.resident(version))
    }

    /// Looks the version up once it has begun a read from disk (INV-READ-1), as [`Table::get`] does.
    #[cold]
    fn read_from_disk_at(&self, key: &[u8], at: Csn) -> Result<Found> {
        self.engine.check_open()?;
        let _read = self.engine.disk_reads.begin();
        let last = self.last_write(key, at, Io::Allowed)?;
        self.engine.hooks.reached("version to be read found");
        self.found(last, |version| self.engine.values.resolve(self.state.id, key, version))
    }

    fn found(&self, last: LastWrite, value: impl FnOnce(Version) -> Result<Value>) -> Result<Found> {
        let LastWrite { csn, in_memtables, version } = last;
        let needs = self.engine.needs(csn);
        let expires_at = version.as_ref().and_then(|version| moment_of(version.expires_at_ms));
        Ok(Found { value: version.map(value).transpose()?, expires_at, csn, needs, in_memtables })
    }

    /// The last write to a key. Asks a snapshot if the newest version does not settle the read (INV-TXN-14).
    fn last_write(&self, key: &[u8], own: Csn, io: Io) -> Result<LastWrite> {
        let hash = hash_key(self.state.id, key);
        let Engine { pipeline, reads, hooks, .. } = &**self.engine.engine();
        let own = self.engine.see(own, io)?;
        // It never falls, and is never below the horizon, as a snapshot needs it (INV-TXN-1).
        let read_csn = || pipeline.read_csn().max(own.min(pipeline.visible()));
        let at = read_csn();
        self.state.check_seen(at)?;
        hooks.reached("read CSN taken");
        let newest = self.state.index.find_newest(key, hash, at, io).or_error()?;
        hooks.reached("newest version found");
        let last = LastWrite::of(newest, 0);
        if reads.needs_no_snapshot(last.version.as_ref(), at) {
            return Ok(last);
        }
        let snapshot = reads.snapshot(read_csn);
        self.state.check_seen(snapshot.csn)?;
        let newest = self.state.index.find(key, hash, snapshot.csn, io).or_error()?;
        Ok(LastWrite::of(newest, snapshot.now_ms))
    }

    /// The number of the newest visible commit that wrote `key`: that put it, deleted it, or deleted a range with it.
    /// [`Csn::ZERO`] if none is known.
    ///
    /// **Exact while the key has a value.** A write that left it without one may be reported as an older range delete, or as
    /// [`Csn::ZERO`], once it is pruned: when it is durable, and no snapshot or transaction is left that began before it (of
    /// a value that has expired: before it expired). A write that the call does not count, because it was not visible yet, or
    /// was made later, has a larger number than the result.
    ///
    /// So a program that keeps the result, to learn whether the key was written since, compares a later result with it. The
    /// same number: the key reads as it did, unless its value has expired since. A larger number: it was written. A smaller
    /// number: it was deleted, before or after the first call; take it for written.
    ///
    /// The commit may not be durable yet, and [`Table::get`] may not show it yet: [`Table::read_at`] does, given the number.
    ///
    /// # Errors
    /// Those of [`Table::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// users.put("alice", "1")?;
    /// let watched = users.newest_csn("alice")?;
    /// assert_eq!(users.newest_csn("alice")?, watched);    // not written since
    /// let deleted = users.delete_range("a".."b")?;
    /// assert_eq!(users.newest_csn("alice")?, deleted.csn);
    /// assert!(deleted.csn > watched);
    /// # Ok(())
    /// # }
    /// ```
    pub fn newest_csn(&self, key: impl AsRef<[u8]>) -> Result<Csn> {
        let key = key.as_ref();
        match self.newest_csn_of(key, Io::MemoryOnly) {
            Err(Error::WouldBlock(_)) => self.newest_csn_of(key, Io::Allowed),
            csn => csn,
        }
    }

    /// Like [`Table::newest_csn`], but [`Error::WouldBlock`] instead of a read from disk.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] with [`Missing::Node`](crate::Missing::Node), and those of [`Table::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// let written = users.put("alice", "1")?;
    /// assert_eq!(users.try_newest_csn("alice")?, written.csn);
    /// assert_eq!(users.try_newest_csn("bob")?, fulgurite::Csn::ZERO);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_newest_csn(&self, key: impl AsRef<[u8]>) -> Result<Csn> {
        self.newest_csn_of(key.as_ref(), Io::MemoryOnly)
    }

    fn newest_csn_of(&self, key: &[u8], io: Io) -> Result<Csn> {
        check_key(key)?;
        self.engine.check_open()?;
        let hash = hash_key(self.state.id, key);
        loop {
            let at = self.engine.pipeline.visible();
            self.state.check_seen(at)?;
            self.engine.hooks.reached("read CSN taken");
            let newest = self.state.index.find_newest(key, hash, at, io).or_error()?;
            // Else a newer version may have had this one pruned since, and be above `at` (INV-TXN-14).
            if newest.version.is_some() || self.engine.reads.needs_no_snapshot(None, at) {
                return Ok(newest.csn());
            }
        }
    }
}

impl Snapshot {
    /// The commit that has to be durable before anything that was read in this snapshot may leave the process;
    /// [`Csn::ZERO`] if all that it depends on is durable, or was acknowledged at a level that does not wait for it.
    /// [`Found::needs`] is the same for one read.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// db.table("users")?.put("alice", "1")?;
    /// assert_eq!(db.snapshot().needs(), fulgurite::Csn::ZERO);    // a durable commit
    /// # Ok(())
    /// # }
    /// ```
    pub fn needs(&self) -> Csn {
        self.engine().needs(self.csn())
    }
}

impl Transaction {
    /// The commit that has to be durable before anything that this transaction has read so far may leave the process;
    /// [`Csn::ZERO`] if there is none. [`Transaction::commit`] waits for it; a program that drops the transaction has to,
    /// before it tells of what it read. [`Found::needs`] is the same for one read.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.put(&users, "alice", "1")?;
    /// let ticket = txn.commit_deferred()?;                // perhaps not durable yet
    /// let reader = db.begin();
    /// let alice = reader.get(&users, "alice")?.unwrap();
    /// assert!(reader.needs() <= ticket.csn());
    /// db.wait_durable(reader.needs())?;
    /// println!("{alice:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn needs(&self) -> Csn {
        self.engine().unless_durable(self.read_needs())
    }
}

impl Database {
    /// A snapshot of now that also sees all commits up to `at`: the number of a commit of the caller that is not durable yet
    /// ([`Numbered::csn`](crate::Numbered::csn)). Waits until it is visible, microseconds; a number that no commit has yet counts
    /// as the newest. [`Snapshot::needs`] says what has to be durable before what was read in it may leave the process.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`]: the commit never becomes visible.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.put(&users, "alice", "1")?;
    /// let ticket = txn.commit_deferred()?;                // visible, not durable yet
    /// let snapshot = db.snapshot_at(ticket.csn())?;
    /// assert_eq!(snapshot.get(&users, "alice")?.unwrap(), "1");
    /// db.wait_durable(snapshot.needs())?;                 // now it may leave the process
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot_at(&self, at: Csn) -> Result<Snapshot> {
        self.snapshot_with(at, Io::Allowed)
    }

    /// Like [`Database::snapshot_at`], but [`Error::WouldBlock`] instead of a wait.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] with [`Missing::Order`] if `at` is not visible yet.
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let written = db.table("users")?.put("alice", "1")?;
    /// assert!(db.try_snapshot_at(written.csn)?.csn() >= written.csn);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_snapshot_at(&self, at: Csn) -> Result<Snapshot> {
        self.snapshot_with(at, Io::MemoryOnly)
    }

    fn snapshot_with(&self, at: Csn, io: Io) -> Result<Snapshot> {
        let engine = self.engine();
        let own = engine.see(at, io)?;
        let pipeline = &engine.pipeline;
        Ok(Snapshot::take_at(self.handle(), || pipeline.read_csn().max(own.min(pipeline.visible()))))
    }
}

impl Engine {
    /// Waits until `own` is visible, or fails if the caller does not wait. Returns it, or the newest commit if it is above that.
    pub fn see(&self, own: Csn, io: Io) -> Result<Csn> {
        let own = own.min(self.pipeline.newest());
        if own > self.pipeline.visible() {
            if io == Io::MemoryOnly {
                return Err(Error::WouldBlock(Missing::Order));
            }
            if !self.pipeline.wait_visible(own) {
                return Err(self.pipeline.check_log().err().unwrap_or(Error::Closed));
            }
        }
        Ok(own)
    }

    /// The commit that has to be durable before a result may leave the process that depends on the visible commit `csn`, or on
    /// any at or below it (INV-TXN-17). Called after the look-up.
    pub fn needs(&self, csn: Csn) -> Csn {
        self.unless_durable(csn.min(self.pipeline.newest_synchronous()))
    }

    fn unless_durable(&self, csn: Csn) -> Csn {
        if csn <= self.pipeline.stable() { Csn::ZERO } else { csn }
    }
}
