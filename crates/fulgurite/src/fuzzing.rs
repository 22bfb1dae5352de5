//! What the fuzz targets of `crates/fuzz` need of the engine: decoders over any bytes, and a superblock's checksum made
//! right.

use fulgurite_types::{Writer, crc32c};

use crate::body::{ChunksRef, Op, Ops, decode_chunks_body, encode_chunks_body, encode_op};
use crate::catalog::{decode_next_id, decode_row, encode_next_id, encode_row};
use crate::checkpoint::record::Record;
use crate::superblock::{ENCODED_BYTES, Superblock};

pub use fulgurite_index::fuzzing as index;
pub use fulgurite_log::fuzzing as log;

/// Decodes the operations of a commit: what decodes is encoded to the same operations.
pub fn operations(body: &[u8]) {
    let mut again = Vec::new();
    let mut ops = Ops::new(body);
    while let Ok(Some((table, op, end))) = ops.next() {
        let start = again.len();
        encode_op(table, &op, &mut again);
        let (found_table, found, _) =
            Ops::new(&again[start..]).next().expect("it was just encoded").expect("it was just encoded");
        assert_eq!((found_table, &found), (table, &op));
        assert!(end <= body.len());
        if let Op::PutInChunks { chunks, .. } = op {
            check_chunks(&chunks);
        }
    }
    if let Ok(chunks) = decode_chunks_body(body) {
        assert_eq!(encode_chunks_body(&chunks), body);
        check_chunks(&chunks);
    }
}

fn check_chunks(chunks: &ChunksRef) {
    if let Some(last) = chunks.count().checked_sub(1) {
        assert!(chunks.chunk_len(last) > 0, "no chunk is empty");
    }
}

/// Decodes a checkpoint record.
pub fn checkpoint_record(bytes: &[u8]) {
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

/// Decodes a copy of the superblock.
pub fn superblock(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::decode(bytes) {
        let again = Superblock::decode(&superblock.encode()).expect("it was just encoded");
        assert_eq!(again, superblock);
    }
}

/// Makes the checksum of a copy of the superblock right.
pub fn seal_superblock(copy: &mut [u8]) {
    if let Some((fields, rest)) = copy.split_at_mut_checked(ENCODED_BYTES - 4)
        && let Some(crc) = rest.first_chunk_mut::<4>()
    {
        *crc = crc32c(fields).to_le_bytes();
    }
}

/// Decodes rows of the catalog.
pub fn catalog(row: &[u8]) {
    if let Ok(id) = decode_row(row) {
        assert!(row.starts_with(&encode_row(id)[..6]));
    }
    if let Ok(id) = decode_next_id(row) {
        assert_eq!(encode_next_id(id), row);
    }
}

/// Valid inputs of [`operations`].
pub fn operation_seeds() -> Vec<Vec<u8>> {
    let spill = fulgurite_log::SpillId { node: 0, epoch: fulgurite_types::Epoch(3), counter: 9 };
    let chunks = ChunksRef { spill, ordinal: 2, len: 3 << 20, checksum: 0xdead_beef };
    let table = fulgurite_types::TableId(300);
    let ops = [
        Op::DeleteRange { start: b"a", end: Some(b"b") },
        Op::DeleteRange { start: b"x", end: None },
        Op::Put { key: b"", value: b"v", expires_at_ms: 0 },
        Op::Put { key: b"k", value: b"", expires_at_ms: 1_700_000_000_000 },
        Op::Delete { key: b"gone" },
        Op::PutInChunks { key: b"big", expires_at_ms: 0, chunks: chunks.clone() },
    ];
    let mut all = Vec::new();
    for op in &ops {
        encode_op(table, op, &mut all);
    }
    vec![all, encode_chunks_body(&chunks)]
}

/// Valid inputs of [`catalog`].
pub fn catalog_seeds() -> Vec<Vec<u8>> {
    let mut short = Vec::new();
    short.put_u32(7);
    vec![encode_row(fulgurite_types::TableId(9)), short]
}
