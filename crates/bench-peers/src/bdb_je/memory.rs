//! Memory that Rust and Java share.

use std::ptr::NonNull;

/// Memory outside of both heaps. Java owns it during a call, Rust otherwise.
pub(super) struct Shared {
    at: NonNull<u8>,
    bytes: usize,
}

impl Shared {
    pub fn new(bytes: usize) -> Shared {
        let memory = Box::leak(vec![0; bytes].into_boxed_slice());
        Shared { at: NonNull::from(memory).cast(), bytes }
    }

    /// Where it begins.
    pub fn at(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// How large it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its content. While the slice is borrowed, no call may hand the memory to Java.
    pub fn content(&self) -> &[u8] {
        // SAFETY: the memory is there until the drop, and all of it is initialized.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    /// The same, for writing.
    pub fn content_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let memory = NonNull::slice_from_raw_parts(self.at, self.bytes);
        // SAFETY: this is the slice that was leaked, and it is given back once.
        drop(unsafe { Box::from_raw(memory.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut shared = Shared::new(10);
        shared.content_mut()[3..6].copy_from_slice(b"abc");
        assert_eq!(shared.content(), b"\0\0\0abc\0\0\0\0");
        assert_eq!((shared.bytes(), shared.at().cast_const()), (10, shared.content().as_ptr()));
    }
}
