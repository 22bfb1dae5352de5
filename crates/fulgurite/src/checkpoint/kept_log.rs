//! How much log stays that no checkpoint needs: in a replicated log so much that a node which was away for a while gets the entries that it
//! lacks from any other, also from one that was opened since. Replay begins before it, and delivers what the checkpoint does not cover.

use super::growth::LogGrowth;
use fulgurite_log::Log;
use fulgurite_types::Csn;
use std::collections::VecDeque;

/// The log that is kept.
pub(super) struct KeptLog {
    /// Boundaries of checkpoints, and how much log this life had written by then; the log after the first is kept.
    boundaries: VecDeque<(Csn, u64)>,
    /// The commits after which the two copies of the superblock find all.
    copies: [Csn; 2],
}

impl KeptLog {
    /// Of a log that was just opened.
    pub fn recovered(log: &Log) -> KeptLog {
        let oldest = log.oldest_csn();
        KeptLog { boundaries: VecDeque::from([(oldest, 0)]), copies: [oldest; 2] }
    }

    /// A checkpoint covers the commits up to `covered`: returns the commit after which the log is to be kept, for [`Log::replay_point`].
    /// In a replicated log that leaves at least the share of the log that a checkpoint may leave to replay.
    pub fn keep(&mut self, log: &Log, covered: Csn, growth: &LogGrowth) -> Csn {
        if log.role().is_none() {
            return covered;
        }
        let written = growth.written().total();
        self.boundaries.push_back((covered, written));
        while self.boundaries.len() > 1 && written.saturating_sub(self.boundaries[1].1) >= growth.share() {
            self.boundaries.pop_front();
        }
        self.boundaries[0].0.min(covered)
    }

    /// A copy of the superblock was written with this commit; ...
    pub fn noted(&mut self, kept: Csn) {
        self.copies = [self.copies[1], kept];
    }

    /// ... or with the same one again.
    pub fn noted_again(&mut self) {
        self.noted(self.copies[1]);
    }

    /// What both copies need.
    pub fn of_copies(&self) -> Csn {
        self.copies[0].min(self.copies[1])
    }
}
