//! Turns the frame of a commit that another node made into the work that applies it.

use std::sync::Arc;

use fulgurite_index::memtables::BlockBuilder;
use fulgurite_index::range_delete::Readers;
use fulgurite_log::{Log, OwnedFrame};
use fulgurite_types::{Csn, KeySpan, TableId, hash_key};
use smallvec::SmallVec;

use super::prepare::{ApplyWrites, Definition, PlainOp, TableWork, chunked_op, plain_op};
use crate::body::{KIND_COMMIT, KIND_COMMIT_IN_CHUNKS, Op, Ops};
use crate::catalog::{
    Catalog, CatalogOp, NEXT_ID_KEY, TableState, decode_next_id, decode_row, inline_max_of,
};
use crate::error::OrError;
use crate::spill::{ChunkRefs, decode_chunks_body};
use crate::{Damage, Result};

/// A commit that is ready to be applied.
pub(crate) struct Decoded {
    pub work: Box<ApplyWrites>,
    /// The tables that it writes, but for the catalog.
    pub tables: Vec<Arc<TableState>>,
    pub ops: u64,
    /// Bytes of its operation list, if that is in chunks.
    pub list_bytes: u64,
    /// Bytes of all its chunks.
    pub chunk_bytes: u64,
}

/// What a commit's operations are decoded with.
struct Decoding {
    csn: Csn,
    /// Longer values stay in the frame.
    inline_max: usize,
    chunks: ChunkRefs,
}

/// Decodes the operations of a frame. `readers` returns the CSNs that reads have or will have, as in
/// [`prepare`](super::prepare::prepare).
pub(crate) fn decode(
    log: &Log,
    catalog: &Arc<Catalog>,
    frame: &OwnedFrame,
    inline_max: usize,
    readers: impl FnOnce() -> Readers,
) -> Result<Decoded> {
    let csn = frame.header.csn;
    let damaged = |what: String| Damage::new(what).of_commit(csn);
    let chunks = log.resolve_chunks(&frame.local).or_error()?;
    let chunk_bytes = chunks.iter().map(|chunk| u64::from(chunk.len)).sum();
    let mut decoding = Decoding { csn, inline_max, chunks: ChunkRefs::new(chunks) };
    let list;
    let (operations, list_bytes) = match frame.header.kind {
        KIND_COMMIT => (&frame.body[..], 0),
        KIND_COMMIT_IN_CHUNKS => {
            let body = decode_chunks_body(log, &frame.body, csn, frame.body_lsn)?;
            list = decoding.chunks.operations(log, &body, csn, frame.body_lsn)?;
            // No value in the list has an extent of its own in the log.
            decoding.inline_max = usize::MAX;
            (&list[..], list.len() as u64)
        }
        kind => return Err(damaged(format!("the frame of commit {csn} has the unknown kind {kind}")).into()),
    };
    let lists = split(operations)
        .map_err(|error| damaged(format!("the operations of commit {csn} do not decode: {error}")))?;
    let (mut works, mut tables, mut definition, mut ops) = (SmallVec::new(), Vec::new(), None, 0);
    for (id, list) in &lists {
        let table = catalog
            .by_id(*id)
            .ok_or_else(|| damaged(format!("commit {csn} writes table {id}, which is not there")))?;
        if *id == TableId::CATALOG {
            definition = Some(Box::new(define(catalog, list, csn)?));
        } else {
            tables.push(table.clone());
        }
        ops += list.len() as u64;
        works.push(decoding.work_of(table, list)?);
    }
    let deletes_ranges = works.iter().any(|work: &TableWork| !work.ranges.is_empty());
    let readers = if deletes_ranges { readers() } else { Readers::default() };
    let work = Box::new(ApplyWrites { tables: works, definition, readers });
    Ok(Decoded { work, tables, ops, list_bytes, chunk_bytes })
}

/// The operations on a table, each with where it ends in the body.
type OpList<'a> = Vec<(Op<'a>, usize)>;

fn split(
    body: &[u8],
) -> std::result::Result<SmallVec<[(TableId, OpList<'_>); 1]>, fulgurite_types::DecodeError> {
    let mut lists: SmallVec<[(TableId, OpList<'_>); 1]> = SmallVec::new();
    let mut ops = Ops::new(body);
    while let Some((table, op, end)) = ops.next()? {
        match lists.iter_mut().find(|(id, _)| *id == table) {
            Some((_, list)) => list.push((op, end)),
            None => lists.push((table, vec![(op, end)])),
        }
    }
    Ok(lists)
}

impl Decoding {
    fn work_of(&self, table: Arc<TableState>, list: &OpList<'_>) -> Result<TableWork> {
        let inline_max = inline_max_of(table.id, self.inline_max);
        let bytes = list.iter().map(|(op, _)| match op {
            Op::Put { key, value, .. } => key.len() + value.len(),
            Op::PutInChunks { key, .. } => key.len() + 64,
            Op::Delete { key } => key.len(),
            Op::DeleteRange { .. } => 0,
        });
        let mut block = BlockBuilder::new(table.id, list.len(), bytes.sum());
        let (mut ranges, mut payload) = (Vec::new(), Vec::new());
        for (op, end) in list {
            let (key, value, expires_at_ms) = match op {
                Op::Put { key, value, expires_at_ms } => (*key, Some(*value), *expires_at_ms),
                Op::Delete { key } => (*key, None, 0),
                Op::DeleteRange { start, end } => {
                    ranges.push(KeySpan::new(*start, *end).owned());
                    continue;
                }
                Op::PutInChunks { key, expires_at_ms, chunks } => {
                    let value = self.chunks.value(chunks, self.csn)?;
                    let hash = hash_key(table.id, key);
                    block.push(chunked_op((key, hash), *expires_at_ms, &value, &mut payload));
                    continue;
                }
            };
            let hash = hash_key(table.id, key);
            block.push(plain_op(table.id, PlainOp { key, hash, value, expires_at_ms }, inline_max, *end));
        }
        let block = (!block.is_empty()).then(|| block.finish());
        Ok(TableWork { table, block, ranges })
    }
}

/// What a commit does to the catalog. Its rows are decoded once here: its apply cannot fail.
fn define(catalog: &Arc<Catalog>, list: &OpList<'_>, csn: Csn) -> Result<Definition> {
    let mut ops = Vec::new();
    for (op, _) in list {
        match op {
            Op::Put { key, value, .. } => {
                if *key == NEXT_ID_KEY {
                    decode_next_id(value).map(|_| ())
                } else {
                    decode_row(value).map(|_| ())
                }
                .map_err(|error| error.of_commit(csn))?;
                let is_text = std::str::from_utf8(key).is_ok();
                if !is_text {
                    return Err(Damage::new("a table's name is not UTF-8").of_commit(csn).into());
                }
                ops.push(CatalogOp::Put { key: key.to_vec(), row: value.to_vec() });
            }
            Op::Delete { key } => ops.push(CatalogOp::Delete { key: key.to_vec() }),
            _ => {
                let what = format!("commit {csn} does to the catalog what no commit does");
                return Err(Damage::new(what).of_commit(csn).into());
            }
        }
    }
    Ok(Definition { catalog: catalog.clone(), ops, new_table: None })
}
