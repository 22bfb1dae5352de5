//! Other stores as engines of Fulgurite's benchmarks.

use fulgurite_bench::Engine;

/// All engines of this crate.
pub fn engines() -> Vec<Box<dyn Engine>> {
    Vec::new()
}
