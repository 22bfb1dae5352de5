//! The cursor over a tree.

use std::sync::Arc;

use fulgurite_types::{Csn, KeySpan};

use super::node::leaf::CurrentEntry;
use super::path::{Path, Target};
use super::read;
use super::tree::Tree;
use crate::{BaseCursor, IndexError, Io, Pinned, VersionRef};

/// A cursor over a [`super::BTree`]; see [`BaseCursor`]. It keeps its current leaf, and the inner nodes above it, in
/// memory.
pub struct BTreeCursor {
    tree: Arc<Tree>,
    at: Csn,
    path: Path,
    /// The current entry of the path's leaf.
    index: usize,
    /// That entry, decoded.
    entry: CurrentEntry,
    /// The keys that it is asked for; `None`: all.
    limits: Option<Arc<KeySpan>>,
}

impl BTreeCursor {
    pub(crate) fn new(tree: Arc<Tree>, at: Csn, io: Io) -> BTreeCursor {
        let entry = CurrentEntry::default();
        BTreeCursor { tree, at, path: Path::reading(io), index: 0, entry, limits: None }
    }

    /// Moves to the next leaf, or to the end if no key there is asked for; returns the first entry that the walk has not passed.
    fn next_leaf(&mut self) -> Result<usize, IndexError> {
        let upper = self.path.leaf().and_then(|leaf| leaf.fences().upper);
        if let (Some(upper), Some(limits)) = (upper, &self.limits)
            && !limits.ends_after(upper)
        {
            self.path.clear();
            return Ok(0);
        }
        self.path.next_leaf(&self.tree)
    }

    /// The same, to the previous leaf; returns the entry after the last one that the walk has not passed.
    fn previous_leaf(&mut self) -> Result<usize, IndexError> {
        if let (Some(leaf), Some(limits)) = (self.path.leaf(), &self.limits)
            && leaf.fences().lower <= &*limits.start
        {
            self.path.clear();
            return Ok(0);
        }
        self.path.previous_leaf(&self.tree)
    }

    /// Moves to the first visible entry at or after entry `from` of the path's leaf, which starts a key.
    fn forward(&mut self, mut from: usize) -> Result<(), IndexError> {
        while let Some(leaf) = self.path.leaf() {
            if let Some(index) = leaf.visible_from(from, self.at) {
                self.index = index;
                self.entry.set(leaf, index);
                return Ok(());
            }
            from = self.next_leaf()?;
        }
        Ok(())
    }

    /// Moves to the last visible entry of the keys before entry `end` of the path's leaf, which starts a key.
    fn backward(&mut self, mut end: usize) -> Result<(), IndexError> {
        while let Some(leaf) = self.path.leaf() {
            if let Some(index) = leaf.visible_before(end, self.at) {
                self.index = index;
                self.entry.set(leaf, index);
                return Ok(());
            }
            end = self.previous_leaf()?;
        }
        Ok(())
    }
}

impl BaseCursor for BTreeCursor {
    fn set_limits(&mut self, limits: Arc<KeySpan>) {
        self.limits = Some(limits);
    }

    fn seek(&mut self, start: &[u8]) -> Result<(), IndexError> {
        self.path.seek(&self.tree, Target::Key(start))?;
        let from = self.path.leaf().map_or(0, |leaf| leaf.lower_bound(start));
        self.forward(from)
    }

    fn seek_back(&mut self, end: Option<&[u8]>) -> Result<(), IndexError> {
        self.path.seek(&self.tree, end.map_or(Target::Last, Target::Before))?;
        let end = self.path.leaf().map_or(0, |leaf| end.map_or(leaf.count(), |end| leaf.lower_bound(end)));
        self.backward(end)
    }

    #[inline]
    fn next(&mut self) -> Result<(), IndexError> {
        let Some(leaf) = self.path.leaf() else { return Ok(()) };
        let from = leaf.group_end(self.index);
        if let Some(index) = leaf.visible_from(from, self.at) {
            self.index = index;
            self.entry.set(leaf, index);
            return Ok(());
        }
        let from = self.next_leaf()?;
        self.forward(from)
    }

    fn prev(&mut self) -> Result<(), IndexError> {
        let Some(leaf) = self.path.leaf() else { return Ok(()) };
        let end = leaf.group_start(self.index);
        self.backward(end)
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.path.leaf().map(|leaf| self.entry.key(leaf))
    }

    fn pinned_key(&self) -> Pinned {
        let leaf = self.path.leaf().expect("the cursor is at an entry");
        read::pin(|| Arc::clone(leaf), self.entry.key(leaf))
    }

    #[inline]
    fn version(&self) -> VersionRef<'_> {
        let leaf = self.path.leaf().expect("the cursor is at an entry");
        self.entry.version(leaf)
    }

    fn pinned_payload(&self) -> Pinned {
        let leaf = self.path.leaf().expect("the cursor is at an entry");
        read::pin(|| Arc::clone(leaf), self.entry.version(leaf).payload)
    }

    fn unread(&self) -> Option<KeySpan> {
        self.path.unread().map(|fences| KeySpan::new(fences.lower, fences.upper).owned())
    }

    fn skip_unread(&mut self, forward: bool) -> Result<(), IndexError> {
        if self.path.unread().is_none() {
            return Ok(());
        }
        if forward {
            let from = self.path.next_leaf(&self.tree)?;
            return self.forward(from);
        }
        let end = self.path.previous_leaf(&self.tree)?;
        self.backward(end)
    }
}
