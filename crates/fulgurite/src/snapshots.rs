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

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;

use crate::counters;
use crate::deadlines::Deadlines;
use fulgurite_types::sync::{AtomicU64, RwLock, fence};

const FREE: u64 = u64::MAX;
#[cfg(not(feature = "shuttle"))]
const BLOCK_SLOTS: usize = 64;
#[cfg(feature = "shuttle")]
const BLOCK_SLOTS: usize = 2;

struct Slot {
    /// The CSN, or `FREE`.
    csn: AtomicU64,
    /// The snapshot's `now` in milliseconds; expired versions that it still sees must stay.
    now_ms: AtomicU64,
}

/// Slots that are allocated together.
type Block = Arc<[CachePadded<Slot>; BLOCK_SLOTS]>;

/// The open snapshots of a database.
pub(crate) struct Snapshots {
    /// Holds all snapshots unless very many are open, so that opening one takes no lock.
    first: Block,
    more: RwLock<Vec<Block>>,
}

impl Snapshots {
    pub fn new() -> Snapshots {
        Snapshots { first: new_block(), more: RwLock::new(Vec::new()) }
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
        SnapshotGuard { block, index, csn, now_ms }
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

    /// Calls `look` for each slot that is not free, with its CSN.
    fn for_each_open(&self, mut look: impl FnMut(Csn, &Slot)) {
        let mut look_at = |block: &Block| {
            for slot in block.iter() {
                let csn = slot.csn.load(Ordering::SeqCst);
                if csn != FREE {
                    look(Csn(csn), slot);
                }
            }
        };
        look_at(&self.first);
        self.more.read().iter().for_each(look_at);
    }

    /// The CSNs of all open snapshots, ascending, and the smallest of their times in milliseconds. The caller has read
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

    /// How many snapshots are open, and when the oldest one was opened, in milliseconds of the database's clock.
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
        CachePadded::new(Slot { csn: AtomicU64::new(FREE), now_ms: AtomicU64::new(0) })
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

/// An open snapshot. Dropping it lets pruning remove the versions that it alone sees.
pub(crate) struct SnapshotGuard {
    block: Block,
    index: usize,
    /// The newest commit that it sees.
    pub csn: Csn,
    /// Its time, by which it sees keys as expired.
    pub now_ms: u64,
}

impl SnapshotGuard {
    /// A snapshot that is not registered and sees no commit.
    pub fn of_nothing() -> SnapshotGuard {
        SnapshotGuard { block: new_block(), index: 0, csn: Csn::ZERO, now_ms: 0 }
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let slot = &self.block[self.index];
        // The next claimer stores its CSN before its time. Until then the time has to be 0, which keeps everything.
        slot.now_ms.store(0, Ordering::Relaxed);
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
}
