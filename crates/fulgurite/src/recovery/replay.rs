//! Replay: collects the frames of the log above the checkpoint, and applies them to the tables.

use std::collections::BTreeMap;
use std::error::Error as StdError;

use fulgurite_index::memtables::{RecoveredBuilder, RecoveredOp};
use fulgurite_index::range_delete::Readers;
use fulgurite_index::{Extent, OutOfLine, VersionFlags};
use fulgurite_log::{ChunkRef, Log, RecoveredFrame, RecoverySink};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId, crc32c, hash_key, seal_checksum, value_checksum};

use crate::body::{self, ChunksRef, KIND_COMMIT, KIND_COMMIT_IN_CHUNKS, Op, Ops};
use crate::catalog::{Catalog, CatalogOp, inline_max_of};
use crate::checkpoint::growth::LogBytes;
use crate::error::OrError;
use crate::recovery::RecoveryProgress;
use crate::space::pins::SpillPins;
use crate::spill::resolve_references;
use crate::{Damage, Error, Result};

/// Collects the operations of the frames that the log delivers, by table. Reads no tree and no catalog before the whole
/// log was read: the log serves reads only once it is open.
pub(crate) struct Replay<'p> {
    inline_max: usize,
    tables: BTreeMap<TableId, RecoveredTable>,
    catalog_ops: Vec<(Csn, Vec<CatalogOp>)>,
    /// Frames that refer to chunks: resolved once the log is open for reads.
    in_chunks: Vec<InChunks>,
    pub commits: u64,
    pub clock_ms: u64,
    progress: &'p mut dyn FnMut(RecoveryProgress),
}

struct RecoveredTable {
    ops: RecoveredBuilder,
    ranges: Vec<(KeySpan, Csn)>,
}

struct InChunks {
    csn: Csn,
    kind: u8,
    body: Vec<u8>,
    body_lsn: Lsn,
    local: Vec<ChunkRef>,
}

impl<'p> Replay<'p> {
    pub fn new(inline_max: usize, progress: &'p mut dyn FnMut(RecoveryProgress)) -> Replay<'p> {
        Replay {
            inline_max,
            tables: BTreeMap::new(),
            catalog_ops: Vec::new(),
            in_chunks: Vec::new(),
            commits: 0,
            clock_ms: 0,
            progress,
        }
    }

    fn table(&mut self, table: TableId) -> &mut RecoveredTable {
        self.tables
            .entry(table)
            .or_insert_with(|| RecoveredTable { ops: RecoveredBuilder::new(table, 0), ranges: Vec::new() })
    }

    /// Takes the operations of one commit. `body_lsn` is the LSN of its body, `None` if the body is in chunks.
    fn take(&mut self, csn: Csn, bytes: &[u8], body_lsn: Option<Lsn>, chunk_refs: &ChunkRefs) -> Result<()> {
        let damaged = |error| {
            Damage::new(format!("the operations of commit {csn} do not decode: {error}")).of_commit(csn)
        };
        let mut ops = Ops::new(bytes);
        let mut catalog = Vec::new();
        let mut payload = Vec::new();
        while let Some((table, op, end)) = ops.next().map_err(damaged)? {
            if table == TableId::CATALOG {
                match &op {
                    Op::Put { key, value, .. } => {
                        catalog.push(CatalogOp::Put { key: key.to_vec(), row: value.to_vec() });
                    }
                    Op::Delete { key } => catalog.push(CatalogOp::Delete { key: key.to_vec() }),
                    _ => {
                        let what = format!("commit {csn} does to the catalog what no commit does");
                        return Err(Damage::new(what).of_commit(csn).into());
                    }
                }
            }
            let inline_max = inline_max_of(table, self.inline_max);
            let recovered = self.table(table);
            if let Op::DeleteRange { start, end } = op {
                recovered.ranges.push((KeySpan::new(start, end).owned(), csn));
                continue;
            }
            recovered.ops.push(recovered_op(
                table,
                &op,
                csn,
                end,
                body_lsn,
                inline_max,
                chunk_refs,
                &mut payload,
            )?);
        }
        if !catalog.is_empty() {
            self.catalog_ops.push((csn, catalog));
        }
        Ok(())
    }

    /// Returns the length of the operation list, if that is in chunks, too.
    fn take_in_chunks(&mut self, log: &Log, pins: &SpillPins, frame: &InChunks) -> Result<u64> {
        let csn = frame.csn;
        let chunk_refs = ChunkRefs::new(resolve_references(log, &frame.local)?);
        for chunk in frame.local.iter().chain(&chunk_refs.chunk_refs) {
            pins.pin_recovered(csn, chunk.lsn.segment());
        }
        if frame.kind != KIND_COMMIT_IN_CHUNKS {
            self.take(csn, &frame.body, Some(frame.body_lsn), &chunk_refs)?;
            return Ok(0);
        }
        let damaged = |what: String| Error::of_log(log.damage_at(frame.body_lsn, what)).of_commit(csn);
        let chunks = body::decode_chunks_body(&frame.body)
            .map_err(|error| damaged(format!("the body of commit {csn} does not decode: {error}")))?;
        let mut bytes = Vec::with_capacity(chunks.len as usize);
        for chunk in chunk_refs.of(&chunks, csn)? {
            bytes.extend_from_slice(&log.read_chunk(chunk).or_error()?);
        }
        if crc32c(&bytes) != chunks.checksum {
            return Err(damaged(format!("the operations of commit {csn}, in chunks, fail their checksum")));
        }
        self.take(csn, &bytes, None, &chunk_refs)?;
        Ok(chunks.len)
    }

    /// Applies everything to the tables; returns the operation lists in chunks that it read. `share` is
    /// [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes).
    pub fn finish(mut self, log: &Log, pins: &SpillPins, catalog: &Catalog, share: u64) -> Result<LogBytes> {
        let mut lists = LogBytes::default();
        for frame in std::mem::take(&mut self.in_chunks) {
            lists = lists + LogBytes::of_list(self.take_in_chunks(log, pins, &frame)?, share);
        }
        // Frames in chunks were taken after all others.
        self.catalog_ops.sort_by_key(|(csn, _)| *csn);
        for (csn, ops) in &self.catalog_ops {
            catalog.apply(*csn, ops, None)?;
        }
        for (id, recovered) in self.tables {
            // A later commit dropped the table: no reader can ask for it.
            let Some(table) = catalog.by_id(id) else { continue };
            for (range, csn) in recovered.ranges {
                table.apply_range_delete(range.borrowed(), csn, &Readers::NONE_YET);
            }
            table.apply_recovered(recovered.ops.finish());
        }
        Ok(lists)
    }
}

impl RecoverySink for Replay<'_> {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let header = &frame.header;
        self.commits += 1;
        self.clock_ms = self.clock_ms.max(header.commit_time_ms);
        if header.kind != KIND_COMMIT && header.kind != KIND_COMMIT_IN_CHUNKS {
            return Err(
                format!("the frame of commit {} has the unknown kind {}", header.csn, header.kind).into()
            );
        }
        if frame.local.is_empty() && header.kind == KIND_COMMIT {
            self.take(header.csn, frame.body, Some(frame.body_lsn), &ChunkRefs::default())?;
        } else {
            self.in_chunks.push(InChunks {
                csn: header.csn,
                kind: header.kind,
                body: frame.body.to_vec(),
                body_lsn: frame.body_lsn,
                local: frame.local.clone(),
            });
        }
        Ok(())
    }

    fn progress(&mut self, done_bytes: u64, total_bytes: u64) {
        (self.progress)(RecoveryProgress { done_bytes, total_bytes });
    }
}

/// The chunks that a commit refers to.
#[derive(Default)]
struct ChunkRefs {
    chunk_refs: Vec<ChunkRef>,
    by_ordinal: BTreeMap<u32, usize>,
}

impl ChunkRefs {
    fn new(chunk_refs: Vec<ChunkRef>) -> ChunkRefs {
        let by_ordinal = chunk_refs.iter().enumerate().map(|(index, chunk)| (chunk.ordinal, index)).collect();
        ChunkRefs { chunk_refs, by_ordinal }
    }

    fn of(&self, chunks: &ChunksRef, csn: Csn) -> Result<Vec<&ChunkRef>> {
        let chunk = |index: u32| {
            let ordinal = chunks.ordinal + index;
            let chunk = self.by_ordinal.get(&ordinal).map(|&index| &self.chunk_refs[index]);
            chunk.filter(|chunk| chunk.spill == chunks.spill && chunk.len == chunks.chunk_len(index)).ok_or_else(|| {
                Error::from(Damage::new(format!(
                    "commit {csn} refers to chunk {ordinal} of a transaction, and the log does not say where it is"
                )))
                .of_commit(csn)
            })
        };
        (0..chunks.count()).map(chunk).collect()
    }

    fn extents(&self, chunks: &ChunksRef, csn: Csn) -> Result<Vec<Extent>> {
        let chunk_refs = self.of(chunks, csn)?.into_iter();
        Ok(chunk_refs.map(|chunk| Extent { lsn: chunk.lsn, len: chunk.len }).collect())
    }
}

#[expect(clippy::too_many_arguments, reason = "one call in a loop; a struct would only rename them")]
fn recovered_op<'a>(
    table: TableId,
    op: &Op<'a>,
    csn: Csn,
    end: usize,
    body_lsn: Option<Lsn>,
    inline_max: usize,
    chunk_refs: &ChunkRefs,
    payload: &'a mut Vec<u8>,
) -> Result<RecoveredOp<'a>> {
    let (key, flags, expires_at_ms) = match op {
        Op::Put { key, expires_at_ms, .. } => (*key, 0, *expires_at_ms),
        Op::PutInChunks { key, expires_at_ms, .. } => (*key, VersionFlags::OUT_OF_LINE, *expires_at_ms),
        Op::Delete { key } => (*key, VersionFlags::TOMBSTONE, 0),
        Op::DeleteRange { .. } => unreachable!("range deletes are taken before"),
    };
    let flags = if expires_at_ms == 0 { flags } else { flags | VersionFlags::EXPIRES };
    let mut recovered = RecoveredOp {
        key,
        hash: hash_key(table, key),
        csn,
        flags: VersionFlags(flags),
        expires_at_ms,
        payload: &[],
        value_lsn: None,
        checksum: 0,
    };
    match op {
        Op::Put { value, .. } => {
            recovered.payload = value;
            if value.len() > inline_max
                && let Some(body_lsn) = body_lsn
            {
                recovered.value_lsn = Some(body_lsn.advance((end - value.len()) as u32));
                recovered.checksum = seal_checksum(value_checksum(table, key, &[value]), csn);
            }
        }
        Op::PutInChunks { chunks, .. } => {
            let extents = chunk_refs.extents(chunks, csn)?;
            payload.clear();
            OutOfLine { len: chunks.len, checksum: seal_checksum(chunks.checksum, csn), extents }
                .encode(payload);
            recovered.payload = payload;
        }
        Op::Delete { .. } | Op::DeleteRange { .. } => {}
    }
    Ok(recovered)
}
