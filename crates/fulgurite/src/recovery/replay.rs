//! Replay: collects the frames of the log above the checkpoint, and applies them to the tables.
//!
//! Usually that is one batch: [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes) is a quarter of the memory
//! budget at most. There may be more log than that, if the budget was larger before, or if lives ended before their first
//! checkpoint, or if one transaction is large. Then the log, once it is open, is read again after the first batch; each batch is applied,
//! frozen and merged before the next one is read, and eviction keeps the trees within the budget meanwhile.
//!
//! **INV-REC-1.** *Before the last batch is applied no checkpoint is written, and no segment is found dead.* A checkpoint
//! would say that it covers commits that are in no table yet. Segments that former lives left dead are found before the first
//! merge: afterwards trees have records that no checkpoint names. The chunks of all commits are pinned by then.

use std::collections::BTreeMap;
use std::error::Error as StdError;

use fulgurite_index::memtables::{RecoveredBuilder, RecoveredOp};
use fulgurite_index::range_delete::Readers;
use fulgurite_index::{OutOfLine, VersionFlags};
use fulgurite_log::{ChunkRef, FrameHeader, Log, RecoveredFrame, RecoverySink};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId, hash_key, seal_checksum, value_checksum};

use crate::body::{self, KIND_COMMIT, KIND_COMMIT_IN_CHUNKS, Op, Ops};
use crate::catalog::{Catalog, CatalogOp, inline_max_of};
use crate::checkpoint::growth::{LogBytes, REPLAYED_OP_BYTES};
use crate::engine::Engine;
use crate::error::OrError;
use crate::recovery::RecoveryProgress;
use crate::space::pins::SpillPins;
use crate::spill::{ChunkRefs, decode_chunks_body};
use crate::{Damage, Options, Result};

/// The first batch, which recovery itself collects, takes this part of the memory budget: trees take nothing yet.
const FIRST_BATCH_SHARE: usize = 2;

/// A later batch takes this part of it.
const BATCH_SHARE: usize = 8;

/// Batches take about so many bytes if everything is to be evicted: for tests.
const TEST_BATCH_BYTES: usize = 1 << 10;

/// Collects the first batch of the log, and notes where it ends. Reads no tree and no catalog before the whole
/// log was read: the log serves reads only once it is open.
pub(crate) struct Replay<'p> {
    batch: Batch,
    bytes_max: usize,
    lists: LogBytes,
    /// The log after the first batch.
    rest: Option<Rest>,
    /// The chunks of commits that are not replayed, and are kept for other nodes, or not known to be agreed.
    passed_over: Vec<(Csn, Vec<ChunkRef>)>,
    pub clock_ms: u64,
    progress: &'p mut dyn FnMut(RecoveryProgress),
}

/// The commits that are replayed in further batches.
pub(crate) struct Rest {
    /// The last commit of the first batch.
    after: Csn,
    /// The last commit.
    last: Csn,
    in_chunks: Vec<(Csn, Vec<ChunkRef>)>,
}

/// Operations of consecutive commits, by table.
struct Batch {
    inline_max: usize,
    tables: BTreeMap<TableId, RecoveredTable>,
    catalog_ops: Vec<(Csn, Vec<CatalogOp>)>,
    /// Frames that refer to chunks: resolved once the log is open for reads.
    in_chunks: Vec<InChunks>,
    /// All that will take about so many bytes of memory.
    bytes: usize,
    /// As [`LogBytes`] count them.
    ops: u64,
    list_share: u64,
    last: Csn,
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

impl Batch {
    fn new(inline_max: usize, list_share: u64) -> Batch {
        Batch {
            inline_max,
            tables: BTreeMap::new(),
            catalog_ops: Vec::new(),
            in_chunks: Vec::new(),
            bytes: 0,
            ops: 0,
            list_share,
            last: Csn::ZERO,
        }
    }

    fn table(&mut self, table: TableId) -> &mut RecoveredTable {
        self.tables
            .entry(table)
            .or_insert_with(|| RecoveredTable { ops: RecoveredBuilder::new(table), ranges: Vec::new() })
    }

    /// Takes the frame of the next commit.
    fn take_frame(
        &mut self,
        header: &FrameHeader,
        body: &[u8],
        body_lsn: Lsn,
        local: &[ChunkRef],
    ) -> Result<()> {
        self.last = header.csn;
        if local.is_empty() && header.kind == KIND_COMMIT {
            return self.take(header.csn, body, Some(body_lsn), &ChunkRefs::default());
        }
        self.bytes += body.len() + list_bytes(header.kind, body).unwrap_or(0) as usize;
        let (csn, kind) = (header.csn, header.kind);
        self.in_chunks.push(InChunks { csn, kind, body: body.to_vec(), body_lsn, local: local.to_vec() });
        Ok(())
    }

    /// Takes the operations of one commit. `body_lsn` is the LSN of its body, `None` if the body is in chunks.
    fn take(&mut self, csn: Csn, bytes: &[u8], body_lsn: Option<Lsn>, chunk_refs: &ChunkRefs) -> Result<()> {
        let damaged = |error| {
            Damage::new(format!("the operations of commit {csn} do not decode: {error}")).of_commit(csn)
        };
        self.bytes += bytes.len();
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
            self.bytes += REPLAYED_OP_BYTES as usize;
            self.ops += 1;
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

    fn take_in_chunks(&mut self, log: &Log, pins: &SpillPins, frame: &InChunks) -> Result<()> {
        let csn = frame.csn;
        let chunk_refs = ChunkRefs::new(pin_chunks(log, pins, csn, &frame.local)?);
        if frame.kind != KIND_COMMIT_IN_CHUNKS {
            return self.take(csn, &frame.body, Some(frame.body_lsn), &chunk_refs);
        }
        let chunks = decode_chunks_body(log, &frame.body, csn, frame.body_lsn)?;
        let bytes = chunk_refs.operations(log, &chunks, csn, frame.body_lsn)?;
        let before = self.ops;
        self.take(csn, &bytes, None, &chunk_refs)?;
        self.ops = before + LogBytes::of_list(chunks.len, self.ops - before, self.list_share).ops;
        Ok(())
    }

    /// Applies everything to the tables; returns the operations.
    fn apply(mut self, log: &Log, pins: &SpillPins, catalog: &Catalog) -> Result<u64> {
        for frame in std::mem::take(&mut self.in_chunks) {
            self.take_in_chunks(log, pins, &frame)?;
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
        Ok(self.ops)
    }
}

/// Pins the segments of a commit's chunks; returns all references to them.
fn pin_chunks(log: &Log, pins: &SpillPins, csn: Csn, local: &[ChunkRef]) -> Result<Vec<ChunkRef>> {
    local.iter().for_each(|chunk| pins.pin_recovered(csn, chunk.lsn.segment()));
    let resolved = log.resolve_chunks(local).or_error()?;
    if resolved != local {
        resolved.iter().for_each(|chunk| pins.pin_recovered(csn, chunk.lsn.segment()));
    }
    Ok(resolved)
}

/// How long the operation list of a commit is, if that is in chunks.
fn list_bytes(kind: u8, body: &[u8]) -> Option<u64> {
    if kind != KIND_COMMIT_IN_CHUNKS {
        return None;
    }
    // A body that does not decode is reported when it is applied.
    body::decode_chunks_body(body).ok().map(|chunks| chunks.len)
}

impl<'p> Replay<'p> {
    pub fn new(
        options: &Options,
        budget: usize,
        progress: &'p mut dyn FnMut(RecoveryProgress),
    ) -> Replay<'p> {
        let bytes_max =
            if options.read_only { usize::MAX } else { batch_bytes(options, budget, FIRST_BATCH_SHARE) };
        Replay {
            batch: Batch::new(options.inline_bytes_max, options.checkpoint_log_bytes),
            bytes_max,
            lists: LogBytes::default(),
            rest: None,
            passed_over: Vec::new(),
            clock_ms: 0,
            progress,
        }
    }

    /// Applies the first batch to the tables, and pins the chunks of the rest. Returns the operations of that batch, and the
    /// operation lists in chunks of all commits.
    pub fn finish(self, log: &Log, pins: &SpillPins, catalog: &Catalog) -> Result<(LogBytes, Option<Rest>)> {
        let passed_over = if log.role().is_some() { self.passed_over } else { Vec::new() };
        for (csn, chunks) in passed_over {
            // A list that is gone: then that commit cannot be sent to others, and if it has to be applied, that says so.
            let resolved = pin_chunks(log, pins, csn, &chunks);
            if let Err(error) = resolved {
                tracing::debug!(%error, csn = csn.0, "chunks of a commit that is not replayed");
            }
        }
        let lists = LogBytes { ops: self.batch.apply(log, pins, catalog)?, ..self.lists };
        let Some(mut rest) = self.rest else { return Ok((lists, None)) };
        for (csn, local) in std::mem::take(&mut rest.in_chunks) {
            pin_chunks(log, pins, csn, &local)?;
        }
        Ok((lists, Some(rest)))
    }
}

impl RecoverySink for Replay<'_> {
    fn frame(&mut self, frame: &RecoveredFrame<'_>) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let header = &frame.header;
        self.clock_ms = self.clock_ms.max(header.commit_time_ms);
        if header.kind != KIND_COMMIT && header.kind != KIND_COMMIT_IN_CHUNKS {
            return Err(
                format!("the frame of commit {} has the unknown kind {}", header.csn, header.kind).into()
            );
        }
        if let Some(bytes) = list_bytes(header.kind, frame.body) {
            self.lists = self.lists + LogBytes::of_list(bytes, 0, self.batch.list_share);
        }
        if self.batch.bytes < self.bytes_max {
            self.batch.take_frame(header, frame.body, frame.body_lsn, &frame.local)?;
            return Ok(());
        }
        let after = self.batch.last;
        let rest = self.rest.get_or_insert_with(|| Rest { after, last: after, in_chunks: Vec::new() });
        rest.last = header.csn;
        if !frame.local.is_empty() {
            rest.in_chunks.push((header.csn, frame.local.clone()));
        }
        Ok(())
    }

    fn passed_over(&mut self, csn: Csn, chunks: Vec<ChunkRef>) {
        self.passed_over.push((csn, chunks));
    }

    fn progress(&mut self, done_bytes: u64, total_bytes: u64) {
        (self.progress)(RecoveryProgress { done_bytes, total_bytes });
    }
}

/// About how many bytes a batch takes that may have so much of the budget.
fn batch_bytes(options: &Options, budget: usize, share: usize) -> usize {
    if options.research.evict_everything { TEST_BATCH_BYTES } else { budget / share }
}

impl Engine {
    /// Replays the log after the first batch.
    pub fn replay_rest(&self, rest: &Rest) -> Result<()> {
        let path = self.files.path.display();
        let (after, last) = (rest.after.0, rest.last.0);
        tracing::info!(%path, after, last, "more log to replay than the memory budget allows at once: merging between");
        self.merge_batch(rest.after);
        let bytes_max = batch_bytes(&self.options, self.memory.index.budget_bytes(), BATCH_SHARE);
        let mut reader = self.log.reader(rest.after).or_error()?;
        let mut after = rest.after;
        while after < rest.last {
            let mut batch = Batch::new(self.options.inline_bytes_max, self.growth.share());
            while batch.bytes < bytes_max && batch.last < rest.last {
                let Some(frame) = reader.next().or_error()? else { break };
                batch.take_frame(&frame.header, &frame.body, frame.body_lsn, &frame.local)?;
            }
            if batch.last == Csn::ZERO {
                let what = format!("the log ends at commit {after}, and recovery found {}", rest.last);
                return Err(Damage::new(what).of_commit(after).into());
            }
            after = batch.last;
            batch.apply(&self.log, &self.spills, &self.tables)?;
            if after < rest.last {
                self.merge_batch(after);
            }
        }
        Ok(())
    }

    /// Merges the replayed commits, up to `boundary`, the last of them. If a table cannot be merged, opening goes on: its
    /// memtables stay, as in an open database.
    fn merge_batch(&self, boundary: Csn) {
        for table in self.tables.active().all() {
            // Only a checkpoint freezes the catalog's.
            if table.id != TableId::CATALOG {
                table.index.freeze(boundary);
            }
        }
        loop {
            match self.merge_all() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let path = self.files.path.display();
                    tracing::warn!(%error, %path, "replayed commits could not be merged while opening");
                    return;
                }
            }
        }
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
            let value = chunk_refs.value(chunks, csn)?;
            payload.clear();
            OutOfLine { checksum: seal_checksum(value.checksum, csn), ..value }.encode(payload);
            recovered.payload = payload;
        }
        Op::Delete { .. } | Op::DeleteRange { .. } => {}
    }
    Ok(recovered)
}
