//! The least legal memory budget, with more of everything than it has room for: this process counts its allocations.
//!
//! One scenario runs at a time, since all share the allocator. `FULGURITE_FLOOR_FULL=1` runs the full sizes; each test prints
//! the most bytes that were allocated, and that `stats()` counted.

mod common;

#[path = "floor/bad_input.rs"]
mod bad_input;
#[path = "floor/cursors.rs"]
mod cursors;
#[path = "floor/damaged.rs"]
mod damaged;
#[path = "floor/hot_key.rs"]
mod hot_key;
#[path = "floor/lent.rs"]
mod lent;
#[path = "floor/long_transaction.rs"]
mod long_transaction;
#[path = "floor/process.rs"]
mod process;
#[path = "floor/rows.rs"]
mod rows;
#[path = "floor/tables.rs"]
mod tables;
#[path = "floor/unwritable.rs"]
mod unwritable;
