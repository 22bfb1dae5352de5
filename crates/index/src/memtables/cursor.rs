//! A cursor over a table's memtables at one CSN: one version a key, merged over all of them.

use std::cmp::Ordering;
use std::sync::Arc;

use fulgurite_types::{Csn, KeySpan};

use super::cursor_slot::{CursorSlot, Held, LENT_MAX, Lent};
use super::list::{CurrentList, MemtableList};
use super::memtable::Memtable;
use super::node::NodeRef;
use super::skip_list::SkipList;
use crate::version::{Pinned, VersionRef};

/// A cursor over the memtables that its table had at the last seek. It sees each key's newest version at or below its
/// CSN, tombstones included, and is unaffected by commits above that CSN.
///
/// After a seek or a step it is at an entry or at the end; a step from the end stays there. When memtables of its list
/// have been merged, maintenance takes the list back. The current entry stays, and so do the few lent with it, but
/// asking the memtables for more fails with [`TakenBack`] and changes nothing.
pub struct MemtableCursor {
    /// `None` once it was left to a later cursor.
    slot: Option<Arc<CursorSlot>>,
    at: Csn,
    /// The address of the last seek's list, only for comparisons.
    list: usize,
    /// As in the slot. The nodes are alive even if the list was taken back.
    lent: Lent,
    /// The current entry's index in `lent`.
    index: usize,
    /// The index of the last entry of `lent`.
    last: usize,
    /// How many entries were lent to it since the last seek.
    asked: usize,
    current: Option<NodeRef<'static>>,
    forward: bool,
    /// The keys that it is asked for; `None`: all.
    limits: Option<Arc<KeySpan>>,
}

/// The cursor's list was taken back because memtables were merged. The caller seeks the cursor, by key, and then the
/// base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenBack;

impl MemtableCursor {
    pub(super) fn new(slot: Arc<CursorSlot>, at: Csn) -> MemtableCursor {
        MemtableCursor {
            slot: Some(slot),
            at,
            list: 0,
            lent: Lent::default(),
            index: 0,
            last: 0,
            asked: 0,
            current: None,
            forward: true,
            limits: None,
        }
    }

    /// Keys beyond these are not asked for. It may be at one, also at an older version than it should, or at the end instead: in each
    /// memtable it ends at the first version above its CSN there, of which there may be many.
    pub fn set_limits(&mut self, limits: Arc<KeySpan>) {
        self.limits = Some(limits);
    }

    pub(crate) fn limits(&self) -> Option<&KeySpan> {
        self.limits.as_deref()
    }

    /// Whether it was sought in this list. May be wrongly true if it no longer holds its list and a later one has the
    /// same address.
    #[inline]
    pub(super) fn was_sought_in(&self, list: *const MemtableList) -> bool {
        self.list == list.addr()
    }

    pub(super) fn take_slot(&mut self) -> Option<Arc<CursorSlot>> {
        self.current = None;
        self.slot.take()
    }

    fn seek_in(
        &mut self,
        lists: &CurrentList,
        forward: bool,
        mut find: impl for<'m> FnMut(&'m Memtable, Csn, Option<&KeySpan>) -> Option<NodeRef<'m>>,
    ) {
        let mut held = self.slot.as_ref().expect("it has its slot until it leaves it").lock_current(lists);
        let Held { list: Some(list), next_nodes, lent, .. } = &mut *held else {
            unreachable!("`lock_current` sets the list")
        };
        for (next, memtable) in next_nodes.iter_mut().zip(list.newest_first()) {
            let found = find(memtable, self.at, self.limits.as_deref());
            // SAFETY: the slot's list keeps the memtable, and so its nodes, for as long as `next_nodes` is used.
            *next = found.map(|node| unsafe { node.detach() });
        }
        self.current = nearest(next_nodes, forward);
        *lent = Lent::default();
        lent[0] = self.current;
        self.list = Arc::as_ptr(list).addr();
        (self.index, self.last, self.asked, self.forward) = (0, 0, 1, forward);
    }

    /// Moves to the first key at or after `start`, in the current memtables, whose versions at or below its CSN are linked
    /// (INV-IDX-17).
    pub(super) fn seek(&mut self, lists: &CurrentList, start: &[u8]) {
        self.seek_in(lists, true, |memtable, at, limits| first_visible(memtable.list(), start, at, limits));
    }

    /// The same, to the last key before `end`.
    pub(super) fn seek_back(&mut self, lists: &CurrentList, end: Option<&[u8]>) {
        self.seek_in(lists, false, |memtable, at, limits| last_visible(memtable.list(), end, at, limits));
    }

    /// Moves to the next entry in the direction of the last seek.
    #[inline]
    pub fn step(&mut self) -> Result<(), TakenBack> {
        if self.index < self.last {
            self.index += 1;
            self.current = self.lent[self.index];
            return Ok(());
        }
        match self.current {
            None => Ok(()),
            Some(current) if self.forward => self.ask_next(current),
            Some(current) => self.ask_previous(current),
        }
    }

    #[inline(never)]
    fn ask_next(&mut self, mut current: NodeRef<'static>) -> Result<(), TakenBack> {
        let mut held = self.slot.as_ref().expect("it has its slot until it leaves it").lock();
        let Held { list: Some(_), next_nodes, lent, .. } = &mut *held else { return Err(TakenBack) };
        // A scan that has come far is lent more at once; a short one must not pay for entries that it does not read.
        let wanted = (self.asked / 4).clamp(1, LENT_MAX);
        self.asked += wanted;
        self.last = 0;
        *lent = Lent::default();
        for (i, entry) in lent.iter_mut().take(wanted).enumerate() {
            for next in &mut *next_nodes {
                if let Some(node) = *next
                    && node.has_key_of(current)
                {
                    *next = next_visible(node, self.at, self.limits.as_deref());
                }
            }
            *entry = nearest(next_nodes, true);
            self.last = i;
            let Some(next) = *entry else { break };
            current = next;
        }
        self.lent = *lent;
        self.index = 0;
        self.current = self.lent[0];
        Ok(())
    }

    fn ask_previous(&mut self, current: NodeRef<'static>) -> Result<(), TakenBack> {
        let mut held = self.slot.as_ref().expect("it has its slot until it leaves it").lock();
        let Held { list: Some(list), next_nodes, lent, .. } = &mut *held else { return Err(TakenBack) };
        for (next, memtable) in next_nodes.iter_mut().zip(list.newest_first()) {
            if let Some(node) = *next
                && node.has_key_of(current)
            {
                let limits = self.limits.as_deref();
                let found = last_visible(memtable.list(), Some(current.key()), self.at, limits);
                // SAFETY: as in `seek_in`.
                *next = found.map(|node| unsafe { node.detach() });
            }
        }
        self.current = nearest(next_nodes, false);
        lent[0] = self.current;
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

/// The node with the nearest key; among equal keys the newest memtable's, which comes first.
fn nearest(next_nodes: &[Option<NodeRef<'static>>], forward: bool) -> Option<NodeRef<'static>> {
    let wanted = if forward { Ordering::Less } else { Ordering::Greater };
    next_nodes.iter().flatten().copied().reduce(|best, node| {
        let order = node.key().cmp(best.key());
        if order == wanted { node } else { best }
    })
}

/// The first node at or after `node` that is visible at `at`: its key's newest, because newer ones come first. `None` if there is none
/// among the keys asked for, and invisible ones beyond them.
fn skip_invisible<'g>(
    mut node: Option<NodeRef<'g>>,
    at: Csn,
    limits: Option<&KeySpan>,
) -> Option<NodeRef<'g>> {
    while let Some(hidden) = node
        && hidden.csn() > at
    {
        if limits.is_some_and(|asked| !asked.ends_after(hidden.key())) {
            return None;
        }
        node = hidden.next(0);
    }
    node
}

fn next_visible<'g>(node: NodeRef<'g>, at: Csn, limits: Option<&KeySpan>) -> Option<NodeRef<'g>> {
    let mut next = node.next(0);
    while let Some(older) = next
        && older.has_key_of(node)
    {
        next = older.next(0);
    }
    skip_invisible(next, at, limits)
}

/// The newest visible version of the first key at or after `start` that has one.
fn first_visible<'g>(
    list: &'g SkipList,
    start: &[u8],
    at: Csn,
    limits: Option<&KeySpan>,
) -> Option<NodeRef<'g>> {
    skip_invisible(list.at_or_after(&list.position(start, at)), at, limits)
}

/// The newest visible version of the last key before `end` that has one.
fn last_visible<'g>(
    list: &'g SkipList,
    end: Option<&[u8]>,
    at: Csn,
    limits: Option<&KeySpan>,
) -> Option<NodeRef<'g>> {
    let mut oldest = match end {
        None => list.last(),
        Some(end) => list.before(&list.position(end, Csn::MAX)),
    };
    while let Some(node) = oldest {
        // `node` is its key's oldest version: if it is not visible, none is.
        if node.csn() <= at {
            return list.at_or_after(&list.position(node.key(), at));
        }
        if limits.is_some_and(|asked| asked.starts_after(node.key())) {
            return None;
        }
        oldest = list.before(&node.position_of_newest());
    }
    None
}

/// Whether a version in the range, among those that are linked, is newer than `than`.
pub(super) fn any_newer(memtable: &Memtable, range: KeySpan<&[u8]>, than: Csn) -> bool {
    any(memtable, range, |version| version.csn() > than)
}

/// Whether a version in the range is newer than `than` and no tombstone.
pub(super) fn any_newer_value(memtable: &Memtable, range: KeySpan<&[u8]>, than: Csn) -> bool {
    any(memtable, range, |version| version.csn() > than && !version.flags().is_tombstone())
}

fn any(memtable: &Memtable, range: KeySpan<&[u8]>, wanted: impl Fn(NodeRef<'_>) -> bool) -> bool {
    let mut node = first_visible(memtable.list(), range.start, Csn::MAX, None);
    while let Some(version) = node {
        let is_inside = range.ends_after(version.key());
        if !is_inside || wanted(version) {
            return is_inside;
        }
        node = version.next(0);
    }
    false
}
