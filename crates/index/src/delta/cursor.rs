//! Walks a delta at one CSN: one version a key, merged over the generations.

use std::cmp::Ordering;
use std::ops::Bound;

use fulgurite_base::Csn;

use super::KeyRange;
use super::generation::Generation;
use super::lent::{Held, LENT_MAX, Lent, Slot};
use super::list::{GenerationList, ListCell};
use super::node::{NodeRef, Position, key_prefix};
use crate::version::{Pinned, VersionRef};

/// A cursor over the generations that its delta had when it was made. It sees each key's newest version at or below its
/// CSN, tombstones included, and stays right while commits above that CSN are applied.
///
/// After a seek or a step it is at an entry or at the end; a step from the end stays there. When generations were folded
/// since, maintenance takes the list back: then the entry where the cursor is stays, and so do the few that it was lent
/// together with it, but asking the generations fails with [`Revoked`], and changes nothing.
pub struct DeltaCursor {
    slot: Slot,
    at: Csn,
    /// As in the slot. The nodes are alive whether the list was taken back or not.
    lent: Lent,
    /// Where the cursor is in `lent`.
    index: usize,
    /// The last of `lent`.
    last: usize,
    /// How many entries it was lent since it was sought.
    asked: usize,
    current: Option<NodeRef<'static>>,
    forward: bool,
}

/// The cursor's generations were folded: a new cursor is to go on, by key, and after it a new look at the static part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revoked;

impl Held {
    /// The list and the places in it.
    fn view(&mut self) -> Result<(&GenerationList, &mut [Option<NodeRef<'static>>]), Revoked> {
        Ok((self.list.as_deref().ok_or(Revoked)?, &mut self.places))
    }
}

impl DeltaCursor {
    pub(super) fn new(slot: Slot, at: Csn) -> DeltaCursor {
        DeltaCursor {
            slot,
            at,
            lent: Lent::default(),
            index: 0,
            last: 0,
            asked: 0,
            current: None,
            forward: true,
        }
    }

    /// Whether its list is there, and this one.
    pub(super) fn has_current(&self, lists: &ListCell) -> bool {
        self.slot.lock().list.as_ref().is_some_and(|list| lists.is_current(list))
    }

    fn fill(
        &mut self,
        forward: bool,
        mut find: impl FnMut(&Generation, Csn) -> Option<NodeRef<'_>>,
    ) -> Result<(), Revoked> {
        let mut held = self.slot.lock();
        let (list, places) = held.view()?;
        for (place, generation) in places.iter_mut().zip(list.newest_first()) {
            // SAFETY: the slot's list keeps the generation, and so its nodes, for as long as the places are used.
            *place = find(generation, self.at).map(|node| unsafe { node.detach() });
        }
        self.current = nearest(places, forward);
        self.lent[0] = self.current;
        held.lent[0] = self.current;
        held.lent[1..].fill(None);
        (self.index, self.last, self.asked, self.forward) = (0, 0, 1, forward);
        Ok(())
    }

    /// Moves to the first key at or after (`Included`), or after (`Excluded`), the bound.
    pub fn seek(&mut self, bound: Bound<&[u8]>) -> Result<(), Revoked> {
        self.fill(true, |generation, at| first_visible(generation, bound, at))
    }

    /// Moves to the last key at or before (`Included`), or before (`Excluded`), the bound.
    pub fn seek_back(&mut self, bound: Bound<&[u8]>) -> Result<(), Revoked> {
        self.fill(false, |generation, at| last_visible(generation, bound, at))
    }

    /// Moves to the next key.
    #[expect(clippy::should_implement_trait, reason = "a cursor that walks both ways is no iterator")]
    #[inline]
    pub fn next(&mut self) -> Result<(), Revoked> {
        if self.index < self.last && self.forward {
            self.index += 1;
            self.current = self.lent[self.index];
            return Ok(());
        }
        self.next_from_generations()
    }

    #[inline(never)]
    fn next_from_generations(&mut self) -> Result<(), Revoked> {
        let Some(mut current) = self.current else { return Ok(()) };
        if !self.forward {
            return self.seek(Bound::Excluded(current.key()));
        }
        let mut held = self.slot.lock();
        let (_, places) = held.view()?;
        // A scan that has come far goes on for longer; a short one shall not pay for what it does not ask for.
        let wanted = (self.asked / 4).clamp(1, LENT_MAX);
        self.asked += wanted;
        let mut lent = Lent::default();
        self.last = 0;
        for (i, entry) in lent.iter_mut().take(wanted).enumerate() {
            for place in &mut *places {
                if let Some(node) = *place
                    && node.has_key_of(current)
                {
                    *place = next_visible(node, self.at);
                }
            }
            *entry = nearest(places, true);
            self.last = i;
            let Some(next) = *entry else { break };
            current = next;
        }
        held.lent = lent;
        self.lent = lent;
        self.index = 0;
        self.current = lent[0];
        Ok(())
    }

    /// Moves to the previous key.
    pub fn prev(&mut self) -> Result<(), Revoked> {
        let Some(current) = self.current else { return Ok(()) };
        if self.forward {
            return self.seek_back(Bound::Excluded(current.key()));
        }
        let mut held = self.slot.lock();
        let (list, places) = held.view()?;
        for (place, generation) in places.iter_mut().zip(list.newest_first()) {
            if let Some(node) = *place
                && node.has_key_of(current)
            {
                let found = last_visible(generation, Bound::Excluded(current.key()), self.at);
                // SAFETY: as in `fill`.
                *place = found.map(|node| unsafe { node.detach() });
            }
        }
        self.current = nearest(places, false);
        self.lent[0] = self.current;
        held.lent[0] = self.current;
        Ok(())
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

/// The nearest key's place; among equal ones the newest generation's, which comes first.
fn nearest(places: &[Option<NodeRef<'static>>], forward: bool) -> Option<NodeRef<'static>> {
    let wanted = if forward { Ordering::Less } else { Ordering::Greater };
    places.iter().flatten().copied().reduce(|best, node| {
        let order = node.cmp_key(best.header().prefix, best.key());
        if order == wanted { node } else { best }
    })
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
