//! Other stores as engines of Fulgurite's benchmarks.

mod bdb_je;
mod c_engine;
mod c_engines;
mod common;
mod fjall;
pub mod interpose;
mod lmdb;
mod redb;
mod sqlite;

use fulgurite_bench::Engine;

pub use crate::bdb_je::BdbJe;
pub use crate::fjall::Fjall;
pub use crate::lmdb::Lmdb;
pub use crate::redb::Redb;
pub use crate::sqlite::Sqlite;

/// All engines of this crate. An engine whose library was missing at the build is listed, and supports nothing.
pub fn engines() -> Vec<Box<dyn Engine>> {
    let mut engines: Vec<Box<dyn Engine>> = c_engines::engines().collect();
    engines.push(Box::new(Lmdb));
    engines.push(Box::new(Redb));
    engines.push(Box::new(Sqlite));
    engines.push(Box::new(Fjall));
    engines.push(Box::new(BdbJe));
    engines
}
