//! Garbage collection moves the records of nodes out of segments. Most leaves that have one there are on disk only: they are not loaded
//! for that, which would cost a read or two for each, and memory that eviction has to make and then writes them from. Their records
//! are copied as they are; a full record that has a leaf delta record is written anew as the leaf that both make.
//!
//! **INV-IDX-15.** *A slot takes the record that was made of its newest one only while it still has that, and no leaf in memory comes
//! from it.* The copies are written without the tree's lock. Then the slot is looked up again, from the root on: the inner node above
//! may have been evicted, and the slot that was found first is none of the tree's then. Under the lock of its load, nothing is being
//! loaded into it; if its node is in memory, which knows the former record as its own, or has another record by now, the node becomes dirty
//! instead.
//! The accounts change at the same moment, and all nodes above become outdated, as when eviction has written a leaf (INV-IDX-13).

use std::sync::Arc;

use fulgurite_types::{DecodeError, Lsn};

use super::account::DiskState;
use super::node::delta::LeafDelta;
use super::node::format::{Fences, Header, stored_fences};
use super::node::leaf::Leaf;
use super::slot::{Node, Slot};
use super::tree::{Maintenance, Tree};
use crate::{AccountChange, EvictionStep, IndexError, LoadFor, MovedNodes, NodeKind, WriteOut};

/// A node record in a segment that is collected.
pub(super) struct Record<'b> {
    pub lsn: Lsn,
    pub body: &'b [u8],
    pub header: Header,
    pub fences: Fences<'b>,
}

/// A record that may be live, of a leaf that is not in memory.
struct Found<'r> {
    record: &'r Record<'r>,
    /// The leaf's newest record.
    newest: Lsn,
}

/// The record that was written in place of a leaf's records.
struct Copied<'r> {
    found: Found<'r>,
    to: Lsn,
    /// The full record, if that was written.
    full: Option<Lsn>,
    /// When a purge of the leaf is due, if that was looked at.
    due: Option<u32>,
    bytes: u64,
    before: Vec<AccountChange>,
    after: Vec<AccountChange>,
}

impl<'b> Record<'b> {
    pub(super) fn decode(lsn: Lsn, body: &'b [u8]) -> Result<Record<'b>, DecodeError> {
        let header = Header::decode(body)?;
        let (fences, _) = stored_fences(body, &header)?;
        Ok(Record { lsn, body, header, fences })
    }

    /// Whether it may be the slot's newest record, or its full one.
    pub(super) fn may_be_of(&self, slot: &Slot) -> bool {
        slot.lsn() == self.lsn || (self.header.kind == NodeKind::Leaf && slot.may_have_full(self.lsn))
    }
}

impl Tree {
    /// See [`super::BTree::move_records`].
    pub(crate) fn move_records(
        &self,
        records: &[(Lsn, &[u8])],
        scarce_room: bool,
    ) -> Result<MovedNodes, IndexError> {
        let _read = self.nodes.begin_read();
        let table = self.nodes.table;
        let decode =
            |lsn, body| Record::decode(lsn, body).map_err(|error| IndexError::decode(table, lsn, error));
        let records = records.iter().map(|(lsn, body)| decode(*lsn, body)).collect::<Result<Vec<_>, _>>()?;
        let mut moved = MovedNodes::default();
        let mut failure = None;
        let (found, pass) = self.find_records(&records, scarce_room, &mut moved, &mut failure);
        let mut copied = Vec::with_capacity(found.len());
        for found in found {
            match self.copy(found, &pass) {
                Ok(copy) => copied.extend(copy),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let mut maintenance = self.maintenance.lock();
        for copied in copied {
            if let Err(error) = self.install_copied(&copied, &mut maintenance, &mut moved) {
                failure = failure.or(Some(error));
            }
        }
        self.note_unreported(&maintenance);
        failure.map_or(Ok(moved), Err)
    }

    /// Makes the nodes dirty that are in memory, and returns the records to be copied, with the pass in which.
    fn find_records<'r>(
        &self,
        records: &'r [Record<'r>],
        scarce_room: bool,
        moved: &mut MovedNodes,
        failure: &mut Option<IndexError>,
    ) -> (Vec<Found<'r>>, WriteOut) {
        let mut maintenance = self.maintenance.lock();
        maintenance.passes += 1;
        let mut found = Vec::new();
        for record in records {
            if record.header.table != self.nodes.table {
                continue;
            }
            match self.find_record(record, moved) {
                Ok(of_leaf) => found.extend(of_leaf),
                // The node above cannot be read.
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        // As those of an eviction, the copies take nothing of the reserve: the checkpoint has yet to write the tree.
        let step = EvictionStep { scarce_room, ..EvictionStep::ALL_CLEAN };
        (found, WriteOut::to_evict(maintenance.passes, &step))
    }

    /// Makes the node dirty that a record is of, if that is in memory; else returns the record, unless it is dead.
    fn find_record<'r>(
        &self,
        record: &'r Record<'r>,
        moved: &mut MovedNodes,
    ) -> Result<Option<Found<'r>>, IndexError> {
        let slot = self.slot_of(record)?.filter(|slot| record.may_be_of(slot));
        let Some(slot) = slot else { return Ok(None) };
        if record.header.level > 0 || slot.is_resident() {
            moved.bytes += self.rewrite(record)?.unwrap_or(0);
            return Ok(None);
        }
        Ok(Some(Found { record, newest: slot.lsn() }))
    }

    /// The slot of the node whose record it is, if that is still in the tree; a leaf is not loaded. The caller holds the tree's lock.
    pub(super) fn slot_of(&self, record: &Record<'_>) -> Result<Option<Arc<Slot>>, IndexError> {
        let Record { header, fences, .. } = record;
        let mut slot = Arc::clone(&self.root);
        let mut node = self.nodes.node_of(&slot, Fences::ROOT, LoadFor::Maintenance)?;
        loop {
            let inner = match &node {
                Node::Inner(inner) if inner.level() > header.level => Arc::clone(inner),
                Node::Inner(inner) => return Ok((inner.level() == header.level).then_some(slot)),
                Node::Leaf(_) => return Ok((header.level == 0).then_some(slot)),
            };
            let index = inner.child_index(fences.lower);
            slot = Arc::clone(&inner.children()[index]);
            if inner.level() == header.level + 1 {
                return Ok(Some(slot));
            }
            node = self.nodes.child_of(&inner, index, LoadFor::Maintenance)?;
        }
    }

    /// Writes a record of a leaf anew; `None` if it is not live.
    fn copy<'r>(&self, found: Found<'r>, pass: &WriteOut) -> Result<Option<Copied<'r>>, IndexError> {
        let Found { record, newest } = found;
        if newest == record.lsn {
            let kind = record.header.kind;
            let to = self.write(kind, record.body, pass)?;
            let bytes = self.nodes.store.node_bytes(record.body.len());
            let counted = |lsn: Lsn| vec![(lsn.segment(), i64::from(bytes))];
            let full = (kind == NodeKind::Leaf).then_some(to);
            let (before, after) = (counted(newest), counted(to));
            return Ok(Some(Copied { found, to, full, due: None, bytes: bytes.into(), before, after }));
        }
        let Some(leaf) = self.leaf_of(record, newest)? else { return Ok(None) };
        let node = Node::leaf(leaf, &self.nodes.residency);
        let before = DiskState::of_loaded(&node, newest, &*self.nodes.store).counted;
        let Node::Leaf(leaf) = &node else { unreachable!("it was made of a leaf") };
        let written = self.write_leaf(leaf, None, pass)?;
        let (to, due, bytes) = (written.lsn, Some(written.due), written.bytes.into());
        Ok(Some(Copied { found, to, full: Some(to), due, bytes, before, after: written.disk.counted }))
    }

    /// The leaf of which `full` is the full record, and the one at `newest` the leaf delta record; `None` if it is another one's.
    fn leaf_of(&self, full: &Record<'_>, newest: Lsn) -> Result<Option<Leaf>, IndexError> {
        let table = self.nodes.table;
        let corrupt = |lsn| move |error: DecodeError| IndexError::decode(table, lsn, error);
        let body = self.nodes.read_body(newest)?;
        let header = Header::decode(&body).map_err(corrupt(newest))?;
        if header.kind != NodeKind::LeafDelta || header.full() != full.lsn {
            return Ok(None);
        }
        let delta = LeafDelta::decode(body, table, &full.fences).map_err(corrupt(newest))?;
        let leaf = Leaf::decode(full.body.to_vec(), table, &full.fences).map_err(corrupt(full.lsn))?;
        Ok(Some(delta.apply(&leaf, full.body.len(), table)))
    }

    /// INV-IDX-15.
    fn install_copied(
        &self,
        copied: &Copied<'_>,
        maintenance: &mut Maintenance,
        moved: &mut MovedNodes,
    ) -> Result<(), IndexError> {
        let Found { record, newest } = copied.found;
        let Some(slot) = self.slot_of(record)?.filter(|slot| record.may_be_of(slot)) else { return Ok(()) };
        let load = self.nodes.loads.begin_alone(&slot);
        if slot.is_resident() || slot.lsn() != newest {
            drop(load);
            moved.bytes += self.rewrite(record)?.unwrap_or(0);
            return Ok(());
        }
        slot.set_lsn(copied.to);
        if let Some(full) = copied.full {
            slot.set_full(full);
        }
        if let Some(due) = copied.due {
            slot.set_due(due);
        }
        maintenance.changes().replace(&copied.before, &copied.after);
        self.mark_above(record.fences.lower);
        moved.bytes += copied.bytes;
        moved.copied += copied.bytes;
        Ok(())
    }
}
