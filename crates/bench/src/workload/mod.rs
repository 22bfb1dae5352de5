//! What the threads do: tables, what is in them beforehand, and the transactions of each thread.

mod insert;
mod oltp;
mod rows;
mod update_search;

pub use self::insert::Insert;
pub use self::oltp::Oltp;
pub use self::update_search::UpdateSearch;

use crate::Result;
use crate::engine::{Store, Transaction};

/// A workload. All its randomness is from fixed seeds, so that every engine gets the same transactions.
pub trait Workload {
    /// What the command line and reports call it.
    fn name(&self) -> &'static str;

    /// How long its keys and values are.
    fn sizes(&self) -> Sizes;

    /// The rows that are there before it begins.
    fn preloaded(&self) -> u64;

    /// Its tables.
    fn tables(&self) -> &'static [&'static str];

    /// Fills the tables.
    ///
    /// # Errors
    /// What the engine says.
    fn preload(&self, store: &dyn Store) -> Result<()>;

    /// What thread number `thread` of `threads` does.
    fn client(&self, thread: u32, threads: u32) -> Box<dyn Client>;

    /// How many rows each table holds after `transactions` transactions of all threads together.
    fn rows_after(&self, transactions: u64) -> Vec<u64>;

    /// About how many bytes of keys and values a transaction writes.
    fn bytes_per_transaction(&self) -> u64;
}

/// The transactions of one thread.
pub trait Client: Send {
    /// Chooses the next transaction.
    fn choose(&mut self) -> Choice;

    /// Does what [`Choice::Search`] chose.
    ///
    /// # Errors
    /// What the engine says.
    fn search(&mut self, store: &dyn Store) -> Result<()>;

    /// Does the statements of what [`Choice::Commit`] chose; the same if called again.
    ///
    /// # Errors
    /// What the engine says.
    fn statements(&mut self, transaction: &mut dyn Transaction) -> Result<()>;
}

/// What kind of transaction comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It looks for one key, and commits nothing.
    Search,
    /// It has statements, and commits.
    Commit,
}

/// How long keys and values are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Every key.
    pub key_bytes: usize,
    /// Every value.
    pub value_bytes: usize,
}

impl Sizes {
    /// The shortest key: enough for the number of any row.
    pub const KEY_BYTES_MIN: usize = 12;
    /// The longest key.
    pub const KEY_BYTES_MAX: usize = 1024;
    /// The longest value.
    pub const VALUE_BYTES_MAX: usize = 1 << 20;

    pub(crate) fn row_bytes(self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }
}
