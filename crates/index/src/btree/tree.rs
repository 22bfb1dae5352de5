//! The owners of a tree's state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use fulgurite_types::sync::{FairMutex, Mutex};
use fulgurite_types::{Lsn, TableId};

use super::evict::ClockHand;
use super::loads::Loads;
use super::node::leaf::Leaf;
use super::options::BTreeOptions;
use super::prefetched;
use super::purge::AT_ONCE;
use super::slot::{Node, Residency, Slot};
use super::write_out::Pending;
use crate::memory::{COUNTS_BYTES, TableCharge};
use crate::{IndexMemory, NodeStore};

/// A tree: what its handles and cursors share. Readers use `root` and `nodes`; the thread that changes the tree holds
/// `maintenance` meanwhile.
pub(crate) struct Tree {
    pub root: Arc<Slot>,
    pub nodes: Nodes,
    pub options: BTreeOptions,
    pub maintenance: FairMutex<Maintenance>,
    /// [`Maintenance::unreported_bytes`] as of the last record that was installed, or report.
    pub unreported: AtomicU64,
    _charge: TableCharge,
    /// Held while a pass ends, over its writes: it keeps other passes from ending, and nothing else waits for it.
    pub ending: Mutex<()>,
}

/// Where a tree's nodes are: their records in the store, and how much of them is in memory.
pub(crate) struct Nodes {
    pub table: TableId,
    pub store: Arc<dyn NodeStore>,
    pub residency: Arc<Residency>,
    pub loads: Loads,
    pub len: LenEstimate,
    pub superseded: Superseded,
}

/// The state that only the thread that changes the tree uses.
#[derive(Default)]
pub(crate) struct Maintenance {
    /// Account changes that no write-out has reported.
    pub pending: Pending,
    /// Those since the end of a pass picked its nodes: the report of that end does not name them.
    pub later: Option<Pending>,
    pub clock: ClockHand,
    /// How many passes of writing out began.
    pub passes: u64,
}

impl Tree {
    /// What it takes beside its nodes and slots.
    const BYTES: usize = size_of::<Tree>() + size_of::<Residency>() + 2 * COUNTS_BYTES;

    /// # Panics
    /// If the options are invalid.
    pub(crate) fn new(table: TableId, root: Lsn, store: Arc<dyn NodeStore>, options: BTreeOptions) -> Tree {
        if let Err(violations) = options.validate() {
            panic!("{}", violations.join("; "));
        }
        let residency = Arc::new(Residency::new(table, store.memory()));
        let root_slot = Slot::on_disk(root, &residency);
        if !root.is_null() {
            // It is not known before the root is read.
            residency.learn_due(AT_ONCE);
        } else {
            root_slot.replace(Node::leaf(Leaf::empty(table), &residency));
            root_slot.set_clean();
        }
        let charge = TableCharge::new(residency.memory(), Tree::BYTES);
        let (loads, len) = (Loads::default(), LenEstimate::new(root.is_null()));
        let superseded = Superseded::new(residency.memory());
        let nodes = Nodes { table, store, residency, loads, len, superseded };
        let root = Arc::new(root_slot);
        // After the slot has its address, which may have been that of another tree's root.
        prefetched::note_change();
        Tree {
            root,
            nodes,
            options,
            maintenance: FairMutex::default(),
            unreported: AtomicU64::new(0),
            _charge: charge,
            ending: Mutex::new(()),
        }
    }
}

/// How many versions merges have left in a tree's leaves that newer ones of their keys replaced; those of former openings
/// do not count. Counted in the store's memory, too, as long as the tree is in use.
pub(crate) struct Superseded {
    versions: AtomicI64,
    memory: Arc<IndexMemory>,
}

impl Superseded {
    fn new(memory: &Arc<IndexMemory>) -> Superseded {
        Superseded { versions: AtomicI64::new(0), memory: Arc::clone(memory) }
    }

    pub(crate) fn add(&self, versions: i64) {
        if versions != 0 {
            self.versions.fetch_add(versions, Ordering::Relaxed);
            self.memory.superseded().fetch_add(versions, Ordering::Relaxed);
        }
    }

    /// The tree is out of use.
    pub(crate) fn leave(&self) {
        let versions = self.versions.swap(0, Ordering::Relaxed);
        self.memory.superseded().fetch_sub(versions, Ordering::Relaxed);
    }
}

impl Drop for Superseded {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.nodes.residency.unlist();
    }
}

/// About how many versions a tree has: unknown until its root is read, then counted by merges.
pub(crate) struct LenEstimate {
    versions: AtomicI64,
    is_known: AtomicBool,
}

impl LenEstimate {
    fn new(is_known: bool) -> LenEstimate {
        LenEstimate { versions: AtomicI64::new(0), is_known: AtomicBool::new(is_known) }
    }

    pub(crate) fn get(&self) -> u64 {
        u64::try_from(self.versions.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn add(&self, versions: i64) {
        self.versions.fetch_add(versions, Ordering::Relaxed);
    }

    /// The record of an inner root says how many versions there are.
    pub(crate) fn read_in_root(&self, versions: u64) {
        if !self.is_known.load(Ordering::Relaxed) {
            self.versions.store(i64::try_from(versions).unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// The root was loaded. A leaf has its versions counted here; the count of an inner root was read before.
    pub(crate) fn learn(&self, root: &Node) {
        if !self.is_known.swap(true, Ordering::Relaxed)
            && let Node::Leaf(leaf) = root
        {
            self.versions.store(leaf.count() as i64, Ordering::Relaxed);
        }
    }
}
