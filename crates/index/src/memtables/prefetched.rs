//! Where a thread's last prefetch found its keys in memtables: the look-ups and insertions that follow begin there.
//!
//! A node that once precedes a key always does, as nodes are only added ([`super::skip_list`]). So a predecessor of a key, once the last
//! node before it, stays one; a search that begins there has a few more steps to go, or gives up. A list keeps its nodes as long as
//! it lives, and no other list gets its number.

use std::cell::RefCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::PREFETCHED_MAX;
use super::node::Node;

/// How many there are at most: keys may be in several memtables.
const PREDECESSORS_MAX: usize = 2 * PREFETCHED_MAX;

struct Predecessors {
    count: usize,
    /// Of the keys.
    hashes: [u64; PREDECESSORS_MAX],
    /// The number of the list, and a node of it that precedes the key.
    before: [(u64, *mut Node); PREDECESSORS_MAX],
}

thread_local! {
    static PREFETCHED: RefCell<Predecessors> = const {
        RefCell::new(Predecessors { count: 0, hashes: [0; PREDECESSORS_MAX], before: [(0, ptr::null_mut()); PREDECESSORS_MAX] })
    };
}

/// A number for a list, which no other has.
pub(super) fn new_number() -> u64 {
    static LISTS: AtomicU64 = AtomicU64::new(1);
    LISTS.fetch_add(1, Ordering::Relaxed)
}

/// Forgets the predecessors that the thread knows.
pub(super) fn begin() {
    PREFETCHED.with_borrow_mut(|known| known.count = 0);
}

/// Notes that a node of a list precedes a key.
pub(super) fn note(list: u64, hash: u64, before: *mut Node) {
    PREFETCHED.with_borrow_mut(|known| {
        let at = known.count;
        if at < PREDECESSORS_MAX {
            (known.hashes[at], known.before[at]) = (hash, (list, before));
            known.count += 1;
        }
    });
}

/// A node of the list that precedes the key, if the thread knows one.
#[inline]
pub(super) fn find(list: u64, hash: u64) -> Option<NonNull<Node>> {
    PREFETCHED.with_borrow(|known| {
        let mut hashes = known.hashes[..known.count].iter().zip(&known.before);
        let found = hashes.find(|(own, (its_list, _))| **own == hash && *its_list == list);
        found.and_then(|(_, (_, node))| NonNull::new(*node))
    })
}
