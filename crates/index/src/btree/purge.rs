//! Which leaves are worth a purge although no write touches them, and when: those with expired versions, and with versions that
//! newer ones of their keys have replaced and that only ended snapshots saw.
//!
//! A leaf's record is written with all its versions, so that is the moment at which it is known when a quarter of their bytes will have
//! expired. Its slot keeps that time, in seconds since 1970, and the record of the inner node above has one for each child: of an
//! inner node the earliest of those below. So a walk over the inner nodes finds the leaves that are due, and reads no other.
//! Versions that have expired in a leaf and are less than a quarter of it stay until a write touches it, until it is a quarter, or, if it never
//! will be, until the last one has expired.

use std::sync::Arc;

use super::node::entry::SAME_KEY;
use super::node::format::Fences;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::slot::{Node, Slot};
use super::tree::Tree;
use crate::{IndexError, LoadFor, OutOfLine, VersionFlags};

/// A purge of a leaf is due once this part of its bytes can be gone.
const GONE_SHARE: u64 = 4;

/// A purge that is due at once.
pub(super) const AT_ONCE: u32 = 1;

/// How many slots a step of the walk looks at, ...
const SLOTS_MAX: usize = 4096;

/// ... and how many leaves that are due it finds.
const LEAVES_MAX: usize = 16;

/// Versions that newer ones replaced, and tombstones, are purged as a leaf is built. So those that a record is written with are seen by a
/// snapshot, which may have ended so many seconds later.
const SNAPSHOT_S: u32 = 600;

/// When a purge of the leaf is due, in seconds since 1970: see above. 0: never. `now` is in such seconds, 0 if it is not known.
pub(super) fn purge_due(leaf: &Leaf, now: u32) -> u32 {
    if !leaf.may_be_pruned() {
        return 0;
    }
    let (mut all, mut gone) = (0, 0);
    let mut expiring = Vec::new();
    for entry in leaf.entries() {
        let flags = entry.version_flags();
        let out_of_line = if flags.is_out_of_line() { OutOfLine::decode(entry.payload).ok() } else { None };
        let bytes = (entry.key.len() + entry.payload.len()) as u64 + out_of_line.map_or(0, |value| value.len);
        all += bytes;
        if entry.flags & SAME_KEY != 0 || flags.0 & VersionFlags::TOMBSTONE != 0 {
            gone += bytes;
        } else if entry.expires_at_ms != 0 {
            expiring.push((entry.expires_at_ms, bytes));
        }
    }
    if gone * GONE_SHARE >= all.max(1) {
        return if now == 0 { AT_ONCE } else { now.saturating_add(SNAPSHOT_S) };
    }
    expiring.sort_unstable();
    let last = expiring.last().copied();
    let enough = expiring.into_iter().find(|(_, bytes)| {
        gone += bytes;
        gone * GONE_SHARE >= all
    });
    let seconds = |(ms, _): (u64, u64)| u32::try_from(ms.div_ceil(1000)).unwrap_or(u32::MAX).max(AT_ONCE);
    enough.or(last).map_or(0, seconds)
}

/// Leaves that are due, as one range of keys.
pub struct DueLeaves {
    /// The first key.
    pub start: Vec<u8>,
    /// The key after the last; `None`: there is none.
    pub end: Option<Vec<u8>>,
    slots: Vec<Arc<Slot>>,
}

impl DueLeaves {
    /// How many leaves a range has at most.
    pub const LEAVES_MAX: usize = LEAVES_MAX;

    /// How many it has.
    #[expect(clippy::len_without_is_empty, reason = "a range that was found has leaves")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The purge has come to the end: a leaf that was due `now`, in seconds since 1970, and that it left as it was, is not due
    /// before `at`, in this opening. The snapshots that hold it then may have ended. One that was not due yet stays due when it was.
    pub fn purged(&self, now: u32, at: u32) -> Purged {
        let mut purged = Purged::default();
        for slot in &self.slots {
            if slot.is_dirty() || slot.is_retired() {
                purged.changed += 1;
            } else if slot.due() <= now {
                purged.stayed += 1;
                slot.set_due(at);
            } else {
                slot.set_due(slot.due());
            }
        }
        purged
    }
}

/// A step of the look for leaves that are due.
pub struct DueStep {
    /// The first that are.
    pub due: Option<DueLeaves>,
    /// The key from which to go on; `None` at the end.
    pub next: Option<Vec<u8>>,
    /// The first inner node that cannot be read: the leaves below it were left out.
    pub failed: Option<IndexError>,
}

/// What a purge has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// How many leaves are not as they were, ...
    pub changed: u64,
    /// ... and how many are, although they were due.
    pub stayed: u64,
}

/// A step of the walk.
struct Walk<'a> {
    tree: &'a Tree,
    now: u32,
    from: &'a [u8],
    slots_left: usize,
    due: Option<DueLeaves>,
    /// The key from which to go on.
    next: Option<Vec<u8>>,
    failed: Option<IndexError>,
}

impl Walk<'_> {
    /// Looks at the slots below an inner node; returns whether the step goes on.
    fn visit(&mut self, inner: &Arc<Inner>) -> bool {
        let first = if inner.fences().lower < self.from { inner.child_index(self.from) } else { 0 };
        for (index, child) in inner.children().iter().enumerate().skip(first) {
            let fences = inner.child_fences(index);
            if self.slots_left == 0 {
                return self.stop_at(fences);
            }
            self.slots_left -= 1;
            let is_due = child.due() != 0 && child.due() <= self.now;
            let goes_on = if inner.level() == 1 {
                self.visit_leaf(child, fences, is_due)
            } else if is_due || child.is_resident() {
                // What changed below one in memory its slot may not know.
                match self.tree.nodes.child_of(inner, index, LoadFor::Maintenance) {
                    Ok(Node::Inner(below)) => self.visit(&below),
                    Ok(Node::Leaf(_)) => true,
                    Err(_) if self.due.is_some() => self.stop_at(fences),
                    Err(error) => {
                        self.failed.get_or_insert(error);
                        true
                    }
                }
            } else if self.due.is_some() {
                // Its leaves are between those that were found and the next.
                self.stop_at(fences)
            } else {
                self.learn(child);
                true
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    fn visit_leaf(&mut self, slot: &Arc<Slot>, fences: Fences<'_>, is_due: bool) -> bool {
        // A dirty one is about to be written, and when it is due again is known then.
        if is_due && !slot.is_dirty() && self.due.as_ref().is_none_or(|due| due.slots.len() < LEAVES_MAX) {
            let due = self.due.get_or_insert_with(|| DueLeaves {
                start: fences.lower.to_vec(),
                end: None,
                slots: Vec::new(),
            });
            due.end = fences.upper.map(<[u8]>::to_vec);
            due.slots.push(Arc::clone(slot));
            return true;
        }
        if self.due.is_some() {
            return self.stop_at(fences);
        }
        if !is_due {
            self.learn(slot);
        }
        true
    }

    /// The next step begins at a slot.
    fn stop_at(&mut self, fences: Fences<'_>) -> bool {
        self.next = Some(fences.lower.to_vec());
        false
    }

    fn learn(&self, slot: &Slot) {
        if slot.due() != 0 {
            self.tree.nodes.residency.learn_due(slot.due());
        }
    }
}

impl Tree {
    /// See [`super::BTree::due_leaves`].
    pub(crate) fn due_leaves(&self, from: &[u8], now: u32) -> Result<DueStep, IndexError> {
        let _maintenance = self.maintenance.lock();
        if from.is_empty() {
            self.nodes.residency.forget_due();
        }
        let mut walk =
            Walk { tree: self, now, from, slots_left: SLOTS_MAX, due: None, next: None, failed: None };
        match self.nodes.node_of(&self.root, Fences::ROOT, LoadFor::Maintenance)? {
            Node::Inner(inner) => _ = walk.visit(&inner),
            Node::Leaf(leaf) => {
                // Its slot knows nothing if it was loaded.
                let due = purge_due(&leaf, 0);
                self.root.set_due(due);
                walk.visit_leaf(&self.root, Fences::ROOT, due != 0 && due <= now);
            }
        }
        Ok(DueStep { due: walk.due, next: walk.next, failed: walk.failed })
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_types::{Csn, TableId};

    use super::*;
    use crate::btree::node::entry::Stamped;
    use crate::btree::node::leaf_writer::{Fill, LeafWriter};

    /// The due time of a leaf of keys, each with versions, newest first: `(flags, expiry in ms)`.
    fn due(keys: &[&[(u8, u64)]]) -> u32 {
        let mut writer = LeafWriter::new(TableId(1), 1 << 20);
        writer.begin(&[]);
        for (n, versions) in keys.iter().enumerate() {
            let versions: Vec<_> = versions
                .iter()
                .zip((1..=versions.len() as u64).rev())
                .map(|(&(flags, expires_at_ms), csn)| {
                    let expiry = if expires_at_ms != 0 { VersionFlags::EXPIRES } else { 0 };
                    Stamped { flags: flags | expiry, csn: Csn(csn), expires_at_ms, payload: &[7; 100] }
                })
                .collect();
            writer.push(&[n as u8], &versions);
        }
        purge_due(&writer.finish(None, Fill::Even).pop().unwrap().leaf, 0)
    }

    #[test]
    fn a_purge_is_due_when_a_quarter_can_be_gone() {
        const STAYS: &[(u8, u64)] = &[(0, 0)];
        assert_eq!(due(&[STAYS; 8]), 0);
        assert_eq!(due(&[&[(0, 3_000)], STAYS, STAYS, STAYS]), 3);
        assert_eq!(due(&[&[(0, 3_001)], &[(0, 9_000)], STAYS, STAYS]), 4, "the first is a quarter");
        let eighths: Vec<&[(u8, u64)]> =
            vec![&[(0, 9_000)], &[(0, 5_000)], &[(0, 7_000)], STAYS, STAYS, STAYS, STAYS, STAYS];
        assert_eq!(due(&eighths), 7, "the second is the second eighth");
        assert_eq!(
            due(&eighths[1..2].iter().chain(&[STAYS; 7]).copied().collect::<Vec<_>>()),
            5,
            "no more will come"
        );
        assert_eq!(due(&[&[(0, 0), (0, 0)], STAYS, STAYS]), 1, "a version that a newer one replaced");
        assert_eq!(due(&[&[(0, 0), (0, 0)], STAYS, STAYS, STAYS]), 0, "it is a fifth");
        assert_eq!(due(&[&[(VersionFlags::TOMBSTONE, 0)], STAYS]), 1);
        assert_eq!(due(&[&[(0, u64::MAX)]]), u32::MAX);
    }
}
