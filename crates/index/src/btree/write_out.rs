//! Writes the dirty nodes, bottom-up: every parent's record names its children's newest records. So a change to a leaf
//! writes all nodes above it.

use std::collections::BTreeMap;

use fulgurite_types::Lsn;

use super::account::{Changed, DiskState, count, count_extents};
use super::node::delta;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::options::{BTreeOptions, DeltaShape};
use super::slot::{Node, Slot};
use super::tree::{Nodes, Tree};
use crate::{AccountChange, IndexError, NodeKind, WriteOutReport};

/// Account changes, in bytes by segment, that the next successful [`write_out`](crate::Base::write_out) reports.
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
}

/// One pass over the dirty nodes.
struct WriteOut<'a> {
    nodes: &'a Nodes,
    options: &'a BTreeOptions,
    pending: &'a mut Pending,
    records_written: [u64; 4],
}

impl Tree {
    /// See [`crate::Base::write_out`]. After an error the next call continues where this one stopped, and reports
    /// the accounts of both.
    pub(crate) fn write_out(&self) -> Result<WriteOutReport, IndexError> {
        let pending = &mut self.maintenance.lock().pending;
        let mut pass =
            WriteOut { nodes: &self.nodes, options: &self.options, pending, records_written: [0; 4] };
        if !pass.drop_records_if_empty(&self.root) {
            pass.write_slot(&self.root, true)?;
        }
        let records_written = pass.records_written;
        let accounts = std::mem::take(&mut pending.0).into_iter().filter(|(_, bytes)| *bytes != 0).collect();
        Ok(WriteOutReport { root: self.root.lsn(), accounts, records_written })
    }
}

impl WriteOut<'_> {
    /// If the tree is empty, drops its records: an empty tree has none. Returns whether it is empty.
    fn drop_records_if_empty(&mut self, root: &Slot) -> bool {
        let Ok(Node::Leaf(leaf)) = root.node() else { return false };
        if leaf.count() > 0 {
            return false;
        }
        root.remember(&*self.nodes.store);
        if let Some(disk) = root.disk().take() {
            self.pending.subtract(&disk.counted);
        }
        root.set_lsn(Lsn::NULL);
        root.set_clean();
        true
    }

    fn write_slot(&mut self, slot: &Slot, is_root: bool) -> Result<(), IndexError> {
        if !slot.is_dirty() {
            return Ok(());
        }
        let node = slot.node().unwrap_or_else(|_| unreachable!("dirty nodes stay in memory"));
        if let Node::Inner(inner) = &node {
            for child in inner.children() {
                self.write_slot(child, false)?;
            }
        }
        slot.remember(&*self.nodes.store);
        let (kind, lsn, disk) = match &node {
            Node::Inner(inner) => self.write_inner(inner, is_root)?,
            Node::Leaf(leaf) => {
                let last = slot.disk();
                match self.write_delta(leaf, last.as_deref())? {
                    Some(written) => written,
                    None => self.write_leaf(leaf)?,
                }
            }
        };
        self.pending.add(&disk.counted);
        slot.set_lsn(lsn);
        if let Some(last) = slot.disk().replace(Box::new(disk)) {
            self.pending.subtract(&last.counted);
        }
        slot.set_clean();
        self.records_written[kind as usize] += 1;
        Ok(())
    }

    fn write_inner(&self, inner: &Inner, is_root: bool) -> Result<(NodeKind, Lsn, DiskState), IndexError> {
        let entries = if is_root { self.nodes.len.get() } else { 0 };
        self.write_whole(NodeKind::Internal, &inner.encode(entries), Vec::new())
    }

    fn write_leaf(&self, leaf: &Leaf) -> Result<(NodeKind, Lsn, DiskState), IndexError> {
        let mut counted = Vec::new();
        count_extents(leaf, &mut counted);
        self.write_whole(NodeKind::Leaf, leaf.bytes(), counted)
    }

    fn write_whole(
        &self,
        kind: NodeKind,
        body: &[u8],
        mut counted: Vec<AccountChange>,
    ) -> Result<(NodeKind, Lsn, DiskState), IndexError> {
        let full = self.write(kind, body)?;
        let full_bytes = self.nodes.store.node_bytes(body.len());
        count(&mut counted, full.segment(), i64::from(full_bytes));
        let changed = Changed::Keys(Vec::new());
        Ok((kind, full, DiskState { full, full_bytes, deltas: 0, changed, counted }))
    }

    /// Writes a leaf delta record if the leaf has a full record and the rule prefers it.
    fn write_delta(
        &self,
        leaf: &Leaf,
        last: Option<&DiskState>,
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
        let disk = DiskState { full, full_bytes, deltas, changed, counted };
        Ok(Some((NodeKind::LeafDelta, lsn, disk)))
    }

    fn write(&self, kind: NodeKind, body: &[u8]) -> Result<Lsn, IndexError> {
        let Nodes { table, store, .. } = self.nodes;
        let failed = |source| IndexError::Store { table: *table, lsn: Lsn::NULL, source };
        store.write_node(kind, body).map_err(failed)
    }
}
