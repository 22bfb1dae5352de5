//! A leaf and the inner nodes above it, owned, with moves to the neighbouring leaves.
//!
//! The inner nodes partition the keys as they did when the path loaded them. A slot keeps its fences for life, and
//! holds its node's current version. So a walk visits every key range once, however the tree changes.

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
        self.failed
            .then(|| self.steps.last().map_or(Fences::ROOT, |(inner, index)| inner.child_fences(*index)))
    }

    /// Moves to the target's leaf.
    pub(crate) fn seek(&mut self, tree: &Tree, target: Target<'_>) -> Result<(), IndexError> {
        self.clear();
        self.failed = true;
        let root = tree.nodes.node_of(&tree.root, Fences::ROOT)?;
        self.descend(&tree.nodes, root, target)
    }

    /// Moves to the next leaf in key order.
    pub(crate) fn next_leaf(&mut self, nodes: &Nodes) -> Result<(), IndexError> {
        self.leaf = None;
        self.failed = false;
        while let Some((inner, index)) = self.steps.last_mut() {
            if *index + 1 < inner.children().len() {
                *index += 1;
                self.failed = true;
                let node = nodes.child_of(inner, *index)?;
                return self.descend(nodes, node, Target::First);
            }
            self.steps.pop();
        }
        Ok(())
    }

    /// Moves to the previous leaf in key order.
    pub(crate) fn previous_leaf(&mut self, nodes: &Nodes) -> Result<(), IndexError> {
        self.leaf = None;
        self.failed = false;
        while let Some((inner, index)) = self.steps.last_mut() {
            if *index > 0 {
                *index -= 1;
                self.failed = true;
                let node = nodes.child_of(inner, *index)?;
                return self.descend(nodes, node, Target::Last);
            }
            self.steps.pop();
        }
        Ok(())
    }

    fn descend(&mut self, nodes: &Nodes, mut node: Node, target: Target<'_>) -> Result<(), IndexError> {
        loop {
            match node {
                Node::Leaf(leaf) => {
                    self.leaf = Some(leaf);
                    self.failed = false;
                    return Ok(());
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
                    node = nodes.child_of(inner, *index)?;
                }
            }
        }
    }
}
