//! Look-ups of one key: what was written to it last, and whether a reader sees a value there.

use fulgurite_types::{Csn, hash_key};

use super::{Table, is_seen};
use crate::base::{Base, IndexError, Io};
use crate::memtables::{PREFETCHED_MAX, PrefetchedKeys};
use crate::version::Version;

/// The last writes to a key at or below the CSN of a look-up.
#[derive(Debug)]
pub struct Newest {
    /// The key's newest version, tombstones and expired versions included.
    pub version: Option<Version>,
    /// The CSN of the newest range tombstone that covers the key.
    pub deleted: Option<Csn>,
    /// Whether the version is of a memtable.
    pub in_memtables: bool,
}

/// The last writes to a key that the memtables and the range tombstones know.
#[derive(Debug)]
pub struct Recent {
    /// The CSN up to which they were looked at.
    pub at: Csn,
    /// What was found.
    pub newest: Newest,
    /// Whether the hashes of the memtables' keys were enough: no key was compared.
    pub ruled_out: bool,
    /// Versions at or below this CSN are in the base only.
    pub merged: Csn,
}

impl Newest {
    /// The CSN of the last write: of the version, or of the range tombstone if that is newer; [`Csn::ZERO`] if there is neither.
    pub fn csn(&self) -> Csn {
        let version = self.version.as_ref().map(|version| version.csn);
        version.max(self.deleted).unwrap_or(Csn::ZERO)
    }

    /// The version, if a reader at `now_ms` sees a value in it.
    #[inline]
    pub fn seen(self, now_ms: u64) -> Option<Version> {
        let Newest { version, deleted, .. } = self;
        version.filter(|version| is_seen(version.borrowed(), deleted, now_ms))
    }
}

impl Recent {
    /// Whether the memtables and the range tombstones settle what a reader at `at` finds, without the base. A range tombstone
    /// above `merged` is newer than all that only the base has at or below `at`.
    pub fn is_settled(&self) -> bool {
        self.newest.version.is_some() || self.newest.deleted.is_some_and(|deleted| deleted > self.merged)
    }
}

impl<S: Base> Table<S> {
    /// The last writes to `key` for a reader at `at`, whose snapshot is registered. [`Table::get`] judges the same.
    pub fn find(&self, key: &[u8], hash: u64, at: Csn, io: Io) -> Result<Newest, IndexError> {
        let deleted = self.range_deletes.covering(key, at);
        let found = self.memtables.get(key, hash, at);
        let in_memtables = found.is_some();
        let version = if in_memtables { found } else { self.base.get(key, at, io)? };
        Ok(Newest { version, deleted, in_memtables })
    }

    /// Starts loading what the look-ups of these keys read of memory, all at once: each of them is faster then. It has no effect on what
    /// they find, and reads nothing from the store.
    pub fn prefetch<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) {
        let mut keys = keys.into_iter().map(|key| (key, hash_key(self.id, key)));
        loop {
            let mut some: PrefetchedKeys<'_> = keys.by_ref().take(PREFETCHED_MAX).collect();
            if some.is_empty() {
                return;
            }
            self.memtables.prefetch(&mut some);
            self.base.prefetch(&some);
        }
    }

    /// The last writes to `key` for a single read without a registered snapshot: what [`Table::get_newest`] judges, which says
    /// when it may be relied on. A version above `memtables_at` is in the base, so its commit cannot be undone.
    pub fn find_newest(
        &self,
        key: &[u8],
        hash: u64,
        memtables_at: Csn,
        io: Io,
    ) -> Result<Newest, IndexError> {
        let (memtables_at, deleted) = self.range_deletes.covering_at_or_after(key, memtables_at);
        let found = self.memtables.get(key, hash, memtables_at);
        let in_memtables = found.is_some();
        let version = if in_memtables { found } else { self.base.get(key, Csn::MAX, io)? };
        Ok(Newest { version, deleted, in_memtables })
    }

    /// The last writes to `key` at or below `at`, as far as the memtables and the range tombstones know: the base has what else
    /// there is. May look at a CSN above `at`, like [`Table::get_newest`].
    pub fn find_recent(&self, key: &[u8], hash: u64, at: Csn) -> Recent {
        let (at, deleted) = self.range_deletes.covering_at_or_after(key, at);
        let (version, ruled_out, merged) = self.memtables.look_up(key, hash, at);
        let in_memtables = version.is_some();
        Recent { at, newest: Newest { version, deleted, in_memtables }, ruled_out, merged }
    }
}
