//! Loads nodes from disk into their slots, on the thread that needs them.

use std::sync::Arc;

use fulgurite_types::{DecodeError, DiskRead, DiskReads, Lsn};

use super::node::delta::LeafDelta;
use super::node::format::{Fences, Header};
use super::node::inner::Inner;
use super::node::leaf::{Leaf, Origin};
use super::slot::{Node, Slot};
use super::tree::Nodes;
use crate::{IndexError, LoadFor, NodeKind};

/// A node that a thread needs and that is on disk.
pub(crate) struct Missing {
    slot: Arc<Slot>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    level: Option<u8>,
}

impl Missing {
    pub(crate) fn new(slot: &Arc<Slot>, fences: &Fences<'_>) -> Box<Missing> {
        Box::new(Missing {
            slot: Arc::clone(slot),
            lower: fences.lower.to_vec(),
            upper: fences.upper.map(<[u8]>::to_vec),
            level: fences.level,
        })
    }
}

impl Nodes {
    /// Begins a read from disk: what it finds the position of from now on stays readable.
    pub(crate) fn begin_read(&self) -> Option<DiskRead<'_>> {
        self.store.disk_reads().map(DiskReads::begin)
    }

    /// Loads a missing node, or returns it if another thread has loaded it; `None` if its slot has left the tree. The caller began
    /// a read before it found the slot.
    pub(crate) fn fetch(&self, missing: &Missing, cause: LoadFor) -> Result<Option<Node>, IndexError> {
        let Missing { slot, lower, upper, level, .. } = missing;
        let fences = Fences { lower, upper: upper.as_deref(), level: *level };
        self.fetch_slot(slot, fences, cause)
    }

    /// The slot's node, loaded if necessary. The slot is in the tree: the caller holds its lock, or it is the root.
    pub(crate) fn node_of(
        &self,
        slot: &Slot,
        fences: Fences<'_>,
        cause: LoadFor,
    ) -> Result<Node, IndexError> {
        match slot.node() {
            Ok(node) => Ok(node),
            Err(_) => {
                let _read = self.begin_read();
                Ok(self.fetch_slot(slot, fences, cause)?.expect("a slot of the tree"))
            }
        }
    }

    /// Child `index` of an inner node of the tree, loaded if necessary. The caller holds the tree's lock.
    pub(crate) fn child_of(&self, inner: &Inner, index: usize, cause: LoadFor) -> Result<Node, IndexError> {
        self.node_of(&inner.children()[index], inner.child_fences(index), cause)
    }

    /// The same without the lock; `None` if the child has left the tree. The caller has begun a read, and found the inner node in
    /// the tree since then.
    pub(crate) fn fetch_child(
        &self,
        inner: &Inner,
        index: usize,
        cause: LoadFor,
    ) -> Result<Option<Node>, IndexError> {
        self.fetch_slot(&inner.children()[index], inner.child_fences(index), cause)
    }

    /// Of all threads that miss a node one reads it. The caller has begun a read, after which the slot was found in the tree
    /// (INV-READ-1). A slot that has left the tree since then has no record that may be read: its last changes are in the slots
    /// that replaced it.
    fn fetch_slot(
        &self,
        slot: &Slot,
        fences: Fences<'_>,
        cause: LoadFor,
    ) -> Result<Option<Node>, IndexError> {
        loop {
            let load = self.loads.begin(slot);
            let absent = match slot.node() {
                Ok(node) => return Ok(Some(node)),
                Err(absent) => absent,
            };
            if absent.is_gone() {
                return Ok(None);
            }
            if load.is_none() {
                // The load that this thread waited for failed, or the node was evicted since.
                continue;
            }
            let node = self.read(slot.lsn(), &fences)?;
            self.residency.memory().count_load(cause);
            if slot.install(absent, node.clone()) {
                if fences.level.is_none() {
                    self.len.learn(&node);
                }
                return Ok(Some(node));
            }
        }
    }

    /// The node whose newest record is at `lsn`, read from the store.
    pub(crate) fn read(&self, lsn: Lsn, fences: &Fences<'_>) -> Result<Node, IndexError> {
        let corrupt = |lsn| move |error: DecodeError| IndexError::decode(self.table, lsn, error);
        let _reading = self.residency.memory().begin_read();
        let body = self.read_body(lsn)?;
        let header = Header::decode(&body).map_err(corrupt(lsn))?;
        match header.kind {
            NodeKind::Internal => {
                let (inner, entries) =
                    Inner::decode(body, self.table, fences, &self.residency).map_err(corrupt(lsn))?;
                if fences.level.is_none() {
                    self.len.read_in_root(entries);
                }
                Ok(Node::inner(inner, &self.residency))
            }
            NodeKind::Leaf => {
                let full_len = body.len();
                let leaf = Leaf::decode(body, self.table, fences).map_err(corrupt(lsn))?;
                Ok(Node::leaf(leaf.with_origin(Origin { full: lsn, full_len, delta: None }), &self.residency))
            }
            NodeKind::LeafDelta => {
                let delta = LeafDelta::decode(body, self.table, fences).map_err(corrupt(lsn))?;
                let full = self.read_body(delta.full())?;
                let full_len = full.len();
                let full = Leaf::decode(full, self.table, fences).map_err(corrupt(delta.full()))?;
                Ok(Node::leaf(delta.apply(&full, full_len, self.table), &self.residency))
            }
        }
    }

    pub(crate) fn read_body(&self, lsn: Lsn) -> Result<Vec<u8>, IndexError> {
        self.store.read_node(lsn).map_err(|source| IndexError::Store { table: self.table, lsn, source })
    }

    /// A slot for a node that is new in the tree.
    pub(crate) fn fresh_slot(&self, node: Node) -> Arc<Slot> {
        Arc::new(Slot::fresh(node, &self.residency))
    }
}
