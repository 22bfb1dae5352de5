//! Reads, writes and syncs, counted by kind.

/// Calls to the operating system for files, and their bytes.
///
/// A write is *sequential* if it begins where the last one to the same file ended, or in the last block of 4 KiB that
/// that one wrote, as an appended log does; otherwise it is *random*. A write that returns when it is durable counts as a
/// write and as a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct IoCounts {
    /// Read calls.
    pub reads: u64,
    /// Bytes they read.
    pub read_bytes: u64,
    /// Sequential write calls.
    pub sequential_writes: u64,
    /// Bytes they wrote.
    pub sequential_bytes: u64,
    /// Other write calls.
    pub random_writes: u64,
    /// Bytes they wrote.
    pub random_bytes: u64,
    /// Calls that returned when data was durable.
    pub syncs: u64,
    /// Nanoseconds in these calls, of all threads together.
    pub sync_ns: u64,
}

impl IoCounts {
    /// The counts since `before`.
    pub fn since(&self, before: &IoCounts) -> IoCounts {
        IoCounts {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            sequential_writes: self.sequential_writes.saturating_sub(before.sequential_writes),
            sequential_bytes: self.sequential_bytes.saturating_sub(before.sequential_bytes),
            random_writes: self.random_writes.saturating_sub(before.random_writes),
            random_bytes: self.random_bytes.saturating_sub(before.random_bytes),
            syncs: self.syncs.saturating_sub(before.syncs),
            sync_ns: self.sync_ns.saturating_sub(before.sync_ns),
        }
    }
}
