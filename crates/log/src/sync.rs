//! Locks and atomics of the commit path, exchanged for shuttle's under the feature `shuttle`.

#[cfg(not(feature = "shuttle"))]
mod chosen {
    pub use parking_lot::{Mutex, MutexGuard, RwLock};
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
    pub use std::thread::yield_now;
}

#[cfg(feature = "shuttle")]
mod chosen {
    use std::ops::{Deref, DerefMut};
    use std::sync::TryLockError;

    use shuttle::sync;
    pub use shuttle::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
    pub use shuttle::thread::yield_now;
    pub use shuttle::thread::yield_now as spin_loop;

    /// Shuttle's mutex with the face of `parking_lot`'s.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    pub struct MutexGuard<'a, T>(sync::MutexGuard<'a, T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(MutexGuard(guard)),
                Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }

    #[derive(Debug, Default)]
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
