//! What the threads do: tables, what is in them beforehand, and the operations of each thread.

mod choose;
mod delete_queue;
mod insert;
mod job_queue;
mod linkbench;
mod load;
mod mvcc_vs_lock;
mod oltp;
mod overwrite_steady;
mod page_vs_log;
mod read;
pub(crate) mod rows;
mod scan;
mod sealed;
mod shuffle;
mod tpcb;
mod tpcc;
mod update_search;
mod wisckey;
mod ycsb;

pub use self::delete_queue::DeleteQueue;
pub use self::insert::Insert;
pub use self::job_queue::{JobQueue, Work as QueueWork};
pub use self::linkbench::LinkBench;
pub use self::load::{Load, Order};
pub use self::mvcc_vs_lock::{Conflicts, MvccVsLock, MvccVsLockParameters};
pub use self::oltp::Oltp;
pub use self::overwrite_steady::OverwriteSteady;
pub use self::page_vs_log::{PageVsLog, Updates};
pub use self::read::Read;
pub use self::rows::Sizes;
pub use self::scan::{Extent, Scan};
pub use self::tpcb::Tpcb;
pub use self::tpcc::{Scale as TpccScale, Tpcc};
pub use self::update_search::UpdateSearch;
pub use self::wisckey::Wisckey;
pub use self::ycsb::{Mix, Ycsb};

use crate::Result;
use crate::engine::{Needs, Store};
use crate::lane::Lane;

/// A workload with its parameters. All its randomness is from fixed seeds, so that every engine gets the same
/// operations.
pub trait Workload: Send + Sync {
    /// What command lines and reports call it.
    fn name(&self) -> &'static str;

    /// Its parameters in words, for the head of a report: `1,000,000 rows, 20-byte keys, 100-byte values`.
    fn about(&self) -> String;

    /// Its tables.
    fn tables(&self) -> &'static [&'static str];

    /// What it needs of an engine.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The kinds of its operations: latencies and counts are kept for each.
    fn kinds(&self) -> &'static [&'static str];

    /// Bytes of keys and values that are there before it begins.
    fn loaded_bytes(&self) -> u64;

    /// About how many bytes of keys and values an operation writes.
    fn bytes_per_operation(&self) -> u64;

    /// How many operations `threads` clients do before they have all ended, for a workload whose clients end.
    fn work(&self, threads: u32) -> Option<u64> {
        let _ = threads;
        None
    }

    /// Fills the tables of an empty store, and settles it.
    ///
    /// # Errors
    /// What the engine says, and [`Error::Interrupted`](crate::Error::Interrupted) if `filling` said so.
    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()>;

    /// What thread number `thread` of `threads` does.
    fn client(&self, thread: u32, threads: u32) -> Box<dyn Client>;

    /// Whether the run ends with the first client that has nothing more to do, rather than with the last one: for
    /// clients that only accompany others.
    fn ends_with_first(&self) -> bool {
        false
    }

    /// Looks whether the store holds what it must after `done`; for a run that was killed `done` is `None`, and what
    /// holds at any moment is checked.
    ///
    /// # Errors
    /// [`Error::Wrong`](crate::Error::Wrong) if it does not, or what the engine says.
    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()>;

    /// Bytes of the keys and values that are in the store after `done`, if that is known: what space amplification is
    /// reckoned by.
    fn live_bytes(&self, done: &Done) -> Option<u64> {
        let _ = done;
        None
    }
}

/// The operations of one thread.
pub trait Client: Send {
    /// Does the next operation, and says what it was.
    ///
    /// # Errors
    /// What the engine says.
    fn step(&mut self, lane: &mut Lane<'_>) -> Result<Step>;
}

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One of this kind, by its place in [`Workload::kinds`].
    Done(usize),
    /// One of this kind that was rolled back as the workload wanted.
    RolledBack(usize),
    /// There is nothing more to do: nothing was done.
    End,
}

/// Operations of all threads together, those before the measured ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// How many of each kind, without those that were rolled back.
    pub kinds: Vec<u64>,
    /// How many of each kind were rolled back.
    pub rolled_back: Vec<u64>,
}

impl Done {
    /// All that were not rolled back.
    pub fn operations(&self) -> u64 {
        self.kinds.iter().sum()
    }
}

/// Is told how far the filling has come.
pub struct Filling<'a> {
    go_on: &'a mut dyn FnMut(f64) -> bool,
}

impl<'a> Filling<'a> {
    /// Tells `go_on` the part that is done, 0 to 1, and asks it whether to go on.
    pub fn new(go_on: &'a mut dyn FnMut(f64) -> bool) -> Filling<'a> {
        Filling { go_on }
    }

    /// So much of `all` is done.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted) if nobody wants more.
    pub fn done(&mut self, done: u64, all: u64) -> Result<()> {
        match (self.go_on)(done as f64 / all.max(1) as f64) {
            true => Ok(()),
            false => Err(crate::Error::Interrupted),
        }
    }
}
