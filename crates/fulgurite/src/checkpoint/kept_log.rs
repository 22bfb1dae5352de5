//! How much log stays that no checkpoint needs: in a replicated log so much that a node which was away for a while gets the entries that it
//! lacks from any other, also from one that was opened since. Replay begins before it, and delivers what the checkpoint does not cover.

use super::growth::LogGrowth;
use crate::space::Space;
use fulgurite_log::Log;
use fulgurite_types::Csn;
use parking_lot::Mutex;

/// The log that is kept.
pub(super) struct KeptLog {
    /// The commits after which the two copies of the superblock find all.
    copies: [Csn; 2],
}

impl KeptLog {
    /// Of a log that was just opened.
    pub fn recovered(log: &Log) -> KeptLog {
        KeptLog { copies: [log.oldest_csn(); 2] }
    }

    /// A checkpoint covers the commits up to `covered`: returns the commit after which the log is to be kept, for [`Log::replay_point`].
    /// In a replicated log that leaves the share of the log that a checkpoint may leave to replay, about, and as much of segments with the
    /// chunks of its commits.
    pub fn keep(log: &Log, covered: Csn, growth: &LogGrowth, space: &Mutex<Space>) -> Csn {
        if log.role().is_none() {
            return covered;
        }
        let share = growth.share();
        log.csn_before(share).max(space.lock().chunks_before(share)).min(covered)
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
