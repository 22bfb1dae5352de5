//! The memory of one group: many threads fill it at once, each its own reserved range.

use fulgurite_types::Writer;
use std::cell::UnsafeCell;

/// A group's memory.
///
/// The rules that make access sound (INV-LOG-3):
/// - ranges never overlap and never include the header: the compare-exchange that gives a range moves the group's
///   length past it;
/// - only the holder of a [`ReservedRange`] writes into it, once, and then counts it into the group slot's filled
///   bytes;
/// - only the leader writes header and padding, after the group is closed and all of it filled;
/// - a reader reads a reserved range only after it saw, under the lock of the groups, all ranges of the group filled;
///   the leader reads after closing, when all are filled.
pub(crate) struct GroupBuffer {
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: the rules above give each byte one writer at a time, ordered before its readers by the group slot's count of
// filled bytes (release, acquire) or the lock of the groups.
unsafe impl Sync for GroupBuffer {}

impl GroupBuffer {
    /// Zeroed memory; the system gives no pages to it before they are touched.
    pub fn new(capacity: usize) -> GroupBuffer {
        let bytes = vec![0u8; capacity].into_boxed_slice();
        // SAFETY: UnsafeCell<u8> has the layout of u8.
        GroupBuffer { bytes: unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) } }
    }

    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Its start, for the committers that get ranges in it.
    pub fn memory(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.bytes.as_ptr())
    }

    /// Reads filled bytes.
    ///
    /// # Safety
    /// No thread writes the range while the result lives: the caller saw it reserved and filled under the lock of the
    /// groups, or is the leader and the group is closed and filled.
    pub unsafe fn read(&self, start: usize, len: usize) -> &[u8] {
        assert!(start + len <= self.capacity(), "INV-LOG-3: a read is inside the group's buffer");
        // SAFETY: in bounds as asserted; the caller rules writers out.
        unsafe { std::slice::from_raw_parts(self.memory().add(start), len) }
    }

    /// Writes header or padding.
    ///
    /// # Safety
    /// The caller is the leader, the group is closed and filled, and the range is its header or starts at its end.
    pub unsafe fn stamp(&self, start: usize, bytes: &[u8]) {
        assert!(start + bytes.len() <= self.capacity(), "INV-LOG-3: a stamp is inside the group's buffer");
        // SAFETY: in bounds as asserted, and the caller has the range to itself.
        unsafe { copy(self.memory().add(start), bytes) }
    }
}

/// # Safety
/// `target` has room for `bytes` and does not overlap them, and no other thread reads or writes there.
unsafe fn copy(target: *mut u8, bytes: &[u8]) {
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
}

/// A reserved range.
pub(crate) struct ReservedRange {
    memory: *mut u8,
    /// The group slot that counts the range once it is filled.
    pub slot: usize,
    pub bytes: u32,
    remaining: u32,
}

// SAFETY: only this value accesses the range, whichever thread owns it.
unsafe impl Send for ReservedRange {}
// SAFETY: a shared reference can only read the lengths.
unsafe impl Sync for ReservedRange {}

impl ReservedRange {
    /// # Safety
    /// The group ring just gave the range to the caller, by `join` or `open`. The group keeps its buffer until the range
    /// is counted as filled.
    pub unsafe fn new(memory: *mut u8, slot: usize, bytes: u32) -> ReservedRange {
        ReservedRange { memory, slot, bytes, remaining: bytes }
    }

    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Appends `bytes` to the bytes put before.
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.remaining as usize, "INV-LOG-3: a fill stays inside its range");
        // SAFETY: only this value accesses the range (INV-LOG-3), the bytes fit, and the group's buffer stays until the
        // range is counted as filled (INV-LOG-12).
        unsafe {
            copy(self.memory, bytes);
            self.memory = self.memory.add(bytes.len());
        }
        self.remaining -= bytes.len() as u32;
    }
}

impl Writer for ReservedRange {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }
}
