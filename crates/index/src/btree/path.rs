//! A leaf and the inner nodes above it, owned, with moves to the neighbouring leaves.
//!
//! The inner nodes partition the keys as they did when the path loaded them. A slot keeps its fences for life, and
//! holds its node's current version. So a walk visits every key range once, however the tree changes.
//!
//! **INV-IDX-12.** *A walk loads a node only into a slot of the tree, from its newest record.* An inner node that the path keeps
//! may have left the tree: it was evicted and perhaps loaded again with other slots, or children of it were cut or joined. Its
//! slots go on to lead to the nodes that are in memory. Where one is not, the walk asks all nodes of its path whether they have
//! left, after it has begun a read (INV-READ-1): if none has, what their slots name stays readable until the read ends.
//! Otherwise, and if the slot itself left the tree and so has no node any more, it seeks the key range from the root, with a read that goes on over the whole way: what leads there was found
//! after the read began, so a node that leaves the tree meanwhile does no harm.

use std::sync::Arc;

use super::node::format::Fences;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::slot::Node;
use super::tree::{Nodes, Tree};
use crate::{IndexError, Io, LoadFor};

/// The target of a descent.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Key(&'a [u8]),
    /// The last leaf that may have keys below this one: no leaf after it is read.
    Before(&'a [u8]),
    First,
    Last,
}

/// Whether a descent loads nodes that are not in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loads {
    None,
    All,
}

#[derive(Default)]
pub(crate) struct Path {
    steps: Vec<(Arc<Inner>, usize)>,
    leaf: Option<Arc<Leaf>>,
    /// The last move failed to read a node: the child that the last step selects, or the root.
    failed: bool,
    /// What it loads nodes for.
    cause: LoadFor,
    /// Whether it loads them, and waits for memory first.
    io: Io,
}

impl Path {
    /// The path of a reader's cursor.
    pub(crate) fn reading(io: Io) -> Path {
        Path { io, ..Path::default() }
    }

    /// The path of a commit's validation.
    pub(crate) fn validating(io: Io) -> Path {
        Path { cause: LoadFor::Validation, io, ..Path::default() }
    }

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
        if self.seek_anew(tree, target, Loads::None)? {
            return Ok(());
        }
        self.prepare_to_load(tree)?;
        // What can be reached from the root from now on stays readable, even if it leaves the tree meanwhile.
        let _read = tree.nodes.begin_read();
        // A slot on the way may leave the tree before its node is loaded.
        while !self.seek_anew(tree, target, Loads::All)? {}
        Ok(())
    }

    fn seek_anew(&mut self, tree: &Tree, target: Target<'_>, loads: Loads) -> Result<bool, IndexError> {
        self.clear();
        self.failed = true;
        let root = match tree.root.node() {
            Ok(root) => root,
            Err(_) if loads == Loads::None => return Ok(false),
            Err(_) => tree.nodes.node_of(&tree.root, Fences::ROOT, self.cause)?,
        };
        if self.take(root, target) {
            return Ok(true);
        }
        self.descend(&tree.nodes, target, loads)
    }

    /// Moves to the next leaf in key order; returns its first entry that the walk has not passed.
    pub(crate) fn next_leaf(&mut self, tree: &Tree) -> Result<usize, IndexError> {
        self.leaf = None;
        self.failed = false;
        while let Some((inner, index)) = self.steps.last_mut() {
            if *index + 1 == inner.children().len() {
                self.steps.pop();
                continue;
            }
            *index += 1;
            if self.go_down(tree, Target::First)? {
                return Ok(0);
            }
            let lower = self.wanted().lower.to_vec();
            self.seek(tree, Target::Key(&lower))?;
            return Ok(self.leaf.as_ref().map_or(0, |leaf| leaf.lower_bound(&lower)));
        }
        Ok(0)
    }

    /// Moves to the previous leaf in key order; returns the entry after its last one that the walk has not passed.
    pub(crate) fn previous_leaf(&mut self, tree: &Tree) -> Result<usize, IndexError> {
        self.leaf = None;
        self.failed = false;
        while let Some((_, index)) = self.steps.last_mut() {
            if *index == 0 {
                self.steps.pop();
                continue;
            }
            *index -= 1;
            if self.go_down(tree, Target::Last)? {
                return Ok(self.leaf.as_ref().map_or(0, |leaf| leaf.count()));
            }
            // The child is before another one, so it has an upper fence.
            let upper = self.wanted().upper.expect("a fence between two children").to_vec();
            self.seek(tree, Target::Before(&upper))?;
            return Ok(self.leaf.as_ref().map_or(0, |leaf| leaf.lower_bound(&upper)));
        }
        Ok(0)
    }

    /// Goes on from the last step to a leaf. Returns false if a node is not in memory, and it or one of those above it has left
    /// the tree: the last step says which.
    fn go_down(&mut self, tree: &Tree, target: Target<'_>) -> Result<bool, IndexError> {
        self.failed = true;
        if self.descend(&tree.nodes, target, Loads::None)? {
            return Ok(true);
        }
        self.prepare_to_load(tree)?;
        let _read = tree.nodes.begin_read();
        // All of them: a node that was loaded while the one above it was evicted does not know that it is in no tree.
        if self.steps.iter().any(|(inner, _)| inner.has_left()) {
            return Ok(false);
        }
        self.descend(&tree.nodes, target, Loads::All)
    }

    fn prepare_to_load(&self, tree: &Tree) -> Result<(), IndexError> {
        let memory = tree.nodes.residency.memory();
        match self.io {
            Io::Allowed => memory.wait_for_room(self.cause),
            Io::Impatient => memory.look(),
            Io::MemoryOnly => return Err(IndexError::WouldBlock),
        }
        Ok(())
    }

    /// The key range of the child that the last step selects.
    fn wanted(&self) -> Fences<'_> {
        self.steps.last().map_or(Fences::ROOT, |(inner, index)| inner.child_fences(*index))
    }

    /// Takes a node; true if it is a leaf.
    fn take(&mut self, node: Node, target: Target<'_>) -> bool {
        match node {
            Node::Leaf(leaf) => {
                self.leaf = Some(leaf);
                self.failed = false;
                true
            }
            Node::Inner(inner) => {
                let index = match target {
                    Target::Key(key) => inner.child_index(key),
                    Target::Before(end) => inner.child_index_before(end),
                    Target::First => 0,
                    Target::Last => inner.children().len() - 1,
                };
                // The step is pushed before the child is loaded: if that fails, the step names the missing keys.
                self.steps.push((inner, index));
                false
            }
        }
    }

    /// Goes down from the last step to a leaf. Returns false before a node that is not in memory, if it loads none, and before one
    /// that has left the tree. For loads the caller has begun a read, and after that found the last step's node in the tree.
    fn descend(&mut self, nodes: &Nodes, target: Target<'_>, loads: Loads) -> Result<bool, IndexError> {
        while let Some((inner, index)) = self.steps.last() {
            let node = match inner.children()[*index].node() {
                Ok(node) => node,
                Err(_) if loads == Loads::None => return Ok(false),
                Err(_) => match nodes.fetch_child(inner, *index, self.cause)? {
                    Some(node) => node,
                    None => return Ok(false),
                },
            };
            if self.take(node, target) {
                return Ok(true);
            }
        }
        unreachable!("a descent ends at a leaf")
    }
}
