//! How fast a checkpoint goes.
//!
//! A checkpoint that wrote as fast as it can would take the device and a processor from commits for seconds. So its
//! writes are spread over the time in which the log grows to its share ([`super::pace`]), as PostgreSQL spreads them
//! over `checkpoint_completion_target`: after each step it compares the part of its work that is done with the part of
//! that growth that has happened, and pauses while it is ahead. It does not pause
//! - if a caller waits for it: an explicit checkpoint, or the close;
//! - if the disk is nearly full: a checkpoint frees segments;
//! - if there is much garbage ([`super::garbage`]);
//! - while no commit comes: there is nothing to yield to.
//!
//! Where the program bounds its rate ([`Options::checkpoint_bytes_per_second`](crate::Options::checkpoint_bytes_per_second)) it pauses
//! for that, too, but for a caller that waits, a disk that is nearly full, and a log that has nearly twice its share; commits are slowed
//! sooner then.
//!
//! INV-CKPT-6: while checkpoints succeed, the log above the last one stays below twice its share, however fast and long
//! commits come, but for the excess of transactions that are longer than a quarter of it (`growth.rs`). Once it has outgrown its share, commits are slowed:
//! what it may still grow by is spread over the time that the checkpoint still needs ([`Pacing::pressure`]). That
//! holds from its boundary to its superblock, and each commit looks at the log as it is: a checkpoint that merges, or
//! writes more than was expected, slows them, too. However wrong the expected time is, the log only comes ever closer to
//! its bound, as long as that time is not 0. And a checkpoint that is due begins, because beside it nothing runs on its
//! thread but purges, which wait for the merge of one memtable at most between two looks, and ends, because it merges and writes what there was at its boundary: merges that make leaves dirty again
//! behind it leave them to the next one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::garbage::GarbageBound;
use super::growth::LogGrowth;
use crate::latency::Waited;
use crate::throttle::{Pressure, Throttle};

/// A checkpoint beside which little log is written ends after this time, ...
const SPREAD_MAX_NS: u64 = 20_000_000_000;
/// ... or after this many times the time in which it would write everything without a pause: it takes no more than such a
/// part of a slow device from commits.
const SLOWER: u64 = 4;

/// Once the log has not grown for this long and has no commit to flush, no commit comes. (One that waits for a slow device
/// does not let the log grow either, and the checkpoint must not take the device from it.)
const IDLE_NS: u64 = 100_000_000;

/// One that has no more than this to write is not spread.
const SPREAD_BYTES_MIN: u64 = 4 << 20;

/// How long a checkpoint that is ahead pauses before it looks again.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// Commits are slowed once the log has this many eighths of its share, ...
const SLOW_FROM_EIGHTHS: u64 = 10;
/// ... and so that it does not reach this many.
const LOG_MAX_EIGHTHS: u64 = 15;

/// From so many eighths on no rate bounds a checkpoint.
const LIMITED_MAX_EIGHTHS: u64 = 14;

/// However long the log is, commits may write this many bytes a second of it.
const LOG_BYTES_A_SECOND_MIN: u64 = 256 << 10;

/// The longest that a commit waits before it looks at the log again, in milliseconds. One that is not large waits once.
const LOG_WAIT_MS_MAX: u64 = 400;

/// A checkpoint is expected to take at least this time, ...
const LEFT_NS_MIN: u64 = 50_000_000;
/// ... where it slows commits for the length of the log, this one, ...
const LEFT_NS_MIN_FOR_LOG: u64 = 1_000_000_000;
/// ... and at most this one.
const LEFT_NS_MAX: u64 = SPREAD_MAX_NS;

/// What a checkpoint is expected to write a second before one has written anything, ...
const BYTES_A_SECOND: u64 = 100 << 20;
/// ... and how many bytes at the speed of the one before count for its own.
const EXPERIENCE_BYTES: u64 = 16 << 20;

/// While a checkpoint is written, merges make leaves dirty: those that it has not come to yet, it writes, too. That is
/// about this part of all that are dirty by now.
const DIRTY_AHEAD: u64 = 4;

/// How far a checkpoint has come: part of [`Stats`](crate::Stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointProgress {
    /// About the bytes of nodes that it has to write, as they are in memory: records may be shorter.
    pub total_bytes: u64,
    /// Those of them that are written.
    pub done_bytes: u64,
    /// Why it goes as fast as it goes.
    pub pace: CheckpointPace,
}

/// Why a checkpoint goes as fast as it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointPace {
    /// It spreads its writes over the growth of the log.
    #[default]
    Spread,
    /// It does not pause: the log has grown to its share.
    Log,
    /// It does not pause: the disk is nearly full.
    Space,
    /// It does not pause: segments with little live data take about as much as they may.
    Garbage,
    /// It does not pause: a caller waits for it.
    Caller,
    /// It does not pause: no commit has come for a tenth of a second, and none waits for the log.
    Idle,
    /// It goes as fast as [`Options::checkpoint_bytes_per_second`](crate::Options::checkpoint_bytes_per_second) allows.
    Limited,
}

/// Callers that wait for a checkpoint, and the pressure of a slow one on commits. Shared by the engine and the checkpointer.
pub(crate) struct Pacing {
    /// How many callers wait.
    impatient: Mutex<u32>,
    became_impatient: Condvar,
    progress: Mutex<Option<CheckpointProgress>>,
    /// How long the running checkpoint is expected to take yet; 0 while none runs.
    left_ns: AtomicU64,
    /// How long the last one took.
    took_ns: AtomicU64,
    /// How long it took, without pauses, for [`EXPERIENCE_BYTES`].
    experience_ns: AtomicU64,
    /// How many bytes a second checkpoints write at most; `u64::MAX`: as fast as they can.
    bytes_per_second: u64,
    pub garbage: GarbageBound,
    pub throttle: Throttle,
    /// By the monotonic clock: when a slowed commit that must not wait would have its turn, as far as it is known; 0: at once. A merge and a
    /// checkpoint that end set it to 0.
    pub slowed_until_ns: AtomicU64,
}

/// While it lives, a checkpoint does not pause.
pub(crate) struct Hurry<'p>(&'p Pacing);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        *self.0.impatient.lock() -= 1;
    }
}

impl Pacing {
    /// The pacing of checkpoints that write so many bytes a second at most.
    pub fn new(bytes_per_second: Option<u64>) -> Pacing {
        Pacing {
            bytes_per_second: bytes_per_second.unwrap_or(u64::MAX),
            impatient: Mutex::new(0),
            became_impatient: Condvar::new(),
            progress: Mutex::new(None),
            left_ns: AtomicU64::new(0),
            took_ns: AtomicU64::new(LEFT_NS_MIN_FOR_LOG),
            experience_ns: AtomicU64::new(EXPERIENCE_BYTES * 1_000_000_000 / BYTES_A_SECOND),
            garbage: GarbageBound::new(),
            throttle: Throttle::new(LOG_WAIT_MS_MAX),
            slowed_until_ns: AtomicU64::new(0),
        }
    }

    pub fn hurry(&self) -> Hurry<'_> {
        *self.impatient.lock() += 1;
        self.became_impatient.notify_all();
        Hurry(self)
    }

    /// A checkpoint begins.
    pub fn begin(&self) -> Running<'_> {
        self.left_ns.store(self.took_ns.load(Relaxed), Relaxed);
        Running(self)
    }

    /// One has ended that took so long.
    pub fn took(&self, ns: u64) {
        self.took_ns.store(ns.clamp(LEFT_NS_MIN, LEFT_NS_MAX), Relaxed);
    }

    /// What slows commits, if the log has outgrown its share while a checkpoint is written, or there is too much garbage: the rest
    /// of what there may be at most, in the time that the checkpoint still needs.
    #[inline]
    pub fn pressure(&self, growth: &LogGrowth) -> Option<(Waited, Pressure)> {
        let left_ns = self.left_ns.load(Relaxed);
        if left_ns == 0 {
            return None;
        }
        let log_left_ns = left_ns.max(LEFT_NS_MIN_FOR_LOG);
        let log = pressure(growth.pressing().regular, growth.share(), log_left_ns);
        let garbage = self.garbage.pressure(growth.appended(), left_ns);
        let log = log.map(|pressure| (Waited::Checkpoint, pressure));
        let garbage = garbage.map(|pressure| (Waited::Collection, pressure));
        log.into_iter().chain(garbage).max_by_key(|(_, pressure)| pressure.cost_ns(LOG_BYTES_A_SECOND_MIN))
    }

    /// The running checkpoint.
    pub fn progress(&self) -> Option<CheckpointProgress> {
        *self.progress.lock()
    }

    fn is_hurried(&self) -> bool {
        *self.impatient.lock() > 0
    }

    /// Sleeps, unless a caller waits.
    fn pause(&self) {
        let mut impatient = self.impatient.lock();
        if *impatient == 0 {
            self.became_impatient.wait_for(&mut impatient, PAUSE);
        }
    }
}

/// While it lives, a checkpoint is written.
pub(crate) struct Running<'p>(&'p Pacing);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.left_ns.store(0, Relaxed);
        self.0.slowed_until_ns.store(0, Relaxed);
    }
}

/// What slows commits while the log has `log` bytes.
fn pressure(log: u64, share: u64, left_ns: u64) -> Option<Pressure> {
    if log < share / 8 * SLOW_FROM_EIGHTHS {
        return None;
    }
    let room_min = u128::from(LOG_BYTES_A_SECOND_MIN) * u128::from(left_ns) / 1_000_000_000;
    let room_bytes = (share / 8 * LOG_MAX_EIGHTHS).saturating_sub(log);
    Some(Pressure { room_bytes: room_bytes.max(u64::try_from(room_min).unwrap_or(u64::MAX)), left_ns })
}

/// The amounts of log, in bytes since the last checkpoint began.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogShare {
    /// The log as this checkpoint began.
    pub at_begin: u64,
    /// The log at which it is to be done.
    pub at_end: u64,
}

/// The present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub ns: u64,
    /// Bytes of log since the last checkpoint began.
    pub log: u64,
    /// Bytes of all dirty nodes.
    pub dirty_bytes: u64,
    pub is_short_of_space: bool,
    pub has_much_garbage: bool,
    /// Whether there are commits that the log has not flushed.
    pub has_unflushed: bool,
}

/// The pace of one checkpoint.
pub(super) struct Pacer<'p> {
    pacing: &'p Pacing,
    share: LogShare,
    begun_ns: u64,
    /// Bytes of the tables that were begun, written or not.
    begun: u64,
    /// Of those: written.
    done: u64,
    /// About the bytes of the tables that were not begun.
    rest: u64,
    paused_ns: u64,
    /// How long it has worked, without pauses.
    worked_ns: u64,
    /// The newest log, and since when it has not grown.
    grown: (u64, u64),
}

impl<'p> Pacer<'p> {
    /// `total` is about what there is to write.
    pub fn new(pacing: &'p Pacing, share: LogShare, begun_ns: u64, total: u64) -> Pacer<'p> {
        let grown = (share.at_begin, begun_ns);
        let pacer = Pacer {
            pacing,
            share,
            begun_ns,
            begun: 0,
            done: 0,
            rest: total,
            paused_ns: 0,
            worked_ns: 0,
            grown,
        };
        pacer.publish(CheckpointPace::Spread);
        pacer
    }

    /// A table is begun, for which `estimate` was part of the total, and which has `bytes` to write.
    pub fn begin_table(&mut self, estimate: u64, bytes: u64) {
        self.rest = self.rest.saturating_sub(estimate);
        self.begun = self.done + bytes;
    }

    /// `bytes` of the table that was begun are written.
    pub fn wrote(&mut self, bytes: u64) {
        self.done += bytes;
        self.begun = self.begun.max(self.done);
    }

    fn total(&self) -> u64 {
        self.begun + self.rest
    }

    /// Pauses while the checkpoint is ahead of its pace. Calls `now` before each look.
    pub fn keep_pace(&mut self, mut now: impl FnMut() -> Now) {
        loop {
            let at = now();
            if at.log != self.grown.0 {
                self.grown = (at.log, at.ns);
            }
            self.worked_ns = at.ns.saturating_sub(self.begun_ns).saturating_sub(self.paused_ns);
            self.pacing.left_ns.store(self.left_ns(at), Relaxed);
            let pace = self.pace(at);
            self.publish(pace);
            let pauses = match pace {
                CheckpointPace::Limited => true,
                CheckpointPace::Spread => self.is_ahead(at),
                _ => false,
            };
            if !pauses {
                return;
            }
            self.pacing.pause();
            self.paused_ns += u64::try_from(PAUSE.as_nanos()).unwrap_or(0);
        }
    }

    fn pace(&self, at: Now) -> CheckpointPace {
        if self.pacing.is_hurried() {
            CheckpointPace::Caller
        } else if at.is_short_of_space {
            CheckpointPace::Space
        } else if at.log < self.share.at_end / 8 * LIMITED_MAX_EIGHTHS
            && self.limited_ns(self.done) > at.ns.saturating_sub(self.begun_ns)
        {
            CheckpointPace::Limited
        } else if at.has_much_garbage {
            CheckpointPace::Garbage
        } else if at.log >= self.share.at_end {
            CheckpointPace::Log
        } else if at.ns.saturating_sub(self.grown.1) >= IDLE_NS && !at.has_unflushed {
            CheckpointPace::Idle
        } else {
            CheckpointPace::Spread
        }
    }

    /// Whether a larger part of the work is done than of the time and of the growth of the log has passed.
    fn is_ahead(&self, at: Now) -> bool {
        if self.total() <= SPREAD_BYTES_MIN {
            return false;
        }
        let LogShare { at_begin, at_end } = self.share;
        let share = |done: u64, whole: u64| done.min(whole) as f64 / whole.max(1) as f64;
        let grown = share(at.log.saturating_sub(at_begin), at_end.saturating_sub(at_begin));
        let needed_ns = self.worked_ns(at, self.total());
        let spread_ns = SPREAD_MAX_NS.max(needed_ns.saturating_mul(SLOWER));
        let passed = share(at.ns.saturating_sub(self.begun_ns), spread_ns);
        share(self.done, self.total()) > grown.max(passed)
    }

    /// About how long the checkpoint still takes at the speed that it had so far.
    fn left_ns(&self, at: Now) -> u64 {
        let left = (self.total() - self.done).max(at.dirty_bytes / DIRTY_AHEAD);
        self.worked_ns(at, left).clamp(LEFT_NS_MIN, LEFT_NS_MAX).max(self.limited_ns(left))
    }

    /// How long the writing of `bytes` takes at the rate that is allowed.
    fn limited_ns(&self, bytes: u64) -> u64 {
        time_for(bytes, self.pacing.bytes_per_second, 1_000_000_000)
    }

    /// About how long it works on `bytes` without a pause, at the speed that it had so far.
    fn worked_ns(&self, at: Now, bytes: u64) -> u64 {
        let worked_ns = at.ns.saturating_sub(self.begun_ns).saturating_sub(self.paused_ns);
        let ns = worked_ns + self.pacing.experience_ns.load(Relaxed);
        time_for(bytes, self.done + EXPERIENCE_BYTES, ns)
    }

    fn publish(&self, pace: CheckpointPace) {
        let progress = CheckpointProgress { total_bytes: self.total(), done_bytes: self.done, pace };
        *self.pacing.progress.lock() = Some(progress);
    }
}

/// How long `bytes` take, where `done` bytes have taken `ns`.
fn time_for(bytes: u64, done: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(ns) * u128::from(bytes) / u128::from(done)).unwrap_or(u64::MAX)
}

impl Drop for Pacer<'_> {
    fn drop(&mut self) {
        if self.done >= SPREAD_BYTES_MIN {
            let ns = time_for(EXPERIENCE_BYTES, self.done, self.worked_ns);
            self.pacing.experience_ns.store(ns, Relaxed);
        }
        *self.pacing.progress.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: LogShare = LogShare { at_begin: 100, at_end: 200 };
    const MIB: u64 = 1 << 20;

    fn at(log: u64) -> Now {
        Now {
            ns: 0,
            log,
            dirty_bytes: 0,
            is_short_of_space: false,
            has_much_garbage: false,
            has_unflushed: false,
        }
    }

    #[test]
    fn work_is_spread_over_the_growth_of_the_log() {
        let pacing = Pacing::new(None);
        let mut pacer = Pacer::new(&pacing, SHARE, 0, 10 * MIB);
        pacer.begin_table(4 * MIB, 6 * MIB);
        for (tenths, log, is_ahead) in [(0, 100, false), (6, 100, true), (0, 105, false), (54, 149, true)] {
            let wrote = tenths * MIB / 10;
            pacer.wrote(wrote);
            assert_eq!(pacer.is_ahead(at(log)), is_ahead, "{wrote} {log}");
        }
        assert!(!pacer.is_ahead(at(150)), "half of the work, half of the growth");
        pacer.paused_ns = SPREAD_MAX_NS / 2;
        assert!(!pacer.is_ahead(Now { ns: SPREAD_MAX_NS / 2, ..at(100) }), "half of the time has passed");
        pacer.paused_ns = 0;
        assert!(
            pacer.is_ahead(Now { ns: SPREAD_MAX_NS / 2, ..at(100) }),
            "that was needed to write one half"
        );
        assert!(!pacer.is_ahead(Now { ns: SPREAD_MAX_NS / 2, ..at(150) }), "the log has grown by half");
        let mut small = Pacer::new(&pacing, SHARE, 0, SPREAD_BYTES_MIN);
        small.begin_table(SPREAD_BYTES_MIN, SPREAD_BYTES_MIN);
        small.wrote(MIB);
        assert!(!small.is_ahead(at(100)), "a small one does not pause");
    }

    #[test]
    fn a_pause_ends_as_the_log_grows() {
        let pacing = Pacing::new(None);
        let mut pacer = Pacer::new(&pacing, SHARE, 0, 10 * MIB);
        pacer.begin_table(10 * MIB, 10 * MIB);
        pacer.wrote(5 * MIB);
        let mut log = 100;
        let mut looks = 0;
        pacer.keep_pace(|| {
            looks += 1;
            log += 20;
            at(log)
        });
        assert_eq!((looks, log), (3, 160));
    }

    #[test]
    fn some_reasons_end_all_pauses() {
        let pacing = Pacing::new(None);
        let mut pacer = Pacer::new(&pacing, SHARE, 0, 100);
        pacer.begin_table(100, 100);
        pacer.wrote(99);
        pacer.keep_pace(|| at(200));
        assert_eq!(pacing.progress().map(|progress| progress.pace), Some(CheckpointPace::Log));
        pacer.keep_pace(|| Now { is_short_of_space: true, ..at(100) });
        assert_eq!(pacing.progress().map(|progress| progress.pace), Some(CheckpointPace::Space));
        let waited_for = Now { ns: IDLE_NS, has_unflushed: true, ..at(100) };
        assert_eq!(pacer.pace(waited_for), CheckpointPace::Spread, "a commit waits for the device");
        pacer.keep_pace(|| Now { ns: IDLE_NS, ..at(100) });
        assert_eq!(pacing.progress().map(|progress| progress.pace), Some(CheckpointPace::Idle));
        let hurry = pacing.hurry();
        pacer.keep_pace(|| at(100));
        let progress = CheckpointProgress { total_bytes: 100, done_bytes: 99, pace: CheckpointPace::Caller };
        assert_eq!(pacing.progress(), Some(progress));
        drop(hurry);
        assert_eq!(pacer.pace(at(100)), CheckpointPace::Spread);
        drop(pacer);
        assert_eq!(pacing.progress(), None);
    }

    #[test]
    fn a_rate_bounds_a_checkpoint() {
        const SECOND: u64 = 1_000_000_000;
        let pacing = Pacing::new(Some(10 * MIB));
        let mut pacer = Pacer::new(&pacing, SHARE, 0, 100 * MIB);
        pacer.begin_table(100 * MIB, 100 * MIB);
        pacer.wrote(40 * MIB);
        let late = |ns: u64| Now { ns, has_much_garbage: true, ..at(200) };
        let mut ns = 0;
        pacer.keep_pace(|| {
            ns += SECOND;
            late(ns)
        });
        assert_eq!(ns, 4 * SECOND, "40 MiB take four seconds");
        assert_eq!(pacing.left_ns.load(Relaxed), 6 * SECOND);
        assert_eq!(pacer.pace(late(3 * SECOND)), CheckpointPace::Limited);
        assert_ne!(pacer.pace(Now { log: 400, ..late(3 * SECOND) }), CheckpointPace::Limited, "too much log");
        assert_eq!(pacer.pace(Now { is_short_of_space: true, ..late(3 * SECOND) }), CheckpointPace::Space);
        let _hurry = pacing.hurry();
        assert_eq!(pacer.pace(late(3 * SECOND)), CheckpointPace::Caller);
    }

    #[test]
    fn a_log_that_outgrows_its_share_slows_commits() {
        const SECOND: u64 = 1_000_000_000;
        let pressure = |log: u64, seconds: u64| pressure(log * MIB, 256 * MIB, seconds * SECOND);
        assert_eq!(pressure(319, 3), None);
        let room_bytes = (480 - 330) * MIB;
        assert_eq!(pressure(330, 3), Some(Pressure { room_bytes, left_ns: 3 * SECOND }));
        let some_go_on = Pressure { room_bytes: 3 * LOG_BYTES_A_SECOND_MIN, left_ns: 3 * SECOND };
        assert_eq!(pressure(500, 3), Some(some_go_on));
    }

    #[test]
    fn a_checkpoint_is_expected_to_take_some_time_until_it_has_ended() {
        const SECOND: u64 = 1_000_000_000;
        let pacing = Pacing::new(None);
        let left_ns = || pacing.left_ns.load(Relaxed);
        let running = pacing.begin();
        assert_eq!(left_ns(), LEFT_NS_MIN_FOR_LOG, "before the first has ended");
        pacing.took(3);
        drop(running);
        let running = pacing.begin();
        assert_eq!(left_ns(), LEFT_NS_MIN, "it merges");
        let share = LogShare { at_begin: 128 * MIB, at_end: 256 * MIB };
        let mut pacer = Pacer::new(&pacing, share, 0, 200 * MIB);
        pacer.begin_table(200 * MIB, 200 * MIB);
        let now = |dirty: u64| Now { ns: 2 * SECOND, dirty_bytes: dirty * MIB, ..at(300 * MIB) };
        pacer.keep_pace(|| now(0));
        assert_eq!(left_ns(), LEFT_NS_MAX, "it has written nothing yet");
        pacer.wrote(50 * MIB);
        pacer.keep_pace(|| now(0));
        // 2.16 s for 66 MiB, 16 of them at the speed that is expected.
        assert_eq!(left_ns() / 1_000_000, 4909);
        pacer.wrote(150 * MIB);
        pacer.keep_pace(|| now(0));
        assert_eq!(left_ns(), LEFT_NS_MIN, "it has written all that was expected");
        pacer.keep_pace(|| now(1600));
        assert_eq!(left_ns() / 1_000_000, 4000, "merges have made more dirty");
        drop(pacer);
        assert!(left_ns() > 0, "it writes its record, and syncs");
        drop(running);
        assert_eq!(left_ns(), 0);
    }
}
