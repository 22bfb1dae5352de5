//! The log's format on disk: constants, encoders and decoders side by side. `docs/format/log.md` is the grammar.

mod bulk;
mod epoch;
mod frame;
mod group;
mod local;
mod owner;
mod segment;

pub use bulk::{BULK_HEADER_BYTES, BulkHeader, BulkKind};
pub use epoch::EpochStart;
pub use frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes};
pub use group::{Agreed, EncodedHeader, GROUP_HEADER_BYTES, GroupFormat, GroupHeader, GroupKind};
pub use local::{ChunkRef, SpillId, local_record_bytes};
pub(crate) use owner::CHUNK_HEAD_BYTES;
pub use owner::{OwnedBytes, ValueOwner};
pub use segment::{SEGMENT_DATA_START, SegmentHeader};

pub(crate) use bulk::{bulk_record_bytes, check_record, last_header, looks_damaged};
pub(crate) use frame::{LocalRecords, Records, put_local_records, take_local_records};
pub(crate) use group::{BULK_START_BYTES, GROUP_ALIGN, GROUP_MAGIC, GroupAt, seems_a_group};
pub(crate) use local::encode_local_record;
pub(crate) use segment::{NEW_SUFFIX, SEGMENT_SUFFIX, new_file_name, parse_number, segment_file_name};

/// Rounds up to the alignment of groups and bulk records.
pub(crate) const fn align8(bytes: u32) -> u32 {
    (bytes + (GROUP_ALIGN - 1)) & !(GROUP_ALIGN - 1)
}

#[cfg(test)]
mod tests;
