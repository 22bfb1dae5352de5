//! The second part of a checkpoint where the room is short: moves live nodes out of segments that are nearly dead.
//!
//! It comes after the trees were written out, when the accounts tell exactly which bytes are live. The nodes that it moves become
//! dirty, and the trees are written out once more: only these nodes, and those above them. They fit, because it moves no
//! more than the room has beside all that is needed (INV-SPACE-3).
//!
//! While there is plenty of room, nodes leave the segments of which little is live before the trees are written out. Otherwise a
//! segment of a tree that changes at random stays for its last records: for full records of leaves whose changes alone were
//! written since, and for records of leaves that do not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fulgurite_index::btree::table_of_node;
use fulgurite_index::{Base, LoadFor};
use fulgurite_log::{BulkBoundary, ScanItem};
use fulgurite_types::TableId;
use fulgurite_types::sync::yield_now;

use super::pacing::Pacer;
use super::{Boundary, Checkpointer};
use crate::Result;
use crate::catalog::TableState;
use crate::error::OrError;
use crate::space::cleaning::{choose, to_be_left};

/// Segments that were cleaned and are live all the same: values are in them, which do not move.
pub(super) type Unmovable = BTreeSet<u32>;

/// What leaves segments of which little is live.
#[derive(Default)]
pub(super) struct Leaving {
    segments: BTreeSet<u32>,
    /// The tables with live bytes there.
    tables: BTreeSet<TableId>,
    /// Those of them that leave although they have nothing to write: each segment asks them once, for what is still there
    /// then are values, which do not move.
    pub idle: BTreeSet<TableId>,
}

/// How many bytes of leaves leave segments in one hold of the tree's lock.
const LEAVE_STEP_BYTES: usize = 256 << 10;

impl Checkpointer {
    /// The segments to clean.
    pub(super) fn segments_to_clean(&self, boundary: &BulkBoundary) -> Vec<u32> {
        let room = &self.shared.room;
        if !room.is_short() {
            return Vec::new();
        }
        let (allowance, free, wanted) = room.for_cleaning();
        let space = self.shared.space.lock();
        let mut segments = space.sparse_segments(boundary);
        let free = free + space.freeable_bytes();
        drop(space);
        segments.retain(|segment| !self.unmovable.contains(&segment.number));
        choose(segments, allowance, free, wanted)
    }

    /// Finds what leaves segments: nothing, unless there is room for all trees once more. The need does not count on these
    /// nodes to become dirty (INV-SPACE-3).
    pub(super) fn find_leaving(&mut self, boundary: &BulkBoundary) -> Leaving {
        if !self.shared.room.is_plenty() {
            self.left.clear();
            return Leaving::default();
        }
        let space = self.shared.space.lock();
        let segments = to_be_left(&space.sparse_segments(boundary));
        if segments.is_empty() {
            // No walk over the accounts of all tables.
            self.left.clear();
            return Leaving::default();
        }
        let fresh = segments.difference(&self.left).copied().collect();
        let (tables, idle) = (space.accounts.tables_in(&segments), space.accounts.tables_in(&fresh));
        drop(space);
        self.left.clone_from(&segments);
        Leaving { segments, tables, idle }
    }

    /// Makes the nodes of a table dirty that leave segments, while there is room enough.
    pub(super) fn leave(&self, table: &TableState, leaving: &Leaving) {
        if !leaving.tables.contains(&table.id) {
            return;
        }
        let tree = table.index.base();
        let mut from = Some(Vec::new());
        while let Some(key) = from.take_if(|_| self.shared.room.is_plenty()) {
            from = tree.leave_some(&leaving.segments, &key, LEAVE_STEP_BYTES);
            // It loads leaves, and eviction has to write them.
            tree.memory().wait_for_room(LoadFor::Maintenance);
            yield_now();
        }
    }

    /// Moves the live nodes out of segments, and writes the trees that changed out again; returns how many node records
    /// were written. What fails of it leaves the checkpoint as it was before: segments stay longer.
    pub(super) fn clean(&mut self, at: &Boundary, pacer: &mut Pacer<'_>) -> u64 {
        _ = self.shared.room.look();
        let segments = self.segments_to_clean(&at.bulk);
        if segments.is_empty() {
            return 0;
        }
        let mut changed = BTreeMap::new();
        let mut moved = Vec::new();
        let (mut allowance, _, _) = self.shared.room.for_cleaning();
        for number in &segments {
            match self.move_nodes(*number, &mut allowance, &mut changed) {
                Ok(true) => moved.push(*number),
                Ok(false) => break,
                Err(error) => tracing::debug!(%error, segment = *number, "a segment could not be cleaned"),
            }
        }
        let mut records_written = 0;
        for table in changed.values() {
            self.chain.note(table.id);
            pacer.begin_table(0, table.index.base().dirty_bytes());
            match self.write_out(table, pacer) {
                Ok(records) => records_written += records,
                Err(error) => {
                    tracing::debug!(%error, "moved nodes could not be written out");
                    continue;
                }
            }
        }
        let space = self.shared.space.lock();
        self.unmovable.extend(moved);
        self.unmovable.retain(|number| space.accounts.live_now(*number) > 0);
        records_written
    }

    /// Makes the live nodes of a segment dirty, as long as their records fit into `allowance`, of which they are
    /// taken. Returns whether that was all of them.
    fn move_nodes(
        &self,
        number: u32,
        allowance: &mut u64,
        changed: &mut BTreeMap<TableId, Arc<TableState>>,
    ) -> Result<bool> {
        let scan = self.shared.log.scan_segment(number).or_error()?;
        for item in scan.items {
            let ScanItem::Bulk { header, body } = item else { continue };
            let table = table_of_node(&body).ok().filter(|_| header.kind.is_node());
            // A dropped table that was purged has nodes in memory as long as a handle, but no live record.
            let Some(table) = table.and_then(|id| self.shared.tables.by_id_or_dropped(id)) else {
                continue;
            };
            let memory = self.shared.tables.memory();
            if *allowance == 0 || memory.is_exceeded() {
                return Ok(false);
            }
            if let Some(bytes) = table.index.base().rewrite_if_live(header.lsn, &body).or_error()? {
                changed.insert(table.id, table);
                *allowance = allowance.saturating_sub(bytes);
                // It loads leaves, and eviction has to write them.
                memory.wait_for_room(LoadFor::Maintenance);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_env::SimEnv;
    use fulgurite_log::BulkKind;

    use super::*;
    use crate::space::budget::Kind;
    use crate::space::cleaning::Wanted;
    use crate::space::need::WriteCost;
    use crate::{Database, Options};

    /// A database of small leaves whose oldest segments have few live nodes: it was overwritten at random.
    fn with_sparse_segments(env: Arc<SimEnv>) -> Database {
        let options = Options {
            leaf_bytes: 512,
            inline_bytes_max: 200,
            memtable_bytes_max: Some(64 << 10),
            checkpoint_log_bytes: 1 << 20,
            background: false,
            ..Options::default()
        };
        let db = Database::open_with(env, "/data", options, |_| {}).unwrap();
        let table = db.table("t").unwrap();
        let rows = 20_000u64;
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let put = |n: u64, fill: u8| _ = table.put(key(n), [fill; 100]).unwrap();
        (0..rows).for_each(|n| put(n, 0));
        for round in 1..10 {
            db.checkpoint().unwrap();
            while db.maintain().unwrap() {}
            let some = (0..rows).step_by(20).map(|n| (n * n * round + n) % rows);
            some.for_each(|n| put(n, round as u8));
        }
        db.checkpoint().unwrap();
        db
    }

    /// What a commit that waits is promised has to come: an idle checkpoint does not free the segment of the last one's record.
    #[test]
    fn the_segment_of_the_record_is_not_called_freeable() {
        let db = with_sparse_segments(SimEnv::new(1));
        let engine = db.engine();
        // A read that goes on keeps the segments that die from now on.
        let _read = engine.disk_reads.begin();
        let table = db.table("t").unwrap();
        (0..20_000_u64).for_each(|n| _ = table.put(n.to_be_bytes(), [7; 100]).unwrap());
        table.delete_range(..).unwrap();
        (0..3).for_each(|_| _ = db.checkpoint().unwrap());
        let mut space = engine.space.lock();
        let freeable = space.freeable_bytes();
        let segments = engine.log.written_segments();
        let dead = segments.iter().find(|segment| space.is_retiring(segment.number)).unwrap();
        space.accounts.install(vec![dead.number]);
        assert_eq!(space.freeable_bytes(), freeable - u64::from(dead.bytes));
    }

    /// While a commit waits, moved nodes make the trees larger, and with them its cost: by the cost of when it began to wait,
    /// cleaning would end a little too early, and the commit would be refused.
    #[test]
    fn cleaning_makes_as_much_room_as_a_waiting_commit_needs_by_now() {
        let db = with_sparse_segments(SimEnv::new(1));
        let (engine, table) = (db.engine(), db.table("t").unwrap());
        // So many rows may be in all leaves.
        let cost = WriteCost { entries: 1 << 20, memory: 1000, log_bytes: 1000 };
        engine.room.look().unwrap();
        let waiter = engine.room.begin_wait(Kind::Puts, &cost);
        let wanted = || {
            engine.room.look().unwrap();
            let ((_, _, wanted), kept) = (engine.room.for_cleaning(), engine.room.figures().kept);
            wanted.puts - kept
        };
        let at_first = wanted();
        for n in 0..1_000u64 {
            table.put(n.to_be_bytes(), [1; 100]).unwrap();
        }
        db.checkpoint().unwrap();
        assert!(wanted() >= at_first + 100_000, "{} after {at_first}", wanted());
        // Of two that wait the higher one counts.
        let small = engine.room.begin_wait(Kind::Puts, &WriteCost { entries: 1, memory: 1, log_bytes: 1 });
        assert!(wanted() >= at_first + 100_000);
        drop(waiter);
        assert!(wanted() >= at_first + 100_000, "until none waits");
        drop(small);
        assert_eq!(engine.room.for_cleaning().2, Wanted::default());
    }

    /// Nodes that left segments and could not be written out are dirty although no commit came since the checkpoint. Eviction
    /// writes them, and no checkpoint counts their records if none is written anew: their segments were freed.
    #[test]
    fn what_eviction_writes_of_moved_nodes_is_counted_by_the_next_checkpoint() {
        let env = SimEnv::new(1);
        let db = with_sparse_segments(env.clone());
        let table = db.table("t").unwrap();
        let engine = db.engine();
        let rows = |db: &Database| {
            let rows = db.table("t").unwrap().range(..).unwrap();
            rows.map(|row| row.map(|_| 1)).sum::<crate::Result<usize>>()
        };
        let before = rows(&db).unwrap();
        // Fills the open segment of the bulk stream.
        let next_segment = || {
            let mut room = u32::MAX;
            while engine.log.bulk_room() < room {
                room = engine.log.bulk_room();
                engine.log.append_bulk(BulkKind::Chunk, &[&[0; 64 << 10]]).unwrap();
            }
            engine.log.sync_bulk().unwrap();
        };
        {
            let mut checkpointer = engine.checkpointer.lock();
            let leaving = checkpointer.find_leaving(&engine.log.bulk_boundary());
            checkpointer.leave(&table.state, &leaving);
        }
        next_segment();
        engine.memory.index.set_budget(0);
        (0..6).for_each(|_| _ = engine.evict_round().unwrap());
        assert!(db.stats().memory.leaves_written_to_evict > 0);
        next_segment();
        for _ in 0..3 {
            db.checkpoint().unwrap();
            while engine.free_retired().unwrap() {}
        }
        assert_eq!(rows(&db).unwrap(), before);
        db.close().unwrap();
        let db = Database::open_with(env, "/data", Options::default(), |_| {}).unwrap();
        assert_eq!(rows(&db).unwrap(), before);
        assert_eq!(db.check(|_| {}).unwrap().problems, Vec::<String>::new());
    }

    /// INV-SPACE-3: leaves that eviction wrote since the last checkpoint may become dirty, too.
    #[test]
    fn the_need_counts_what_eviction_wrote() {
        let options =
            Options { leaf_bytes: 512, inline_bytes_max: 200, background: false, ..Options::default() };
        let db = Database::open_with(SimEnv::new(1), "/data", options, |_| {}).unwrap();
        let (engine, table) = (db.engine(), db.table("t").unwrap());
        let put =
            |n: u64| _ = table.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), [1; 100]).unwrap();
        let kept_with_puts = || {
            (0..20_000).step_by(4).for_each(put);
            engine.room.look().unwrap();
            engine.room.figures().kept
        };
        (0..20_000).for_each(put);
        engine.log.at_reserved(|csn| table.state.index.freeze(csn));
        while engine.merge_all().unwrap() {}
        engine.memory.index.set_budget(0);
        (0..6).for_each(|_| _ = engine.evict_round().unwrap());
        assert!(db.stats().memory.leaves_written_to_evict > 1000);
        let before = kept_with_puts();
        db.checkpoint().unwrap();
        let after = kept_with_puts();
        assert!(before >= after / 10 * 9, "{before} bytes are kept, {after} after a checkpoint");
    }

    /// INV-SPACE-3: the need does not count on nodes to leave segments, so where there is no room for all trees once more, none
    /// does.
    #[test]
    fn nodes_leave_segments_only_while_there_is_plenty_of_room() {
        let env = SimEnv::new(1);
        let db = with_sparse_segments(env.clone());
        let table = db.table("t").unwrap().state;
        let engine = db.engine();
        let mut checkpointer = engine.checkpointer.lock();
        let mut find = || checkpointer.find_leaving(&engine.log.bulk_boundary());
        let leaving = find();
        assert!(!leaving.segments.is_empty() && leaving.tables.contains(&table.id));

        env.faults().space_bytes(Some(128 << 20));
        engine.room.look().unwrap();
        assert!(!engine.room.is_plenty() && !engine.room.is_short());
        let scarce = find();
        assert!(scarce.segments.is_empty() && scarce.tables.is_empty() && scarce.idle.is_empty());
        // The room became scarce after the segments were found.
        checkpointer.leave(&table, &leaving);
        assert_eq!(table.index.base().dirty_bytes(), 0);

        env.faults().space_bytes(None);
        engine.room.look().unwrap();
        checkpointer.leave(&table, &leaving);
        assert!(table.index.base().dirty_bytes() > 0);
    }
}
