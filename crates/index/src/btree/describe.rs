//! A node record by itself, decoded for people: nothing around it is needed, and nothing is compared with a parent.

use std::sync::Arc;

use fulgurite_types::{Csn, DecodeError, Lsn, TableId};

use super::node::delta::LeafDelta;
use super::node::entry::{Entry, REMOVED};
use super::node::format::{self, Header};
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use crate::{NodeKind, VersionFlags};

/// What a node record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescription {
    /// What it is.
    pub kind: NodeKind,
    /// Whose it is.
    pub table: TableId,
    /// 0: a leaf or a leaf delta.
    pub level: u8,
    /// Its lower fence: no key below it.
    pub lower: Vec<u8>,
    /// Its upper fence: no key at or above it.
    pub upper: Option<Vec<u8>>,
    /// Of a leaf delta: the record that it stands on.
    pub full_record: Option<Lsn>,
    /// Of an internal node: each child's lower fence and record.
    pub children: Vec<(Vec<u8>, Lsn)>,
    /// Of a leaf: its entries; of a leaf delta: those of the keys that changed.
    pub entries: Vec<EntryDescription>,
}

/// What an entry of a leaf says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryDescription {
    /// The key.
    pub key: Vec<u8>,
    /// Of a leaf delta: the key has no versions any more; all else is empty.
    pub removed: bool,
    /// Which commit wrote the version.
    pub csn: Csn,
    /// What kind it is.
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The value, or an encoded [`crate::OutOfLine`].
    pub payload: Vec<u8>,
}

/// Decodes the body of a node record.
///
/// # Errors
/// What does not decode, and at which byte of the body.
pub fn describe(body: Vec<u8>) -> Result<NodeDescription, DecodeError> {
    let header = Header::decode(&body)?;
    let copy = body.clone();
    let (place, _) = format::fences(&copy, &header)?;
    let mut node = NodeDescription {
        kind: header.kind,
        table: header.table,
        level: header.level,
        lower: place.lower.to_vec(),
        upper: place.upper.map(<[u8]>::to_vec),
        full_record: None,
        children: Vec::new(),
        entries: Vec::new(),
    };
    match header.kind {
        NodeKind::Internal => {
            let (inner, _) = Inner::decode(body, header.table, &place, &Arc::default())?;
            let child =
                |index: usize| (inner.child_place(index).lower.to_vec(), inner.children()[index].lsn());
            node.children = (0..inner.children().len()).map(child).collect();
        }
        NodeKind::Leaf => {
            let leaf = Leaf::decode(body, header.table, &place)?;
            node.entries = leaf.entries().map(|entry| describe_entry(&entry)).collect();
        }
        NodeKind::LeafDelta => {
            let delta = LeafDelta::decode(body, header.table, &place)?;
            node.full_record = Some(delta.full());
            node.entries = delta.entries().map(|entry| describe_entry(&entry)).collect();
        }
    }
    Ok(node)
}

fn describe_entry(entry: &Entry<'_>) -> EntryDescription {
    EntryDescription {
        key: entry.key.to_vec(),
        removed: entry.flags & REMOVED != 0,
        csn: entry.csn,
        flags: entry.version_flags(),
        expires_at_ms: entry.expires_at_ms,
        payload: entry.payload.to_vec(),
    }
}
