//! Where committers sleep until their commit is durable: one futex word for every 32 consecutive CSNs, so that one
//! call wakes all of a group that slept, and nobody else.
//!
//! A sleeper marks its bit, checks once more what it waits for, and sleeps only while its word's number of wake-ups is
//! the one it read before. A waker makes the change first, then looks for bits, then raises the number, then wakes.
//! INV-LOG-11: so either the sleeper sees the change, or the waker sees the bit.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering::SeqCst;

use crossbeam_utils::CachePadded;
use fulgurite_base::Csn;

use crate::sync::{AtomicU32, AtomicU64};

/// How many commits share a word.
#[cfg(not(feature = "shuttle"))]
const LANES: u64 = u32::BITS as u64;
#[cfg(feature = "shuttle")]
const LANES: u64 = 2;
/// How many words there are; commits further apart than `WORDS * LANES` share bits, which costs a look, no more.
#[cfg(not(feature = "shuttle"))]
const WORDS: u64 = 128;
#[cfg(feature = "shuttle")]
const WORDS: u64 = 2;

#[derive(Default)]
struct Word {
    /// How often sleepers of this word were woken.
    wakes: futex::Futex,
    /// Who sleeps, or is about to.
    sleepers: AtomicU32,
}

/// The words.
pub(crate) struct Parking {
    words: Box<[CachePadded<Word>]>,
    /// The newest commit that anybody slept for.
    newest: CachePadded<AtomicU64>,
}

impl Parking {
    pub fn new() -> Parking {
        let words = (0..WORDS).map(|_| CachePadded::default()).collect();
        Parking { words, newest: CachePadded::new(AtomicU64::new(0)) }
    }

    fn word(&self, line: u64) -> &Word {
        &self.words[(line % WORDS) as usize]
    }

    /// Sleeps until woken for `csn`, unless `is_over` says that there is nothing to wait for. May return early.
    /// Whether it slept.
    pub fn park(&self, csn: Csn, is_over: impl Fn() -> bool) -> bool {
        let word = self.word(csn.0 / LANES);
        let bit = 1 << (csn.0 % LANES);
        let wakes = word.wakes.load();
        self.newest.fetch_max(csn.0, SeqCst);
        word.sleepers.fetch_or(bit, SeqCst);
        if is_over() {
            return false;
        }
        word.wakes.wait(wakes, bit);
        true
    }

    /// Wakes whoever sleeps for one of `from + 1 ..= to`. How many calls that took.
    pub fn wake_range(&self, from: Csn, to: Csn) -> u64 {
        let (first, last) = (from.0 + 1, to.0);
        if last < first {
            return 0;
        }
        if last - first >= WORDS * LANES {
            return self.wake_all();
        }
        (first / LANES..=last / LANES)
            .map(|line| u64::from(self.word(line).wake(lanes(line, first, last))))
            .sum()
    }

    /// Wakes who sleeps for the first commit behind `from` that somebody sleeps for. Whether there was one.
    pub fn wake_first(&self, from: Csn) -> bool {
        let first = from.0 + 1;
        let last = self.newest.load(SeqCst).min(from.0 + WORDS * LANES);
        (first / LANES..=last / LANES).any(|line| {
            let word = self.word(line);
            let sleepers = word.sleepers.load(SeqCst) & lanes(line, first, last);
            sleepers != 0 && word.wake(1 << sleepers.trailing_zeros())
        })
    }

    /// Wakes everybody. How many calls that took.
    pub fn wake_all(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.wake(u32::MAX))).sum()
    }
}

/// The bits of a word's commits that lie in `first..=last`.
fn lanes(line: u64, first: u64, last: u64) -> u32 {
    if last < first {
        return 0;
    }
    let low = first.max(line * LANES) - line * LANES;
    let high = last.min(line * LANES + LANES - 1) - line * LANES;
    (u32::MAX >> (u64::from(u32::BITS) - 1 - high)) & (u32::MAX << low)
}

impl Word {
    /// Wakes those of `bits` who sleep; false if there are none.
    fn wake(&self, bits: u32) -> bool {
        if self.sleepers.load(SeqCst) & bits == 0 {
            return false;
        }
        match NonZeroU32::new(self.sleepers.fetch_and(!bits, SeqCst) & bits) {
            Some(bits) => {
                self.wakes.wake(bits);
                true
            }
            None => false,
        }
    }
}

#[cfg(not(feature = "shuttle"))]
mod futex {
    use std::num::NonZeroU32;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    use rustix::thread::futex::{Flags, wait_bitset, wake_bitset};

    /// A word of the kernel's.
    #[derive(Default)]
    pub(super) struct Futex(AtomicU32);

    impl Futex {
        pub fn load(&self) -> u32 {
            self.0.load(SeqCst)
        }

        /// Sleeps while the word is `expected`, until woken for `bit`. An interruption is a wake-up.
        pub fn wait(&self, expected: u32, bit: u32) {
            let bit = NonZeroU32::new(bit).expect("a lane is a bit");
            let _ = wait_bitset(&self.0, Flags::PRIVATE, expected, None, bit);
        }

        pub fn wake(&self, bits: NonZeroU32) {
            self.0.fetch_add(1, SeqCst);
            let _ = wake_bitset(&self.0, Flags::PRIVATE, i32::MAX as u32, bits);
        }
    }
}

#[cfg(feature = "shuttle")]
mod futex {
    use std::num::NonZeroU32;

    use shuttle::sync::{Condvar, Mutex};

    /// What the kernel does, made of a lock: the word, and the bits that the last wake-ups were for.
    #[derive(Default)]
    pub(super) struct Futex {
        word: Mutex<(u32, Vec<u32>)>,
        changed: Condvar,
    }

    impl Futex {
        pub fn load(&self) -> u32 {
            self.word.lock().unwrap().0
        }

        pub fn wait(&self, expected: u32, bit: u32) {
            let mut word = self.word.lock().unwrap();
            if word.0 != expected {
                return;
            }
            let seen = word.1.len();
            while !word.1[seen..].iter().any(|bits| bits & bit != 0) {
                word = self.changed.wait(word).unwrap();
            }
        }

        pub fn wake(&self, bits: NonZeroU32) {
            let mut word = self.word.lock().unwrap();
            word.0 += 1;
            word.1.push(bits.get());
            self.changed.notify_all();
        }
    }
}
