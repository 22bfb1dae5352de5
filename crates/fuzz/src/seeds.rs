//! Valid inputs of the decoders: records that a database wrote.

use std::collections::BTreeMap;

use fulgurite::env::Env;
use fulgurite_index::btree::describe;
use fulgurite_log::{BulkKind, GroupHeader, GroupKind, ScanItem, scan_segment};

use crate::directory::image;

/// The bytes and the items of each segment.
fn scanned() -> Vec<(Vec<u8>, Vec<ScanItem>)> {
    let image = image(0);
    let paths = image.list_raw().into_iter().map(|(path, _)| path);
    let segments = paths.filter(|path| path.extension().is_some_and(|suffix| suffix == "seg"));
    segments
        .map(|path| {
            let mut bytes = image.read_raw(&path).expect("the file is there");
            let scan = scan_segment(image.disk(), &path).expect("the file is there");
            bytes.truncate(scan.used_bytes as usize);
            (bytes, scan.items)
        })
        .collect()
}

/// The used bytes of each segment.
pub(crate) fn segments() -> Vec<Vec<u8>> {
    scanned().into_iter().map(|(bytes, _)| bytes).collect()
}

fn each_group(mut take: impl FnMut(&GroupHeader, &[u8])) {
    for (bytes, items) in scanned() {
        for item in items {
            if let ScanItem::Group(header) = item {
                let start = header.offset as usize;
                let end = start + (header.header_bytes() + header.payload_bytes) as usize;
                take(&header, &bytes[start..end]);
            }
        }
    }
}

/// The groups of the commit stream.
pub(crate) fn groups() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    each_group(|_, bytes| found.push(bytes.to_vec()));
    found
}

fn payloads_of(kind: GroupKind) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    each_group(|header, bytes| {
        if header.kind == kind {
            found.push(bytes[header.header_bytes() as usize..].to_vec());
        }
    });
    found
}

/// Groups' frames.
pub(crate) fn payloads() -> Vec<Vec<u8>> {
    payloads_of(GroupKind::Frames)
}

/// The beginnings of epochs.
pub(crate) fn epoch_starts() -> Vec<Vec<u8>> {
    payloads_of(GroupKind::EpochStart)
}

/// The records of the bulk stream, with their headers.
pub(crate) fn bulk_records() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for (bytes, items) in scanned() {
        for item in items {
            if let ScanItem::Bulk { header, body } = item {
                let end =
                    header.lsn.offset() as usize + fulgurite_log::BULK_HEADER_BYTES as usize + body.len();
                found.push(bytes[header.lsn.offset() as usize..end].to_vec());
            }
        }
    }
    found
}

/// The bodies of the bulk records of these kinds, by LSN.
fn bodies(kinds: &[BulkKind]) -> BTreeMap<u64, Vec<u8>> {
    let items = scanned().into_iter().flat_map(|(_, items)| items);
    items
        .filter_map(|item| match item {
            ScanItem::Bulk { header, body } if kinds.contains(&header.kind) => Some((header.lsn.0, body)),
            _ => None,
        })
        .collect()
}

/// The node records.
pub(crate) fn nodes() -> Vec<Vec<u8>> {
    bodies(&[BulkKind::InternalNode, BulkKind::LeafNode, BulkKind::LeafDelta]).into_values().collect()
}

/// Full records with one of their delta records.
pub(crate) fn leaves_with_deltas() -> Vec<Vec<u8>> {
    let full = bodies(&[BulkKind::LeafNode]);
    let deltas = bodies(&[BulkKind::LeafDelta]).into_values();
    deltas
        .filter_map(|delta| {
            let of = describe(delta.clone()).expect("the database wrote it").full_record?;
            let full = full.get(&of.0)?;
            let len = u16::try_from(full.len()).expect("leaves are small here");
            Some([&len.to_le_bytes()[..], full, &delta].concat())
        })
        .collect()
}

/// References to out-of-line values.
pub(crate) fn out_of_line_values() -> Vec<Vec<u8>> {
    let leaves = bodies(&[BulkKind::LeafNode]).into_values();
    let entries = leaves.flat_map(|body| describe(body).expect("the database wrote it").entries);
    entries.filter(|entry| entry.flags.is_out_of_line()).map(|entry| entry.payload).collect()
}

/// Checkpoint records, and their indexes, which are no valid records.
pub(crate) fn checkpoint_records() -> Vec<Vec<u8>> {
    bodies(&[BulkKind::Checkpoint]).into_values().collect()
}

/// The used bytes of both copies of the superblock.
pub(crate) fn superblocks() -> Vec<Vec<u8>> {
    let image = image(0);
    let files =
        image.list_raw().into_iter().map(|(path, _)| image.read_raw(&path).expect("the file is there"));
    let is_superblock = |bytes: &Vec<u8>| bytes.len() == 2 * 4096;
    files
        .filter(is_superblock)
        .flat_map(|bytes| [bytes[..100].to_vec(), bytes[4096..4196].to_vec()])
        .collect()
}
