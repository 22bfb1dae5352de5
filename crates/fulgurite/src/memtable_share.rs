//! The memtables of all tables together take a quarter of the memory budget at most. Each table has a bound of its own
//! (`merger.rs`), but there may be ten thousand of them.
//!
//! A table's memtable is frozen at a size that grows with the data ([`Engine::memtable_bytes_max`]).
//!
//! When mutable memtables have more than half of that share, the merger freezes the largest ones, whatever their size, until the
//! rest has a quarter of it. From three quarters on, commits are slowed so that the merge that goes on ends before the share is
//! used up, and they wait while memtables that can be merged take more than all of it. Those of a table whose tree cannot
//! be read do not count: its own commits are refused (`maintenance.rs`), the others' go on. Nor do merged memtables that a
//! value of the program holds, nor what an empty memtable takes: that is part of its table.
//!
//! Larger ones would not do: a checkpoint first merges the memtables that there are, about as fast as commits fill others, so twice what
//! they hold is log that no checkpoint covers, and an opening after a crash has to fit it into half of the budget. With an eighth of the budget for
//! one and half of it for all, an opening took 93 s, because it had to merge.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite_types::TableId;

use crate::Result;
use crate::catalog::TableState;
use crate::commit::quiet::is_in_callback;
use crate::engine::Engine;
use crate::latency::Waited;
use crate::merger::freeze;
use crate::options::MEMTABLE_BYTES_LEAST;

/// All memtables together take at most this part of the budget.
const MEMTABLES_SHARE: usize = 4;

/// How many bytes all memtables may take.
pub(crate) struct MemtableShare {
    /// The memory budget.
    budget: AtomicUsize,
    /// What replay made of the log, until it is merged: commits do not wait for that, which may take seconds.
    replayed: AtomicUsize,
}

impl Default for MemtableShare {
    fn default() -> MemtableShare {
        MemtableShare { budget: AtomicUsize::new(usize::MAX), replayed: AtomicUsize::new(0) }
    }
}

impl MemtableShare {
    /// Begins to bound them by their share of a memory budget.
    pub fn bound_by(&self, budget: usize) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// So many bytes are those of replayed commits.
    pub fn set_replayed(&self, bytes: usize) {
        self.replayed.store(bytes, Ordering::Relaxed);
    }
}

/// Bytes of a table's memtables that merging will give back: the catalog's are frozen by checkpoints only.
fn mergeable_bytes(table: &TableState) -> u64 {
    let waits = table.id == TableId::CATALOG || table.merging_failed.load(Ordering::Acquire);
    if waits { 0 } else { table.index.memtables().bytes() }
}

/// A memtable is frozen when it takes this part of the live bytes on disk, ...
const LIVE_SHARE: u64 = 16;

/// ... or this part of what all memtables may take, ...
const GROWN_SHARE: usize = 4;
/// (the least size is this part of it at most)
const LEAST_SHARE: usize = 8;

/// ... or this part of the log between two checkpoints: a checkpoint freezes it anyway.
const LOG_SHARE: u64 = 2;

/// A waiting commit looks at all tables every so many looks.
const EXACT_LOOKS: usize = 16;

impl Engine {
    /// How many bytes all memtables may take.
    pub fn memtable_share(&self) -> usize {
        self.memory.memtables.budget.load(Ordering::Relaxed) / MEMTABLES_SHARE
    }

    /// With this many bytes of memtables commits wait.
    fn memtables_most(&self) -> usize {
        self.memtable_share().saturating_add(self.memory.memtables.replayed.load(Ordering::Relaxed))
    }

    /// A table's mutable memtable is frozen when it takes so many bytes. A merge copies each leaf that it changes, and where nodes are
    /// evicted reads and writes it, too: a longer memtable changes more rows of each. Where there is little room on the disk it is the
    /// least: the leaves that a merge makes dirty stay in memory then.
    #[inline]
    pub fn memtable_bytes_max(&self) -> usize {
        if let Some(bytes) = self.options.memtable_bytes_max {
            return bytes;
        }
        let share = self.memtable_share();
        let least = MEMTABLE_BYTES_LEAST.min(share / LEAST_SHARE);
        if !self.room.is_plenty() {
            return least;
        }
        let most = (share / GROWN_SHARE).min((self.options.checkpoint_log_bytes / LOG_SHARE) as usize);
        let live_bytes = self.progress.live_bytes.load(Ordering::Relaxed);
        ((live_bytes / LIVE_SHARE) as usize).min(most).max(least)
    }

    /// Has the merger look if memtables take more than half of their share, or have much that is not in order. Called after a commit was
    /// applied.
    #[inline]
    pub fn look_at_memtables(&self) {
        if self.memory.index.memtable_bytes() > self.memtable_share() / 2 {
            self.wakeups.wake_merger();
        } else if self.memory.index.has_much_to_link() {
            self.wakeups.wake_sleeping_merger();
        }
    }

    /// Freezes the largest memtables if all mutable ones together take more than half of the share.
    pub fn freeze_largest(&self, tables: &[Arc<TableState>]) {
        let share = self.memtable_share();
        if self.memory.index.memtable_bytes() <= share / 2 {
            self.memory.memtables.set_replayed(0);
            return;
        }
        let mutable = |table: &&Arc<TableState>| table.index.memtables().newest_bytes();
        let others = tables.iter().filter(|table| table.id != TableId::CATALOG);
        let mut by_size: Vec<_> = others.map(|table| (mutable(&table), table)).collect();
        let mut rest: u64 = by_size.iter().map(|(bytes, _)| bytes).sum();
        if rest <= share as u64 / 2 {
            return;
        }
        by_size.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, table) in by_size {
            if rest <= share as u64 / 4 {
                break;
            }
            freeze(table, &self.pipeline);
            rest -= bytes;
        }
    }

    /// Whether the share of the memtables is nearly used up, by those that merging gives back: commits are slowed.
    #[inline]
    pub fn memtables_are_many(&self) -> bool {
        let many = self.memtables_most() / 4 * 3;
        self.memory.index.memtable_bytes() > many
            && self.mergeable_bytes() > many
            && !self.progress.merging.is_failing()
    }

    /// How many bytes more the memtables may take before commits wait.
    pub fn memtable_room(&self) -> u64 {
        self.memtables_most().saturating_sub(self.mergeable_bytes()) as u64
    }

    /// What merging gives back, if it does not fail: only a checkpoint merges the catalog's memtable.
    fn mergeable_bytes(&self) -> usize {
        let of_catalog = self.tables.root.index.memtables().bytes() as usize;
        self.memory.index.mergeable_bytes().saturating_sub(of_catalog)
    }

    /// Waits while memtables that can be merged take more than their share.
    #[inline]
    pub fn wait_for_memtables(&self) -> Result<()> {
        if self.memory.index.memtable_bytes() <= self.memtables_most() {
            return Ok(());
        }
        self.wait_while_memtables_are_over()
    }

    /// Whether [`Engine::wait_for_memtables`] would wait.
    pub fn memtables_have_to_be_merged(&self) -> bool {
        self.memory.index.memtable_bytes() > self.memtables_most() && self.memtables_are_over()
    }

    /// Looks at all tables that have something to merge, of which there may be thousands, only where one cannot be merged.
    fn memtables_are_over(&self) -> bool {
        self.mergeable_bytes() > self.memtables_most()
            && (!self.progress.merging.is_failing() || self.tables_are_over())
    }

    fn tables_are_over(&self) -> bool {
        self.tables.active().sum(mergeable_bytes) > self.memtables_most() as u64
    }

    #[cold]
    fn wait_while_memtables_are_over(&self) -> Result<()> {
        let start_ns = self.env.clock().monotonic_ns();
        for look in 1_usize.. {
            // A table may have failed to be merged, and the merger's round has not ended yet.
            if !self.memtables_are_over() || (look.is_multiple_of(EXACT_LOOKS) && !self.tables_are_over()) {
                break;
            }
            self.check_writable()?;
            if !self.options.background || is_in_callback() {
                // The thread that would merge is this one, or may be.
                return self.merge_some();
            }
            self.check_pause()?;
            self.check_quorum_since(start_ns)?;
            self.wakeups.wake_merger();
            self.merger.wait_if(|| self.memtables_are_over());
        }
        let waited_ns = self.env.clock().monotonic_ns().saturating_sub(start_ns);
        self.pipeline.stopwatch().waited(Waited::Memtables, waited_ns);
        Ok(())
    }

    /// Merges what can be merged without waiting for anything.
    fn merge_some(&self) -> Result<()> {
        self.freeze_largest(&self.tables.active().all());
        while self.memtables_are_over() && self.merge_all()? {}
        Ok(())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use fulgurite_env::SimEnv;

    use super::*;
    use crate::{Database, Options};

    #[test]
    fn memtables_grow_with_the_data_within_the_budget_and_the_log() {
        let open = |options: Options| {
            let options = Options { background: false, ..options };
            Database::open_with(SimEnv::new(1), "/data", options, |_| {}).unwrap()
        };
        let size = |db: &Database, live_bytes: u64| {
            db.engine().progress.live_bytes.store(live_bytes, Ordering::Relaxed);
            db.engine().memtable_bytes_max() >> 20
        };
        let db = open(Options { memory_bytes: Some(1 << 30), ..Options::default() });
        assert_eq!([0, 100 << 20, 512 << 20, 100 << 30].map(|bytes| size(&db, bytes)), [16, 16, 32, 64]);
        db.set_memory_bytes(8 << 30).unwrap();
        // Half of the log between checkpoints.
        assert_eq!([512 << 20, 100 << 30].map(|bytes| size(&db, bytes)), [32, 128]);
        db.set_memory_bytes(64 << 20).unwrap();
        assert_eq!([0, 100 << 30].map(|bytes| size(&db, bytes)), [2, 4]);
        let fixed =
            Options { memtable_bytes_max: Some(8 << 20), memory_bytes: Some(1 << 30), ..Options::default() };
        assert_eq!(size(&open(fixed), 100 << 30), 8);
    }
}
