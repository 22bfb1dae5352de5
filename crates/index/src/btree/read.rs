//! Point reads: wait-free while every node on their path is in memory.

use std::ptr;
use std::sync::Arc;

use crossbeam_epoch::{self as epoch, Guard};
use fulgurite_types::{Csn, KeySpan, Lsn};
use smallvec::SmallVec;

use super::load::Missing;
use super::node::entry::Entry;
use super::node::format::Fences;
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::path::{Path, Target};
use super::prefetched;
use super::slot::{Loaded, Node, Ref, Slot};
use super::tree::Tree;
use crate::memtables::{PREFETCHED_MAX, prefetch, prefetch_two_lines};
use crate::{IndexError, Io, LoadFor, OutOfLine, Owner, Pinned, Version};

/// The version of an entry, which pins the entry's leaf, or is a copy of a short one.
pub(crate) fn version(leaf: impl FnOnce() -> Arc<Leaf>, entry: &Entry<'_>) -> Version {
    let (csn, flags, expires_at_ms) = (entry.csn, entry.version_flags(), entry.expires_at_ms);
    Version { csn, flags, expires_at_ms, payload: pin(leaf, entry.payload) }
}

/// Bytes of the leaf that `leaf` returns, pinned.
pub(crate) fn pin(leaf: impl FnOnce() -> Arc<Leaf>, bytes: &[u8]) -> Pinned {
    let owner = || {
        let leaf = leaf();
        debug_assert!(leaf.bytes().as_ptr_range().contains(&bytes.as_ptr()));
        Owner::Leaf(leaf)
    };
    // SAFETY: every caller passes bytes of this leaf's own body, which is boxed and never changes while it lives.
    unsafe { Pinned::new(owner, bytes) }
}

impl Tree {
    /// The leaf whose range contains `key`, or the first node on the path that is on disk.
    #[inline]
    pub(crate) fn descend<'a>(&'a self, key: &[u8], guard: &'a Guard) -> Result<Ref<'a, Leaf>, Box<Missing>> {
        let mut slot = &self.root;
        let mut parent = None;
        loop {
            match slot.load(guard) {
                Loaded::Leaf(leaf) => return Ok(leaf),
                Loaded::Inner(inner) => {
                    let inner = inner.get();
                    let index = inner.child_index(key);
                    slot = &inner.children()[index];
                    parent = Some((inner, index));
                }
                Loaded::Absent(_) => {
                    let fences = parent.map_or(Fences::ROOT, |(inner, index)| inner.child_fences(index));
                    return Err(Missing::new(slot, &fences));
                }
            }
        }
    }

    /// The leaf whose range contains `key`, loaded if necessary and allowed.
    pub(crate) fn leaf_for(&self, key: &[u8], io: Io, cause: LoadFor) -> Result<Arc<Leaf>, IndexError> {
        let mut read = None;
        loop {
            let missing = {
                let guard = epoch::pin();
                match self.descend(key, &guard) {
                    Ok(leaf) => return Ok(leaf.to_arc()),
                    Err(_) if io == Io::MemoryOnly => return Err(IndexError::WouldBlock),
                    Err(missing) => missing,
                }
            };
            if read.is_none() {
                match io {
                    Io::Impatient => self.nodes.residency.memory().look(),
                    Io::Allowed | Io::MemoryOnly => self.nodes.residency.memory().wait_for_room(cause),
                }
                // The slot has to be found after the read began (INV-READ-1).
                read = Some(self.nodes.begin_read());
                continue;
            }
            if let Some(Node::Leaf(leaf)) = self.nodes.fetch(&missing, cause)? {
                return Ok(leaf);
            }
        }
    }

    /// See [`crate::Base::get`].
    pub(crate) fn get(&self, key: &[u8], at: Csn, io: Io) -> Result<Option<Version>, IndexError> {
        {
            let guard = epoch::pin();
            if let Some((leaf, entry)) = prefetched::find(&self.root, key, at, &guard) {
                return Ok(entry.map(|entry| version(|| leaf.to_arc(), &entry)));
            }
            if let Ok(leaf) = self.descend(key, &guard) {
                return Ok(leaf.get().find(key, at).map(|entry| version(|| leaf.to_arc(), &entry)));
            }
        }
        let leaf = self.leaf_for(key, io, LoadFor::Read)?;
        Ok(leaf.find(key, at).map(|entry| version(|| Arc::clone(&leaf), &entry)))
    }

    /// See [`crate::Base::prefetch`]. The searches take turns at each level, so that the loads of all go on at once.
    pub(crate) fn prefetch(&self, keys: &[(&[u8], u64)]) {
        let guard = epoch::pin();
        let structure = prefetched::structure();
        let mut slots: SmallVec<[&Slot; PREFETCHED_MAX]> = keys.iter().map(|_| &*self.root).collect();
        // Each pass over the keys loads what the one before it has asked for.
        loop {
            let inners: SmallVec<[Option<&Inner>; PREFETCHED_MAX]> = slots
                .iter()
                .map(|slot| match slot.load(&guard) {
                    Loaded::Inner(inner) => {
                        prefetch_two_lines(inner.get());
                        Some(inner.get())
                    }
                    Loaded::Leaf(_) | Loaded::Absent(_) => None,
                })
                .collect();
            if inners.iter().all(Option::is_none) {
                break;
            }
            for (inner, (key, _)) in inners.iter().zip(keys) {
                inner.iter().for_each(|inner| inner.prefetch_search(key));
            }
            let children: SmallVec<[Option<&Arc<Slot>>; PREFETCHED_MAX]> = inners
                .iter()
                .zip(keys)
                .map(|(inner, (key, _))| inner.map(|inner| inner.prefetch_child(key)))
                .collect();
            for (slot, child) in slots.iter_mut().zip(children) {
                if let Some(child) = child {
                    *slot = child;
                    prefetch(ptr::from_ref(*slot));
                }
            }
        }
        let leaves: SmallVec<[Option<Ref<'_, Leaf>>; PREFETCHED_MAX]> = slots
            .iter()
            .map(|slot| match slot.load(&guard) {
                Loaded::Leaf(leaf) => Some(leaf),
                Loaded::Inner(_) | Loaded::Absent(_) => None,
            })
            .collect();
        leaves.iter().flatten().for_each(|leaf| prefetch_two_lines(leaf.get()));
        for (leaf, (key, _)) in leaves.iter().zip(keys) {
            leaf.iter().for_each(|leaf| leaf.get().prefetch_search(key));
        }
        for (leaf, (key, _)) in leaves.iter().zip(keys) {
            leaf.iter().for_each(|leaf| leaf.get().prefetch_entry(key));
        }
        for ((leaf, slot), (key, _)) in leaves.iter().zip(slots).zip(keys) {
            if let Some(leaf) = leaf {
                prefetched::note(structure, &self.root, key, slot, leaf, leaf.get().lower_bound(key));
            }
        }
    }

    /// See [`crate::Base::newest_csn`].
    pub(crate) fn newest_csn(&self, key: &[u8], io: Io) -> Result<Option<Csn>, IndexError> {
        let leaf = self.leaf_for(key, io, LoadFor::Validation)?;
        Ok(leaf.find(key, Csn::MAX).map(|entry| entry.csn))
    }

    /// See [`crate::Base::any_newer_in_range`].
    pub(crate) fn any_newer_in_range(
        &self,
        range: KeySpan<&[u8]>,
        than: Csn,
        io: Io,
    ) -> Result<bool, IndexError> {
        let mut path = Path::validating(io);
        path.seek(self, Target::Key(range.start))?;
        let mut from = path.leaf().map_or(0, |leaf| leaf.lower_bound(range.start));
        while let Some(leaf) = path.leaf() {
            let is_last = leaf.fences().upper.is_none_or(|upper| !range.ends_after(upper));
            if leaf.max_csn() > than {
                let mut entries = (from..leaf.count()).map(|index| leaf.entry(index));
                if entries.any(|entry| entry.csn > than && (!is_last || range.ends_after(entry.key))) {
                    return Ok(true);
                }
            }
            if is_last {
                break;
            }
            from = path.next_leaf(self)?;
        }
        Ok(false)
    }

    /// See [`crate::Base::find_extent`].
    pub(crate) fn find_extent(&self, key: &[u8], lsn: Lsn) -> Result<Option<(Csn, OutOfLine)>, IndexError> {
        let leaf = self.leaf_for(key, Io::Allowed, LoadFor::Maintenance)?;
        let versions = leaf.group(key).map(|index| leaf.entry(index));
        let mut values = versions.filter(|entry| entry.version_flags().is_out_of_line());
        Ok(values.find_map(|entry| {
            let value = OutOfLine::decode(entry.payload).ok()?;
            value.extents.iter().any(|extent| extent.lsn == lsn).then_some((entry.csn, value))
        }))
    }
}
