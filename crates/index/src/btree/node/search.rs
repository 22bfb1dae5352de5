//! The slot array: for each key of a node the four bytes after the fences' common prefix, and the key's offset.
//!
//! ```text
//! element := head u32 | offset u32
//! ```
//! Heads compare like the keys that they were cut from, so a search reads keys only where heads are equal.

use super::format::SLOT_BYTES;

/// An element of a slot array.
pub(crate) type SlotBytes = [u8; SLOT_BYTES];

/// The head of `key` in a node whose fences share `prefix_len` bytes.
#[inline]
pub(crate) fn head(key: &[u8], prefix_len: usize) -> u32 {
    let rest = key.get(prefix_len..).unwrap_or_default();
    match rest.first_chunk::<4>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 4];
            bytes[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(bytes)
        }
    }
}

/// The element for a key with this head at this offset.
#[inline]
pub(crate) fn element(head: u32, offset: u32) -> SlotBytes {
    (u64::from(offset) << 32 | u64::from(head)).to_le_bytes()
}

/// The head of an element.
#[inline]
pub(crate) fn head_of(element: &SlotBytes) -> u32 {
    u64::from_le_bytes(*element) as u32
}

/// The offset of an element.
#[inline]
pub(crate) fn offset_of(element: &SlotBytes) -> usize {
    (u64::from_le_bytes(*element) >> 32) as usize
}

/// If `bytes` ends before it does.
#[inline]
pub(crate) fn slots(bytes: &[u8], from: usize, count: usize) -> &[SlotBytes] {
    bytes[from..from + count * SLOT_BYTES].as_chunks().0
}

/// Elements in a block of [`count_below`]: one cache line of them.
const BLOCK: usize = 8;
/// Blocks whose first heads are compared one after the other; these reads do not wait for each other.
const BLOCKS_MAX: usize = 64;

/// How many elements at the front are below the key with this head; `is_below` decides for those with an equal head.
///
/// In a slot array that is not in the cache a binary search has one miss a step, and each miss waits for the one
/// before. So this reads the first heads of all blocks at once, then one block.
#[inline]
pub(crate) fn count_below(slots: &[SlotBytes], head: u32, is_below: impl Fn(usize) -> bool) -> usize {
    let mut from = 0;
    let mut rest = slots;
    if slots.len() > BLOCK * BLOCKS_MAX {
        from = slots.partition_point(|slot| head_of(slot) < head).saturating_sub(1);
        rest = &slots[from..(from + BLOCK).min(slots.len())];
    }
    let blocks = rest.iter().step_by(BLOCK).map(|slot| usize::from(head_of(slot) < head)).sum::<usize>();
    from += blocks.saturating_sub(1) * BLOCK;
    let block = &slots[from..(from + BLOCK).min(slots.len())];
    from += block.iter().map(|slot| usize::from(head_of(slot) < head)).sum::<usize>();
    match slots.get(from) {
        Some(slot) if head_of(slot) == head && is_below(offset_of(slot)) => {
            let is_below = |slot: &SlotBytes| head_of(slot) == head && is_below(offset_of(slot));
            from + 1 + slots[from + 1..].partition_point(is_below)
        }
        _ => from,
    }
}

/// Starts loading what [`count_below`] reads first, if the slot array is not long.
#[inline]
pub(crate) fn prefetch(slots: &[SlotBytes]) {
    for block in slots.chunks(BLOCK).take(BLOCKS_MAX) {
        crate::memtables::prefetch(block.as_ptr());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_like_a_search_in_the_keys(
            mut keys in proptest::collection::vec(0u64..4000, 0..1500),
            probes in proptest::collection::vec(0u64..4000, 20),
        ) {
            keys.sort();
            // Below 2000, many keys share a head.
            let head = |key: u64| if key < 2000 { key / 300 } else { key } as u32;
            let slots: Vec<SlotBytes> =
                keys.iter().enumerate().map(|(index, key)| element(head(*key), index as u32)).collect();
            for probe in probes {
                let below = count_below(&slots, head(probe), |index| keys[index] < probe);
                prop_assert_eq!(below, keys.partition_point(|key| *key < probe));
            }
        }
    }
}
