//! Counts of commands.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use fulgurite::Missing;

/// What commands wait for that are handed to workers, as `INFO` names it.
const REASONS: [&str; 8] = ["node", "value", "room", "merging", "chunks", "latch", "order", "size"];

/// Counts of the commands that were run.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    /// By I/O threads.
    pub inline: CachePadded<AtomicU64>,
    /// By workers.
    pub at_workers: CachePadded<AtomicU64>,
    /// Replies that ended in the middle, as a piece could not be read: their connections were closed.
    pub cut_replies: AtomicU64,
    handed_on: [AtomicU64; REASONS.len()],
}

impl Tallies {
    /// A command is handed to a worker.
    pub fn hand_on(&self, missing: Missing) {
        let index = match missing {
            Missing::Node => 0,
            Missing::Value => 1,
            Missing::Room => 2,
            Missing::Merging => 3,
            Missing::Chunks => 4,
            Missing::Latch => 5,
            _ => 6,
        };
        self.handed_on[index].fetch_add(1, Relaxed);
    }

    /// A command is handed to a worker because it is large.
    pub fn hand_on_for_size(&self) {
        self.handed_on[7].fetch_add(1, Relaxed);
    }

    /// Begins anew: `CONFIG RESETSTAT`.
    pub fn reset(&self) {
        let all = [&*self.inline, &*self.at_workers, &self.cut_replies].into_iter().chain(&self.handed_on);
        all.for_each(|count| count.store(0, Relaxed));
    }

    /// Why commands were handed on, and how many.
    pub fn handed_on(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(self.handed_on.iter().map(|count| count.load(Relaxed)))
    }
}
