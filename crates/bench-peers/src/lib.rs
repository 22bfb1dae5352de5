//! Other stores as engines of Fulgurite's benchmarks.

mod c_engine;
mod c_engines;
pub mod interpose;

use fulgurite_bench::Engine;

/// All engines of this crate. One whose library was missing when the crate was built is listed, and cannot do anything.
pub fn engines() -> Vec<Box<dyn Engine>> {
    let mut engines = Vec::new();
    engines.extend(c_engines::engines());
    engines
}
