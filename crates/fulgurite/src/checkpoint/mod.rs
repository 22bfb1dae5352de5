//! Checkpoints: the trees on disk as of one CSN, and the superblock that refers to them.
//!
//! INV-CKPT-1: a checkpoint chooses its boundary first, and merges nothing before `horizon` has passed the boundary:
//! every commit at or below it is then applied and synced. So nothing on disk ever has to be undone, and replay from
//! the boundary misses no commit.
//!
//! INV-CKPT-2: the superblock is written after the bulk stream was synced.
//!
//! INV-CKPT-3: a range tombstone is dropped by a checkpoint that began after an earlier one had purged every version
//! that it hides, and only if no snapshot is older than the dropping checkpoint's boundary. A read without a snapshot
//! is safe, too: it looks up range tombstones before keys, so if it misses a dropped tombstone, it then searches a tree
//! in which the tombstone has nothing left to hide.

pub(crate) mod pace;
mod purges;
pub(crate) mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_env::Env;
use fulgurite_index::Base;
use fulgurite_log::{CommitLog, Log};
use fulgurite_types::{Csn, Lsn, TableId};

use self::pace::{Debt, due_bytes};
use self::purges::Purges;
use self::record::{CheckpointRecord, TableRecord};
use crate::catalog::{Catalog, TableState};
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::error::OrError;
use crate::files::Files;
use crate::hooks::Hooks;
use crate::merger::{Horizon, Merger};
use crate::progress::Progress;
use crate::reads::Reads;
use crate::space::room::Room;
use crate::space::{Needed, Space};
use crate::superblock::{Superblock, SuperblockFile};
use crate::{Error, Result};

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointReport {
    /// The newest commit that it covers.
    pub covered: Csn,
    /// Node records written.
    pub records_written: u64,
    /// Segments that became free.
    pub segments_freed: u64,
}

/// How many bytes of leaves one step writes. Tests are to have many steps.
const STEP_BYTES: usize = if cfg!(test) { 2 << 10 } else { 1 << 20 };

/// Writes checkpoints, and says when one is due.
pub(crate) struct Checkpointer {
    superblock: SuperblockFile,
    /// The log that no checkpoint covers.
    debt: Debt,
    purges: Purges,
    shared: Shared,
}

/// What a checkpointer was handed.
pub(crate) struct Shared {
    pub env: Arc<dyn Env>,
    pub files: Arc<Files>,
    pub clock: Arc<Clock>,
    pub log: Arc<Log>,
    pub pipeline: Arc<Pipeline>,
    pub tables: Arc<Catalog>,
    pub reads: Arc<Reads>,
    pub room: Arc<Room>,
    pub progress: Arc<Progress>,
    pub hooks: Arc<Hooks>,
    /// [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes).
    pub log_bytes_max: u64,
}

/// A checkpoint that is being written.
struct Boundary {
    /// It covers the commits up to this one.
    covered: Csn,
    /// Where replay starts after it.
    replay: Lsn,
    /// The bytes that the log had written in this life when it began.
    log_bytes: u64,
    /// The first bulk segment that may hold its records.
    bulk_before: u32,
}

impl Checkpointer {
    pub fn new(superblock: SuperblockFile, debt: Debt, shared: Shared) -> Checkpointer {
        Checkpointer { superblock, debt, purges: Purges::default(), shared }
    }

    pub fn superblock(&self) -> &SuperblockFile {
        &self.superblock
    }

    /// What recovery may need of the log.
    pub fn needed(&self) -> Needed {
        let copies = || self.superblock.copies();
        Needed {
            replay: copies().map(|copy| copy.replay).min().expect("there is a current copy"),
            covered: copies().map(|copy| copy.covered).min().expect("there is a current copy"),
        }
    }

    /// Publishes the last checkpoint for readers without the lock.
    pub fn publish(&self, space: &Space) {
        let progress = &self.shared.progress;
        progress.covered.store(self.superblock.current().covered.0, Ordering::Release);
        progress.live_bytes.store(space.accounts.live_bytes(), Ordering::Release);
    }

    /// Whether the log has grown enough for a checkpoint, or the disk is nearly full and one might free segments.
    pub fn is_due(&self, space: &Space) -> bool {
        // A segment is freed only when the older copy of the superblock does not need it either: until that copy covers
        // everything, another checkpoint may free segments.
        if self.shared.room.is_short() && self.needed().covered < self.shared.pipeline.visible() {
            return true;
        }
        self.debt.is_due(self.shared.log.stats().written_bytes, self.due_bytes(space))
    }

    /// Whether opening has to write a checkpoint before the database serves: the debt is overdue, or the disk is nearly
    /// full and a checkpoint may free segments.
    pub fn is_overdue(&self, space: &Space, lacks_reserve: bool) -> bool {
        let Debt { lives, .. } = self.debt;
        let covered = self.superblock.current().covered;
        let may_free = covered < self.shared.pipeline.visible() || lives > 1 || (lives > 0 && lacks_reserve);
        self.debt.is_overdue(self.due_bytes(space)) || (self.shared.room.is_short() && may_free)
    }

    fn due_bytes(&self, space: &Space) -> u64 {
        due_bytes(self.shared.log_bytes_max, space.accounts.live_bytes())
    }

    /// Writes a checkpoint: afterwards opening replays only the commits since it began.
    pub fn checkpoint(&mut self, merger: &Merger, space: &mut Space) -> Result<CheckpointReport> {
        let start_ns = self.shared.env.clock().monotonic_ns();
        let outcome = self.write(merger, space);
        self.publish(space);
        let report = outcome?;
        let ns = self.shared.env.clock().monotonic_ns().saturating_sub(start_ns);
        self.shared.progress.checkpoints.done(ns);
        let CheckpointReport { covered, records_written, segments_freed } = report;
        let path = self.shared.files.path.display();
        let took_ms = ns / 1_000_000;
        tracing::info!(%path, %covered, records_written, segments_freed, took_ms, "wrote a checkpoint");
        Ok(report)
    }

    fn write(&mut self, merger: &Merger, space: &mut Space) -> Result<CheckpointReport> {
        let (at, tables) = self.begin()?;
        let is_unchanged = self.is_unchanged(at.covered);
        if self.shared.room.must_stay_empty() {
            if !is_unchanged {
                let what = format!("{} has no room for a checkpoint", self.shared.files.path.display());
                return Err(Error::NoSpace { what });
            }
            // This checkpoint would only move the replay position.
            self.debt.pay(at.log_bytes);
            return Ok(CheckpointReport { covered: at.covered, records_written: 0, segments_freed: 0 });
        }
        let records_written = if is_unchanged {
            let checkpoint = self.superblock.current().checkpoint;
            self.write_superblock(checkpoint, &at)?;
            space.accounts.install_again();
            0
        } else {
            let (record, records_written) = self.write_tables(tables, &at, merger, space)?;
            let (checkpoint, segments) = record.write(&self.shared.log)?;
            self.shared.log.sync_bulk().or_error()?;
            self.write_superblock(checkpoint, &at)?;
            space.accounts.install(segments);
            self.drop_range_deletes(at.covered);
            records_written
        };
        self.debt.pay(at.log_bytes);
        let segments_freed = space.retire(self.needed(), at.bulk_before);
        Ok(CheckpointReport { covered: at.covered, records_written, segments_freed })
    }

    /// Chooses the boundary, freezes all memtables at it, and waits for the horizon to pass it (INV-CKPT-1).
    fn begin(&self) -> Result<(Boundary, Vec<Arc<TableState>>)> {
        let Shared { log, pipeline, tables, .. } = &self.shared;
        let log_bytes = log.stats().written_bytes;
        let bulk_before = log.bulk_position();
        // A table that is created later holds nothing at or below the boundary, and replay creates it again: it waits
        // for the next checkpoint.
        let (covered, tables) = log.at_reserved(|csn| {
            let tables = tables.all();
            for table in &tables {
                table.index.freeze(csn);
                table.index.range_deletes().keep_at(csn);
            }
            (csn, tables)
        });
        self.shared.hooks.reached("checkpoint boundary");
        pipeline.wait_horizon(covered)?;
        let replay = log.replay_point(covered);
        Ok((Boundary { covered, replay, log_bytes, bulk_before }, tables))
    }

    /// Whether a checkpoint would write what the last one wrote. It then only moves the replay position, so that the
    /// segments of former epochs become free.
    fn is_unchanged(&self, boundary: Csn) -> bool {
        let is_untouched =
            |table: &Arc<TableState>| table.dropped().is_none() && table.index.range_deletes().is_empty();
        self.superblock.current().covered == boundary
            && self.purges.is_empty()
            && self.shared.tables.all().iter().all(is_untouched)
    }

    /// Merges, purges and writes out every table; returns the record, and how many node records were written.
    fn write_tables(
        &mut self,
        tables: Vec<Arc<TableState>>,
        at: &Boundary,
        merger: &Merger,
        space: &mut Space,
    ) -> Result<(CheckpointRecord, u64)> {
        let mut record = CheckpointRecord {
            covered: at.covered,
            next_table_id: self.shared.tables.next_id().0,
            tables: BTreeMap::new(),
        };
        let mut records_written = 0;
        self.purge_dropped(at.covered, space);
        let kept: BTreeSet<TableId> = self.shared.tables.all().iter().map(|table| table.id).collect();
        for table in tables.into_iter().filter(|table| kept.contains(&table.id)) {
            let reads = &*self.shared.reads;
            merger.merge(&table, reads, at.covered)?;
            self.purges.purge(&table, &reads.prune_rules(&table), at.covered)?;
            records_written += self.write_out(&table, space)?;
            let written = space.accounts.written(table.id);
            // A snapshot still sees the table, so its values stay in the accounts; no recovery needs its root.
            if table.dropped().is_some_and(|csn| csn <= at.covered) {
                continue;
            }
            let table_record = TableRecord {
                root: written.root,
                range_deletes: table.index.range_deletes().list(Csn::ZERO, at.covered),
                accounts: written.live.clone(),
            };
            record.tables.insert(table.id, table_record);
        }
        Ok((record, records_written))
    }

    /// Writes out a table's tree in steps, between which it is merged into (INV-IDX-11); returns how many node records
    /// were written.
    fn write_out(&self, table: &TableState, space: &mut Space) -> Result<u64> {
        let tree = table.index.base();
        let mut pass = tree.begin_write_out();
        while !pass.is_done() {
            let changes = tree.write_some(&mut pass, STEP_BYTES).or_error()?;
            space.accounts.change(table.id, &changes);
            self.shared.hooks.reached("checkpoint step");
        }
        let report = tree.finish_write_out(pass).or_error()?;
        space.accounts.change(table.id, &report.accounts);
        space.accounts.wrote(table.id, report.root);
        Ok(report.records_written.iter().sum())
    }

    /// Drops the range tombstones that an earlier checkpoint purged, unless a snapshot is older than `boundary`
    /// (INV-CKPT-3).
    fn drop_range_deletes(&mut self, boundary: Csn) {
        let (snapshots, _) = self.shared.reads.snapshots.open();
        if snapshots.first().is_some_and(|&oldest| oldest < boundary) {
            return;
        }
        for table in self.shared.tables.all() {
            self.purges.drop_purged(&table, boundary);
        }
    }

    fn purge_dropped(&mut self, boundary: Csn, space: &mut Space) {
        let (snapshots, _) = self.shared.reads.snapshots.open();
        let oldest = snapshots.first().copied().unwrap_or(Csn::MAX);
        let is_gone =
            |table: &TableState| table.dropped().is_some_and(|csn| csn <= boundary && csn <= oldest);
        for table in self.shared.tables.purge(is_gone) {
            table.index.end_merging();
            space.accounts.drop_table(table.id);
            self.purges.forget(table.id);
        }
    }

    /// Notes in the superblock where the closed log ends: the next open need not search beyond.
    pub fn note_clean_close(&mut self, space: &mut Space) -> Result<()> {
        let Shared { log, clock, reads, .. } = &self.shared;
        let end = log.watermarks();
        let next = Superblock {
            epoch: log.epoch(),
            durable: end.durable_csn,
            clock_ms: reads.now_ms(),
            clock_step: clock.step(),
            closed_at: end.written,
            ..self.superblock.current().clone()
        };
        self.put_superblock(next)?;
        space.accounts.install_again();
        space.retire(self.needed(), self.shared.log.bulk_position());
        space.give_back()
    }

    fn write_superblock(&mut self, checkpoint: Lsn, at: &Boundary) -> Result<()> {
        let Shared { log, clock, reads, .. } = &self.shared;
        let next = Superblock {
            epoch: log.epoch(),
            checkpoint,
            replay: at.replay,
            covered: at.covered,
            durable: log.durable_csn(),
            clock_ms: reads.now_ms(),
            clock_step: clock.step(),
            closed_at: Lsn::NULL,
            ..self.superblock.current().clone()
        };
        self.put_superblock(next)
    }

    /// Writes the superblock, unless another process has written it. Then the log is poisoned: a commit acknowledged
    /// from now on would be missing in the database that the other process continues (INV-DIR-3).
    fn put_superblock(&mut self, next: Superblock) -> Result<()> {
        let Shared { files, log, pipeline, .. } = &self.shared;
        if let Some(epoch) = self.superblock.foreign_epoch()? {
            tracing::error!(path = %files.path.display(), %epoch, "another process has begun an epoch in this database");
            log.poison(
                "another process has opened this database and begun an epoch of its own, in which commits that were \
                 acknowledged here since are not",
            );
            files.check_open()?;
            return pipeline.check_log();
        }
        self.superblock.write(next)
    }
}
