//! Drops clean nodes from memory: a clock over the leaves, then inner nodes without resident children.
//!
//! An inner node with a resident child stays, because only that child's slot knows the child's changes. Dirty nodes
//! stay. A leaf that was read since the clock last passed gets a second chance.

use super::node::inner::Inner;
use super::slot::{Node, Residency, Slot};
use super::tree::Tree;

/// At most how many rounds a call makes over the leaves alone. A round evicts each clean leaf whose reference bit is
/// clear, and clears the others' bits. One more round also evicts inner nodes without resident children.
const ROUNDS: usize = 3;

/// The state of the clock between two calls.
#[derive(Default)]
pub(crate) struct ClockHand {
    /// The key at which it stopped.
    at: Vec<u8>,
    evictions: usize,
}

struct Clock<'a> {
    residency: &'a Residency,
    bytes_max: usize,
    /// The key to start from; nothing before it is evicted.
    start: Option<Vec<u8>>,
    takes_inner: bool,
    hand: &'a mut ClockHand,
}

impl Tree {
    /// See [`crate::Base::evict`].
    pub(crate) fn evict(&self, bytes_max: usize) -> usize {
        let hand = &mut self.maintenance.lock().clock;
        let residency = &*self.nodes.residency;
        let start = Some(std::mem::take(&mut hand.at));
        let mut clock = Clock { residency, bytes_max, start, takes_inner: false, hand };
        for round in 0..=ROUNDS {
            if clock.is_done() {
                break;
            }
            clock.takes_inner = round == ROUNDS;
            clock.visit(&self.root);
            if !clock.is_done() {
                // Wrap: the next round starts with the first leaf.
                clock.start = None;
                clock.hand.at.clear();
            }
        }
        residency.bytes()
    }
}

impl Clock<'_> {
    fn is_done(&self) -> bool {
        self.residency.bytes() <= self.bytes_max
    }

    fn visit(&mut self, slot: &Slot) {
        match slot.node_unmarked() {
            Ok(Node::Leaf(_)) => self.visit_leaf(slot),
            Ok(Node::Inner(inner)) => {
                self.visit_children(&inner);
                let has_resident_child = inner.children().iter().any(|child| child.is_resident());
                if self.takes_inner && !self.is_done() && !slot.is_dirty() && !has_resident_child {
                    self.evict(slot);
                }
            }
            Err(_) => {}
        }
    }

    /// Reads only the slot: the leaf itself may have left the processor's cache long ago.
    fn visit_leaf(&mut self, slot: &Slot) {
        let is_empty_root = slot.lsn().is_null();
        if slot.is_resident() && !slot.take_referenced() && !slot.is_dirty() && !is_empty_root {
            self.evict(slot);
        }
    }

    fn visit_children(&mut self, inner: &Inner) {
        let first = self.start.as_deref().map_or(0, |hand| inner.child_index(hand));
        for (index, child) in inner.children().iter().enumerate().skip(first) {
            if self.is_done() {
                break;
            }
            if inner.level() == 1 {
                self.hand.at.clear();
                self.hand.at.extend_from_slice(inner.child_fences(index).lower);
                self.visit_leaf(child);
            } else if child.is_resident() {
                self.visit(child);
            }
            self.start = None;
        }
    }

    fn evict(&mut self, slot: &Slot) {
        self.hand.evictions += 1;
        slot.evict(self.hand.evictions);
    }
}
