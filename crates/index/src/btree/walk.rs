//! Walks the written tree, to check a whole database.

use std::collections::BTreeMap;

use fulgurite_types::{Csn, Lsn};

use super::account::DiskState;
use super::node::format::{Fences, Header};
use super::slot::Node;
use super::tree::Nodes;
use crate::{AccountChange, IndexError, NodeKind, VersionFlags};

/// A node record of the written tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// Its LSN.
    pub lsn: Lsn,
    /// Its kind.
    pub kind: NodeKind,
    /// 0: a leaf or a leaf delta record.
    pub level: u8,
    /// How many bytes of the log it occupies.
    pub bytes: u32,
}

/// An entry of a leaf of the written tree.
#[derive(Clone, Copy, Debug)]
pub struct EntryInfo<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Which commit wrote the version.
    pub csn: Csn,
    /// The kind of version.
    pub flags: VersionFlags,
    /// Whether it is its key's newest in the tree.
    pub is_newest: bool,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The value, or an encoded [`crate::OutOfLine`].
    pub payload: &'a [u8],
}

/// Receives the reports of [`super::BTree::walk_written`].
pub trait TreeVisitor {
    /// A record of the written tree; a delta record is followed by its full record.
    fn record(&mut self, record: RecordInfo) -> Result<(), IndexError>;
    /// An entry; keys ascend, versions of a key come newest first.
    fn entry(&mut self, entry: EntryInfo<'_>) -> Result<(), IndexError>;
    /// A record that cannot be read or is invalid. `Ok` continues after it: nothing below it is visited.
    fn problem(&mut self, error: IndexError) -> Result<(), IndexError> {
        Err(error)
    }
}

impl Nodes {
    /// See [`super::BTree::walk_written`].
    pub(crate) fn walk(&self, root: Lsn, visitor: &mut dyn TreeVisitor) -> Result<(), IndexError> {
        match root {
            Lsn::NULL => Ok(()),
            root => self.walk_record(root, Fences::ROOT, visitor),
        }
    }

    fn walk_record(
        &self,
        lsn: Lsn,
        fences: Fences<'_>,
        visitor: &mut dyn TreeVisitor,
    ) -> Result<(), IndexError> {
        let node = match self.report(lsn, visitor).and_then(|()| self.read(lsn, &fences)) {
            Ok(node) => node,
            Err(error) => return visitor.problem(error),
        };
        match node {
            Node::Inner(inner) => {
                for (index, child) in inner.children().iter().enumerate() {
                    self.walk_record(child.lsn(), inner.child_fences(index), visitor)?;
                }
            }
            Node::Leaf(leaf) => {
                if let Some(origin) = leaf.origin().filter(|origin| origin.full != lsn) {
                    self.report(origin.full, visitor)?;
                }
                for entry in leaf.entries() {
                    let (key, csn, flags) = (entry.key, entry.csn, entry.version_flags());
                    let (expires_at_ms, payload) = (entry.expires_at_ms, entry.payload);
                    let is_newest = !entry.is_same_key();
                    visitor.entry(EntryInfo { key, csn, flags, is_newest, expires_at_ms, payload })?;
                }
            }
        }
        Ok(())
    }

    fn report(&self, lsn: Lsn, visitor: &mut dyn TreeVisitor) -> Result<(), IndexError> {
        let body = self.read_body(lsn)?;
        let header = Header::decode(&body).map_err(|error| IndexError::decode(self.table, lsn, error))?;
        let bytes = self.store.node_bytes(body.len());
        visitor.record(RecordInfo { lsn, kind: header.kind, level: header.level, bytes })
    }

    /// See [`super::BTree::live_accounts`].
    pub(crate) fn live_accounts(&self, root: Lsn) -> Result<Vec<AccountChange>, IndexError> {
        let mut live = BTreeMap::new();
        match root {
            Lsn::NULL => {}
            root => self.sum_accounts(root, Fences::ROOT, &mut live)?,
        }
        Ok(live.into_iter().collect())
    }

    fn sum_accounts(
        &self,
        lsn: Lsn,
        fences: Fences<'_>,
        live: &mut BTreeMap<u32, i64>,
    ) -> Result<(), IndexError> {
        let node = self.read(lsn, &fences)?;
        for (segment, bytes) in DiskState::of_loaded(&node, lsn, &*self.store).counted {
            *live.entry(segment).or_default() += bytes;
        }
        if let Node::Inner(inner) = &node {
            for (index, child) in inner.children().iter().enumerate() {
                self.sum_accounts(child.lsn(), inner.child_fences(index), live)?;
            }
        }
        Ok(())
    }
}
