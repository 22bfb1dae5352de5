//! Limits that are part of the format or of the interface. Relations between them are checked when this compiles.

/// Longest key in bytes. The empty key is legal.
pub const KEY_BYTES_MAX: usize = 64 * 1024 - 1;

/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Longest table name in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;

/// Smallest segment of the log, and the size with which a new database starts.
pub const SEGMENT_BYTES_MIN: u32 = 1024 * 1024;

/// Largest segment of the log.
pub const SEGMENT_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Longest frame in bytes, header included: a quarter of the smallest segment. What is larger goes to parts.
pub const FRAME_BYTES_MAX: u32 = SEGMENT_BYTES_MIN / 4;

/// Values of at least this many bytes are written ahead as parts, off the commit path.
pub const SPILL_BYTES_MIN: usize = 64 * 1024;

/// Most bytes of one part: parts never span segments, and two of the longest fit the smallest segment.
pub const PART_BYTES_MAX: usize = 508 * 1024;

const _: () = assert!(FRAME_BYTES_MAX * 4 <= SEGMENT_BYTES_MIN);
const _: () = assert!(2 * (PART_BYTES_MAX + 64) + 4096 + 72 <= SEGMENT_BYTES_MIN as usize);
// One operation with the longest key and the longest value that is not spilled always fits a frame.
const _: () = assert!(KEY_BYTES_MAX + SPILL_BYTES_MIN + 1024 < FRAME_BYTES_MAX as usize);
