//! Other stores as engines of Fulgurite's benchmarks.

mod bdb_je;
mod fjall;
mod lmdb;
mod parts;
mod redb;
mod sqlite;

use fulgurite_bench::Engine;

pub use crate::bdb_je::BdbJe;
pub use crate::fjall::Fjall;
pub use crate::lmdb::Lmdb;
pub use crate::redb::Redb;
pub use crate::sqlite::Sqlite;

/// All engines of this crate.
pub fn engines() -> Vec<Box<dyn Engine>> {
    vec![Box::new(Lmdb), Box::new(Redb), Box::new(Sqlite), Box::new(Fjall), Box::new(BdbJe)]
}
