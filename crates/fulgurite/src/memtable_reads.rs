//! Reads of the memtables alone, and of their filters alone: the check that NIOSIT (Xiao and others, 2017) makes on the thread that
//! does a server's network input, before it hands a read on to the part of the data that seldom changes.

use fulgurite_index::Io;
use fulgurite_index::table::Recent;
use fulgurite_types::{Csn, hash_key};

use crate::engine::Engine;
use crate::write_set::check_key;
use crate::{Error, Result, Table, Value};

/// What the memtables of a table know of a key: [`Table::memtable_read_at`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemtableRead {
    /// What they know.
    pub found: InMemtables,
    /// They hold every write up to this commit that is not in the base: what was found is the key's state there.
    pub complete_to: Csn,
    /// The commit that has to be durable before the result may leave the process, as [`Found::needs`](crate::Found::needs).
    pub needs: Csn,
}

/// The state of a key, as far as the memtables know it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InMemtables {
    /// The filters alone say that no memtable has a version: the base has all there is.
    RuledOut,
    /// No memtable has a version, though a filter did not rule it out: the base has all there is.
    Absent,
    /// The key was deleted, or has expired: it has no value, whatever the base has.
    NoValue,
    /// The key's value.
    Value(Value),
}

/// What the filters of a table's memtables say of a key: [`Table::memtables_may_contain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemtableFilter {
    /// Whether a memtable may have a version of the key. `false` is certain.
    pub may_contain: bool,
    /// The commit up to which it is certain: the filters know every write up to it that is not in the base.
    pub complete_to: Csn,
}

impl Table {
    /// What the memtables know of `key`, at the commits that [`Table::read_at`] sees: all that [`Table::get`] sees, and all up to `at`.
    /// The base is not asked, so this costs some hundred nanoseconds at most; only a value that was written ahead may have to be read
    /// from disk. Where few keys were written lately, it mostly finds [`InMemtables::RuledOut`].
    ///
    /// # Errors
    /// Those of [`Table::read_at`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::{Csn, InMemtables};
    ///
    /// let users = db.table("users")?;
    /// let written = users.put("alice", "1")?;
    /// let read = users.memtable_read_at("alice", Csn::ZERO)?;
    /// assert!(matches!(read.found, InMemtables::Value(value) if value == "1"));
    /// assert!(read.complete_to >= written.csn);
    /// db.checkpoint()?;                                   // merges it into the base
    /// assert!(matches!(users.memtable_read_at("alice", Csn::ZERO)?.found, InMemtables::RuledOut));
    /// # Ok(())
    /// # }
    /// ```
    pub fn memtable_read_at(&self, key: impl AsRef<[u8]>, at: Csn) -> Result<MemtableRead> {
        let key = key.as_ref();
        match self.memtable_read_bytes_at(key, at, Io::MemoryOnly) {
            Err(Error::WouldBlock(_)) => {
                let _read = self.engine.disk_reads.begin();
                self.memtable_read_bytes_at(key, at, Io::Allowed)
            }
            read => read,
        }
    }

    /// Like [`Table::memtable_read_at`], but [`Error::WouldBlock`] instead of a read from disk, or of a wait.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] with [`Missing::Value`](crate::Missing::Value) for a value that was written ahead and is not in memory, or
    /// with [`Missing::Order`](crate::Missing::Order) if `at` is not visible yet; and those of [`Table::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// use fulgurite::{Csn, InMemtables};
    ///
    /// let users = db.table("users")?;
    /// assert!(matches!(users.try_memtable_read_at("alice", Csn::ZERO)?.found, InMemtables::RuledOut));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_memtable_read_at(&self, key: impl AsRef<[u8]>, at: Csn) -> Result<MemtableRead> {
        self.memtable_read_bytes_at(key.as_ref(), at, Io::MemoryOnly)
    }

    fn memtable_read_bytes_at(&self, key: &[u8], own: Csn, io: Io) -> Result<MemtableRead> {
        check_key(key)?;
        self.engine.check_open()?;
        self.engine.counters.gets.count();
        let hash = hash_key(self.state.id, key);
        let Engine { pipeline, reads, .. } = &**self.engine.engine();
        let own = self.engine.see(own, io)?;
        let read_csn = || pipeline.read_csn().max(own.min(pipeline.visible()));
        let at = read_csn();
        self.state.check_seen(at)?;
        let recent = self.state.index.find_recent(key, hash, at);
        if let Some(version) = &recent.newest.version
            && !reads.needs_no_snapshot(Some(version), at)
        {
            // It has expired, but may have had a successor before (INV-TXN-14).
            let snapshot = reads.snapshot(read_csn);
            self.state.check_seen(snapshot.csn)?;
            let recent = self.state.index.find_recent(key, hash, snapshot.csn);
            return self.judge(key, recent, snapshot.now_ms, io);
        }
        self.judge(key, recent, 0, io)
    }

    /// What a reader at `now_ms` finds.
    fn judge(&self, key: &[u8], recent: Recent, now_ms: u64, io: Io) -> Result<MemtableRead> {
        let complete_to = recent.at;
        if !recent.is_settled() {
            let found = if recent.ruled_out { InMemtables::RuledOut } else { InMemtables::Absent };
            return Ok(MemtableRead { found, complete_to, needs: Csn::ZERO });
        }
        let needs = self.engine.needs(recent.newest.csn());
        let found = match recent.newest.seen(now_ms) {
            Some(version) if io == Io::MemoryOnly => {
                InMemtables::Value(self.engine.values.resident(version)?)
            }
            Some(version) => InMemtables::Value(self.engine.values.resolve(self.state.id, key, version)?),
            None => InMemtables::NoValue,
        };
        Ok(MemtableRead { found, complete_to, needs })
    }

    /// Whether a memtable may have a version of `key`, as far as their filters know: one load of a cache line for each
    /// memtable, some ten nanoseconds. It says nothing of deleted ranges.
    ///
    /// # Errors
    /// Those of [`Table::get`].
    ///
    /// ```
    /// # fn main() -> fulgurite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
    /// let users = db.table("users")?;
    /// assert!(!users.memtables_may_contain("alice")?.may_contain);
    /// let written = users.put("alice", "1")?;
    /// let filter = users.memtables_may_contain("alice")?;
    /// assert!(filter.may_contain && filter.complete_to >= written.csn);
    /// # Ok(())
    /// # }
    /// ```
    pub fn memtables_may_contain(&self, key: impl AsRef<[u8]>) -> Result<MemtableFilter> {
        let key = key.as_ref();
        check_key(key)?;
        self.engine.check_open()?;
        let complete_to = self.engine.pipeline.read_csn();
        self.state.check_seen(complete_to)?;
        let may_contain = self.state.index.memtables().may_contain(hash_key(self.state.id, key));
        Ok(MemtableFilter { may_contain, complete_to })
    }
}
