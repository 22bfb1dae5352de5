//! Picks the nodes that a step of writing out writes, or the end of a pass, with what it takes to write them without the
//! tree's lock.

use std::sync::Arc;

use fulgurite_types::Lsn;

use super::account::DiskState;
use super::node::inner::Inner;
use super::slot::{Node, OUTDATED, Slot};
use super::tree::{Maintenance, Tree};
use crate::{NodeStore, WriteOut};

/// A node that was picked, and the record that its slot had then.
pub(crate) struct Picked {
    pub slot: Arc<Slot>,
    pub node: Node,
    pub lsn: Lsn,
    pub last: Option<DiskState>,
    /// Of an inner node: the record of each child.
    pub named: Vec<Named>,
}

/// The record of a child that a parent's record will name.
#[derive(Clone, Copy)]
pub(crate) enum Named {
    Old(Lsn),
    /// The child was picked, too: its index among those that were.
    Picked(usize),
}

/// The nodes of one step or of the end of a pass, children before their parents.
struct Picking<'a> {
    pass: &'a mut WriteOut,
    store: &'a dyn NodeStore,
    /// Where the step begins.
    from: Vec<u8>,
    bytes_max: usize,
    picked: Vec<Picked>,
}

/// A step that writes inner nodes reads the slots of all their children, which are much more memory: it picks this much
/// less than one that writes leaves.
const INNER_SHARE: usize = 4;

impl Slot {
    /// Whether the newest record was written by pass `number` or a later one.
    pub(crate) fn is_written_since(&self, number: u64) -> bool {
        self.disk().as_ref().is_some_and(|disk| disk.pass >= number)
    }

    /// The node of a slot that is dirty, or outdated.
    fn dirty_node(&self) -> Node {
        self.node_unmarked().unwrap_or_else(|_| unreachable!("dirty nodes stay in memory"))
    }
}

impl Picking<'_> {
    /// Picks dirty leaves at or above `from` in a slot or below it, whose upper fence is `upper`. Once the step has
    /// enough, sets the position of the pass.
    fn visit_leaves(&mut self, slot: &Arc<Slot>, upper: Option<&[u8]>) {
        if !slot.is_dirty() {
            return;
        }
        match slot.dirty_node() {
            Node::Leaf(_) if slot.is_written_since(self.pass.number) => {}
            node @ Node::Leaf(_) => {
                let bytes = self.push(slot, node, Vec::new());
                self.spend(bytes, upper);
            }
            Node::Inner(inner) => {
                for index in self.first_child(&inner)..inner.children().len() {
                    self.visit_leaves(&inner.children()[index], inner.child_fences(index).upper);
                    if self.pass.position.is_some() {
                        return;
                    }
                }
            }
        }
    }

    /// The same for outdated nodes right above leaves. The root is left to the end of the pass.
    fn visit_above_leaves(&mut self, slot: &Arc<Slot>) {
        if !slot.has(OUTDATED) {
            return;
        }
        let Node::Inner(inner) = slot.dirty_node() else { return };
        for index in self.first_child(&inner)..inner.children().len() {
            let child = &inner.children()[index];
            if inner.level() == 2 && child.has(OUTDATED) {
                let before = self.picked.len();
                self.take_outdated(child);
                let bytes = self.picked[before..].iter().map(Picked::bytes).sum();
                self.spend(bytes, inner.child_fences(index).upper);
            } else if inner.level() > 2 {
                self.visit_above_leaves(child);
            }
            if self.pass.position.is_some() {
                return;
            }
        }
    }

    /// The child of a node from which on the step picks.
    fn first_child(&self, inner: &Inner) -> usize {
        // A node finds the child of a key that is in its range only.
        if inner.fences().lower < &*self.from { inner.child_index(&self.from) } else { 0 }
    }

    /// Picks an outdated node and all that are below it, as they are at this moment; returns its index.
    fn take_outdated(&mut self, slot: &Arc<Slot>) -> usize {
        let node = slot.dirty_node();
        let named = match &node {
            Node::Leaf(_) => Vec::new(),
            Node::Inner(inner) => inner.children().iter().map(|child| self.name(child)).collect(),
        };
        self.push(slot, node, named);
        self.picked.len() - 1
    }

    fn name(&mut self, child: &Arc<Slot>) -> Named {
        match child.has(OUTDATED) {
            true => Named::Picked(self.take_outdated(child)),
            false => Named::Old(child.lsn()),
        }
    }

    fn push(&mut self, slot: &Arc<Slot>, node: Node, named: Vec<Named>) -> usize {
        self.picked.push(Picked::new(slot, node, named, self.store));
        self.picked.last().map_or(0, Picked::bytes)
    }

    /// A subtree of `bytes` below the fence `upper` was picked.
    fn spend(&mut self, bytes: usize, upper: Option<&[u8]>) {
        self.pass.picked(bytes);
        self.bytes_max = self.bytes_max.saturating_sub(bytes);
        if self.bytes_max == 0 {
            self.pass.position = upper.map(<[u8]>::to_vec);
        }
    }
}

impl Picked {
    fn new(slot: &Arc<Slot>, node: Node, named: Vec<Named>, store: &dyn NodeStore) -> Picked {
        slot.remember(store);
        let last = slot.disk().as_deref().cloned();
        Picked { slot: Arc::clone(slot), node, lsn: slot.lsn(), last, named }
    }

    /// Bytes of the node, of which a record has no more.
    pub(crate) fn bytes(&self) -> usize {
        match &self.node {
            Node::Leaf(leaf) => leaf.bytes().len(),
            Node::Inner(inner) => inner.len(),
        }
    }
}

impl Tree {
    /// Picks a dirty leaf. Maintenance only.
    pub(crate) fn pick(&self, slot: &Arc<Slot>) -> Picked {
        Picked::new(slot, slot.dirty_node(), Vec::new(), &*self.nodes.store)
    }

    /// Picks an outdated inner node above clean children: each has its newest record. Maintenance only.
    pub(crate) fn pick_exact(&self, slot: &Arc<Slot>, inner: &Inner) -> Picked {
        assert!(
            inner.children().iter().all(|child| !child.is_dirty()),
            "its record names what its children hold"
        );
        let named = inner.children().iter().map(|child| Named::Old(child.lsn())).collect();
        Picked::new(slot, slot.dirty_node(), named, &*self.nodes.store)
    }

    /// Picks nodes for a step, from the position of the pass on, until they have `bytes_max` bytes, and moves the
    /// position behind them: dirty leaves that the pass has not written; when it has, outdated nodes right above leaves.
    pub(crate) fn pick_some(&self, pass: &mut WriteOut, bytes_max: usize) -> Vec<Picked> {
        let mut maintenance = self.maintenance.lock();
        let Some(from) = pass.position.take() else { return Vec::new() };
        if self.drop_records_if_empty(&mut maintenance) {
            return Vec::new();
        }
        let mut picking = Picking { pass, store: &*self.nodes.store, from, bytes_max, picked: Vec::new() };
        if picking.pass.is_above_leaves {
            picking.bytes_max = (bytes_max / INNER_SHARE).max(1);
            picking.visit_above_leaves(&self.root);
        } else {
            picking.visit_leaves(&self.root, None);
        }
        let picked = picking.picked;
        if pass.position.is_none() {
            pass.traversed();
        }
        picked
    }

    /// Picks all outdated nodes.
    pub(crate) fn pick_outdated(&self, pass: &mut WriteOut, _lock: &mut Maintenance) -> Vec<Picked> {
        if !self.root.has(OUTDATED) {
            return Vec::new();
        }
        let store = &*self.nodes.store;
        let mut picking = Picking { pass, store, from: Vec::new(), bytes_max: 0, picked: Vec::new() };
        picking.take_outdated(&self.root);
        picking.picked
    }
}
