//! Eviction: a clock over the slots of a tree, in steps. It drops clean nodes from memory, and writes dirty leaves so that
//! they can be dropped.
//!
//! A node that was read since the hand last came by stays, and stays once more when the hand comes again: leaves that are read
//! often outlive those that a scan reads once, which have no such mark when they were loaded. (A clock with two chances and
//! probation; S3-FIFO, Yang and others, SOSP 2023, has the same in queues.) Two rules keep what loads leaves from pressing out
//! leaves that are read often (`docs/memory.md` has figures): reads count only from the next batch of evictions on, because one
//! operation may read the leaf that it loads several times; and while many leaves are unread, the hand takes only those.
//!
//! An inner node with a child in memory stays, because only that child's slot knows the child's changes. So one that is written
//! names the newest record of each child. It takes more than its own bytes: a slot for each child. The slots of all leaves take
//! more than a hundredth of what the leaves take: half of a budget that is a fortieth of the leaves, whatever is in memory of these.
//! A dirty root stays: a checkpoint sees by it that a tree has changed.
//!
//! **INV-IDX-13.** *A record that eviction wrote is live for the next write-out, and its bytes are in the next report.* A
//! step of eviction is one of a pass of its own (INV-IDX-11): it picks nodes under the lock, writes them without, and
//! installs the records of those whose slots still have the record with which they were picked. All nodes above a leaf become
//! outdated then, and those above an inner node that is picked are. They stay so until a record names the new one: a write-out's,
//! or that of an inner node that eviction writes, and the root is dirty until a write-out. The changes of the accounts stay
//! with the tree until the checkpoint that writes it out takes them: no segment that was written since the last checkpoint began is freed before.

use std::sync::Arc;

use super::node::inner::Inner;
use super::pick::Picked;
use super::slot::{Node, OUTDATED, Slot};
use super::tree::Tree;
use crate::{Evicted, EvictionStep, IndexError, NodeKind, WriteOut};

/// At most how many rounds [`Tree::evict`] makes: two in which a node may be spared, and the one that takes it.
const ROUNDS: usize = 3;

/// The state of the clock between two steps.
#[derive(Default)]
pub(crate) struct ClockHand {
    /// The key at which it stopped.
    at: Vec<u8>,
    evictions: usize,
}

/// A step of the clock.
struct Sweep<'a> {
    tree: &'a Tree,
    hand: &'a mut ClockHand,
    step: EvictionStep,
    picked: Vec<Picked>,
    evicted: Evicted,
    /// Whether it passed by a node only because it may write no more.
    left_dirty: bool,
    /// The lower fence of the slot at which the step ended.
    ended_at: Option<Vec<u8>>,
}

impl Tree {
    /// See [`crate::Base::evict`].
    pub(crate) fn evict(&self, bytes_max: usize) -> usize {
        let residency = &*self.nodes.residency;
        self.maintenance.lock().clock.at.clear();
        for _ in 0..ROUNDS {
            let bytes = residency.bytes().saturating_sub(bytes_max);
            if bytes == 0 {
                break;
            }
            let step = EvictionStep { bytes, ..EvictionStep::ALL_CLEAN };
            self.evict_some(&step).unwrap_or_else(|_| unreachable!("nothing was written"));
        }
        residency.bytes()
    }

    /// See [`crate::Base::evict_some`].
    pub(crate) fn evict_some(&self, step: &EvictionStep) -> Result<Evicted, IndexError> {
        let residency = &self.nodes.residency;
        residency.unlist();
        let (mut evicted, picked, mut pass) = {
            let maintenance = &mut *self.maintenance.lock();
            let (evicted, picked, is_exhausted) = self.sweep(step, &mut maintenance.clock);
            if !is_exhausted {
                residency.list();
            }
            if picked.is_empty() {
                return Ok(evicted);
            }
            maintenance.passes += 1;
            (evicted, picked, WriteOut::to_evict(maintenance.passes, step))
        };
        let outcome = self.write_step(&picked, &mut pass);
        let mut maintenance = self.maintenance.lock();
        for Picked { slot, .. } in &picked {
            // It may have changed, or been read, while it was written; a child of it may have been loaded.
            let is_needed =
                matches!(slot.node_unmarked(), Ok(Node::Inner(inner)) if inner.has_resident_child());
            if slot.is_resident()
                && !slot.is_dirty()
                && !slot.is_retired()
                && !is_needed
                && !slot.take_chance()
            {
                maintenance.clock.evict(slot, &mut evicted);
            }
        }
        let written_inner_nodes = pass.records_written[NodeKind::Internal as usize];
        evicted.written_inner_nodes += written_inner_nodes;
        residency.memory().count_written_to_evict(pass.bytes_written);
        evicted.written_leaves += pass.records_written.iter().sum::<u64>() - written_inner_nodes;
        outcome.map(|()| evicted)
    }

    /// Returns, too, whether the tree has nothing that another step could give back, unless a node comes into memory or
    /// becomes clean.
    fn sweep(&self, step: &EvictionStep, hand: &mut ClockHand) -> (Evicted, Vec<Picked>, bool) {
        let from = std::mem::take(&mut hand.at);
        let mut sweep = Sweep {
            tree: self,
            hand,
            step: *step,
            picked: Vec::new(),
            evicted: Evicted::default(),
            left_dirty: false,
            ended_at: None,
        };
        match self.root.node_unmarked() {
            Ok(Node::Inner(inner)) => {
                sweep.visit_children(&inner, &from);
                sweep.visit_inner(&self.root, &inner);
            }
            // The empty tree has no record to be loaded from.
            Ok(Node::Leaf(_)) if !self.root.lsn().is_null() => sweep.visit_leaf(&self.root),
            Ok(Node::Leaf(_)) | Err(_) => {}
        }
        let is_exhausted = from.is_empty() && sweep.found_nothing();
        let Sweep { picked, mut evicted, ended_at, .. } = sweep;
        evicted.is_round_over = ended_at.is_none();
        hand.at = ended_at.unwrap_or_default();
        (evicted, picked, is_exhausted)
    }
}

impl ClockHand {
    fn evict(&mut self, slot: &Slot, evicted: &mut Evicted) {
        self.evictions += 1;
        evicted.bytes += slot.evict(self.evictions);
        evicted.nodes += 1;
    }
}

impl Sweep<'_> {
    fn is_done(&self) -> bool {
        self.step.bytes == 0 || self.step.slots == 0
    }

    /// Whether it came to the end of the tree, and found nothing that it gave back, or that it would have with another
    /// step's means or after another round.
    fn found_nothing(&self) -> bool {
        let Evicted { nodes, spared, .. } = self.evicted;
        let is_whole = self.ended_at.is_none() && !self.is_done() && !self.step.unread_only;
        is_whole && nodes + spared == 0 && self.picked.is_empty() && !self.left_dirty
    }

    /// Visits the children at or above `from`.
    fn visit_children(&mut self, inner: &Inner, from: &[u8]) {
        let first = if inner.fences().lower < from { inner.child_index(from) } else { 0 };
        for (index, child) in inner.children().iter().enumerate().skip(first) {
            // The step may have ended below the child before this one.
            if self.ended_at.is_none() && self.is_done() {
                self.ended_at = Some(inner.child_fences(index).lower.to_vec());
            }
            if self.ended_at.is_some() {
                return;
            }
            self.step.slots -= 1;
            if !child.is_resident() {
                continue;
            }
            if inner.level() == 1 {
                self.visit_leaf(child);
            } else if let Ok(Node::Inner(below)) = child.node_unmarked() {
                self.visit_children(&below, from);
                self.visit_inner(child, &below);
            }
        }
    }

    /// Reads only the slot: the leaf itself may have left the processor's cache long ago.
    fn visit_leaf(&mut self, slot: &Arc<Slot>) {
        if self.step.unread_only && !slot.is_unread() {
            return;
        }
        if slot.is_dirty() && Arc::ptr_eq(slot, &self.tree.root) {
            // Not spared: another round would give as little.
            return;
        }
        if slot.take_chance() {
            self.evicted.spared += 1;
            return;
        }
        if !slot.is_dirty() {
            self.evict(slot);
        } else if self.step.write_bytes == 0 {
            self.left_dirty = true;
        } else {
            let picked = self.tree.pick(slot);
            self.pick(picked);
        }
    }

    /// Visits an inner node after its children.
    fn visit_inner(&mut self, slot: &Arc<Slot>, inner: &Inner) {
        if self.step.unread_only {
            return;
        }
        let is_spared = slot.take_chance();
        let is_root = Arc::ptr_eq(slot, &self.tree.root);
        // An outdated node may be written, with what is outdated above it.
        let is_writable = !is_root && slot.has(OUTDATED);
        if slot.is_dirty() && !is_writable || self.is_done() || inner.has_resident_child() {
            // Not spared: another round would give as little. Every reader reads the root.
            return;
        }
        if slot.is_dirty() && (self.step.write_bytes == 0 || self.step.for_checkpoint) {
            self.left_dirty = true;
            return;
        }
        if is_spared {
            self.evicted.spared += 1;
            return;
        }
        if slot.is_dirty() {
            let picked = self.tree.pick_exact(slot, inner);
            self.pick(picked);
        } else {
            self.evict(slot);
        }
    }

    /// Takes a dirty node to be written, and given back then.
    fn pick(&mut self, picked: Picked) {
        self.step.write_bytes = self.step.write_bytes.saturating_sub(picked.bytes());
        self.step.bytes = self.step.bytes.saturating_sub(picked.bytes());
        self.picked.push(picked);
    }

    fn evict(&mut self, slot: &Slot) {
        let before = self.evicted.bytes;
        self.hand.evict(slot, &mut self.evicted);
        self.step.bytes = self.step.bytes.saturating_sub(self.evicted.bytes - before);
    }
}
