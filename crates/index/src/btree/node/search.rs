//! The slot array: for each key of a node the four bytes after the fences' common prefix, and where the key is.
//!
//! ```text
//! element := head u32 | offset u32
//! ```
//! Heads compare like the keys they were cut from, so that a search reads keys only where heads are equal.

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

/// The slot array that starts at `from` and has `count` elements.
///
/// # Panics
/// If it is not there.
#[inline]
pub(crate) fn slots(bytes: &[u8], from: usize, count: usize) -> &[SlotBytes] {
    bytes[from..from + count * SLOT_BYTES].as_chunks().0
}

/// How many elements at the front are below the key with this head; `is_below` decides for those with its head.
#[inline]
pub(crate) fn count_below(slots: &[SlotBytes], head: u32, is_below: impl Fn(usize) -> bool) -> usize {
    slots.partition_point(|slot| {
        let own = head_of(slot);
        own < head || (own == head && is_below(offset_of(slot)))
    })
}
