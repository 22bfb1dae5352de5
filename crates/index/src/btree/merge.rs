//! Merges a sorted batch into the tree, or purges a range of it: one recursion from the root.
//!
//! A node that keeps its fences is replaced in its slot. The pieces of a node that is cut get new slots, and so does
//! the node into which small neighbours are joined (`join.rs`). Then the parent is replaced by a version with the new
//! children; if that is cut too, the parent's parent is. The root keeps its slot: its pieces become children of a new
//! root node. Old slots keep their content until they are retired (INV-IDX-1).
//!
//! A step waits for no read from disk with the tree's lock, which eviction takes too: it ends before the first node that is
//! not in memory. If that is the first that it needs, it lets go of the lock and reads it.
//!
//! The call that installs the new parent retires the slots that it no longer names. So after an error halfway the
//! accounts are right: installed changes stay, the others are lost, and merging the whole batch again completes it.

use std::sync::Arc;

use fulgurite_types::KeySpan;

use super::merge_leaf::LeafMerger;
use super::node::format::Fences;
use super::node::inner::{Child, Inner};
use super::node::leaf::Leaf;
use super::slot::{DIRTY_BELOW, Node, OUTDATED, Slot};
use super::tree::Tree;
use super::write_out::Pending;
use crate::{IndexError, Io, LoadFor, MergeSource, PruneRules};

/// The work of one pass over the tree, in key order, of which a step does a part.
pub(crate) struct Work<'a> {
    pub kind: Kind<'a>,
    /// The step ends with the leaf that uses up these bytes of leaves, or within it, if much is added to it.
    bytes_left: usize,
    /// Whether it has worked on a leaf.
    has_begun: bool,
    /// A key whose leaf, or a node above it, is not in memory: the step ends before it.
    missing: Option<Vec<u8>>,
}

pub(crate) enum Kind<'a> {
    /// A batch of new versions.
    Merge(&'a mut dyn MergeSource),
    /// Pruning all keys of a range.
    Purge(Purge<'a>),
}

/// A purge in progress.
pub(crate) struct Purge<'a> {
    /// The key to continue from; `None` at the end.
    position: Option<Vec<u8>>,
    range: KeySpan<&'a [u8]>,
}

impl Work<'_> {
    /// The next key below `upper` that has work.
    pub(crate) fn peek(&mut self, upper: Option<&[u8]>) -> Option<&[u8]> {
        if self.bytes_left == 0 || self.missing.is_some() {
            return None;
        }
        let key = match &mut self.kind {
            Kind::Merge(source) => source.peek_key(),
            Kind::Purge(purge) => purge.position.as_deref(),
        };
        key.filter(|key| upper.is_none_or(|upper| *key < upper))
    }
}

impl<'a> Work<'a> {
    fn new(kind: Kind<'a>, bytes_max: usize) -> Work<'a> {
        Work { kind, bytes_left: bytes_max.max(1), has_begun: false, missing: None }
    }

    /// Begins work on a leaf of `bytes`. Returns how many bytes it may become before the step ends within it: all that the step has left, and
    /// more, so that most leaves are worked on as wholes.
    pub(crate) fn begin_leaf(&mut self, bytes: usize) -> usize {
        self.has_begun = true;
        self.bytes_left.saturating_add(bytes.saturating_mul(2))
    }

    /// Records that a leaf has become `bytes`.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.max(1));
    }
}

impl Purge<'_> {
    /// Records that the leaf whose upper fence is `upper` was purged.
    pub(crate) fn advance(&mut self, upper: Option<&[u8]>) {
        self.position = upper.filter(|upper| self.range.ends_after(upper)).map(<[u8]>::to_vec);
    }
}

/// The effect of the pass on a node.
pub(crate) enum Outcome {
    Same,
    /// It, or a node below it, was replaced in its slot; its own slot and fences stay.
    Changed,
    /// These children replace it once its parent names them.
    Replaced(Replacement),
}

#[derive(Default)]
pub(crate) struct Replacement {
    pub children: Vec<Child>,
    /// The slots to retire when the children are installed.
    pub retired: Vec<Arc<Slot>>,
}

pub(crate) struct Merger<'a, 'w> {
    pub tree: &'a Tree,
    pub work: Work<'w>,
    pub leaves: LeafMerger<'a>,
    pub pending: &'a mut Pending,
    /// Whether it may load what it needs first.
    may_load: bool,
    /// Whether an inner node below the one that is worked on has other children by now.
    has_restructured: bool,
}

impl Tree {
    /// See [`crate::Base::merge_some`].
    pub(crate) fn merge_some(
        &self,
        batch: &mut dyn MergeSource,
        rules: &PruneRules,
        bytes_max: usize,
    ) -> Result<(), IndexError> {
        self.run(Work::new(Kind::Merge(batch), bytes_max), rules).map(|_| ())
    }

    /// See [`crate::Base::purge_some`].
    pub(crate) fn purge_some(
        &self,
        range: KeySpan<&[u8]>,
        rules: &PruneRules,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, IndexError> {
        let purge = Purge { position: Some(range.start.to_vec()), range };
        match self.run(Work::new(Kind::Purge(purge), bytes_max), rules)?.kind {
            Kind::Purge(purge) => Ok(purge.position),
            Kind::Merge(_) => unreachable!("the work was a purge"),
        }
    }

    fn run<'w>(&self, work: Work<'w>, rules: &PruneRules) -> Result<Work<'w>, IndexError> {
        let mut work = self.run_locked(work, rules, false)?;
        while !work.has_begun
            && let Some(key) = work.missing.take()
        {
            self.leaf_for(&key, Io::Allowed, LoadFor::Merge)?;
            // It may have been evicted again before the lock is held: then it is read under the lock.
            work = self.run_locked(work, rules, true)?;
        }
        Ok(work)
    }

    fn run_locked<'w>(
        &self,
        work: Work<'w>,
        rules: &PruneRules,
        may_load: bool,
    ) -> Result<Work<'w>, IndexError> {
        let mut maintenance = self.maintenance.lock();
        let pending = maintenance.changes();
        let leaves = LeafMerger::new(self, rules);
        let mut merger = Merger { tree: self, work, leaves, pending, may_load, has_restructured: false };
        let result = merger.merge_root();
        if result.is_ok() {
            merger.shrink_root();
        }
        self.nodes.len.add(merger.leaves.added);
        self.nodes.superseded.add(merger.leaves.superseded);
        result.map(|()| merger.work)
    }
}

impl Merger<'_, '_> {
    fn merge_root(&mut self) -> Result<(), IndexError> {
        let root = Arc::clone(&self.tree.root);
        if self.work.peek(None).is_none() {
            return Ok(());
        }
        let Outcome::Replaced(Replacement { mut children, retired }) =
            self.merge_slot(&root, Fences::ROOT)?
        else {
            return Ok(());
        };
        let mut level = match children[0].slot.node() {
            Ok(Node::Inner(inner)) => inner.level() + 1,
            _ => 1,
        };
        loop {
            let mut nodes = self.cut_inners(Fences::ROOT, level, children, false);
            if nodes.len() == 1 {
                let (_, node) = nodes.remove(0);
                self.tree.replace(&root, Node::inner(node, &self.tree.nodes.residency), None);
                break;
            }
            children = self.new_children(nodes);
            level += 1;
        }
        self.retire(&retired);
        Ok(())
    }

    /// While the root has one child, and that can be read, moves the child's node into the root's slot.
    fn shrink_root(&mut self) {
        let root = Arc::clone(&self.tree.root);
        while let Ok(Node::Inner(inner)) = root.node() {
            let [child] = inner.children() else { break };
            let Ok(below) = self.tree.nodes.child_of(&inner, 0, LoadFor::Merge) else { break };
            let node = match below {
                // A node of its own: the child's knows from now on that it has left the tree.
                Node::Inner(below) => {
                    let (table, children) = (self.tree.nodes.table, below.to_children());
                    let own = Inner::build(table, Fences::ROOT, below.level(), &children);
                    Node::inner(own, &self.tree.nodes.residency)
                }
                leaf @ Node::Leaf(_) => leaf,
            };
            self.tree.replace(&root, node, None);
            self.tree.retire(child, self.pending);
        }
    }

    fn merge_slot(&mut self, slot: &Arc<Slot>, fences: Fences<'_>) -> Result<Outcome, IndexError> {
        let node = match slot.node() {
            Ok(node) => node,
            Err(_) if self.may_load && !self.work.has_begun => {
                self.tree.nodes.node_of(slot, fences, LoadFor::Merge)?
            }
            Err(_) => {
                self.work.missing = self.work.peek(None).map(<[u8]>::to_vec);
                return Ok(Outcome::Same);
            }
        };
        match node {
            Node::Leaf(leaf) => Ok(self.merge_leaf(slot, &leaf, fences)),
            Node::Inner(inner) => {
                let before = std::mem::take(&mut self.has_restructured);
                let result = self.merge_inner(slot, &inner, fences);
                if !matches!(result, Ok(Outcome::Same)) {
                    slot.mark(DIRTY_BELOW);
                }
                if self.has_restructured || result.is_err() {
                    slot.mark(DIRTY_BELOW | OUTDATED);
                }
                self.has_restructured |= before;
                result
            }
        }
    }

    fn merge_leaf(&mut self, slot: &Arc<Slot>, leaf: &Leaf, fences: Fences<'_>) -> Outcome {
        let Some(mut pieces) = self.leaves.merge(leaf, fences, &mut self.work) else { return Outcome::Same };
        if pieces.len() == 1 {
            let leaf = pieces.remove(0).leaf;
            self.tree.replace(slot, Node::leaf(leaf, &self.tree.nodes.residency), Some(&self.leaves.touched));
            return Outcome::Changed;
        }
        let child = |piece: super::node::leaf_writer::Piece| Child {
            lower: piece.lower.into_boxed_slice(),
            slot: self.tree.nodes.fresh_slot(Node::leaf(piece.leaf, &self.tree.nodes.residency)),
            may_be_small: false,
        };
        let children = pieces.into_iter().map(child).collect();
        Outcome::Replaced(Replacement { children, retired: vec![Arc::clone(slot)] })
    }

    fn merge_inner(
        &mut self,
        slot: &Arc<Slot>,
        inner: &Inner,
        fences: Fences<'_>,
    ) -> Result<Outcome, IndexError> {
        let mut edits: Vec<(usize, Vec<Child>)> = Vec::new();
        let mut retired = Vec::new();
        let mut small = Vec::new();
        let mut changed = false;
        while let Some(key) = self.work.peek(fences.upper) {
            let index = inner.child_index(key);
            let child = &inner.children()[index];
            match self.merge_slot(child, inner.child_fences(index))? {
                Outcome::Same => continue,
                Outcome::Changed if self.tree.is_small(child) => small.push(index),
                Outcome::Changed => {}
                Outcome::Replaced(replacement) => {
                    edits.push((index, replacement.children));
                    retired.extend(replacement.retired);
                }
            }
            changed = true;
        }
        if edits.is_empty() && small.is_empty() {
            return Ok(if changed { Outcome::Changed } else { Outcome::Same });
        }
        let appends = edits.first().is_some_and(|(index, _)| index + 1 == inner.children().len());
        let rebuilt = !edits.is_empty();
        let mut children = edit(inner, edits, &small);
        let before = children.len();
        self.join_small(&mut children, fences.upper, inner.level() - 1, &mut retired);
        if !rebuilt && children.len() == before {
            return Ok(Outcome::Changed);
        }
        let mut nodes = self.cut_inners(fences, inner.level(), children, appends);
        if nodes.len() == 1 {
            let (_, node) = nodes.remove(0);
            self.tree.replace(slot, Node::inner(node, &self.tree.nodes.residency), None);
            self.has_restructured = true;
            self.retire(&retired);
            return Ok(Outcome::Changed);
        }
        retired.push(Arc::clone(slot));
        Ok(Outcome::Replaced(Replacement { children: self.new_children(nodes), retired }))
    }

    fn retire(&mut self, slots: &[Arc<Slot>]) {
        for slot in slots {
            if !Arc::ptr_eq(slot, &self.tree.root) {
                self.tree.retire(slot, self.pending);
            }
        }
    }
}

/// The children of `inner`, some of them replaced, some marked as possibly small.
fn edit(inner: &Inner, edits: Vec<(usize, Vec<Child>)>, small: &[usize]) -> Vec<Child> {
    let mut old = inner.to_children();
    for index in small {
        old[*index].may_be_small = true;
    }
    let mut children = Vec::with_capacity(old.len() + edits.len());
    let mut old = old.into_iter().enumerate();
    for (index, new) in edits {
        children.extend(old.by_ref().take_while(|(own, _)| *own < index).map(|(_, child)| child));
        children.extend(new);
    }
    children.extend(old.map(|(_, child)| child));
    children
}
