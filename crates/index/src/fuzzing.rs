//! What the fuzz targets of `crates/fuzz` need of the index: decoders over any bytes.

use std::sync::Arc;

use crate::btree::describe;
use crate::btree::node::delta::LeafDelta;
use crate::btree::node::format::{self, Header};
use crate::btree::node::inner::Inner;
use crate::btree::node::leaf::Leaf;
use crate::btree::slot::Residency;
use crate::{NodeKind, OutOfLine};
use fulgurite_types::Csn;

/// Decodes a node record, and uses what decodes: a record that passes the checks of its decoder never panics later.
pub fn node(bytes: &[u8]) {
    let Ok(node) = describe(bytes.to_vec()) else { return };
    let header = Header::decode(bytes).expect("it was decoded before");
    let (fences, _) = format::stored_fences(bytes, &header).expect("they were decoded before");
    let keys = node.entries.iter().map(|entry| &entry.key).chain(node.children.iter().map(|(key, _)| key));
    match header.kind {
        NodeKind::Internal => {
            let residency = Arc::new(Residency::new(header.table, None));
            let (inner, entries) =
                Inner::decode(bytes.to_vec(), header.table, &fences, &residency).expect("as before");
            let lsns = inner.children().iter().map(|child| child.lsn());
            let dues: Vec<u32> = inner.children().iter().map(|child| child.due()).collect();
            let again = inner.encode(entries, lsns, &dues);
            if header.is_compact() {
                assert_eq!(again, bytes);
            } else {
                assert_eq!(describe(again).expect("it was encoded"), node);
            }
            for key in keys {
                let child = inner.child_fences(inner.child_index(key));
                assert!(
                    child.lower <= &key[..] && child.admits(key),
                    "the child of a key has it inside its fences"
                );
            }
            assert_eq!(inner.to_children().len(), inner.children().len());
        }
        NodeKind::Leaf => {
            let leaf = Leaf::decode(bytes.to_vec(), header.table, &fences).expect("as before");
            if header.is_compact() {
                assert_eq!(leaf.encode(), bytes);
            } else {
                assert_eq!(describe(leaf.encode()).expect("it was encoded"), node);
            }
            for key in keys {
                let group = leaf.group(key);
                assert!(!group.is_empty(), "an entry's key is found");
                assert_eq!(leaf.group_start(group.end - 1), group.start);
                assert!(leaf.find(key, Csn(u64::MAX)).is_some_and(|entry| entry.key == key));
                let _ = leaf.find(key, Csn::ZERO);
            }
        }
        NodeKind::LeafDelta => {
            let delta = LeafDelta::decode(bytes.to_vec(), header.table, &fences).expect("as before");
            assert_eq!(delta.entries().count(), header.count as usize);
        }
    }
}

/// Decodes a full record of a leaf and a delta record over it, one after the other in `bytes`, after the length of the
/// first in two bytes; and applies the second to the first.
pub fn leaf_with_delta_record(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return };
    let Some((full, delta)) = rest.split_at_checked(u16::from_le_bytes(*len).into()) else { return };
    let Ok(header) = Header::decode(full) else { return };
    let Ok((fences, _)) = format::stored_fences(full, &header) else { return };
    let Ok(leaf) = Leaf::decode(full.to_vec(), header.table, &fences) else { return };
    let Ok(delta) = LeafDelta::decode(delta.to_vec(), header.table, &fences) else { return };
    let applied = delta.apply(&leaf, full.len(), header.table);
    for entry in applied.entries() {
        assert!(fences.lower <= entry.key && fences.admits(entry.key));
    }
    let again = Leaf::decode(applied.bytes().to_vec(), header.table, &fences);
    assert!(again.is_ok(), "a leaf with its delta record applied is a valid leaf: {:?}", again.err());
}

/// Decodes a reference to an out-of-line value.
pub fn out_of_line(bytes: &[u8]) {
    if let Ok(value) = OutOfLine::decode(bytes) {
        let mut again = Vec::new();
        value.encode(&mut again);
        assert_eq!(again, bytes);
    }
}
