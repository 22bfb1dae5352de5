//! Turns a write set into a frame and the work that applies it. Runs before step 0, because it can fail and allocates.

use std::sync::Arc;

use fulgurite_index::VersionFlags;
use fulgurite_index::memtables::{Block, BlockBuilder, BlockOp};
use fulgurite_index::range_delete::Readers;
use fulgurite_log::{ChunkRef, FRAME_HEADER_BYTES, local_record_bytes};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId, crc32c, limits, value_checksum};
use smallvec::SmallVec;

use crate::Result;
use crate::body::{self, KIND_COMMIT, KIND_COMMIT_IN_CHUNKS, Op};
use crate::catalog::{Catalog, CatalogOp, TableState, inline_max_of};
use crate::commit::Apply;
use crate::spill::Spill;
use crate::write_set::{TableWrites, WriteSet, WriteValue};

/// A frame that lacks only its number, and what it does to memory.
pub(crate) struct Prepared {
    pub kind: u8,
    pub body: Vec<u8>,
    pub body_crc: u32,
    pub local: Vec<ChunkRef>,
    pub work: Box<ApplyWrites>,
}

/// A frame's largest size, less its header and a direct list of chunk references.
const BODY_BYTES_MAX: usize = limits::FRAME_BYTES_MAX as usize
    - FRAME_HEADER_BYTES as usize
    - limits::DIRECT_PLACES_MAX * ChunkRef::BYTES;
const _: () = assert!(local_record_bytes(limits::DIRECT_PLACES_MAX as u16) <= limits::SEGMENT_BYTES_MIN / 8);

/// Prepares a write set. `readers` returns the reads for which range deletes are kept apart. `opened` holds the chunks
/// that the transaction has written ahead; operations that do not fit one frame are added to them.
pub(crate) fn prepare(
    catalog: &Arc<Catalog>,
    writes: &mut WriteSet,
    new_table: Option<Arc<TableState>>,
    inline_max: usize,
    readers: &dyn Fn() -> Readers,
    new_spill: &dyn Fn() -> Spill,
    opened: &mut Option<Spill>,
) -> Result<Prepared> {
    if bytes_max(writes) > BODY_BYTES_MAX {
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
    let mut work = Box::new(ApplyWrites { tables, definition, readers });
    let mut out = Vec::with_capacity(bytes_max(writes).min(BODY_BYTES_MAX) + 64);
    for writes in &writes.tables {
        encode_table(writes, inline_max, &mut out, &mut work);
    }
    let mut body_crc = crc32c(&out);
    let mut kind = KIND_COMMIT;
    if out.len() > BODY_BYTES_MAX {
        body::check_operations(out.len())?;
        let spill = opened.get_or_insert_with(new_spill);
        out = body::encode_chunks_body(&spill.body(&out, body_crc)?);
        body_crc = crc32c(&out);
        kind = KIND_COMMIT_IN_CHUNKS;
    }
    let local = opened.as_mut().map_or(Ok(Vec::new()), Spill::places)?;
    Ok(Prepared { kind, body: out, body_crc, local, work })
}

fn bytes_max(writes: &WriteSet) -> usize {
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
        for (key, op) in ops {
            if let WriteValue::Inline(value) = &op.value
                && value.len() > inline_max
            {
                op.value = WriteValue::Chunks(Arc::new(spill.value(table.id, key, value)?));
            }
        }
    }
    Ok(())
}

fn encode_table(writes: &TableWrites, inline_max: usize, out: &mut Vec<u8>, work: &mut ApplyWrites) {
    let table = writes.table.id;
    let inline_max = inline_max_of(table, inline_max);
    for KeySpan { start, end } in writes.ranges.iter() {
        body::encode_op(table, &Op::DeleteRange { start, end }, out);
    }
    let bytes_mark = writes.ops.iter().map(|(key, op)| match &op.value {
        WriteValue::Inline(value) => key.len() + value.len(),
        _ => key.len() + 64,
    });
    let mut block = BlockBuilder::new(table, writes.ops.len(), bytes_mark.sum());
    let mut payload = Vec::new();
    for (key, op) in &writes.ops {
        let expires_at_ms = op.expires_at_ms;
        let mut flags = if expires_at_ms == 0 { 0 } else { VersionFlags::EXPIRES };
        let mut applied = BlockOp {
            key,
            hash: op.hash,
            flags: VersionFlags(0),
            expires_at_ms,
            payload: &[],
            value_offset: None,
            checksum: 0,
        };
        match &op.value {
            WriteValue::Delete => {
                flags |= VersionFlags::TOMBSTONE;
                body::encode_op(table, &Op::Delete { key }, out);
            }
            WriteValue::Inline(value) => {
                body::encode_op(table, &Op::Put { key, value, expires_at_ms }, out);
                applied.payload = value;
                if value.len() > inline_max {
                    applied.value_offset = Some((out.len() - value.len()) as u32);
                    applied.checksum = value_checksum(table, key, &[value]);
                }
            }
            WriteValue::Chunks(spilled) => {
                let (chunks, place) = &**spilled;
                flags |= VersionFlags::OUT_OF_LINE;
                body::encode_op(table, &Op::PutInChunks { key, expires_at_ms, chunks: chunks.clone() }, out);
                payload.clear();
                place.encode(&mut payload);
                applied.payload = &payload;
                applied.checksum = place.checksum;
            }
        }
        applied.flags = VersionFlags(flags);
        block.push(applied);
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
}

struct TableWork {
    table: Arc<TableState>,
    block: Option<Block>,
    ranges: Vec<KeySpan>,
}

/// What a commit does to memory.
pub(crate) struct ApplyWrites {
    tables: SmallVec<[TableWork; 1]>,
    /// If it writes the catalog.
    definition: Option<Box<Definition>>,
    /// For range deletes: all reads that are open when the commit is applied are among these.
    readers: Readers,
}

/// What a commit does to the catalog.
struct Definition {
    catalog: Arc<Catalog>,
    ops: Vec<CatalogOp>,
    new_table: Option<Arc<TableState>>,
}

impl Apply for ApplyWrites {
    fn apply(self: Box<Self>, csn: Csn, body_lsn: Lsn) {
        if let Some(definition) = &self.definition {
            let Definition { catalog, ops, new_table } = &**definition;
            let applied = catalog.apply(csn, ops, new_table.as_ref());
            applied.expect("the rows were made by this process a moment ago");
        }
        for work in self.tables {
            for range in &work.ranges {
                work.table.index.apply_range_delete(range.borrowed(), csn, &self.readers);
            }
            if let Some(block) = work.block {
                work.table.index.apply(block, csn, body_lsn);
            }
        }
    }
}
