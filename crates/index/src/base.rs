//! What a table asks of its base, whatever its kind: the part built for disk, into which the merger merges.
//!
//! Exactly one thread at a time merges, writes out, evicts or relocates (the table's maintenance lock); readers never wait
//! for it and it never waits for readers.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use fulgurite_types::{Csn, DecodeError, Lsn, TableId};

use crate::version::{Pinned, Version, VersionFlags, VersionRef};

/// Where node records are kept: the engine puts them into the bulk stream of its log.
pub trait NodeStore: Send + Sync {
    /// The body of the node record at `lsn`, verified against its checksum and place.
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError>;
    /// Appends a node record and returns its place. Durable once the checkpoint has synced the stream.
    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError>;
    /// How many bytes of the log a node record of `body_len` bytes occupies: what it counts for in the accounts.
    fn node_bytes(&self, body_len: usize) -> u32;
}

/// The kinds of node records. The numbers are on disk and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeKind {
    /// Internal node: separators and the places of its children.
    Internal = 1,
    /// Leaf node: entries.
    Leaf = 2,
    /// The entries of a leaf that changed since its last whole record (FlashTKV's LOG_LN_DELTA).
    LeafDelta = 3,
}

/// Reading or writing a node record failed: the engine's own error, carried through.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// What the index can fail with.
#[derive(Debug)]
pub enum IndexError {
    /// The store failed to read or write a record.
    Store {
        /// The table that was worked on.
        table: TableId,
        /// The record, if one was to be read.
        lsn: Lsn,
        /// What the store said.
        source: StoreError,
    },
    /// A record decoded to something that a node of this table, level and key range cannot be.
    Corrupt {
        /// The table that was worked on.
        table: TableId,
        /// The damaged record.
        lsn: Lsn,
        /// What is wrong with it.
        what: String,
    },
}

impl IndexError {
    /// The error for a record that does not decode.
    pub fn decode(table: TableId, lsn: Lsn, error: DecodeError) -> IndexError {
        IndexError::Corrupt { table, lsn, what: error.to_string() }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Store { table, lsn, source } => {
                write!(f, "table {table}: the node record at {lsn} could not be read or written: {source}")
            }
            IndexError::Corrupt { table, lsn, what } => {
                write!(f, "table {table}: the node record at {lsn} is damaged: {what}")
            }
        }
    }
}

impl std::error::Error for IndexError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IndexError::Store { source, .. } => Some(source.as_ref()),
            IndexError::Corrupt { .. } => None,
        }
    }
}

/// Why a `try_` form gave no answer.
#[derive(Debug)]
pub enum TryError {
    /// The answer needs a read from disk, or a wait.
    WouldBlock,
    /// It failed.
    Index(IndexError),
}

impl From<IndexError> for TryError {
    fn from(error: IndexError) -> TryError {
        TryError::Index(error)
    }
}

/// One version on its way from the memtables into the base.
#[derive(Clone, Debug)]
pub struct MergeVersion<'a> {
    /// Which commit wrote it.
    pub csn: Csn,
    /// What kind it is; an out-of-line payload is an encoded [`crate::OutOfLine`].
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The bytes that the entry stores.
    pub payload: std::borrow::Cow<'a, [u8]>,
}

/// A sorted batch to merge: keys ascending, each with its versions, newest first.
pub trait MergeSource {
    /// The next key, without moving on; `None` at the end.
    fn peek_key(&mut self) -> Option<&[u8]>;
    /// Appends the versions of the next key, newest first, to `out`, and moves on.
    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>);
}

/// What may be pruned while merging. `horizon` was read before `snapshots` (INV-TXN-1).
#[derive(Clone, Debug)]
pub struct PruneRules {
    /// Nothing at or below it can ever be undone.
    pub horizon: Csn,
    /// The CSNs of open snapshots and kept history points, ascending.
    pub snapshots: Vec<Csn>,
    /// An expired version whose expiry is at or below it is expired for everybody.
    pub expired_until_ms: u64,
    /// Range deletes that may hide versions; asked for each key that is touched.
    pub range_deletes: Arc<crate::range_delete::RangeDeletes>,
}

/// A change of the live bytes of one segment.
pub type AccountChange = (u32, i64);

/// What [`Base::write_out`] wrote.
#[derive(Clone, Debug, Default)]
pub struct WriteOutReport {
    /// The root's record; [`Lsn::NULL`] if the base is empty.
    pub root: Lsn,
    /// How the live bytes of segments change once this report is booked: what the new records occupy and
    /// reference, less what their predecessors did.
    pub accounts: Vec<AccountChange>,
    /// How many records of each [`NodeKind`] were written.
    pub records_written: [u64; 4],
}

/// The part of a table that is built for disk.
pub trait Base: Send + Sync {
    /// A cursor over it.
    type Cursor: BaseCursor;

    /// The newest version of `key` at or below `at`, tombstones and expired versions included.
    fn get(&self, key: &[u8], at: Csn) -> Result<Option<Version>, IndexError>;

    /// Like [`Base::get`], from memory only.
    fn try_get(&self, key: &[u8], at: Csn) -> Result<Option<Version>, TryError>;

    /// The CSN of the newest version of `key`.
    fn newest_csn(&self, key: &[u8]) -> Result<Option<Csn>, IndexError>;

    /// Whether a version in the range is newer than `than`.
    fn any_newer_in_range(&self, range: (Bound<&[u8]>, Bound<&[u8]>), than: Csn) -> Result<bool, IndexError>;

    /// A cursor that sees each key's newest version at or below `at`, tombstones included.
    fn cursor(&self, at: Csn) -> Self::Cursor;

    /// Merges a sorted batch: afterwards every reader finds its versions here. Idempotent: a version that is there
    /// already (same key and CSN) is dropped.
    fn merge(&self, batch: &mut dyn MergeSource, rules: &PruneRules) -> Result<(), IndexError>;

    /// Removes what may be pruned from the leaves that meet the range, without new versions.
    fn purge(&self, range: (Bound<&[u8]>, Bound<&[u8]>), rules: &PruneRules) -> Result<(), IndexError>;

    /// Writes every dirty leaf and every inner node above one, bottom-up, and says where the root is.
    fn write_out(&self) -> Result<WriteOutReport, IndexError>;

    /// Drops clean nodes from memory, least recently used first where known, until at most `resident_bytes_max` are
    /// held; returns how many are. Dirty nodes stay.
    fn evict(&self, resident_bytes_max: usize) -> usize;

    /// Whether a version of `key` has an extent at `lsn`.
    fn references(&self, key: &[u8], lsn: Lsn) -> Result<bool, IndexError>;

    /// Replaces the extent at `from` by one at `to` in the version of `key` with this CSN, if it is still there. Keeps
    /// the CSN: a move is no write.
    fn relocate(&self, key: &[u8], csn: Csn, from: Lsn, to: Lsn) -> Result<bool, IndexError>;

    /// How many versions the base holds, about.
    fn len_estimate(&self) -> u64;

    /// At most about `max` keys that cut the base into pieces of about the same size, from memory only. They need
    /// not be in it.
    fn places(&self, max: usize) -> Vec<Vec<u8>> {
        let _ = max;
        Vec::new()
    }
}

/// Walks the keys of a base in both directions, one version a key: the newest at or below the cursor's CSN.
///
/// After a seek or a step the cursor is at an entry or at the end. A seek looks at the part as it is by then; a step may
/// find what is older than its own time. So a cursor is right while nodes change under it if its owner goes by the
/// memtables that it read before it sought the cursor (INV-IDX-1).
pub trait BaseCursor: Send {
    /// Moves to the first key at or after (`Included`), or after (`Excluded`), the bound.
    fn seek(&mut self, bound: Bound<&[u8]>) -> Result<(), IndexError>;
    /// Moves to the last key at or before (`Included`), or before (`Excluded`), the bound.
    fn seek_back(&mut self, bound: Bound<&[u8]>) -> Result<(), IndexError>;
    /// Moves to the next key.
    fn next(&mut self) -> Result<(), IndexError>;
    /// Moves to the previous key.
    fn prev(&mut self) -> Result<(), IndexError>;
    /// The current key; `None` at the end.
    fn key(&self) -> Option<&[u8]>;
    /// The current key, pinned.
    ///
    /// # Panics
    /// At the end.
    fn pinned_key(&self) -> Pinned;
    /// The current version.
    ///
    /// # Panics
    /// At the end.
    fn version(&self) -> VersionRef<'_>;
    /// The current version's payload, pinned.
    ///
    /// # Panics
    /// At the end.
    fn pinned_payload(&self) -> Pinned;

    /// After an error: the keys of the node that could not be read. `None` if the last seek or step succeeded.
    fn unread(&self) -> Option<KeySpan> {
        None
    }

    /// After an error: moves past the keys that [`BaseCursor::unread`] names, to the next key if `forward`, else to
    /// the previous one. Fails like a step does if the neighbour cannot be read either. After a success it does nothing.
    fn skip_unread(&mut self, _forward: bool) -> Result<(), IndexError> {
        Ok(())
    }
}

/// The keys from one on and before another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpan {
    /// The first key that belongs to it.
    pub from: Box<[u8]>,
    /// The first key that does not; `None`: all keys from `from` on belong to it.
    pub to: Option<Box<[u8]>>,
}
