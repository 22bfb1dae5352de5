//! Numbered commits that are not visible yet, in a ring of slots: each commit has the slot of its number.
//!
//! A slot's state word holds the CSN of its present owner and how far that is, and only ever rises. So whoever looks
//! for a commit in a slot that was used again is told that it is applied, and an exchange that names a commit cannot
//! hit another.

use std::cell::UnsafeCell;

use fulgurite_types::{Csn, Lsn};

use super::Apply;
use crate::sync::{AtomicU64, Ordering};

/// Its work may be claimed.
const READY: u64 = 1;
/// Somebody is applying it.
const APPLYING: u64 = 2;
const APPLIED: u64 = 3;

const PHASE_BITS: u32 = 2;

fn word(csn: Csn, phase: u64) -> u64 {
    csn.0 << PHASE_BITS | phase
}

/// What a commit does to memory, and where the log put its body.
pub(super) struct Work {
    pub apply: Box<dyn Apply>,
    pub body_lsn: Lsn,
}

struct CommitSlot {
    /// CSN and phase, see [`word`].
    state: AtomicU64,
    /// Put by the owner before `READY`, taken by whoever moves the state to `APPLYING`.
    work: UnsafeCell<Option<Work>>,
}

// SAFETY: `work` is written by the one owner of a CSN before it stores READY, and read by the one thread that wins the
// exchange READY -> APPLYING; the slot changes hands only after that has stored APPLIED (`Ring::publish`).
unsafe impl Sync for CommitSlot {}

/// Two slots fill a cache line; neighbours in number lie in different ones, because they belong to different threads.
#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<CommitSlot>() == 32);

/// The slots.
pub(super) struct Ring {
    slots: Box<[CommitSlot]>,
    bits: u32,
}

impl Ring {
    /// A ring of `1 << bits` empty slots.
    pub fn new(bits: u32) -> Ring {
        let slot = || CommitSlot { state: AtomicU64::new(0), work: UnsafeCell::new(None) };
        Ring { slots: std::iter::repeat_with(slot).take(1 << bits).collect(), bits }
    }

    /// How many commits it has room for.
    pub fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    fn slot(&self, csn: Csn) -> &CommitSlot {
        let mask = self.len() - 1;
        let rotated = csn.0 << 1 | csn.0 >> (self.bits - 1) & 1;
        &self.slots[(rotated & mask) as usize]
    }

    /// Puts a commit's work into its slot.
    ///
    /// # Safety
    /// Once for each CSN, and only when `visible` has passed the CSN that is [`Ring::len`] smaller (INV-TXN-7): then
    /// that commit's work is done, and nobody asks for its state any more.
    pub unsafe fn publish(&self, csn: Csn, work: Work) {
        let slot = self.slot(csn);
        debug_assert!(slot.state.load(Ordering::Relaxed) < word(csn, READY), "INV-TXN-7");
        // SAFETY: the caller is the one owner of the CSN; the slot's last commit was applied, so nobody else touches
        // its work, and nobody will before READY is stored.
        unsafe { *slot.work.get() = Some(work) };
        slot.state.store(word(csn, READY), Ordering::Release);
    }

    /// The work of a published commit, for the one caller that gets it.
    pub fn claim(&self, csn: Csn) -> Option<Work> {
        let slot = self.slot(csn);
        let (ready, applying) = (word(csn, READY), word(csn, APPLYING));
        slot.state.compare_exchange(ready, applying, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: the exchange succeeds for one thread only, ever: words are not stored twice (`publish`).
        unsafe { (*slot.work.get()).take() }
    }

    /// The caller has done what it claimed.
    pub fn set_applied(&self, csn: Csn) {
        self.slot(csn).state.store(word(csn, APPLIED), Ordering::SeqCst);
    }

    /// Whether a commit is applied.
    pub fn is_applied(&self, csn: Csn) -> bool {
        self.slot(csn).state.load(Ordering::SeqCst) >= word(csn, APPLIED)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    struct Nothing;

    impl Apply for Nothing {
        fn apply(self: Box<Self>, _: Csn, _: Lsn) {}
    }

    fn work() -> Work {
        Work { apply: Box::new(Nothing), body_lsn: Lsn::NULL }
    }

    #[test]
    fn each_commit_is_claimed_once_and_slots_are_used_again() {
        let ring = Ring::new(2);
        for csn in (1..=40).map(Csn) {
            assert!(ring.claim(csn).is_none(), "not published");
            // SAFETY: once for each CSN, and the one before it in the slot was applied in an earlier round.
            unsafe { ring.publish(csn, work()) };
            assert!(ring.claim(csn).is_some() && ring.claim(csn).is_none());
            assert!(!ring.is_applied(csn));
            ring.set_applied(csn);
            assert!(ring.is_applied(csn) && !ring.is_applied(Csn(csn.0 + 4)));
            if let Some(earlier) = csn.0.checked_sub(4).filter(|&earlier| earlier > 0).map(Csn) {
                assert!(ring.is_applied(earlier) && ring.claim(earlier).is_none());
            }
        }
    }

    #[test]
    fn as_many_commits_as_slots_have_a_slot_each() {
        for bits in [1, 2, 5, 13] {
            let ring = Ring::new(bits);
            let first = 1u64 << 40;
            let mut slots: Vec<_> =
                (0..ring.len()).map(|n| std::ptr::from_ref(ring.slot(Csn(first + n)))).collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len() as u64, ring.len());
        }
    }
}
