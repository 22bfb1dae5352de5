//! Explores schedules with shuttle: `cargo test -p fulgurite-log --features shuttle --lib schedules`.
//!
//! The whole log runs over a simulated disk on which threads change while a write or a sync is in flight. Shuttle
//! interleaves at every lock and atomic of `crate::sync` and takes all atomics for sequentially consistent; what is
//! weaker than that in the code is argued where it is. A thread that nobody wakes is a deadlock, which shuttle reports.
//!
//! Scheme, device and faults are drawn from shuttle's own randomness, so that a schedule repeats them.

mod disk;
mod failures;
mod insertion;
mod parking;
mod waiting;
mod world;

/// Explores `model` at random, and with threads that are preempted at few moments.
fn explore(iterations: usize, model: fn()) {
    shuttle::check_random(model, iterations);
    shuttle::check_pct(model, iterations / 2, 4);
}
