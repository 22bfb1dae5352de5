//! Nodes leave segments of which little is live, so that these become free: they are made dirty, and the next write-out writes
//! them anew.
//!
//! A walk over the slots finds them, which are in memory where the records need not be. To look for live nodes in the
//! segments themselves would read all of these, and for each record a leaf.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::account::Changed;
use super::node::format::Fences;
use super::node::inner::Inner;
use super::slot::{DIRTY, DIRTY_BELOW, Node, OUTDATED, Slot};
use super::tree::Tree;
use crate::LoadFor;

/// What the look at a slot costs, in bytes of nodes that are found: a quarter of a megabyte is some thousand slots.
const LOOK_BYTES: usize = 64;

/// A step of the walk.
struct Leaving<'a> {
    tree: &'a Tree,
    segments: &'a BTreeSet<u32>,
    from: &'a [u8],
    bytes_max: usize,
    /// Where the step ended: the upper fence of the last slot that it looked at.
    ended_at: Option<Vec<u8>>,
}

impl Leaving<'_> {
    /// Looks at the slots below an inner node. Returns the flags for the nodes above those that it made dirty.
    fn visit(&mut self, inner: &Arc<Inner>) -> u32 {
        let first = if inner.fences().lower < self.from { inner.child_index(self.from) } else { 0 };
        let mut flags = 0;
        for (index, child) in inner.children().iter().enumerate().skip(first) {
            self.spend(LOOK_BYTES);
            let leaves = child.is_in(self.segments);
            if leaves || (inner.level() > 1 && child.is_resident()) {
                let node = child
                    .node_unmarked()
                    .or_else(|_| self.tree.nodes.child_of(inner, index, LoadFor::Maintenance));
                flags |= node.map_or(0, |node| self.visit_node(child, &node, leaves));
            }
            if self.bytes_max == 0 {
                // A node below may have ended the step before.
                let upper = inner.child_fences(index).upper;
                self.ended_at = self.ended_at.take().or(upper.map(<[u8]>::to_vec));
                break;
            }
        }
        flags
    }

    /// Makes a node dirty that `leaves`, and looks at the slots below it. Returns the flags for the nodes above.
    fn visit_node(&mut self, slot: &Slot, node: &Node, leaves: bool) -> u32 {
        let mut flags = 0;
        match node {
            Node::Leaf(leaf) if leaves => {
                if self.leave(slot) {
                    self.spend(leaf.bytes().len());
                    slot.mark(DIRTY);
                    flags = DIRTY_BELOW;
                }
            }
            Node::Leaf(_) => {}
            Node::Inner(inner) => {
                let below = self.visit(inner);
                slot.mark(below);
                flags = below;
                if leaves {
                    self.spend(inner.len());
                    slot.mark(DIRTY | OUTDATED);
                    flags |= DIRTY_BELOW | OUTDATED;
                }
            }
        }
        flags
    }

    /// Whether a leaf, which is in memory, has its newest or its full record in one of the segments. If that is the full
    /// record, no delta record will be based on it.
    fn leave(&self, slot: &Slot) -> bool {
        slot.remember(&*self.tree.nodes.store);
        let mut disk = slot.disk();
        let Some(disk) = disk.as_deref_mut() else { return false };
        if self.segments.contains(&disk.full.segment()) {
            disk.changed = Changed::Whole;
            return true;
        }
        self.segments.contains(&slot.lsn().segment())
    }

    fn spend(&mut self, bytes: usize) {
        self.bytes_max = self.bytes_max.saturating_sub(bytes);
    }
}

impl Tree {
    /// See [`super::BTree::leave_some`].
    pub(crate) fn leave_some(
        &self,
        segments: &BTreeSet<u32>,
        from: &[u8],
        bytes_max: usize,
    ) -> Option<Vec<u8>> {
        let _maintenance = self.maintenance.lock();
        let leaves = self.root.is_in(segments);
        let node = self
            .root
            .node_unmarked()
            .or_else(|_| self.nodes.node_of(&self.root, Fences::ROOT, LoadFor::Maintenance))
            .ok()?;
        let mut leaving = Leaving { tree: self, segments, from, bytes_max, ended_at: None };
        leaving.visit_node(&self.root, &node, leaves);
        leaving.ended_at
    }
}
