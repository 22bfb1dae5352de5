//! Eviction keeps the memory of a database within its budget ([`Options::memory_bytes`](crate::Options::memory_bytes)): it
//! gives back nodes of all tables' trees and cached values ([`crate::value_cache`]), under one clock that goes from table to table.
//!
//! What gives way, in this order: values and clean nodes; dirty leaves, and inner nodes that have no child in memory, which are
//! written to the bulk stream so that they can be dropped ([`fulgurite_index::Base::evict_some`]); then reads that load nodes wait,
//! and merges, and commits, because memtables are full (INV-MEM-1: not for long, and not if it is of no use). The dirty nodes that
//! are left then, roots, only a checkpoint can write: eviction asks for one.
//!
//! **INV-MEM-2.** *Merges that make leaves dirty wait until these can be written, on a full disk too.* While little room is left, eviction writes
//! leaves only while a checkpoint is written, since that frees what their records replace, and takes the room for them as a delete does
//! ([`crate::space::room::Room::admit_evicted_leaves`]). Between two checkpoints the merger stops where it is once dirty
//! nodes have a quarter of a budget that is used up, and so do purges, until the checkpoint comes that eviction asks for; garbage
//! collection ends when memory is exceeded. A checkpoint's own merges wait for none of these: they go on, with leaves evicted beside them into
//! whatever room there is once the memory is exceeded; where there is none at all, the checkpoint fails before more are dirty, and is tried again.
//! Inner nodes stay in memory then: a fiftieth of the trees at most.
//!
//! A thread of the background evicts. Where there is none (a database that is opened read-only, tests, a close), those evict
//! that load nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use fulgurite_env::Env;
use fulgurite_index::{Base, Evicted, EvictionStep, IndexMemory};
use fulgurite_log::{BULK_BUFFERS_BYTES, CommitLog};
use fulgurite_types::TableId;
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::OrError;
use crate::maintenance::Round;
use crate::memory_charge::MemoryCharge;
use crate::memtable_share::MemtableShare;
use crate::program_memory::ProgramBytes;
use crate::space::budget::Admitted;
use crate::stats::MemoryStats;
use crate::transaction::memory::TransactionMemory;
use crate::{Error, Options, Result};

/// At most how many bytes of nodes a step gives back: between two steps the thread looks whether that is enough.
const STEP_BYTES: usize = 1 << 20;

/// At how many slots a step looks: its tree is locked for some ten microseconds.
const STEP_SLOTS: usize = 1024;

/// If everything is to be evicted, this many steps at a time: reads call for some each time.
const TEST_TURNS: usize = 3;

/// Each time that this part of the budget was freed, by eviction and by merges, eviction looks whether the process has more than the budget, a sixteenth
/// of it, and the base, ...
const TRIM_LOOK_SHARE: usize = 32;

/// ... and then has freed memory given back to the operating system, if this part was freed since it last did.
const TRIM_SHARE: usize = 4;

/// What a process takes beside the budget.
const TRIM_BASE_BYTES: usize = 32 << 20;

/// The memory of a database, and what eviction did.
pub(crate) struct Memory {
    pub index: Arc<IndexMemory>,
    pub transactions: Arc<TransactionMemory>,
    pub memtables: MemtableShare,
    pub accounts: Arc<MemoryCharge>,
    pub tickets: Arc<MemoryCharge>,
    pub collection: Arc<MemoryCharge>,
    pub program: Arc<ProgramBytes>,
    log_buffer_bytes: AtomicUsize,
    clock: Mutex<Clock>,
    /// Whether a thread of the background evicts.
    has_thread: AtomicBool,
    /// Whether the nodes that are left can be dropped only after a checkpoint.
    wants_checkpoint: AtomicBool,
    evicted_nodes: AtomicU64,
    evicted_values: AtomicU64,
    evicted_bytes: AtomicU64,
    written_leaves: AtomicU64,
    env: Arc<dyn Env>,
}

impl Drop for Memory {
    /// The nodes of the database have been freed: gives their memory back to the operating system.
    fn drop(&mut self) {
        self.env.trim_memory(TRIM_BASE_BYTES as u64);
    }
}

/// Where the clock is.
#[derive(Default)]
struct Clock {
    /// The table that it is at, or was at last in this round.
    table: Option<TableId>,
    /// Whether it has not come to the end of that table.
    is_in_table: bool,
    /// Whether it has the cached values before it, after all tables.
    is_before_values: bool,
    /// What this round did so far.
    worked: bool,
    /// Whether it writes dirty leaves.
    writes: bool,
    /// Whether the last round gave nothing back.
    was_barren: bool,
    /// Whether a write has failed since eviction began: only clean nodes are dropped then.
    has_failed: bool,
    /// How many bytes had been freed when memory was last given back to the operating system.
    trimmed_at: Option<u64>,
    /// How many when eviction last looked whether that is of use.
    looked_at: u64,
}

/// The end of a round of the clock.
enum Turn {
    /// There is more to look at.
    Goes,
    /// A whole round gave nothing back, and spared nothing.
    IsStuck,
}

impl Memory {
    pub fn new(index: Arc<IndexMemory>, env: Arc<dyn Env>) -> Memory {
        let clock = env.clone();
        index.set_secret(clock.random_u64());
        index.set_clock(move || clock.clock().monotonic_ns());
        Memory {
            transactions: Arc::new(TransactionMemory::new(index.clone())),
            accounts: MemoryCharge::new(&index),
            tickets: MemoryCharge::new(&index),
            collection: MemoryCharge::new(&index),
            program: ProgramBytes::new(&index),
            index,
            memtables: MemtableShare::default(),
            log_buffer_bytes: AtomicUsize::new(0),
            clock: Mutex::default(),
            has_thread: AtomicBool::new(false),
            wants_checkpoint: AtomicBool::new(false),
            evicted_nodes: AtomicU64::new(0),
            evicted_values: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
            written_leaves: AtomicU64::new(0),
            env,
        }
    }

    /// Begins to count in a budget of so many bytes.
    pub fn begin(&self, budget: usize, options: &Options) {
        let log_buffers = options.log_buffer_bytes + BULK_BUFFERS_BYTES + options.staged_in_budget();
        self.index.others().fetch_add(log_buffers, Relaxed);
        self.log_buffer_bytes.store(log_buffers, Relaxed);
        self.set_budget(budget, options);
    }

    /// Commits do not wait for the memtables that replay has made.
    pub fn note_replayed(&self) {
        self.memtables.set_replayed(self.index.memtable_bytes());
    }

    /// Sets the budget, in bytes.
    pub fn set_budget(&self, budget: usize, options: &Options) {
        self.transactions.bound_by(budget);
        self.memtables.bound_by(budget);
        // With a budget of 0 memory is always tight.
        self.index.set_budget(if options.research.evict_everything { 0 } else { budget });
        self.index.look();
    }

    /// A thread of the background begins to evict, or ends.
    pub fn set_thread(&self, has_thread: bool) {
        self.has_thread.store(has_thread, Relaxed);
        self.index.set_gives(has_thread);
    }

    /// Whether eviction has asked for a checkpoint since the last call.
    pub fn take_wanted(&self) -> bool {
        self.wants_checkpoint.swap(false, Relaxed)
    }

    fn stats(&self) -> MemoryStats {
        let Memory { index, evicted_nodes, evicted_values, evicted_bytes, .. } = self;
        MemoryStats {
            budget_bytes: index.budget_bytes() as u64,
            node_bytes: index.node_bytes() as u64,
            value_bytes: index.value_bytes() as u64,
            lent_bytes: index.lent_bytes() as u64,
            slot_bytes: index.slot_bytes() as u64,
            memtable_bytes: index.memtable_bytes() as u64,
            table_bytes: index.table_bytes() as u64,
            log_buffer_bytes: self.log_buffer_bytes.load(Relaxed) as u64,
            transaction_bytes: self.transactions.bytes() as u64,
            tombstone_bytes: index.tombstone_bytes() as u64,
            ticket_bytes: self.tickets.bytes() as u64,
            account_bytes: self.accounts.bytes() as u64,
            collection_bytes: self.collection.bytes() as u64,
            program_bytes: self.program.bytes() as u64,
            evicted_nodes: evicted_nodes.load(Relaxed),
            evicted_values: evicted_values.load(Relaxed),
            evicted_bytes: evicted_bytes.load(Relaxed),
            leaves_written_to_evict: self.written_leaves.load(Relaxed),
            bytes_written_to_evict: index.bytes_written_to_evict(),
            node_loads: index.node_loads(),
            waits: index.waits(),
            ..MemoryStats::default()
        }
    }

    fn count(&self, evicted: &Evicted) {
        self.evicted_nodes.fetch_add(evicted.nodes, Relaxed);
        self.evicted_bytes.fetch_add(evicted.bytes as u64, Relaxed);
        self.written_leaves.fetch_add(evicted.written_leaves, Relaxed);
    }
}

impl Engine {
    pub fn memory_stats(&self) -> MemoryStats {
        let (value_hits, value_misses) = self.values.cache.hits_and_misses();
        let stats = self.memory.stats();
        let process = self.env.process_memory();
        let resident_bytes = process.map_or(0, |process| process.resident_bytes);
        let freed_bytes = process.and_then(|process| process.freed_bytes).unwrap_or(0);
        let freed_bytes = freed_bytes.min(resident_bytes.saturating_sub(stats.total_bytes()));
        MemoryStats { value_hits, value_misses, resident_bytes, freed_bytes, ..stats }
    }

    /// Has owners count their memory, and eviction begin whenever memory is tight. Called once, when the engine is where it
    /// stays.
    pub fn watch_memory(self: &Arc<Engine>) {
        self.pipeline.count_tickets_in(self.memory.tickets.clone());
        self.space.lock().accounts.count_in(self.memory.accounts.clone());
        self.checkpointer.lock().count_in(self.memory.collection.clone());
        let engine = Arc::downgrade(self);
        self.memory.index.set_waker(move || {
            let Some(engine) = engine.upgrade() else { return };
            if engine.memory.has_thread.load(Relaxed) {
                engine.wakeups.wake_evictor();
            } else {
                // An error is noted for `stats()`; it is not the caller's.
                _ = engine.evict_round();
            }
        });
    }

    /// Gives memory back until it is tight no more, or nothing is left to give.
    pub fn evict_round(&self) -> Result<Round> {
        let idle = Round { worked: false, left: false };
        if !self.memory.index.is_tight() || self.files.check_open().is_err() {
            return Ok(idle);
        }
        let Some(mut clock) = self.memory.clock.try_lock() else { return Ok(idle) };
        let outcome = self.evict_until_loose(&mut clock);
        if outcome.is_ok() {
            self.progress.evicting.round_ended(None, || self.now_ms());
        }
        outcome
    }

    fn evict_until_loose(&self, clock: &mut Clock) -> Result<Round> {
        let index = &self.memory.index;
        let mut outcome = Ok(());
        clock.has_failed = false;
        index.begin_batch();
        let turns = if self.options.research.evict_everything { TEST_TURNS } else { usize::MAX };
        let has_thread = self.memory.has_thread.load(Relaxed);
        for _ in 0..turns {
            // A close waits for this thread.
            let is_ending = has_thread && !self.memory.has_thread.load(Relaxed);
            if index.excess_bytes() == 0 || is_ending {
                break;
            }
            self.trim_after(clock, index.budget_bytes());
            match self.turn(clock, index.excess_bytes()) {
                Ok(Turn::Goes) => {}
                Ok(Turn::IsStuck) => {
                    index.set_gives(false);
                    if index.dirty_bytes() > 0 {
                        self.want_checkpoint();
                    }
                    return outcome.map(|()| Round { worked: false, left: true });
                }
                Err(error) => {
                    // At once: the round may go on for long, with what is clean, and a checkpoint's merges must not (INV-MEM-2).
                    if !matches!(error, Error::Closed) {
                        self.progress.evicting.round_ended(Some(&error), || self.now_ms());
                    }
                    clock.has_failed = true;
                    clock.writes = false;
                    outcome = Err(error);
                }
            }
        }
        outcome.map(|()| Round { worked: true, left: false })
    }

    /// Gives memory back to the operating system now and then: the allocator keeps what nodes took, in arenas of many threads.
    /// That takes tens of milliseconds, in which others may wait for memory: so only where it is of use.
    fn trim_after(&self, clock: &mut Clock, budget: usize) {
        let freed = self.memory.evicted_bytes.load(Relaxed) + self.progress.merged_bytes.load(Relaxed);
        let trim_at = clock.trimmed_at.map_or(0, |trimmed_at| trimmed_at + (budget / TRIM_SHARE) as u64);
        if freed < trim_at.max(clock.looked_at + (budget / TRIM_LOOK_SHARE) as u64) {
            return;
        }
        clock.looked_at = freed;
        let start_ns = self.env.clock().monotonic_ns();
        if self.env.trim_memory((budget + budget / 16 + TRIM_BASE_BYTES) as u64) {
            clock.trimmed_at = Some(freed);
            let took_us = self.env.clock().monotonic_ns().saturating_sub(start_ns) / 1000;
            tracing::debug!(took_us, "gave freed memory back to the operating system");
        }
    }

    /// One step of the clock.
    fn turn(&self, clock: &mut Clock, excess_bytes: usize) -> Result<Turn> {
        if !clock.is_in_table {
            let Some(next) = self.memory.index.next_evictable(clock.table) else {
                return Ok(self.turn_over_values(clock, excess_bytes));
            };
            clock.table = Some(next);
        }
        clock.is_in_table = false;
        let Some(table) = clock.table.and_then(|id| self.tables.by_id_or_dropped(id)) else {
            return Ok(Turn::Goes);
        };
        let admitted = if clock.writes { self.admit_leaves() } else { None };
        let write_bytes = if admitted.is_some() { STEP_BYTES } else { 0 };
        let unread_only = !clock.was_barren && self.memory.index.has_many_unread();
        let bytes = excess_bytes.min(STEP_BYTES);
        let scarce_room = !self.room.is_plenty();
        let for_checkpoint = admitted.as_ref().is_some_and(|(_, for_checkpoint)| *for_checkpoint);
        let slots = STEP_SLOTS;
        let step = EvictionStep { bytes, slots, write_bytes, unread_only, scarce_room, for_checkpoint };
        let evicted = table.index.base().evict_some(&step).or_error()?;
        clock.is_in_table = !evicted.is_round_over;
        self.memory.count(&evicted);
        self.note_step(clock, &evicted);
        Ok(Turn::Goes)
    }

    /// A step over the cached values, or the end of the round.
    fn turn_over_values(&self, clock: &mut Clock, excess_bytes: usize) -> Turn {
        if !clock.is_before_values {
            return self.begin_round(clock);
        }
        let evicted = self.values.cache.evict_some(excess_bytes.min(STEP_BYTES), STEP_SLOTS);
        clock.is_before_values = !evicted.is_round_over;
        self.memory.evicted_values.fetch_add(evicted.nodes, Relaxed);
        self.memory.evicted_bytes.fetch_add(evicted.bytes as u64, Relaxed);
        self.note_step(clock, &evicted);
        Turn::Goes
    }

    fn note_step(&self, clock: &mut Clock, evicted: &Evicted) {
        // Without that thread a waiting reader would wait for itself.
        if evicted.nodes > 0 && self.memory.has_thread.load(Relaxed) {
            self.memory.index.set_gives(true);
        }
        let written = evicted.written_leaves + evicted.written_inner_nodes;
        clock.worked |= evicted.nodes + written + evicted.spared > 0;
    }

    /// All tables that may have something to evict were visited: begins with the first again.
    fn begin_round(&self, clock: &mut Clock) -> Turn {
        self.look_at_dirty();
        let was_barren = !std::mem::replace(&mut clock.worked, false);
        let has_written = clock.writes;
        let can_write = !clock.has_failed && self.can_write_leaves();
        let index = &self.memory.index;
        clock.writes = can_write && (was_barren || index.has_many_dirty());
        clock.table = None;
        clock.is_before_values = !self.values.cache.is_empty();
        let is_stuck = clock.was_barren && was_barren && (has_written || !can_write);
        clock.was_barren = was_barren;
        if is_stuck || (index.next_evictable(None).is_none() && !clock.is_before_values) {
            Turn::IsStuck
        } else {
            Turn::Goes
        }
    }

    /// While the disk is short of room, leaves are written for checkpoints only: what they replace becomes free.
    fn can_write_leaves(&self) -> bool {
        let has_log = !self.options.read_only && self.log.poisoned().is_none();
        has_log && (!self.room.is_short() || self.room.is_writing())
    }

    /// Admits a step that writes leaves; returns whether it writes them for the checkpoint that is being written, too.
    fn admit_leaves(&self) -> Option<(Admitted<'_>, bool)> {
        if !self.can_write_leaves() {
            return None;
        }
        if !self.room.is_short() {
            return Some((Admitted::default(), false));
        }
        Some((self.room.admit_evicted_leaves(STEP_BYTES as u64)?, true))
    }

    /// Has merging pause, and a checkpoint written, while more than the budget is used and many nodes are dirty that cannot be
    /// written before. A checkpoint that is being written merges on in any case.
    fn look_at_dirty(&self) {
        let index = &self.memory.index;
        let has_thread = self.memory.has_thread.load(Relaxed);
        let can_wait = has_thread && self.log.poisoned().is_none() && !self.room.is_writing();
        index.set_needs_checkpoint(can_wait && self.room.is_short());
        if index.needs_checkpoint() {
            self.want_checkpoint();
        }
    }

    /// Has a checkpoint written.
    pub fn want_checkpoint(&self) {
        self.memory.wants_checkpoint.store(true, Relaxed);
        // After a failure it pauses, and tries again by itself.
        if !self.progress.checkpointing.is_failing() {
            self.wakeups.wake_checkpointer();
        }
    }
}
