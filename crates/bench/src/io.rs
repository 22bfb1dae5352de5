//! Reads, writes and syncs, counted by kind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

/// A struct of numbers that only grow, and their differences.
macro_rules! counts {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// How many counts there are.
            pub const LEN: usize = [$(stringify!($field)),*].len();

            /// From the counts, in the order of the fields.
            pub fn of([$($field),*]: [u64; $name::LEN]) -> $name {
                $name { $($field,)* }
            }

            /// The counts since `before`.
            pub fn since(&self, before: &$name) -> $name {
                $name { $($field: self.$field.saturating_sub(before.$field),)* }
            }
        }
    };
}
pub(crate) use counts;

counts! {
    /// Calls to the operating system for files, and their bytes.
    ///
    /// A write is *sequential* if it begins where the last one to the same file ended, or in the last block of 4 KiB that
    /// that one wrote, as an appended log does; otherwise it is *random*. A write that returns when it is durable counts
    /// as a write and as a sync.
    pub struct IoCounts {
        /// Read calls.
        reads,
        /// Bytes they read.
        read_bytes,
        /// Sequential write calls.
        sequential_writes,
        /// Bytes they wrote.
        sequential_bytes,
        /// Other write calls.
        random_writes,
        /// Bytes they wrote.
        random_bytes,
        /// Calls that returned when data was durable.
        syncs,
        /// Nanoseconds in these calls, of all threads together.
        sync_ns,
    }
}

/// A write that begins in the last block of the previous one is sequential.
const BLOCK_BYTES: u64 = 4096;

/// Has cache lines of its own, so that threads that count different things do not wait for each other.
type Counter = CachePadded<AtomicU64>;

/// Counts the calls of all threads, in the order of the fields of [`IoCounts`].
#[derive(Debug)]
pub struct IoCounters([Counter; IoCounts::LEN]);

impl IoCounters {
    /// Nothing is counted yet.
    #[expect(clippy::new_without_default, reason = "it is the content of statics")]
    pub const fn new() -> IoCounters {
        IoCounters([const { Counter::new(AtomicU64::new(0)) }; IoCounts::LEN])
    }

    fn add(&self, call: usize, amount: u64) {
        self.0[call].fetch_add(1, Relaxed);
        self.0[call + 1].fetch_add(amount, Relaxed);
    }

    /// A read of so many bytes.
    pub fn read(&self, bytes: u64) {
        self.add(0, bytes);
    }

    /// A write to the file whose last write ended at `end`.
    pub fn write(&self, end: &AtomicU64, offset: u64, bytes: u64) {
        let before = end.swap(offset + bytes, Relaxed);
        let last_block = before.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
        let is_next = (last_block..=before).contains(&offset);
        self.add(if is_next { 2 } else { 4 }, bytes);
    }

    /// A sync that took so long.
    pub fn sync(&self, ns: u64) {
        self.add(6, ns);
    }

    /// All until now.
    pub fn counts(&self) -> IoCounts {
        IoCounts::of(self.0.each_ref().map(|counter| counter.load(Relaxed)))
    }
}
