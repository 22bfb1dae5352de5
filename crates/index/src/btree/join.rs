//! Cuts inner nodes that grew, and joins small neighbours under one parent.

use std::sync::Arc;

use super::merge::Merger;
use super::node::format::{Fences, HEADER_BYTES};
use super::node::inner::{Child, Inner, child_weight};
use super::node::leaf::Leaf;
use super::node::leaf_writer::{Fill, LeafWriter};
use super::slot::{Node, Slot};
use super::tree::Tree;
use crate::LoadFor;

impl Tree {
    /// Whether a node is so small that it should join a neighbour.
    pub(crate) fn is_small(&self, slot: &Slot) -> bool {
        slot.node_unmarked().is_ok_and(|node| match &node {
            Node::Leaf(leaf) => leaf.bytes().len() < self.options.leaf_bytes / 4,
            Node::Inner(inner) => inner.len() < self.options.inner_bytes / 4 || is_empty(&node),
        })
    }
}

/// Whether a node must join a neighbour, however large that is.
fn is_empty(node: &Node) -> bool {
    match node {
        Node::Leaf(leaf) => leaf.count() == 0,
        Node::Inner(inner) => inner.children().len() == 1,
    }
}

impl Merger<'_, '_> {
    /// Cuts `children` into inner nodes of the target size, each with its lower fence.
    pub(crate) fn cut_inners(
        &self,
        fences: Fences<'_>,
        level: u8,
        children: Vec<Child>,
        appends: bool,
    ) -> Vec<(Box<[u8]>, Inner)> {
        let fence_bytes = fences.lower.len() + fences.upper.map_or(0, <[u8]>::len);
        let target = self.tree.options.inner_bytes;
        let room = target.saturating_sub(HEADER_BYTES + fence_bytes).max(target / 4);
        let mut rest_weight: usize = children.iter().map(|child| child_weight(&child.lower)).sum();
        let mut nodes = Vec::new();
        let mut rest = children.as_slice();
        while !rest.is_empty() {
            let goal = if rest_weight <= room {
                usize::MAX
            } else if appends {
                room * 15 / 16
            } else {
                rest_weight / rest_weight.div_ceil((room * 9 / 10).max(1)).max(2)
            };
            let (mut end, mut weight) = (0, 0);
            while end < rest.len() && (end < 2 || weight < goal) {
                weight += child_weight(&rest[end].lower);
                end += 1;
            }
            // A node with a single child would be joined again at once.
            if rest.len() - end == 1 {
                weight += child_weight(&rest[end].lower);
                end += 1;
            }
            let upper = rest.get(end).map(|child| &*child.lower).or(fences.upper);
            let lower = rest[0].lower.clone();
            let own = Fences { lower: &lower, upper, level: Some(level) };
            let node = Inner::build(self.tree.nodes.table, own, level, &rest[..end]);
            nodes.push((lower, node));
            rest = &rest[end..];
            rest_weight -= weight;
        }
        nodes
    }

    pub(crate) fn new_children(&self, nodes: Vec<(Box<[u8]>, Inner)>) -> Vec<Child> {
        let child = |(lower, node)| Child {
            lower,
            slot: self.tree.nodes.fresh_slot(Node::inner(node, &self.tree.nodes.residency)),
            may_be_small: false,
        };
        nodes.into_iter().map(child).collect()
    }

    /// Joins children that became small with their neighbours. `upper` is the last child's upper fence.
    pub(crate) fn join_small(
        &mut self,
        children: &mut Vec<Child>,
        upper: Option<&[u8]>,
        level: u8,
        retired: &mut Vec<Arc<Slot>>,
    ) {
        if !children.iter().any(|child| child.may_be_small) {
            return;
        }
        let mut joined: Vec<Child> = Vec::with_capacity(children.len());
        let mut rest = std::mem::take(children).into_iter();
        while let Some(child) = rest.next() {
            let upper = rest.as_slice().first().map(|next| &*next.lower).or(upper);
            let last = joined.last().filter(|last| last.may_be_small || child.may_be_small);
            if let Some(last) = last
                && let Some(mut node) = self.join(last, &child, upper, level, retired)
            {
                node.may_be_small = self.tree.is_small(&node.slot);
                retired.push(Arc::clone(&child.slot));
                let last = joined.last_mut().expect("it was just looked at");
                retired.push(std::mem::replace(last, node).slot);
                continue;
            }
            joined.push(child);
        }
        *children = joined;
    }

    /// One node from two neighbours, unless it would be too large; if one of them is empty, at any size. Beside a node that cannot be
    /// read it stays as it is: what was merged does not depend on the neighbour.
    fn join(
        &mut self,
        left: &Child,
        right: &Child,
        upper: Option<&[u8]>,
        level: u8,
        retired: &mut Vec<Arc<Slot>>,
    ) -> Option<Child> {
        let fences = Fences { lower: &left.lower, upper: Some(&right.lower), level: Some(level) };
        let right_fences = Fences { lower: &right.lower, upper, level: Some(level) };
        let empty = |child: &Child| child.slot.node_unmarked().is_ok_and(|node| is_empty(&node));
        let must = empty(left) || empty(right);
        let both_resident = left.slot.is_resident() && right.slot.is_resident();
        if !must && !both_resident {
            return None;
        }
        let load = |slot, fences| self.tree.nodes.node_of(slot, fences, LoadFor::Merge).ok();
        let nodes = (load(&left.slot, fences)?, load(&right.slot, right_fences)?);
        let fences = Fences { upper, ..fences };
        let slot = match nodes {
            (Node::Leaf(a), Node::Leaf(b)) => {
                if !must && a.bytes().len() + b.bytes().len() > self.tree.options.leaf_bytes * 3 / 4 {
                    return None;
                }
                self.tree
                    .nodes
                    .fresh_slot(Node::leaf(self.join_leaves(&a, &b, fences), &self.tree.nodes.residency))
            }
            (Node::Inner(a), Node::Inner(b)) => {
                if !must && a.len() + b.len() > self.tree.options.inner_bytes * 3 / 4 {
                    return None;
                }
                let mut children = a.to_children();
                let boundary = children.len();
                children.extend(b.to_children());
                for child in &mut children[boundary - 1..=boundary] {
                    child.may_be_small = self.tree.is_small(&child.slot);
                }
                self.join_small(&mut children, upper, level - 1, retired);
                let node = Inner::build(self.tree.nodes.table, fences, level, &children);
                self.tree.nodes.fresh_slot(Node::inner(node, &self.tree.nodes.residency))
            }
            _ => unreachable!("neighbours have one level"),
        };
        Some(Child { lower: left.lower.clone(), slot, may_be_small: false })
    }

    fn join_leaves(&self, left: &Leaf, right: &Leaf, fences: Fences<'_>) -> Leaf {
        let mut writer = LeafWriter::new(self.tree.nodes.table, usize::MAX / 1024);
        writer.begin(fences.lower);
        writer.copy(left, 0..left.count());
        writer.copy(right, 0..right.count());
        writer.finish(fences.upper, Fill::Even).pop().expect("there is a leaf").leaf
    }
}
