//! Where committers sleep until their commit is durable: one futex word per 32 consecutive CSNs. So one call per word
//! wakes the sleepers that a write covered, and no other thread.
//!
//! A sleeper sets its bit, re-checks its condition, and waits only if the word's wake count is unchanged since before
//! it set the bit. A waker changes the condition, reads the bits, increments the count, and wakes. So either the
//! sleeper sees the new condition or the waker sees the bit (INV-LOG-11).
//!
//! A bit may have no sleeper: a thread that saw the new condition leaves its bit set. So a waker that needs one thread
//! to lead next wakes bit after bit, until the kernel reports that it woke a thread. A bit may also have several
//! sleepers: CSNs that are `WORDS * CSNS_PER_WORD` apart share it. So a woken thread may be one that need not lead, and then it
//! wakes the next (INV-LOG-14, `leader.rs`).

use std::num::NonZeroU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use crossbeam_utils::CachePadded;
use fulgurite_types::Csn;

use fulgurite_types::sync::{AtomicU32, AtomicU64};

/// Consecutive CSNs per word.
#[cfg(not(feature = "shuttle"))]
const CSNS_PER_WORD: u64 = u32::BITS as u64;
#[cfg(feature = "shuttle")]
const CSNS_PER_WORD: u64 = 2;
/// The number of words. Commits that are `WORDS * CSNS_PER_WORD` apart share a bit, which costs a re-check, no more.
#[cfg(not(feature = "shuttle"))]
const WORDS: u64 = 128;
#[cfg(feature = "shuttle")]
const WORDS: u64 = 2;

#[derive(Default)]
struct Word {
    /// The wake count: how often sleepers of this word were woken.
    wakes: futex::Futex,
    /// The bits of threads that sleep, or are about to.
    sleepers: AtomicU32,
}

/// The words.
pub(crate) struct Parking {
    words: Box<[CachePadded<Word>]>,
    /// The newest commit that a thread slept for.
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

    /// Sleeps until woken for `csn`, unless `is_over`. May return early. Returns whether it slept.
    pub fn park(&self, csn: Csn, is_over: impl Fn() -> bool) -> bool {
        let word = self.word(csn.0 / CSNS_PER_WORD);
        let bit = 1 << (csn.0 % CSNS_PER_WORD);
        let wakes = word.wakes.load();
        self.newest.fetch_max(csn.0, SeqCst);
        word.sleepers.fetch_or(bit, SeqCst);
        // `is_over` may read a flag that was stored with a weaker order than the bit: poison is. With a fence on both
        // sides (the other is in `wake_all`), either the re-check sees the poison or `wake_all` sees the bit. Without
        // this one the re-check could precede the store of the bit: an acquire load may pass an earlier store.
        fence(SeqCst);
        if is_over() {
            return false;
        }
        word.wakes.wait(wakes, bit);
        true
    }

    /// Wakes all sleepers for `from + 1 ..= to`. Returns the number of system calls.
    pub fn wake_range(&self, from: Csn, to: Csn) -> u64 {
        let first = from.0 + 1;
        let last = to.0;
        if last < first {
            return 0;
        }
        if last - first >= WORDS * CSNS_PER_WORD {
            return self.wake_all();
        }
        (first / CSNS_PER_WORD..=last / CSNS_PER_WORD)
            .map(|line| self.word(line).wake(bits_of(line, first, last)).calls)
            .sum()
    }

    /// Wakes the sleepers for the first commit after `from` that has any. Returns the number of system calls.
    pub fn wake_first(&self, from: Csn) -> u64 {
        let first = from.0 + 1;
        let last = self.newest.load(SeqCst).min(from.0 + WORDS * CSNS_PER_WORD);
        let mut calls = 0;
        for line in first / CSNS_PER_WORD..=last / CSNS_PER_WORD {
            let word = self.word(line);
            let mut sleepers = word.sleepers.load(SeqCst) & bits_of(line, first, last);
            while sleepers != 0 {
                let woken = word.wake(1 << sleepers.trailing_zeros());
                calls += woken.calls;
                if woken.threads > 0 {
                    return calls;
                }
                sleepers &= sleepers - 1;
            }
        }
        calls
    }

    /// Whether a sleeper for `csn` may have been woken for a later commit.
    pub fn is_shared(&self, csn: Csn) -> bool {
        self.newest.load(SeqCst) >= csn.0 + WORDS * CSNS_PER_WORD
    }

    /// Wakes all sleepers. Returns the number of system calls.
    pub fn wake_all(&self) -> u64 {
        // The new condition may have been stored with a weaker order than the sleepers' bits, see `park`.
        fence(SeqCst);
        self.words.iter().map(|word| word.wake(u32::MAX).calls).sum()
    }
}

/// System calls made, and threads woken.
#[derive(Default)]
struct Woken {
    calls: u64,
    threads: usize,
}

/// The bits of the word of `line` whose commits are in `first..=last`.
fn bits_of(line: u64, first: u64, last: u64) -> u32 {
    if last < first {
        return 0;
    }
    let low = first.max(line * CSNS_PER_WORD) - line * CSNS_PER_WORD;
    let high = last.min(line * CSNS_PER_WORD + CSNS_PER_WORD - 1) - line * CSNS_PER_WORD;
    (u32::MAX >> (u64::from(u32::BITS) - 1 - high)) & (u32::MAX << low)
}

impl Word {
    /// Wakes the sleepers of `bits`.
    fn wake(&self, bits: u32) -> Woken {
        if self.sleepers.load(SeqCst) & bits == 0 {
            return Woken::default();
        }
        match NonZeroU32::new(self.sleepers.fetch_and(!bits, SeqCst) & bits) {
            Some(bits) => Woken { calls: 1, threads: self.wakes.wake(bits) },
            None => Woken::default(),
        }
    }
}

#[cfg(not(feature = "shuttle"))]
mod futex {
    use std::num::NonZeroU32;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    use rustix::thread::futex::{Flags, wait_bitset, wake_bitset};

    /// A futex word: the wake count.
    #[derive(Default)]
    pub(super) struct Futex(AtomicU32);

    impl Futex {
        pub fn load(&self) -> u32 {
            self.0.load(SeqCst)
        }

        /// Sleeps if the word is `expected`, until woken for `bit`. An interruption is a wake-up.
        pub fn wait(&self, expected: u32, bit: u32) {
            let bit = NonZeroU32::new(bit).expect("a CSN has a bit");
            let _ = wait_bitset(&self.0, Flags::PRIVATE, expected, None, bit);
        }

        /// Returns how many threads it woke. A thread that is about to sleep stays awake, and is not counted.
        pub fn wake(&self, bits: NonZeroU32) -> usize {
            self.0.fetch_add(1, SeqCst);
            wake_bitset(&self.0, Flags::PRIVATE, i32::MAX as u32, bits).unwrap_or(0)
        }
    }
}

#[cfg(feature = "shuttle")]
mod futex {
    use std::num::NonZeroU32;

    use shuttle::sync::{Condvar, Mutex};

    /// A futex made of a lock.
    #[derive(Default)]
    pub(super) struct Futex {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Default)]
    struct State {
        word: u32,
        /// The bits of the sleepers, each with the number of its sleep.
        sleepers: Vec<(u32, u32)>,
        sleeps: u32,
    }

    impl Futex {
        pub fn load(&self) -> u32 {
            self.state.lock().unwrap().word
        }

        pub fn wait(&self, expected: u32, bit: u32) {
            let mut state = self.state.lock().unwrap();
            if state.word != expected {
                return;
            }
            state.sleeps += 1;
            let me = state.sleeps;
            state.sleepers.push((bit, me));
            while state.sleepers.iter().any(|&(_, sleep)| sleep == me) {
                state = self.changed.wait(state).unwrap();
            }
        }

        pub fn wake(&self, bits: NonZeroU32) -> usize {
            let mut state = self.state.lock().unwrap();
            state.word += 1;
            let before = state.sleepers.len();
            state.sleepers.retain(|&(bit, _)| bit & bits.get() == 0);
            self.changed.notify_all();
            before - state.sleepers.len()
        }
    }
}
