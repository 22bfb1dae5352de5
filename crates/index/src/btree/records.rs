//! Writes the records of nodes.

use fulgurite_types::Lsn;

use super::account::{Changed, DiskState, count, count_entries};
use super::node::compact::WIDENED_BYTES_MAX;
use super::node::delta;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::options::DeltaShape;
use super::purge::purge_due;
use super::tree::Tree;
use crate::{AccountChange, IndexError, NodeKind, WriteOut};

/// A record that was written.
pub(crate) struct Written {
    pub kind: NodeKind,
    pub lsn: Lsn,
    /// Of the record.
    pub bytes: u32,
    pub disk: DiskState,
    /// When a purge of the node is due.
    pub due: u32,
}

impl Tree {
    /// Writes an inner node whose children have their records at `lsns`, and whose purges are due at `dues`.
    pub(crate) fn write_inner(
        &self,
        inner: &Inner,
        lsns: impl ExactSizeIterator<Item = Lsn>,
        dues: &[u32],
        is_root: bool,
        pass: &WriteOut,
    ) -> Result<Written, IndexError> {
        let entries = if is_root { self.nodes.len.get() } else { 0 };
        let due = dues.iter().copied().filter(|due| *due != 0).min().unwrap_or(0);
        let body = inner.encode(entries, lsns, dues);
        Ok(Written { due, ..self.write_whole(NodeKind::Internal, &body, Vec::new(), pass)? })
    }

    /// Writes a leaf whose newest record has the state `last`.
    pub(crate) fn write_leaf(
        &self,
        leaf: &Leaf,
        last: Option<&DiskState>,
        pass: &WriteOut,
    ) -> Result<Written, IndexError> {
        let due = purge_due(leaf, self.nodes.residency.memory().now_s());
        if let Some(written) = self.write_delta(leaf, last, pass)? {
            return Ok(Written { due, ..written });
        }
        // Its record may be much shorter: all versions of a key have that once. But it has to be read again.
        let bytes = leaf.bytes().len();
        let bytes_max = self.nodes.store.body_bytes_max().min(WIDENED_BYTES_MAX);
        if bytes > bytes_max {
            // Leaves with more than one key are cut long before.
            let key = leaf.entry(0).key.to_vec();
            return Err(IndexError::LeafTooLong { table: self.nodes.table, key, bytes, bytes_max });
        }
        Ok(Written { due, ..self.write_whole(NodeKind::Leaf, &leaf.encode(), count_entries(leaf), pass)? })
    }

    fn write_whole(
        &self,
        kind: NodeKind,
        body: &[u8],
        mut counted: Vec<AccountChange>,
        pass: &WriteOut,
    ) -> Result<Written, IndexError> {
        let full = self.write(kind, body, pass)?;
        let full_bytes = self.nodes.store.node_bytes(body.len());
        count(&mut counted, full.segment(), i64::from(full_bytes));
        let changed = Changed::Keys(Vec::new());
        let disk =
            DiskState { full, full_bytes, deltas: 0, deltas_bytes: 0, changed, counted, pass: pass.number };
        Ok(Written { kind, lsn: full, bytes: full_bytes, disk, due: 0 })
    }

    /// Writes a leaf delta record if the leaf has a full record and the rule prefers it.
    fn write_delta(
        &self,
        leaf: &Leaf,
        last: Option<&DiskState>,
        pass: &WriteOut,
    ) -> Result<Option<Written>, IndexError> {
        let Some(last) = last.filter(|last| last.deltas < self.options.max_deltas) else { return Ok(None) };
        let Changed::Keys(keys) = &last.changed else { return Ok(None) };
        let deltas = last.deltas + 1;
        let delta = delta::encode(leaf, self.nodes.table, last.full, deltas, keys);
        let shape = DeltaShape {
            leaf_bytes: leaf.encoded_len() as u64,
            leaf_entries: leaf.count() as u64,
            delta_bytes: delta.body.len() as u64,
            delta_entries: delta.entries as u64,
            deltas: last.deltas.into(),
            deltas_bytes: last.deltas_bytes.into(),
        };
        let fits = !pass.is_room_scarce() || shape.fits_scarce_room();
        if !fits || !self.options.delta_rule.prefers_delta(&shape) {
            return Ok(None);
        }
        let lsn = self.write(NodeKind::LeafDelta, &delta.body, pass)?;
        let mut counted = count_entries(leaf);
        count(&mut counted, last.full.segment(), i64::from(last.full_bytes));
        let bytes = self.nodes.store.node_bytes(delta.body.len());
        count(&mut counted, lsn.segment(), i64::from(bytes));
        let DiskState { full, full_bytes, .. } = *last;
        let changed = Changed::Keys(keys.clone());
        let deltas_bytes = last.deltas_bytes.saturating_add(delta.body.len() as u32);
        let disk = DiskState { full, full_bytes, deltas, deltas_bytes, changed, counted, pass: pass.number };
        Ok(Some(Written { kind: NodeKind::LeafDelta, lsn, bytes, disk, due: 0 }))
    }

    pub(super) fn write(&self, kind: NodeKind, body: &[u8], pass: &WriteOut) -> Result<Lsn, IndexError> {
        let failed = |source| IndexError::Store { table: self.nodes.table, lsn: Lsn::NULL, source };
        let store = &self.nodes.store;
        let written = match kind {
            NodeKind::LeafDelta if !pass.is_room_scarce() => store.write_delta(body, pass.evicts()),
            _ if pass.evicts() => store.write_node_to_evict(kind, body),
            _ => store.write_node(kind, body),
        };
        written.map_err(failed)
    }
}
