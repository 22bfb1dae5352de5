//! The bytes of values that are not in leaves, while they are in memory.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::IndexMemory;
use crate::memory::COUNTS_BYTES;

/// A cache takes so many bytes to find a value.
const CACHE_BYTES: usize = 80;

/// The bytes of a value that was read from the log, charged until the last reference is dropped.
pub struct ValueBytes {
    bytes: Vec<u8>,
    is_placed: AtomicBool,
    memory: Arc<IndexMemory>,
}

impl ValueBytes {
    /// Charges the bytes.
    pub fn new(bytes: Vec<u8>, memory: &Arc<IndexMemory>) -> Arc<ValueBytes> {
        Arc::new(ValueBytes::charged(bytes, memory))
    }

    /// Charges `capacity` bytes before `fill` appends so many of them at most.
    ///
    /// # Errors
    /// Those of `fill`. The charge ends.
    pub fn filled<E>(
        capacity: usize,
        memory: &Arc<IndexMemory>,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Arc<ValueBytes>, E> {
        let mut value = ValueBytes::charged(Vec::with_capacity(capacity), memory);
        memory.look();
        let charged = value.bytes.capacity();
        let filled = fill(&mut value.bytes);
        assert_eq!(value.bytes.capacity(), charged, "a value is longer than it said");
        filled.map(|()| Arc::new(value))
    }

    fn charged(bytes: Vec<u8>, memory: &Arc<IndexMemory>) -> ValueBytes {
        let value = ValueBytes { bytes, is_placed: AtomicBool::new(false), memory: Arc::clone(memory) };
        memory.values().fetch_add(value.memory_bytes(), Ordering::Relaxed);
        value
    }

    /// All that is allocated for it.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<ValueBytes>() + COUNTS_BYTES + CACHE_BYTES
    }

    /// Notes that a cache has it, or has it no more: then readers have it lent.
    pub fn set_placed(&self, is_placed: bool) {
        let was_placed = self.is_placed.swap(is_placed, Ordering::Relaxed);
        match (was_placed, is_placed) {
            (false, true) => _ = self.memory.placed().fetch_add(self.memory_bytes(), Ordering::Relaxed),
            (true, false) => _ = self.memory.placed().fetch_sub(self.memory_bytes(), Ordering::Relaxed),
            _ => {}
        }
    }
}

impl Deref for ValueBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueBytes({} bytes)", self.bytes.len())
    }
}

impl Drop for ValueBytes {
    fn drop(&mut self) {
        self.set_placed(false);
        self.memory.values().fetch_sub(self.memory_bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_charged_before_it_is_read_until_the_last_reference_is_dropped() {
        let memory = Arc::new(IndexMemory::default());
        let value = ValueBytes::filled(1000, &memory, |bytes| {
            assert!(memory.value_bytes() >= 1000 && memory.lent_bytes() >= 1000);
            bytes.extend_from_slice(&[7; 900]);
            Ok::<_, ()>(())
        });
        let value = value.unwrap();
        assert_eq!((&value[..], memory.value_bytes()), (&[7; 900][..], value.memory_bytes()));
        drop(value);
        assert_eq!(memory.value_bytes(), 0);
        assert!(matches!(ValueBytes::filled(1000, &memory, |_| Err("damaged")), Err("damaged")));
        assert_eq!(memory.value_bytes(), 0);
    }
}
