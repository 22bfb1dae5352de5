//! Workloads: the tables, their initial content, and the operations of each thread.

mod choose;
mod delete_queue;
mod fields;
mod job_queue;
mod linkbench;
mod load;
mod micro;
mod mvcc_vs_lock;
mod niosit;
mod oltp;
pub(crate) mod rows;
mod scan;
pub(crate) mod sealed;
mod shuffle;
mod tail_latency;
mod tpcb;
mod tpcc;
mod ycsb;

pub use self::delete_queue::DeleteQueue;
pub use self::job_queue::{JobQueue, Work as QueueWork};
pub use self::linkbench::LinkBench;
pub use self::load::{Load, Order};
pub use self::micro::{Distribution, Micro, MicroMix, Updates};
pub use self::mvcc_vs_lock::{Conflicts, MvccVsLock};
pub use self::niosit::{Niosit, NiositLoad};
pub use self::oltp::Oltp;
pub use self::rows::{Sizes, count_rows, read_all};
pub use self::scan::{Scan, ScanLength};
pub use self::tail_latency::TailLatency;
pub use self::tpcb::Tpcb;
pub use self::tpcc::{Scale as TpccScale, Tpcc};
pub use self::ycsb::{Mix, Ycsb};

use crate::Result;
use crate::engine::{Needs, Store};
use crate::retrying_session::RetryingSession;

/// A workload with its parameters. All its randomness is from fixed seeds, so that every engine gets the same
/// operations.
pub trait Workload: Send + Sync {
    /// Its name, its tables, its operations and its size.
    fn shape(&self) -> Shape;

    /// How many operations `threads` clients do until all of them are done, for a workload whose clients end.
    fn work(&self, threads: u32) -> Option<u64> {
        let _ = threads;
        None
    }

    /// Fills the tables of an empty store, and settles it.
    ///
    /// # Errors
    /// The engine's error, and [`Error::Interrupted`](crate::Error::Interrupted) if `filling` ended it.
    fn fill(&self, store: &dyn Store, filling: &mut Filling<'_>) -> Result<()>;

    /// The client of thread number `thread` of `threads`.
    fn client(&self, thread: u32, threads: u32) -> Client;

    /// Checks that the store holds what it must after `done`; for a run that was killed `done` is `None`, and the check
    /// is of what holds at any moment.
    ///
    /// # Errors
    /// [`Error::Wrong`](crate::Error::Wrong) if it does not, or the engine's error.
    fn check(&self, store: &dyn Store, done: Option<&Done>) -> Result<()>;

    /// Bytes of the keys and values in the store after `done`, if that is known: the base of space amplification.
    fn live_bytes(&self, done: &Done) -> Option<u64> {
        let _ = done;
        Some(self.shape().loaded_bytes)
    }
}

/// What does not change while a workload runs.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The name on command lines and in reports.
    pub name: String,
    /// Its parameters in words, for the head of a report: `1000000 rows, 20-byte keys, 100-byte values`.
    pub about: String,
    /// Its tables.
    pub tables: &'static [&'static str],
    /// Its needs of an engine.
    pub needs: Needs,
    /// The kinds of its operations: latencies and counts are kept for each.
    pub kinds: &'static [&'static str],
    /// Bytes of keys and values that are loaded beforehand.
    pub loaded_bytes: u64,
    /// About how many bytes of keys and values an operation writes.
    pub bytes_per_operation: u64,
    /// Whether operations only replace what was loaded: an engine that collects garbage does not need the more space the
    /// longer they run.
    pub is_steady: bool,
}

/// The operations of one thread: does the next one, and returns its kind.
pub type Client = Box<dyn FnMut(&mut RetryingSession<'_>) -> Result<Step> + Send>;

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is of this kind, an index into [`Shape::kinds`].
    Done(usize),
    /// It is of this kind, and the workload rolled it back.
    RolledBack(usize),
    /// The client is done: there was no operation.
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

/// Called with the share that is filled, 0 to 1; returns whether to continue.
pub type Filling<'a> = dyn FnMut(f64) -> bool + 'a;
