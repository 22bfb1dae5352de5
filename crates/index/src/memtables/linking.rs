//! Linking the versions of a memtable in order: not when they are applied, but when a walk begins that needs it, or a merge, or when
//! maintenance finds many.
//!
//! A commit adds its versions to the index of the keys, which is all that look-ups need, and leaves its block among those to be linked.
//! Many blocks are sorted at once, and linked one behind the other: each search begins where the one before ended. So a commit does not
//! pay for an order that often no walk asks for before the merge.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use super::PREFETCHED_MAX;
use super::block::{self, BlockHeader};
use super::memtable::Memtable;
use super::node::{NodeRef, Position};
use super::shared::Shared;
use super::skip_list::SkipList;
use crate::memory::IndexMemory;
use fulgurite_types::sync::{AtomicPtr, Mutex};
use smallvec::SmallVec;

/// A walk that must not wait links at most so many: half a millisecond.
pub(super) const AT_ONCE_MAX: u64 = 1024;

/// So many, of all memtables, are much: maintenance links them.
pub(crate) const MUCH: u64 = 8 << 10;

/// Which blocks of a memtable are linked.
pub(super) struct Linking {
    /// Held by the thread that links.
    lock: Mutex<()>,
    /// The newest block that is linked, with all below it. Written under the lock.
    up_to: AtomicPtr<BlockHeader>,
}

impl Default for Linking {
    fn default() -> Linking {
        Linking { lock: Mutex::default(), up_to: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Linking {
    /// Whether all that was adopted before is linked.
    #[inline]
    fn is_done(&self, memtable: &Memtable) -> bool {
        memtable.newest_block() == self.up_to.load(Ordering::Acquire)
    }

    /// How many versions are not linked.
    pub fn unlinked(&self, memtable: &Memtable) -> u64 {
        // SAFETY: a block that the memtable owns, and lends for as long as it is borrowed.
        let linked =
            unsafe { self.up_to.load(Ordering::Acquire).as_ref() }.map_or(0, |block| block.entries_total);
        memtable.entries().saturating_sub(linked)
    }

    /// Links all that was adopted before, or waits for the thread that does.
    #[inline]
    pub fn link(&self, memtable: &Memtable, list: &SkipList, memory: &IndexMemory) {
        if !self.is_done(memtable) {
            let _held = self.lock.lock();
            self.link_rest(memtable, list, memory);
        }
    }

    /// The same if no other thread links; returns whether it is done.
    #[inline]
    pub fn try_link(&self, memtable: &Memtable, list: &SkipList, memory: &IndexMemory) -> bool {
        if self.is_done(memtable) {
            return true;
        }
        let Some(_held) = self.lock.try_lock() else { return false };
        self.link_rest(memtable, list, memory);
        true
    }

    /// Under the lock.
    fn link_rest(&self, memtable: &Memtable, list: &SkipList, memory: &IndexMemory) {
        let linked = self.up_to.load(Ordering::Relaxed);
        let top = memtable.newest_block();
        let mut nodes = Vec::with_capacity(self.unlinked(memtable) as usize);
        let mut next = top;
        while next != linked {
            let block = NonNull::new(next).expect("the newest linked block is among those below");
            // SAFETY: the memtable owns its blocks, each with those below it, and they were stamped before.
            nodes.extend(unsafe { block::nodes(block) }.map(|node| (node.header().prefix, node)));
            // SAFETY: as above.
            next = unsafe { block.as_ref() }.below;
        }
        link_sorted(&mut nodes, list);
        self.up_to.store(top, Ordering::Release);
        memory.unlinked().fetch_sub(nodes.len(), Ordering::Relaxed);
    }

    /// What the keys share, as far as a sample of them tells.
    pub fn sampled_shared(&self, memtable: &Memtable, list: &SkipList) -> Shared {
        if let Some(shared) = list.sampled_shared(memtable.entries()) {
            return shared;
        }
        // The first key of each of the newest blocks.
        let mut ends: Option<(&[u8], &[u8])> = None;
        let mut next = memtable.newest_block();
        for _ in 0..SAMPLED_BLOCKS {
            let Some(block) = NonNull::new(next) else { break };
            // SAFETY: as in `link_rest`.
            if let Some(node) = unsafe { block::nodes(block) }.next() {
                let key = node.key();
                ends = Some(ends.map_or((key, key), |(first, last)| (first.min(key), last.max(key))));
            }
            // SAFETY: as above.
            next = unsafe { block.as_ref() }.below;
        }
        match ends {
            Some((first, last)) if first != last => Shared::by(first, last),
            _ => list.shared().clone(),
        }
    }
}

/// So many blocks at most tell what the keys share.
const SAMPLED_BLOCKS: usize = 64;

/// Sorts nodes, each with its prefix, and links them one behind the other.
fn link_sorted(nodes: &mut [(u64, NodeRef<'_>)], list: &SkipList) {
    let by_position = |a: &(u64, NodeRef<'_>), b: &(u64, NodeRef<'_>)| {
        a.0.cmp(&b.0).then_with(|| a.1.position().cmp(&b.1.position()))
    };
    // One commit's are sorted.
    if !nodes.is_sorted_by(|a, b| by_position(a, b).is_le()) {
        nodes.sort_unstable_by(by_position);
    }
    let mut finger = list.finger();
    for start in (0..nodes.len()).step_by(PREFETCHED_MAX) {
        let end = nodes.len().min(start + PREFETCHED_MAX);
        for (_, later) in nodes.iter().skip(end).take(PREFETCHED_MAX) {
            super::prefetch(later.as_ptr());
        }
        let some = &nodes[start..end];
        if some.len() > 1 && !list.is_near(&some[some.len() - 1].1.position(), &finger) {
            let positions: SmallVec<[Position<'_>; PREFETCHED_MAX]> =
                some.iter().map(|(_, node)| node.position()).collect();
            list.prefetch(&positions);
        }
        for (_, node) in some {
            list.insert(*node, &mut finger);
        }
    }
}
