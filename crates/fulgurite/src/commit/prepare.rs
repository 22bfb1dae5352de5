//! Turns a write set, or one write, into a frame and the work that applies it. It can fail and it allocates, so it runs
//! before step 0 (INV-TXN-3).

use std::sync::Arc;

use fulgurite_index::memtables::{Block, BlockBuilder, BlockOp};
use fulgurite_index::range_delete::Readers;
use fulgurite_index::{OutOfLine, VersionFlags};
use fulgurite_log::{BulkPosition, ChunkRef, FRAME_HEADER_BYTES, TimeBounds, local_record_bytes};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId, crc32c, limits, value_checksum};
use smallvec::SmallVec;

use crate::body::{self, KIND_COMMIT, KIND_COMMIT_IN_CHUNKS, Op};
use crate::catalog::{Catalog, CatalogOp, TableState, inline_max_of};
use crate::commit::{Apply, Frame};
use crate::spill::Spill;
use crate::write_set::{TableWrites, WriteOp, WriteSet, WriteValue};
use crate::{Error, Result};

/// A frame's largest size, less its header and a direct list of chunk references.
const BODY_BYTES_MAX: usize = limits::FRAME_BYTES_MAX as usize
    - FRAME_HEADER_BYTES as usize
    - limits::DIRECT_CHUNKS_MAX * ChunkRef::BYTES;
const _: () = assert!(local_record_bytes(limits::DIRECT_CHUNKS_MAX as u16) <= limits::SEGMENT_BYTES_MIN / 8);

/// Prepares a write set. `readers` returns the CSNs that reads have or will have: range deletes with one of these
/// between them stay apart. `opened` holds the chunks that the transaction has written ahead. What does not fit one
/// frame is added to them: first long values, then the whole list of operations.
pub(crate) fn prepare(
    catalog: &Arc<Catalog>,
    writes: &mut WriteSet,
    new_table: Option<Arc<TableState>>,
    inline_max: usize,
    readers: &dyn Fn() -> Readers,
    new_spill: &dyn Fn() -> Spill,
    opened: &mut Option<Spill>,
) -> Result<(Frame, Box<ApplyWrites>)> {
    if writes_ahead(writes) {
        let spill = opened.get_or_insert_with(new_spill);
        spill_values(writes, inline_max, spill)?;
    }
    let definition = writes
        .of_table(TableId::CATALOG)
        .is_some()
        .then(|| Box::new(Definition { catalog: catalog.clone(), ops: Vec::new(), new_table }));
    let tables = SmallVec::with_capacity(writes.tables.len());
    let deletes_ranges = writes.tables.iter().any(|writes| !writes.ranges.is_empty());
    let readers = if deletes_ranges { readers() } else { Readers::default() };
    let ops =
        writes.tables.iter().map(|writes| (writes.ops.len() + writes.ranges.iter().count()) as u64).sum();
    let mut work = Box::new(ApplyWrites { tables, definition, readers });
    let mut out = Vec::with_capacity(bytes_max(writes).min(BODY_BYTES_MAX) + 64);
    let mut user_bytes = 0;
    for writes in &writes.tables {
        user_bytes += encode_table(writes, inline_max, &mut out, &mut work);
    }
    debug_assert!(out.len() <= writes.cost.operations, "what decides whether to write ahead bounds the body");
    let mut body_crc = crc32c(&out);
    let mut kind = KIND_COMMIT;
    let mut list_bytes = 0;
    if out.len() > BODY_BYTES_MAX {
        body::check_operations(out.len())?;
        list_bytes = out.len() as u64;
        let spill = opened.get_or_insert_with(new_spill);
        out = body::encode_chunks_body(&spill.body(&out, body_crc)?);
        body_crc = crc32c(&out);
        kind = KIND_COMMIT_IN_CHUNKS;
    }
    let local = opened.as_mut().map_or(Ok(Vec::new()), Spill::references)?;
    let after_bulk = opened.as_ref().map_or(BulkPosition::default(), Spill::position);
    let time = TimeBounds::ANY;
    Ok((
        Frame {
            kind,
            body: out,
            body_crc,
            time,
            local,
            after_bulk,
            is_local: false,
            user_bytes,
            ops,
            list_bytes,
        },
        work,
    ))
}

/// Whether the commit of a write set that has written nothing ahead yet may write chunks.
pub(crate) fn writes_ahead(writes: &WriteSet) -> bool {
    bytes_max(writes) > BODY_BYTES_MAX
}

/// Prepares the write of one key, `None` to delete it: the value's bytes are copied into the frame's body and into the
/// version, and nowhere else before the log's buffer.
pub(crate) fn prepare_one(
    table: &Arc<TableState>,
    key: &[u8],
    hash: u64,
    value: Option<&[u8]>,
    expires_at_ms: u64,
    inline_max: usize,
) -> (Frame, Box<ApplyWrites>) {
    let value_len = value.map_or(0, <[u8]>::len);
    let mut body = Vec::with_capacity(body::op_bytes_max(key.len(), value_len) + 64);
    let mut block = BlockBuilder::new(table.id, 1, key.len() + value_len);
    let plain = PlainOp { key, hash, value, expires_at_ms };
    block.push(encode_plain(table.id, plain, inline_max_of(table.id, inline_max), &mut body));
    let work = TableWork { table: table.clone(), block: Some(block.finish()), ranges: Vec::new() };
    let tables = SmallVec::from_buf([work]);
    let work = Box::new(ApplyWrites { tables, definition: None, readers: Readers::default() });
    let body_crc = crc32c(&body);
    let local = Vec::new();
    let after_bulk = BulkPosition::default();
    let user_bytes = (key.len() + value_len) as u64;
    let (kind, time) = (KIND_COMMIT, TimeBounds::ANY);
    (
        Frame {
            kind,
            body,
            body_crc,
            time,
            local,
            after_bulk,
            is_local: false,
            user_bytes,
            ops: 1,
            list_bytes: 0,
        },
        work,
    )
}

fn user_bytes(key: &[u8], op: &WriteOp) -> u64 {
    let value_len = match &op.value {
        WriteValue::Delete => 0,
        WriteValue::Inline(value) => value.len() as u64,
        WriteValue::Chunks(spilled) => spilled.1.len,
    };
    key.len() as u64 + value_len
}

/// How long the frame's body is at most: exactly if that may be more than [`BODY_BYTES_MAX`], which takes a pass over the operations.
fn bytes_max(writes: &WriteSet) -> usize {
    if writes.cost.operations <= BODY_BYTES_MAX {
        return writes.cost.operations;
    }
    let table = |writes: &TableWrites| -> usize {
        let ops = writes.ops.iter().map(|(key, op)| match &op.value {
            WriteValue::Inline(value) => body::op_bytes_max(key.len(), value.len()),
            _ => body::chunks_op_bytes_max(key.len()),
        });
        let ranges = writes
            .ranges
            .iter()
            .map(|range| body::op_bytes_max(range.start.len(), range.end.map_or(0, <[u8]>::len)));
        ops.sum::<usize>() + ranges.sum::<usize>()
    };
    writes.tables.iter().map(table).sum()
}

/// Writes ahead every value that a leaf would not hold: then no value inside the operation list needs an extent of its
/// own in the log.
fn spill_values(writes: &mut WriteSet, inline_max: usize, spill: &mut Spill) -> Result<()> {
    for TableWrites { table, ops, .. } in &mut writes.tables {
        let inline_max = inline_max_of(table.id, inline_max);
        ops.try_for_each_mut(|key, op| {
            if let WriteValue::Inline(value) = &op.value
                && value.len() > inline_max
            {
                op.value = WriteValue::Chunks(Arc::new(spill.value(table.id, key, value)?));
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

/// The write of a key, `None` to delete it, with a value that is not written ahead.
pub(super) struct PlainOp<'a> {
    pub key: &'a [u8],
    pub hash: u64,
    pub value: Option<&'a [u8]>,
    pub expires_at_ms: u64,
}

/// Appends an operation to the frame's body; returns what it does to a memtable.
fn encode_plain<'a>(table: TableId, op: PlainOp<'a>, inline_max: usize, out: &mut Vec<u8>) -> BlockOp<'a> {
    let PlainOp { key, value, expires_at_ms, .. } = op;
    let encoded = match value {
        None => Op::Delete { key },
        Some(value) => Op::Put { key, value, expires_at_ms },
    };
    body::encode_op(table, &encoded, out);
    plain_op(table, op, inline_max, out.len())
}

/// What an operation that ends at `end` in the frame's body does to a memtable.
pub(super) fn plain_op(table: TableId, op: PlainOp<'_>, inline_max: usize, end: usize) -> BlockOp<'_> {
    let PlainOp { key, hash, value, expires_at_ms } = op;
    let flags = if expires_at_ms == 0 { 0 } else { VersionFlags::EXPIRES };
    let mut applied = BlockOp {
        key,
        hash,
        flags: VersionFlags(flags),
        expires_at_ms,
        payload: &[],
        value_offset: None,
        checksum: 0,
    };
    let Some(value) = value else {
        applied.flags = VersionFlags(flags | VersionFlags::TOMBSTONE);
        return applied;
    };
    applied.payload = value;
    if value.len() > inline_max {
        applied.value_offset = Some((end - value.len()) as u32);
        applied.checksum = value_checksum(table, key, &[value]);
    }
    applied
}

/// What the write of a value in chunks does to a memtable. `payload` becomes the version's.
pub(super) fn chunked_op<'a>(
    (key, hash): (&'a [u8], u64),
    expires_at_ms: u64,
    value: &OutOfLine,
    payload: &'a mut Vec<u8>,
) -> BlockOp<'a> {
    payload.clear();
    value.encode(payload);
    let expires = if expires_at_ms == 0 { 0 } else { VersionFlags::EXPIRES };
    BlockOp {
        key,
        hash,
        flags: VersionFlags(expires | VersionFlags::OUT_OF_LINE),
        expires_at_ms,
        payload,
        value_offset: None,
        checksum: value.checksum,
    }
}

/// Appends the writes to a table to the frame's body and to the work that applies it. Returns how many bytes the program gave for them.
fn encode_table(writes: &TableWrites, inline_max: usize, out: &mut Vec<u8>, work: &mut ApplyWrites) -> u64 {
    let table = writes.table.id;
    let inline_max = inline_max_of(table, inline_max);
    for KeySpan { start, end } in writes.ranges.iter() {
        body::encode_op(table, &Op::DeleteRange { start, end }, out);
    }
    let (mut bytes, mut bytes_expected) = (0, 0);
    for (key, op) in writes.ops.iter() {
        bytes += user_bytes(key, op);
        bytes_expected += match &op.value {
            WriteValue::Inline(value) => key.len() + value.len(),
            _ => key.len() + 64,
        };
    }
    let mut block = BlockBuilder::new(table, writes.ops.len(), bytes_expected);
    let mut payload = Vec::new();
    for (key, op) in writes.ops.iter() {
        let plain = |value| PlainOp { key, hash: op.hash, value, expires_at_ms: op.expires_at_ms };
        match &op.value {
            WriteValue::Delete => block.push(encode_plain(table, plain(None), inline_max, out)),
            WriteValue::Inline(value) => block.push(encode_plain(table, plain(Some(value)), inline_max, out)),
            WriteValue::Chunks(spilled) => {
                let (chunks, at) = &**spilled;
                let expires_at_ms = op.expires_at_ms;
                body::encode_op(table, &Op::PutInChunks { key, expires_at_ms, chunks: chunks.clone() }, out);
                block.push(chunked_op((key, op.hash), expires_at_ms, at, &mut payload));
            }
        }
        if table == TableId::CATALOG
            && let Some(definition) = &mut work.definition
        {
            definition.ops.push(match &op.value {
                WriteValue::Inline(row) => CatalogOp::Put { key: key.to_vec(), row: row.to_vec() },
                _ => CatalogOp::Delete { key: key.to_vec() },
            });
        }
    }
    work.tables.push(TableWork {
        table: writes.table.clone(),
        block: (!writes.ops.is_empty()).then(|| block.finish()),
        ranges: writes.ranges.iter().map(KeySpan::owned).collect(),
    });
    bytes
}

pub(super) struct TableWork {
    pub table: Arc<TableState>,
    pub block: Option<Block>,
    pub ranges: Vec<KeySpan>,
}

/// What a commit does to memory.
pub(crate) struct ApplyWrites {
    pub(super) tables: SmallVec<[TableWork; 1]>,
    /// If it writes the catalog.
    pub(super) definition: Option<Box<Definition>>,
    /// For range deletes. Taken before step 0, and still right in step 4: its `from` covers all reads that begin later.
    pub(super) readers: Readers,
}

/// What a commit does to the catalog.
pub(super) struct Definition {
    pub catalog: Arc<Catalog>,
    pub ops: Vec<CatalogOp>,
    pub new_table: Option<Arc<TableState>>,
}

impl Apply for ApplyWrites {
    fn apply(self: Box<Self>, csn: Csn, body_lsn: Lsn) {
        if let Some(definition) = &self.definition {
            let Definition { catalog, ops, new_table } = &**definition;
            let applied = catalog.apply(csn, ops, new_table.as_ref());
            applied.expect("the rows were made, or decoded, by this process a moment ago");
        }
        for work in self.tables {
            for range in &work.ranges {
                work.table.apply_range_delete(range.borrowed(), csn, &self.readers);
            }
            if let Some(block) = work.block {
                work.table.apply(block, csn, body_lsn);
            }
        }
    }
}
