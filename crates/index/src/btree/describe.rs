//! Decodes a single node record for inspection: needs no other record, and compares nothing with a parent.

use std::sync::Arc;

use fulgurite_types::{Csn, DecodeError, Lsn, TableId};

use super::node::delta::LeafDelta;
use super::node::entry::{Entry, REMOVED};
use super::node::format::{self, Header};
use super::node::inner::Inner;
use super::node::leaf::Leaf;
use super::slot::Residency;
use crate::{NodeKind, VersionFlags};

/// The content of a node record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescription {
    /// Its kind.
    pub kind: NodeKind,
    /// The table that it belongs to.
    pub table: TableId,
    /// 0: a leaf or a leaf delta record.
    pub level: u8,
    /// Its lower fence: no key is below it.
    pub lower: Vec<u8>,
    /// Its upper fence: no key is at or above it.
    pub upper: Option<Vec<u8>>,
    /// Of a delta record: the full record that it changes.
    pub full_record: Option<Lsn>,
    /// Of an internal node: each child's lower fence and record.
    pub children: Vec<(Vec<u8>, Lsn)>,
    /// Of a leaf: its entries; of a delta record: those of the keys that changed.
    pub entries: Vec<EntryDescription>,
}

/// The content of a leaf's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryDescription {
    /// The key.
    pub key: Vec<u8>,
    /// Of a delta record: the key has no versions left; the other fields are empty.
    pub removed: bool,
    /// Which commit wrote the version.
    pub csn: Csn,
    /// The kind of version.
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The value, or an encoded [`crate::OutOfLine`].
    pub payload: Vec<u8>,
}

/// The table of a node record.
///
/// # Errors
/// Names the field that does not decode, and its byte offset in the body.
pub fn table_of_node(body: &[u8]) -> Result<TableId, DecodeError> {
    Ok(Header::decode(body)?.table)
}

/// Names the field that does not decode, and its byte offset in the body.
pub fn describe(body: Vec<u8>) -> Result<NodeDescription, DecodeError> {
    let header = Header::decode(&body)?;
    let copy = body.clone();
    let (fences, _) = format::stored_fences(&copy, &header)?;
    let mut node = NodeDescription {
        kind: header.kind,
        table: header.table,
        level: header.level,
        lower: fences.lower.to_vec(),
        upper: fences.upper.map(<[u8]>::to_vec),
        full_record: None,
        children: Vec::new(),
        entries: Vec::new(),
    };
    match header.kind {
        NodeKind::Internal => {
            let residency = Arc::new(Residency::new(header.table, None));
            let (inner, _) = Inner::decode(body, header.table, &fences, &residency)?;
            let child =
                |index: usize| (inner.child_fences(index).lower.to_vec(), inner.children()[index].lsn());
            node.children = (0..inner.children().len()).map(child).collect();
        }
        NodeKind::Leaf => {
            let leaf = Leaf::decode(body, header.table, &fences)?;
            node.entries = leaf.entries().map(|entry| describe_entry(&entry)).collect();
        }
        NodeKind::LeafDelta => {
            let delta = LeafDelta::decode(body, header.table, &fences)?;
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
