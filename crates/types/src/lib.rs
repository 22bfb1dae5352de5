//! The vocabulary of Fulgurite: positions, sequence numbers, checksums, encodings and limits. No I/O.
//!
//! Everything above agrees on these types: the log hands out an [`Lsn`] and a [`Csn`] together, the index stores
//! them, and neither knows the other.

mod checksum;
mod codec;
mod hash;
mod ids;
pub mod limits;

pub use checksum::{Crc32c, crc32c, seal_checksum, value_checksum};
pub use codec::{DecodeError, Reader, Writer, varint_len};
pub use hash::hash_key;
pub use ids::{Csn, DatabaseId, Epoch, Lsn, TableId};
