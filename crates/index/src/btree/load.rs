//! Loads nodes from disk into their slots, on the thread that needs them.

use std::sync::Arc;

use fulgurite_types::{DecodeError, Lsn};

use super::node::delta::LeafDelta;
use super::node::format::{Fences, Header};
use super::node::inner::Inner;
use super::node::leaf::{Leaf, Origin};
use super::slot::{Absent, Node, Slot};
use super::tree::Nodes;
use crate::{IndexError, NodeKind};

/// A node that a thread needs and that is on disk.
pub(crate) struct Missing {
    slot: Arc<Slot>,
    absent: Absent,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    level: Option<u8>,
}

impl Missing {
    pub(crate) fn new(slot: &Arc<Slot>, absent: Absent, fences: &Fences<'_>) -> Box<Missing> {
        Box::new(Missing {
            slot: Arc::clone(slot),
            absent,
            lower: fences.lower.to_vec(),
            upper: fences.upper.map(<[u8]>::to_vec),
            level: fences.level,
        })
    }
}

impl Nodes {
    /// Loads a missing node, or returns it if another thread has loaded it.
    pub(crate) fn fetch(&self, missing: &Missing) -> Result<Node, IndexError> {
        let Missing { slot, lower, upper, level, .. } = missing;
        let fences = Fences { lower, upper: upper.as_deref(), level: *level };
        self.fetch_slot(slot, missing.absent, fences)
    }

    /// The slot's node, loaded if necessary.
    pub(crate) fn node_of(&self, slot: &Slot, fences: Fences<'_>) -> Result<Node, IndexError> {
        slot.node().or_else(|absent| self.fetch_slot(slot, absent, fences))
    }

    /// Child `index` of an inner node, loaded if necessary.
    pub(crate) fn child_of(&self, inner: &Inner, index: usize) -> Result<Node, IndexError> {
        let slot = &inner.children()[index];
        slot.node().or_else(|absent| self.fetch_slot(slot, absent, inner.child_fences(index)))
    }

    /// Pins the epoch before it loads the record's LSN: segments are freed only after all pins from before have ended.
    fn fetch_slot(&self, slot: &Slot, mut absent: Absent, fences: Fences<'_>) -> Result<Node, IndexError> {
        let _pinned = crossbeam_epoch::pin();
        loop {
            let read = self.read(slot.lsn(), &fences);
            if let Ok(node) = &read
                && slot.install(absent, node.clone())
            {
                if fences.level.is_none() {
                    self.len.learn(node);
                }
                return read;
            }
            // Another thread was faster; an old record may even have been freed meanwhile.
            match slot.node() {
                Ok(node) => return Ok(node),
                Err(now) if now.is(absent) => return read,
                Err(now) => absent = now,
            }
        }
    }

    /// The node whose newest record is at `lsn`, read from the store.
    pub(crate) fn read(&self, lsn: Lsn, fences: &Fences<'_>) -> Result<Node, IndexError> {
        let corrupt = |lsn| move |error: DecodeError| IndexError::decode(self.table, lsn, error);
        let body = self.read_body(lsn)?;
        let header = Header::decode(&body).map_err(corrupt(lsn))?;
        match header.kind {
            NodeKind::Internal => {
                let (inner, entries) =
                    Inner::decode(body, self.table, fences, &self.residency).map_err(corrupt(lsn))?;
                if fences.level.is_none() {
                    self.len.read_in_root(entries);
                }
                Ok(Node::Inner(Arc::new(inner)))
            }
            NodeKind::Leaf => {
                let full_len = body.len();
                let leaf = Leaf::decode(body, self.table, fences).map_err(corrupt(lsn))?;
                Ok(Node::Leaf(Arc::new(leaf.with_origin(Origin { full: lsn, full_len, delta: None }))))
            }
            NodeKind::LeafDelta => {
                let delta = LeafDelta::decode(body, self.table, fences).map_err(corrupt(lsn))?;
                let full = self.read_body(delta.full())?;
                let full = Leaf::decode(full, self.table, fences).map_err(corrupt(delta.full()))?;
                Ok(Node::Leaf(Arc::new(delta.apply(&full, self.table))))
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
