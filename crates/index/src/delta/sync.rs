//! The atomics of the lock-free parts, exchanged for shuttle's when schedules are explored (feature `shuttle`).

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicUsize};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicUsize};
