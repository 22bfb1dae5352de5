//! Where a thread's last prefetches and look-ups found keys in memtables: the look-ups and insertions that follow begin there.
//!
//! A node that once precedes a key always does, as nodes are only added ([`super::skip_list`]). So a predecessor of a key, once the last
//! node before it, stays one; a search that begins there has a few more steps to go, or gives up. A list keeps its nodes as long as
//! it lives, and no other list gets its number.

use std::cell::RefCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::node::Node;

/// A thread remembers at most so many, each in the entry that the hash of its key says: a batch of commands writes about as many keys.
const PREDECESSORS_MAX: usize = 128;

#[derive(Clone, Copy)]
struct Predecessor {
    /// Of the key.
    hash: u64,
    /// The number of the list; 0 is none's.
    list: u64,
    /// A node of it that precedes the key.
    node: *mut Node,
}

const NONE: Predecessor = Predecessor { hash: 0, list: 0, node: ptr::null_mut() };

thread_local! {
    static PREFETCHED: RefCell<[Predecessor; PREDECESSORS_MAX]> = const { RefCell::new([NONE; PREDECESSORS_MAX]) };
}

/// A number for a list, which no other has.
pub(super) fn new_number() -> u64 {
    static LISTS: AtomicU64 = AtomicU64::new(1);
    LISTS.fetch_add(1, Ordering::Relaxed)
}

fn entry_of(hash: u64) -> usize {
    hash as usize % PREDECESSORS_MAX
}

/// Notes that a node of a list precedes a key.
#[inline]
pub(super) fn note(list: u64, hash: u64, node: *mut Node) {
    PREFETCHED.with_borrow_mut(|known| known[entry_of(hash)] = Predecessor { hash, list, node });
}

/// A node of the list that precedes the key, if the thread knows one.
#[inline]
pub(super) fn find(list: u64, hash: u64) -> Option<NonNull<Node>> {
    let known = PREFETCHED.with_borrow(|known| known[entry_of(hash)]);
    NonNull::new(known.node).filter(|_| known.hash == hash && known.list == list)
}
