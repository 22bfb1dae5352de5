//! The B+tree, a base that is changed in place.
//!
//! Nodes are immutable. A node in memory is the body of its record on disk; a change makes a new node and puts it into
//! the old one's slot (`slot.rs`), the stable place that the parent points to. One thread at a time changes the tree,
//! under its maintenance lock. Readers take no lock, never wait and never start over: pinned in an epoch they go from
//! slot to node to slot, and every node that they can reach lives until they are done.
//!
//! **INV-IDX-1.** *A reader that took the list of memtables before it looks at the root finds every version that
//! it may see, in that list or in the node that it comes to.* Let T be the moment at which it took the list. What was
//! merged before T has to be in the tree that it finds; what is merged later is in its list as well, by which it goes: it
//! holds the list, or what it was lent from it up to a key, beyond which it does not go on (`memtables/lent.rs`).
//! It remains to show that every node it comes to holds, for the keys in whose search it gets there, at least what was
//! merged before T:
//! 1. A slot's fences never change. A node is replaced in its slot only by one with the same fences; what is cut,
//!    joined or emptied gets new slots. (The root's fences are open.)
//! 2. A slot's content only grows by merges, or loses what pruning may take from every open snapshot, which the
//!    reader's is.
//! 3. The reader loads each slot after T. If the slot is still in the tree then, its node has everything merged before
//!    T into its key range. If the slot has left the tree, it left after the reader loaded the parent that named it,
//!    hence after T, and it holds since then what it held when it left: everything merged before that moment.
//! 4. The same holds for slots of an inner node that was evicted after the reader loaded it: nothing below it was
//!    dirty, so the records that its slots name have everything that was merged before the eviction.
//!
//! A cursor keeps its path, and by 1 the path partitions all keys, so it meets each key once. The records that stale
//! slots name must not be freed before the reads that may follow them have ended; the engine's epochs of reads see to
//! that.

mod account;
mod cursor;
mod describe;
mod evict;
mod join;
mod load;
mod merge;
mod merge_leaf;
mod node;
mod options;
mod path;
mod prune;
mod read;
mod relocate;
mod slot;
mod walk;
mod write_out;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_types::{Csn, Lsn, TableId};

use crate::{
    AccountChange, Base, IndexError, MergeSource, NodeStore, PruneRules, TryError, Version, WriteOutReport,
};

pub use cursor::BTreeCursor;
pub use describe::{EntryDescription, NodeDescription, describe};
pub use node::leaf::Leaf;
pub use options::{BTreeOptions, DeltaRule, DeltaShape};
pub use walk::{EntryInfo, RecordInfo, TreeVisitor};

use load::Core;
use slot::Node;

/// A B+tree over a store of node records. Cloning it gives another handle to the same tree.
#[derive(Clone)]
pub struct BTree {
    core: Arc<Core>,
}

impl BTree {
    /// An empty tree.
    ///
    /// # Panics
    /// If the options are invalid ([`BTreeOptions::validate`]).
    pub fn empty(table: TableId, store: Arc<dyn NodeStore>, options: BTreeOptions) -> BTree {
        BTree::open(table, Lsn::NULL, store, options)
    }

    /// The tree that was written out with its root at `root`; [`Lsn::NULL`]: an empty one. Reads nothing: nodes are loaded, and
    /// damage is found, on demand.
    ///
    /// # Panics
    /// If the options are invalid ([`BTreeOptions::validate`]).
    pub fn open(table: TableId, root: Lsn, store: Arc<dyn NodeStore>, options: BTreeOptions) -> BTree {
        BTree { core: Arc::new(Core::new(table, root, store, options)) }
    }

    /// Whose tree this is.
    pub fn table(&self) -> TableId {
        self.core.table
    }

    /// How many bytes of memory the nodes take that are resident, about.
    pub fn resident_bytes(&self) -> usize {
        self.core.residency.bytes()
    }

    /// The root of the tree as it was written last; [`Lsn::NULL`] if it was empty. It may be written again at any time, unless the
    /// caller keeps everybody from writing one.
    pub fn written_root(&self) -> Lsn {
        self.core.root.lsn()
    }

    /// [`BTree::walk_written`] from the newest written root.
    pub fn walk(&self, visitor: &mut dyn TreeVisitor) -> Result<(), IndexError> {
        self.core.walk(self.written_root(), visitor)
    }

    /// Visits every record and every entry of the tree that was written with its root at `root`, reading all of them from the store, and
    /// verifies them: order, fences, levels, and that every child is there. Memory stays as it is, and the tree may change
    /// and be written out meanwhile. The records have to stay readable: on a live database the caller pins them.
    pub fn walk_written(&self, root: Lsn, visitor: &mut dyn TreeVisitor) -> Result<(), IndexError> {
        self.core.walk(root, visitor)
    }

    /// The live bytes by segment of the tree as it was written last, counted anew from its records: what the changes that
    /// [`Base::write_out`] reported so far add up to.
    pub fn live_accounts(&self) -> Result<Vec<AccountChange>, IndexError> {
        self.core.live_accounts()
    }

    /// Has the node whose record is at `lsn` written anew by the next write-out, if the record is still part of the
    /// current one, as newest record or as the full record of a delta. `body` is the record's body. So garbage collection
    /// moves node records.
    pub fn rewrite_if_live(&self, lsn: Lsn, body: &[u8]) -> Result<bool, IndexError> {
        self.core.rewrite_if_live(lsn, body)
    }
}

impl Core {
    fn len_estimate(&self) -> u64 {
        u64::try_from(self.len.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// See [`Base::places`]: the lower fences of the nodes of the highest level that has enough of them, or the keys
    /// of the leaves.
    fn places(&self, max: usize) -> Vec<Vec<u8>> {
        let mut nodes = vec![(Vec::new(), self.root.node().ok())];
        while nodes.len() < max {
            let mut below = Vec::new();
            for (lower, node) in &nodes {
                match node {
                    Some(Node::Inner(inner)) => below.extend((0..inner.children().len()).map(|index| {
                        let node = inner.children()[index].node().ok();
                        (inner.child_place(index).lower.to_vec(), node)
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

    fn get(&self, key: &[u8], at: Csn) -> Result<Option<Version>, IndexError> {
        self.core.get(key, at)
    }

    fn try_get(&self, key: &[u8], at: Csn) -> Result<Option<Version>, TryError> {
        self.core.try_get(key, at)
    }

    fn newest_csn(&self, key: &[u8]) -> Result<Option<Csn>, IndexError> {
        self.core.newest_csn(key)
    }

    fn any_newer_in_range(&self, range: (Bound<&[u8]>, Bound<&[u8]>), than: Csn) -> Result<bool, IndexError> {
        self.core.any_newer_in_range(range, than)
    }

    fn cursor(&self, at: Csn) -> BTreeCursor {
        BTreeCursor::new(Arc::clone(&self.core), at)
    }

    fn merge(&self, batch: &mut dyn MergeSource, rules: &PruneRules) -> Result<(), IndexError> {
        self.core.merge(batch, rules)
    }

    fn purge(&self, range: (Bound<&[u8]>, Bound<&[u8]>), rules: &PruneRules) -> Result<(), IndexError> {
        self.core.purge(range, rules)
    }

    fn write_out(&self) -> Result<WriteOutReport, IndexError> {
        self.core.write_out()
    }

    fn evict(&self, resident_bytes_max: usize) -> usize {
        self.core.evict(resident_bytes_max)
    }

    fn references(&self, key: &[u8], lsn: Lsn) -> Result<bool, IndexError> {
        self.core.references(key, lsn)
    }

    fn relocate(&self, key: &[u8], csn: Csn, from: Lsn, to: Lsn) -> Result<bool, IndexError> {
        self.core.relocate(key, csn, from, to)
    }

    fn len_estimate(&self) -> u64 {
        self.core.len_estimate()
    }

    fn places(&self, max: usize) -> Vec<Vec<u8>> {
        self.core.places(max)
    }
}
