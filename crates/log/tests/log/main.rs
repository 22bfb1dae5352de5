//! Tests of the log through its public interface, on the simulated disk unless said otherwise.

mod bulk;
mod commit;
mod crash;
mod crash_threads;
mod damage;
mod entries;
mod faults;
mod feed;
mod levels;
mod recovery;
mod recycled;
mod segments;
mod staging;
mod support;
mod threads;
