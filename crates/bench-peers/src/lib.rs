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

/// All engines of this crate. An engine whose library was missing at the build is listed, and supports nothing.
pub fn engines() -> Vec<Box<dyn Engine>> {
    let mut engines: Vec<Box<dyn Engine>> = c_engines::engines().collect();
    engines.extend([Box::new(lmdb::Lmdb) as Box<dyn Engine>, Box::new(redb::Redb), Box::new(sqlite::Sqlite)]);
    engines.extend([Box::new(fjall::Fjall) as Box<dyn Engine>, Box::new(bdb_je::BdbJe)]);
    engines
}
