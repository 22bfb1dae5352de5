//! A leaf and the inner nodes above it, owned, with moves to the neighbouring leaves.
//!
//! The inner nodes partition the keys as they did when the path loaded them. A slot keeps its fences for life, and
//! holds its node's current version. So a walk visits every key range once, however the tree changes.
//!
//! **INV-IDX-12.** *A walk loads a node only into a slot of the tree, from its newest record.* An inner node that the path keeps
//! may have left the tree: it was evicted and perhaps loaded again with other slots, or children of it were cut or joined. Its
//! slots go on to lead to the nodes that are in memory. Where one is not, the walk seeks its key range from the root. A
//! node knows that it has left, and a walk asks it after it has begun a read (INV-READ-1): so a record that its slots named
//! when it was asked stays until it was read.

use std::sync::Arc;

use super::node::format::Fences;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::slot::Node;
use super::tree::{Nodes, Tree};
use crate::IndexError;

/// The target of a descent.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Key(&'a [u8]),
    /// The last leaf that may have keys below this one: no leaf after it is read.
    Before(&'a [u8]),
    First,
    Last,
}

#[derive(Default)]
pub(crate) struct Path {
    steps: Vec<(Arc<Inner>, usize)>,
    leaf: Option<Arc<Leaf>>,
    /// The last move failed to read a node: the child that the last step selects, or the root.
    failed: bool,
}

impl Path {
    /// The leaf; `None` beyond either end, and after an error.
    pub(crate) fn leaf(&self) -> Option<&Arc<Leaf>> {
        self.leaf.as_ref()
    }

    /// Leaves the tree.
    pub(crate) fn clear(&mut self) {
        self.steps.clear();
        self.leaf = None;
        self.failed = false;
    }

    /// The key range of the node that the last move failed to read. A move to a neighbour passes over it.
    pub(crate) fn unread(&self) -> Option<Fences<'_>> {
        self.failed.then(|| self.wanted())
    }

    /// Moves to the target's leaf.
    pub(crate) fn seek(&mut self, tree: &Tree, target: Target<'_>) -> Result<(), IndexError> {
        // Once, not before each node: eviction might take the node above meanwhile, and the walk would never arrive.
        tree.nodes.residency.memory().wait_for_room();
        self.seek_now(tree, target)
    }

    fn seek_now(&mut self, tree: &Tree, target: Target<'_>) -> Result<(), IndexError> {
        loop {
            self.clear();
            self.failed = true;
            let root = tree.nodes.node_of(&tree.root, Fences::ROOT)?;
            if self.descend(&tree.nodes, root, target)? {
                return Ok(());
            }
        }
    }

    /// Moves to the next leaf in key order; returns its first entry that the walk has not passed.
    pub(crate) fn next_leaf(&mut self, tree: &Tree) -> Result<usize, IndexError> {
        self.leaf = None;
        self.failed = false;
        tree.nodes.residency.memory().wait_for_room();
        while let Some((inner, index)) = self.steps.last_mut() {
            if *index + 1 == inner.children().len() {
                self.steps.pop();
                continue;
            }
            *index += 1;
            self.failed = true;
            if let Some(node) = tree.nodes.child_once_of(inner, *index)?
                && self.descend(&tree.nodes, node, Target::First)?
            {
                return Ok(0);
            }
            let lower = self.wanted().lower.to_vec();
            self.seek_now(tree, Target::Key(&lower))?;
            return Ok(self.leaf.as_ref().map_or(0, |leaf| leaf.lower_bound(&lower)));
        }
        Ok(0)
    }

    /// Moves to the previous leaf in key order; returns the entry after its last one that the walk has not passed.
    pub(crate) fn previous_leaf(&mut self, tree: &Tree) -> Result<usize, IndexError> {
        self.leaf = None;
        self.failed = false;
        tree.nodes.residency.memory().wait_for_room();
        while let Some((inner, index)) = self.steps.last_mut() {
            if *index == 0 {
                self.steps.pop();
                continue;
            }
            *index -= 1;
            self.failed = true;
            if let Some(node) = tree.nodes.child_once_of(inner, *index)?
                && self.descend(&tree.nodes, node, Target::Last)?
            {
                return Ok(self.leaf.as_ref().map_or(0, |leaf| leaf.count()));
            }
            // The child is before another one, so it has an upper fence.
            let upper = self.wanted().upper.expect("a fence between two children").to_vec();
            self.seek_now(tree, Target::Before(&upper))?;
            return Ok(self.leaf.as_ref().map_or(0, |leaf| leaf.lower_bound(&upper)));
        }
        Ok(0)
    }

    /// The key range of the child that the last step selects.
    fn wanted(&self) -> Fences<'_> {
        self.steps.last().map_or(Fences::ROOT, |(inner, index)| inner.child_fences(*index))
    }

    /// Returns false if a node on the way has left the tree, and a child of it is not in memory: that of the last step.
    fn descend(&mut self, nodes: &Nodes, mut node: Node, target: Target<'_>) -> Result<bool, IndexError> {
        loop {
            match node {
                Node::Leaf(leaf) => {
                    self.leaf = Some(leaf);
                    self.failed = false;
                    return Ok(true);
                }
                Node::Inner(inner) => {
                    let index = match target {
                        Target::Key(key) => inner.child_index(key),
                        Target::Before(end) => inner.child_index_before(end),
                        Target::First => 0,
                        Target::Last => inner.children().len() - 1,
                    };
                    // The step is pushed before the child is loaded: if that fails, the step names the missing keys.
                    let (inner, index) = self.steps.push_mut((inner, index));
                    match nodes.child_once_of(inner, *index)? {
                        Some(child) => node = child,
                        None => return Ok(false),
                    }
                }
            }
        }
    }
}
