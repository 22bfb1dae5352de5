//! The groups that are written and not yet durable, and how they become durable.

use crate::core::Core;
use crate::format::GroupKind;
use crate::groups::Group;
use crate::segment::Segment;
use crate::stats::add;
use fulgurite_types::{Csn, Lsn};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A group that is in its segment and not yet durable.
pub(crate) struct Written {
    pub sequence: u64,
    first_csn: Csn,
    pub last_csn: Csn,
    start: Lsn,
    end: Lsn,
    /// Whether it begins a segment.
    moved: bool,
    /// The durable mark of its header.
    mark: Csn,
}

/// The written groups that are not durable, and the end of the writes.
pub(crate) struct Progress {
    /// In log order.
    written: VecDeque<Written>,
    /// The segment written last.
    pub segment: Option<Arc<Segment>>,
    /// The newest written commit.
    pub newest: Csn,
    /// The last written group; a mark group has no commit of its own.
    pub last: u64,
}

impl Progress {
    /// With everything up to `newest` durable.
    pub fn at(newest: Csn) -> Progress {
        Progress { written: VecDeque::new(), segment: None, newest, last: 0 }
    }

    /// The group of a commit that is written and not durable.
    pub fn group_of(&self, csn: Csn) -> Option<&Written> {
        let index = self.written.partition_point(|group| group.last_csn < csn);
        self.written.get(index).filter(|group| group.first_csn <= csn)
    }
}

impl Core {
    /// Records groups that were just written, with the durable mark of their headers.
    pub fn raise_written(&self, run: &[Group], mark: Csn) {
        let last = &run[run.len() - 1];
        let mut progress = self.progress.lock();
        progress.written.extend(run.iter().map(|group| Written {
            sequence: group.sequence,
            first_csn: group.first_csn,
            last_csn: group.last_csn(),
            start: group.start(),
            end: group.end(),
            moved: group.ends.is_some(),
            mark,
        }));
        progress.segment = Some(Arc::clone(&last.segment));
        progress.newest = last.last_csn();
        progress.last = last.sequence;
        self.watermarks.written.store(last.end().0, Ordering::Release);
        drop(progress);
        let marks = run.iter().filter(|group| group.kind == GroupKind::Mark).count();
        add(&self.stats.groups, run.len() as u64);
        add(&self.stats.marks, marks as u64);
    }

    /// Declares the written groups durable, up to group `up_to`, and calls the observer. INV-LOG-1: the caller knows
    /// that they were flushed, or need not be. One caller at a time: the leader, or the holder of the sync lock.
    pub fn raise_durable(&self, up_to: u64) {
        let before = self.durable_csn();
        let mut last = None;
        let mut moved = false;
        let mut progress = self.progress.lock();
        let mut index = self.index.lock();
        while let Some(group) = progress.written.pop_front_if(|group| group.sequence <= up_to) {
            if group.moved {
                index.mark();
            }
            moved |= group.moved;
            index.group(group.first_csn, group.start, (group.end.0 - group.start.0) as u32);
            last = Some(group);
        }
        let Some(last) = last else { return };
        index.set_tip(last.last_csn, last.end);
        self.watermarks.durable.store(last.end.0, Ordering::Release);
        self.watermarks.durable_csn.store(last.last_csn.0, Ordering::SeqCst);
        self.watermarks.marked_csn.store(last.mark.0, Ordering::Relaxed);
        drop(index);
        drop(progress);
        if moved {
            self.supply.wake_asleep();
        }
        // A mark group is due.
        self.signal.wake_resting();
        // A mark group has no commit to announce.
        let observer = if last.last_csn > before { self.observer.read().clone() } else { None };
        if let Some(observer) = observer {
            observer(last.last_csn);
        }
    }

    /// Advances `synced`: a flush that began after everything durable was written has ended.
    pub fn raise_synced(&self) {
        let (csn, lsn) = self.index.lock().tip();
        self.watermarks.synced.store(lsn.0, Ordering::Release);
        self.watermarks.synced_csn.store(csn.0, Ordering::SeqCst);
    }
}
