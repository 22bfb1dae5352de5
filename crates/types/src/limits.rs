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

/// Longest frame in bytes, header included: a quarter of the smallest segment. Longer content goes into chunks.
pub const FRAME_BYTES_MAX: u32 = SEGMENT_BYTES_MIN / 4;

/// Values of at least this many bytes are written ahead as chunks, off the commit path. Shorter ones are part of the
/// commit's frame. A frame needs one synchronous write; chunks need two flushes, one after the other.
pub const SPILL_BYTES_MIN: usize = 128 * 1024;

/// Most bytes of one chunk: chunks never span segments, and two of the longest fit the smallest segment.
pub const CHUNK_BYTES_MAX: usize = 508 * 1024;

/// Longest encoded operation list of one transaction in bytes: recovery refuses a longer one, so a transaction refuses
/// the operation that would exceed it.
pub const OPERATIONS_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

/// Chunks with ordinals at or above this one are lists of references to chunks, not data. So a transaction writes ahead
/// fewer data chunks than this.
pub const LISTS_ORDINAL_MIN: u32 = u32::MAX - (1 << 20);

/// Most references to chunks that the group of a commit holds; a longer list is itself written ahead.
pub const DIRECT_CHUNKS_MAX: usize = 512;

const _: () = assert!(FRAME_BYTES_MAX * 4 <= SEGMENT_BYTES_MIN);
const _: () = assert!(2 * (CHUNK_BYTES_MAX + 64) + 4096 + 72 <= SEGMENT_BYTES_MIN as usize);
// One operation with the longest key and the longest value that is not spilled always fits a frame.
const _: () = assert!(KEY_BYTES_MAX + SPILL_BYTES_MIN + 1024 < FRAME_BYTES_MAX as usize);
// An out-of-line value has a 16-bit count of extents, one for each chunk.
const _: () = assert!(VALUE_BYTES_MAX / CHUNK_BYTES_MAX < u16::MAX as usize);
// Ordinals of data never reach those of lists, and there are enough ordinals for all lists: each list names at least
// 16,000 chunks, so the lists, and the lists of lists, are fewer than 2^20.
const _: () = assert!((LISTS_ORDINAL_MIN / (CHUNK_BYTES_MAX as u32 / 32)) * 2 < 1 << 20);
// The offset of a value in an operation list is stored in 32 bits.
const _: () = assert!(OPERATIONS_BYTES_MAX <= u32::MAX as usize);
