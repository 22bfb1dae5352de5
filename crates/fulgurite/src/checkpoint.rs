//! Merging and checkpoints move data from the memtables to disk. A commit waits for them in one case: while a table
//! that it writes has more than [`MEMTABLES_MAX`] memtables. That bounds memory.
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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use fulgurite_index::range_delete::{RangeDelete, Readers};
use fulgurite_index::{Base, PruneRules, WriteOutReport};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId};

use crate::catalog::TableState;
use crate::checkpoint_record::{Accounts, CheckpointRecord, TableRecord};
use crate::commit::quiet::is_in_callback;
use crate::debt::Debt;
use crate::engine::Engine;
use crate::error::OrError;
use crate::maintenance::Progress;
use crate::space::Space;
use crate::superblock::{Superblock, SuperblockFile};
use crate::{Error, Result};

/// What merging and checkpoints own; guarded by [`Engine::maintenance`].
pub(crate) struct Maintenance {
    pub superblock: SuperblockFile,
    pub space: Space,
    /// The log that no checkpoint covers.
    pub debt: Debt,
    /// The purges of range tombstones by earlier checkpoints, by table, ascending.
    swept: BTreeMap<TableId, Vec<Swept>>,
    /// Segments that are being retired: dead, but not freed yet.
    retiring: BTreeSet<u32>,
}

/// The checkpoint that covers `covered` has purged every version that range tombstones at or below `up_to` hide.
struct Swept {
    up_to: Csn,
    covered: Csn,
}

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

impl Maintenance {
    pub fn new(superblock: SuperblockFile, space: Space, debt: Debt) -> Maintenance {
        Maintenance { superblock, space, debt, swept: BTreeMap::new(), retiring: BTreeSet::new() }
    }

    /// Whether a segment is dead, but not freed yet.
    pub fn is_retiring(&self, segment: u32) -> bool {
        self.retiring.contains(&segment)
    }

    /// The progress of maintenance as of opening.
    pub fn progress(&self) -> Progress {
        let progress = Progress::default();
        self.tell(&progress);
        progress
    }

    /// Publishes the last checkpoint for readers without the lock.
    pub fn tell(&self, progress: &Progress) {
        progress.covered.store(self.superblock.current().covered.0, Ordering::Release);
        progress.live_bytes.store(self.space.live_bytes(), Ordering::Release);
    }
}

impl Engine {
    /// The CSNs at which tables are read from now on. The CSN at which later reads begin is loaded before the snapshot
    /// slots (INV-TXN-1).
    pub fn readers(&self) -> Readers {
        let from = self.pipeline.read_csn();
        let (snapshots, _) = self.snapshots.open();
        Readers { from, snapshots }
    }

    /// What may be pruned now. The horizon, the time and the deadlines are read, in this order, before the snapshot
    /// slots (INV-TXN-1): a snapshot that has no slot yet then begins at or after that time (INV-TIME-3). A single
    /// operation has no slot: for it, `pruned_at` is raised to the CSN at which reads now begin, before anything is
    /// pruned (INV-TXN-14).
    fn prune_rules(&self, table: &TableState) -> PruneRules {
        let horizon = self.pipeline.horizon();
        let confirmed_ms = self.clock.confirmed_ms(self.env.clock());
        let confirmed_ms = self.deadlines.lock(self.pipeline.read_csn()).before(confirmed_ms, Csn::ZERO);
        self.pruned_at.fetch_max(self.pipeline.read_csn().0, Ordering::SeqCst);
        let (snapshots, now_ms_min) = self.snapshots.open();
        PruneRules {
            horizon,
            snapshots,
            expired_until_ms: now_ms_min.map_or(confirmed_ms, |now_ms| now_ms.min(confirmed_ms)),
            range_deletes: table.index.range_deletes().clone(),
        }
    }

    /// Freezes a table's mutable memtable if it has grown. Committers do it, too: the merger may be busy.
    ///
    /// Only a checkpoint freezes the catalog's memtable, so that the catalog's tree on disk is the catalog at the
    /// boundary and nothing later. Replay applies the later definitions to it by name, and names may have moved since.
    pub fn freeze_if_grown(&self, table: &TableState) {
        if table.id == TableId::CATALOG {
            return;
        }
        let max = self.options.memtable_bytes_max as u64;
        if table.index.memtables().newest_bytes() >= max {
            self.log.at_reserved(|csn| {
                if table.index.memtables().newest_bytes() >= max {
                    table.index.freeze(csn);
                }
            });
        }
    }

    /// Step 0 for the memtables: a committer waits while the table has more than [`MEMTABLES_MAX`], which bounds
    /// memory.
    pub fn wait_for_merging(&self, table: &TableState) -> Result<()> {
        while table.index.memtables().count() > MEMTABLES_MAX {
            self.check_writable()?;
            if table.dropped().is_some() {
                // The merger may have given the table up, and validation refuses the commit.
                return Ok(());
            }
            if !self.options.background {
                return self.merge_table(table);
            }
            if is_in_callback() {
                return self.merge_in_callback(table);
            }
            if table.merging_failed.load(Ordering::Acquire) {
                // The merger would not end this wait; a merge here returns the reason to the caller.
                self.merge_table(table)?;
            }
            self.wakeups.wake();
            let mut merged = self.merged.0.lock();
            if table.index.memtables().count() > MEMTABLES_MAX {
                self.merged.1.wait_for(&mut merged, MERGING_LOOK);
            }
        }
        Ok(())
    }

    /// Merges the immutable memtables at or below the horizon, which nothing can undo; true if there was one. If a
    /// table cannot be merged, the others still are.
    pub fn merge_all(&self) -> Result<bool> {
        let _quiet = self.pipeline.quiet();
        let _maintenance = self.maintenance.lock();
        self.check_open()?;
        let mut outcome = Ok(false);
        for table in self.catalog.all() {
            outcome = match (outcome, self.merge_immutable(&table)) {
                (Ok(before), Ok(merged)) => Ok(before | merged),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        outcome
    }

    /// A callback must not wait for a thread of the database: it may run on the merger, or on the log's flusher.
    fn merge_in_callback(&self, table: &TableState) -> Result<()> {
        let boundary = table.index.memtables().oldest_immutable().map(|memtable| memtable.boundary());
        if let Some(boundary) = boundary {
            self.pipeline.wait_horizon(boundary)?;
        }
        self.merge_table(table)
    }

    fn merge_table(&self, table: &TableState) -> Result<()> {
        let _quiet = self.pipeline.quiet();
        let _maintenance = self.maintenance.lock();
        self.check_open()?;
        self.merge_immutable(table).map(|_| ())
    }

    fn merge_immutable(&self, table: &TableState) -> Result<bool> {
        let outcome = self.try_merge_immutable(table);
        table.merging_failed.store(outcome.is_err(), Ordering::Release);
        outcome
    }

    fn try_merge_immutable(&self, table: &TableState) -> Result<bool> {
        let mut merged = false;
        while let Some(memtable) = table.index.memtables().oldest_immutable() {
            if memtable.boundary() > self.pipeline.horizon() {
                self.pipeline.request_horizon(memtable.boundary())?;
                break;
            }
            drop(memtable);
            let start_ns = self.env.clock().monotonic_ns();
            if table.index.merge_oldest(&self.prune_rules(table)).or_error()? {
                merged = true;
                self.progress.merges.done(self.env.clock().monotonic_ns().saturating_sub(start_ns));
            }
            drop(self.merged.0.lock());
            self.merged.1.notify_all();
        }
        Ok(merged)
    }

    /// Writes a checkpoint: afterwards opening replays only the commits since it began.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        let _quiet = self.pipeline.quiet();
        let mut maintenance = self.maintenance.lock();
        self.check_open()?;
        let start_ns = self.env.clock().monotonic_ns();
        let report = self.checkpoint_locked(&mut maintenance);
        maintenance.tell(&self.progress);
        if let Ok(CheckpointReport { covered, records_written, segments_freed }) = report {
            // The merger frees the segments that this checkpoint retired. A failed checkpoint must not wake it: if the
            // merger itself wrote it, it would retry without a pause.
            self.wakeups.wake();
            let ns = self.env.clock().monotonic_ns().saturating_sub(start_ns);
            self.progress.checkpoints.done(ns);
            let (path, took_ms) = (self.dir.display(), ns / 1_000_000);
            tracing::info!(%path, %covered, records_written, segments_freed, took_ms, "wrote a checkpoint");
        }
        report
    }

    fn checkpoint_locked(&self, maintenance: &mut Maintenance) -> Result<CheckpointReport> {
        let log_bytes = self.log.stats().written_bytes;
        let bulk_before = self.log.bulk_position();
        // A table that is created later holds nothing at or below the boundary, and replay creates it again: it waits
        // for the next checkpoint.
        let (boundary, tables) = self.log.at_reserved(|csn| {
            let tables = self.catalog.all();
            for table in &tables {
                table.index.freeze(csn);
                table.index.range_deletes().keep_at(csn);
            }
            (csn, tables)
        });
        self.hooks.reached("checkpoint boundary");
        self.pipeline.wait_horizon(boundary)?;
        let replay = self.log.replay_point(boundary);
        let is_unchanged = self.is_unchanged(maintenance, boundary);
        if self.must_stay_empty() {
            if !is_unchanged {
                let what = format!("{} has no room for a checkpoint", self.dir.display());
                return Err(Error::NoSpace { what });
            }
            // This checkpoint would only move the replay position.
            maintenance.debt.pay(log_bytes);
            return Ok(CheckpointReport { covered: boundary, records_written: 0, segments_freed: 0 });
        }
        if is_unchanged {
            return self.checkpoint_again(maintenance, replay, boundary, bulk_before, log_bytes);
        }
        let mut record = CheckpointRecord {
            covered: boundary,
            next_table_id: self.catalog.next_id().0,
            tables: BTreeMap::new(),
        };
        let mut records_written = 0;
        self.purge_dropped(maintenance, boundary);
        let kept: BTreeSet<TableId> = self.catalog.all().iter().map(|table| table.id).collect();
        for table in tables.into_iter().filter(|table| kept.contains(&table.id)) {
            let written = self.checkpoint_table(&table, maintenance, boundary)?;
            records_written += written.records_written.iter().sum::<u64>();
            maintenance.space.change(table.id, &written.accounts);
            // A snapshot still sees the table, so its values stay in the accounts; no recovery needs its root.
            if table.dropped().is_some_and(|csn| csn <= boundary) {
                continue;
            }
            let table_record = TableRecord {
                root: written.root,
                range_deletes: table.index.range_deletes().list(Csn::ZERO, boundary),
                accounts: maintenance.space.of_table(table.id),
            };
            record.tables.insert(table.id, table_record);
        }
        let (index, segments) = record.write(&self.log)?;
        self.log.sync_bulk().or_error()?;
        self.write_superblock(&mut maintenance.superblock, index, replay, boundary)?;
        maintenance.space.install(segments);
        maintenance.debt.pay(log_bytes);
        self.drop_range_deletes(maintenance, boundary);
        let segments_freed = self.free_segments(maintenance, bulk_before)?;
        Ok(CheckpointReport { covered: boundary, records_written, segments_freed })
    }

    /// Whether a checkpoint would write what the last one wrote.
    fn is_unchanged(&self, maintenance: &Maintenance, boundary: Csn) -> bool {
        maintenance.superblock.current().covered == boundary
            && maintenance.swept.values().all(Vec::is_empty)
            && self
                .catalog
                .all()
                .iter()
                .all(|table| table.dropped().is_none() && table.index.range_deletes().is_empty())
    }

    /// Moves the replay position of an unchanged checkpoint, so that the segments of former epochs become free.
    fn checkpoint_again(
        &self,
        maintenance: &mut Maintenance,
        replay: Lsn,
        boundary: Csn,
        bulk_before: u32,
        log_bytes: u64,
    ) -> Result<CheckpointReport> {
        let checkpoint = maintenance.superblock.current().checkpoint;
        self.write_superblock(&mut maintenance.superblock, checkpoint, replay, boundary)?;
        maintenance.debt.pay(log_bytes);
        maintenance.space.install_again();
        let segments_freed = self.free_segments(maintenance, bulk_before)?;
        Ok(CheckpointReport { covered: boundary, records_written: 0, segments_freed })
    }

    /// Merges, purges the versions that range tombstones hide, and writes the tree out.
    fn checkpoint_table(
        &self,
        table: &TableState,
        maintenance: &mut Maintenance,
        boundary: Csn,
    ) -> Result<WriteOutReport> {
        self.merge_immutable(table)?;
        let rules = self.prune_rules(table);
        let oldest = rules.snapshots.first().copied().unwrap_or(boundary).min(boundary);
        let swept = maintenance.swept.entry(table.id).or_default();
        let swept_up_to = swept.last().map_or(Csn::ZERO, |swept| swept.up_to);
        let fresh = table.index.range_deletes().list(swept_up_to, oldest);
        let written = table
            .index
            .with_maintenance(|tree| {
                for range in unions(&fresh) {
                    tree.purge(range, &rules)?;
                }
                tree.write_out()
            })
            .or_error()?;
        if !fresh.is_empty() {
            swept.push(Swept { up_to: oldest, covered: boundary });
        }
        Ok(written)
    }

    /// Drops the range tombstones that an earlier checkpoint purged, unless a snapshot is older than `boundary`
    /// (INV-CKPT-3).
    fn drop_range_deletes(&self, maintenance: &mut Maintenance, boundary: Csn) {
        let (snapshots, _) = self.snapshots.open();
        if snapshots.first().is_some_and(|&oldest| oldest < boundary) {
            return;
        }
        for table in self.catalog.all() {
            let Some(swept) = maintenance.swept.get_mut(&table.id) else { continue };
            let earlier = swept.partition_point(|swept| swept.covered < boundary);
            if let Some(newest) = swept.drain(..earlier).next_back() {
                table.index.range_deletes().drop_up_to(newest.up_to);
            }
        }
    }

    fn purge_dropped(&self, maintenance: &mut Maintenance, boundary: Csn) {
        let (snapshots, _) = self.snapshots.open();
        let oldest = snapshots.first().copied().unwrap_or(Csn::MAX);
        let gone =
            self.catalog.purge(|table| table.dropped().is_some_and(|csn| csn <= boundary && csn <= oldest));
        for table in gone {
            maintenance.space.drop_table(table.id);
            maintenance.swept.remove(&table.id);
        }
    }

    /// Notes in the superblock where the closed log ends: the next open need not search beyond.
    pub fn note_clean_close(&self) -> Result<()> {
        let mut maintenance = self.maintenance.lock();
        let end = self.log.watermarks();
        let current = maintenance.superblock.current().clone();
        self.put_superblock(
            &mut maintenance.superblock,
            Superblock {
                epoch: self.log.epoch(),
                durable: end.durable_csn,
                clock_ms: self.now_ms(),
                clock_step: self.clock.step(),
                closed_at: end.written,
                ..current
            },
        )?;
        maintenance.space.install_again();
        let bulk_before = self.log.bulk_position();
        self.free_segments(&mut maintenance, bulk_before)?;
        self.give_retired_back(&mut maintenance)
    }

    /// Writes the superblock, unless another process has written it. Then the log is poisoned: a commit acknowledged
    /// from now on would be missing in the database that the other process continues (INV-DIR-3).
    fn put_superblock(&self, file: &mut SuperblockFile, next: Superblock) -> Result<()> {
        if let Some(epoch) = file.foreign_epoch()? {
            tracing::error!(path = %self.dir.display(), %epoch, "another process has begun an epoch in this database");
            self.log.poison(
                "another process has opened this database and begun an epoch of its own, in which commits that were \
                 acknowledged here since are not",
            );
            return self.check_writable();
        }
        file.write(next)
    }

    fn write_superblock(
        &self,
        file: &mut SuperblockFile,
        checkpoint: Lsn,
        replay: Lsn,
        covered: Csn,
    ) -> Result<()> {
        let current = file.current().clone();
        self.put_superblock(
            file,
            Superblock {
                epoch: self.log.epoch(),
                checkpoint,
                replay,
                covered,
                durable: self.log.durable_csn(),
                clock_ms: self.now_ms(),
                clock_step: self.clock.step(),
                closed_at: Lsn::NULL,
                ..current
            },
        )
    }

    /// Frees the segments that nothing needs; returns how many.
    fn free_segments(&self, maintenance: &mut Maintenance, bulk_before: u32) -> Result<u64> {
        let dead = self.dead_segments(maintenance, bulk_before);
        let freed = dead.len() as u64;
        for number in dead {
            let retired = self.retired.clone();
            // A read that began before may still hold an LSN in it.
            let process = self.process;
            crossbeam_epoch::pin().defer(move || {
                if process.is_current() {
                    retired.lock().push(number);
                }
            });
        }
        crossbeam_epoch::pin().flush();
        Ok(freed)
    }

    /// Retires the segments that nothing needs. For opening: there is no reader yet to wait for.
    pub fn retire_dead_segments(&self, maintenance: &mut Maintenance) {
        let dead = self.dead_segments(maintenance, self.log.bulk_position());
        self.retired.lock().extend(dead);
    }

    /// The segments that nothing needs and that were not found before.
    fn dead_segments(&self, maintenance: &mut Maintenance, bulk_before: u32) -> Vec<u32> {
        let slots = || maintenance.superblock.slots();
        let replay = slots().map(|slot| slot.replay).min().expect("there is a current slot");
        let covered = slots().map(|slot| slot.covered).min().expect("there is a current slot");
        self.log.drop_before(covered);
        self.pins.release_up_to(covered);
        let segments = self.log.segments();
        maintenance.retiring.retain(|number| segments.iter().any(|segment| segment.number == *number));
        let (space, retiring) = (&maintenance.space, &mut maintenance.retiring);
        let dead = segments.into_iter().filter(|segment| {
            space.may_free(segment, replay, bulk_before, &self.pins)
                && !self.checks.hold(segment.number)
                && retiring.insert(segment.number)
        });
        dead.map(|segment| segment.number).collect()
    }

    /// Gives the retired segments that no reader uses back to the log; true if some are left. One that cannot be
    /// removed is tried again later.
    pub fn free_retired(&self) -> Result<bool> {
        let mut maintenance = self.maintenance.lock();
        self.check_open()?;
        self.give_retired_back(&mut maintenance)?;
        Ok(!maintenance.retiring.is_empty())
    }

    fn give_retired_back(&self, maintenance: &mut Maintenance) -> Result<()> {
        crossbeam_epoch::pin().flush();
        let numbers = std::mem::take(&mut *self.retired.lock());
        let mut outcome = Ok(());
        for number in numbers {
            match self.log.free_segment(number) {
                Ok(()) => {
                    maintenance.retiring.remove(&number);
                }
                Err(error) => {
                    self.retired.lock().push(number);
                    outcome = Err(Error::of_log(error));
                }
            }
        }
        outcome
    }
}

/// The union of the ranges, as disjoint ranges: keys that many range deletes share are purged once.
fn unions(ranges: &[RangeDelete]) -> Vec<KeySpan<&[u8]>> {
    let mut sorted: Vec<KeySpan<&[u8]>> = ranges.iter().map(|range| range.keys.borrowed()).collect();
    sorted.sort_unstable_by_key(|span| span.start);
    let mut apart: Vec<KeySpan<&[u8]>> = Vec::new();
    for span in sorted {
        match apart.last_mut() {
            Some(last) if last.touches(&span) => *last = last.union(span),
            _ => apart.push(span),
        }
    }
    apart
}

/// While a table has more memtables than this, the mutable one included, its committers wait.
const MEMTABLES_MAX: usize = 8;

/// How long a waiting committer sleeps before it checks again whether the log has failed.
const MERGING_LOOK: Duration = Duration::from_millis(20);

/// The accounts of a checkpoint record.
pub(crate) fn accounts_of(record: &CheckpointRecord) -> Accounts {
    record.tables.iter().map(|(id, table)| (*id, table.accounts.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_are_apart() {
        let range = |csn, start: &str, end: Option<&str>| RangeDelete {
            csn: Csn(csn),
            keys: KeySpan::new(start.as_bytes(), end.map(str::as_bytes)).owned(),
        };
        let ranges = [
            range(1, "f", Some("h")),
            range(2, "a", Some("c")),
            range(3, "b", Some("d")),
            range(4, "d", Some("e")),
            range(5, "b", Some("c")),
            range(6, "x", None),
            range(7, "y", Some("z")),
        ];
        let text: Vec<_> = unions(&ranges)
            .into_iter()
            .map(|span| {
                [span.start, span.end.unwrap_or(b"")].map(|key| String::from_utf8_lossy(key).into_owned())
            })
            .collect();
        assert_eq!(text, [["a", "e"], ["f", "h"], ["x", ""]]);
        assert!(unions(&[]).is_empty());
    }
}
