//! The basic types of Fulgurite: positions, sequence numbers, checksums, encodings, key ranges, limits, locks. No
//! I/O.
//!
//! All other crates share these types: the log assigns an [`Lsn`] and a [`Csn`] together, the index stores them, and
//! neither knows the other.

mod checksum;
mod codec;
mod disk_reads;
mod hash;
mod ids;
mod key_span;
pub mod limits;
pub mod sync;

pub use checksum::{Crc32c, crc32c, seal_checksum, value_checksum};
pub use codec::{DecodeError, Reader, Writer, varint_len};
pub use disk_reads::{DiskRead, DiskReads, Retired};
pub use hash::hash_key;
pub use ids::{Csn, DatabaseId, EntryId, Epoch, Lsn, TableId};
pub use key_span::{KeySpan, key_after};
