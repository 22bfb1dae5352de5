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

pub(crate) mod chain;
mod cleaning;
mod collecting;
pub(crate) mod garbage;
pub(crate) mod growth;
mod kept_log;
pub(crate) mod pace;
pub(crate) mod pacing;
mod purges;
pub(crate) mod record;
mod superblocks;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fulgurite_env::Env;
use fulgurite_index::{Base, IndexError};
use fulgurite_log::{BulkBoundary, Log};
use fulgurite_types::{Csn, Lsn, TableId};
use parking_lot::Mutex;

use self::chain::{Chain, WrittenRecord};
use self::cleaning::Unmovable;
use self::collecting::Stuck;
use self::garbage::WrittenBytes;
use self::growth::{LogBytes, LogGrowth};
use self::kept_log::KeptLog;
use self::pace::{Debt, SegmentSize, due_bytes};
use self::pacing::{LogShare, Now, Pacer, Pacing};
pub(crate) use self::purges::note_damage;
use self::purges::{PurgeTime, Purges};
use self::record::{CheckpointRecord, TableRecord};
use crate::catalog::{Catalog, TableState};
use crate::clock::Clock;
use crate::commit::Pipeline;
use crate::commit::following::QUORUM_WAIT_MAX;
use crate::error::{OrError, readable};
use crate::files::Files;
use crate::hooks::Hooks;
use crate::memory_charge::MemoryCharge;
use crate::merger::{Merger, Stillness};
use crate::progress::Progress;
use crate::reads::Reads;
use crate::space::accounts::Written;
use crate::space::room::Room;
use crate::space::{Needed, Space};
use crate::superblock::{Superblock, SuperblockFile};
use crate::{Error, ResearchOptions, Result};

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

/// How often a checkpoint looks at the free space, in nanoseconds: that adds up all active tables, ...
const LOOK_NS: u64 = 10_000_000;
/// ... so of many tables it takes one part in so many of the time at most, however many of them are written out.
const LOOK_SHARE: u64 = 10;

/// Dead segments make a checkpoint due once they take this part of the live bytes, and the log has grown by this part of its share.
const DEAD_SHARE: u64 = 16;

/// A segment takes this part of the memory budget at most: recovery reads up to two whole ones.
const BUDGET_SHARE: u64 = 8;

/// Writes checkpoints, and says when one is due.
pub(crate) struct Checkpointer {
    /// The log that no checkpoint covers.
    debt: Debt,
    kept: KeptLog,
    chain: Chain,
    segment_size: SegmentSize,
    purges: Purges,
    unmovable: Unmovable,
    stuck: Stuck,
    /// The victims of the running checkpoint whose live bytes were moved, as far as they could be.
    tried: Vec<u32>,
    /// Bytes of values that the running checkpoint is still to copy out of its victims, about.
    to_copy: Cell<u64>,
    /// How many of a hundred bytes that the last collection moved were copied so: the rest were nodes.
    copied_percent: u64,
    /// Whether a collection of this life has copied a value.
    has_copied: bool,
    /// Whether the last choice of victims left some that are to be moved, too, by a checkpoint that follows at once: eviction makes garbage
    /// faster than one checkpoint collects it.
    leaves_victims: bool,
    /// Whether the running checkpoint collects garbage without pauses.
    hurries: bool,
    /// Bytes of the segments with live bytes, at the last checkpoint.
    collectable_bytes: u64,
    /// Where the collection counts its memory.
    memory: Option<Arc<MemoryCharge>>,
    /// [`Log::chunk_bytes`] when the last checkpoint began.
    chunks_covered: u64,
    /// [`LogGrowth::ahead_excess`] when the last checkpoint began.
    excess_covered: u64,
    /// The records of nodes when the last checkpoint began, ...
    nodes_covered: NodeBytes,
    /// ... and when the running one did.
    nodes_at_begin: Option<NodeBytes>,
    /// The ratio of segments to live bytes for which a caller asked, in percent.
    goal: Option<u64>,
    /// Whether the running one tries segments again out of which not all could be moved.
    tries_all: bool,
    /// Whether the last checkpoint moved anything: another one frees what that was in, and may find more.
    collects: bool,
    /// Since when no commit has come, while it collects.
    stillness: Stillness,
    /// The segments that nodes left in the last checkpoint.
    left: BTreeSet<u32>,
    /// When a checkpoint looks at the free space again.
    look_at_ns: Cell<u64>,
    /// When range tombstones are looked at again, the same.
    look_at_ranges_ns: Cell<u64>,
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
    pub pacing: Arc<Pacing>,
    /// Locked to write it, and for a look at its copies on disk.
    pub superblock: Arc<Mutex<SuperblockFile>>,
    /// Locked for moments only, never over a write of the checkpoint or a sync.
    pub space: Arc<Mutex<Space>>,
    pub growth: Arc<LogGrowth>,
    pub options: ResearchOptions,
}

/// Bytes of records of nodes.
#[derive(Clone, Copy, Default)]
struct NodeBytes {
    all: u64,
    /// Of these: what eviction wrote.
    evicted: u64,
}

impl NodeBytes {
    /// Those that checkpoints wrote or copied.
    fn own(self) -> u64 {
        self.all.saturating_sub(self.evicted)
    }
}

/// A checkpoint that is being written.
struct Boundary {
    /// It covers the commits up to this one.
    covered: Csn,
    /// Where replay starts after it: before the commit after `kept`.
    replay: Lsn,
    kept: Csn,
    /// The log of this life when it began.
    written: LogBytes,
    /// [`Log::chunk_bytes`] when it began.
    chunks: u64,
    /// [`LogGrowth::ahead_excess`] then.
    excess: u64,
    /// How much log and chunks of values were written since the last one.
    grown: u64,
    /// Before its records.
    bulk: BulkBoundary,
}

/// At most the bytes of nodes that a checkpoint would write of a table, and about those not merged yet.
fn unwritten_bytes(table: &TableState) -> u64 {
    table.index.base().dirty_bytes() + table.index.memtables().bytes()
}

/// The error for a tree that cannot be written out.
fn unwritten(table: &TableState, error: IndexError) -> Error {
    match error {
        IndexError::LeafTooLong { key, bytes, bytes_max, .. } => Error::Refused {
            what: format!(
                "no checkpoint can be written: open snapshots keep {bytes} bytes of versions of the key {} of table `{}`, \
                 and a record holds {bytes_max}. Close the oldest snapshots and transactions; then checkpoints \
                 succeed again",
                readable(&key),
                table.name(),
            ),
        },
        error => Error::of_index(error),
    }
}

impl Checkpointer {
    pub fn new(debt: Debt, chain: Chain, shared: Shared) -> Checkpointer {
        let segment_size = SegmentSize::default();
        let made = Checkpointer {
            kept: KeptLog::recovered(&shared.log),
            debt,
            chain,
            segment_size,
            purges: Purges::default(),
            unmovable: Unmovable::new(),
            stuck: Stuck::default(),
            tried: Vec::new(),
            to_copy: Cell::new(0),
            copied_percent: 100,
            has_copied: false,
            leaves_victims: false,
            hurries: false,
            collectable_bytes: u64::MAX,
            memory: None,
            chunks_covered: 0,
            excess_covered: 0,
            nodes_covered: NodeBytes::default(),
            nodes_at_begin: None,
            goal: None,
            tries_all: false,
            collects: false,
            stillness: Stillness::default(),
            left: BTreeSet::new(),
            look_at_ns: Cell::new(0),
            look_at_ranges_ns: Cell::new(0),
            shared,
        };
        made.publish();
        made
    }

    /// Has the memory of the collection counted.
    pub fn count_in(&mut self, memory: Arc<MemoryCharge>) {
        self.memory = Some(memory);
    }

    /// What recovery may need of the log.
    pub fn needed(&self) -> Needed {
        let superblock = self.shared.superblock.lock();
        let copies = || superblock.copies();
        Needed {
            replay: copies().map(|copy| copy.replay).min().expect("there is a current copy"),
            covered: copies().map(|copy| copy.covered).min().expect("there is a current copy"),
            kept: self.kept.of_copies(),
        }
    }

    /// The superblock of the last checkpoint.
    fn current(&self) -> Superblock {
        self.shared.superblock.lock().current().clone()
    }

    /// Publishes the last checkpoint for readers without the lock, and for the size of the next segments.
    pub fn publish(&self) {
        let Shared { progress, space, growth, .. } = &self.shared;
        growth.cover(self.debt.covered(), self.chunks_covered);
        self.look_at_garbage();
        progress.covered.store(self.current().covered.0, Ordering::Release);
        progress.replay_segment.store(self.needed().replay.segment(), Ordering::Release);
        let (live_bytes, data_bytes) = {
            let accounts = &space.lock().accounts;
            (accounts.live_bytes(), accounts.data_bytes())
        };
        progress.live_bytes.store(live_bytes, Ordering::Release);
        progress.data_bytes.store(data_bytes.unwrap_or(u64::MAX), Ordering::Release);
        self.bound_segments();
    }

    /// Whether the log has grown enough for a checkpoint, or the disk is nearly full and one might free segments.
    pub fn is_due(&self) -> bool {
        if self.shared.room.take_wanted() {
            return true;
        }
        // A segment is freed only when the older copy of the superblock does not need it either: until that copy covers
        // everything, another checkpoint may free segments; and until it keeps nothing for other nodes.
        if self.shared.room.is_short() {
            let Needed { covered, kept, .. } = self.needed();
            let keeps = self.shared.log.role().is_some() && kept < covered;
            if keeps || covered < self.shared.pipeline.visible() {
                return true;
            }
        }
        let growth = &self.shared.growth;
        let uncovered = self.debt.uncovered(growth.written());
        self.debt.is_due(uncovered, self.due_bytes())
            || growth.weigh(uncovered).regular >= growth.share() / 2
            || self.chunks_are_due()
            || self.dead_are_due()
            || (self.collects && self.leaves_victims)
            || self.collection_goes_on()
            || self.purges_are_due()
    }

    /// Whether so many chunks of large values were written that the values before them are to be freed. Replay reads none of them,
    /// so they do not count as log.
    fn chunks_are_due(&self) -> bool {
        let growth = &self.shared.growth;
        growth.uncovered_chunks() >= growth.share() / 2
    }

    /// Whether so many segments are dead that a checkpoint is due which frees them. Eviction writes leaves again and again, however
    /// slowly the log grows.
    fn dead_are_due(&self) -> bool {
        let Shared { growth, progress, .. } = &self.shared;
        let least = growth.share().max(progress.live_bytes.load(Ordering::Acquire) / DEAD_SHARE);
        growth.uncovered().total() >= growth.share() / DEAD_SHARE && self.unretired_bytes(least) >= least
    }

    /// The bytes of dead segments that a checkpoint would free; 0 if less than `least` were written since the last one.
    fn unretired_bytes(&self, least: u64) -> u64 {
        let written = self.node_bytes().all - self.nodes_covered.all;
        if written < least { 0 } else { self.shared.space.lock().unretired_bytes() }
    }

    /// The records of nodes that were written in this life.
    fn node_bytes(&self) -> NodeBytes {
        // In this order: a record counts as an eviction's after it was written.
        let evicted = self.shared.tables.memory().bytes_written_to_evict();
        NodeBytes { all: self.shared.log.node_record_bytes(), evicted }
    }

    /// Looks how far the log may grow until commits are slowed for the garbage (INV-SPACE-6).
    fn look_at_garbage(&self) {
        let Shared { growth, pacing, space, options, .. } = &self.shared;
        if !options.collect {
            return;
        }
        // Read first: bytes that are appended meanwhile count twice.
        let appended = growth.appended();
        let mut segments = space.lock().segment_bytes(|segment| self.stuck.holds(segment), &self.tried);
        let own =
            self.nodes_at_begin.map_or(0, |before| self.node_bytes().own().saturating_sub(before.own()));
        segments.excused = growth.ahead_excess() - self.excess_covered + own;
        segments.to_copy = self.to_copy.get();
        pacing.garbage.look(segments, growth.share(), appended);
    }

    /// Whether the collection goes on in a database that nothing is committed to. Otherwise the log makes checkpoints due.
    fn collection_goes_on(&self) -> bool {
        let now_ns = self.shared.env.clock().monotonic_ns();
        self.collects && self.stillness.is_long(self.shared.pipeline.newest().0, now_ns)
    }

    /// Whether range tombstones are purged further by the next checkpoint.
    pub fn is_purging(&self) -> bool {
        self.purges.goes_on()
    }

    /// Whether a checkpoint will be due, although nothing is committed.
    pub fn is_collecting(&self) -> bool {
        self.collects
    }

    /// Whether opening has to write a checkpoint before the database serves: the debt is overdue, or the disk is nearly
    /// full and a checkpoint may free segments.
    pub fn is_overdue(&self, lacks_reserve: bool) -> bool {
        let Debt { lives, .. } = self.debt;
        let covered = self.current().covered;
        let may_free = covered < self.shared.pipeline.visible() || lives > 1 || (lives > 0 && lacks_reserve);
        self.debt.is_overdue(self.due_bytes()) || (self.shared.room.is_short() && may_free)
    }

    fn due_bytes(&self) -> u64 {
        let Shared { tables, growth, .. } = &self.shared;
        let unmerged = tables.active().sum(|table| table.index.memtables().bytes());
        due_bytes(growth.share(), tables.dirty_bytes() + unmerged)
    }

    /// Bounds the segments that the log makes next by what the database writes, and by the memory budget, if there is one.
    pub fn bound_segments(&self) {
        let Shared { progress, log, tables, .. } = &self.shared;
        let live_bytes = progress.live_bytes.load(Ordering::Acquire);
        let bytes_max = self.segment_size.bytes_max(self.due_bytes(), live_bytes);
        let budget = tables.memory().budget_bytes() as u64;
        let in_budget = if budget == 0 { u64::MAX } else { budget / BUDGET_SHARE };
        log.bound_segments(bytes_max.min(in_budget));
    }

    /// Writes a checkpoint: afterwards opening replays only the commits since it began.
    pub fn checkpoint(&mut self, merger: &Merger) -> Result<CheckpointReport> {
        let start_ns = self.shared.env.clock().monotonic_ns();
        let nodes = self.node_bytes();
        self.nodes_at_begin = Some(nodes);
        let written = WrittenBytes { appended: self.shared.growth.appended(), evicted: nodes.evicted };
        self.shared.pacing.garbage.begin(written);
        let outcome = self.write(merger);
        self.nodes_covered = self.nodes_at_begin.take().unwrap_or_default();
        self.hurries = false;
        self.to_copy.set(0);
        self.tried.clear();
        self.publish();
        let report = outcome?;
        let ns = self.shared.env.clock().monotonic_ns().saturating_sub(start_ns);
        self.shared.progress.checkpoints.done(ns);
        self.shared.pacing.took(ns);
        let CheckpointReport { covered, records_written, segments_freed } = report;
        let path = self.shared.files.path.display();
        let took_ms = ns / 1_000_000;
        tracing::info!(%path, %covered, records_written, segments_freed, took_ms, "wrote a checkpoint");
        Ok(report)
    }

    /// The same, and moves live data until the segments take `percent` of it; with `tries_all` also out of segments that are left alone
    /// else, because not all could be moved.
    pub fn checkpoint_until(
        &mut self,
        percent: u64,
        tries_all: bool,
        merger: &Merger,
    ) -> Result<CheckpointReport> {
        (self.goal, self.tries_all) = (Some(percent), tries_all);
        let outcome = self.checkpoint(merger);
        (self.goal, self.tries_all) = (None, false);
        outcome
    }

    fn write(&mut self, merger: &Merger) -> Result<CheckpointReport> {
        let room = self.shared.room.clone();
        let _writing = room.begin_writing();
        let pacing = self.shared.pacing.clone();
        let _running = pacing.begin();
        self.shared.reads.end_old();
        let (at, tables) = self.begin()?;
        let since_last = (at.written - self.debt.covered()).total();
        self.segment_size.checkpoint_began(since_last, self.shared.growth.share());
        let before = self.collectable_bytes;
        let victims = self.choose_victims(&at, before);
        self.note_to_copy(self.live_bytes_of(&victims));
        self.look_at_garbage();
        let is_unchanged = self.is_unchanged(at.covered)
            && victims.is_empty()
            && self.segments_to_clean(&at.bulk).is_empty();
        self.collects = false;
        if self.shared.room.must_stay_empty() {
            if !is_unchanged {
                let what = format!("{} has no room for a checkpoint", self.shared.files.path.display());
                return Err(Error::NoSpace { what });
            }
            // This checkpoint would only move the replay position.
            self.pay(&at);
            return Ok(CheckpointReport { covered: at.covered, records_written: 0, segments_freed: 0 });
        }
        let records_written = if is_unchanged {
            let checkpoint = self.current().checkpoint;
            self.write_superblock(checkpoint, &at)?;
            self.shared.space.lock().accounts.install_again();
            0
        } else {
            let records_written = self.write_tables(&tables, &at, (victims, before), merger)?;
            self.note_stuck();
            let written = self.write_record(&tables, at.covered)?;
            self.shared.log.sync_bulk().or_error()?;
            self.write_superblock(written.placed.lsn, &at)?;
            let segments = self.chain.install(written);
            self.shared.space.lock().accounts.install(segments);
            self.drop_range_deletes(&tables, at.covered);
            records_written
        };
        let has_dead = || self.unretired_bytes(0) >= self.shared.growth.share() / 4;
        if room.is_short() || self.collects || has_dead() {
            // What only the older copy needs is free at once, without another set of records (INV-SPACE-3).
            self.write_superblock(self.current().checkpoint, &at)?;
            self.shared.space.lock().accounts.install_again();
        }
        self.pay(&at);
        let needed = self.needed();
        let segments_freed = self.shared.space.lock().retire(needed, &at.bulk);
        Ok(CheckpointReport { covered: at.covered, records_written, segments_freed })
    }

    /// Counts log and chunks from this checkpoint's begin.
    fn pay(&mut self, at: &Boundary) {
        self.debt.pay(at.written);
        self.chunks_covered = at.chunks;
        self.excess_covered = at.excess;
    }

    /// Chooses the boundary, freezes all memtables at it, and waits for the horizon to pass it (INV-CKPT-1).
    fn begin(&self) -> Result<(Boundary, Vec<Arc<TableState>>)> {
        let Shared { log, pipeline, tables, growth, .. } = &self.shared;
        let written = growth.written();
        let (chunks, excess) = (growth.chunks(), growth.ahead_excess());
        let grown = self.debt.uncovered(written).total() + chunks - self.chunks_covered;
        let bulk = log.bulk_boundary();
        // A table that is created later holds nothing at or below the boundary, and replay creates it again: it waits
        // for the next checkpoint.
        let (covered, tables) = pipeline.at_boundary(|csn| {
            let tables = tables.all();
            for table in &tables {
                table.freeze_unless_idle(csn);
                table.index.range_deletes().keep_at(csn);
            }
            (csn, tables)
        });
        self.shared.hooks.reached("checkpoint boundary");
        pipeline.wait_horizon_or_no_quorum(covered, QUORUM_WAIT_MAX, &*self.shared.env)?;
        let kept = if self.shared.room.is_short() {
            covered
        } else {
            KeptLog::keep(log, covered, growth, &self.shared.space)
        };
        let replay = log.replay_point(kept);
        Ok((Boundary { covered, replay, kept, written, chunks, excess, grown, bulk }, tables))
    }

    /// Whether a checkpoint would write what the last one wrote. It then only moves the replay position, so that the
    /// segments of former epochs become free.
    ///
    /// A tree may be dirty although no commit came: nodes that left segments could not be written out. Eviction may have
    /// written some of them, and only a write-out reports these records (INV-IDX-13): without it their segments were freed.
    fn is_unchanged(&self, boundary: Csn) -> bool {
        // A table with range tombstones is active (INV-ACT-1).
        let tables = &self.shared.tables;
        self.current().covered == boundary
            && self.purges.is_empty()
            && tables.dropped().is_empty()
            && tables.active().all().iter().all(|table| table.index.range_deletes().is_empty())
            && !tables.all().iter().any(|table| table.index.base().is_dirty())
    }

    /// Merges, purges and writes out the tables that have anything to write, with the nodes that move out of victims; returns how
    /// many node records were written. The victims are chosen anew once all is merged: merges, and what eviction writes beside them, let
    /// more of the segments die, and last for most of the time of a checkpoint of short rows in no order.
    fn write_tables(
        &mut self,
        tables: &[Arc<TableState>],
        at: &Boundary,
        (mut victims, before): (Vec<u32>, u64),
        merger: &Merger,
    ) -> Result<u64> {
        let gone = self.purge_dropped(at.covered);
        let pacing = self.shared.pacing.clone();
        let unwritten =
            |tables: &[&Arc<TableState>]| tables.iter().map(|table| unwritten_bytes(table)).sum::<u64>();
        let is_there = |table: &&Arc<TableState>| !gone.contains(&table.id);
        let touched: Vec<_> = tables.iter().filter(is_there).filter(|table| self.is_touched(table)).collect();
        let expected_bytes = self.live_bytes_of(&victims);
        let mut pacer = self.pacer(&pacing, unwritten(&touched) + expected_bytes);
        if !victims.is_empty() || !self.shared.room.is_short() {
            // What newer versions replace is dead, and is not moved.
            for table in touched {
                self.merge(table, at.covered, merger)?;
                _ = self.look();
                let changes = table.index.base().take_changes();
                self.shared.space.lock().accounts.change(table.id, &changes);
            }
            _ = self.shared.room.look();
            victims = self.choose_victims(at, before);
        }
        let live_bytes = self.live_bytes_of(&victims);
        self.note_to_copy(live_bytes);
        pacer.begin_table(expected_bytes, live_bytes);
        if !victims.is_empty() {
            self.hurries = self.leaves_victims || pacing.garbage.is_of_evictions();
            let moved = self.collect(&victims, &mut pacer)?;
            self.to_copy.set(0);
            self.collects = moved.bytes > 0;
            self.copied_percent = moved.copied_percent().unwrap_or(self.copied_percent);
            self.has_copied |= moved.copied > 0;
            self.tried.extend(&victims[..moved.tried]);
        }
        let leaving = self.find_leaving(&at.bulk);
        let is_written =
            |table: &&Arc<TableState>| self.is_touched(table) || leaving.idle.contains(&table.id);
        let touched: Vec<_> = tables.iter().filter(is_there).filter(is_written).collect();
        let estimated: Vec<_> = touched.into_iter().map(|table| (unwritten_bytes(table), table)).collect();
        let env = self.shared.env.clone();
        let purge_time = PurgeTime::after(&*env, self.shared.progress.checkpoints.times().last_ns);
        let mut records_written = 0;
        for (estimate, table) in estimated {
            self.chain.note(table.id);
            self.merge(table, at.covered, merger)?;
            self.purge(table, at.covered, &purge_time, merger)?;
            self.leave(table, &leaving);
            pacer.begin_table(estimate, table.index.base().dirty_bytes());
            records_written += self.write_out(table, &mut pacer)?;
        }
        if !self.purges.are_failing() {
            self.shared.progress.purging.round_ended(None, || env.clock().wall_ms());
        }
        Ok(records_written + self.clean(at, &mut pacer))
    }

    /// Merges the memtables of a table up to the boundary. Where the leaves that they make dirty exceed the memory, and eviction found no
    /// room on the disk for such leaves, the checkpoint would find none either: it fails before more are dirty (INV-MEM-2).
    fn merge(&self, table: &TableState, boundary: Csn, merger: &Merger) -> Result<()> {
        let Shared { reads, tables, room, progress, files, .. } = &self.shared;
        let memory = tables.memory();
        let stops = || memory.is_exceeded() && progress.evicting.is_failing() && room.is_short();
        memory.look();
        while merger.merge_next(table, &**reads, boundary, stops)? {}
        let oldest = table.index.memtables().oldest_immutable();
        if oldest.is_none_or(|memtable| memtable.boundary() > boundary) || table.index.merging_has_ended() {
            return Ok(());
        }
        let (dirty, path) = (memory.dirty_bytes(), files.path.display());
        let what = format!("{path} has no room for {dirty} bytes of changed nodes, which exceed the memory");
        Err(Error::NoSpace { what })
    }

    fn live_bytes_of(&self, segments: &[u32]) -> u64 {
        let space = self.shared.space.lock();
        segments.iter().map(|number| space.accounts.live_now(*number)).sum()
    }

    /// Whether a table has anything that its last write-out did not have. Asked once the horizon has passed the boundary.
    /// The memtables come first: a merge makes nodes dirty before it drops its memtable.
    fn is_touched(&self, table: &TableState) -> bool {
        table.index.memtables().oldest_immutable().is_some()
            || table.index.base().is_dirty()
            || !table.index.range_deletes().is_empty()
            || table.dropped().is_some()
    }

    /// Writes the record of a checkpoint of `tables`.
    fn write_record(&self, tables: &[Arc<TableState>], covered: Csn) -> Result<WrittenRecord> {
        let Shared { tables: catalog, log, room, space, .. } = &self.shared;
        let next_table_id = catalog.next_id().0;
        let record_of = |ids: Option<&BTreeSet<TableId>>| {
            let some: Vec<_>;
            let tables = match ids {
                None => tables,
                Some(ids) => {
                    some = ids.iter().filter_map(|id| catalog.by_id_or_dropped(*id)).collect();
                    &some
                }
            };
            // A snapshot may still see a dropped table, so its values stay in the accounts; no recovery needs its root.
            let kept = tables.iter().filter(|table| table.dropped().is_none_or(|csn| csn > covered));
            let records = kept.map(|table| {
                let written = space.lock().accounts.written(table.id);
                let range_deletes = table.index.range_deletes().list(Csn::ZERO, covered);
                let Written { root, live: accounts, data_bytes } = written;
                (table.id, TableRecord { root, range_deletes, accounts, data_bytes })
            });
            let tables = records.filter(|(_, record)| !record.is_empty()).collect();
            CheckpointRecord { covered, next_table_id, tables }
        };
        let written = self.chain.write(log, room.is_short(), record_of)?;
        if cfg!(debug_assertions) {
            let read = record::read(&**log, written.placed.lsn)?.record;
            assert_eq!(read, record_of(None), "INV-CKPT-7: a record and its base are a full record");
        }
        Ok(written)
    }

    /// The pace of a checkpoint that has about `total` bytes to write.
    fn pacer<'p>(&self, pacing: &'p Pacing, total: u64) -> Pacer<'p> {
        let Shared { env, growth, .. } = &self.shared;
        let at_begin = growth.pressing().total() + growth.uncovered_chunks();
        let due = due_bytes(growth.share(), total);
        // One that begins late is not spread beyond the share.
        let at_end = (2 * due).max((at_begin + due / 4).min(growth.share()));
        Pacer::new(pacing, LogShare { at_begin, at_end }, env.clock().monotonic_ns(), total)
    }

    /// Writes out a table's tree in steps, between which it is merged into (INV-IDX-11); returns how many node records
    /// were written.
    fn write_out(&self, table: &TableState, pacer: &mut Pacer<'_>) -> Result<u64> {
        let Shared { space, hooks, room, .. } = &self.shared;
        let tree = table.index.base();
        let mut pass = tree.begin_write_out();
        while !pass.is_done() && tree.dirty_bytes() > 0 {
            pass.set_scarce_room(!room.is_plenty());
            let before = pass.picked_bytes();
            let changes = tree.write_some(&mut pass, STEP_BYTES).map_err(|error| unwritten(table, error))?;
            space.lock().accounts.change(table.id, &changes);
            pacer.wrote(pass.picked_bytes() - before);
            pacer.keep_pace(|| self.look());
            hooks.reached("checkpoint step");
        }
        pass.set_scarce_room(!room.is_plenty());
        let report = tree.finish_write_out(pass).map_err(|error| unwritten(table, error))?;
        let mut space = space.lock();
        space.accounts.change(table.id, &report.accounts);
        space.accounts.wrote(table.id, report.root);
        Ok(report.records_written.iter().sum())
    }

    /// What goes on while a checkpoint is written, which may take long: freeing segments, and the look at the free space.
    /// What fails of it is reported by the round of the background thread that does it next.
    fn look(&self) -> Now {
        let Shared { env, room, space, growth, pipeline, tables, pacing, .. } = &self.shared;
        let ns = env.clock().monotonic_ns();
        if ns >= self.look_at_ns.get() {
            _ = space.lock().give_back();
            _ = room.look();
            self.bound_segments();
            self.look_at_garbage();
            let took_ns = env.clock().monotonic_ns().saturating_sub(ns);
            self.look_at_ns.set(ns + LOOK_NS.max(LOOK_SHARE * took_ns));
        }
        Now {
            ns,
            log: growth.pressing().total() + growth.uncovered_chunks(),
            has_much_garbage: self.hurries || pacing.garbage.is_much(growth.appended()),
            dirty_bytes: tables.dirty_bytes(),
            is_short_of_space: room.is_short(),
            has_unflushed: pipeline.stable() < pipeline.newest(),
        }
    }

    /// Removes the dropped tables that no snapshot sees, and returns them.
    fn purge_dropped(&mut self, boundary: Csn) -> BTreeSet<TableId> {
        let (snapshots, _) = self.shared.reads.snapshots.open();
        let oldest = snapshots.first().copied().unwrap_or(Csn::MAX);
        let is_gone =
            |table: &TableState| table.dropped().is_some_and(|csn| csn <= boundary && csn <= oldest);
        let gone = self.shared.tables.purge(is_gone);
        for table in &gone {
            table.index.end_merging();
            // A single operation that began before the table was dropped may find nothing from now on: it asks a snapshot
            // then, which does not see the table (INV-TXN-14).
            _ = self.shared.reads.prune_rules_of(table.index.range_deletes());
            table.index.base().leave_store();
            self.shared.space.lock().accounts.drop_table(table.id);
            self.purges.forget(table.id);
            self.chain.note(table.id);
        }
        gone.iter().map(|table| table.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_that_is_too_long_is_named_with_what_to_do() {
        let env = fulgurite_env::SimEnv::new(1);
        let db = crate::Database::open_with(env, "/data", crate::Options::default(), |_| {}).unwrap();
        let table = db.table("jobs").unwrap().state;
        let (key, bytes, bytes_max) = (b"next\x00".to_vec(), 1 << 31, 1 << 30);
        let error = unwritten(&table, IndexError::LeafTooLong { table: table.id, key, bytes, bytes_max });
        let Error::Refused { what } = &error else { panic!("{error:?}") };
        for words in
            ["0x6e65787400", "`jobs`", "2147483648 bytes", "1073741824", "Close the oldest snapshots"]
        {
            assert!(what.contains(words), "{words}: {what}");
        }
    }
}
