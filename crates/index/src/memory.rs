//! How much memory the trees and memtables of a store take: counted from allocation to release, not as long as a tree or a table
//! points to it. A leaf that left its tree counts while a value, a cursor or a reader's epoch holds it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the allocator adds to a reference-counted allocation: both counts.
pub(crate) const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// The memory of a store's trees and of the memtables over them, in bytes.
#[derive(Debug, Default)]
pub struct IndexMemory {
    nodes: AtomicUsize,
    placed: AtomicUsize,
    dirty: AtomicUsize,
    slots: AtomicUsize,
    memtables: AtomicUsize,
}

impl IndexMemory {
    /// All nodes, in trees or not.
    pub fn node_bytes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Nodes that no tree has any more, or not yet: values, cursors, readers and merges hold them.
    pub fn lent_bytes(&self) -> usize {
        self.node_bytes().saturating_sub(self.placed.load(Ordering::Relaxed))
    }

    /// Nodes that are to be written, and those above them.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// The slots of all nodes below the resident ones, and what they remember of their records.
    pub fn slot_bytes(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    /// Memtables with their filters, merged ones that are still read too, and commits' versions that readers hold.
    pub fn memtable_bytes(&self) -> usize {
        self.memtables.load(Ordering::Relaxed)
    }

    pub(crate) fn placed(&self) -> &AtomicUsize {
        &self.placed
    }

    pub(crate) fn dirty(&self) -> &AtomicUsize {
        &self.dirty
    }

    pub(crate) fn slots(&self) -> &AtomicUsize {
        &self.slots
    }

    pub(crate) fn memtables(&self) -> &AtomicUsize {
        &self.memtables
    }
}

/// Bytes of a node, charged until this is dropped.
pub(crate) struct Charge {
    memory: Arc<IndexMemory>,
    bytes: usize,
}

impl Charge {
    pub fn new(memory: &Arc<IndexMemory>, bytes: usize) -> Charge {
        memory.nodes.fetch_add(bytes, Ordering::Relaxed);
        Charge { memory: Arc::clone(memory), bytes }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.nodes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}
