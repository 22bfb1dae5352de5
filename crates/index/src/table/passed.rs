//! The run of keys that a cursor is stepping over because its reader does not see them.

use fulgurite_types::Csn;

use super::ReadPoint;
use crate::memtables::EmptyRange;
use crate::version::VersionRef;

/// A run of so many keys is recorded as an empty range.
pub(super) const KEYS_MIN: u32 = if cfg!(test) { 2 } else { 32 };

/// A long run is recorded in parts, each twice as long as the one before it up to this: so little of it is lost if the
/// scan ends inside it, and little is looked at again to record it.
const PART_KEYS_MAX: u32 = 4096;

/// At each of the first keys of a run, and then at each 16th, a cursor asks whether the range around it is known.
const KEYS_PER_ASK: u32 = 16;
const FIRST_ASKS: u32 = 3;

/// A run, so far.
#[derive(Default)]
pub(super) struct Passed {
    keys: u32,
    /// How many keys the part has that is recorded next.
    part_keys: u32,
    /// Going forward the first key, going backward the first key behind the run: where the last one that is known ended,
    /// if it touches it.
    begin: Vec<u8>,
    has_begin: bool,
    /// Readers from here on do not see the keys either.
    since: ReadPoint,
}

impl Passed {
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.has_begin
    }

    /// The next key is in no run that has begun.
    pub fn restart(&mut self) {
        self.has_begin = false;
        self.part_keys = KEYS_MIN;
        self.keys = 0;
        self.since = ReadPoint::default();
    }

    /// A run begins behind a range that is known.
    pub fn continue_from(&mut self, place: &[u8]) {
        self.keys = 0;
        self.since = ReadPoint::default();
        self.begin.clear();
        self.begin.extend_from_slice(place);
        self.has_begin = true;
    }

    pub fn asks(&self) -> bool {
        self.keys < FIRST_ASKS || self.keys.is_multiple_of(KEYS_PER_ASK)
    }

    /// One more key; whether a part is complete.
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
        self.keys == self.part_keys
    }

    /// The run that ends before `key`, if it is long enough; another part of it may follow.
    pub fn take(&mut self, key: &[u8], forward: bool) -> Option<EmptyRange> {
        if self.keys < KEYS_MIN {
            return None;
        }
        let mut place = key.to_vec();
        if !forward {
            place.push(0);
        }
        let (keys, since) = (self.keys.into(), self.since);
        let begin = std::mem::replace(&mut self.begin, place.clone());
        self.keys = 0;
        self.since = ReadPoint::default();
        self.part_keys = self.part_keys.saturating_mul(2).min(PART_KEYS_MAX);
        let (start, end) = if forward { (begin, place) } else { (place, begin) };
        Some(EmptyRange { start, end, since, keys })
    }
}

/// From which reader on a version, the newest that a reader finds of its key, is not seen because it is a tombstone, is
/// hidden by the range delete at `deleted`, or has expired.
pub(super) fn unseen_since(version: VersionRef<'_>, deleted: Option<Csn>) -> ReadPoint {
    if version.flags.is_tombstone() {
        return ReadPoint { csn: version.csn, now_ms: 0 };
    }
    match deleted.filter(|deleted| *deleted > version.csn) {
        Some(csn) => ReadPoint { csn, now_ms: 0 },
        None => ReadPoint { csn: version.csn, now_ms: version.expires_at_ms },
    }
}
