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

/// The number of the last moment when an inner node left a slot of a tree. No other tree has it, and no tree twice.
#[derive(Debug)]
pub(crate) struct Structure(AtomicU64);

/// A number that was not given before.
fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Structure {
    pub(crate) fn new() -> Structure {
        Structure(AtomicU64::new(new_number()))
    }

    /// An inner node has left its slot. Called before the node is handed to the epoch.
    pub(crate) fn changes(&self) {
        self.0.swap(new_number(), Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A thread remembers at most so many positions, each in the entry that its key says: a batch of commands reads about as many keys.
const POSITIONS_MAX: usize = 128;

/// Where a key was found.
#[derive(Clone, Copy)]
struct Position {
    /// Of the tree, when the prefetch began; 0 is none's.
    structure: u64,
    fingerprint: u64,
    slot: *const Slot,
    leaf: *const Leaf,
    /// The entry at or after the key.
    index: usize,
}

const NONE: Position =
    Position { structure: 0, fingerprint: 0, slot: std::ptr::null(), leaf: std::ptr::null(), index: 0 };

thread_local! {
    static PREFETCHED: RefCell<[Position; POSITIONS_MAX]> = const { RefCell::new([NONE; POSITIONS_MAX]) };
}

/// The end of a key, where those of a batch differ.
#[inline]
fn fingerprint(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let end = &key[key.len().saturating_sub(8)..];
    bytes[..end.len()].copy_from_slice(end);
    u64::from_le_bytes(bytes)
}

/// The highest bits of a product depend on all bits of the fingerprint (Knuth's multiplicative hashing).
fn entry_of(fingerprint: u64) -> usize {
    (fingerprint.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - POSITIONS_MAX.ilog2())) as usize
}

/// Notes where a key was found: the entry at or after it. `structure` is that of the tree when the prefetch began.
pub(crate) fn note(structure: u64, key: &[u8], slot: &Slot, leaf: &Ref<'_, Leaf>, index: usize) {
    let fingerprint = fingerprint(key);
    let position = Position { structure, fingerprint, slot, leaf: leaf.get(), index };
    PREFETCHED.with_borrow_mut(|positions| positions[entry_of(fingerprint)] = position);
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
    let fingerprint = fingerprint(key);
    let position = PREFETCHED.with_borrow(|positions| positions[entry_of(fingerprint)]);
    if position.structure != structure.now() || position.fingerprint != fingerprint {
        return None;
    }
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
