//! The commit ring: a slot for each commit that is numbered and not yet visible. A commit's CSN selects its slot.
//!
//! A slot's state word holds the CSN of the slot's present commit and its phase, and only ever rises. So a thread that
//! looks for an older commit in a reused slot reads a larger word, and concludes rightly that the older commit is
//! applied. And an exchange that expects one commit's word cannot succeed on another's.

use std::cell::UnsafeCell;

use fulgurite_types::{Csn, Lsn};

use super::Apply;
use fulgurite_types::sync::{AtomicU64, Ordering};

/// The work may be claimed.
const READY: u64 = 1;
/// A thread has claimed the work and applies it.
const APPLYING: u64 = 2;
const APPLIED: u64 = 3;

const PHASE_BITS: u32 = 2;

fn word(csn: Csn, phase: u64) -> u64 {
    csn.0 << PHASE_BITS | phase
}

/// What a commit does to memory, and the LSN of its body.
pub(super) struct Work {
    pub apply: Box<dyn Apply>,
    pub body_lsn: Lsn,
}

struct CommitSlot {
    /// CSN and phase, see [`word`].
    state: AtomicU64,
    /// Written by the owner before it stores `READY`, taken by the thread that moves the state to `APPLYING`.
    work: UnsafeCell<Option<Work>>,
}

// SAFETY: the one owner of a CSN writes `work` before it stores READY. The one thread that wins the exchange READY ->
// APPLYING takes it. The slot gets another owner only after that thread has stored APPLIED (`Ring::publish`).
unsafe impl Sync for CommitSlot {}

/// Two slots fill a cache line. Commits with neighbouring CSNs are in different lines, because different threads own
/// them.
#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<CommitSlot>() == 32);

/// The commit ring.
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

    /// For how many commits there is room.
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
    /// Call this once for each CSN, and only when `visible` has reached the CSN that is [`Ring::len`] smaller
    /// (INV-TXN-7): then that commit's work is done, and its state is not needed any more.
    pub unsafe fn publish(&self, csn: Csn, work: Work) {
        let slot = self.slot(csn);
        debug_assert!(slot.state.load(Ordering::Relaxed) < word(csn, READY), "INV-TXN-7");
        // SAFETY: the caller is the one owner of the CSN. The slot's last commit was applied, so no thread accesses
        // `work` any more, and none will again before READY is stored.
        unsafe { *slot.work.get() = Some(work) };
        slot.state.store(word(csn, READY), Ordering::Release);
    }

    /// The work of a published commit. Exactly one caller gets it.
    pub fn claim(&self, csn: Csn) -> Option<Work> {
        let slot = self.slot(csn);
        let ready = word(csn, READY);
        let applying = word(csn, APPLYING);
        slot.state.compare_exchange(ready, applying, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: the exchange succeeds for one thread only, ever: no word is stored twice (`publish`).
        unsafe { (*slot.work.get()).take() }
    }

    /// The caller has applied the work that it claimed.
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
    fn each_commit_is_claimed_once_and_slots_are_reused() {
        let ring = Ring::new(2);
        for csn in (1..=40).map(Csn) {
            assert!(ring.claim(csn).is_none(), "not published");
            // SAFETY: called once for each CSN, and the slot's last commit was applied in an earlier round.
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
