//! The run of keys that a cursor steps over because its reader does not see them.

use fulgurite_types::Csn;

use super::ReadPoint;
use crate::memtables::EmptyRange;
use crate::version::VersionRef;

/// How many keys a run needs to be recorded as an empty range.
pub(super) const KEYS_MIN: u32 = if cfg!(test) { 2 } else { 32 };

/// A long run is recorded as several ranges, each twice as long as the one before, up to this many keys. So a scan that
/// ends inside a run loses little of it, and recording it re-reads little.
const RANGE_KEYS_MAX: u32 = 4096;

/// At each of the first keys of a run, and then at each 16th, a cursor checks whether a recorded range contains the
/// key.
const KEYS_PER_ASK: u32 = 16;
const FIRST_ASKS: u32 = 3;

/// A run in progress.
#[derive(Default)]
pub(super) struct Passed {
    keys: u32,
    /// How many keys the next recorded range has.
    range_keys: u32,
    /// Forward, the run's first key; backward, the first key after the run. If the run touches a recorded range, that
    /// range's end.
    begin: Vec<u8>,
    has_begin: bool,
    /// Readers at or above this read point do not see the keys either.
    since: ReadPoint,
}

impl Passed {
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.has_begin
    }

    /// Ends the run: the next unseen key starts another.
    pub fn restart(&mut self) {
        self.has_begin = false;
        self.range_keys = KEYS_MIN;
        self.keys = 0;
        self.since = ReadPoint::default();
    }

    /// Starts a run at `begin`: the end of a recorded range, or the first key.
    pub fn continue_from(&mut self, begin: &[u8]) {
        self.keys = 0;
        self.since = ReadPoint::default();
        self.begin.clear();
        self.begin.extend_from_slice(begin);
        self.has_begin = true;
    }

    pub fn asks(&self) -> bool {
        self.keys < FIRST_ASKS || self.keys.is_multiple_of(KEYS_PER_ASK)
    }

    /// Adds a key to the run; returns whether it is long enough to be recorded.
    pub fn add(&mut self, key: &[u8], forward: bool, since: ReadPoint) -> bool {
        if !self.has_begin {
            self.continue_from(key);
            if !forward {
                self.begin.push(0);
            }
        }
        self.keys += 1;
        self.since.csn = self.since.csn.max(since.csn);
        self.since.now_ms = self.since.now_ms.max(since.now_ms);
        self.keys == self.range_keys
    }

    /// Whether it is long enough to be recorded.
    pub fn is_long(&self) -> bool {
        self.keys >= KEYS_MIN
    }

    /// The run; it may continue. Forward, `edge` is the first key after it, and backward, its first key.
    pub fn take(&mut self, edge: Vec<u8>, forward: bool) -> EmptyRange {
        let (keys, since) = (self.keys.into(), self.since);
        let begin = std::mem::replace(&mut self.begin, edge.clone());
        self.keys = 0;
        self.since = ReadPoint::default();
        self.range_keys = self.range_keys.saturating_mul(2).min(RANGE_KEYS_MAX);
        let (start, end) = if forward { (begin, edge) } else { (edge, begin) };
        EmptyRange { start, end, since, keys }
    }
}

/// The read point from which on readers do not see a version, the newest that a reader finds of its key: it is a tombstone,
/// is hidden by the range tombstone at `deleted`, or has expired.
pub(super) fn unseen_since(version: VersionRef<'_>, deleted: Option<Csn>) -> ReadPoint {
    if version.flags.is_tombstone() {
        return ReadPoint { csn: version.csn, now_ms: 0 };
    }
    match deleted.filter(|deleted| *deleted > version.csn) {
        Some(csn) => ReadPoint { csn, now_ms: 0 },
        None => ReadPoint { csn: version.csn, now_ms: version.expires_at_ms },
    }
}
