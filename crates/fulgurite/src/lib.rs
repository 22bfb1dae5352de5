//! A transactional, ordered key-value store in which an acknowledged commit is permanent.
//!
//! ```
//! use fulgurite::{Database, Options};
//!
//! # fn main() -> fulgurite::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("data");
//! let db = Database::open(&path, Options::default())?;      // creates, or recovers
//! let users = db.table("users")?;                           // opens, or creates
//! users.put("alice", "1")?;                                 // durable when it returns
//! let mut txn = db.begin();                                 // snapshot isolation
//! let alice = txn.get(&users, "alice")?;
//! txn.put(&users, "bob", "2")?;
//! txn.commit()?;                                            // Ok(Commit { csn }) or Error::Conflict
//! db.transact(|txn| txn.put(&users, "carol", "3"))?;        // retries conflicts, with a limit
//! for entry in db.snapshot().range(&users, "b"..)? {
//!     let (key, value) = entry?;
//!     println!("{key:?} = {value:?}");
//! }
//! # assert_eq!(alice.unwrap(), "1");
//! # Ok(())
//! # }
//! ```
//!
//! **Visibility.** A commit that waits for durability is durable, and visible to every read, when the call returns. A
//! deferred commit is visible at once to transactions that begin afterwards in this process. [`Table::get`], snapshots
//! and scans of a [`Table`] see it once it is durable: they show nothing that a power cut could undo, unless the
//! commit's own level permits that ([`Durability::Async`], [`Durability::None`]; see [`guide::durability`]).
//!
//! **Guides**, a page each: [`guide::durability`], [`guide::isolation`], [`guide::expiry`], [`guide::async_use`],
//! [`guide::errors`].
//!
//! **Events and counters.** Events go to `tracing`. Level info: a database was opened (what was found, how much was
//! replayed, how long it took) or closed, a checkpoint was written, a table was created, renamed or dropped, a commit
//! was slow ([`Options::slow_commit`]). Levels warn and error: events that need attention, such as a disk that is
//! nearly full. [`Database::stats`] has counters, sizes, times, and the last error of background work;
//! `docs/operating.md` says which of them to watch.
//!
//! `docs/glossary.md` explains the terms of this documentation (CSN, LSN, memtable, horizon, ...);
//! `docs/architecture.md` describes the paths of a commit, a read and a recovery.

pub mod guide;

mod active;
mod apply;
mod background;
mod body;
mod catalog;
pub mod check;
mod check_catalog;
mod check_superblock;
mod checkpoint;
mod claims;
mod clock;
mod collection;
mod commit;
mod counters;
mod database;
mod deadlines;
mod deleted_ranges;
mod dependent_reads;
pub mod dump;
mod engine;
mod error;
mod eviction;
mod expiry;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod hooks;
#[cfg(all(test, not(feature = "shuttle")))]
mod interleavings;
#[cfg(all(test, not(feature = "shuttle")))]
mod isolation_tests;
mod key_range;
mod latency;
mod live_reads;
mod maintenance;
mod memory_charge;
mod memtable_reads;
mod memtable_share;
mod merged_values;
mod merger;
mod operations;
mod options;
mod program_memory;
mod progress;
mod purging;
mod read_keys;
mod read_ranges;
mod read_set;
mod reader_age;
mod reads;
mod recovery;
mod salvage;
mod scan;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
mod single_write;
mod snapshot;
mod snapshots;
mod space;
mod spill;
mod stats;
mod store;
mod superblock;
mod table;
mod throttle;
mod transact;
mod transaction;
mod try_range;
mod value;
mod value_cache;
mod values;
mod watch;
mod write_set;

pub use fulgurite_env as env;
pub use fulgurite_index::{MemoryWaits, NodeLoads};
/// How far a commit has come when it is acknowledged. [`guide::durability`] says which level fits.
///
/// ```
/// use fulgurite::{Database, Durability, Options};
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// // The level of all commits, unless a transaction sets another.
/// let options = Options { durability: Durability::None, ..Options::default() };
/// let db = Database::open(dir.path().join("data"), options)?;
/// let commit = db.table("hits")?.put("/", "1")?;
/// db.wait_durable(commit.csn)?;
/// # Ok(())
/// # }
/// ```
pub use fulgurite_log::Durability;
/// The log's share of [`Stats`].
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// db.table("users")?.put("alice", "1")?;
/// let log = db.stats().log;
/// println!("{} commits, {:.1} to a sync", log.commits, log.commits_per_sync());
/// # assert!(log.commits >= 1);
/// # Ok(())
/// # }
/// ```
pub use fulgurite_log::LogStats;
pub use fulgurite_log::{FlushScheme, StagingId, StagingOptions, StagingSummary, Waiting};
pub use fulgurite_types::{Csn, Lsn, TableId, limits};

/// The result of [`Database::checkpoint`].
///
/// ```
/// # fn main() -> fulgurite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = fulgurite::Database::open(dir.path().join("data"), fulgurite::Options::default())?;
/// let commit = db.table("users")?.put("alice", "1")?;
/// assert!(db.checkpoint()?.covered >= commit.csn);
/// # Ok(())
/// # }
/// ```
pub use crate::checkpoint::CheckpointReport;
pub use crate::checkpoint::pacing::{CheckpointPace, CheckpointProgress};
pub use crate::clock::{ClockReset, ClockState, ClockStatus};
pub use crate::collection::{CollectProgress, CollectReport, CollectionStats};
pub use crate::commit::ticket::Ticket;
pub use crate::database::Database;
pub use crate::dependent_reads::Found;
pub use crate::error::{Conflict, Contended, CsnRange, Damage, Error, ErrorKind, Missing, Result};
pub use crate::expiry::Expiry;
pub use crate::key_range::KeyRange;
pub use crate::latency::{Latencies, Latency, Waits};
pub use crate::memtable_reads::{InMemtables, MemtableFilter, MemtableRead};
pub use crate::options::{Acks, Isolation, Options, ResearchOptions};
pub use crate::program_memory::ProgramMemory;
pub use crate::progress::{MaintenanceError, WorkTimes};
pub use crate::recovery::RecoveryProgress;
#[doc(hidden)]
pub use crate::recovery::Replica;
pub use crate::salvage::{LeftOut, Salvage, Salvaged};
pub use crate::scan::{EntryWithExpiry, Range};
pub use crate::snapshot::Snapshot;
pub use crate::space::view::{SegmentGroup, SegmentUse, SpaceStats};
pub use crate::stats::{MemoryStats, RoomStats, SegmentCounts, Stats, WriteBytes};
pub use crate::table::Table;
pub use crate::transaction::{Attempt, Commit, Numbered, Savepoint, Transaction};
pub use crate::try_range::{KeyBounds, RangeLimits, TryRange};
pub use crate::value::Value;
pub use crate::watch::Watch;
