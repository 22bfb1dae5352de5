//! Loads of nodes from disk, and waits for memory, counted by cause. Nothing is counted where a node is in memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a node is loaded for, or a thread waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadFor {
    /// A read of one key, or of a value.
    Read,
    /// A cursor.
    #[default]
    Scan,
    /// A merge of a memtable, or a purge of a range.
    Merge,
    /// The validation of a commit. Its thread does not wait for memory.
    Validation,
    /// Freeing segments.
    Maintenance,
}

const CAUSES: usize = LoadFor::Maintenance as usize + 1;

/// How many nodes of trees were read from disk since the database was opened, by cause; of threads that miss the same one,
/// one reads it. A walk over the trees on disk, as a check makes, does not count: it brings nothing into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeLoads {
    /// For reads of one key: beside the number of those, the rate at which they miss.
    pub reads: u64,
    /// For ranges that are read.
    pub scans: u64,
    /// For merges of memtables, and purges of deleted ranges.
    pub merges: u64,
    /// For commits, and pops of unclaimed entries, to learn whether what they read or write has changed since.
    pub validation: u64,
    /// For maintenance: to free segments of which little is live.
    pub maintenance: u64,
}

impl NodeLoads {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.reads + self.scans + self.merges + self.validation + self.maintenance
    }
}

/// How often, and for how long, threads waited for memory because more than the budget was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryWaits {
    /// Of reads of a key or a value, and of scans.
    pub reads: u64,
    /// Of merges, purges and maintenance.
    pub merges: u64,
    /// How long they took together, in nanoseconds.
    pub total_ns: u64,
    /// How long the longest one took, in nanoseconds.
    pub max_ns: u64,
}

impl MemoryWaits {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.reads + self.merges
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct LoadCounters {
    loads: [AtomicU64; CAUSES],
    waits: [AtomicU64; CAUSES],
    waited_ns: AtomicU64,
    waited_ns_max: AtomicU64,
}

impl LoadCounters {
    pub fn loaded(&self, cause: LoadFor) {
        self.loads[cause as usize].fetch_add(1, Relaxed);
    }

    pub fn waited(&self, cause: LoadFor, ns: u64) {
        self.waits[cause as usize].fetch_add(1, Relaxed);
        self.waited_ns.fetch_add(ns, Relaxed);
        self.waited_ns_max.fetch_max(ns, Relaxed);
    }

    pub fn loads(&self) -> NodeLoads {
        let [reads, scans, merges, validation, maintenance] =
            self.loads.each_ref().map(|count| count.load(Relaxed));
        NodeLoads { reads, scans, merges, validation, maintenance }
    }

    pub fn waits(&self) -> MemoryWaits {
        let [reads, scans, merges, validation, maintenance] =
            self.waits.each_ref().map(|count| count.load(Relaxed));
        MemoryWaits {
            reads: reads + scans + validation,
            merges: merges + maintenance,
            total_ns: self.waited_ns.load(Relaxed),
            max_ns: self.waited_ns_max.load(Relaxed),
        }
    }
}
