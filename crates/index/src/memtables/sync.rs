//! The atomics of the lock-free structures and the locks of cursor slots; shuttle's when schedules are explored
//! (feature `shuttle`).

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicUsize};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::MutexGuard;
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicUsize};

/// Ignores poison, like parking_lot's.
#[cfg(feature = "shuttle")]
#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

#[cfg(feature = "shuttle")]
impl<T> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
