//! Where a background thread sleeps until there is work for it.
//!
//! INV-LOG-15: no work waits for a thread that sleeps. The sleeper stores `depth`, then looks for work, and sleeps only
//! if it finds none. A waker stores the work, then loads `depth`, and wakes the sleeper if it sleeps that deep. All
//! four are sequentially consistent. So either the sleeper's look follows the store of the work, and finds it, or the
//! waker's load follows the store of `depth`, and sees it. `woken` keeps a wake that comes between the look and the
//! sleep, and ends that sleep at once.
//!
//! There are two depths. A nap ends by itself, and only work that cannot wait for that ends it sooner
//! ([`Signal::wake_asleep`]). A rest does not, and all work has to end it ([`Signal::wake_resting`]). Both calls cost
//! one load of a word that hardly ever changes while the thread is awake.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use fulgurite_types::sync::{AtomicU32, Condvar, Mutex};

const AWAKE: u32 = 0;
const NAPPING: u32 = 1;
const RESTING: u32 = 2;

/// How long a thread that found no work sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// There is work.
    No,
    /// This long, unless it is woken.
    Nap(Duration),
    /// Until it is woken.
    Rest,
    /// Until it is woken, and this long at most.
    RestFor(Duration),
}

impl Sleep {
    /// The shorter of both.
    pub fn min(self, other: Sleep) -> Sleep {
        match (self, other) {
            (Sleep::No, _) | (_, Sleep::No) => Sleep::No,
            (Sleep::Nap(own), Sleep::Nap(other)) => Sleep::Nap(own.min(other)),
            (Sleep::Rest, shorter) | (shorter, Sleep::Rest) => shorter,
            (Sleep::RestFor(own), Sleep::RestFor(other)) => Sleep::RestFor(own.min(other)),
            (Sleep::Nap(nap), Sleep::RestFor(rest)) | (Sleep::RestFor(rest), Sleep::Nap(nap)) => {
                Sleep::Nap(nap.min(rest))
            }
        }
    }
}

/// Wakes a background thread.
#[derive(Default)]
pub struct Signal {
    depth: AtomicU32,
    /// Whether the thread was woken since its last sleep.
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Sleeps as long as `look`, which looks for work, says. Not at all if the thread was woken since its last sleep.
    pub fn sleep(&self, look: impl FnOnce() -> Sleep) {
        // Stored before `look` looks for work (INV-LOG-15), and before the depth of the sleep is known.
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
            Sleep::RestFor(duration) => {
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

    /// Wakes the thread. If it is awake, it looks for work once more before it sleeps.
    pub fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_all();
    }

    /// Wakes the thread if it sleeps. The caller stored the work before, so that `look` finds it.
    pub fn wake_asleep(&self) {
        if self.depth.load(SeqCst) != AWAKE {
            self.wake();
        }
    }

    /// Wakes the thread if it rests; of several callers one does. The caller stored the work before, so that `look`
    /// finds it.
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
        let rest = |ms| Sleep::RestFor(Duration::from_millis(ms));
        assert_eq!((rest(3).min(Sleep::Rest), rest(3).min(rest(2))), (rest(3), rest(2)));
        assert_eq!((rest(3).min(nap(2)), nap(3).min(rest(2))), (nap(2), nap(2)));
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
