//! The interface of a table's base, the on-disk part into which the merger merges memtables.
//!
//! Readers never wait for threads that change the base, and these never wait for readers.

use std::fmt;
use std::sync::Arc;

use fulgurite_types::{Csn, DecodeError, DiskReads, KeySpan, Lsn, TableId};

use crate::memory::IndexMemory;
use crate::pass::{Evicted, EvictionStep, WriteOut, WriteOutReport};
use crate::version::{OutOfLine, Pinned, Version, VersionFlags, VersionRef};

/// Stores node records: the engine's implementation writes them to the bulk stream of its log.
pub trait NodeStore: Send + Sync {
    /// The body of the node record at `lsn`, verified against its checksum and LSN.
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError>;
    /// Appends a node record and returns its LSN. Durable once a checkpoint has synced the stream.
    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError>;
    /// The same for a node that is written to be evicted. An error costs no more than memory: a store may refuse it to keep
    /// room for checkpoints.
    fn write_node_to_evict(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        self.write_node(kind, body)
    }
    /// Appends a leaf delta record, of a leaf that is written to be evicted or not. They live shorter than other records: a store
    /// may keep them apart. Not called while room is scarce ([`crate::WriteOut::set_scarce_room`]).
    fn write_delta(&self, body: &[u8], evicts: bool) -> Result<Lsn, StoreError> {
        let write = if evicts { Self::write_node_to_evict } else { Self::write_node };
        write(self, NodeKind::LeafDelta, body)
    }
    /// Where the trees of this store, and the memtables over them, count their memory together; `None`: each tree for itself.
    fn memory(&self) -> Option<&Arc<IndexMemory>> {
        None
    }
    /// The reads from disk that go on: a record that was replaced stays readable for those that began before (INV-READ-1).
    /// `None`: every record stays.
    fn disk_reads(&self) -> Option<&DiskReads> {
        None
    }
    /// How many bytes of the log a node record of `body_len` bytes occupies, as the accounts count it.
    fn node_bytes(&self, body_len: usize) -> u32;
    /// The longest body of a node record, in bytes.
    fn body_bytes_max(&self) -> usize {
        u32::MAX as usize
    }
}

/// The kinds of node records. The numbers are on disk and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeKind {
    /// Internal node: separators and the LSNs of its children.
    Internal = 1,
    /// Leaf node: entries.
    Leaf = 2,
    /// Leaf delta record: the entries of a leaf that changed since its full record (FlashTKV's LOG_LN_DELTA).
    LeafDelta = 3,
}

/// Reading or writing a node record failed: the engine's own error, carried through.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// An error of the index.
#[derive(Debug)]
pub enum IndexError {
    /// The store failed to read or write a record.
    Store {
        /// The table that was worked on.
        table: TableId,
        /// The record, if the operation was a read.
        lsn: Lsn,
        /// The store's error.
        source: StoreError,
    },
    /// A record is not a valid node of this table, level and key range.
    Corrupt {
        /// The table that was worked on.
        table: TableId,
        /// The damaged record.
        lsn: Lsn,
        /// The wrong field and its offset.
        what: String,
    },
    /// A leaf is longer than the longest record, because snapshots keep so many versions of one key. It is not written;
    /// it can be when enough of the snapshots are closed.
    LeafTooLong {
        /// The table.
        table: TableId,
        /// The key.
        key: Vec<u8>,
        /// Bytes of the leaf.
        bytes: usize,
        /// Bytes of the longest record.
        bytes_max: usize,
    },
    /// The result needs a read from the store, and the caller allowed none.
    WouldBlock,
    /// With [`Io::MemoryOnly`]: many recent versions are not linked in order yet, or another thread is linking them.
    Unordered,
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
            IndexError::LeafTooLong { table, key, bytes, bytes_max } => write!(
                f,
                "table {table}: the versions of key \"{}\" take {bytes} bytes, and no record is longer than {bytes_max}",
                key.escape_ascii()
            ),
            IndexError::WouldBlock => f.write_str("the result needs a read from the store"),
            IndexError::Unordered => f.write_str("recent versions are not linked in order yet"),
        }
    }
}

impl std::error::Error for IndexError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IndexError::Store { source, .. } => Some(source.as_ref()),
            IndexError::Corrupt { .. }
            | IndexError::LeafTooLong { .. }
            | IndexError::WouldBlock
            | IndexError::Unordered => None,
        }
    }
}

/// Whether an operation may read from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// It loads nodes that are absent.
    #[default]
    Allowed,
    /// It loads nodes that are absent, and does not wait for memory: the caller holds a latch or a gate.
    Impatient,
    /// It fails with [`IndexError::WouldBlock`] instead.
    MemoryOnly,
}

/// One version on its way from the memtables into the base.
#[derive(Clone, Debug)]
pub struct MergeVersion<'a> {
    /// Which commit wrote it.
    pub csn: Csn,
    /// The kind of version; an out-of-line payload is an encoded [`crate::OutOfLine`].
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The bytes that the entry stores.
    pub payload: std::borrow::Cow<'a, [u8]>,
}

/// A sorted batch to merge: keys ascending, each with its versions, newest first.
pub trait MergeSource {
    /// The next key, without advancing; `None` at the end.
    fn peek_key(&mut self) -> Option<&[u8]>;
    /// Appends the versions of the next key, newest first, to `out`, and advances.
    fn take_versions<'a>(&'a mut self, out: &mut Vec<MergeVersion<'a>>);
    /// The base refers no more to the out-of-line value whose first byte is at `lsn`: the batch had newer versions of its key.
    fn dropped(&mut self, lsn: Lsn) {
        let _ = lsn;
    }
}

/// Where a merge reports the values that it leaves in the log.
pub trait OutOfLineValues {
    /// Whether [`OutOfLineValues::left`] is of use for a value of so many bytes.
    fn wants(&self, len: usize) -> bool;
    /// From now on only the log has this value, whose first byte is at `lsn`.
    fn left(&self, lsn: Lsn, checksum: u32, value: &[u8]);
    /// The base refers no more to the value whose first byte is at `lsn`.
    fn dropped(&self, lsn: Lsn);
}

/// Reports nothing.
impl OutOfLineValues for () {
    fn wants(&self, _len: usize) -> bool {
        false
    }

    fn left(&self, _lsn: Lsn, _checksum: u32, _value: &[u8]) {}

    fn dropped(&self, _lsn: Lsn) {}
}

/// Decides which versions a merge or purge may prune. `horizon` was read before `snapshots` (INV-TXN-1).
#[derive(Clone, Debug)]
pub struct PruneRules {
    /// No commit at or below it can be undone.
    pub horizon: Csn,
    /// The CSNs of open snapshots and kept history points, ascending.
    pub snapshots: Vec<Csn>,
    /// A version whose expiry is at or below it has expired for every reader.
    pub expired_until_ms: u64,
    /// The range tombstones that may hide versions; looked up for each key that the work touches.
    pub range_deletes: Arc<crate::range_delete::RangeDeletes>,
}

/// A change of the live bytes of one segment, or of [`DATA_ACCOUNT`].
pub type AccountChange = (u32, i64);

/// The number of no segment: the account of the bytes of keys, and of their newest values, in the leaves that were written.
pub const DATA_ACCOUNT: u32 = u32::MAX;

/// The on-disk part of a table.
pub trait Base: Send + Sync {
    /// A cursor over it.
    type Cursor: BaseCursor;

    /// The newest version of `key` at or below `at`, tombstones and expired versions included.
    fn get(&self, key: &[u8], at: Csn, io: Io) -> Result<Option<Version>, IndexError>;

    /// Starts loading what [`Base::get`] reads of memory for each of these keys; a hint, without an effect on results.
    fn prefetch(&self, keys: &[(&[u8], u64)]) {
        let _ = keys;
    }

    /// The CSN of the newest version of `key`.
    fn newest_csn(&self, key: &[u8], io: Io) -> Result<Option<Csn>, IndexError>;

    /// Whether a version in the range is newer than `than`.
    fn any_newer_in_range(&self, range: KeySpan<&[u8]>, than: Csn, io: Io) -> Result<bool, IndexError>;

    /// A cursor that sees each key's newest version at or below `at`, tombstones included.
    fn cursor(&self, at: Csn) -> Self::Cursor;

    /// The same, with [`Io::MemoryOnly`] one that fails with [`IndexError::WouldBlock`] instead of reading from the store.
    fn cursor_with(&self, at: Csn, io: Io) -> Self::Cursor {
        let _ = io;
        self.cursor(at)
    }

    /// Merges the next keys of a sorted batch, at least one of them, until about `bytes_max` bytes of leaves are rebuilt, or
    /// the next one needs a read from disk, or the batch ends: then every reader finds its versions here. Idempotent: a version that the base already has (same key and CSN) is
    /// dropped. After an error the batch has to be merged from its beginning.
    fn merge_some(
        &self,
        batch: &mut dyn MergeSource,
        rules: &PruneRules,
        bytes_max: usize,
    ) -> Result<(), IndexError>;

    /// Prunes leaves that overlap the range, without adding versions, until about `bytes_max` bytes of leaves were
    /// looked at. Returns the key from which to continue; `None` at the end of the range.
    fn purge_some(
        &self,
        range: KeySpan<&[u8]>,
        rules: &PruneRules,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, IndexError>;

    /// Merges a whole batch.
    fn merge(&self, batch: &mut dyn MergeSource, rules: &PruneRules) -> Result<(), IndexError> {
        while batch.peek_key().is_some() {
            self.merge_some(batch, rules, usize::MAX)?;
        }
        Ok(())
    }

    /// Prunes a whole range.
    fn purge(&self, range: KeySpan<&[u8]>, rules: &PruneRules) -> Result<(), IndexError> {
        let mut start = range.start.to_vec();
        while let Some(next) =
            self.purge_some(KeySpan::new(start.as_slice(), range.end), rules, usize::MAX)?
        {
            start = next;
        }
        Ok(())
    }

    /// Begins a pass that writes the base out: what it writes holds at least what was merged before this call.
    fn begin_write_out(&self) -> WriteOut {
        WriteOut::default()
    }

    /// Writes dirty nodes of about `bytes_max` bytes, and returns the changes of segments' live bytes so far. Merges and
    /// readers do not wait for it. Call it until [`WriteOut::is_done`]; the pass may also be finished earlier. Callers
    /// book the changes in the order in which they got them.
    fn write_some(&self, pass: &mut WriteOut, bytes_max: usize) -> Result<Vec<AccountChange>, IndexError> {
        let _ = bytes_max;
        pass.position = None;
        Ok(Vec::new())
    }

    /// The changes of segments' live bytes that no report has named yet: of records that eviction wrote, and of those that were moved. They are booked as those
    /// of [`Base::write_some`], by the caller that writes the tree out.
    fn take_changes(&self) -> Vec<AccountChange> {
        Vec::new()
    }

    /// Takes the steps that are left, writes what merges made since, bottom-up, and reports the root's LSN. Merges and
    /// readers do not wait for its writes. After an error the next pass writes what this one did not.
    fn finish_write_out(&self, pass: WriteOut) -> Result<WriteOutReport, IndexError>;

    /// A whole pass at once.
    fn write_out(&self) -> Result<WriteOutReport, IndexError> {
        self.finish_write_out(self.begin_write_out())
    }

    /// Where its memory is counted, and that of the memtables over it.
    fn memory(&self) -> Arc<IndexMemory> {
        Arc::default()
    }

    /// About how many more bytes are live than was reported: records that eviction wrote since. Takes no lock.
    fn unreported_bytes(&self) -> u64 {
        0
    }

    /// How many bytes of nodes a write-out that began now would write at most.
    fn dirty_bytes(&self) -> u64;

    /// Whether a write-out that began now would change anything on disk. If not, what it reported last is still the case.
    /// Takes no lock: the caller knows that the merges that matter have ended.
    fn is_dirty(&self) -> bool {
        true
    }

    /// Drops clean nodes from memory, least recently used first where known, until at most `resident_bytes_max` are
    /// resident; returns how many are. Dirty nodes stay.
    fn evict(&self, resident_bytes_max: usize) -> usize;

    /// One step of eviction, from where the last one ended: drops clean nodes that were not read for a while, and writes
    /// dirty ones so that it can drop them. Readers do not wait for it, and merges not for its writes.
    ///
    /// # Errors
    /// Nodes could not be written. Clean nodes were dropped, and the next step goes on after those that were looked at.
    fn evict_some(&self, step: &EvictionStep) -> Result<Evicted, IndexError> {
        let _ = step;
        Ok(Evicted { is_round_over: true, ..Evicted::default() })
    }

    /// The version of `key` that has an extent at `lsn`: its CSN, and where its value is.
    fn find_extent(&self, key: &[u8], lsn: Lsn) -> Result<Option<(Csn, OutOfLine)>, IndexError>;

    /// Replaces the extent at `from` by one at `to` in the version of `key` with this CSN, if it still has it. Keeps
    /// the CSN: a relocation is not a write.
    fn relocate(&self, key: &[u8], csn: Csn, from: Lsn, to: Lsn) -> Result<bool, IndexError>;

    /// About how many versions the base holds.
    fn len_estimate(&self) -> u64;

    /// At most about `max` keys that cut the base into ranges of about the same size, from memory only. The base need
    /// not contain them.
    fn separators(&self, max: usize) -> Vec<Vec<u8>> {
        let _ = max;
        Vec::new()
    }
}

/// Walks the keys of a base in both directions, one version a key: the newest at or below the cursor's CSN.
///
/// After a seek or a step the cursor is at an entry or at the end. A seek reads the base's current state; a step may
/// find nodes older than the step. So a cursor is right while nodes change under it if its owner uses the list of
/// memtables that it took before it sought the cursor (INV-IDX-1).
pub trait BaseCursor: Send {
    /// Keys beyond these are not asked for. It may be at one, or at the end instead.
    fn set_limits(&mut self, limits: Arc<KeySpan>) {
        let _ = limits;
    }
    /// Moves to the first key at or after `start`.
    fn seek(&mut self, start: &[u8]) -> Result<(), IndexError>;
    /// Moves to the last key before `end`; `None`: to the last key of all.
    fn seek_back(&mut self, end: Option<&[u8]>) -> Result<(), IndexError>;
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

    /// After an error: moves past the keys that [`BaseCursor::unread`] names, to the next key if `forward`, else to the
    /// previous one. Fails like a step if the neighbour cannot be read either. After a success it does nothing.
    fn skip_unread(&mut self, _forward: bool) -> Result<(), IndexError> {
        Ok(())
    }
}
