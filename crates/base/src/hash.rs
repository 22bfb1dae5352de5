//! The hash of a key in memory: filters and latches share one computation. It never reaches the disk.

/// Hashes a table's key; computed once for each operation.
pub fn hash_key(table: crate::TableId, key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, u64::from(table.0))
}
