//! Walks a delta at one CSN: one version a key, merged over the generations.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use fulgurite_base::Csn;

use super::KeyRange;
use super::generation::Generation;
use super::list::GenerationList;
use super::node::{NodeRef, Position, key_prefix};
use crate::version::{Pinned, VersionRef};

/// A cursor over the generations that its delta had when it was made. It sees each key's newest version at or below its
/// CSN, tombstones included, and stays right while commits above that CSN are applied.
///
/// After a seek or a step it is at an entry or at the end; a step from the end stays there.
pub struct DeltaCursor {
    list: Arc<GenerationList>,
    at: Csn,
    /// The place in each generation, newest first; the nodes live as long as `list`.
    places: Vec<Option<NodeRef<'static>>>,
    current: Option<NodeRef<'static>>,
    forward: bool,
}

impl DeltaCursor {
    pub(super) fn new(list: Arc<GenerationList>, at: Csn) -> DeltaCursor {
        let places = vec![None; list.newest_first().len()];
        DeltaCursor { list, at, places, current: None, forward: true }
    }

    pub(super) fn list(&self) -> &Arc<GenerationList> {
        &self.list
    }

    fn fill(&mut self, mut find: impl FnMut(&Generation, Csn) -> Option<NodeRef<'_>>) {
        for (place, generation) in self.places.iter_mut().zip(self.list.newest_first()) {
            // SAFETY: `self.list` keeps the generation, and so its nodes, for as long as `self.places` is used.
            *place = find(generation, self.at).map(|node| unsafe { node.detach() });
        }
    }

    /// Moves to the first key at or after (`Included`), or after (`Excluded`), the bound.
    pub fn seek(&mut self, bound: Bound<&[u8]>) {
        self.fill(|generation, at| first_visible(generation, bound, at));
        self.forward = true;
        self.settle();
    }

    /// Moves to the last key at or before (`Included`), or before (`Excluded`), the bound.
    pub fn seek_back(&mut self, bound: Bound<&[u8]>) {
        self.fill(|generation, at| last_visible(generation, bound, at));
        self.forward = false;
        self.settle();
    }

    /// Moves to the next key.
    pub fn next(&mut self) {
        let Some(current) = self.current else { return };
        if !self.forward {
            return self.seek(Bound::Excluded(current.key()));
        }
        for place in &mut self.places {
            if let Some(node) = *place
                && node.has_key_of(current)
            {
                *place = next_visible(node, self.at);
            }
        }
        self.settle();
    }

    /// Moves to the previous key.
    pub fn prev(&mut self) {
        let Some(current) = self.current else { return };
        if self.forward {
            return self.seek_back(Bound::Excluded(current.key()));
        }
        for (place, generation) in self.places.iter_mut().zip(self.list.newest_first()) {
            if let Some(node) = *place
                && node.has_key_of(current)
            {
                let found = last_visible(generation, Bound::Excluded(current.key()), self.at);
                // SAFETY: as in `fill`.
                *place = found.map(|node| unsafe { node.detach() });
            }
        }
        self.settle();
    }

    /// Chooses the nearest key; among equal ones the newest generation's, which comes first.
    fn settle(&mut self) {
        let wanted = if self.forward { Ordering::Less } else { Ordering::Greater };
        self.current = self.places.iter().flatten().copied().reduce(|best, node| {
            let order = node.cmp_key(best.header().prefix, best.key());
            if order == wanted { node } else { best }
        });
    }

    /// Whether it is at the end.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.current.is_none()
    }

    /// The current key; `None` at the end.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.current.map(NodeRef::key)
    }

    /// The current key, pinned.
    ///
    /// # Panics
    /// At the end.
    pub fn pinned_key(&self) -> Pinned {
        self.current.expect("the cursor is at an entry").pinned_key()
    }

    /// The current version.
    ///
    /// # Panics
    /// At the end.
    pub fn version(&self) -> VersionRef<'_> {
        self.current.expect("the cursor is at an entry").version_ref()
    }

    /// The current version's payload, pinned.
    ///
    /// # Panics
    /// At the end.
    pub fn pinned_payload(&self) -> Pinned {
        self.current.expect("the cursor is at an entry").pinned_payload()
    }
}

/// The first node at or after `node` that is visible at `at`: its key's newest, because newer ones come first.
fn skip_invisible(mut node: Option<NodeRef<'_>>, at: Csn) -> Option<NodeRef<'_>> {
    while let Some(hidden) = node
        && hidden.csn() > at
    {
        node = hidden.next(0);
    }
    node
}

fn next_visible(node: NodeRef<'_>, at: Csn) -> Option<NodeRef<'_>> {
    let mut next = node.next(0);
    while let Some(older) = next
        && (older.csn() > at || older.has_key_of(node))
    {
        next = older.next(0);
    }
    next
}

fn first_visible<'g>(generation: &'g Generation, bound: Bound<&[u8]>, at: Csn) -> Option<NodeRef<'g>> {
    let list = generation.list();
    match bound {
        Bound::Unbounded => skip_invisible(list.first(), at),
        Bound::Included(key) => skip_invisible(list.at_or_after(&Position::new(key, at)), at),
        Bound::Excluded(key) => {
            let prefix = key_prefix(key);
            let mut node = list.at_or_after(&Position { prefix, key, csn: Csn::ZERO });
            // Only a version with CSN 0 could have this key here.
            while let Some(same) = node
                && same.has_key(prefix, key)
            {
                node = same.next(0);
            }
            skip_invisible(node, at)
        }
    }
}

fn last_visible<'g>(generation: &'g Generation, bound: Bound<&[u8]>, at: Csn) -> Option<NodeRef<'g>> {
    let list = generation.list();
    if let Bound::Included(key) = bound
        && let Some(found) = generation.find(key, at)
    {
        return Some(found);
    }
    let mut oldest = match bound {
        Bound::Unbounded => list.last(),
        Bound::Included(key) | Bound::Excluded(key) => list.before(&Position::new(key, Csn::MAX)),
    };
    while let Some(node) = oldest {
        // `node` is its key's oldest version: if it is not visible, none is.
        if node.csn() <= at {
            return generation.find(node.key(), at);
        }
        oldest = list.before(&Position::new(node.key(), Csn::MAX));
    }
    None
}

/// Whether a version in the range is newer than `than`.
pub(super) fn any_newer(generation: &Generation, range: KeyRange<'_>, than: Csn) -> bool {
    any(generation, range, |version| version.csn() > than)
}

/// Whether a version in the range is newer than `than` and no tombstone.
pub(super) fn any_newer_value(generation: &Generation, range: KeyRange<'_>, than: Csn) -> bool {
    any(generation, range, |version| version.csn() > than && !version.flags().is_tombstone())
}

fn any(generation: &Generation, range: KeyRange<'_>, wanted: impl Fn(NodeRef<'_>) -> bool) -> bool {
    let mut node = first_visible(generation, range.0, Csn::MAX);
    while let Some(version) = node {
        let inside = match range.1 {
            Bound::Unbounded => true,
            Bound::Included(end) => version.key() <= end,
            Bound::Excluded(end) => version.key() < end,
        };
        if !inside || wanted(version) {
            return inside;
        }
        node = version.next(0);
    }
    false
}
