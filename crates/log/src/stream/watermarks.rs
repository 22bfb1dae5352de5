//! The watermarks of the commit stream: raised here, and in no other file. Each is the end of the bytes that it speaks
//! of.
//!
//! ```text
//! synced <= written <= filled <= reserved        synced <= durable <= filled
//! ```
//!
//! INV-LOG-1: that is their order, and none falls. `durable` passes a byte only if its own write was data-synchronous,
//! or a flush of the device began after that write had completed, or the operator asserted that the device's cache
//! survives a power cut. The callers of [`Progress::raise_durable`] and [`Progress::raise_synced`] vouch for the write
//! and the flush; the order is asserted at each raise. All bytes become durable by a write to their segment, or are staged first
//! (`staging/mod.rs`), so that assertion is stricter: `durable <= written`. The staged commits counts as written: it has left the groups.
//!
//! `reserved` and `filled` are how far the groups have come (`groups/queue.rs`), and nothing is written that is not
//! filled. The others belong to [`Progress`]. One thread at a time raises each: `written` the holder of the writer's
//! lock, or of the right to append to staging buffers, `durable` and `synced` the flush leader or, in a scheme that syncs apart from writing, the holder of the sync
//! lock. [`Progress`] also has the index from CSNs to LSNs, whose tip is `durable`.

use super::groups::{Group, GroupOf};
use super::stamp::Known;
use crate::error::LogError;
use crate::format::Agreed;
use crate::segments::Segment;
use crossbeam_utils::CachePadded;
use fulgurite_types::sync::{AtomicU64, Mutex};
use fulgurite_types::{Csn, EntryId, Lsn, limits};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many bytes of commit stream an entry of the index stands for.
const SPACING_BYTES: u64 = 64 * 1024;

/// How far the commit stream has come. Each LSN is the end of the bytes that it speaks of. They are read one after the
/// other, in an order that keeps INV-LOG-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Synced to the device.
    pub synced: Lsn,
    /// Written to the segment, or staged.
    pub written: Lsn,
    /// Filled, without a gap.
    pub filled: Lsn,
    /// Reserved.
    pub reserved: Lsn,
    /// Durable: survives a power cut.
    pub durable: Lsn,
    /// The newest durable commit.
    pub durable_csn: Csn,
    /// The newest reserved commit.
    pub reserved_csn: Csn,
    /// In a replicated log, what a quorum has durably.
    pub agreed: Option<Agreed>,
    /// min(`durable_csn`, `agreed`): the newest commit that may be acknowledged.
    pub stable_csn: Csn,
    /// min(the newest synced commit, `agreed`): nothing at or below it can be undone.
    pub floor_csn: Csn,
}

impl Watermarks {
    /// Asserts their order (INV-LOG-1).
    ///
    /// # Panics
    /// If it does not hold.
    pub fn validate(&self) {
        let ordered = self.synced <= self.written
            && self.written <= self.filled
            && self.filled <= self.reserved
            && self.synced <= self.durable
            && self.durable <= self.filled
            && self.durable_csn <= self.reserved_csn
            && self.floor_csn <= self.stable_csn
            && self.stable_csn <= self.durable_csn
            && self.agreed.is_none_or(|agreed| self.stable_csn <= agreed.csn);
        assert!(ordered, "INV-LOG-1: the watermarks are out of order: {self:?}");
    }
}

/// The end of the stream, or of its durable bytes: the last commit, and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub csn: Csn,
    pub lsn: Lsn,
}

/// A group that is in its segment and not yet durable.
struct WrittenGroup {
    sequence: u64,
    first_csn: Csn,
    start: Lsn,
    /// Its last commit, and its end.
    tip: Tip,
    /// Whether it begins a segment.
    begins_segment: bool,
    /// What its header says.
    known: Known,
    /// The last entry up to its end, and the last before it.
    entry: EntryId,
    before: EntryId,
}

/// The written groups that are not durable, and the last of all written ones.
struct Written {
    /// In log order.
    groups: VecDeque<WrittenGroup>,
    last: LastWritten,
}

/// The last written group.
#[derive(Clone)]
pub(crate) struct LastWritten {
    /// A mark group has no commit of its own.
    pub sequence: u64,
    /// The newest written commit.
    pub csn: Csn,
    /// `None` if this opening of the log has written none.
    pub segment: Option<Arc<Segment>>,
}

/// What became durable.
pub(crate) struct Risen {
    /// The newest durable commit.
    pub csn: Csn,
    /// The newest one before: the same if a mark group became durable.
    pub before: Csn,
    /// Whether entries became durable.
    pub has_entries: bool,
    /// Whether a group is durable that begins a segment.
    pub has_new_segment: bool,
}

struct Marks {
    written: AtomicU64,
    written_csn: AtomicU64,
    durable: AtomicU64,
    durable_csn: AtomicU64,
    /// The end of what a flush of the device covered. It trails `durable` only where the cache is asserted to be
    /// power-safe.
    synced: AtomicU64,
    synced_csn: AtomicU64,
    /// The newest durable mark of a durable group, and what was agreed by it.
    marked_csn: AtomicU64,
    marked_agreed: AtomicU64,
}

/// The watermarks, and the groups that will raise them next. Lock order: `written`, then `index`.
pub(crate) struct Progress {
    marks: CachePadded<Marks>,
    written: Mutex<Written>,
    index: Mutex<ReplayIndex>,
}

impl Progress {
    /// With everything up to the tip of `index` durable, and `agreed` on record.
    pub fn new(index: ReplayIndex, agreed: Agreed) -> Progress {
        let tip = index.tip();
        let lsn = || AtomicU64::new(tip.lsn.0);
        let csn = || AtomicU64::new(tip.csn.0);
        let marks = Marks {
            written: lsn(),
            written_csn: csn(),
            durable: lsn(),
            durable_csn: csn(),
            synced: lsn(),
            synced_csn: csn(),
            marked_csn: csn(),
            marked_agreed: AtomicU64::new(agreed.index),
        };
        let last = LastWritten { sequence: 0, csn: tip.csn, segment: None };
        Progress {
            marks: CachePadded::new(marks),
            written: Mutex::new(Written { groups: VecDeque::new(), last }),
            index: Mutex::new(index),
        }
    }

    // Raising.

    /// Records groups that were just written, with what their headers say.
    pub fn raise_written(&self, run: &[Group], known: Known) {
        let last = &run[run.len() - 1];
        let mut written = self.written.lock();
        written.groups.extend(run.iter().map(|group| WrittenGroup {
            sequence: group.sequence,
            first_csn: group.first_csn,
            start: group.start(),
            tip: Tip { csn: group.last_csn(), lsn: group.end() },
            begins_segment: group.left.is_some(),
            known,
            entry: group.last_entry(),
            before: group.before,
        }));
        written.last = LastWritten {
            sequence: last.sequence,
            csn: last.last_csn(),
            segment: Some(Arc::clone(&last.segment)),
        };
        let before = Lsn(self.marks.written.load(Ordering::Relaxed));
        assert!(before <= run[0].start(), "INV-LOG-1: `written` is at {before}, after {}", run[0].start());
        self.marks.written.store(last.end().0, Ordering::Release);
        self.marks.written_csn.store(last.last_csn().0, Ordering::SeqCst);
    }

    /// Declares the written groups durable, up to group `up_to`. The caller knows that they were flushed, or need not
    /// be (INV-LOG-1). `None` if they were durable before.
    pub fn raise_durable(&self, up_to: u64) -> Option<Risen> {
        let before = self.durable_csn();
        let mut last = None;
        let mut has_new_segment = false;
        let mut written = self.written.lock();
        let mut index = self.index.lock();
        while let Some(group) = written.groups.pop_front_if(|group| group.sequence <= up_to) {
            if group.begins_segment {
                index.mark();
            }
            has_new_segment |= group.begins_segment;
            let bytes = (group.tip.lsn.0 - group.start.0) as u32;
            index.group(group.first_csn, group.start, bytes, group.before.index);
            last = Some(group);
        }
        let WrittenGroup { tip, known, entry, .. } = last?;
        let end = Lsn(self.marks.written.load(Ordering::Relaxed));
        let ordered = index.tip().lsn <= tip.lsn && tip.lsn <= end && before <= tip.csn;
        assert!(ordered, "INV-LOG-1: `durable` would be raised from {:?} to {tip:?}, of {end}", index.tip());
        let has_entries = index.tip_entry() != entry;
        index.set_tip(tip, entry);
        self.marks.durable.store(tip.lsn.0, Ordering::Release);
        self.marks.durable_csn.store(tip.csn.0, Ordering::SeqCst);
        self.marks.marked_csn.store(known.durable.0, Ordering::Relaxed);
        self.marks.marked_agreed.store(known.agreed.index, Ordering::Relaxed);
        Some(Risen { csn: tip.csn, before, has_entries, has_new_segment })
    }

    /// Raises `synced` to `durable`: a flush that began after all of that was written has ended.
    pub fn raise_synced(&self) {
        let tip = self.index.lock().tip();
        self.raise_synced_to(tip);
    }

    /// Raises `synced`, up to `durable` at most.
    pub fn raise_synced_to(&self, tip: Tip) {
        assert!(
            tip.lsn <= self.index.lock().tip().lsn,
            "INV-LOG-1: `synced` would be raised to {tip:?}, above `durable`"
        );
        let before = Lsn(self.marks.synced.load(Ordering::Relaxed));
        assert!(before <= tip.lsn, "INV-LOG-1: `synced` is at {before}, after {tip:?}");
        self.marks.synced.store(tip.lsn.0, Ordering::Release);
        self.marks.synced_csn.store(tip.csn.0, Ordering::SeqCst);
    }

    // Reading.

    pub fn written(&self) -> Lsn {
        Lsn(self.marks.written.load(Ordering::Acquire))
    }

    /// The newest commit that is written, or staged.
    pub fn staged_csn(&self) -> Csn {
        Csn(self.marks.written_csn.load(Ordering::SeqCst))
    }

    pub fn durable_csn(&self) -> Csn {
        Csn(self.marks.durable_csn.load(Ordering::SeqCst))
    }

    pub fn synced(&self) -> Lsn {
        Lsn(self.marks.synced.load(Ordering::Acquire))
    }

    pub fn synced_csn(&self) -> Csn {
        Csn(self.marks.synced_csn.load(Ordering::SeqCst))
    }

    /// Whether the durable CSN, or the agreed entry, is above those in all durable groups: a mark group has to say it.
    pub fn is_mark_due(&self, agreed_index: u64) -> bool {
        self.marks.marked_csn.load(Ordering::Relaxed) < self.durable_csn().0
            || self.marks.marked_agreed.load(Ordering::Relaxed) < agreed_index
    }

    /// The newest entry that a durable group says is agreed.
    pub fn marked_agreed(&self) -> u64 {
        self.marks.marked_agreed.load(Ordering::Relaxed)
    }

    /// The last written group.
    pub fn last_written(&self) -> LastWritten {
        self.written.lock().last.clone()
    }

    /// The newest written commit.
    pub fn written_csn(&self) -> Csn {
        self.written.lock().last.csn
    }

    /// Sequence number and last commit of the group of `csn`, if it is written and not durable.
    pub fn group_of(&self, csn: Csn) -> Option<GroupOf> {
        let written = self.written.lock();
        let index = written.groups.partition_point(|group| group.tip.csn < csn);
        let group = written.groups.get(index).filter(|group| group.first_csn <= csn)?;
        Some(GroupOf { sequence: group.sequence, last_csn: group.tip.csn })
    }

    // From CSNs to LSNs.

    /// The durable end.
    pub fn tip(&self) -> Tip {
        self.index.lock().tip()
    }

    /// The last durable entry.
    pub fn durable_entry(&self) -> EntryId {
        self.index.lock().tip_entry()
    }

    /// The LSN of a group at or before the entry after `after`; the tip if that is not durable yet. `None` if the index was trimmed
    /// past it.
    pub fn find_entry(&self, after: u64) -> Option<Lsn> {
        self.index.lock().find_entry(after)
    }

    /// The LSN of a group at or before the frame after `after`; the tip if that frame is not durable yet.
    pub fn find(&self, after: Csn) -> Result<Lsn, LogError> {
        let index = self.index.lock();
        index.find(after).ok_or_else(|| LogError::TooOld { after, oldest: index.oldest() })
    }

    /// A commit after which there are about so many bytes of groups, as far as the index reaches.
    pub fn csn_before(&self, bytes: u64) -> Csn {
        self.index.lock().csn_before(bytes)
    }

    /// Like [`Progress::find`], for a replicated log: a group at or before the entry of `after`, which may be the last one that stays, and
    /// before all entries without frames that follow. `None` if the index was trimmed past it.
    pub fn find_replicated(&self, after: Csn) -> Option<Lsn> {
        self.index.lock().find_replicated(after)
    }

    /// The oldest CSN after which the index finds every frame.
    pub fn oldest(&self) -> Csn {
        self.index.lock().oldest()
    }

    /// Drops index entries that serve only to find frames at or below `csn`.
    pub fn drop_before(&self, csn: Csn) {
        self.index.lock().drop_before(csn);
    }
}

/// Where a group begins.
#[derive(Clone, Copy, Debug)]
struct GroupStart {
    first_csn: Csn,
    lsn: Lsn,
    /// The index of the last entry before it.
    entry_before: u64,
    /// Bytes of all groups before it, from where the index began.
    bytes_before: u64,
}

/// A sparse index from CSNs to groups, in memory: one entry per 64 KiB of commit stream. And the tip, the durable end
/// of the stream.
#[derive(Debug)]
pub(crate) struct ReplayIndex {
    /// Both numbers rise.
    entries: VecDeque<GroupStart>,
    bytes_since: u64,
    bytes: u64,
    tip: Tip,
    tip_entry: EntryId,
}

impl ReplayIndex {
    /// For a log in which everything up to `tip` is durable.
    pub fn new(tip: Tip) -> ReplayIndex {
        ReplayIndex {
            entries: VecDeque::new(),
            bytes_since: SPACING_BYTES,
            bytes: 0,
            tip,
            tip_entry: EntryId::default(),
        }
    }

    /// Adds a group, with frames or not, that recovery found or that becomes durable now.
    pub fn group(&mut self, first_csn: Csn, start: Lsn, bytes: u32, entry_before: u64) {
        if self.bytes_since >= SPACING_BYTES {
            let bytes_before = self.bytes;
            self.entries.push_back(GroupStart { first_csn, lsn: start, entry_before, bytes_before });
            self.bytes_since = 0;
        }
        self.bytes_since += u64::from(bytes);
        self.bytes += u64::from(bytes);
    }

    /// Makes the next group an entry: it begins an epoch or a segment.
    pub fn mark(&mut self) {
        // It takes a segment, however little is in it.
        self.bytes += u64::from(limits::SEGMENT_BYTES_MIN);
        self.bytes_since = SPACING_BYTES;
    }

    pub fn set_tip(&mut self, tip: Tip, entry: EntryId) {
        (self.tip, self.tip_entry) = (tip, entry);
    }

    pub fn tip_entry(&self) -> EntryId {
        self.tip_entry
    }

    /// The LSN of a group at or before the entry after `after`; the tip if that is not durable yet; `None` if the index was trimmed past
    /// it.
    pub fn find_entry(&self, after: u64) -> Option<Lsn> {
        if after >= self.tip_entry.index {
            return Some(self.tip.lsn);
        }
        let index = self.entries.partition_point(|group| group.entry_before <= after);
        Some(self.entries[index.checked_sub(1)?].lsn)
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
        let index = self.entries.partition_point(|group| group.first_csn <= after.next());
        Some(self.entries[index.checked_sub(1)?].lsn)
    }

    /// Like [`ReplayIndex::find`], but at or before the group of `after` itself, where that is known.
    pub fn find_replicated(&self, after: Csn) -> Option<Lsn> {
        let index = self.entries.partition_point(|group| group.first_csn <= after).saturating_sub(1);
        Some(self.entries.get(index)?).filter(|group| group.first_csn <= after.next()).map(|group| group.lsn)
    }

    /// The oldest CSN after which the index finds every frame.
    pub fn oldest(&self) -> Csn {
        self.entries.front().map_or(self.tip.csn, |group| group.first_csn.prev())
    }

    /// A commit after which there are about so many bytes of groups; the oldest after which the index finds all, if there are fewer.
    pub fn csn_before(&self, bytes: u64) -> Csn {
        let start = self.bytes.saturating_sub(bytes);
        let index = self.entries.partition_point(|group| group.bytes_before <= start).saturating_sub(1);
        self.entries.get(index).map_or(self.tip.csn, |group| group.first_csn.prev())
    }

    /// Drops groups whose frames are all after `csn`, where the log was cut off.
    pub fn cut(&mut self, csn: Csn, end: Lsn) {
        let is_cut = |group: &mut GroupStart| group.lsn >= end || group.first_csn > csn.next();
        while let Some(group) = self.entries.pop_back_if(is_cut) {
            self.bytes = group.bytes_before;
        }
    }

    /// Drops entries that serve only to find frames at or below `csn`.
    pub fn drop_before(&mut self, csn: Csn) {
        while self.entries.len() > 1 && self.entries[1].first_csn <= csn.next() {
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
            index.group(Csn(u64::from(group) * 5 + 1), Lsn::new(1, 4096 + group * 40_000), 40_000, 0);
        }
        index.set_tip(Tip { csn: Csn(50), lsn: Lsn::new(1, 404_096) }, EntryId::default());
        assert_eq!(index.find(Csn(0)), Some(Lsn::new(1, 4096)));
        assert_eq!(index.find(Csn(9)), Some(Lsn::new(1, 4096)));
        assert_eq!(index.find(Csn(10)), Some(Lsn::new(1, 84_096)));
        assert_eq!(index.find(Csn(50)), Some(Lsn::new(1, 404_096)));
        assert_eq!(
            [0, 39_999, 40_000, 40_001, 100_000].map(|bytes| index.csn_before(bytes)),
            [40, 40, 40, 40, 30].map(Csn)
        );
        assert_eq!((index.csn_before(399_999), index.csn_before(u64::MAX)), (Csn(0), Csn(0)));
        index.drop_before(Csn(12));
        assert_eq!(index.csn_before(u64::MAX), Csn(10));
        assert_eq!(index.find(Csn(12)), Some(Lsn::new(1, 84_096)));
        assert_eq!(index.find(Csn(3)), None);
        assert_eq!(index.oldest(), Csn(10));
    }
}
