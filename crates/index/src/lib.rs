//! Tables: a delta over a static part. The index takes commit sequence numbers and log places from outside and knows
//! no log files.

pub mod btree;
pub mod delta;
pub mod range_delete;
mod static_part;
pub mod table;
mod version;

pub use static_part::{
    AccountChange, FoldSource, FoldVersion, ImageReport, IndexError, KeySpan, NodeKind, NodeStore,
    PruneRules, StaticCursor, StaticPart, StoreError, TryError,
};
pub use version::{Extent, OutOfLine, Owner, Pinned, Version, VersionFlags, VersionRef};
