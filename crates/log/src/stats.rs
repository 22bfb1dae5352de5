//! Counters, always on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the log was opened, and its present size.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct LogStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes that are staged and not in their segments.
            pub staged_bytes: u64,
            /// Segments that are made and not yet handed out.
            pub ready_segments: u64,
            /// All segments on disk.
            pub segments: u64,
            /// The length of all segments in bytes.
            pub segment_bytes: u64,
        }

        impl LogStats {
            /// Every counter with its name, for reports.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub $name: AtomicU64,)* }

        impl Counters {
            pub fn read(&self) -> LogStats {
                LogStats { $($name: self.$name.load(Relaxed),)* ..LogStats::default() }
            }
        }
    };
}

counters! {
    /// Frames reserved.
    commits,
    /// Groups written to the commit stream.
    groups,
    /// Mark groups among them.
    marks,
    /// Write calls on the commit stream.
    writes,
    /// Bytes of groups that they wrote, headers and padding to 8 included; a direct write writes whole blocks of 4096.
    written_bytes,
    /// Sync calls on the commit stream.
    syncs,
    /// Nanoseconds in write calls of the commit stream.
    write_ns,
    /// Nanoseconds in sync calls of the commit stream.
    sync_ns,
    /// Flushes that staged groups.
    stagings,
    /// How often staged groups were written to their segments and synced.
    drains,
    /// How often a flush found all staging buffers full, and wrote one to its segments.
    staging_waits,
    /// How often the lock of the groups was taken.
    group_locks,
    /// How often the right to sync (the sync lock, leadership) was taken.
    sync_locks,
    /// Nanoseconds that committers waited for it.
    sync_lock_ns,
    /// Requests for durability that syncs completed: more than `syncs` where they are aggregated.
    requests_completed,
    /// How often a committer waited until another thread had made its commit durable.
    flush_waits,
    /// Nanoseconds of that.
    flush_wait_ns,
    /// How often a waiting committer was put to sleep.
    parks,
    /// Calls that woke sleeping committers.
    wakes,
    /// How often a leader found a group that was still being filled.
    fill_waits,
    /// How often admission had to flush for buffer credit.
    credit_waits,
    /// How often admission had to make a segment itself.
    segment_waits,
    /// Segments made anew.
    segments_created,
    /// Segments recycled.
    segments_recycled,
    /// Bytes of zeros written to files before they were segments of the commit stream, once for each file, or were of the
    /// reserve, and, where the file system takes no space without a write, before they were segments of the bulk stream.
    /// The segment in which the epoch begins is not counted.
    zero_bytes,
    /// Segments freed by the caller.
    segments_freed,
    /// Records of the bulk stream.
    bulk_records,
    /// Bytes of them, headers included.
    bulk_bytes,
    /// Bytes written to the bulk stream: records, the starts of segments.
    bulk_written_bytes,
    /// Of them: full records of nodes.
    node_bytes,
    /// Of them: leaf delta records.
    leaf_delta_bytes,
    /// Of them: chunks.
    chunk_bytes,
    /// Of them: values that were moved.
    moved_value_bytes,
    /// Sync calls on the bulk stream.
    bulk_syncs,
}

impl LogStats {
    /// Bytes of all records of nodes: full ones, and leaf delta records.
    pub fn node_record_bytes(&self) -> u64 {
        self.node_bytes + self.leaf_delta_bytes
    }

    /// Frames in a group, on average: how much one write consolidates.
    pub fn frames_per_group(&self) -> f64 {
        let groups = self.groups - self.marks;
        if groups == 0 { 0.0 } else { self.commits as f64 / groups as f64 }
    }

    /// Commits that one sync makes durable, on average.
    pub fn commits_per_sync(&self) -> f64 {
        if self.syncs == 0 { 0.0 } else { self.commits as f64 / self.syncs as f64 }
    }
}

pub(crate) fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Relaxed);
}
