//! The reads from disk that go on, and records that are freed since they began.
//!
//! A read finds a position in memory, and reads the record there. Meanwhile the record may be replaced by another one, and its
//! segment retired, to be freed. **INV-READ-1.** *A record is freed only when every read has ended that began before the
//! record was retired, and a read looks its position up after it began, where it is current.* A read that begins later finds
//! the position of the other record.
//!
//! As in SRCU (McKenney), reads are counted in two phases in turn. A read counts in the phase in which it began. The phase
//! changes only when no read of the phase before it is left; so two changes later every read that began before the first has
//! ended. A read costs two atomic additions, and holds back no memory, unlike an epoch that stays pinned over a read.

use crate::sync::{AtomicU64, Mutex, Ordering, fence};

/// The reads that go on.
#[derive(Debug)]
pub struct DiskReads {
    phase: AtomicU64,
    /// How many reads of the even and of the odd phases go on.
    going_on: [AtomicU64; 2],
    /// Held while a record is retired, and while the phase changes: see [`DiskReads::begin`].
    retiring: Mutex<()>,
}

/// A read that goes on until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct DiskRead<'r> {
    count: &'r AtomicU64,
}

/// When a record was retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retired(u64);

impl Default for DiskReads {
    fn default() -> DiskReads {
        DiskReads {
            phase: AtomicU64::new(0),
            going_on: [AtomicU64::new(0), AtomicU64::new(0)],
            retiring: Mutex::new(()),
        }
    }
}

impl DiskReads {
    /// Begins a read. Positions that were found before do not count as found by it.
    ///
    /// It does not matter if the phase changes before the read is counted: let P be the phase when it is counted. A record that was
    /// retired before P is not found by the read. For the rest the phase has to become P + 2, and for that both counts were 0 at
    /// some time since, whichever has the read. (The count of the other phase was looked at while the phase was that, and
    /// after the record was retired, because of the lock: without it a look from before could change the phase later.)
    pub fn begin(&self) -> DiskRead<'_> {
        let phase = self.phase.load(Ordering::SeqCst);
        let count = &self.going_on[(phase % 2) as usize];
        count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence of `retire`.
        fence(Ordering::SeqCst);
        DiskRead { count }
    }

    /// Notes that a record was retired: called when its position can be found no more.
    pub fn retire(&self) -> Retired {
        let _retiring = self.retiring.lock();
        fence(Ordering::SeqCst);
        Retired(self.phase.load(Ordering::SeqCst))
    }

    /// Whether all reads that may still use a retired record have ended. Changes the phase for that, as far as reads allow it.
    pub fn have_ended(&self, retired: Retired) -> bool {
        let _retiring = self.retiring.lock();
        loop {
            let phase = self.phase.load(Ordering::SeqCst);
            if phase >= retired.0 + 2 {
                return true;
            }
            if self.going_on[((phase + 1) % 2) as usize].load(Ordering::SeqCst) > 0 {
                return false;
            }
            self.phase.store(phase + 1, Ordering::SeqCst);
        }
    }
}

impl Drop for DiskRead<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_freed_when_the_reads_that_began_before_have_ended() {
        let reads = DiskReads::default();
        assert!(reads.have_ended(reads.retire()), "there is none");
        for _ in 0..3 {
            let before = reads.begin();
            let retired = reads.retire();
            assert!(!reads.have_ended(retired) && !reads.have_ended(retired));
            let after = reads.begin();
            assert!(!reads.have_ended(retired));
            drop(before);
            assert!(reads.have_ended(retired), "the read that goes on began later");
            let later = reads.retire();
            assert!(later > retired && !reads.have_ended(later));
            drop(after);
            assert!(reads.have_ended(later));
        }
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use std::sync::Arc;

    use super::*;
    use crate::sync::AtomicBool;

    /// A record is replaced and freed, twice; readers look its position up, and read it.
    #[test]
    fn no_read_finds_its_record_freed() {
        let run = || {
            let reads = Arc::new(DiskReads::default());
            let current = Arc::new(AtomicU64::new(0));
            let freed: Arc<[AtomicBool; 3]> = Arc::new(std::array::from_fn(|_| AtomicBool::new(false)));
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let (reads, current, freed) = (reads.clone(), current.clone(), freed.clone());
                    shuttle::thread::spawn(move || {
                        for _ in 0..2 {
                            let _read = reads.begin();
                            let record = current.load(Ordering::Acquire) as usize;
                            shuttle::thread::yield_now();
                            assert!(!freed[record].load(Ordering::SeqCst), "INV-READ-1: record {record}");
                        }
                    })
                })
                .collect();
            for record in 0..2 {
                current.store(record as u64 + 1, Ordering::Release);
                let retired = reads.retire();
                while !reads.have_ended(retired) {
                    shuttle::thread::yield_now();
                }
                freed[record].store(true, Ordering::SeqCst);
            }
            for reader in readers {
                reader.join().unwrap();
            }
        };
        shuttle::check_pct(run, 20_000, 3);
        shuttle::check_random(run, 20_000);
    }

    /// Two threads retire records, and ask for them.
    #[test]
    fn no_read_finds_its_record_freed_by_two_threads() {
        let run = || {
            let reads = Arc::new(DiskReads::default());
            let current = Arc::new(AtomicU64::new(0));
            let freed: Arc<[AtomicBool; 2]> = Arc::new(std::array::from_fn(|_| AtomicBool::new(false)));
            let reader = {
                let (reads, current, freed) = (reads.clone(), current.clone(), freed.clone());
                shuttle::thread::spawn(move || {
                    let _read = reads.begin();
                    let record = current.load(Ordering::Acquire) as usize;
                    shuttle::thread::yield_now();
                    assert!(!freed[record].load(Ordering::SeqCst), "INV-READ-1: record {record}");
                })
            };
            let other = {
                let reads = reads.clone();
                shuttle::thread::spawn(move || _ = reads.have_ended(reads.retire()))
            };
            current.store(1, Ordering::Release);
            let retired = reads.retire();
            while !reads.have_ended(retired) {
                shuttle::thread::yield_now();
            }
            freed[0].store(true, Ordering::SeqCst);
            reader.join().unwrap();
            other.join().unwrap();
        };
        shuttle::check_random(run, 200_000);
        shuttle::check_pct(run, 200_000, 5);
    }
}
