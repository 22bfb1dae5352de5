//! Watches: the wake-ups of threads that each wait for many commits. A ticket is a commit's; a watch is a thread's.
//!
//! INV-TXN-18: *a watch that is armed for a CSN is woken once the CSN may be acknowledged, or none ever will be; once for each
//! arming, and outside every lock.* Arming, taking the watches to wake, and ending them happen under one lock, and
//! [`Watches::first`] is written under it. A thread that arms a watch checks the watermarks afterwards. A thread that raised
//! one checks `first` afterwards. A fence precedes each check. So one of the two sees the other, as with tickets
//! (INV-TXN-10), and a thread wakes a watch where it would complete a ticket (INV-TXN-12).

use std::fmt;
use std::sync::Arc;

use fulgurite_types::Csn;
use smallvec::SmallVec;

use super::ticket::contain;
use fulgurite_types::sync::{AtomicU64, Mutex, Ordering};

/// A watch that is not armed.
const DISARMED: u64 = u64::MAX;

/// A watch, as the pipeline sees it.
pub(crate) struct WatchState {
    /// The CSN for which it is armed. Written under the lock of [`Watches::open`].
    armed: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl WatchState {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<WatchState> {
        Arc::new(WatchState { armed: AtomicU64::new(DISARMED), wake: Box::new(wake) })
    }

    /// The CSN for which it is armed; [`Csn::MAX`] if it is not.
    pub fn armed(&self) -> Csn {
        Csn(self.armed.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for WatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchState(armed {})", self.armed())
    }
}

/// The watches to wake; there are few.
pub(super) type ToWake = SmallVec<[Arc<WatchState>; 8]>;

/// The watches of a database.
pub(super) struct Watches {
    /// The smallest CSN for which one is armed; `u64::MAX` if none is; 0 if all are to be told that the log has ended.
    first: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    all: Vec<Arc<WatchState>>,
    /// No CSN will be acknowledged any more.
    has_ended: bool,
}

impl Watches {
    pub fn new() -> Watches {
        Watches { first: AtomicU64::new(u64::MAX), open: Mutex::default() }
    }

    pub fn add(&self, watch: Arc<WatchState>) {
        let mut open = self.open.lock();
        if !open.has_ended {
            open.all.push(watch);
        }
    }

    pub fn remove(&self, watch: &Arc<WatchState>) {
        let mut open = self.open.lock();
        open.all.retain(|other| !Arc::ptr_eq(other, watch));
        self.note_first(&open);
    }

    fn note_first(&self, open: &Open) {
        let armed = open.all.iter().map(|watch| watch.armed.load(Ordering::Relaxed));
        let first = if open.has_ended && !open.all.is_empty() { 0 } else { armed.min().unwrap_or(u64::MAX) };
        if self.first.load(Ordering::Relaxed) != first {
            self.first.store(first, Ordering::SeqCst);
        }
    }

    /// The smallest CSN for which a watch is armed, or a sentinel: see the field.
    pub fn first(&self) -> Csn {
        Csn(self.first.load(Ordering::SeqCst))
    }

    /// Arms a watch for `csn`, or for a smaller one for which it is armed already. False if the log has ended. The caller
    /// checks the watermarks afterwards.
    pub fn arm(&self, watch: &WatchState, csn: Csn) -> bool {
        let open = self.open.lock();
        if open.has_ended {
            return false;
        }
        if csn < watch.armed() {
            watch.armed.store(csn.0, Ordering::Relaxed);
            self.note_first(&open);
        }
        true
    }

    /// Disarms a watch, whose thread knows that its CSN is reached.
    pub fn disarm(&self, watch: &WatchState) {
        let open = self.open.lock();
        watch.armed.store(DISARMED, Ordering::Relaxed);
        self.note_first(&open);
    }

    /// Disarms the watches whose CSN is reached, and returns them; all of them, once, after the end. `reached` returns the CSN
    /// up to which commits may be acknowledged, and is called under the lock.
    pub fn take(&self, reached: impl FnOnce() -> Csn) -> ToWake {
        let mut open = self.open.lock();
        if open.has_ended {
            let all = std::mem::take(&mut open.all);
            all.iter().for_each(|watch| watch.armed.store(DISARMED, Ordering::Relaxed));
            self.note_first(&open);
            return all.into();
        }
        let reached = reached();
        self.take_armed(&open, |armed| armed <= reached)
    }

    /// Disarms the watches that wait for a commit after `last`, and returns them: there is none, and never will be.
    pub fn take_after(&self, last: Csn) -> ToWake {
        self.take_armed(&self.open.lock(), |armed| armed > last && armed.0 != DISARMED)
    }

    fn take_armed(&self, open: &Open, is_due: impl Fn(Csn) -> bool) -> ToWake {
        let mut ripe = ToWake::new();
        for watch in open.all.iter().filter(|watch| is_due(watch.armed())) {
            watch.armed.store(DISARMED, Ordering::Relaxed);
            ripe.push(watch.clone());
        }
        self.note_first(open);
        ripe
    }

    /// From now on no watch is armed. The next [`Watches::take`] returns all of them.
    pub fn end(&self) {
        let mut open = self.open.lock();
        open.has_ended = true;
        self.note_first(&open);
    }

    /// Wakes the threads. A watch may have been dropped meanwhile: then its closure is dropped here, too.
    pub fn wake(ripe: ToWake) {
        for watch in ripe {
            contain("the wake-up of a watch", move || (watch.wake)());
        }
    }
}
