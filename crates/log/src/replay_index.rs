//! Which group holds which CSN: one entry for every 64 KiB of commit stream, in memory.

use fulgurite_types::{Csn, Lsn};
use std::collections::VecDeque;

const SPACING_BYTES: u64 = 64 * 1024;

/// The sparse index and the tip of what is durable.
#[derive(Debug)]
pub(crate) struct ReplayIndex {
    /// First CSN and start of a group, both rising.
    entries: VecDeque<(Csn, Lsn)>,
    bytes_since: u64,
    tip: (Csn, Lsn),
}

impl ReplayIndex {
    /// Of a log in which everything up to `tip` is durable.
    pub fn new(tip: (Csn, Lsn)) -> ReplayIndex {
        ReplayIndex { entries: VecDeque::new(), bytes_since: SPACING_BYTES, tip }
    }

    /// Enters a group, frames or not, that was found or is about to be durable.
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

    pub fn set_tip(&mut self, csn: Csn, lsn: Lsn) {
        self.tip = (csn, lsn);
    }

    pub fn tip(&self) -> (Csn, Lsn) {
        self.tip
    }

    /// A group at or before the frame behind `after`; the tip if that is not durable yet; `None` if the index was
    /// trimmed past it.
    pub fn find(&self, after: Csn) -> Option<Lsn> {
        if after >= self.tip.0 {
            return Some(self.tip.1);
        }
        let index = self.entries.partition_point(|&(first, _)| first <= after.next());
        Some(self.entries[index.checked_sub(1)?].1)
    }

    /// The oldest CSN after which everything can be found.
    pub fn oldest(&self) -> Csn {
        self.entries.front().map_or(self.tip.0, |&(first, _)| first.prev())
    }

    /// Drops groups whose frames were all cut off behind `csn`.
    pub fn cut(&mut self, csn: Csn) {
        while self.entries.back().is_some_and(|&(first, _)| first > csn.next()) {
            self.entries.pop_back();
        }
    }

    /// Drops what is needed only to find frames at or below `csn`.
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
        let mut index = ReplayIndex::new((Csn(0), Lsn::new(1, 4096)));
        for group in 0..10u32 {
            index.group(Csn(u64::from(group) * 5 + 1), Lsn::new(1, 4096 + group * 40_000), 40_000);
        }
        index.set_tip(Csn(50), Lsn::new(1, 404_096));
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
