//! A table is a list of memtables over a base. The index receives CSNs and LSNs from its caller and knows no log files.

mod base;
pub mod btree;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod memory;
pub mod memtables;
mod node_loads;
mod pass;
pub mod range_delete;
pub mod table;
mod value_bytes;
mod version;

pub use base::{
    AccountChange, Base, BaseCursor, DATA_ACCOUNT, IndexError, Io, MergeSource, MergeVersion, NodeKind,
    NodeStore, OutOfLineValues, PruneRules, StoreError,
};
pub use memory::{IndexMemory, TableCharge, size_class};
pub use node_loads::{LoadFor, MemoryWaits, NodeLoads};
pub use pass::{Evicted, EvictionStep, MovedNodes, WriteOut, WriteOutReport};
pub use value_bytes::ValueBytes;
pub use version::{Extent, Held, OutOfLine, Owner, Pinned, Version, VersionFlags, VersionRef};
