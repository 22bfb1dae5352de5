//! A sparse index from CSNs to groups, in memory: one entry per 64 KiB of commit stream.

use super::watermarks::Tip;
use fulgurite_types::{Csn, Lsn};
use std::collections::VecDeque;

const SPACING_BYTES: u64 = 64 * 1024;

/// The index, and the tip: the durable end of the stream.
#[derive(Debug)]
pub(crate) struct ReplayIndex {
    /// A group's first CSN and LSN, both rising.
    entries: VecDeque<(Csn, Lsn)>,
    bytes_since: u64,
    tip: Tip,
}

impl ReplayIndex {
    /// For a log in which everything up to `tip` is durable.
    pub fn new(tip: Tip) -> ReplayIndex {
        ReplayIndex { entries: VecDeque::new(), bytes_since: SPACING_BYTES, tip }
    }

    /// Adds a group, with frames or not, that recovery found or that becomes durable now.
    pub fn group(&mut self, first_csn: Csn, start: Lsn, bytes: u32) {
        if self.bytes_since >= SPACING_BYTES {
            self.entries.push_back((first_csn, start));
            self.bytes_since = 0;
        }
        self.bytes_since += u64::from(bytes);
    }

    /// Makes the next group an entry: it begins an epoch or a segment.
    pub fn mark(&mut self) {
        self.bytes_since = SPACING_BYTES;
    }

    pub fn set_tip(&mut self, tip: Tip) {
        self.tip = tip;
    }

    pub fn tip(&self) -> Tip {
        self.tip
    }

    /// The LSN of a group at or before the frame after `after`; the tip if that frame is not durable yet; `None` if the
    /// index was trimmed past it.
    pub fn find(&self, after: Csn) -> Option<Lsn> {
        if after >= self.tip.csn {
            return Some(self.tip.lsn);
        }
        let index = self.entries.partition_point(|&(first, _)| first <= after.next());
        Some(self.entries[index.checked_sub(1)?].1)
    }

    /// The oldest CSN after which the index finds every frame.
    pub fn oldest(&self) -> Csn {
        self.entries.front().map_or(self.tip.csn, |&(first, _)| first.prev())
    }

    /// Drops groups whose frames are all after `csn`, where the log was cut off.
    pub fn cut(&mut self, csn: Csn) {
        while self.entries.back().is_some_and(|&(first, _)| first > csn.next()) {
            self.entries.pop_back();
        }
    }

    /// Drops entries that serve only to find frames at or below `csn`.
    pub fn drop_before(&mut self, csn: Csn) {
        while self.entries.len() > 1 && self.entries[1].0 <= csn.next() {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_group_at_or_before() {
        let mut index = ReplayIndex::new(Tip { csn: Csn(0), lsn: Lsn::new(1, 4096) });
        for group in 0..10u32 {
            index.group(Csn(u64::from(group) * 5 + 1), Lsn::new(1, 4096 + group * 40_000), 40_000);
        }
        index.set_tip(Tip { csn: Csn(50), lsn: Lsn::new(1, 404_096) });
        assert_eq!(index.find(Csn(0)), Some(Lsn::new(1, 4096)));
        assert_eq!(index.find(Csn(9)), Some(Lsn::new(1, 4096)));
        assert_eq!(index.find(Csn(10)), Some(Lsn::new(1, 84_096)));
        assert_eq!(index.find(Csn(50)), Some(Lsn::new(1, 404_096)));
        index.drop_before(Csn(12));
        assert_eq!(index.find(Csn(12)), Some(Lsn::new(1, 84_096)));
        assert_eq!(index.find(Csn(3)), None);
        assert_eq!(index.oldest(), Csn(10));
    }
}
