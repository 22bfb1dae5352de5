//! The open snapshots, for which pruning keeps versions.
//!
//! INV-TXN-1: a snapshot uses a CSN only if `visible` still equals it *after* the snapshot has stored it in its slot.
//! The pruner reads the horizon *before* it reads the slots. So either the pruner reads the CSN in the slot, or it read
//! the slot before the store, and the horizon before the snapshot re-read `visible`: then the horizon is not above the
//! CSN. (A [`Snapshot`](crate::Snapshot) reads `read_csn` in place of `visible`: it never falls either, and is never
//! below the horizon.) An older CSN in the slot is not enough: pruning keeps the versions seen at the CSNs in the slots
//! and those seen from the horizon on, and none between.
//!
//! The time of a snapshot needs a lower bound only: a slot keeps all expired versions until it has a time.
//!
//! INV-TXN-15: a step of a reader returns what it read, values included, or that it found nothing, only if its slot is
//! not `ENDED` when it loads `begun_ns` *after* all its other reads. A pruner passes over a slot only if it loads `ENDED`
//! there, and changes what that snapshot sees only afterwards. A transaction whose slot may have been passed over does
//! not commit: it replaces its `begun_ns` by `NEVER` before its commit reads anything, and fails if it finds `ENDED`.
//!
//! - A step that read a change of such a pruner returns an error: the pruner's load of `ENDED` precedes the change, which
//!   precedes the step's read of it, which precedes the step's load (the fence in [`SnapshotGuard::has_ended`]). `ENDED`
//!   stays until the guard is dropped, so that load finds it.
//! - No other snapshot than an old one is ended: `ENDED` replaces, by compare-exchange, the very `begun_ns` that is too
//!   old. If the slot has changed hands and has the same one again, the new snapshot is as old.
//! - A pruner that loads `ENDED` may pass over a snapshot that claims the slot next. That one stores its CSN after the
//!   load, which is the second case of INV-TXN-1.
//! - No other reader gets a wrong result from an ended one. An empty range that its cursor records (INV-IDX-9) is empty
//!   for the others, too: the versions that they see at or below its CSN were not pruned, so the cursor saw them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use fulgurite_index::table::ReadPoint;
use fulgurite_types::Csn;

use crate::counters;
use crate::deadlines::Deadlines;
use fulgurite_types::sync::{AtomicU64, RwLock, fence};

const FREE: u64 = u64::MAX;

/// The `begun_ns` of a free slot, and of a snapshot that is not ended however old it is.
const NEVER: u64 = u64::MAX;
/// The `begun_ns` of a snapshot that was ended: pruning keeps nothing for it.
const ENDED: u64 = u64::MAX - 1;

#[cfg(not(feature = "shuttle"))]
const BLOCK_SLOTS: usize = 64;
#[cfg(feature = "shuttle")]
const BLOCK_SLOTS: usize = 2;

struct Slot {
    /// The CSN, or `FREE`.
    csn: AtomicU64,
    /// The snapshot's `now` in milliseconds; expired versions that it still sees must stay.
    now_ms: AtomicU64,
    /// When the snapshot began, in monotonic nanoseconds, or `NEVER`, or `ENDED`.
    begun_ns: AtomicU64,
}

/// Slots that are allocated together.
type Block = Arc<[CachePadded<Slot>; BLOCK_SLOTS]>;

/// The open snapshots of a database.
pub(crate) struct Snapshots {
    /// Holds all snapshots unless very many are open, so that opening one takes no lock.
    first: Block,
    more: RwLock<Vec<Block>>,
    /// How many were ended.
    ended: AtomicU64,
}

impl Snapshots {
    pub fn new() -> Snapshots {
        Snapshots { first: new_block(), more: RwLock::new(Vec::new()), ended: AtomicU64::new(0) }
    }

    /// Registers a snapshot at a CSN that `visible` still had after the slot held it (INV-TXN-1), and after the clock
    /// and the deadlines were read (INV-TIME-3). Retries only if a commit became visible in the few nanoseconds
    /// between. Takes the lock of the deadlines only if the first deadline has come. `read_csn` is the smallest CSN
    /// that a new snapshot has.
    pub fn register(
        &self,
        now_ms: impl Fn() -> u64,
        visible: impl Fn() -> Csn,
        deadlines: &Deadlines,
        read_csn: impl Fn() -> Csn,
    ) -> SnapshotGuard {
        let mut csn = visible();
        let (block, index) = self.claim(csn.0);
        let slot = &block[index];
        let mut held = None;
        let now_ms = loop {
            let now_ms = now_ms();
            fence(Ordering::SeqCst);
            if held.is_none() && now_ms >= deadlines.least_ms() {
                held = Some(deadlines.lock(read_csn()));
            }
            let now = visible();
            if now == csn {
                break held.map_or(now_ms, |held| held.before(now_ms, csn));
            }
            csn = now;
            slot.csn.store(csn.0, Ordering::SeqCst);
        };
        slot.now_ms.store(now_ms, Ordering::Release);
        SnapshotGuard { slot: SlotRef { block, index }, csn, now_ms, begun_ns: NEVER }
    }

    /// Claims a free slot by storing `csn` in it. Each thread tries a slot of its own first.
    fn claim(&self, csn: u64) -> (Block, usize) {
        let start = counters::thread_number();
        if let Some(index) = claim_in(&self.first, start, csn) {
            return (self.first.clone(), index);
        }
        loop {
            let seen = {
                let more = self.more.read();
                for block in more.iter() {
                    if let Some(index) = claim_in(block, start, csn) {
                        return (block.clone(), index);
                    }
                }
                more.len()
            };
            let mut more = self.more.write();
            if more.len() == seen {
                more.push(new_block());
            }
        }
    }

    fn for_each_slot(&self, mut look: impl FnMut(&Slot)) {
        let mut look_at = |block: &Block| block.iter().for_each(|slot| look(slot));
        look_at(&self.first);
        self.more.read().iter().for_each(look_at);
    }

    /// Calls `look` for each slot of an open snapshot that was not ended (INV-TXN-15), with its CSN.
    fn for_each_open(&self, mut look: impl FnMut(Csn, &Slot)) {
        self.for_each_slot(|slot| {
            let csn = slot.csn.load(Ordering::SeqCst);
            if csn != FREE && slot.begun_ns.load(Ordering::SeqCst) != ENDED {
                look(Csn(csn), slot);
            }
        });
    }

    /// Ends the snapshots that are older than `max_age_ns` at `now_ns` and may be ended; returns how many.
    pub fn end_older(&self, now_ns: u64, max_age_ns: u64) -> u64 {
        let mut ended = 0;
        self.for_each_slot(|slot| {
            let begun_ns = slot.begun_ns.load(Ordering::Relaxed);
            if begun_ns < ENDED && now_ns.saturating_sub(begun_ns) > max_age_ns {
                ended += u64::from(self.end(slot, begun_ns));
            }
        });
        ended
    }

    /// Ends the snapshot that began at `begun_ns`, if it has the slot still and was not ended.
    fn end(&self, slot: &Slot, begun_ns: u64) -> bool {
        let ended =
            slot.begun_ns.compare_exchange(begun_ns, ENDED, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if ended {
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
        ended
    }

    /// The same for the snapshot of a guard.
    pub fn end_guard(&self, guard: &SnapshotGuard) {
        self.end(guard.slot.get(), guard.begun_ns);
    }

    /// How many snapshots were ended.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// The CSNs of all open snapshots that were not ended, ascending, and the smallest of their times in milliseconds. The caller has read
    /// the horizon before (INV-TXN-1).
    pub fn open(&self) -> (Vec<Csn>, Option<u64>) {
        fence(Ordering::SeqCst);
        let mut csns = Vec::new();
        let mut now_ms_min = None;
        self.for_each_open(|csn, slot| {
            csns.push(csn);
            let now_ms = slot.now_ms.load(Ordering::Relaxed);
            now_ms_min = Some(now_ms_min.map_or(now_ms, |min: u64| min.min(now_ms)));
        });
        csns.sort_unstable();
        csns.dedup();
        (csns, now_ms_min)
    }

    /// How many snapshots are open and not ended, and when the oldest one was opened, in milliseconds of the database's clock.
    pub fn count_and_oldest_ms(&self) -> (u64, Option<u64>) {
        let mut count = 0;
        let mut oldest_ms = None;
        self.for_each_open(|_, slot| {
            count += 1;
            // 0: the snapshot is being opened.
            let now_ms = slot.now_ms.load(Ordering::Relaxed);
            if now_ms != 0 {
                oldest_ms = Some(oldest_ms.map_or(now_ms, |min: u64| min.min(now_ms)));
            }
        });
        (count, oldest_ms)
    }
}

fn new_block() -> Block {
    Arc::new(std::array::from_fn(|_| {
        CachePadded::new(Slot {
            csn: AtomicU64::new(FREE),
            now_ms: AtomicU64::new(0),
            begun_ns: AtomicU64::new(NEVER),
        })
    }))
}

/// Claims a free slot of a block, from `start` on.
fn claim_in(block: &Block, start: usize, csn: u64) -> Option<usize> {
    (0..BLOCK_SLOTS).map(|step| (start + step) % BLOCK_SLOTS).find(|&index| {
        let slot = &block[index].csn;
        slot.load(Ordering::Relaxed) == FREE
            && slot.compare_exchange(FREE, csn, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    })
}

/// The slot of a snapshot.
#[derive(Clone)]
pub(crate) struct SlotRef {
    block: Block,
    index: usize,
}

impl SlotRef {
    #[inline]
    fn get(&self) -> &Slot {
        &self.block[self.index]
    }

    /// Whether the snapshot in the slot was ended.
    pub fn has_ended(&self) -> bool {
        self.get().begun_ns.load(Ordering::Acquire) == ENDED
    }
}

/// An open snapshot. Dropping it lets pruning remove the versions that it alone sees.
pub(crate) struct SnapshotGuard {
    slot: SlotRef,
    /// The newest commit that it sees.
    pub csn: Csn,
    /// Its time, by which it sees keys as expired.
    pub now_ms: u64,
    /// When it began, in monotonic nanoseconds; `NEVER` if it is not ended however old it is.
    begun_ns: u64,
}

impl SnapshotGuard {
    /// A snapshot that is not registered and sees no commit.
    pub fn of_nothing() -> SnapshotGuard {
        let slot = SlotRef { block: new_block(), index: 0 };
        SnapshotGuard { slot, csn: Csn::ZERO, now_ms: 0, begun_ns: NEVER }
    }

    /// From now on it is ended when it is too old.
    pub fn may_end(mut self, begun_ns: u64) -> SnapshotGuard {
        self.begun_ns = begun_ns.min(ENDED - 1);
        self.slot.get().begun_ns.store(self.begun_ns, Ordering::Release);
        self
    }

    /// Where the snapshot is read.
    pub fn at(&self) -> ReadPoint {
        ReadPoint { csn: self.csn, now_ms: self.now_ms }
    }

    pub fn slot(&self) -> &SlotRef {
        &self.slot
    }

    /// When it began, in monotonic nanoseconds; `None` if it is not ended however old it is.
    #[inline]
    pub fn begun_ns(&self) -> Option<u64> {
        (self.begun_ns != NEVER).then_some(self.begun_ns)
    }

    /// Whether it was ended. A step asks after it has read all that it returns (INV-TXN-15).
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.begun_ns != NEVER && {
            // The step's reads come before the load.
            fence(Ordering::Acquire);
            self.slot.get().begun_ns.load(Ordering::Relaxed) == ENDED
        }
    }

    /// From now on it is not ended; false if it was.
    pub fn keep(&self) -> bool {
        let begun_ns = &self.slot.get().begun_ns;
        self.begun_ns == NEVER
            || begun_ns.compare_exchange(self.begun_ns, NEVER, Ordering::SeqCst, Ordering::Acquire)
                != Err(ENDED)
    }

    /// It may be ended again: its commit was given up, and all that [`SnapshotGuard::keep`] kept is still there.
    pub fn end_keep(&self) {
        let begun_ns = &self.slot.get().begun_ns;
        if self.begun_ns != NEVER {
            _ = begun_ns.compare_exchange(NEVER, self.begun_ns, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let slot = self.slot.get();
        // The next claimer stores its CSN before its times. Until then the time has to be 0, which keeps everything.
        slot.now_ms.store(0, Ordering::Relaxed);
        slot.begun_ns.store(NEVER, Ordering::Relaxed);
        slot.csn.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn open_snapshots_are_listed_until_they_are_dropped() {
        let snapshots = Snapshots::new();
        let deadlines = Deadlines::new();
        let register = |n: u64| {
            snapshots.register(|| 1000 + n, || Csn(n % 7), &deadlines, || unreachable!("there are none"))
        };
        let guards: Vec<_> = (0..200).map(register).collect();
        let (csns, now_ms) = snapshots.open();
        assert_eq!(csns, (0..7).map(Csn).collect::<Vec<_>>());
        assert_eq!(now_ms, Some(1000));
        assert_eq!(snapshots.count_and_oldest_ms(), (200, Some(1000)));
        drop(guards);
        assert_eq!(snapshots.open(), (vec![], None));
    }

    #[test]
    fn an_old_snapshot_is_ended_once_and_keeps_nothing_while_its_guard_lives() {
        let snapshots = Snapshots::new();
        let register = |csn: u64, begun_ns: Option<u64>| {
            let guard = snapshots.register(|| csn, || Csn(csn), &Deadlines::new(), || Csn(csn));
            match begun_ns {
                Some(begun_ns) => guard.may_end(begun_ns),
                None => guard,
            }
        };
        let guards = [(1, None), (2, Some(100)), (3, Some(101)), (4, Some(100)), (5, Some(100))];
        let [never, old, young, kept, dropped] = guards.map(|(csn, begun_ns)| register(csn, begun_ns));
        assert!(kept.keep() && kept.keep() && never.keep());
        drop(dropped);
        assert_eq!(snapshots.end_older(110, 10), 0);
        assert_eq!(snapshots.end_older(111, 10), 1);
        assert_eq!(snapshots.open(), (vec![Csn(1), Csn(3), Csn(4)], Some(1)));
        assert_eq!((snapshots.count_and_oldest_ms(), snapshots.ended()), ((3, Some(1)), 1));
        assert_eq!([&never, &old, &young, &kept].map(SnapshotGuard::has_ended), [false, true, false, false]);
        assert!(old.slot().has_ended() && !old.keep() && old.has_ended() && !young.slot().has_ended());
        assert_eq!(snapshots.end_older(111, 10), 0);
        snapshots.end_guard(&young);
        snapshots.end_guard(&young);
        assert_eq!(snapshots.open().0, [Csn(1), Csn(4)]);
        drop((old, young));
        assert_eq!(snapshots.ended(), 2);
        // The slots are free again, and nothing of the ended snapshots is left in them.
        let again: Vec<_> = (10..74).map(|csn| register(csn, None)).collect();
        assert_eq!((snapshots.open().0.len(), snapshots.end_older(u64::MAX, 0)), (66, 0));
        drop((again, never, kept));
        assert_eq!(snapshots.open(), (vec![], None));
    }
}
