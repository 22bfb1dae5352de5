//! Segments that must not be freed although no written tree refers to them: spills and checks pin them.

use std::collections::BTreeMap;

use fulgurite_env::Process;
use fulgurite_types::Csn;
use parking_lot::Mutex;

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
    /// How many open spills, and committed ones above the replay position, have chunks in a segment.
    segments: BTreeMap<u32, u32>,
    /// Committed spills, until the checkpoints of both superblock copies cover them.
    committed: BTreeMap<Csn, Vec<u32>>,
}

impl SpillPins {
    /// Pins a segment for an open spill, unless it is the last of `pinned`. Called for each chunk while the segment
    /// cannot be freed yet: else another thread could fill it, find it dead, and free it before it is pinned.
    pub fn pin(&self, pinned: &mut Vec<u32>, segment: u32) {
        if pinned.last() != Some(&segment) {
            *self.inner.lock().segments.entry(segment).or_default() += 1;
            pinned.push(segment);
        }
    }

    /// The commit has its number: the pins of its spill stay until checkpoints cover it.
    pub fn committed(&self, csn: Csn, pinned: Vec<u32>) {
        self.inner.lock().committed.entry(csn).or_default().extend(pinned);
    }

    /// Ends the pins of a spill that was not committed. Does nothing in a child of `fork()`.
    pub fn unpin_spill(&self, pinned: Vec<u32>) {
        if self.process.is_current() {
            SpillPins::unpin(&mut self.inner.lock(), pinned);
        }
    }

    fn unpin(inner: &mut PinsInner, segments: Vec<u32>) {
        for segment in segments {
            if let Some(count) = inner.segments.get_mut(&segment) {
                *count -= 1;
                if *count == 0 {
                    inner.segments.remove(&segment);
                }
            }
        }
    }

    /// Pins a segment for a commit that recovery found in the log.
    pub fn pin_recovered(&self, csn: Csn, segment: u32) {
        let mut inner = self.inner.lock();
        *inner.segments.entry(segment).or_default() += 1;
        inner.committed.entry(csn).or_default().push(segment);
    }

    /// Unpins the segments of the commits at or below `csn`: the checkpoints of both superblock copies cover them.
    pub fn release_up_to(&self, csn: Csn) {
        let mut inner = self.inner.lock();
        let rest = inner.committed.split_off(&csn.next());
        for segments in std::mem::replace(&mut inner.committed, rest).into_values() {
            SpillPins::unpin(&mut inner, segments);
        }
    }

    /// Whether a segment is pinned.
    pub fn holds(&self, segment: u32) -> bool {
        self.inner.lock().segments.contains_key(&segment)
    }
}

/// The running checks: each pins the segments that existed when it began.
#[derive(Default)]
pub(crate) struct CheckPins(Mutex<Vec<u32>>);

impl CheckPins {
    /// Whether a running check may read the segment.
    pub fn hold(&self, segment: u32) -> bool {
        self.0.lock().iter().any(|newest| segment <= *newest)
    }

    pub fn pin(&self, newest: u32) -> CheckPin<'_> {
        self.0.lock().push(newest);
        CheckPin { pins: self, newest }
    }
}

/// A running check; its drop unpins the segments.
pub(crate) struct CheckPin<'c> {
    pins: &'c CheckPins,
    newest: u32,
}

impl Drop for CheckPin<'_> {
    fn drop(&mut self) {
        let mut running = self.pins.0.lock();
        let own = running.iter().position(|newest| *newest == self.newest).expect("it is running");
        running.swap_remove(own);
    }
}
