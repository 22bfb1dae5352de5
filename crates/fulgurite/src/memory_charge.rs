//! Memory of a database that one owner counts, beside nodes, values and memtables.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fulgurite_index::IndexMemory;

/// Bytes that an owner takes of the budget. One thread at a time sets them: the owner's lock is held. Several owners change them together.
pub(crate) struct MemoryCharge {
    bytes: AtomicUsize,
    index: Arc<IndexMemory>,
}

impl MemoryCharge {
    pub fn new(index: &Arc<IndexMemory>) -> Arc<MemoryCharge> {
        Arc::new(MemoryCharge { bytes: AtomicUsize::new(0), index: index.clone() })
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// One of several owners that take these bytes together takes `after` in place of `before`.
    pub fn change(&self, before: usize, after: usize) {
        self.bytes.fetch_add(after, Relaxed);
        self.bytes.fetch_sub(before, Relaxed);
        self.index.others().fetch_add(after, Relaxed);
        self.index.others().fetch_sub(before, Relaxed);
    }

    /// The owner takes so many bytes now.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Relaxed);
        self.index.others().fetch_add(bytes, Relaxed);
        self.index.others().fetch_sub(before, Relaxed);
    }
}
