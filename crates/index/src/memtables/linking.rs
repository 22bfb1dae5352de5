//! Linking the versions of a memtable in order: not when they are applied, but when a walk begins that needs it, or, in a table that is
//! walked, when maintenance finds many.
//!
//! A commit adds its versions to the index of the keys, which is all that look-ups need, and leaves its block among those to be linked.
//! Many blocks are sorted at once, and linked one behind the other: each search begins where the one before ended. So a commit does not
//! pay for an order that often no walk asks for before the merge; and that sorts the versions for itself, as each needs its place once
//! there, and no links.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::PREFETCHED_MAX;
use super::block::{self, BlockHeader};
use super::memtable::Memtable;
use super::node::{NodeRef, Position, key_prefix};
use super::skip_list::SkipList;
use crate::memory::IndexMemory;
use fulgurite_types::sync::{AtomicPtr, Mutex, yield_now};
use smallvec::SmallVec;

/// A walk that must not wait links at most so many: half a millisecond.
pub(super) const AT_ONCE_MAX: u64 = 1024;

/// So many, of all memtables, are much: maintenance links them. The next walk would take two milliseconds longer.
pub(crate) const MUCH: u64 = 8 << 10;

/// Where tables are only written, so many are: most of them are merged before a walk comes. The first one takes up to a
/// tenth of a second longer.
pub(crate) const MUCH_UNWALKED: u64 = WALKED_WEIGHT as u64 * MUCH;

/// A version of a table that is walked counts as so many of one that is not.
const WALKED_WEIGHT: usize = 64;

/// A table is one that is walked until so many memtables had none.
const WALKED_MEMTABLES: u32 = 2;

/// Which blocks of a memtable are linked.
pub(super) struct Linking {
    /// Held by the thread that links.
    lock: Mutex<()>,
    /// The newest block that is linked, with all below it. Written under the lock.
    up_to: AtomicPtr<BlockHeader>,
    /// The table is one that is walked, until so many more memtables had no walk.
    walked: AtomicU32,
    /// How much its versions that are not linked count among those of all tables: [`MUCH_UNWALKED`] is much.
    counted: AtomicUsize,
}

impl Linking {
    /// Of the first memtable of a table, or of one after another.
    pub fn after(before: Option<&Linking>) -> Linking {
        let walked = before.map_or(0, |before| before.walked.load(Ordering::Relaxed).saturating_sub(1));
        Linking {
            lock: Mutex::default(),
            up_to: AtomicPtr::new(ptr::null_mut()),
            walked: AtomicU32::new(walked),
            counted: AtomicUsize::new(0),
        }
    }

    /// A walk begins.
    #[inline]
    pub fn note_walk(&self, memory: &IndexMemory) {
        if self.walked.load(Ordering::Relaxed) == WALKED_MEMTABLES {
            return;
        }
        if self.walked.swap(WALKED_MEMTABLES, Ordering::Relaxed) == 0 {
            self.add_to_counted(self.counted.load(Ordering::Relaxed) * (WALKED_WEIGHT - 1), memory);
        }
    }

    /// Whether this or one of the last memtables had a walk, so that the next one is to find it in order.
    #[inline]
    pub fn is_walked(&self) -> bool {
        self.walked.load(Ordering::Relaxed) > 0
    }

    /// So many versions are about to be among those to be linked. An inexact number has maintenance link early or late.
    #[inline]
    pub fn count(&self, versions: usize, memory: &IndexMemory) {
        self.add_to_counted(if self.is_walked() { versions * WALKED_WEIGHT } else { versions }, memory);
    }

    fn add_to_counted(&self, count: usize, memory: &IndexMemory) {
        // First where `uncount` takes it back last.
        memory.unlinked().fetch_add(count, Ordering::Relaxed);
        self.counted.fetch_add(count, Ordering::Relaxed);
    }

    /// Those that were counted are linked, or need not be any more.
    pub fn uncount(&self, memory: &IndexMemory) {
        if self.counted.load(Ordering::Relaxed) == 0 {
            return;
        }
        memory.unlinked().fetch_sub(self.counted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

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
        self.uncount(memory);
        if !self.is_done(memtable) {
            let _held = self.lock.lock();
            self.link_rest(memtable, list);
        }
    }

    /// The same if no other thread links; returns whether it is done.
    #[inline]
    pub fn try_link(&self, memtable: &Memtable, list: &SkipList, memory: &IndexMemory) -> bool {
        if self.is_done(memtable) {
            return true;
        }
        let Some(_held) = self.lock.try_lock() else { return false };
        self.uncount(memory);
        self.link_rest(memtable, list);
        true
    }

    /// Under the lock.
    fn link_rest(&self, memtable: &Memtable, list: &SkipList) {
        let linked = self.up_to.load(Ordering::Relaxed);
        let top = memtable.newest_block();
        // Others wait for the lock: it does not yield.
        link_sorted(&sorted(memtable, top, linked, self.unlinked(memtable) as usize, |_| {}), list);
        self.up_to.store(top, Ordering::Release);
    }
}

/// A node with the numbers that mostly decide where it belongs: they are compared without a look at the node.
#[derive(Clone, Copy)]
pub(super) struct Numbered<'a> {
    /// Of the bytes after those that others share: those of one key have the same.
    prefix: u64,
    /// Of two versions the newer one comes first.
    inverse_csn: u64,
    pub node: NodeRef<'a>,
}

impl<'a> Numbered<'a> {
    pub fn new(node: NodeRef<'a>) -> Numbered<'a> {
        Numbered { prefix: node.header().prefix, inverse_csn: !node.csn().0, node }
    }

    /// Whether both have the same key; they are of one memtable.
    pub fn has_key_of(self, other: Numbered<'_>) -> bool {
        self.prefix == other.prefix && self.node.has_key_of(other.node)
    }
}

/// To look at a node takes as long as so many comparisons of two that are in the processor's cache.
pub(super) const COMPARISONS_A_LOOK: u32 = 16;

/// The nodes of a block of the memtable and of those below it, down to another or to the end, in order. Says after each `step` how many
/// comparisons it took.
fn sorted(
    _memtable: &Memtable,
    top: *mut BlockHeader,
    bottom: *mut BlockHeader,
    expected: usize,
    mut step: impl FnMut(u32),
) -> Vec<Numbered<'_>> {
    let mut nodes = Vec::with_capacity(expected);
    let mut next = top;
    while next != bottom {
        let block = NonNull::new(next).expect("the bottom is among those below");
        // SAFETY: the memtable owns its blocks, each with those below it, and they were stamped before.
        for node in unsafe { block::nodes(block) } {
            nodes.push(Numbered::new(node));
            step(COMPARISONS_A_LOOK);
        }
        // SAFETY: as above.
        next = unsafe { block.as_ref() }.below;
    }
    sort_by_numbers(&mut nodes, &mut step);
    for run in nodes.chunk_by_mut(|a, b| a.prefix == b.prefix) {
        sort_run(run, &mut step);
    }
    nodes
}

fn sort_by_numbers(nodes: &mut [Numbered<'_>], step: &mut impl FnMut(u32)) {
    nodes.sort_unstable_by(|a, b| {
        step(1);
        (a.prefix, a.inverse_csn).cmp(&(b.prefix, b.inverse_csn))
    });
}

/// Sorts nodes of one prefix. Most have one key, but in a first memtable, where it is not known what the keys share: that is left out of
/// the prefixes then.
fn sort_run(run: &mut [Numbered<'_>], step: &mut impl FnMut(u32)) {
    if has_one_key(run) {
        return;
    }
    let first = run[0].node.key();
    let shared_with_first = |key: &[u8]| first.iter().zip(key).take_while(|(a, b)| a == b).count();
    let shared = run.iter().map(|numbered| shared_with_first(numbered.node.key())).min().unwrap_or(0);
    for numbered in run.iter_mut() {
        numbered.prefix = key_prefix(&numbered.node.key()[shared..]);
    }
    sort_by_numbers(run, step);
    for run in run.chunk_by_mut(|a, b| a.prefix == b.prefix) {
        if !has_one_key(run) {
            run.sort_unstable_by(|a, b| {
                step(COMPARISONS_A_LOOK);
                (a.node.key(), a.inverse_csn).cmp(&(b.node.key(), b.inverse_csn))
            });
        }
    }
}

fn has_one_key(nodes: &[Numbered<'_>]) -> bool {
    nodes.windows(2).all(|two| two[0].node.has_key_of(two[1].node))
}

/// A thread that puts nodes in order for a merge, or frees them after it, lets others have the processor after so many comparisons, a
/// fraction of a millisecond, as it does after each step of the merge.
const COMPARISONS_A_TURN: u32 = 32 << 10;

/// Counts comparisons, and yields the processor after each turn.
pub(super) fn in_turns() -> impl FnMut(u32) {
    let mut comparisons = 0;
    move |some| {
        comparisons += some;
        if comparisons >= COMPARISONS_A_TURN {
            comparisons = 0;
            yield_now();
        }
    }
}

/// All versions of a memtable that were adopted before, in order, without linking them.
pub(super) fn all_sorted(memtable: &Memtable) -> Vec<Numbered<'_>> {
    sorted(memtable, memtable.newest_block(), ptr::null_mut(), memtable.entries() as usize, in_turns())
}

/// All versions that are linked, in order.
pub(super) fn all_linked(list: &SkipList, expected: usize) -> Vec<Numbered<'_>> {
    let mut step = in_turns();
    let mut nodes = Vec::with_capacity(expected);
    for node in list.level(0) {
        nodes.push(Numbered::new(node));
        step(COMPARISONS_A_LOOK);
    }
    nodes
}

/// Links sorted nodes one behind the other.
fn link_sorted(nodes: &[Numbered<'_>], list: &SkipList) {
    let mut finger = list.finger();
    for start in (0..nodes.len()).step_by(PREFETCHED_MAX) {
        let end = nodes.len().min(start + PREFETCHED_MAX);
        for later in nodes.iter().skip(end).take(PREFETCHED_MAX) {
            super::prefetch(later.node.as_ptr());
        }
        let some = &nodes[start..end];
        if some.len() > 1 && !list.is_near(&some[some.len() - 1].node.position(), &finger) {
            let positions: SmallVec<[Position<'_>; PREFETCHED_MAX]> =
                some.iter().map(|numbered| numbered.node.position()).collect();
            list.prefetch(&positions);
        }
        for numbered in some {
            list.insert(numbered.node, &mut finger);
        }
    }
}
