//! Loads nodes from disk into their slots, on the thread that needs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use fulgurite_types::{DecodeError, Lsn, TableId};
use parking_lot::Mutex;

use super::account::DiskState;
use super::node::delta::LeafDelta;
use super::node::format::{Header, Place};
use super::node::inner::Inner;
use super::node::leaf::{Leaf, Origin};
use super::options::BTreeOptions;
use super::slot::{Absent, Node, Residency, Slot};
use super::write_out::Pending;
use crate::{IndexError, NodeKind, NodeStore};

/// A tree: the state that its handles and cursors share.
pub(crate) struct Core {
    pub table: TableId,
    pub store: Arc<dyn NodeStore>,
    pub options: BTreeOptions,
    pub root: Arc<Slot>,
    pub residency: Arc<Residency>,
    /// About how many versions it has.
    pub len: AtomicI64,
    len_known: AtomicBool,
    pub evictions: AtomicUsize,
    pub maintenance: Mutex<Maintenance>,
}

/// The state that only the thread that changes the tree uses.
#[derive(Default)]
pub(crate) struct Maintenance {
    /// Account changes that no write-out has reported.
    pub pending: Pending,
    /// The key at which the eviction clock stopped.
    pub hand: Vec<u8>,
}

/// A node that a thread needs and that is on disk.
pub(crate) struct Missing {
    slot: Arc<Slot>,
    absent: Absent,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    level: Option<u8>,
}

impl Missing {
    pub(crate) fn new(slot: &Arc<Slot>, absent: Absent, place: &Place<'_>) -> Box<Missing> {
        Box::new(Missing {
            slot: Arc::clone(slot),
            absent,
            lower: place.lower.to_vec(),
            upper: place.upper.map(<[u8]>::to_vec),
            level: place.level,
        })
    }
}

impl Core {
    pub(crate) fn new(table: TableId, root: Lsn, store: Arc<dyn NodeStore>, options: BTreeOptions) -> Core {
        if let Err(violations) = options.validate() {
            panic!("{}", violations.join("; "));
        }
        let residency = Arc::new(Residency::default());
        let root_slot = Slot::on_disk(root, &residency);
        if root.is_null() {
            root_slot.replace(Node::Leaf(Arc::new(Leaf::empty(table))));
            root_slot.set_clean();
        }
        Core {
            table,
            store,
            options,
            root: Arc::new(root_slot),
            residency,
            len: AtomicI64::new(0),
            len_known: AtomicBool::new(root.is_null()),
            evictions: AtomicUsize::new(0),
            maintenance: Mutex::default(),
        }
    }

    /// Loads a missing node, or returns it if another thread has loaded it.
    pub(crate) fn fetch(&self, missing: &Missing) -> Result<Node, IndexError> {
        let Missing { slot, lower, upper, level, .. } = missing;
        let place = Place { lower, upper: upper.as_deref(), level: *level };
        self.fetch_slot(slot, missing.absent, place)
    }

    /// The slot's node, loaded if necessary.
    pub(crate) fn node_of(&self, slot: &Slot, place: Place<'_>) -> Result<Node, IndexError> {
        slot.node().or_else(|absent| self.fetch_slot(slot, absent, place))
    }

    /// Child `index` of an inner node, loaded if necessary.
    pub(crate) fn child_of(&self, inner: &Inner, index: usize) -> Result<Node, IndexError> {
        let slot = &inner.children()[index];
        slot.node().or_else(|absent| self.fetch_slot(slot, absent, inner.child_place(index)))
    }

    /// Pins the epoch before it loads the record's LSN: segments are freed only after all pins from before have ended.
    fn fetch_slot(&self, slot: &Slot, mut absent: Absent, place: Place<'_>) -> Result<Node, IndexError> {
        let _pinned = crossbeam_epoch::pin();
        loop {
            let read = self.read(slot.lsn(), &place);
            if let Ok(node) = &read
                && slot.install(absent, node.clone())
            {
                if place.level.is_none() {
                    self.learn_len(node);
                }
                return read;
            }
            // Another thread was faster; an old record may even have been freed meanwhile.
            match slot.node() {
                Ok(node) => return Ok(node),
                Err(now) if now.is(absent) => return read,
                Err(now) => absent = now,
            }
        }
    }

    /// The node whose newest record is at `lsn`, read from the store.
    pub(crate) fn read(&self, lsn: Lsn, place: &Place<'_>) -> Result<Node, IndexError> {
        let corrupt = |lsn| move |error: DecodeError| IndexError::decode(self.table, lsn, error);
        let body = self.read_body(lsn)?;
        let header = Header::decode(&body).map_err(corrupt(lsn))?;
        match header.kind {
            NodeKind::Internal => {
                let (inner, entries) =
                    Inner::decode(body, self.table, place, &self.residency).map_err(corrupt(lsn))?;
                if place.level.is_none() && !self.len_known.load(Ordering::Relaxed) {
                    self.len.store(i64::try_from(entries).unwrap_or(0), Ordering::Relaxed);
                }
                Ok(Node::Inner(Arc::new(inner)))
            }
            NodeKind::Leaf => {
                let full_len = body.len();
                let leaf = Leaf::decode(body, self.table, place).map_err(corrupt(lsn))?;
                Ok(Node::Leaf(Arc::new(leaf.with_origin(Origin { full: lsn, full_len, delta: None }))))
            }
            NodeKind::LeafDelta => {
                let delta = LeafDelta::decode(body, self.table, place).map_err(corrupt(lsn))?;
                let full = self.read_body(delta.full())?;
                let full = Leaf::decode(full, self.table, place).map_err(corrupt(delta.full()))?;
                Ok(Node::Leaf(Arc::new(delta.apply(&full, self.table))))
            }
        }
    }

    pub(crate) fn read_body(&self, lsn: Lsn) -> Result<Vec<u8>, IndexError> {
        self.store.read_node(lsn).map_err(|source| IndexError::Store { table: self.table, lsn, source })
    }

    fn learn_len(&self, root: &Node) {
        if !self.len_known.swap(true, Ordering::Relaxed)
            && let Node::Leaf(leaf) = root
        {
            self.len.store(leaf.count() as i64, Ordering::Relaxed);
        }
    }

    /// A slot for a node that is new in the tree.
    pub(crate) fn fresh_slot(&self, node: Node) -> Arc<Slot> {
        Arc::new(Slot::fresh(node, &self.residency))
    }

    /// Replaces a slot's node, after recording the accounts of its record. `touched` lists the keys of a leaf that
    /// changed; `None`: too many to list, or an inner node.
    pub(crate) fn replace(&self, slot: &Slot, node: Node, touched: Option<&[u8]>) {
        self.remember(slot);
        if let Some(disk) = &mut *slot.disk() {
            match touched {
                Some(touched) => disk.changed.add(touched, self.options.leaf_bytes / 4),
                None => disk.changed = super::account::Changed::Whole,
            }
        }
        slot.replace(node);
    }

    /// Records the accounts of the slot's record before its node changes.
    pub(crate) fn remember(&self, slot: &Slot) {
        let lsn = slot.lsn();
        let mut disk = slot.disk();
        if disk.is_none()
            && !lsn.is_null()
            && let Ok(node) = slot.node()
        {
            *disk = Some(Box::new(DiskState::of_loaded(&node, lsn, &*self.store)));
        }
    }

    /// Retires a slot that left the tree: its record no longer counts as live.
    pub(crate) fn retire(&self, slot: &Slot, pending: &mut Pending) {
        self.remember(slot);
        if let Some(disk) = slot.disk().take() {
            pending.subtract(&disk.counted);
        }
        slot.retire();
    }
}
