//! Explores schedules with shuttle: `cargo test -p fulgurite --features shuttle --lib schedules`.
//!
//! Shuttle interleaves at every lock and atomic, and treats all atomics as sequentially consistent. Weaker orders are
//! proved next to the code that uses them.

mod deadlines;
mod ended_readers;
mod levels;
mod pipeline;
mod single_reads;
mod snapshots;
mod tickets;
mod watches;
