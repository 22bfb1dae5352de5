//! The database's clock, by which keys expire. The rules for users are in [`guide::expiry`](crate::guide::expiry).
//!
//! It never runs back, and it does not follow every jump of the machine's clock (the wall clock): a version that
//! expired by a wrong clock cannot be recovered once it is pruned.
//!
//! - INV-CLOCK-1: between two readings the clock advances by at most [`REACH_MS`] more than the monotonic clock, unless
//!   the wall clock has kept its distance from the monotonic clock, within [`REACH_MS`], for [`STANDING_MS`]. Until
//!   then the clock advances with the monotonic clock alone.
//! - INV-CLOCK-2: when a database is opened there is no monotonic clock to compare with, only the time at which the
//!   database was left. A wall clock at most [`CLOSED_MS_MAX`] ahead of that time is followed at once; a wall clock
//!   further ahead counts as a jump.
//! - INV-CLOCK-3: nothing is pruned by a time that is not confirmed ([`Clock::confirmed_ms`]). After a jump, times up
//!   to the one before the jump are confirmed. Later times are confirmed when the clock has advanced by as much as it
//!   jumped, [`STANDING_MS`] at most. A time after the machine's present one is not confirmed either.
//!
//! The superblock records a jump that is not confirmed, so that several short lives of the database add up.

use std::path::Path;
use std::sync::Arc;

use fulgurite_env as env;

use crate::{Database, Options, Result};
use fulgurite_types::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// By how much the wall clock may differ from the time that the monotonic clock predicts: 5 minutes. Corrections by
/// people and daemons are smaller.
pub(crate) const REACH_MS: u64 = 5 * 60 * 1000;
/// How long a wall clock has to keep its distance from the monotonic clock before it is believed after a jump: 1 hour.
pub(crate) const STANDING_MS: u64 = 60 * 60 * 1000;
/// The longest time for which a database is assumed to have been closed: 366 days.
pub(crate) const CLOSED_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;
/// A clock before 2025-01-01 was never set; setting it is no jump.
const UNSET_BEFORE_MS: u64 = 1_735_689_600_000;

/// A jump of the clock that is not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    /// Times up to this one are confirmed.
    pub confirmed_ms: u64,
    /// The wall clock after the jump. Above the database's clock if that did not follow.
    pub landed_ms: u64,
}

impl ClockStep {
    /// The time from which on the jump is confirmed.
    fn stands_at_ms(self) -> u64 {
        self.landed_ms.saturating_add(self.landed_ms.saturating_sub(self.confirmed_ms).min(STANDING_MS))
    }
}

/// One reading of the machine's clocks.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall_ms: u64,
    monotonic_ms: u64,
}

impl Reading {
    fn take(clock: &dyn env::Clock) -> Reading {
        Reading { wall_ms: clock.wall_ms(), monotonic_ms: clock.monotonic_ns() / 1_000_000 }
    }

    /// By how much the wall clock is ahead of the monotonic one.
    fn offset_ms(self) -> i64 {
        self.wall_ms.cast_signed().wrapping_sub(self.monotonic_ms.cast_signed())
    }
}

/// A wall clock that is not believed.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    offset_ms: i64,
    /// On the monotonic clock.
    since_ms: u64,
}

/// Decides whether the wall clock is believed.
#[derive(Debug)]
struct Judge {
    /// The believed wall clock minus the monotonic clock.
    offset_ms: i64,
    doubt: Option<Doubt>,
    step: Option<ClockStep>,
}

impl Judge {
    fn open(left_ms: u64, step: Option<ClockStep>, at: Reading) -> Judge {
        let wall_ms = at.wall_ms;
        if left_ms < UNSET_BEFORE_MS {
            return Judge { offset_ms: at.offset_ms(), doubt: None, step: None };
        }
        let reaches = |from_ms: u64| wall_ms <= from_ms.saturating_add(CLOSED_MS_MAX);
        // A jump that the database's clock did not follow, and that the machine's clock has undone.
        let undone = |step: &ClockStep| {
            left_ms.saturating_add(REACH_MS) < step.landed_ms
                && wall_ms.saturating_add(REACH_MS) < step.landed_ms
        };
        let step = step.filter(|step| !undone(step));
        let stood = step.is_some_and(|step| {
            let passed = wall_ms >= step.stands_at_ms() && reaches(step.landed_ms);
            passed || left_ms >= step.stands_at_ms()
        });
        let is_ahead = wall_ms > left_ms.saturating_add(REACH_MS);
        let step = match step {
            Some(step) if !stood && reaches(step.landed_ms) => Some(step),
            Some(step) if !stood => Some(ClockStep { landed_ms: wall_ms, ..step }),
            _ if is_ahead => Some(ClockStep { confirmed_ms: left_ms, landed_ms: wall_ms }),
            _ => None,
        };
        let is_behind = wall_ms.saturating_add(REACH_MS) < left_ms;
        let follows = reaches(left_ms) || stood && step.is_some_and(|step| reaches(step.landed_ms));
        if !is_behind && follows {
            return Judge { offset_ms: at.offset_ms(), doubt: None, step };
        }
        let offset_ms = Reading { wall_ms: left_ms, ..at }.offset_ms();
        let mut judge = Judge { offset_ms, doubt: None, step };
        judge.begin_doubt(at, left_ms);
        judge
    }

    fn begin_doubt(&mut self, at: Reading, clock_ms: u64) {
        self.doubt = Some(Doubt { offset_ms: at.offset_ms(), since_ms: at.monotonic_ms });
        tracing::warn!(
            machine_ms = at.wall_ms,
            clock_ms,
            "the machine's clock jumped: it is believed when it has run steadily for an hour, and until then the \
             database's clock continues without it. If it is wrong, set it right; if it is right, wait, or close the \
             database and run `fulgurite reset-clock`"
        );
    }

    /// The time by the believed clock.
    fn expected_ms(&self, at: Reading) -> u64 {
        let expected = at.monotonic_ms.cast_signed().wrapping_add(self.offset_ms);
        u64::try_from(expected).unwrap_or(0)
    }

    /// The time at a reading, and the wall time up to which other readers need not call this.
    fn judge(&mut self, at: Reading) -> (u64, u64) {
        let expected_ms = self.expected_ms(at);
        let offset_ms = at.offset_ms();
        let is_near = |of_ms: i64| offset_ms.abs_diff(of_ms) <= REACH_MS;
        let stood = |doubt: &Doubt| {
            is_near(doubt.offset_ms) && at.monotonic_ms.saturating_sub(doubt.since_ms) >= STANDING_MS
        };
        if is_near(self.offset_ms) {
            self.doubt = None;
            self.step = self.step.filter(|step| step.landed_ms <= expected_ms.saturating_add(REACH_MS));
        } else if expected_ms < UNSET_BEFORE_MS || self.doubt.as_ref().is_some_and(stood) {
            tracing::info!(
                machine_ms = at.wall_ms,
                clock_ms = expected_ms,
                "the machine's clock is believed"
            );
            *self = Judge { offset_ms, doubt: None, step: None };
        } else {
            if !self.doubt.is_some_and(|doubt| is_near(doubt.offset_ms)) {
                self.begin_doubt(at, expected_ms);
            }
            return (expected_ms, 0);
        }
        (at.wall_ms, self.expected_ms(at).saturating_add(REACH_MS))
    }

    /// The time up to which the clock, which shows `now_ms`, is confirmed.
    fn confirmed_ms(&mut self, at: Reading, now_ms: u64) -> u64 {
        self.step = self.step.filter(|step| now_ms < step.stands_at_ms());
        let followed = self.step.filter(|step| step.landed_ms <= now_ms.saturating_add(REACH_MS));
        let confirmed_ms = followed.map_or(now_ms, |step| step.confirmed_ms.min(now_ms));
        confirmed_ms.min(at.wall_ms)
    }
}

/// How the database's clock relates to the machine's.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// use fulgurite::ClockState;
///
/// match db.stats().clock.state {
///     ClockState::Follows | ClockState::Unconfirmed => {}
///     state => eprintln!("look at this machine's clock: {state:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockState {
    /// It follows the machine's clock.
    #[default]
    Follows,
    /// It follows the machine's clock, which advanced by more than five minutes while the database was closed. Nothing
    /// that expired in between is removed until the clock has advanced for as long again, at most an hour.
    Unconfirmed,
    /// The machine's clock jumped, ahead or back, by more than five minutes, or is more than a year ahead of the time
    /// when the database was last open. The database's clock advances without it until it has run steadily for an hour.
    Doubts,
    /// It is ahead of the machine's clock by more than five minutes: it stops until the machine's clock catches up.
    /// [`Database::reset_clock`](crate::Database::reset_clock) sets it back.
    Ahead,
}

/// The clock by which keys expire. Times are milliseconds since 1970-01-01 UTC.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let clock = db.stats().clock;
/// assert!(clock.confirmed_ms <= clock.now_ms);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockStatus {
    /// The time that it shows. Transactions that begin now do not see values that have expired by then.
    pub now_ms: u64,
    /// The time that the machine's clock shows.
    pub machine_ms: u64,
    /// The time up to which the clock is confirmed. Values that have expired by then may be removed.
    pub confirmed_ms: u64,
    /// How it relates to the machine's clock.
    pub state: ClockState,
}

/// A clock that never runs back.
pub(crate) struct Clock {
    newest_ms: AtomicU64,
    /// The wall time up to which the clock follows without reading the monotonic clock; 0 while it does not follow.
    followed_until_ms: AtomicU64,
    /// Whether it stands at the newest commit: another node commits.
    stands: AtomicBool,
    /// When that happened.
    commit_ms: AtomicU64,
    judge: Mutex<Judge>,
}

impl Clock {
    /// The clock of a database that was left at `left_ms`.
    pub fn open(left_ms: u64, step: Option<ClockStep>, machine: &dyn env::Clock) -> Clock {
        let judge = Judge::open(left_ms, step, Reading::take(machine));
        Clock {
            newest_ms: AtomicU64::new(left_ms),
            followed_until_ms: AtomicU64::new(0),
            stands: AtomicBool::new(false),
            commit_ms: AtomicU64::new(0),
            judge: Mutex::new(judge),
        }
    }

    /// While another node commits, the time is that of the newest commit which is applied here: so no snapshot sees that a key has
    /// expired before it sees the commits that happened before that (INV-TIME-3), of whose deadlines this node does not know. It begins with
    /// the time of the newest replayed commit: what this node's clock had shown before, as a leader, may be later than what others commit at.
    pub fn stand_at(&self, commit_ms: u64) {
        self.commit_ms.store(commit_ms, Ordering::SeqCst);
        self.stands.store(true, Ordering::SeqCst);
    }

    /// This node commits from now on.
    pub fn go_on(&self) {
        self.newest_ms.fetch_max(self.commit_ms.load(Ordering::SeqCst), Ordering::SeqCst);
        self.stands.store(false, Ordering::SeqCst);
    }

    /// A commit of another node happened at this time. Called before the commit is visible.
    pub fn note_commit(&self, time_ms: u64) {
        self.commit_ms.fetch_max(time_ms, Ordering::SeqCst);
    }

    /// The newest time that was returned to a reader.
    pub fn newest_ms(&self) -> u64 {
        self.newest_ms.load(Ordering::Acquire)
    }

    /// The newest time that it has shown, now `now_ms`, for the superblock: it may stand at an older one.
    pub fn shown_ms(&self, now_ms: u64) -> u64 {
        self.newest_ms().max(now_ms)
    }

    /// The jump that is not confirmed, for the superblock.
    pub fn step(&self) -> Option<ClockStep> {
        let now_ms = self.newest_ms();
        self.judge.lock().step.filter(|step| now_ms < step.stands_at_ms())
    }

    /// The time; it never falls. INV-TIME-3 needs it sequentially consistent.
    #[inline]
    pub fn now_ms(&self, machine: &dyn env::Clock) -> u64 {
        if self.stands.load(Ordering::SeqCst) {
            return self.commit_ms.load(Ordering::SeqCst);
        }
        let wall_ms = machine.wall_ms();
        let newest_ms = self.newest_ms.load(Ordering::SeqCst);
        let follows = wall_ms <= self.followed_until_ms.load(Ordering::Relaxed)
            && newest_ms <= wall_ms.saturating_add(REACH_MS);
        let believed_ms = if follows { wall_ms } else { self.judge(machine) };
        if believed_ms <= newest_ms {
            return newest_ms;
        }
        self.newest_ms.fetch_max(believed_ms, Ordering::SeqCst).max(believed_ms)
    }

    #[cold]
    fn judge(&self, machine: &dyn env::Clock) -> u64 {
        let mut judge = self.judge.lock();
        let (believed_ms, until_ms) = judge.judge(Reading::take(machine));
        self.followed_until_ms.store(until_ms, Ordering::Relaxed);
        believed_ms
    }

    /// The time up to which the clock is confirmed (INV-CLOCK-3).
    pub fn confirmed_ms(&self, machine: &dyn env::Clock) -> u64 {
        let now_ms = self.now_ms(machine);
        self.judge.lock().confirmed_ms(Reading::take(machine), now_ms)
    }

    /// The clock's time, and how it relates to the machine's clock.
    pub fn status(&self, machine: &dyn env::Clock) -> ClockStatus {
        let now_ms = self.now_ms(machine);
        let at = Reading::take(machine);
        let mut judge = self.judge.lock();
        let confirmed_ms = judge.confirmed_ms(at, now_ms);
        let state = if judge.doubt.is_some() {
            ClockState::Doubts
        } else if now_ms > at.wall_ms.saturating_add(REACH_MS) {
            ClockState::Ahead
        } else if judge.step.is_some() {
            ClockState::Unconfirmed
        } else {
            ClockState::Follows
        };
        ClockStatus { now_ms, machine_ms: at.wall_ms, confirmed_ms, state }
    }

    /// Sets the clock to the machine's, also back. No snapshot may be open.
    pub fn reset(&self, machine: &dyn env::Clock) {
        let at = Reading::take(machine);
        let mut judge = self.judge.lock();
        *judge = Judge { offset_ms: at.offset_ms(), doubt: None, step: None };
        self.newest_ms.store(at.wall_ms, Ordering::Release);
        self.followed_until_ms.store(at.wall_ms, Ordering::Relaxed);
    }
}

/// What [`Database::reset_clock`] did. Times are milliseconds since 1970-01-01 UTC.
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("data");
/// use fulgurite::{Database, Options};
///
/// # Database::open(&path, Options::default())?.close()?;
/// let reset = Database::reset_clock(&path, Options::default())?;
/// println!("from {} to {} ms since 1970", reset.before_ms, reset.after_ms);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockReset {
    /// The database's clock before.
    pub before_ms: u64,
    /// The database's clock now.
    pub after_ms: u64,
}

impl Database {
    /// Sets the clock of a closed database to the machine's: back, if it has followed a wrong clock, or ahead, if the
    /// machine's clock is right and the database does not believe it yet.
    ///
    /// Set the machine's clock right first. Values that the wrong clock hid, and that were not removed yet, are visible
    /// again. This is the only case in which a later commit may carry an earlier time.
    ///
    /// This opens the database, which may recover it, writes a checkpoint, and closes it.
    ///
    /// # Errors
    /// Those of [`Database::open`], [`Database::checkpoint`] and [`Database::close`]. The clock may or may not be set
    /// then; call this again.
    pub fn reset_clock(path: impl AsRef<Path>, options: Options) -> Result<ClockReset> {
        Database::reset_clock_with(env::RealEnv::new(), path, options)
    }

    /// Like [`Database::reset_clock`], in a given environment.
    ///
    /// # Errors
    /// Those of [`Database::reset_clock`].
    pub fn reset_clock_with(
        env: Arc<dyn env::Env>,
        path: impl AsRef<Path>,
        options: Options,
    ) -> Result<ClockReset> {
        let options = Options { background: false, create: false, ..options };
        let db = Database::open_with(env, path, options, |_| {})?;
        let engine = db.engine();
        let before_ms = engine.now_ms();
        engine.clock.reset(engine.env.clock());
        let after_ms = engine.now_ms();
        tracing::info!(path = %engine.files.path.display(), before_ms, after_ms, "the clock was set to the machine's");
        // Replay advances the clock to the times of commits, so a checkpoint has to cover the earlier ones. Closing
        // writes the other copy of the superblock.
        db.checkpoint()?;
        db.close()?;
        Ok(ClockReset { before_ms, after_ms })
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[path = "clock_tests.rs"]
mod tests;
