//! What a workload asks of an engine. Tables are numbered in the order of [`Workload::tables`](crate::Workload::tables).

use std::path::Path;
use std::sync::Arc;

use crate::Result;

/// One of the things that are compared: an engine with its settings.
pub trait Engine {
    /// What reports call it.
    fn name(&self) -> &str;

    /// Creates an empty database in `dir`, which does not exist yet, with these tables.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn create(&self, dir: &Path, tables: &[&str]) -> Result<Arc<dyn Store>>;
}

/// The statements of one transaction. It is run again if it conflicts, so it must be the same each time.
pub type Statements<'a> = &'a mut dyn FnMut(&mut dyn Transaction) -> Result<()>;

/// An open database, used by all threads at once.
pub trait Store: Send + Sync {
    /// Looks for `key`, outside of any transaction; whether it was there.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn search(&self, table: usize, key: &[u8]) -> Result<bool>;

    /// Runs `statements` in a transaction, again for as long as it conflicts, and commits it as durably as the engine
    /// was set up to. Returns how often it conflicted.
    ///
    /// # Errors
    /// Whatever the engine or the statements say.
    fn commit(&self, statements: Statements<'_>) -> Result<u64>;

    /// Like [`Store::commit`], without waiting for durability.
    ///
    /// # Errors
    /// Whatever the engine or the statements say.
    fn commit_deferred(&self, statements: Statements<'_>) -> Result<(u64, Box<dyn Pending>)>;

    /// What the engine has done since it was opened.
    fn counters(&self) -> Counters;

    /// Returns when everything that was committed is durable.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn settle(&self) -> Result<()>;

    /// Counts the rows of a table, by reading them.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn rows(&self, table: usize) -> Result<u64>;

    /// Closes the database.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn close(&self) -> Result<()>;
}

/// A transaction that is being put together.
pub trait Transaction {
    /// Puts the value of `key` into `value`; whether there is one. The commit conflicts if somebody else writes the
    /// key in between and this transaction writes it too.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn get(&mut self, table: usize, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Writes `key`, present or not.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes `key`, present or not.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()>;
}

/// A commit that is on its way to the disk.
pub trait Pending: Send {
    /// Whether it is durable by now: `None` if that is not known yet.
    fn poll(&self) -> Option<Result<()>>;

    /// Returns when it is durable.
    ///
    /// # Errors
    /// Whatever the engine says.
    fn wait(self: Box<Self>) -> Result<()>;
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What an engine counts about its commits. An engine leaves at 0 what it does not count.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// What was counted since `before`.
            pub fn since(&self, before: &Counters) -> Counters {
                Counters { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counters! {
    /// Commits with something to write.
    commits,
    /// Groups of commits that were written as one.
    groups,
    /// How often the right to sync was taken.
    sync_locks,
    /// Nanoseconds that committers waited for that right.
    sync_lock_ns,
    /// Write calls of the log.
    writes,
    /// Bytes they wrote.
    written_bytes,
    /// Nanoseconds in them.
    write_ns,
    /// Sync calls of the log, data-synchronous writes included.
    syncs,
    /// Nanoseconds in them.
    sync_ns,
    /// Requests for durability that syncs completed.
    requests_completed,
    /// How often a committer waited until somebody else had made its commit durable.
    flush_waits,
    /// Nanoseconds of that.
    flush_wait_ns,
    /// How often a waiting committer was put to sleep.
    parks,
    /// Calls that woke sleeping committers.
    wakes,
}
