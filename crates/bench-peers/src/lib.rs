//! Other stores as engines of Fulgurite's benchmarks.

mod lmdb;
mod parts;

use fulgurite_bench::Engine;

pub use crate::lmdb::Lmdb;

/// All engines of this crate.
pub fn engines() -> Vec<Box<dyn Engine>> {
    vec![Box::new(Lmdb)]
}
