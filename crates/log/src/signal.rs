//! Where a background thread sleeps until there is something for it to do.
//!
//! INV-LOG-15: no work waits for a thread that sleeps. The thread says that it sleeps, then looks for work, and sleeps only
//! if it finds none. A thread that adds work stores it, then looks whether the other one sleeps, and wakes it. All four
//! are sequentially consistent: either the look of the sleeper comes after the store, and finds the work, or the look of
//! the adder comes after what the sleeper said. A wake that comes between the look of the sleeper and its sleep is kept, and
//! ends that sleep at once.
//!
//! There are two depths of sleep. From a nap the thread comes back by itself, and only what cannot wait for that wakes it
//! ([`Signal::wake_asleep`]). From a rest it does not, and all that gives it work has to wake it ([`Signal::wake_resting`]).
//! Both cost one load of a word that hardly ever changes while the thread is awake.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::sync::{AtomicU32, Condvar, Mutex};

const AWAKE: u32 = 0;
const NAPPING: u32 = 1;
const RESTING: u32 = 2;

/// How long a thread that found no work sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// There is work.
    No,
    /// For so long, unless it is woken.
    Nap(Duration),
    /// Until it is woken.
    Rest,
}

impl Sleep {
    /// The shorter of both.
    pub fn min(self, other: Sleep) -> Sleep {
        match (self, other) {
            (Sleep::No, _) | (_, Sleep::No) => Sleep::No,
            (Sleep::Nap(own), Sleep::Nap(other)) => Sleep::Nap(own.min(other)),
            (Sleep::Rest, shorter) | (shorter, Sleep::Rest) => shorter,
        }
    }
}

/// Wakes a background thread.
#[derive(Default)]
pub struct Signal {
    depth: AtomicU32,
    /// Whether the thread was woken since it slept last.
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// The thread has nothing to do that it knows of: `look` looks for work, and says how long to sleep. Not at all if the
    /// thread was woken since it slept last.
    pub fn sleep(&self, look: impl FnOnce() -> Sleep) {
        // Said before it is looked for work (INV-LOG-15), and before it is known how deep the sleep will be.
        self.depth.store(RESTING, SeqCst);
        match look() {
            Sleep::No => {}
            Sleep::Nap(duration) => {
                self.depth.store(NAPPING, SeqCst);
                let mut woken = self.woken.lock();
                if !*woken {
                    self.changed.wait_for(&mut woken, duration);
                }
            }
            Sleep::Rest => {
                let mut woken = self.woken.lock();
                while !*woken {
                    self.changed.wait(&mut woken);
                }
            }
        }
        *self.woken.lock() = false;
        self.depth.store(AWAKE, SeqCst);
    }

    /// Wakes the thread; if it is awake it will not sleep before it has looked again.
    pub fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_all();
    }

    /// Wakes the thread if it sleeps. The work that it is woken for was stored before, for its look to find.
    pub fn wake_asleep(&self) {
        if self.depth.load(SeqCst) != AWAKE {
            self.wake();
        }
    }

    /// Wakes the thread if it sleeps until it is woken; of several callers one does it. The work that it is woken for was
    /// stored before, for its look to find.
    pub fn wake_resting(&self) {
        let rests = self.depth.load(SeqCst) == RESTING;
        if rests && self.depth.compare_exchange(RESTING, AWAKE, SeqCst, SeqCst).is_ok() {
            self.wake();
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_sleep() {
        let nap = |ms| Sleep::Nap(Duration::from_millis(ms));
        assert_eq!(nap(3).min(nap(2)), nap(2));
        assert_eq!(nap(3).min(Sleep::Rest), nap(3));
        assert_eq!(Sleep::Rest.min(nap(3)), nap(3));
        assert_eq!(Sleep::Rest.min(Sleep::No), Sleep::No);
        assert_eq!(Sleep::Rest.min(Sleep::Rest), Sleep::Rest);
    }

    #[test]
    fn a_wake_is_kept_for_a_thread_that_is_about_to_sleep() {
        let signal = Signal::default();
        signal.sleep(|| {
            signal.wake_resting();
            Sleep::Rest
        });
        signal.sleep(|| {
            signal.wake_asleep();
            Sleep::Nap(Duration::from_secs(3600))
        });
        signal.wake();
        signal.sleep(|| Sleep::Rest);
    }
}
