//! Writes dirty nodes in steps, and holds no lock over a write: merges go on meanwhile. First come the leaves, then the
//! inner nodes right above them, a few at a time; what is left then is picked at one moment and written as the end.
//!
//! INV-IDX-11. *A written root holds everything that was merged before its pass began, and the accounts that are reported
//! with it are those of the records that it names, itself or through others.* A pass is from
//! [`begin_write_out`](crate::Base::begin_write_out) to [`finish_write_out`](crate::Base::finish_write_out); M is the
//! moment at which its end picks nodes ([`Tree::pick_outdated`]), under the lock.
//! 1. A slot's fences never change (INV-IDX-1). So a record fits its slot, however old it is; a node that was cut or
//!    joined has left the tree with its slot, and the new slots have no record.
//! 2. An older record never replaces a newer one. Each node is picked with the record that its slot has at that moment;
//!    when it was written, the slot takes the new record only if it still has that one and is in the tree.
//! 3. A node is outdated unless its record names the newest record of each child, and no child is outdated; a leaf, if it
//!    has no record. At any moment under the lock a node above an outdated one is outdated, too. For a node becomes
//!    outdated with all nodes above it: when its children change by a cut or a join, when a child that is a leaf gets a
//!    record, or when the collector asks for a rewrite. And it ceases to be only when its own record is installed while
//!    its slot has the node that was written, each child's newest record is the one that this names, and no child is
//!    outdated (`is_exact`).
//! 4. At M every leaf that is not outdated has a record that holds what was merged before the pass began. For the steps
//!    went over all keys. Where they came by, the leaf's slot was clean, or its record was from this pass or a later one,
//!    or the leaf was picked; then it took the new record, or has left the tree, or has another record, which is from
//!    such a pass, or else the leaf was marked as outdated. By 2 that holds for all later records. A slot that is newer
//!    has no record or a later one.
//! 5. All outdated nodes are picked at M, so by 3 every other node is named with its newest record as of M, and what it
//!    names are the newest records below it as of M. Each picked node is written as of M and named by its picked parent.
//!    So the root's record is the tree as of M, but for dirty leaves, whose records are as 4 says.
//! 6. Changes of the accounts are kept apart from M on (`later`). The report has those up to M, and for each picked node
//!    its new record instead of the one that its slot had at M. That a slot has left the tree since or has another record
//!    by now changes the accounts after the report.
//! 7. It ends: a pass has a bounded number of rounds of steps, and nothing that is written is written again because of a
//!    change beside it. The last hold of the lock writes nothing.
//!
//! A node is dirty, or above a dirty one, or outdated in its own flags. Only a holder of the tree's maintenance lock
//! changes them: what was written clears a flag only if the slot still has the node that was written. Outdated nodes are
//! dirty, so they stay in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_types::Lsn;
use fulgurite_types::sync::yield_now;

use super::account::{Changed, DiskState, differences};
use super::node::inner::Inner;
use super::pick::{Named, Picked};
use super::records::Written;
use super::slot::{DIRTY, DIRTY_BELOW, Node, OUTDATED};
use super::tree::{Maintenance, Tree};
use crate::{AccountChange, DATA_ACCOUNT, IndexError, WriteOut, WriteOutReport};

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

    pub(crate) fn replace(&mut self, old: &[AccountChange], new: &[AccountChange]) {
        differences(old, new).for_each(|change| self.add(&[change]));
    }

    fn add_all(&mut self, later: Pending) {
        later.0.into_iter().for_each(|change| self.add(&[change]));
    }

    fn live_bytes(&self) -> i64 {
        self.0.iter().filter(|(segment, _)| **segment != DATA_ACCOUNT).map(|(_, bytes)| bytes).sum()
    }

    fn take(&mut self) -> Vec<AccountChange> {
        std::mem::take(&mut self.0).into_iter().filter(|(_, bytes)| *bytes != 0).collect()
    }
}

/// After this many nodes a step gives its processor to a thread that waits for one, as a merge does after each step.
const NODES_BETWEEN_YIELDS: usize = 8;

/// The bytes of a step that the end of a pass takes.
const STEP_BYTES: usize = 1 << 20;

impl Named {
    /// The record, once those of the picked nodes are `written`.
    fn lsn(self, written: &[Written]) -> Lsn {
        match self {
            Named::Old(lsn) => lsn,
            Named::Picked(index) => written[index].lsn,
        }
    }
}

impl Maintenance {
    /// Where changes of the accounts are noted now.
    pub(crate) fn changes(&mut self) -> &mut Pending {
        self.later.as_mut().unwrap_or(&mut self.pending)
    }

    /// By how much the live bytes grew that no report has named.
    fn unreported_bytes(&self) -> u64 {
        let later = self.later.as_ref().map_or(0, Pending::live_bytes);
        u64::try_from(self.pending.live_bytes() + later).unwrap_or(0)
    }

    /// The record of a picked node was written. By now its slot may have left the tree or have a newer record, which
    /// counts; or it has another node, or a wish that its record be written again.
    fn install(&mut self, picked: &Picked, record: &Written, written: &[Written]) {
        let slot = &picked.slot;
        if slot.is_retired() {
            return;
        }
        if slot.lsn() != picked.lsn {
            // What a leaf holds is in no record of the pass. An inner node's flags say whether its newest record is exact.
            let is_leaf = matches!(picked.node, Node::Leaf(_));
            if is_leaf && slot.is_dirty() && !slot.is_written_since(record.disk.pass) {
                slot.mark(OUTDATED);
            }
            return;
        }
        let mut disk = record.disk.clone();
        match (&picked.node, slot.node_unmarked()) {
            (Node::Leaf(leaf), Ok(Node::Leaf(now))) => {
                let is_full = disk.deltas == 0;
                let changed = slot.disk().as_ref().map(|now| now.changed.clone());
                let last = picked.last.as_ref().map(|last| &last.changed);
                let is_settled = Arc::ptr_eq(leaf, &now) && (is_full || changed.as_ref() == last);
                if !is_settled {
                    // A delta record leaves the full record as it is, and what changed since that.
                    disk.changed = if is_full { Changed::Whole } else { changed.unwrap_or(Changed::Whole) };
                }
                self.set_record(picked, record, disk);
                slot.set_clean();
                if !is_settled {
                    slot.mark(DIRTY);
                }
            }
            (Node::Inner(inner), Ok(Node::Inner(now)))
                if Arc::ptr_eq(inner, &now) && is_exact(inner, picked, written) =>
            {
                self.set_record(picked, record, disk);
                slot.set_clean();
                if inner.children().iter().any(|child| child.is_dirty()) {
                    slot.mark(DIRTY_BELOW);
                }
            }
            _ => {
                disk.changed = Changed::Whole;
                self.set_record(picked, record, disk);
                slot.mark(DIRTY | OUTDATED);
            }
        }
    }

    fn set_record(&mut self, picked: &Picked, record: &Written, disk: DiskState) {
        picked.slot.set_lsn(record.lsn);
        picked.slot.set_due(record.due);
        picked.slot.set_full(disk.full);
        let mut own = picked.slot.disk();
        self.changes().replace(own.as_ref().map_or(&[], |last| &last.counted), &disk.counted);
        *own = Some(Box::new(disk));
    }

    /// The records of all nodes that the end of a pass picked were written: its report counts them instead of those that
    /// the slots had then, and later changes begin with the opposite.
    fn count_end(&mut self, picked: &[Picked], written: &[Written]) {
        let later = self.later.as_mut().expect("the end of a pass keeps later changes apart");
        for (picked, record) in picked.iter().zip(written) {
            self.pending.add(&record.disk.counted);
            later.subtract(&record.disk.counted);
            if let Some(last) = &picked.last {
                self.pending.subtract(&last.counted);
                later.add(&last.counted);
            }
        }
    }

    /// The end of a pass is over: changes are noted for the next report again.
    fn end_later(&mut self) {
        let later = self.later.take().expect("the end of a pass keeps later changes apart");
        self.pending.add_all(later);
    }
}

/// Whether a record that was written of an inner node names the newest records of its children, none of which is outdated.
fn is_exact(inner: &Inner, picked: &Picked, written: &[Written]) -> bool {
    let children = inner.children().iter().zip(&picked.named);
    children.into_iter().all(|(child, named)| child.lsn() == named.lsn(written) && !child.has(OUTDATED))
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
        self.step(pass, bytes_max)?;
        Ok(self.take_changes())
    }

    /// See [`crate::Base::take_changes`].
    pub(crate) fn take_changes(&self) -> Vec<AccountChange> {
        let mut maintenance = self.maintenance.lock();
        let changes = maintenance.pending.take();
        self.note_unreported(&maintenance);
        changes
    }

    /// See [`crate::Base::finish_write_out`].
    pub(crate) fn finish_write_out(&self, mut pass: WriteOut) -> Result<WriteOutReport, IndexError> {
        let _ending = self.ending.lock();
        while !pass.is_done() {
            self.step(&mut pass, STEP_BYTES)?;
        }
        let mut maintenance = self.maintenance.lock();
        self.drop_records_if_empty(&mut maintenance);
        let picked = self.pick_outdated(&mut pass, &mut maintenance);
        let mut root = self.root.lsn();
        if !picked.is_empty() {
            maintenance.later = Some(Pending::default());
            drop(maintenance);
            let (written, failure) = self.write_picked(&picked, &mut pass);
            maintenance = self.maintenance.lock();
            if let Some(error) = failure {
                maintenance.end_later();
                return Err(error);
            }
            root = written.last().expect("the root was picked last").lsn;
            maintenance.count_end(&picked, &written);
            for (picked, record) in picked.iter().zip(&written) {
                maintenance.install(picked, record, &written);
            }
            // Eviction may have written such a leaf, and then the node above it, since both were picked.
            for Picked { slot, node, .. } in &picked {
                if let Node::Leaf(leaf) = node
                    && slot.has(OUTDATED)
                    && !slot.is_retired()
                {
                    self.mark_above(leaf.fences().lower);
                }
            }
        }
        let accounts = maintenance.pending.take();
        if !picked.is_empty() {
            maintenance.end_later();
        }
        self.note_unreported(&maintenance);
        Ok(WriteOutReport { root, accounts, records_written: pass.records_written })
    }

    /// A step of a pass.
    pub(super) fn step(&self, pass: &mut WriteOut, bytes_max: usize) -> Result<(), IndexError> {
        let picked = self.pick_some(pass, bytes_max);
        self.write_step(&picked, pass)
    }

    /// Writes what a step picked, and installs it.
    pub(super) fn write_step(&self, picked: &[Picked], pass: &mut WriteOut) -> Result<(), IndexError> {
        let (written, failure) = self.write_picked(picked, pass);
        // Once for all: each time a merge may hold the lock for a step of its own.
        let mut maintenance = self.maintenance.lock();
        for (picked, record) in picked.iter().zip(&written) {
            maintenance.install(picked, record, &written);
            if let Node::Leaf(leaf) = &picked.node
                && !picked.slot.is_retired()
            {
                self.mark_above(leaf.fences().lower);
            }
        }
        self.note_unreported(&maintenance);
        failure.map_or(Ok(()), Err)
    }

    pub(super) fn note_unreported(&self, maintenance: &Maintenance) {
        self.unreported.store(maintenance.unreported_bytes(), Ordering::Relaxed);
    }

    /// Writes what was picked, up to the first failure.
    fn write_picked(&self, picked: &[Picked], pass: &mut WriteOut) -> (Vec<Written>, Option<IndexError>) {
        let mut written = Vec::with_capacity(picked.len());
        for (index, picked) in picked.iter().enumerate() {
            if index % NODES_BETWEEN_YIELDS == 0 {
                yield_now();
            }
            let record = match &picked.node {
                Node::Leaf(leaf) => self.write_leaf(leaf, picked.last.as_ref(), pass),
                Node::Inner(inner) => {
                    let named = picked.named.iter();
                    let lsns = named.clone().map(|named| named.lsn(&written));
                    let dues: Vec<u32> = named
                        .zip(inner.children())
                        .map(|(named, child)| match named {
                            Named::Old(_) => child.due(),
                            Named::Picked(index) => written[*index].due,
                        })
                        .collect();
                    let is_root = Arc::ptr_eq(&picked.slot, &self.root);
                    self.write_inner(inner, lsns, &dues, is_root, pass)
                }
            };
            match record {
                Ok(record) => {
                    pass.records_written[record.kind as usize] += 1;
                    pass.bytes_written += u64::from(record.bytes);
                    written.push(record);
                }
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }

    /// The record of a leaf that begins at `lower` changed: no inner node above names it.
    pub(super) fn mark_above(&self, lower: &[u8]) {
        let mut slot = Arc::clone(&self.root);
        while let Ok(Node::Inner(inner)) = slot.node_unmarked() {
            slot.mark(DIRTY_BELOW | OUTDATED);
            slot = Arc::clone(&inner.children()[inner.child_index(lower)]);
        }
    }

    /// If the tree is empty, drops its records: an empty tree has none. Returns whether it is empty.
    pub(crate) fn drop_records_if_empty(&self, maintenance: &mut Maintenance) -> bool {
        let root = &self.root;
        let Ok(Node::Leaf(leaf)) = root.node() else { return false };
        if leaf.count() > 0 {
            return false;
        }
        root.remember(&*self.nodes.store);
        if let Some(disk) = root.disk().take() {
            maintenance.changes().subtract(&disk.counted);
        }
        root.set_lsn(Lsn::NULL);
        root.set_clean();
        true
    }
}
