//! A commit of one blind write: no snapshot, no write set.

use std::sync::Arc;

use fulgurite_index::Io;
use fulgurite_types::{Csn, hash_key, limits};

use crate::catalog::TableState;
use crate::commit::Committer;
use crate::commit::latches::{Gate, LatchSet};
use crate::commit::prepare::prepare_one;
use crate::engine::Engine;
use crate::write_set::{check_key, check_value, single_write_bytes};
use crate::{Commit, Error, Result};

/// The write of one key, which commits.
struct SingleWrite<'a> {
    engine: &'a Engine,
    table: &'a Arc<TableState>,
    hash: u64,
}

impl Committer for SingleWrite<'_> {
    fn latches(&self) -> LatchSet<'_> {
        let mut set = LatchSet::default();
        set.gate(self.table, Gate::Shared);
        set.key(self.hash);
        set
    }

    /// A blind write has nothing to validate but that its table exists.
    fn validate(&self, _io: Io) -> Result<()> {
        match self.table.dropped() {
            Some(_) => Err(Error::TableDropped { name: self.table.name().to_string() }),
            None => Ok(()),
        }
    }

    fn before_ms(&self) -> u64 {
        u64::MAX
    }

    fn too_late(&self) -> Error {
        unreachable!("a commit without a deadline is never too late")
    }

    fn release(self, _csn: Csn) {
        self.engine.freeze_if_grown(self.table);
    }
}

impl Engine {
    /// Whether a write of one key needs a transaction: it may be written ahead, or exceed the transaction's budget.
    pub fn needs_transaction(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        let value_len = value.map_or(0, <[u8]>::len);
        value_len >= limits::SPILL_BYTES_MIN
            || single_write_bytes(key.len(), value_len) > self.options.transaction_bytes_max / 2
    }

    /// Commits the write of one key, `None` to delete it, as a transaction would that does nothing else.
    pub fn write_one(
        &self,
        table: &Arc<TableState>,
        key: &[u8],
        value: Option<&[u8]>,
        expires_at_ms: u64,
    ) -> Result<Commit> {
        self.check_process()?;
        check_key(key)?;
        value.map_or(Ok(()), check_value)?;
        let level = self.options.durability;
        let timed = self.pipeline.stopwatch().start(level);
        self.admit_writes(|| value.is_some())?;
        self.wait_for_merging(table)?;
        let hash = hash_key(table.id, key);
        let inline_max = self.options.inline_bytes_max;
        let (frame, work) = prepare_one(table, key, hash, value, expires_at_ms, inline_max);
        self.commit(SingleWrite { engine: self, table, hash }, level, frame, work, |csn| {
            // It read no commit, so it waits for none but its own.
            self.pipeline.wait_acknowledged(csn, Csn::ZERO, timed)?;
            Ok(Commit { csn })
        })
    }
}
