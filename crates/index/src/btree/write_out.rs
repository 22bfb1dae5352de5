//! Writes dirty nodes: first the leaves, a few at a time and without a lock, then the inner nodes above them. Merges go
//! on between two steps.
//!
//! INV-IDX-11. *A written root names nothing that a merge has replaced, and holds everything that was merged before its
//! pass began.* A pass is from [`begin_write_out`](crate::Base::begin_write_out) to
//! [`finish_write_out`](crate::Base::finish_write_out).
//! 1. A slot's fences never change (INV-IDX-1). So a leaf's record fits its slot, however old it is: a leaf that was cut
//!    or joined meanwhile has left the tree with its slot, and the new ones have no record.
//! 2. The last step writes every leaf that is dirty and that no step of this pass wrote. A dirty leaf that a step of this
//!    pass wrote has been changed since: its record holds what was merged before the pass began, and is named as it is.
//!    Such a leaf stays dirty.
//! 3. The last step writes every inner node that is dirty or above a dirty one. The record of an inner node may be named
//!    only if everything below it is clean: the records that it names count as live only until the tree has newer ones.
//!    Only the last step writes inner nodes, and it holds the lock that merges need.
//! 4. An older record never replaces a newer one. A step notes the record that the slot has when it picks the leaf, and
//!    drops what it wrote if the slot has another one by then, or has left the tree.
//!
//! A node is dirty, or above a dirty one, in its own flags. Only a holder of the tree's maintenance lock changes them: a
//! step clears a leaf's flag only if its slot still has the node that the step wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_types::Lsn;
use fulgurite_types::sync::yield_now;

use super::account::{Changed, DiskState, count, count_extents};
use super::node::delta;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::options::DeltaShape;
use super::slot::{DIRTY, DIRTY_BELOW, Node, Slot};
use super::tree::{Maintenance, Tree};
use crate::{AccountChange, IndexError, NodeKind, NodeStore, WriteOut, WriteOutReport};

/// Account changes, in bytes by segment, that no report has named yet.
#[derive(Debug, Default)]
pub(crate) struct Pending(BTreeMap<u32, i64>);

impl Pending {
    fn add(&mut self, changes: &[AccountChange]) {
        for (segment, bytes) in changes {
            *self.0.entry(*segment).or_default() += bytes;
        }
    }

    pub(crate) fn subtract(&mut self, changes: &[AccountChange]) {
        for (segment, bytes) in changes {
            *self.0.entry(*segment).or_default() -= bytes;
        }
    }

    fn take(&mut self) -> Vec<AccountChange> {
        std::mem::take(&mut self.0).into_iter().filter(|(_, bytes)| *bytes != 0).collect()
    }
}

/// After this many leaves a step gives its processor to a thread that waits for one, as a merge does after each step.
const LEAVES_BETWEEN_YIELDS: usize = 8;

/// A dirty leaf that a step picked: the node and the record that its slot had then.
struct Picked {
    slot: Arc<Slot>,
    leaf: Arc<Leaf>,
    lsn: Lsn,
    last: Option<DiskState>,
}

/// The leaves of one step.
struct Picking<'a> {
    pass: &'a mut WriteOut,
    store: &'a dyn NodeStore,
    bytes_max: usize,
    picked: Vec<Picked>,
}

impl Picking<'_> {
    /// Picks dirty leaves at or above `from` in a slot or below it, whose upper fence is `upper`. Once the step has
    /// enough, sets the position of the pass.
    fn visit(&mut self, slot: &Arc<Slot>, from: &[u8], upper: Option<&[u8]>) {
        if !slot.is_dirty() {
            return;
        }
        match slot.node_unmarked().unwrap_or_else(|_| unreachable!("dirty nodes stay in memory")) {
            Node::Leaf(leaf) => self.pick(slot, leaf, upper),
            Node::Inner(inner) => {
                for index in inner.child_index(from)..inner.children().len() {
                    self.visit(&inner.children()[index], from, inner.child_fences(index).upper);
                    if self.pass.position.is_some() {
                        return;
                    }
                }
            }
        }
    }

    fn pick(&mut self, slot: &Arc<Slot>, leaf: Arc<Leaf>, upper: Option<&[u8]>) {
        if slot.is_written_since(self.pass.number) {
            return;
        }
        slot.remember(self.store);
        let bytes = leaf.bytes().len();
        self.picked.push(Picked {
            slot: Arc::clone(slot),
            leaf,
            lsn: slot.lsn(),
            last: slot.disk().as_deref().cloned(),
        });
        self.pass.picked(bytes);
        self.bytes_max = self.bytes_max.saturating_sub(bytes);
        if self.bytes_max == 0 {
            self.pass.position = upper.map(<[u8]>::to_vec);
        }
    }
}

impl Slot {
    /// Whether the newest record was written by pass `number` or a later one.
    fn is_written_since(&self, number: u64) -> bool {
        self.disk().as_ref().is_some_and(|disk| disk.pass >= number)
    }
}

impl Maintenance {
    /// A record of a slot's node was written.
    fn install(&mut self, slot: &Slot, lsn: Lsn, disk: DiskState) {
        self.pending.add(&disk.counted);
        slot.set_lsn(lsn);
        if let Some(last) = slot.disk().replace(Box::new(disk)) {
            self.pending.subtract(&last.counted);
        }
        slot.set_clean();
    }

    /// A record of a picked leaf was written. By now the slot may have left the tree or have a newer record, which counts;
    /// or it has another node, or a wish that its full record be written again.
    fn install_leaf(&mut self, picked: &Picked, lsn: Lsn, mut disk: DiskState) {
        let Picked { slot, leaf, last, .. } = picked;
        if slot.lsn() != picked.lsn || slot.is_retired() {
            return;
        }
        let changed = slot.disk().as_ref().map(|now| now.changed.clone());
        let is_same_node = matches!(slot.node_unmarked(), Ok(Node::Leaf(now)) if Arc::ptr_eq(&now, leaf));
        let is_full = disk.deltas == 0;
        let is_settled =
            is_same_node && (is_full || changed.as_ref() == last.as_ref().map(|last| &last.changed));
        if !is_settled {
            // A delta record leaves the full record as it is, and what changed since that.
            disk.changed = if is_full { Changed::Whole } else { changed.unwrap_or(Changed::Whole) };
        }
        self.install(slot, lsn, disk);
        if !is_settled {
            slot.mark(DIRTY);
        }
    }
}

impl Tree {
    /// See [`crate::Base::begin_write_out`].
    pub(crate) fn begin_write_out(&self) -> WriteOut {
        let mut maintenance = self.maintenance.lock();
        maintenance.passes += 1;
        WriteOut::new(maintenance.passes)
    }

    /// See [`crate::Base::write_some`].
    pub(crate) fn write_some(
        &self,
        pass: &mut WriteOut,
        bytes_max: usize,
    ) -> Result<Vec<AccountChange>, IndexError> {
        let picked = self.pick(pass, bytes_max);
        let mut failure = None;
        let mut written = Vec::with_capacity(picked.len());
        for (index, picked) in picked.iter().enumerate() {
            if index % LEAVES_BETWEEN_YIELDS == 0 {
                yield_now();
            }
            match self.write_leaf(&picked.leaf, picked.last.as_ref(), pass.number) {
                Ok(record) => written.push(record),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        // Once for all: each time a merge may hold the lock for a step of its own.
        let mut maintenance = self.maintenance.lock();
        for (picked, (kind, lsn, disk)) in picked.iter().zip(written) {
            pass.records_written[kind as usize] += 1;
            maintenance.install_leaf(picked, lsn, disk);
        }
        match failure {
            None => Ok(maintenance.pending.take()),
            Some(error) => Err(error),
        }
    }

    /// See [`crate::Base::finish_write_out`].
    pub(crate) fn finish_write_out(&self, mut pass: WriteOut) -> Result<WriteOutReport, IndexError> {
        let mut maintenance = self.maintenance.lock();
        if !self.drop_records_if_empty(&mut maintenance) {
            self.write_slot(&self.root, true, &mut pass, &mut maintenance)?;
        }
        let accounts = maintenance.pending.take();
        Ok(WriteOutReport { root: self.root.lsn(), accounts, records_written: pass.records_written })
    }

    /// Picks dirty leaves that the pass has not written, from its position on, until they have `bytes_max` bytes, and
    /// moves the position behind them.
    fn pick(&self, pass: &mut WriteOut, bytes_max: usize) -> Vec<Picked> {
        let _maintenance = self.maintenance.lock();
        let Some(from) = pass.position.take() else { return Vec::new() };
        let mut picking = Picking { pass, store: &*self.nodes.store, bytes_max, picked: Vec::new() };
        picking.visit(&self.root, &from, None);
        let picked = picking.picked;
        if pass.position.is_none() {
            pass.traversed();
        }
        picked
    }

    /// If the tree is empty, drops its records: an empty tree has none. Returns whether it is empty.
    fn drop_records_if_empty(&self, maintenance: &mut Maintenance) -> bool {
        let root = &self.root;
        let Ok(Node::Leaf(leaf)) = root.node() else { return false };
        if leaf.count() > 0 {
            return false;
        }
        root.remember(&*self.nodes.store);
        if let Some(disk) = root.disk().take() {
            maintenance.pending.subtract(&disk.counted);
        }
        root.set_lsn(Lsn::NULL);
        root.set_clean();
        true
    }

    /// Writes what is dirty in a slot and below it. Afterwards the slot's record is as the pass needs it.
    fn write_slot(
        &self,
        slot: &Slot,
        is_root: bool,
        pass: &mut WriteOut,
        maintenance: &mut Maintenance,
    ) -> Result<(), IndexError> {
        if !slot.is_dirty() {
            return Ok(());
        }
        let node = slot.node().unwrap_or_else(|_| unreachable!("dirty nodes stay in memory"));
        if matches!(node, Node::Leaf(_)) && slot.is_written_since(pass.number) {
            return Ok(());
        }
        slot.remember(&*self.nodes.store);
        let ((kind, lsn, disk), is_dirty_below) = match &node {
            Node::Inner(inner) => {
                for child in inner.children() {
                    self.write_slot(child, false, pass, maintenance)?;
                }
                let is_dirty_below = inner.children().iter().any(|child| child.is_dirty());
                (self.write_inner(inner, is_root, pass.number)?, is_dirty_below)
            }
            Node::Leaf(leaf) => {
                let last = slot.disk();
                (self.write_leaf(leaf, last.as_deref(), pass.number)?, false)
            }
        };
        pass.records_written[kind as usize] += 1;
        maintenance.install(slot, lsn, disk);
        if is_dirty_below {
            slot.mark(DIRTY_BELOW);
        }
        Ok(())
    }

    fn write_inner(
        &self,
        inner: &Inner,
        is_root: bool,
        pass: u64,
    ) -> Result<(NodeKind, Lsn, DiskState), IndexError> {
        let entries = if is_root { self.nodes.len.get() } else { 0 };
        self.write_whole(NodeKind::Internal, &inner.encode(entries), Vec::new(), pass)
    }

    /// Writes a leaf whose newest record has the state `last`.
    fn write_leaf(
        &self,
        leaf: &Leaf,
        last: Option<&DiskState>,
        pass: u64,
    ) -> Result<(NodeKind, Lsn, DiskState), IndexError> {
        if let Some(written) = self.write_delta(leaf, last, pass)? {
            return Ok(written);
        }
        let mut counted = Vec::new();
        count_extents(leaf, &mut counted);
        self.write_whole(NodeKind::Leaf, leaf.bytes(), counted, pass)
    }

    fn write_whole(
        &self,
        kind: NodeKind,
        body: &[u8],
        mut counted: Vec<AccountChange>,
        pass: u64,
    ) -> Result<(NodeKind, Lsn, DiskState), IndexError> {
        let full = self.write(kind, body)?;
        let full_bytes = self.nodes.store.node_bytes(body.len());
        count(&mut counted, full.segment(), i64::from(full_bytes));
        let changed = Changed::Keys(Vec::new());
        Ok((kind, full, DiskState { full, full_bytes, deltas: 0, changed, counted, pass }))
    }

    /// Writes a leaf delta record if the leaf has a full record and the rule prefers it.
    fn write_delta(
        &self,
        leaf: &Leaf,
        last: Option<&DiskState>,
        pass: u64,
    ) -> Result<Option<(NodeKind, Lsn, DiskState)>, IndexError> {
        let Some(last) = last.filter(|last| last.deltas < self.options.max_deltas) else { return Ok(None) };
        let Changed::Keys(keys) = &last.changed else { return Ok(None) };
        let deltas = last.deltas + 1;
        let delta = delta::encode(leaf, self.nodes.table, last.full, deltas, keys);
        let shape = DeltaShape {
            leaf_bytes: leaf.bytes().len() as u64,
            leaf_entries: leaf.count() as u64,
            delta_bytes: delta.body.len() as u64,
            delta_entries: delta.entries as u64,
        };
        if !self.options.delta_rule.prefers_delta(&shape) {
            return Ok(None);
        }
        let lsn = self.write(NodeKind::LeafDelta, &delta.body)?;
        let mut counted = Vec::new();
        count_extents(leaf, &mut counted);
        count(&mut counted, last.full.segment(), i64::from(last.full_bytes));
        count(&mut counted, lsn.segment(), i64::from(self.nodes.store.node_bytes(delta.body.len())));
        let DiskState { full, full_bytes, .. } = *last;
        let changed = Changed::Keys(keys.clone());
        let disk = DiskState { full, full_bytes, deltas, changed, counted, pass };
        Ok(Some((NodeKind::LeafDelta, lsn, disk)))
    }

    fn write(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, IndexError> {
        let failed = |source| IndexError::Store { table: self.nodes.table, lsn: Lsn::NULL, source };
        self.nodes.store.write_node(kind, body).map_err(failed)
    }
}
