//! How much garbage there may be: dead bytes in segments, and log that is not in the trees yet.
//!
//! INV-SPACE-6: while checkpoints succeed, the segments take at most 1.3 times the live bytes and twice the log's share, beside
//! those that are ready, or that a transaction, a check or a reader pins; however fast and long commits come. The checkpoints collect
//! garbage down to less ([`super::collecting`]). Where they cannot keep up, commits are slowed: what may still be written until the
//! bound is reached is spread over the time that the running checkpoint still needs. Between two looks at the accounts each byte that is
//! written counts as garbage: it makes at most as many dead.
//!
//! What the checkpoint is still to copy counts as written from its beginning, and its victims until they are freed: so commits are slowed
//! a little all the time that it takes, instead of much at its end.
//!
//! Merges of rows in no order have eviction write leaves, for each byte of the log ten and more. So what may still be written is counted in
//! such bytes, too: by as many as there were for each byte of the log since the last checkpoint began.
//!
//! No commit is slowed while no checkpoint runs. One that has to leave more garbage, because nothing can be moved, slows commits no
//! longer than it runs. What slowing commits would not make less is excused: the excess of a large transaction, which would slow those of
//! others, and the records of nodes that the checkpoint itself writes or copies.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::throttle::Pressure;

/// An amount of garbage.
#[derive(Clone, Copy)]
struct Amount {
    /// In percent of the live bytes.
    percent: u64,
    /// Beside that, in eighths of the log's share.
    eighths: u64,
}

/// The rest is spread over the time of the checkpoint from here on, ...
const SLOW_FROM: Amount = Amount { percent: 24, eighths: 6 };
/// ... it does not pause from here on, ...
const MUCH: Amount = Amount { percent: 28, eighths: 12 };
/// ... and there is never to be more.
const MAX: Amount = Amount { percent: 30, eighths: 15 };

/// The checkpoint does not pause, either, once this part of the log's share is left of the rest.
const HURRY_SHARE: u64 = 2;

/// However small the log's share is, this counts as one: a few segments always hold little.
const SHARE_MIN: u64 = 32 << 20;

/// However much garbage there is, commits may write this many bytes a second, ...
const BYTES_A_SECOND_MIN: u64 = 4 << 20;
/// ... of log this many, whatever eviction writes for it: a smaller budget has it write for other reasons, too, ...
const LOG_BYTES_A_SECOND_MIN: u64 = 64 << 10;
/// ... or this part of the log's share in the time that the checkpoint still needs, which is more where the device is fast: a commit
/// waits for as long as a little of the checkpoint, and not a tenth of a second.
const ROOM_SHARE: u64 = 32;
/// That goes on until there is so much more than there may be, however long the checkpoint takes.
const OVER_SHARE: u64 = 8;

/// What the segments take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentBytes {
    /// The segments that may come to be freed.
    pub all: u64,
    /// Live bytes in them.
    pub live: u64,
    /// Bytes in them for which no commit is slowed: the excess of large transactions, and the records that the running checkpoint
    /// has written beside those that they replace.
    pub excused: u64,
    /// What the running checkpoint is still to copy beside the victims.
    pub to_copy: u64,
}

/// What has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenBytes {
    /// [`LogGrowth::appended`](super::growth::LogGrowth::appended).
    pub appended: u64,
    /// Records that eviction has written.
    pub evicted: u64,
}

/// Less log than this says nothing about what eviction writes for it.
const APPENDED_MIN: u64 = 1 << 20;

impl WrittenBytes {
    /// How many bytes eviction wrote for a hundred of the log since `before`, if there was enough of it.
    fn evicted_percent(self, before: WrittenBytes) -> Option<u64> {
        let appended = self.appended - before.appended;
        (appended >= APPENDED_MIN).then(|| (self.evicted - before.evicted).saturating_mul(100) / appended)
    }
}

/// How far the log may grow, as the last look found it: in bytes of [`LogGrowth::appended`](super::growth::LogGrowth::appended).
pub(crate) struct GarbageBound {
    /// What was written when a checkpoint began, the last one unless little was written since, ...
    at_checkpoint: Mutex<WrittenBytes>,
    /// ... and what eviction wrote before that for a hundred bytes of the log.
    evicted_percent: AtomicU64,
    bytes_a_second_min: AtomicU64,
    slow_from: AtomicU64,
    much: AtomicU64,
    max: AtomicU64,
    /// A part of the log's share that commits may still write, however little is left, ...
    room_min: AtomicU64,
    /// ... up to here.
    room_min_until: AtomicU64,
}

impl GarbageBound {
    pub fn new() -> GarbageBound {
        let unknown = || AtomicU64::new(u64::MAX);
        let (room_min, room_min_until) = (AtomicU64::new(0), AtomicU64::new(0));
        GarbageBound {
            at_checkpoint: Mutex::default(),
            evicted_percent: AtomicU64::new(0),
            bytes_a_second_min: AtomicU64::new(BYTES_A_SECOND_MIN),
            slow_from: unknown(),
            much: unknown(),
            max: unknown(),
            room_min,
            room_min_until,
        }
    }

    /// A checkpoint begins.
    pub fn begin(&self, written: WrittenBytes) {
        let mut before = self.at_checkpoint.lock();
        if let Some(percent) = written.evicted_percent(*before) {
            self.evicted_percent.store(percent, Relaxed);
            *before = written;
        }
    }

    /// A look at the segments after at least `appended` bytes.
    pub fn look(&self, segments: SegmentBytes, share: u64, appended: u64) {
        let SegmentBytes { all, live, excused, to_copy } = segments;
        let share = share.max(SHARE_MIN);
        let allowed =
            |amount: Amount| live + live / 100 * amount.percent + share / 8 * amount.eighths + excused;
        // A byte of the log makes so many hundredths of a byte of garbage.
        let percent = u128::from(100 + self.evicted_percent.load(Relaxed));
        let of_log = |bytes: u64| (u128::from(bytes) * 100 / percent) as u64;
        let room = |allowed: u64| appended + of_log(allowed.saturating_sub(all));
        let max = allowed(MAX).saturating_sub(to_copy);
        let hurry = max.saturating_sub(share / HURRY_SHARE);
        self.bytes_a_second_min.store(of_log(BYTES_A_SECOND_MIN).max(LOG_BYTES_A_SECOND_MIN), Relaxed);
        self.room_min.store(of_log(share / ROOM_SHARE), Relaxed);
        self.slow_from.store(room(allowed(SLOW_FROM)), Relaxed);
        self.room_min_until.store(room(allowed(MAX) + share / OVER_SHARE), Relaxed);
        self.much.store(room(allowed(MUCH).min(hurry)), Relaxed);
        self.max.store(room(max), Relaxed);
    }

    /// Whether garbage is of what eviction writes, more than of the log: the growth of that, over which checkpoints are spread, is no measure
    /// for it then.
    pub fn is_of_evictions(&self) -> bool {
        self.evicted_percent.load(Relaxed) >= 100
    }

    /// Whether there is so much garbage after `appended` bytes that the running checkpoint does not pause.
    pub fn is_much(&self, appended: u64) -> bool {
        appended >= self.much.load(Relaxed)
    }

    /// What slows commits, where the running checkpoint still takes `left_ns`.
    #[inline]
    pub fn pressure(&self, appended: u64, left_ns: u64) -> Option<Pressure> {
        if appended < self.slow_from.load(Relaxed) {
            return None;
        }
        let room_min =
            u128::from(self.bytes_a_second_min.load(Relaxed)) * u128::from(left_ns) / 1_000_000_000;
        let mut room_min = u64::try_from(room_min).unwrap_or(u64::MAX);
        if appended < self.room_min_until.load(Relaxed) {
            room_min = room_min.max(self.room_min.load(Relaxed));
        }
        let room_bytes = self.max.load(Relaxed).saturating_sub(appended);
        Some(Pressure { room_bytes: room_bytes.max(room_min), left_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_may_still_be_written_is_spread_over_the_rest_of_the_checkpoint() {
        let bound = GarbageBound::new();
        assert_eq!(bound.pressure(u64::MAX - 1, SECOND), None, "before the first look");
        // 24 MiB and 48 MiB of garbage slow commits, 30 MiB and 120 MiB stop them.
        let segments = SegmentBytes { all: 150 * MIB, live: 100 * MIB, excused: 10 * MIB, to_copy: 0 };
        bound.look(segments, 64 * MIB, 1000 * MIB);
        let pressure = |appended: u64| bound.pressure(appended * MIB, 2 * SECOND);
        assert_eq!(pressure(1031), None);
        let left = |room: u64| Some(Pressure { room_bytes: room * MIB, left_ns: 2 * SECOND });
        assert_eq!((pressure(1032), pressure(1099)), (left(78), left(11)));
        assert!(!bound.is_much(1078 * MIB - 1) && bound.is_much(1078 * MIB), "half of the share is left");
        let some_go_on = Pressure { room_bytes: 2 * BYTES_A_SECOND_MIN, left_ns: 2 * SECOND };
        assert_eq!((pressure(1110), pressure(2000)), (Some(some_go_on), Some(some_go_on)));
        let room = |appended: u64| bound.pressure(appended * MIB, SECOND / 8).unwrap().room_bytes;
        assert_eq!(
            (room(1110), room(1117)),
            (2 * MIB, 2 * MIB),
            "a 32nd of the share until the checkpoint ends"
        );
        assert_eq!(room(1118), MIB / 2, "an eighth of the share above the bound");
    }

    #[test]
    fn what_is_still_to_be_copied_counts_from_the_beginning() {
        let bound = GarbageBound::new();
        let segments = SegmentBytes { all: 150 * MIB, live: 100 * MIB, excused: 0, to_copy: 40 * MIB };
        bound.look(segments, 64 * MIB, 0);
        let room = |appended: u64| bound.pressure(appended * MIB, SECOND).map(|left| left.room_bytes / MIB);
        assert_eq!((room(21), room(22), room(50)), (None, Some(38), Some(10)));
        assert!(!bound.is_much(28 * MIB - 1) && bound.is_much(28 * MIB));
        // Once it is copied, it is in the segments.
        bound.look(SegmentBytes { all: 190 * MIB, to_copy: 0, ..segments }, 64 * MIB, 0);
        assert_eq!(room(22), Some(38));
    }

    #[test]
    fn what_eviction_writes_for_the_log_counts_with_it() {
        let bound = GarbageBound::new();
        let segments = SegmentBytes { all: 150 * MIB, live: 100 * MIB, excused: 0, to_copy: 0 };
        let room = |appended: u64, left_ns: u64| {
            bound.pressure(appended * MIB, left_ns).map(|left| (left.room_bytes + 100) / (MIB / 8))
        };
        bound.begin(WrittenBytes { appended: 10 * MIB, evicted: 90 * MIB });
        bound.look(segments, 64 * MIB, 10 * MIB);
        // 22 and 100 MiB are left, a tenth of which may be log.
        assert_eq!((room(12, SECOND), room(13, SECOND)), (None, Some(56)));
        assert_eq!(room(100, 10 * SECOND), Some(32), "those that go on are a tenth, too");
        bound.begin(WrittenBytes { appended: 11 * MIB, evicted: 9_000 * MIB });
        bound.look(SegmentBytes { all: 1000 * MIB, ..segments }, 64 * MIB, 11 * MIB);
        assert_eq!(
            bound.pressure(11 * MIB, SECOND).map(|left| left.room_bytes),
            Some(64 << 10),
            "some go on"
        );
        let bound = GarbageBound::new();
        let room = |appended: u64, left_ns: u64| {
            bound.pressure(appended * MIB, left_ns).map(|left| (left.room_bytes + 100) / (MIB / 8))
        };
        bound.begin(WrittenBytes { appended: 10 * MIB, evicted: 90 * MIB });
        bound.begin(WrittenBytes { appended: 10 * MIB + 1000, evicted: 100 * MIB });
        bound.look(segments, 64 * MIB, 10 * MIB);
        assert_eq!(room(13, SECOND), Some(56), "so little log says nothing");
        bound.begin(WrittenBytes { appended: 30 * MIB, evicted: 110 * MIB });
        bound.look(segments, 64 * MIB, 30 * MIB);
        assert_eq!((room(40, SECOND), room(41, SECOND)), (None, Some(39 * 8)), "as much as log");
    }

    #[test]
    fn a_small_database_may_keep_a_few_segments() {
        let bound = GarbageBound::new();
        bound.look(SegmentBytes { all: 44 * MIB, ..SegmentBytes::default() }, MIB, 0);
        assert!(bound.is_much(0));
        bound.look(SegmentBytes { all: 43 * MIB, ..SegmentBytes::default() }, MIB, 0);
        assert!(!bound.is_much(0));
    }
}
