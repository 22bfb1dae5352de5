//! Bulk apply for recovery: the operations of many commits, whose CSNs and LSNs are known, are sorted once and linked
//! in order.

use std::fmt;

use fulgurite_types::{Csn, Lsn, TableId};

use super::block::{Block, BlockBuilder, NodeFields};
use super::node::{HEIGHT_MAX, node_words};
use crate::version::VersionFlags;

/// The greatest size of a block, unless a single operation needs more. A reader's pin may keep a whole block.
const BLOCK_WORDS: usize = (1 << 20) / 8;

/// The size of the first block of a table; each is twice as large as the one before.
const FIRST_BLOCK_WORDS: usize = (4 << 10) / 8;

/// One replayed operation.
#[derive(Clone, Copy, Debug)]
pub struct RecoveredOp<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its [`fulgurite_types::hash_key`].
    pub hash: u64,
    /// Which commit wrote it.
    pub csn: Csn,
    /// The kind of version that it makes.
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The value's bytes; with [`VersionFlags::OUT_OF_LINE`] a finished [`crate::OutOfLine`].
    pub payload: &'a [u8],
    /// The LSN of the value's bytes; `None` if they are not in the log.
    pub value_lsn: Option<Lsn>,
    /// The value's sealed checksum; unused without `value_lsn`.
    pub checksum: u32,
}

/// Collects replayed operations of one table, in any order.
pub struct RecoveredBuilder {
    table: TableId,
    full: Vec<Block>,
    open: BlockBuilder,
    block_words: usize,
    entries: usize,
    csn_min: Csn,
    csn_max: Csn,
}

impl RecoveredBuilder {
    /// An empty builder.
    pub fn new(table: TableId) -> RecoveredBuilder {
        RecoveredBuilder {
            table,
            full: Vec::new(),
            open: BlockBuilder::with_words(table, 0),
            block_words: FIRST_BLOCK_WORDS,
            entries: 0,
            csn_min: Csn::MAX,
            csn_max: Csn::ZERO,
        }
    }

    /// Adds an operation. Applying the batch skips operations whose key and CSN the memtables already have.
    pub fn push(&mut self, op: RecoveredOp<'_>) {
        if !self.open.has_room_for(op.key.len(), op.payload.len()) {
            let words = node_words(HEIGHT_MAX, op.key.len(), op.payload.len()).max(self.block_words);
            self.block_words = (self.block_words * 2).min(BLOCK_WORDS);
            let full = std::mem::replace(&mut self.open, BlockBuilder::with_words(self.table, words));
            if !full.is_empty() {
                self.full.push(full.finish());
            }
        }
        self.open.push_fields(&NodeFields {
            key: op.key,
            hash: op.hash,
            csn: op.csn,
            flags: op.flags,
            expires_at_ms: op.expires_at_ms,
            payload: op.payload,
            value_lsn: op.value_lsn.unwrap_or(Lsn::NULL).0,
            checksum: op.checksum,
        });
        self.entries += 1;
        self.csn_min = self.csn_min.min(op.csn);
        self.csn_max = self.csn_max.max(op.csn);
    }

    /// How many operations were added.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let blocks: usize = self.full.iter().map(Block::bytes).sum();
        blocks + self.open.bytes()
    }

    /// The operations, ready to be applied.
    pub fn finish(mut self) -> RecoveredBatch {
        if !self.open.is_empty() {
            self.full.push(self.open.finish());
        }
        RecoveredBatch {
            blocks: self.full,
            entries: self.entries,
            csn_min: self.csn_min,
            csn_max: self.csn_max,
        }
    }
}

/// Replayed operations of one table, ready to be applied.
pub struct RecoveredBatch {
    blocks: Vec<Block>,
    entries: usize,
    csn_min: Csn,
    csn_max: Csn,
}

impl RecoveredBatch {
    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The smallest and the greatest CSN in it; of an empty batch ([`Csn::MAX`], [`Csn::ZERO`]).
    pub fn csn_range(&self) -> (Csn, Csn) {
        (self.csn_min, self.csn_max)
    }

    pub(super) fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }
}

impl fmt::Debug for RecoveredBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecoveredBatch({} entries)", self.len())
    }
}
