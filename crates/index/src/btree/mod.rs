//! The B+tree, a copy-on-write base.
//!
//! Nodes are immutable. A leaf in memory is the body of a full record on disk. A change builds a new node and swaps it
//! into the old node's slot (`slot.rs`). Parents point to slots, so a parent does not change with its child, unless the
//! child is cut or joined. One thread at a time changes the tree, under the tree's maintenance lock. Readers take no
//! lock of the tree and never restart; they wait only for reads from disk. A reader pins an epoch and descends from
//! slot to node to slot; no node that it can reach is freed before it unpins.
//!
//! **INV-IDX-1.** *A reader that took the list of memtables before it loads the root finds every version that it may
//! see, in that list or in the tree.* Let T be the moment at which the reader took the list. The list holds every
//! version that is merged after T; the reader uses that list, or the entries that it was lent from it, until it takes a
//! new one (`memtables/cursor_slot.rs`). It remains to show that every node on the reader's descent holds, for the keys
//! that lead there, at least the versions that were merged before T.
//! 1. A slot's fences never change. A node is replaced in its slot only by one with the same fences; nodes that a cut
//!    or a join produces get new slots. (The root's fences are open.)
//! 2. A slot only gains versions, by merges, or loses versions that no open snapshot needs, hence not the reader's. (A
//!    relocation moves a value's extent and keeps the version.)
//! 3. The reader loads each slot after T. If the slot is in the tree at that moment, its node holds everything that was
//!    merged before T into its key range. If the slot has left the tree, it left after the reader loaded the parent
//!    that names it, hence after T. A slot that a cut or a join replaces is not written to meanwhile: until it is retired,
//!    it keeps at least what it held before the merge that replaced it. That merge ended after T, so the slot holds everything
//!    that was merged before T. A retired slot has no node, and the reader seeks the key range from the root.
//! 4. The same holds for the slots of an inner node that was evicted after the reader loaded it: eviction takes an
//!    inner node only if nothing below it is dirty, so the records that its slots name hold everything that was merged
//!    before the eviction.
//!
//! A cursor keeps its path; by 1 the path partitions all keys, so the cursor meets each key once. It loads no record that a
//! stale slot names (INV-IDX-12, `path.rs`).

mod account;
mod cursor;
mod describe;
mod evict;
mod join;
mod leave;
mod load;
mod loads;
mod merge;
mod merge_leaf;
mod move_records;
pub(crate) mod node;
mod options;
mod path;
mod pick;
mod prefetched;
mod prune;
mod purge;
mod read;
mod records;
mod relocate;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
pub(crate) mod slot;
mod tree;
mod walk;
mod write_out;
#[cfg(all(test, not(feature = "shuttle")))]
mod write_out_tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_types::{Csn, KeySpan, Lsn, TableId};

use crate::{
    AccountChange, Base, Evicted, EvictionStep, IndexError, IndexMemory, Io, MergeSource, MovedNodes,
    NodeStore, OutOfLine, PruneRules, Version, WriteOut, WriteOutReport,
};

pub use cursor::BTreeCursor;
pub use describe::{EntryDescription, NodeDescription, describe, table_of_node};
pub use node::leaf::Leaf;
pub use options::{BTreeOptions, DeltaRule, DeltaShape};
pub use purge::{DueLeaves, DueStep, Purged};
pub use walk::{EntryInfo, RecordInfo, TreeVisitor};

use slot::{Node, flush_dropped};
use tree::{Nodes, Tree};

/// A B+tree over a store of node records. Cloning it gives another handle to the same tree.
#[derive(Clone)]
pub struct BTree {
    tree: Arc<Tree>,
}

impl BTree {
    /// An empty tree.
    ///
    /// # Panics
    /// If the options are invalid ([`BTreeOptions::validate`]).
    pub fn empty(table: TableId, store: Arc<dyn NodeStore>, options: BTreeOptions) -> BTree {
        BTree::open(table, Lsn::NULL, store, options)
    }

    /// The tree whose root record is at `root`; [`Lsn::NULL`]: an empty tree. Reads nothing: nodes are loaded, and
    /// damage is found, on demand.
    ///
    /// # Panics
    /// If the options are invalid ([`BTreeOptions::validate`]).
    pub fn open(table: TableId, root: Lsn, store: Arc<dyn NodeStore>, options: BTreeOptions) -> BTree {
        BTree { tree: Arc::new(Tree::new(table, root, store, options)) }
    }

    /// The table that the tree belongs to.
    pub fn table(&self) -> TableId {
        self.tree.nodes.table
    }

    /// About how many bytes of memory the resident nodes take.
    pub fn resident_bytes(&self) -> usize {
        self.tree.nodes.residency.bytes()
    }

    /// About how many bytes the clean nodes take, if all nodes are in memory; `None` if some are on disk only.
    pub fn clean_bytes(&self) -> Option<u64> {
        self.tree.nodes.residency.clean_bytes().map(|bytes| bytes as u64)
    }

    /// Where the memory of the tree's store is counted.
    pub fn memory(&self) -> &Arc<IndexMemory> {
        self.tree.nodes.residency.memory()
    }

    /// The tree was dropped, although references to it may be left: it becomes empty, and its dirty nodes no longer count
    /// among those of its store. Nothing is merged or written any more.
    pub fn leave_store(&self) {
        // Between a change of the dirty bytes of the tree and of the store, the store's would go wrong for good.
        let _maintenance = self.tree.maintenance.lock();
        let Nodes { table, residency, superseded, .. } = &self.tree.nodes;
        residency.leave();
        superseded.leave();
        // Eviction does not come here any more, and a program may keep its handle of the table for long.
        let root = &self.tree.root;
        root.replace(Node::leaf(Leaf::empty(*table), residency));
        *root.disk() = None;
        root.set_lsn(Lsn::NULL);
        root.set_clean();
        // The whole tree hangs on the old root. The thread may be one that rests now.
        flush_dropped();
    }

    /// The LSN of the newest root record; [`Lsn::NULL`] if the written tree is empty. A concurrent write-out may
    /// replace it at any time, unless the caller excludes write-outs.
    pub fn written_root(&self) -> Lsn {
        self.tree.root.lsn()
    }

    /// [`BTree::walk_written`] from the newest written root.
    pub fn walk(&self, visitor: &mut dyn TreeVisitor) -> Result<(), IndexError> {
        self.tree.nodes.walk(self.written_root(), visitor)
    }

    /// Visits every record and every entry of the tree whose root record is at `root`. Reads all of them from the store
    /// and verifies order, fences, levels, and that every child exists. Changes nothing in memory; the tree may change
    /// and be written out meanwhile. The records must stay readable: on a live database the caller pins them.
    pub fn walk_written(&self, root: Lsn, visitor: &mut dyn TreeVisitor) -> Result<(), IndexError> {
        self.tree.nodes.walk(root, visitor)
    }

    /// The live bytes of the written tree by segment, recounted from its records: the sum of the changes that
    /// [`Base::write_out`] has reported so far.
    pub fn live_accounts(&self) -> Result<Vec<AccountChange>, IndexError> {
        self.tree.nodes.live_accounts(self.written_root())
    }

    /// Makes the next write-out write the nodes anew whose records are in `segments`: a leaf in full if its full record is,
    /// so that no leaf delta record keeps that alive. It looks at nodes from the key `from` on, as long as those that it
    /// finds and what it looks at have about `bytes_max` bytes. Returns the key from which to continue; `None` at the end.
    ///
    /// It finds all nodes below inner nodes that are in memory, but for a leaf that was not loaded since its parent was and
    /// has a leaf delta record in another segment. A node that cannot be read stays where it is.
    pub fn leave_some(&self, segments: &BTreeSet<u32>, from: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        self.tree.leave_some(segments, from, bytes_max)
    }

    /// When a purge of a leaf that no write touches is due, in seconds since 1970, as far as the nodes in memory know; 0: none is.
    /// [`BTree::due_leaves`] finds out more.
    pub fn purge_due(&self) -> u32 {
        self.tree.nodes.residency.due()
    }

    /// A look at the tree did not come to its end: it is due again at that time, in seconds since 1970.
    pub fn look_again(&self, at: u32) {
        self.tree.nodes.residency.learn_due(at);
    }

    /// Looks for leaves of which a quarter can be gone at `now`, in seconds since 1970: expired versions, and ones that only snapshots saw. Looks
    /// at some from the key `from` on, and returns the first that it finds, up to one that is not due, and the
    /// key from which to continue; `None` at the end. It reads inner nodes from disk, and no leaf. Beginning at the empty key it
    /// finds out anew when the next one is due.
    /// Until it has come to the end, or [`BTree::look_again`] is called, it is not known.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn due_leaves(&self, from: &[u8], now: u32) -> Result<DueStep, IndexError> {
        self.tree.due_leaves(from, now)
    }

    /// Makes the next write-out rewrite the node whose record is at `lsn`, if that record is still live: as the node's
    /// newest record, or as the full record of a leaf delta record. `body` is the record's body. This moves a live node
    /// record out of its segment. A full record is replaced by one, a leaf delta record by another, unless it is the last
    /// of its row, or too long where room is scarce ([`WriteOut::set_scarce_room`]). Returns about how many
    /// bytes will be written; `None` if the record is not live.
    pub fn rewrite_if_live(&self, lsn: Lsn, body: &[u8]) -> Result<Option<u64>, IndexError> {
        self.tree.rewrite_if_live(lsn, body)
    }

    /// Moves those of some node records, LSNs and bodies, that are live out of their segments. The record of a leaf that is not in
    /// memory is copied at once, a full record together with the leaf delta record that it has. Other nodes become dirty, as by
    /// [`BTree::rewrite_if_live`]. With `scarce_room` leaf delta records are not apart ([`WriteOut::set_scarce_room`]). The lock of
    /// the tree is held twice, for as long as it takes to look up all of the records.
    ///
    /// # Errors
    /// The first error. If it is about one record, the others were moved.
    pub fn move_records(
        &self,
        records: &[(Lsn, &[u8])],
        scarce_room: bool,
    ) -> Result<MovedNodes, IndexError> {
        self.tree.move_records(records, scarce_room)
    }
}

impl Tree {
    /// See [`Base::separators`]: the lower fences of the nodes of the highest level that has enough nodes, or the
    /// leaves' keys. Nodes that are not in memory count as one each.
    fn separators(&self, max: usize) -> Vec<Vec<u8>> {
        let mut nodes = vec![(Vec::new(), self.root.node().ok())];
        while nodes.len() < max {
            let mut below = Vec::new();
            for (lower, node) in &nodes {
                match node {
                    Some(Node::Inner(inner)) => below.extend((0..inner.children().len()).map(|index| {
                        let node = inner.children()[index].node().ok();
                        (inner.child_fences(index).lower.to_vec(), node)
                    })),
                    Some(Node::Leaf(leaf)) => {
                        below.extend(leaf.entries().map(|entry| (entry.key.to_vec(), None)));
                    }
                    None => below.push((lower.clone(), None)),
                }
            }
            if nodes.iter().all(|(_, node)| node.is_none()) {
                break;
            }
            nodes = below;
        }
        let step = (nodes.len() / max.max(1)).max(1);
        nodes.into_iter().step_by(step).map(|(lower, _)| lower).collect()
    }
}

impl Base for BTree {
    type Cursor = BTreeCursor;

    fn get(&self, key: &[u8], at: Csn, io: Io) -> Result<Option<Version>, IndexError> {
        self.tree.get(key, at, io)
    }

    fn prefetch(&self, keys: &[(&[u8], u64)]) {
        self.tree.prefetch(keys);
    }

    fn newest_csn(&self, key: &[u8], io: Io) -> Result<Option<Csn>, IndexError> {
        self.tree.newest_csn(key, io)
    }

    fn any_newer_in_range(&self, range: KeySpan<&[u8]>, than: Csn, io: Io) -> Result<bool, IndexError> {
        self.tree.any_newer_in_range(range, than, io)
    }

    fn cursor(&self, at: Csn) -> BTreeCursor {
        self.cursor_with(at, Io::Allowed)
    }

    fn cursor_with(&self, at: Csn, io: Io) -> BTreeCursor {
        BTreeCursor::new(Arc::clone(&self.tree), at, io)
    }

    fn merge_some(
        &self,
        batch: &mut dyn MergeSource,
        rules: &PruneRules,
        bytes_max: usize,
    ) -> Result<(), IndexError> {
        self.tree.merge_some(batch, rules, bytes_max)
    }

    fn purge_some(
        &self,
        range: KeySpan<&[u8]>,
        rules: &PruneRules,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, IndexError> {
        self.tree.purge_some(range, rules, bytes_max)
    }

    fn begin_write_out(&self) -> WriteOut {
        self.tree.begin_write_out()
    }

    fn write_some(&self, pass: &mut WriteOut, bytes_max: usize) -> Result<Vec<AccountChange>, IndexError> {
        self.tree.write_some(pass, bytes_max)
    }

    fn take_changes(&self) -> Vec<AccountChange> {
        self.tree.take_changes()
    }

    fn finish_write_out(&self, pass: WriteOut) -> Result<WriteOutReport, IndexError> {
        self.tree.finish_write_out(pass)
    }

    fn memory(&self) -> Arc<IndexMemory> {
        BTree::memory(self).clone()
    }

    fn dirty_bytes(&self) -> u64 {
        self.tree.nodes.residency.dirty_bytes() as u64
    }

    fn unreported_bytes(&self) -> u64 {
        self.tree.unreported.load(Ordering::Relaxed)
    }

    fn is_dirty(&self) -> bool {
        self.tree.root.is_dirty()
    }

    fn evict(&self, resident_bytes_max: usize) -> usize {
        self.tree.evict(resident_bytes_max)
    }

    fn evict_some(&self, step: &EvictionStep) -> Result<Evicted, IndexError> {
        self.tree.evict_some(step)
    }

    fn find_extent(&self, key: &[u8], lsn: Lsn) -> Result<Option<(Csn, OutOfLine)>, IndexError> {
        self.tree.find_extent(key, lsn)
    }

    fn relocate(&self, key: &[u8], csn: Csn, from: Lsn, to: Lsn) -> Result<bool, IndexError> {
        self.tree.relocate(key, csn, from, to)
    }

    fn len_estimate(&self) -> u64 {
        self.tree.nodes.len.get()
    }

    fn separators(&self, max: usize) -> Vec<Vec<u8>> {
        self.tree.separators(max)
    }
}
