//! The hash of a key in memory: filters and latches share one computation. It never reaches the disk.

/// Hashes a table's key; computed once for each operation. The table fills the whole seed: a small seed would change
/// only those bits of a short key in which another short key may differ.
pub fn hash_key(table: crate::TableId, key: &[u8]) -> u64 {
    let seed = u64::from(table.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableId;
    use std::collections::BTreeSet;

    #[test]
    fn short_keys_of_different_tables_differ() {
        let hashes: BTreeSet<u64> = (0..64)
            .flat_map(|table| (0..=u8::MAX).map(move |k| hash_key(TableId(table), &[b'k', k])))
            .collect();
        assert_eq!(hashes.len(), 64 * 256);
    }
}
