//! Segments that must not be freed although no written tree refers to them: spills and checks pin them.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_env::Process;
use fulgurite_log::{ChunkPins, SpillId};
use fulgurite_types::Csn;
use parking_lot::Mutex;

use crate::snapshots::SlotRef;
use crate::space::view::SegmentUse;

/// The segments with chunks of transactions that no checkpoint covers yet. Such a segment must not be freed, even if no
/// written tree refers to it.
pub(crate) struct SpillPins {
    /// The process that opened the database; a child of `fork()` must not take the lock.
    process: Process,
    inner: Mutex<PinsInner>,
}

impl Default for SpillPins {
    fn default() -> SpillPins {
        SpillPins { process: Process::current(), inner: Mutex::default() }
    }
}

#[derive(Default)]
struct PinsInner {
    segments: BTreeMap<u32, SpillPin>,
    open: BTreeMap<SpillId, OpenSpill>,
    /// Committed spills, until the checkpoints of both superblock copies cover them.
    committed: BTreeMap<Csn, Vec<u32>>,
}

/// A spill whose transaction has not committed.
struct OpenSpill {
    /// The transaction's snapshot: if it was ended, the transaction does not commit (INV-TXN-15). A transaction of another node has none here.
    snapshot: Option<SlotRef>,
    pinned: Vec<u32>,
}

/// The pins of one segment.
#[derive(Default)]
struct SpillPin {
    /// How many open spills have chunks in it.
    open: u32,
    /// How many committed ones above the replay position have, and the newest of these commits.
    committed: u32,
    newest: Csn,
    /// When the first of them began, in monotonic nanoseconds; 0: before the database was opened.
    since_ns: u64,
}

impl SpillPins {
    /// Pins a segment for an open spill, unless it is the last that it pinned. Called for each chunk while the segment
    /// cannot be freed yet: else another thread could fill it, find it dead, and free it before it is pinned.
    /// `since_ns`: when the spill began.
    pub fn pin(&self, spill: SpillId, snapshot: Option<&SlotRef>, segment: u32, since_ns: u64) {
        let mut inner = self.inner.lock();
        let PinsInner { segments, open, .. } = &mut *inner;
        let spill = open
            .entry(spill)
            .or_insert_with(|| OpenSpill { snapshot: snapshot.cloned(), pinned: Vec::new() });
        if spill.pinned.last() != Some(&segment) {
            let pin = segments.entry(segment).or_insert(SpillPin { since_ns, ..SpillPin::default() });
            pin.open += 1;
            pin.since_ns = pin.since_ns.min(since_ns);
            spill.pinned.push(segment);
        }
    }

    /// The commit has its number: the pins of its spill stay until checkpoints cover it.
    pub fn committed(&self, csn: Csn, spill: SpillId) {
        let mut inner = self.inner.lock();
        let Some(OpenSpill { pinned, .. }) = inner.open.remove(&spill) else { return };
        for segment in &pinned {
            let pin = inner.segments.get_mut(segment).expect("an open spill pins it");
            (pin.open, pin.committed) = (pin.open - 1, pin.committed + 1);
            pin.newest = pin.newest.max(csn);
        }
        inner.committed.entry(csn).or_default().extend(pinned);
    }

    /// Ends the pins of a spill that was not committed. Does nothing in a child of `fork()`.
    pub fn unpin_spill(&self, spill: SpillId) {
        if self.process.is_current() {
            let mut inner = self.inner.lock();
            if let Some(OpenSpill { pinned, .. }) = inner.open.remove(&spill) {
                unpin(&mut inner, pinned, |pin| &mut pin.open);
            }
        }
    }

    /// Ends the pins of the spills whose transactions were ended.
    pub fn release_ended(&self) {
        let mut inner = self.inner.lock();
        let ended =
            inner.open.values_mut().filter(|spill| spill.snapshot.as_ref().is_some_and(SlotRef::has_ended));
        let pinned = ended.flat_map(|spill| std::mem::take(&mut spill.pinned)).collect();
        unpin(&mut inner, pinned, |pin| &mut pin.open);
    }

    /// Pins a segment for a commit that recovery found in the log.
    pub fn pin_recovered(&self, csn: Csn, segment: u32) {
        let mut inner = self.inner.lock();
        if inner.committed.get(&csn).is_some_and(|pinned| pinned.last() == Some(&segment)) {
            return;
        }
        let pin = inner.segments.entry(segment).or_default();
        (pin.committed, pin.newest) = (pin.committed + 1, pin.newest.max(csn));
        inner.committed.entry(csn).or_default().push(segment);
    }

    /// The commit after which the segments with chunks have about so many bytes, one commit's at least; `Csn::ZERO` if all have fewer.
    pub fn csn_before(&self, bytes: u64, bytes_of: impl Fn(u32) -> u64) -> Csn {
        let inner = self.inner.lock();
        let (mut seen, mut sum) = (BTreeSet::new(), 0);
        for (csn, segments) in inner.committed.iter().rev() {
            if sum > bytes {
                return *csn;
            }
            sum +=
                segments.iter().filter(|segment| seen.insert(**segment)).map(|n| bytes_of(*n)).sum::<u64>();
        }
        Csn::ZERO
    }

    /// Whether a segment is pinned for commits at or below `covered` alone: those that a replicated log keeps for other nodes.
    pub fn is_kept(&self, segment: u32, covered: Csn) -> bool {
        let inner = self.inner.lock();
        inner.segments.get(&segment).is_some_and(|pin| pin.open == 0 && pin.newest <= covered)
    }

    /// Unpins the segments of the commits at or below `csn`: the checkpoints of both superblock copies cover them.
    pub fn release_up_to(&self, csn: Csn) {
        let mut inner = self.inner.lock();
        let rest = inner.committed.split_off(&csn.next());
        for segments in std::mem::replace(&mut inner.committed, rest).into_values() {
            unpin(&mut inner, segments, |pin| &mut pin.committed);
        }
    }

    /// For which spills a segment is pinned, and since when, in monotonic nanoseconds.
    pub fn pinned(&self, segment: u32) -> Option<(SegmentUse, u64)> {
        let inner = self.inner.lock();
        let pin = inner.segments.get(&segment)?;
        Some((if pin.open > 0 { SegmentUse::Transaction } else { SegmentUse::Uncovered }, pin.since_ns))
    }

    /// Whether a segment is pinned.
    pub fn holds(&self, segment: u32) -> bool {
        self.inner.lock().segments.contains_key(&segment)
    }
}

/// Those of commits that another node made.
impl ChunkPins for SpillPins {
    fn pin(&self, spill: SpillId, segment: u32, now_ns: u64) {
        self.pin(spill, None, segment, now_ns);
    }

    fn committed(&self, csn: Csn, spill: SpillId) {
        self.committed(csn, spill);
    }

    fn unpin(&self, spill: SpillId) {
        self.unpin_spill(spill);
    }
}

fn unpin(inner: &mut PinsInner, segments: Vec<u32>, count: impl Fn(&mut SpillPin) -> &mut u32) {
    for segment in segments {
        if let Some(pin) = inner.segments.get_mut(&segment) {
            *count(pin) -= 1;
            if pin.open + pin.committed == 0 {
                inner.segments.remove(&segment);
            }
        }
    }
}

/// The running checks: each pins the segments that existed when it began.
#[derive(Default)]
pub(crate) struct CheckPins(Mutex<Vec<RunningCheck>>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct RunningCheck {
    /// The newest segment that it may read.
    newest: u32,
    /// When it began, in monotonic nanoseconds.
    since_ns: u64,
}

impl CheckPins {
    /// Whether a running check may read the segment.
    pub fn hold(&self, segment: u32) -> bool {
        self.held_since(segment).is_some()
    }

    /// When the first running check began that may read the segment.
    pub fn held_since(&self, segment: u32) -> Option<u64> {
        let running = self.0.lock();
        let readers = running.iter().filter(|check| segment <= check.newest);
        readers.map(|check| check.since_ns).min()
    }

    /// `newest` is the newest segment that a check may read which begins at `since_ns`.
    pub fn pin(&self, newest: u32, since_ns: u64) -> CheckPin<'_> {
        let check = RunningCheck { newest, since_ns };
        self.0.lock().push(check);
        CheckPin { pins: self, check }
    }
}

/// A running check; its drop unpins the segments.
pub(crate) struct CheckPin<'c> {
    pins: &'c CheckPins,
    check: RunningCheck,
}

impl Drop for CheckPin<'_> {
    fn drop(&mut self) {
        let mut running = self.pins.0.lock();
        let own = running.iter().position(|check| *check == self.check).expect("it is running");
        running.swap_remove(own);
    }
}
