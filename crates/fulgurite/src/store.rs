//! Node records live in the bulk stream of the log.

use std::sync::Arc;

use fulgurite_index::{IndexMemory, NodeKind, NodeStore, StoreError};
use fulgurite_log::{Apart, BULK_HEADER_BYTES, BulkKind, Log, LogError};
use fulgurite_types::{DiskReads, Lsn};

/// The index's view of the log.
pub(crate) struct LogNodeStore {
    log: Arc<Log>,
    memory: Arc<IndexMemory>,
    disk_reads: Arc<DiskReads>,
}

impl LogNodeStore {
    pub fn new(log: Arc<Log>, disk_reads: Arc<DiskReads>) -> LogNodeStore {
        LogNodeStore { log, memory: Arc::default(), disk_reads }
    }
}

fn bulk_kind(kind: NodeKind) -> BulkKind {
    match kind {
        NodeKind::Internal => BulkKind::InternalNode,
        NodeKind::Leaf => BulkKind::LeafNode,
        NodeKind::LeafDelta => BulkKind::LeafDelta,
    }
}

impl LogNodeStore {
    /// Victims that hold the values of commits are not to hold nodes, too: those would have to be written again with them.
    fn write(&self, kind: NodeKind, body: &[u8], evicts: bool) -> Result<Lsn, StoreError> {
        if self.log.has_many_chunks() {
            self.write_apart(Apart::Nodes, kind, body, evicts)
        } else {
            self.write_beside_all(kind, body, evicts)
        }
    }

    fn write_apart(
        &self,
        apart: Apart,
        kind: NodeKind,
        body: &[u8],
        evicts: bool,
    ) -> Result<Lsn, StoreError> {
        match self.log.append_bulk_apart(apart, bulk_kind(kind), &[body]) {
            Err(LogError::NoSpace { .. }) => self.write_beside_all(kind, body, evicts),
            written => Ok(written?),
        }
    }

    /// An eviction takes nothing of the reserve.
    fn write_beside_all(&self, kind: NodeKind, body: &[u8], evicts: bool) -> Result<Lsn, StoreError> {
        let kind = bulk_kind(kind);
        let written = if evicts {
            self.log.append_bulk_beside_reserve(kind, &[body])
        } else {
            self.log.append_bulk(kind, &[body])
        };
        Ok(written?)
    }
}

impl NodeStore for LogNodeStore {
    fn read_node(&self, lsn: Lsn) -> Result<Vec<u8>, StoreError> {
        let record = self.log.read_bulk(lsn)?;
        match record.kind {
            BulkKind::InternalNode | BulkKind::LeafNode | BulkKind::LeafDelta => Ok(record.body),
            other => Err(format!("the record at {lsn} is a {other:?}, not a node").into()),
        }
    }

    fn write_node(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        self.write(kind, body, false)
    }

    fn write_node_to_evict(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, StoreError> {
        self.write(kind, body, true)
    }

    fn write_delta(&self, body: &[u8], evicts: bool) -> Result<Lsn, StoreError> {
        self.write_apart(Apart::LeafDeltas, NodeKind::LeafDelta, body, evicts)
    }

    fn memory(&self) -> Option<&Arc<IndexMemory>> {
        Some(&self.memory)
    }

    fn disk_reads(&self) -> Option<&DiskReads> {
        Some(&self.disk_reads)
    }

    fn node_bytes(&self, body_len: usize) -> u32 {
        (BULK_HEADER_BYTES as usize + body_len).next_multiple_of(8) as u32
    }

    fn body_bytes_max(&self) -> usize {
        self.log.options().bulk_bytes_max() as usize
    }
}
