//! The memory of one group: many threads fill it at once, each its own place, while one lock says whose is which.

use crate::poison::Poison;
use fulgurite_base::Writer;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory of a group, and how many of its reserved places are not filled yet.
///
/// The rules that make access sound (INV-LOG-3):
/// - places are handed out under the slot lock, never overlap and never include the header;
/// - only the holder of a [`Place`] writes into it, once, and then counts `unfilled` down;
/// - the header and the padding are written by the one leader, after the group was closed and all filled;
/// - a reserved place is read only after `unfilled` was seen 0 under the slot lock, or by the leader after closing.
pub(crate) struct GroupBuffer {
    bytes: Box<[UnsafeCell<u8>]>,
    unfilled: AtomicU32,
    poison: Arc<Poison>,
}

// SAFETY: the rules above give each byte one writer at a time, ordered before its readers by `unfilled` (release,
// acquire) or the slot lock.
unsafe impl Sync for GroupBuffer {}

impl GroupBuffer {
    pub fn new(capacity: usize, poison: Arc<Poison>) -> GroupBuffer {
        let bytes = std::iter::repeat_with(|| UnsafeCell::new(0)).take(capacity).collect();
        GroupBuffer { bytes, unfilled: AtomicU32::new(0), poison }
    }

    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Whether every place handed out so far is filled.
    pub fn is_filled(&self) -> bool {
        self.unfilled.load(Ordering::Acquire) == 0
    }

    pub fn is_poisoned(&self) -> bool {
        self.poison.is_set()
    }

    /// Hands out `start..start + len`.
    ///
    /// # Safety
    /// Under the slot lock, and no other place of this use of the buffer overlaps it.
    pub unsafe fn place(self: &Arc<Self>, start: usize, len: usize) -> Place {
        assert!(start + len <= self.capacity(), "INV-LOG-3: a place lies inside its group's buffer");
        self.unfilled.fetch_add(1, Ordering::Relaxed);
        Place { buffer: Arc::clone(self), at: start, end: start + len }
    }

    /// Reads filled bytes.
    ///
    /// # Safety
    /// Nobody writes the range while the result lives: it was reserved and seen filled under the slot lock, or the
    /// caller is the leader and the group is closed and filled.
    pub unsafe fn read(&self, start: usize, len: usize) -> &[u8] {
        assert!(start + len <= self.capacity(), "INV-LOG-3: a read lies inside the group's buffer");
        // SAFETY: in bounds as asserted; UnsafeCell<u8> has the layout of u8; the caller rules writers out.
        unsafe { std::slice::from_raw_parts(UnsafeCell::raw_get(self.bytes.as_ptr().add(start)), len) }
    }

    /// Writes header or padding.
    ///
    /// # Safety
    /// The caller is the leader, the group is closed and filled, and the range is its header or lies behind its end.
    pub unsafe fn stamp(&self, start: usize, bytes: &[u8]) {
        // SAFETY: the caller has the range to itself.
        unsafe { self.copy(start, bytes) }
    }

    /// # Safety
    /// Nobody else reads or writes the range.
    unsafe fn copy(&self, start: usize, bytes: &[u8]) {
        assert!(start + bytes.len() <= self.capacity(), "INV-LOG-3: a write lies inside the group's buffer");
        // SAFETY: in bounds as asserted, `bytes` is no part of the buffer, and the caller has the range to itself.
        unsafe {
            let target = UnsafeCell::raw_get(self.bytes.as_ptr().add(start));
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }
}

/// A reserved place. Dropping it before it is full poisons the log: the hole would hang every commit behind it.
pub(crate) struct Place {
    buffer: Arc<GroupBuffer>,
    at: usize,
    end: usize,
}

impl Place {
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Copies `bytes` behind what was put before.
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.remaining(), "INV-LOG-3: a fill stays inside its place");
        // SAFETY: the place is this value's alone, as `GroupBuffer::place` demands, and nobody reads it before
        // `unfilled` was counted down.
        unsafe { self.buffer.copy(self.at, bytes) };
        self.at += bytes.len();
    }
}

impl Writer for Place {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.remaining() == 0 {
            self.buffer.unfilled.fetch_sub(1, Ordering::Release);
        } else {
            self.buffer.poison.set("a commit ended between its reservation and the end of its fill", None);
        }
    }
}
