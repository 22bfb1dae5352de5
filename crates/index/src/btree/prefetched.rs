//! Where a thread's last prefetch found its keys: a look-up that follows begins there, and not at the root.
//!
//! **INV-IDX-16.** *A prefetched position is used only if no inner node has left a slot since the prefetch began, and no tree has begun,
//! as a pinned reader finds after it took the list of memtables.* Then
//! - it is of the reader's tree: no other has had its root's slot since;
//! - the slot is in memory: only inner nodes hold slots, and they are dropped through the epoch, after they are counted;
//! - the slot is in the tree, or the inner node that names it leaves that at this moment, which is after the reader took the list.
//!   So INV-IDX-1 holds as for a reader that comes from the root: it leads to what that would find.
//!
//! The leaf of the slot may be another one by now. If it is where the one of the prefetch was, and the entry there begins the
//! versions of the key, it is what a search would find, whichever leaf it is.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;

use super::node::entry::Entry;
use super::node::leaf::Leaf;
use super::slot::{Loaded, Ref, Slot};

/// How often inner nodes have left slots, and trees have begun, in this process. One count for all trees: positions are used within
/// microseconds, and a count in each tree is memory for each table.
static STRUCTURE: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(1));

/// An inner node has left its slot, and is not handed to the epoch yet; or a tree begins, whose root may be where that of another was.
pub(crate) fn note_change() {
    STRUCTURE.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn structure() -> u64 {
    STRUCTURE.load(Ordering::SeqCst)
}

/// A thread remembers at most so many positions, each in the entry that its key says: a batch of commands reads about as many keys.
const POSITIONS_MAX: usize = 128;

/// Where a key was found.
#[derive(Clone, Copy)]
struct Position {
    /// When the prefetch began; 0 is none's.
    structure: u64,
    /// The root of the tree.
    root: *const Slot,
    fingerprint: u64,
    slot: *const Slot,
    leaf: *const Leaf,
    /// The entry at or after the key.
    index: usize,
}

const NONE: Position = Position {
    structure: 0,
    root: ptr::null(),
    fingerprint: 0,
    slot: ptr::null(),
    leaf: ptr::null(),
    index: 0,
};

thread_local! {
    static PREFETCHED: RefCell<[Position; POSITIONS_MAX]> = const { RefCell::new([NONE; POSITIONS_MAX]) };
    /// How many look-ups still look here: so a thread that does not prefetch spares itself the load of a position, which is in the
    /// processor's first cache only if it is used.
    static LOOK_UPS: Cell<usize> = const { Cell::new(0) };
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

/// Notes where a key was found in the tree with this root: the entry at or after it. `structure` is that when the prefetch began.
pub(crate) fn note(structure: u64, root: &Slot, key: &[u8], slot: &Slot, leaf: &Ref<'_, Leaf>, index: usize) {
    let fingerprint = fingerprint(key);
    let position = Position { structure, root, fingerprint, slot, leaf: leaf.get(), index };
    PREFETCHED.with_borrow_mut(|positions| positions[entry_of(fingerprint)] = position);
    LOOK_UPS.set(POSITIONS_MAX);
}

/// The leaf of `key` and its newest entry at or below `at`, if the thread has its position. The reader has taken its list of
/// memtables before.
#[inline]
pub(crate) fn find<'a>(
    root: &Slot,
    key: &[u8],
    at: Csn,
    guard: &'a Guard,
) -> Option<(Ref<'a, Leaf>, Option<Entry<'a>>)> {
    let look_ups = LOOK_UPS.get().checked_sub(1)?;
    LOOK_UPS.set(look_ups);
    find_position(root, key, at, guard)
}

#[inline(never)]
fn find_position<'a>(
    root: &Slot,
    key: &[u8],
    at: Csn,
    guard: &'a Guard,
) -> Option<(Ref<'a, Leaf>, Option<Entry<'a>>)> {
    let fingerprint = fingerprint(key);
    let position = PREFETCHED.with_borrow(|positions| positions[entry_of(fingerprint)]);
    let is_for_key = position.fingerprint == fingerprint && ptr::eq(position.root, root);
    if !is_for_key || position.structure != structure() {
        return None;
    }
    // SAFETY: as INV-IDX-16 says: `guard` was pinned before the structure was found to be that of the prefetch, so what inner nodes
    // held then lives as long as it.
    let slot: &'a Slot = unsafe { &*position.slot };
    let Loaded::Leaf(leaf) = slot.load(guard) else { return None };
    if !ptr::eq(leaf.get(), position.leaf) {
        return None;
    }
    if !leaf.get().begins_at(position.index, key) {
        return None;
    }
    let entry = leaf.get().find_from(position.index, key, at);
    Some((leaf, entry))
}
