//! A commit of one blind write: no snapshot, no write set.

use std::sync::Arc;

use fulgurite_index::Io;
use fulgurite_types::{Csn, hash_key, limits};

use crate::catalog::TableState;
use crate::commit::Committer;
use crate::commit::latches::{Gate, LatchSet};
use crate::commit::prepare::prepare_one;
use crate::engine::Engine;
use crate::merger::freeze_if_grown;
use crate::options::TRANSACTION_BYTES_MAX_LEAST;
use crate::space::budget::Kind;
use crate::space::need::WriteCost;
use crate::write_set::{check_key, check_value};
use crate::{Commit, Error, Result, Table};

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
    fn validate(&self, _checked: Csn, _io: Io) -> Result<()> {
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
        freeze_if_grown(self.table, &self.engine.pipeline, self.engine.memtable_bytes_max());
        self.engine.look_at_memtables();
    }
}

/// A single write never takes half of a transaction's budget, so it is not counted.
const _: () =
    assert!(limits::KEY_BYTES_MAX + limits::SPILL_BYTES_MIN + 1024 <= TRANSACTION_BYTES_MAX_LEAST / 2);

impl Table {
    /// Commits the write of one key, `None` to delete it, as a transaction would that does nothing else.
    pub(crate) fn write_bytes(&self, key: &[u8], value: Option<&[u8]>, expires_at_ms: u64) -> Result<Commit> {
        if value.is_some_and(|value| value.len() >= limits::SPILL_BYTES_MIN) {
            return self.write_ahead(key, value, expires_at_ms);
        }
        let Table { engine, state: table, .. } = self;
        engine.check_process()?;
        check_key(key)?;
        value.map_or(Ok(()), check_value)?;
        let level = self.durability;
        let timed = engine.pipeline.stopwatch().start(level);
        engine.check_writable()?;
        let bytes = key.len() + value.map_or(0, <[u8]>::len);
        let kind = if value.is_some() { Kind::Puts } else { Kind::Deletes };
        let _admitted = engine.admit_by_room(kind, || WriteCost::of_one(bytes))?;
        engine.wait_for_maintenance(std::iter::once(&**table), bytes)?;
        let hash = hash_key(table.id, key);
        let inline_max = engine.options.inline_bytes_max;
        let (frame, work) = prepare_one(table, key, hash, value, expires_at_ms, inline_max);
        engine.commit(SingleWrite { engine, table, hash }, level, frame, work, |csn| {
            // It read no commit, so it waits for none but its own.
            engine.pipeline.wait_acknowledged(csn, Csn::ZERO, timed)?;
            Ok(Commit { csn })
        })
    }

    /// A value that is written ahead of the commit's frame needs a transaction.
    fn write_ahead(&self, key: &[u8], value: Option<&[u8]>, expires_at_ms: u64) -> Result<Commit> {
        let mut txn = self.begin();
        txn.write_bytes(self, key, value, expires_at_ms)?;
        txn.commit()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use fulgurite_env::sim::{CrashKind, SimEnv};
    use fulgurite_types::limits;

    use crate::{Database, Options, Table};

    #[test]
    fn single_writes_of_all_lengths_are_read_back_and_recovered() {
        let env = SimEnv::new(1);
        let options = || Options { background: false, ..Options::default() };
        let inline = options().inline_bytes_max;
        let ahead = limits::SPILL_BYTES_MIN;
        let lens = [0, 1, inline, inline + 1, ahead - 1, ahead, ahead + 1];
        let value = |len: usize| vec![len as u8 | 1; len];
        let db = Database::open_with(env.clone(), "/db", options(), |_| {}).unwrap();
        let table = db.table("t").unwrap();
        for len in lens {
            table.put(len.to_be_bytes(), value(len)).unwrap();
            table.put(b"deleted", value(len)).unwrap();
        }
        table.delete(b"deleted").unwrap();
        let check = |table: &Table| {
            for len in lens {
                assert_eq!(table.get(len.to_be_bytes()).unwrap().as_deref(), Some(&*value(len)), "{len}");
            }
            assert!(table.get(b"deleted").unwrap().is_none());
        };
        check(&table);
        let crashed = env.crash(CrashKind::PowerCut, 1);
        let db = Database::open_with(crashed, "/db", options(), |_| {}).unwrap();
        check(&db.table("t").unwrap());
    }
}
