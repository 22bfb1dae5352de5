//! A lock-free skip list (Pugh 1990). Nodes are only added, so a node that once precedes a key always does: a failed
//! link is retried from the same predecessor.

use std::ptr;
use std::sync::atomic::Ordering;

use fulgurite_types::{Csn, TableId};
use smallvec::SmallVec;

use super::PREFETCHED_MAX;
use super::block::{Block, BlockBuilder, NodeFields};
use super::node::{HEIGHT_MAX, Node, NodeRef, Position, node_words};
use super::shared::Shared;
use crate::version::VersionFlags;
use fulgurite_types::sync::AtomicUsize;

/// Between two nodes of this level are about sixteen.
const NEAR_LEVEL: usize = 2;

pub(super) struct SkipList {
    /// Owns the head, the node before all others.
    head_block: Block,
    head: NodeRef<'static>,
    /// How many levels have nodes; may lag, which only costs time.
    height: AtomicUsize,
    shared: Shared,
}

/// The position of the last insertion: at each level the nodes around it. The next node of a sorted block is searched
/// from here.
pub(super) struct Finger<'a> {
    prev: [NodeRef<'a>; HEIGHT_MAX],
    next: [Option<NodeRef<'a>>; HEIGHT_MAX],
    last: Option<NodeRef<'a>>,
}

impl SkipList {
    /// A list of nodes whose prefixes are those of `shared`.
    pub fn new(shared: Shared) -> SkipList {
        let mut builder = BlockBuilder::with_words(TableId::CATALOG, node_words(HEIGHT_MAX, 0, 0));
        let fields = NodeFields {
            key: &[],
            hash: 0,
            csn: Csn::MAX,
            flags: VersionFlags::default(),
            expires_at_ms: 0,
            payload: &[],
            value_lsn: 0,
            checksum: 0,
        };
        let head = builder.push_fields_with_height(&fields, HEIGHT_MAX);
        let block = builder.finish();
        // SAFETY: the block no longer moves its nodes, and the list owns it for as long as it uses the head.
        let head = unsafe { NodeRef::new(head) };
        head.link(0).store(ptr::null_mut(), Ordering::Relaxed);
        SkipList { head_block: block, head, height: AtomicUsize::new(1), shared }
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The position of the newest version of `key` at or below `csn`, if there is one.
    #[inline]
    pub fn position<'k>(&self, key: &'k [u8], csn: Csn) -> Position<'k> {
        Position { prefix: self.shared.prefix(key), key, csn }
    }

    /// How many bytes of memory the head takes.
    pub fn head_bytes(&self) -> usize {
        self.head_block.bytes()
    }

    pub fn finger(&self) -> Finger<'_> {
        Finger { prev: [self.head; HEIGHT_MAX], next: [None; HEIGHT_MAX], last: None }
    }

    /// The nodes that reach a level, in order: on a high level few, as if drawn at random.
    pub fn level(&self, level: usize) -> impl Iterator<Item = NodeRef<'_>> {
        let level = level.min(HEIGHT_MAX - 1);
        std::iter::successors(self.head.next(level), move |node| node.next(level))
    }

    /// The first node at or after the position.
    pub fn at_or_after(&self, position: &Position<'_>) -> Option<NodeRef<'_>> {
        self.search(position).1
    }

    /// The last node before the position.
    pub fn before(&self, position: &Position<'_>) -> Option<NodeRef<'_>> {
        let prev = self.search(position).0;
        (prev != self.head).then_some(prev)
    }

    /// The last node.
    pub fn last(&self) -> Option<NodeRef<'_>> {
        let mut prev: NodeRef<'_> = self.head;
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            while let Some(next) = prev.next(level) {
                prev = next;
            }
        }
        (prev != self.head).then_some(prev)
    }

    /// Whether few nodes are between the last insertion and a later position: a search from there is short.
    pub fn is_near(&self, position: &Position<'_>, finger: &Finger<'_>) -> bool {
        finger.last.is_some() && finger.next[NEAR_LEVEL].is_none_or(|next| !next.is_before(position))
    }

    /// Starts loading what a search for each of these positions reads. The walks take turns: what one waits for is loaded while
    /// the others compare, where searches one after the other would wait at each step.
    pub fn prefetch(&self, positions: &[Position<'_>]) {
        let height = self.height.load(Ordering::Relaxed);
        let mut walks: SmallVec<[(NodeRef<'_>, usize, usize); PREFETCHED_MAX]> =
            (0..positions.len()).map(|index| (self.head, height, index)).collect();
        while !walks.is_empty() {
            walks.retain(|(node, levels, index)| {
                let position = &positions[*index];
                let level = *levels - 1;
                match node.next(level) {
                    Some(next) if next.is_before(position) => *node = next,
                    _ if level == 0 => return false,
                    _ => *levels = level,
                }
                node.prefetch_next(*levels - 1);
                true
            });
        }
    }

    fn search(&self, position: &Position<'_>) -> (NodeRef<'_>, Option<NodeRef<'_>>) {
        let mut around = (self.head, None);
        self.descend(position, self.head, self.height.load(Ordering::Relaxed), |_, prev, next| {
            around = (prev, next);
        });
        around
    }

    /// From `prev`, which is before the position and has `levels` levels, moves right and down to the position; reports
    /// at each level the nodes around it.
    #[inline]
    fn descend<'a>(
        &'a self,
        position: &Position<'_>,
        mut prev: NodeRef<'a>,
        levels: usize,
        mut found: impl FnMut(usize, NodeRef<'a>, Option<NodeRef<'a>>),
    ) {
        let mut known_after = None;
        for level in (0..levels).rev() {
            prev.prefetch_below(level);
            let mut next = prev.next(level);
            while let Some(node) = next
                && next != known_after
                && node.is_before(position)
            {
                prev = node;
                prev.prefetch_below(level);
                next = prev.next(level);
            }
            found(level, prev, next);
            known_after = next;
        }
    }

    /// Links a node; returns false, and does not link it, if its key and CSN are there already.
    ///
    /// Links level by level from the bottom, so a node that is reached at some level has all links below it
    /// (INV-IDX-5).
    pub fn insert<'a>(&'a self, node: NodeRef<'a>, finger: &mut Finger<'a>) -> bool {
        let position = node.position();
        self.move_finger(&position, finger);
        let height = node.height();
        for level in 0..height {
            let around = (finger.prev[level], finger.next[level]);
            let Some(next) = self.link(node, &position, level, around) else { return false };
            (finger.prev[level], finger.next[level]) = (node, next);
        }
        finger.last = Some(node);
        if height > self.height.load(Ordering::Relaxed) {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
        true
    }

    /// Links a node at a level, between two nodes or after them. Returns the one after it; `None` if its key and CSN are there.
    #[inline]
    fn link<'a>(
        &'a self,
        node: NodeRef<'a>,
        position: &Position<'_>,
        level: usize,
        (mut prev, mut next): (NodeRef<'a>, Option<NodeRef<'a>>),
    ) -> Option<Option<NodeRef<'a>>> {
        loop {
            while let Some(after) = next
                && after.is_before(position)
            {
                (prev, next) = (after, after.next(level));
            }
            if level == 0
                && let Some(after) = next
                && after.csn() == position.csn
                && after.has_key(position.prefix, position.key)
            {
                return None;
            }
            let next_ptr = next.map_or(ptr::null_mut::<Node>(), NodeRef::as_ptr);
            node.link(level).store(next_ptr, Ordering::Relaxed);
            let linked = prev.link(level).compare_exchange(
                next_ptr,
                node.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if linked.is_ok() {
                return Some(next);
            }
            next = prev.next(level);
        }
    }

    /// Moves the finger to the position: up while the level's next node is before the position, then down. Levels above
    /// the one where the climb ends may be out of date; `insert` walks forward before it links there.
    fn move_finger<'a>(&'a self, position: &Position<'_>, finger: &mut Finger<'a>) {
        let top = self.height.load(Ordering::Relaxed);
        let mut level = 0;
        let mut prev: NodeRef<'a> = self.head;
        if finger.last.is_some_and(|last| last.is_before(position)) {
            while level < top
                && let Some(next) = finger.next[level]
                && next.is_before(position)
            {
                prev = next;
                level += 1;
            }
        } else {
            *finger = self.finger();
            level = top;
        }
        let (prevs, nexts) = (&mut finger.prev, &mut finger.next);
        self.descend(position, prev, level, |level, prev, next| {
            (prevs[level], nexts[level]) = (prev, next);
        });
    }
}
