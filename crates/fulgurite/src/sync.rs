//! Locks and atomics of the modules whose schedules are explored; the feature `shuttle` replaces them by shuttle's.

pub(crate) use crossbeam_utils::CachePadded;

#[cfg(not(feature = "shuttle"))]
mod chosen {
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
    pub use std::thread::yield_now;
    pub use std::thread_local;
}

#[cfg(feature = "shuttle")]
mod chosen {
    use std::ops::{Deref, DerefMut};

    use shuttle::sync;
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
    pub use shuttle::thread::yield_now;
    pub use shuttle::thread_local;

    /// Shuttle's mutex with the interface of `parking_lot`'s.
    #[derive(Default, Debug)]
    pub struct Mutex<T>(sync::Mutex<T>);

    /// `None` only inside [`Condvar::wait`].
    pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())))
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

    pub struct Condvar(sync::Condvar);

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(sync::Condvar::new())
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("the lock is held");
            guard.0 = Some(self.0.wait(held).unwrap_or_else(|poisoned| poisoned.into_inner()));
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> RwLock<T> {
            RwLock(sync::RwLock::new(value))
        }

        pub fn read(&self) -> sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}

pub(crate) use chosen::*;
