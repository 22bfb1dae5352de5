//! Values that a merge leaves in the log. Until then their memtable has their bytes in memory. A merge puts them into the value
//! cache as it goes by, so that a database which fits its memory budget still finds them there; and takes out of the cache what
//! it replaces.
//!
//! **Never where memory is scarce.** A value goes into the cache only while it leaves as much of the budget free as eviction
//! would, and only if eviction has given nothing back during the last eight merges: in a database that is larger than its
//! budget a value that was only written would press out one that is read. It begins on probation, like one that was read once.
//!
//! The bytes are copied, because they share their memory with all that their commit wrote; the copy takes as much time as
//! reading them once. The memtable gives its own back when it is merged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fulgurite_index::OutOfLineValues;
use fulgurite_types::Lsn;

use crate::value_cache::ValueCache;

/// What merges do to cached values.
#[derive(Default)]
pub(crate) struct MergedValues {
    cache: Option<Arc<ValueCache>>,
    /// How many batches of evictions had begun when the last merge began.
    batches: AtomicU32,
    /// How many merges have begun since the last of them.
    quiet_merges: AtomicU32,
}

/// After eviction so many merges leave the cache alone.
const QUIET_MERGES: u32 = 8;

/// The values of one merge.
pub(crate) struct ValuesOfMerge<'a> {
    cache: Option<&'a ValueCache>,
    /// How many batches of evictions had begun when it began; `None` if the last one was a short while ago.
    batches: Option<u32>,
}

impl MergedValues {
    /// Of merges that use this cache.
    pub fn of(cache: Arc<ValueCache>) -> MergedValues {
        MergedValues { cache: Some(cache), ..MergedValues::default() }
    }

    /// A merge begins.
    pub fn begin(&self) -> ValuesOfMerge<'_> {
        let cache = self.cache.as_deref();
        let batches = cache.map_or(0, |cache| cache.memory().batches());
        if self.batches.swap(batches, Ordering::Relaxed) != batches {
            self.quiet_merges.store(0, Ordering::Relaxed);
        }
        let is_quiet = batches == 0 || self.quiet_merges.fetch_add(1, Ordering::Relaxed) >= QUIET_MERGES;
        ValuesOfMerge { cache, batches: is_quiet.then_some(batches) }
    }
}

impl OutOfLineValues for ValuesOfMerge<'_> {
    fn wants(&self, len: usize) -> bool {
        self.cache.is_some_and(|cache| {
            let memory = cache.memory();
            cache.takes(len as u64) && memory.has_room_for(len) && self.batches == Some(memory.batches())
        })
    }

    fn left(&self, lsn: Lsn, checksum: u32, value: &[u8]) {
        if let Some(cache) = self.cache {
            cache.offer(lsn, checksum, value);
        }
    }

    fn dropped(&self, lsn: Lsn) {
        if let Some(cache) = self.cache {
            cache.forget(lsn);
        }
    }
}
