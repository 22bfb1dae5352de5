//! Locks and atomics of the code whose schedules are explored. The feature `shuttle` replaces them by shuttle's, with
//! the interface of `parking_lot`'s: a lock whose holder panicked is taken as it is.

#[cfg(not(feature = "shuttle"))]
mod chosen {
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use std::thread::yield_now;
    pub use std::thread_local;
}

#[cfg(feature = "shuttle")]
mod chosen {
    use std::ops::{Deref, DerefMut};
    use std::sync::{PoisonError, TryLockError};
    use std::time::Duration;

    use shuttle::sync;
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use shuttle::thread::yield_now;
    /// A spinning thread lets another run.
    pub use shuttle::thread::yield_now as spin_loop;
    pub use shuttle::thread_local;

    /// A mutex.
    #[derive(Default, Debug)]
    pub struct Mutex<T>(sync::Mutex<T>);

    /// `None` only inside [`Condvar::wait`].
    #[derive(Debug)]
    pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        /// A mutex that no thread holds.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        /// Waits for the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        /// `None` if the lock is held.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(MutexGuard(Some(guard))),
                Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("the lock is held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("the lock is held")
        }
    }

    /// A condition variable.
    #[derive(Default, Debug)]
    pub struct Condvar(sync::Condvar);

    impl Condvar {
        /// A condition variable that no thread waits at.
        pub fn new() -> Condvar {
            Condvar::default()
        }

        /// Releases the lock, waits for a notification, and takes the lock again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("the lock is held");
            guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }

        /// Never times out: a sleeper that is not woken sleeps for ever, and the schedule that did it is found.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _duration: Duration) -> WaitTimeoutResult {
            self.wait(guard);
            WaitTimeoutResult
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// How a wait of bounded length ended.
    #[derive(Debug)]
    pub struct WaitTimeoutResult;

    impl WaitTimeoutResult {
        /// Whether the wait timed out.
        pub fn timed_out(&self) -> bool {
            false
        }
    }

    /// A lock for many readers or one writer.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// A lock that no thread holds.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(sync::RwLock::new(value))
        }

        /// Waits until no writer holds the lock.
        pub fn read(&self) -> sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Waits until no other thread holds the lock.
        pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

pub use chosen::*;

/// A mutex for work in steps: a thread that gives it up and takes it again at once does not overtake one that waits. (A
/// waiter of [`Mutex`] tries a few times before it sleeps, yielding its processor each time. Where all processors are
/// busy, that takes longer than a step of the work.)
///
/// A waiter holds the head of the line, and gives it up once it has the lock. So the former holder queues behind it.
#[derive(Debug, Default)]
pub struct FairMutex<T> {
    head_of_line: Mutex<()>,
    lock: Mutex<T>,
}

impl<T> FairMutex<T> {
    /// A mutex that no thread holds.
    pub fn new(value: T) -> FairMutex<T> {
        FairMutex { head_of_line: Mutex::new(()), lock: Mutex::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let _first = self.head_of_line.lock();
        self.lock.lock()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// The waiter needs one turn; the other thread takes the lock again at once, a thousand times.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "real threads, whose steps take real time")]
    fn a_waiter_is_not_overtaken_again_and_again() {
        let mutex = FairMutex::new(0);
        let is_held = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let mut turns = mutex.lock();
                    *turns += 1;
                    is_held.store(true, Ordering::Release);
                    let end = Instant::now() + Duration::from_millis(2);
                    while Instant::now() < end {
                        spin_loop();
                    }
                }
            });
            while !is_held.load(Ordering::Acquire) {
                yield_now();
            }
            assert!(*mutex.lock() < 100);
        });
    }
}
