//! Memory for direct writes.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Addresses, offsets and lengths of direct writes are multiples of this many bytes: enough for every block size in
/// use.
pub const DIRECT_BYTES: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; DIRECT_BYTES]);

const _: () = assert!(size_of::<Block>() == DIRECT_BYTES && align_of::<Block>() == DIRECT_BYTES);

/// Bytes that start at a multiple of [`DIRECT_BYTES`] and fill whole blocks of that size.
///
/// ```
/// use fulgurite_env::{AlignedBuf, DIRECT_BYTES};
///
/// let mut buf = AlignedBuf::new(5_000);
/// assert_eq!(buf.len(), 2 * DIRECT_BYTES);
/// buf[..5].copy_from_slice(b"bytes");
/// ```
#[derive(Clone)]
pub struct AlignedBuf {
    blocks: Box<[Block]>,
}

impl AlignedBuf {
    /// At least `bytes` bytes, rounded up to blocks, all zero. Where it can, the allocator gets zeroed memory from the
    /// operating system, so a large buffer takes up pages only as they are written.
    pub fn new(bytes: usize) -> AlignedBuf {
        let blocks = Box::<[Block]>::new_zeroed_slice(bytes.div_ceil(DIRECT_BYTES));
        // SAFETY: a `Block` is an array of bytes without padding; all zeros is a valid value.
        let blocks = unsafe { blocks.assume_init() };
        AlignedBuf { blocks }
    }

    /// The length in bytes, a multiple of [`DIRECT_BYTES`].
    pub fn len(&self) -> usize {
        self.blocks.len() * DIRECT_BYTES
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the blocks are contiguous without padding, `len` bytes in all, and are borrowed with the result.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow passes on to the result, and any byte is valid in a block.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len()) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len())
    }
}

/// Panics unless a direct write may start at this address and offset and have this length.
#[track_caller]
pub(crate) fn assert_direct(buf: &[u8], offset: u64) {
    let address = buf.as_ptr().addr();
    let aligned = address.is_multiple_of(DIRECT_BYTES) || buf.is_empty();
    assert!(
        aligned && buf.len().is_multiple_of(DIRECT_BYTES) && offset.is_multiple_of(DIRECT_BYTES as u64),
        "a direct write of {} bytes from address {address:#x} to offset {offset}: all three must be multiples of \
         {DIRECT_BYTES}; take the memory from an AlignedBuf",
        buf.len(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zero_and_whole_blocks() {
        for (bytes, len) in [(0, 0), (1, 4_096), (4_096, 4_096), (4_097, 8_192), (1 << 20, 1 << 20)] {
            let mut buf = AlignedBuf::new(bytes);
            assert_eq!((buf.len(), buf.is_empty()), (len, len == 0));
            assert_eq!(buf.len(), (*buf).len());
            assert!(buf.iter().all(|byte| *byte == 0));
            assert_direct(&buf, 8_192);
            buf.fill(7);
            assert!(buf.clone().iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn an_empty_write_may_come_from_anywhere() {
        assert_direct(&[], 0);
    }

    #[test]
    #[should_panic(expected = "to offset 512: all three must be multiples of 4096")]
    fn a_misaligned_offset_is_refused() {
        assert_direct(&AlignedBuf::new(4_096), 512);
    }

    #[test]
    #[should_panic(expected = "a direct write of 4095 bytes")]
    fn a_misaligned_length_is_refused() {
        assert_direct(&AlignedBuf::new(4_096)[..4_095], 0);
    }

    #[test]
    #[should_panic(expected = "take the memory from an AlignedBuf")]
    fn a_misaligned_address_is_refused() {
        assert_direct(&AlignedBuf::new(8_192)[8..4_104], 0);
    }
}
