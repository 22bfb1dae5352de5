//! Explores schedules with shuttle: `cargo test -p fulgurite --features shuttle --lib schedules`.
//!
//! Shuttle interleaves at every lock and atomic and takes all atomics for sequentially consistent; what is weaker than
//! that in the code is argued where it is.

mod deadlines;
mod levels;
mod pipeline;
mod snapshots;
mod tickets;
