//! The slot array: for each key of a node the four bytes after a prefix that all of them have, and the key's offset. In a leaf, and in records,
//! that is the common prefix of the fences; in an inner node in memory what the separators share.
//!
//! ```text
//! element := head u32 | offset u32
//! ```
//! Heads compare like the keys that they were cut from, so a search reads keys only where heads are equal.

use std::ops::Range;
use std::ptr;

use super::format::SLOT_BYTES;
use crate::memtables::{LINE_BYTES, prefetch};

/// An element of a slot array.
pub(crate) type SlotBytes = [u8; SLOT_BYTES];

/// The head of `key` in a node whose keys share `prefix_len` bytes.
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

/// Ranges of a slot array between samples.
const RANGES: usize = 10;

/// A range of so many elements is searched by halves, which waits for the memory at each step: a shorter one is read at once.
const SCANNED_MAX: usize = 64;

/// The heads at the beginning of each range of a slot array but the first; [`u32::MAX`] for ranges that there are not.
///
/// They are beside what a node is found by, so the search of a slot array that is not in the processor's caches reads the lines of one
/// range, all at once: two of 80 slots, four of 190. Without them it read every line's first head: of many keys that are looked
/// up together, these were more than the processor loads at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Samples([u32; RANGES - 1]);

/// Elements of a range, but for the last ones.
#[inline]
fn range_len(slots: usize) -> usize {
    slots.div_ceil(RANGES)
}

impl Samples {
    pub(crate) fn of(slots: &[SlotBytes]) -> Samples {
        let len = range_len(slots.len());
        Samples(std::array::from_fn(|index| slots.get((index + 1) * len).map_or(u32::MAX, head_of)))
    }

    /// The range in which the first element is that is not below `head`, or after which it is.
    #[inline]
    fn range(&self, slots: usize, head: u32) -> Range<usize> {
        let passed = self.0.iter().map(|sample| usize::from(*sample < head)).sum::<usize>();
        let from = passed * range_len(slots);
        from..(from + range_len(slots)).min(slots)
    }

    /// How many elements at the front are below the key with this head; `is_below` decides for those with an equal head.
    #[inline]
    pub(crate) fn count_below(
        &self,
        slots: &[SlotBytes],
        head: u32,
        is_below: impl Fn(usize) -> bool,
    ) -> usize {
        let range = self.range(slots.len(), head);
        let within = &slots[range.clone()];
        let below = if within.len() > SCANNED_MAX {
            within.partition_point(|slot| head_of(slot) < head)
        } else {
            within.iter().map(|slot| usize::from(head_of(slot) < head)).sum::<usize>()
        };
        let from = range.start + below;
        match slots.get(from) {
            Some(slot) if head_of(slot) == head && is_below(offset_of(slot)) => {
                let is_below = |slot: &SlotBytes| head_of(slot) == head && is_below(offset_of(slot));
                from + 1 + slots[from + 1..].partition_point(is_below)
            }
            _ => from,
        }
    }

    /// Starts loading what [`Samples::count_below`] reads, unless it searches by halves.
    #[inline]
    pub(crate) fn prefetch(&self, slots: &[SlotBytes], head: u32) {
        let range = &slots[self.range(slots.len(), head)];
        if range.len() > SCANNED_MAX {
            return;
        }
        for line in range.chunks(LINE_BYTES / SLOT_BYTES) {
            prefetch(line.as_ptr());
        }
        // The element that is compared, and the last one of a range that begins within a line.
        if let Some(last) = range.last() {
            prefetch(ptr::from_ref(last).wrapping_add(1));
        }
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
            let head = |key: u64| match key {
                0..2000 => key as u32 / 300,
                3900.. => u32::MAX,
                _ => key as u32,
            };
            let slots: Vec<SlotBytes> =
                keys.iter().enumerate().map(|(index, key)| element(head(*key), index as u32)).collect();
            for probe in probes {
                let samples = Samples::of(&slots);
                samples.prefetch(&slots, head(probe));
                let below = samples.count_below(&slots, head(probe), |index| keys[index] < probe);
                prop_assert_eq!(below, keys.partition_point(|key| *key < probe));
            }
        }
    }
}
