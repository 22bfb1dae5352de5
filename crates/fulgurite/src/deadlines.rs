//! The deadlines of commits that not all readers see yet. Of the values that a commit must have read live (INV-TIME-2),
//! the first to expire sets its deadline. Most commits have no deadline, and touch nothing here.
//!
//! INV-TIME-3: the time of a snapshot is before the deadline of each commit that it does not see. Otherwise the
//! snapshot would see that a key has expired, but not the commit that happened before that.
//!
//! A commit with a deadline lowers `least_ms` to it, reads the clock, gets its number, and records number and deadline,
//! all under the lock. A snapshot ([`crate::snapshots::Snapshots::register`]) reads the clock, then `least_ms`, and
//! then checks whether its CSN is still the newest. Let s be a snapshot, and c a commit with a deadline that s does not
//! see.
//! - s read `least_ms` before c lowered it. Then c read the clock later than s: c's time is at or after s's, and before
//!   c's deadline. For this the clock and `least_ms` are sequentially consistent: s stores the clock and then loads
//!   `least_ms`, c stores `least_ms` and then loads the clock.
//! - s read `least_ms` after c's deadline was dropped. This cannot be: a deadline is dropped when all new snapshots see
//!   its commit, and s checked its CSN afterwards, so s would see c.
//! - Otherwise s read a `least_ms` at or before c's deadline. If s's clock is before `least_ms`, it is before the
//!   deadline. If not, s begins under the lock, where every recorded commit has a number and no commit with a deadline
//!   gets one. Let d be the first deadline above s's CSN: s takes the last millisecond before d. That is not before the
//!   time of any commit that s sees: times rise with CSNs (INV-TIME-1), so the time of d's commit is at or after
//!   theirs, and before d.
//!
//! Why no snapshot waits for c instead: c's thread may be descheduled, and a snapshot of stable commits would wait for
//! the disk.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;
use fulgurite_log::TimeBounds;
use fulgurite_types::Csn;

use fulgurite_types::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// A commit with a deadline.
struct Timed {
    csn: Csn,
    before_ms: u64,
}

/// Sorted by CSN. A commit is left out if a later one has the same or an earlier deadline, because only the first
/// deadline above a CSN is ever searched. So the deadlines rise, too.
type Unseen = VecDeque<Timed>;

/// The deadlines of the commits that a new snapshot may not see.
pub(crate) struct Deadlines {
    /// At or before the first deadline; `u64::MAX` if there is none. Changed under the lock.
    least_ms: CachePadded<AtomicU64>,
    unseen: Mutex<Unseen>,
}

impl Deadlines {
    pub fn new() -> Deadlines {
        Deadlines { least_ms: CachePadded::new(AtomicU64::new(u64::MAX)), unseen: Mutex::default() }
    }

    /// The time bounds of a commit that is about to get its number. `before_ms` is its deadline, `u64::MAX` if it has
    /// none. `read_csn` is the smallest CSN that new snapshots have.
    #[inline]
    pub fn begin(
        &self,
        before_ms: u64,
        now_ms: impl FnOnce() -> u64,
        read_csn: impl FnOnce() -> Csn,
    ) -> (TimeBounds, Option<Beginning<'_>>) {
        let beginning = (before_ms != u64::MAX).then(|| self.begin_timed(before_ms, read_csn()));
        (TimeBounds { from_ms: now_ms(), before_ms }, beginning)
    }

    fn begin_timed(&self, before_ms: u64, read_csn: Csn) -> Beginning<'_> {
        let mut held = self.lock(read_csn);
        // Allocate now: the commit must not once it has its number (INV-TXN-3).
        held.unseen.reserve(1);
        self.least_ms.store(first_ms(&held.unseen).min(before_ms), Ordering::SeqCst);
        Beginning { held, before_ms }
    }

    /// A time at or before the deadline of each commit that has read the clock by now and that is not seen by a
    /// snapshot which checks its CSN afterwards.
    #[inline]
    pub fn least_ms(&self) -> u64 {
        self.least_ms.load(Ordering::SeqCst)
    }

    /// Keeps commits with deadlines from getting numbers. Drops the deadlines of commits up to `read_csn`, which all
    /// new snapshots see.
    pub fn lock(&self, read_csn: Csn) -> HeldDeadlines<'_> {
        let mut unseen = self.unseen.lock();
        while unseen.pop_front_if(|first| first.csn <= read_csn).is_some() {}
        self.least_ms.store(first_ms(&unseen), Ordering::SeqCst);
        HeldDeadlines { deadlines: self, unseen }
    }

    /// The newest commit whose deadline is recorded; 0 if there is none.
    pub fn newest(&self) -> Csn {
        self.unseen.lock().back().map_or(Csn::ZERO, |timed| timed.csn)
    }
}

fn first_ms(unseen: &Unseen) -> u64 {
    unseen.front().map_or(u64::MAX, |timed| timed.before_ms)
}

/// While it lives, no commit with a deadline gets a number.
pub(crate) struct HeldDeadlines<'a> {
    deadlines: &'a Deadlines,
    unseen: MutexGuard<'a, Unseen>,
}

impl HeldDeadlines<'_> {
    /// `now_ms`, or the last millisecond before the first deadline of a commit above `csn`.
    pub fn before(&self, now_ms: u64, csn: Csn) -> u64 {
        let above = self.unseen.partition_point(|timed| timed.csn <= csn);
        self.unseen.get(above).map_or(now_ms, |timed| now_ms.min(timed.before_ms - 1))
    }
}

/// A commit with a deadline, while it reads the clock and gets a number or fails.
pub(crate) struct Beginning<'a> {
    held: HeldDeadlines<'a>,
    before_ms: u64,
}

impl Beginning<'_> {
    /// The commit has its number.
    pub fn numbered(mut self, csn: Csn) {
        let unseen = &mut self.held.unseen;
        let before_ms = self.before_ms;
        while unseen.pop_back_if(|last| last.before_ms >= before_ms).is_some() {}
        unseen.push_back(Timed { csn, before_ms });
    }
}

impl Drop for Beginning<'_> {
    /// Takes the deadline out of `least_ms` again, unless [`Beginning::numbered`] recorded it: the commit was too late.
    fn drop(&mut self) {
        let HeldDeadlines { deadlines, unseen } = &self.held;
        deadlines.least_ms.store(first_ms(unseen), Ordering::SeqCst);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn commit(deadlines: &Deadlines, csn: u64, before_ms: u64) {
        let (time, beginning) = deadlines.begin(before_ms, || 7, || Csn::ZERO);
        assert_eq!(time, TimeBounds { from_ms: 7, before_ms });
        beginning.unwrap().numbered(Csn(csn));
    }

    #[test]
    fn a_snapshot_begins_before_the_first_deadline_above_it() {
        let deadlines = Deadlines::new();
        for (csn, before_ms) in [(2, 50), (3, 80), (5, 70), (6, 90), (9, 90)] {
            commit(&deadlines, csn, before_ms);
        }
        assert_eq!(deadlines.least_ms(), 50);
        let held = deadlines.lock(Csn::ZERO);
        let times: Vec<u64> = (0..10).map(|csn| held.before(100, Csn(csn))).collect();
        assert_eq!(times, [49, 49, 69, 69, 69, 89, 89, 89, 89, 100]);
        assert_eq!(held.before(60, Csn(2)), 60);
        drop(held);
        assert_eq!(deadlines.newest(), Csn(9));
    }

    #[test]
    fn what_all_snapshots_see_and_what_was_too_late_is_dropped() {
        let deadlines = Deadlines::new();
        assert!(deadlines.begin(u64::MAX, || 7, || unreachable!()).1.is_none());
        commit(&deadlines, 2, 50);
        commit(&deadlines, 4, 60);
        drop(deadlines.begin(10, || 7, || Csn(3)));
        assert_eq!(deadlines.least_ms(), 60);
        drop(deadlines.lock(Csn(4)));
        assert_eq!((deadlines.least_ms(), deadlines.newest()), (u64::MAX, Csn::ZERO));
    }
}
