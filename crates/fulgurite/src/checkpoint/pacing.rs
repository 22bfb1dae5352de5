//! How fast a checkpoint goes.
//!
//! A checkpoint that wrote as fast as it can would take the device and a processor from commits for seconds. So its
//! writes are spread over the time in which the log grows to its share ([`super::pace`]), as PostgreSQL spreads them
//! over `checkpoint_completion_target`: after each step it compares the part of its work that is done with the part of
//! that growth that has happened, and pauses while it is ahead. It does not pause
//! - if a caller waits for it: an explicit checkpoint, or the close;
//! - if the disk is nearly full: a checkpoint frees segments;
//! - while no commit comes: there is nothing to yield to.
//!
//! INV-CKPT-6: while checkpoints succeed, the log above the last one stays below twice its share, however fast and long
//! commits come. Once it has outgrown its share, commits are slowed: what it may still grow by is spread over the time
//! that the checkpoint still needs ([`Pacing::log_pressure`]). And a checkpoint that is due begins, because no other work
//! runs on its thread, and ends, because it merges and writes what there was at its boundary: merges that make leaves
//! dirty again behind it leave them to the next one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::throttle::{Pressure, Throttle};

/// A checkpoint beside which little log is written ends after this time.
const SPREAD_MAX_NS: u64 = 20_000_000_000;

/// Once the log has not grown for this long, no commit comes.
const IDLE_NS: u64 = 100_000_000;

/// One that has no more than this to write is not spread.
const SPREAD_BYTES_MIN: u64 = 4 << 20;

/// How long a checkpoint that is ahead pauses before it looks again.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// Commits are slowed once the log has this many eighths of its share, ...
const SLOW_FROM_EIGHTHS: u64 = 10;
/// ... and so that it does not reach this many.
const LOG_MAX_EIGHTHS: u64 = 15;

/// However long the log is, commits may write this many bytes a second of it.
const LOG_BYTES_A_SECOND_MIN: u64 = 1 << 20;

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
    /// It does not pause: a caller waits for it.
    Caller,
    /// It does not pause: no commit has come for a tenth of a second.
    Idle,
}

/// Callers that wait for a checkpoint, and the pressure of a slow one on commits. Shared by the engine and the checkpointer.
#[derive(Default)]
pub(crate) struct Pacing {
    /// How many callers wait.
    impatient: Mutex<u32>,
    became_impatient: Condvar,
    progress: Mutex<Option<CheckpointProgress>>,
    /// What commits may still write of the log until the checkpoint has ended, and how long that takes. The time is 0
    /// while they are not slowed.
    room_bytes: AtomicU64,
    left_ns: AtomicU64,
    pub log_throttle: Throttle,
}

/// While it lives, a checkpoint does not pause.
pub(crate) struct Hurry<'p>(&'p Pacing);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        *self.0.impatient.lock() -= 1;
    }
}

impl Pacing {
    pub fn hurry(&self) -> Hurry<'_> {
        *self.impatient.lock() += 1;
        self.became_impatient.notify_all();
        Hurry(self)
    }

    /// What slows commits, if the log has outgrown its share.
    #[inline]
    pub fn log_pressure(&self) -> Option<Pressure> {
        let left_ns = self.left_ns.load(Relaxed);
        (left_ns != 0).then(|| Pressure { room_bytes: self.room_bytes.load(Relaxed), left_ns })
    }

    /// The running checkpoint.
    pub fn progress(&self) -> Option<CheckpointProgress> {
        *self.progress.lock()
    }

    fn press(&self, pressure: Option<Pressure>) {
        let Pressure { room_bytes, left_ns } = pressure.unwrap_or(Pressure { room_bytes: 0, left_ns: 0 });
        let room_min =
            u64::try_from(u128::from(LOG_BYTES_A_SECOND_MIN) * u128::from(left_ns) / 1_000_000_000);
        self.room_bytes.store(room_bytes.max(room_min.unwrap_or(u64::MAX)), Relaxed);
        self.left_ns.store(left_ns, Relaxed);
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

/// The amounts of log, in bytes since the last checkpoint began.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogShare {
    /// The log as this checkpoint began.
    pub at_begin: u64,
    /// The log at which it is to be done.
    pub at_end: u64,
    /// The share: [`Options::checkpoint_log_bytes`](crate::Options::checkpoint_log_bytes).
    pub share: u64,
}

/// The present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub ns: u64,
    /// Bytes of log since the last checkpoint began.
    pub log: u64,
    pub is_short_of_space: bool,
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
    /// The newest log, and since when it has not grown.
    grown: (u64, u64),
}

impl<'p> Pacer<'p> {
    /// `total` is about what there is to write.
    pub fn new(pacing: &'p Pacing, share: LogShare, begun_ns: u64, total: u64) -> Pacer<'p> {
        let grown = (share.at_begin, begun_ns);
        let pacer = Pacer { pacing, share, begun_ns, begun: 0, done: 0, rest: total, paused_ns: 0, grown };
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
            self.pacing.press(self.pressure(at));
            let pace = self.pace(at);
            self.publish(pace);
            if pace != CheckpointPace::Spread || !self.is_ahead(at) {
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
        } else if at.log >= self.share.at_end {
            CheckpointPace::Log
        } else if at.ns.saturating_sub(self.grown.1) >= IDLE_NS {
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
        let LogShare { at_begin, at_end, .. } = self.share;
        let share = |done: u64, whole: u64| done.min(whole) as f64 / whole.max(1) as f64;
        let grown = share(at.log.saturating_sub(at_begin), at_end.saturating_sub(at_begin));
        let passed = share(at.ns.saturating_sub(self.begun_ns), SPREAD_MAX_NS);
        share(self.done, self.total()) > grown.max(passed)
    }

    /// What commits may still write if the log has outgrown its share: the rest of what it may have at most, in the time
    /// that the checkpoint takes at the speed that it had so far.
    fn pressure(&self, at: Now) -> Option<Pressure> {
        let share = self.share.share;
        if at.log < share / 8 * SLOW_FROM_EIGHTHS {
            return None;
        }
        let room_bytes = (share / 8 * LOG_MAX_EIGHTHS).saturating_sub(at.log);
        let worked_ns = at.ns.saturating_sub(self.begun_ns).saturating_sub(self.paused_ns);
        let left = u128::from(self.total() - self.done);
        let left_ns = u128::from(worked_ns) * left / u128::from(self.done.max(1 << 20));
        Some(Pressure { room_bytes, left_ns: u64::try_from(left_ns).unwrap_or(u64::MAX).max(1) })
    }

    fn publish(&self, pace: CheckpointPace) {
        let progress = CheckpointProgress { total_bytes: self.total(), done_bytes: self.done, pace };
        *self.pacing.progress.lock() = Some(progress);
    }
}

impl Drop for Pacer<'_> {
    fn drop(&mut self) {
        self.pacing.press(None);
        *self.pacing.progress.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: LogShare = LogShare { at_begin: 100, at_end: 200, share: 200 };
    const MIB: u64 = 1 << 20;

    fn at(log: u64) -> Now {
        Now { ns: 0, log, is_short_of_space: false }
    }

    #[test]
    fn work_is_spread_over_the_growth_of_the_log() {
        let pacing = Pacing::default();
        let mut pacer = Pacer::new(&pacing, SHARE, 0, 10 * MIB);
        pacer.begin_table(4 * MIB, 6 * MIB);
        for (tenths, log, is_ahead) in [(0, 100, false), (6, 100, true), (0, 105, false), (54, 149, true)] {
            let wrote = tenths * MIB / 10;
            pacer.wrote(wrote);
            assert_eq!(pacer.is_ahead(at(log)), is_ahead, "{wrote} {log}");
        }
        assert!(!pacer.is_ahead(at(150)), "half of the work, half of the growth");
        assert!(!pacer.is_ahead(Now { ns: SPREAD_MAX_NS / 2, ..at(100) }), "half of the time has passed");
        let mut small = Pacer::new(&pacing, SHARE, 0, SPREAD_BYTES_MIN);
        small.begin_table(SPREAD_BYTES_MIN, SPREAD_BYTES_MIN);
        small.wrote(MIB);
        assert!(!small.is_ahead(at(100)), "a small one does not pause");
    }

    #[test]
    fn a_pause_ends_as_the_log_grows() {
        let pacing = Pacing::default();
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
        let pacing = Pacing::default();
        let mut pacer = Pacer::new(&pacing, SHARE, 0, 100);
        pacer.begin_table(100, 100);
        pacer.wrote(99);
        pacer.keep_pace(|| at(200));
        assert_eq!(pacing.progress().map(|progress| progress.pace), Some(CheckpointPace::Log));
        pacer.keep_pace(|| Now { is_short_of_space: true, ..at(100) });
        assert_eq!(pacing.progress().map(|progress| progress.pace), Some(CheckpointPace::Space));
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
    fn a_log_that_outgrows_its_share_slows_commits_until_the_checkpoint_ends() {
        let share = LogShare { at_begin: 128 * MIB, at_end: 256 * MIB, share: 256 * MIB };
        let pacing = Pacing::default();
        let mut pacer = Pacer::new(&pacing, share, 0, 200 * MIB);
        pacer.begin_table(200 * MIB, 200 * MIB);
        pacer.wrote(50 * MIB);
        let now = |log: u64| Now { ns: 1_000_000_000, ..at(log * MIB) };
        pacer.keep_pace(|| now(300));
        assert_eq!(pacing.log_pressure(), None);
        pacer.keep_pace(|| now(330));
        let pressure = Pressure { room_bytes: (480 - 330) * MIB, left_ns: 3_000_000_000 };
        assert_eq!(pacing.log_pressure(), Some(pressure));
        pacer.keep_pace(|| now(500));
        let rest = pacing.log_pressure().map(|pressure| pressure.room_bytes);
        assert_eq!(rest, Some(3 * LOG_BYTES_A_SECOND_MIN), "some commits go on");
        drop(pacer);
        assert_eq!(pacing.log_pressure(), None);
    }
}
