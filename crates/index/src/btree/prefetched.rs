//! Where a thread's last prefetch found its keys: a look-up that follows begins there, and not at the root.
//!
//! **INV-IDX-16.** *A prefetched position is used only if no inner node has left a slot of its tree since the prefetch began, as a
//! pinned reader finds after it took the list of memtables.* Then
//! - the slot is in memory: only inner nodes hold slots, and they are dropped through the epoch, after they are counted;
//! - the slot is in the tree, or the inner node that names it leaves that at this moment, which is after the reader took the list.
//!   So INV-IDX-1 holds as for a reader that comes from the root: it leads to what that would find.
//!
//! The leaf of the slot may be another one by now. If it is where the one of the prefetch was, and the entry there begins the
//! versions of the key, it is what a search would find, whichever leaf it is.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::Guard;
use fulgurite_types::Csn;

use super::node::entry::Entry;
use super::node::leaf::Leaf;
use super::slot::{Loaded, Ref, Slot};
use crate::memtables::PREFETCHED_MAX;

/// How often inner nodes have left slots of a tree, from a number on that is no other tree's.
#[derive(Debug)]
pub(crate) struct Structure(AtomicU64);

/// Trees are so far apart: none has so many changes.
const CHANGES_MAX: u64 = 1 << 40;

impl Structure {
    pub(crate) fn new() -> Structure {
        static TREES: AtomicU64 = AtomicU64::new(1);
        Structure(AtomicU64::new(TREES.fetch_add(1, Ordering::Relaxed).wrapping_mul(CHANGES_MAX)))
    }

    /// An inner node has left its slot. Called before the node is handed to the epoch.
    pub(crate) fn changes(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Where a key was found.
#[derive(Clone, Copy)]
struct Position {
    fingerprint: u64,
    slot: *const Slot,
    leaf: *const Leaf,
    /// The entry at or after the key.
    index: usize,
}

struct Positions {
    /// The structure of the tree that the positions are of, when the prefetch began; 0 is none's.
    structure: u64,
    count: usize,
    of_keys: [Position; PREFETCHED_MAX],
}

const NONE: Position = Position { fingerprint: 0, slot: std::ptr::null(), leaf: std::ptr::null(), index: 0 };

thread_local! {
    static PREFETCHED: RefCell<Positions> = const { RefCell::new(Positions { structure: 0, count: 0, of_keys: [NONE; PREFETCHED_MAX] }) };
}

/// The end of a key, where those of a batch differ.
#[inline]
fn fingerprint(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let end = &key[key.len().saturating_sub(8)..];
    bytes[..end.len()].copy_from_slice(end);
    u64::from_le_bytes(bytes)
}

/// Forgets the positions of the thread. Those that follow are of a tree whose structure was this when the prefetch began.
pub(crate) fn begin(structure: u64) {
    PREFETCHED.with_borrow_mut(|positions| (positions.structure, positions.count) = (structure, 0));
}

/// Notes where a key was found: the entry at or after it.
pub(crate) fn note(key: &[u8], slot: &Slot, leaf: &Ref<'_, Leaf>, index: usize) {
    PREFETCHED.with_borrow_mut(|positions| {
        if let Some(position) = positions.of_keys.get_mut(positions.count) {
            *position = Position { fingerprint: fingerprint(key), slot, leaf: leaf.get(), index };
            positions.count += 1;
        }
    });
}

/// The leaf of `key` and its newest entry at or below `at`, if the thread has its position. The reader has taken its list of
/// memtables before.
#[inline]
pub(crate) fn find<'a>(
    structure: &Structure,
    key: &[u8],
    at: Csn,
    guard: &'a Guard,
) -> Option<(Ref<'a, Leaf>, Option<Entry<'a>>)> {
    let now = structure.now();
    let position = PREFETCHED.with_borrow(|positions| {
        let is_for_key = |position: &&Position| position.fingerprint == fingerprint(key);
        if positions.structure == now {
            positions.of_keys[..positions.count].iter().find(is_for_key).copied()
        } else {
            None
        }
    })?;
    // SAFETY: as INV-IDX-16 says: `guard` was pinned before the structure was found to be that of the prefetch, so what inner nodes
    // held then lives as long as it.
    let slot: &'a Slot = unsafe { &*position.slot };
    let Loaded::Leaf(leaf) = slot.load(guard) else { return None };
    if !std::ptr::eq(leaf.get(), position.leaf) {
        return None;
    }
    let entry = leaf.get().find_from(position.index, key, at)?;
    Some((leaf, entry))
}
