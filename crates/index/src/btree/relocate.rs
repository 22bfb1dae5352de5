//! The services for garbage collection: relocating a value's extent, and rewriting a node's record.

use std::sync::Arc;

use fulgurite_types::{Csn, Lsn};

use super::account::{Changed, push_key};
use super::move_records::Record;
use super::node::format::Fences;
use super::node::leaf::Leaf;
use super::options::DeltaShape;
use super::slot::{DIRTY, DIRTY_BELOW, Node, OUTDATED, Slot};
use super::tree::Tree;
use crate::{IndexError, LoadFor, OutOfLine};

impl Tree {
    /// See [`crate::Base::relocate`].
    pub(crate) fn relocate(&self, key: &[u8], csn: Csn, from: Lsn, to: Lsn) -> Result<bool, IndexError> {
        let _maintenance = self.maintenance.lock();
        let (above, slot, node) = self.slots_to(key, 0)?;
        let Node::Leaf(leaf) = node else { return Ok(false) };
        let Some((index, payload)) = moved(&leaf, key, csn, from, to) else { return Ok(false) };
        let rebuilt = leaf.with_payload(index, &payload);
        let mut touched = Vec::new();
        push_key(&mut touched, key);
        self.replace(&slot, Node::leaf(rebuilt, &self.nodes.residency), Some(&touched));
        above.iter().for_each(|slot| slot.mark(DIRTY_BELOW));
        Ok(true)
    }

    /// See [`super::BTree::rewrite_if_live`].
    pub(crate) fn rewrite_if_live(&self, lsn: Lsn, body: &[u8]) -> Result<Option<u64>, IndexError> {
        let record = Record::decode(lsn, body);
        let record = record.map_err(|error| IndexError::decode(self.nodes.table, lsn, error))?;
        let _maintenance = self.maintenance.lock();
        self.rewrite(&record)
    }

    /// The same. The caller holds the tree's lock.
    pub(super) fn rewrite(&self, record: &Record<'_>) -> Result<Option<u64>, IndexError> {
        let Record { lsn, body, header, fences } = record;
        let lsn = *lsn;
        let may_be_live = || Ok(self.slot_of(record)?.is_some_and(|slot| record.may_be_of(&slot)));
        if header.table != self.nodes.table || !may_be_live()? {
            return Ok(None);
        }
        let (above, slot, node) = self.slots_to(fences.lower, header.level)?;
        let level = match &node {
            Node::Leaf(_) => 0,
            Node::Inner(inner) => inner.level(),
        };
        slot.remember(&*self.nodes.store);
        let mut disk = slot.disk();
        let Some(disk) = disk.as_deref_mut() else { return Ok(None) };
        if level != header.level || (slot.lsn() != lsn && disk.full != lsn) {
            return Ok(None);
        }
        let node_bytes = match &node {
            Node::Leaf(leaf) => leaf.encoded_len(),
            Node::Inner(inner) => inner.len(),
        };
        // The next delta record holds what the one at `lsn` holds, and refers to the same full record. Records are moved
        // where room is scarce.
        let is_delta = disk.full != lsn
            && disk.deltas < self.options.max_deltas
            && DeltaShape::fits(body.len() as u64, node_bytes as u64)
            && matches!(disk.changed, Changed::Keys(_));
        if !is_delta {
            disk.changed = Changed::Whole;
        }
        match node {
            Node::Leaf(_) => {
                slot.mark(DIRTY);
                above.iter().for_each(|slot| slot.mark(DIRTY_BELOW));
            }
            Node::Inner(_) => {
                slot.mark(DIRTY | OUTDATED);
                above.iter().for_each(|slot| slot.mark(DIRTY_BELOW | OUTDATED));
            }
        }
        Ok(Some(if is_delta { body.len() } else { node_bytes } as u64))
    }

    /// The slots above the one at `level` whose range contains `key`, from the root on, and that slot with its node,
    /// loaded.
    #[expect(clippy::type_complexity, reason = "taken apart at once by both callers")]
    fn slots_to(&self, key: &[u8], level: u8) -> Result<(Vec<Arc<Slot>>, Arc<Slot>, Node), IndexError> {
        let mut above = Vec::new();
        let mut slot = Arc::clone(&self.root);
        let mut node = self.nodes.node_of(&slot, Fences::ROOT, LoadFor::Maintenance)?;
        while let Node::Inner(inner) = &node
            && inner.level() > level
        {
            let index = inner.child_index(key);
            let child = Arc::clone(&inner.children()[index]);
            above.push(std::mem::replace(&mut slot, child));
            node = self.nodes.child_of(&Arc::clone(inner), index, LoadFor::Maintenance)?;
        }
        Ok((above, slot, node))
    }
}

/// The index of the entry of `key` with this CSN, and its payload with the extent at `from` moved to `to`.
fn moved(leaf: &Leaf, key: &[u8], csn: Csn, from: Lsn, to: Lsn) -> Option<(usize, Vec<u8>)> {
    let index = leaf.group(key).find(|index| leaf.entry(*index).csn == csn)?;
    let entry = leaf.entry(index);
    if !entry.version_flags().is_out_of_line() {
        return None;
    }
    let mut value = OutOfLine::decode(entry.payload).ok()?;
    value.extents.iter_mut().find(|extent| extent.lsn == from)?.lsn = to;
    let mut payload = Vec::with_capacity(entry.payload.len());
    value.encode(&mut payload);
    Some((index, payload))
}
