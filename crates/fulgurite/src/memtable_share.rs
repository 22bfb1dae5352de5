//! The memtables of all tables together take a quarter of the memory budget at most. Each table has a bound of its own
//! (`merger.rs`), but there may be ten thousand of them.
//!
//! From half of that share on, the merger freezes the largest memtables, whatever their size, until mutable ones have a
//! quarter of it. Commits wait while memtables that can be merged take more than all of it. Those of a table whose tree cannot
//! be read do not count: its own commits are refused (`maintenance.rs`), the others' go on. Nor do merged memtables that a
//! value of the program holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite_types::TableId;

use crate::Result;
use crate::catalog::TableState;
use crate::commit::quiet::is_in_callback;
use crate::engine::Engine;
use crate::latency::Waited;
use crate::merger::freeze;

/// All memtables together take at most this part of the budget.
const MEMTABLES_SHARE: usize = 4;

/// How many bytes all memtables may take.
pub(crate) struct MemtableShare {
    bytes: AtomicUsize,
    /// What replay made of the log, until it is merged: commits do not wait for that, which may take seconds.
    replayed: AtomicUsize,
}

impl Default for MemtableShare {
    fn default() -> MemtableShare {
        MemtableShare { bytes: AtomicUsize::new(usize::MAX), replayed: AtomicUsize::new(0) }
    }
}

impl MemtableShare {
    /// Begins to bound them by their share of a memory budget.
    pub fn bound_by(&self, budget: usize) {
        self.bytes.store(budget / MEMTABLES_SHARE, Ordering::Relaxed);
    }

    /// So many bytes are those of replayed commits.
    pub fn set_replayed(&self, bytes: usize) {
        self.replayed.store(bytes, Ordering::Relaxed);
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// With this many commits wait.
    fn bytes_max(&self) -> usize {
        self.bytes().saturating_add(self.replayed.load(Ordering::Relaxed))
    }
}

/// Bytes of a table's memtables that merging will give back: the catalog's are frozen by checkpoints only.
fn mergeable_bytes(table: &TableState) -> u64 {
    let waits = table.id == TableId::CATALOG || table.merging_failed.load(Ordering::Acquire);
    if waits { 0 } else { table.index.memtables().bytes() }
}

impl Engine {
    /// Has the merger look if memtables take more than half of their share. Called after a commit was applied.
    #[inline]
    pub fn look_at_memtables(&self) {
        if self.memory.index.memtable_bytes() > self.memory.memtables.bytes() / 2 {
            self.wakeups.wake_merger();
        }
    }

    /// Freezes the largest memtables if all together take more than half of their share.
    pub fn freeze_largest(&self, tables: &[Arc<TableState>]) {
        let share = self.memory.memtables.bytes();
        if self.memory.index.memtable_bytes() <= share / 2 {
            self.memory.memtables.set_replayed(0);
            return;
        }
        let mutable = |table: &&Arc<TableState>| table.index.memtables().newest_bytes();
        let others = tables.iter().filter(|table| table.id != TableId::CATALOG);
        let mut by_size: Vec<_> = others.map(|table| (mutable(&table), table)).collect();
        by_size.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut rest: u64 = by_size.iter().map(|(bytes, _)| bytes).sum();
        for (bytes, table) in by_size {
            if rest <= share as u64 / 4 {
                break;
            }
            freeze(table, &self.log);
            rest -= bytes;
        }
    }

    /// Waits while memtables that can be merged take more than their share.
    #[inline]
    pub fn wait_for_memtables(&self) -> Result<()> {
        if self.memory.index.memtable_bytes() <= self.memory.memtables.bytes_max() {
            return Ok(());
        }
        self.wait_while_memtables_are_over()
    }

    fn memtables_are_over(&self) -> bool {
        let bytes_max = self.memory.memtables.bytes_max();
        self.memory.index.memtable_bytes() > bytes_max
            && self.tables.active().sum(mergeable_bytes) > bytes_max as u64
    }

    #[cold]
    fn wait_while_memtables_are_over(&self) -> Result<()> {
        let start_ns = self.env.clock().monotonic_ns();
        while self.memtables_are_over() {
            self.check_writable()?;
            if !self.options.background || is_in_callback() {
                // The thread that would merge is this one, or may be.
                return self.merge_some();
            }
            self.wakeups.wake_merger();
            self.merger.wait_if(|| self.memtables_are_over());
        }
        let waited_ns = self.env.clock().monotonic_ns().saturating_sub(start_ns);
        self.pipeline.stopwatch().waited(Waited::Merging, waited_ns);
        Ok(())
    }

    /// Merges what can be merged without waiting for anything.
    fn merge_some(&self) -> Result<()> {
        self.freeze_largest(&self.tables.active().all());
        while self.memtables_are_over() && self.merge_all()? {}
        Ok(())
    }
}
