//! The public calls of the library, one file for each subject.

#[path = "../common/mod.rs"]
mod common;

mod clock;
mod deferred;
mod errors;
mod expiry;
mod full_disk;
mod handles;
mod keys;
mod len_estimate;
mod levels;
mod long_leaf;
mod opening;
mod read_only;
mod salvage;
mod space;
mod space_stats;
mod staging;
mod transact;
mod values_in_memory;
