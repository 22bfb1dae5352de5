//! What most keys of a memtable begin with, so that a search compares what follows.
//!
//! Keys of one application often begin alike, as `user:`; then their first eight bytes tell none of them apart, and each step
//! of a search would read a key, in a cache line of its own. So a memtable's nodes have as prefixes the eight bytes after what
//! the keys of the memtable before it share.

use std::ptr::NonNull;

use super::node::{Node, NodeRef, key_prefix};

/// Longer ones are cut.
const BYTES_MAX: usize = 31;

/// So many of the bytes that a memtable's keys share are left to the prefixes of the next one: keys that rise begin a little
/// differently there.
const SPARE_BYTES: usize = 2;

/// Bytes that most keys begin with. Any keys may be in the memtable: others are found more slowly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    bytes: [u8; BYTES_MAX],
    len: u8,
}

impl Shared {
    /// Of a memtable after one whose keys are between these two.
    pub fn by(first: &[u8], last: &[u8]) -> Shared {
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let len = common.saturating_sub(SPARE_BYTES).min(BYTES_MAX);
        let mut bytes = [0; BYTES_MAX];
        bytes[..len].copy_from_slice(&first[..len]);
        Shared { bytes, len: len as u8 }
    }

    /// A number that orders like the key, as far as it tells two keys apart. Let S be the shared bytes. Keys that begin with S
    /// order like what follows, hence like its first eight bytes. Any other key is before or after all of those, and gets the
    /// least or the greatest number.
    #[inline]
    pub fn prefix(&self, key: &[u8]) -> u64 {
        let shared = &self.bytes[..usize::from(self.len)];
        match key.strip_prefix(shared) {
            Some(rest) => key_prefix(rest),
            None if key < shared => 0,
            None => u64::MAX,
        }
    }

    /// Writes the prefix of its key into a node.
    ///
    /// # Safety
    /// The node is initialised, with the provenance of its whole block, and no other thread reaches it.
    pub unsafe fn set_prefix(&self, node: NonNull<Node>) {
        // SAFETY: the caller's promise; the reference to the key ends before the write.
        unsafe {
            let prefix = self.prefix(NodeRef::new(node).key());
            (*node.as_ptr()).prefix = prefix;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_share_what_both_begin_with_less_two_bytes() {
        let prefix = |shared: &Shared, key: &[u8]| shared.prefix(key).to_be_bytes();
        let shared = Shared::by(b"user:000100", b"user:000999");
        assert_eq!(prefix(&shared, b"user:000123"), *b"00123\0\0\0");
        assert_eq!(prefix(&shared, b"user:1"), *b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF");
        assert_eq!(prefix(&shared, b"user"), [0; 8]);
        assert_eq!(prefix(&Shared::default(), b"user:1234"), *b"user:123");
        assert_eq!(Shared::by(b"a", b"b"), Shared::default());
        assert_eq!(usize::from(Shared::by(&[7; 100], &[7; 90]).len), BYTES_MAX);
    }

    proptest! {
        #[test]
        fn prefixes_never_order_keys_wrongly(
            ends in proptest::array::uniform2(proptest::collection::vec(0u8..3, 0..6)),
            keys in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..14), 2..40),
        ) {
            let shared = Shared::by(&ends[0], &ends[1]);
            for a in &keys {
                for b in &keys {
                    prop_assert!(a >= b || shared.prefix(a) <= shared.prefix(b), "{shared:?} {a:?} {b:?}");
                }
            }
        }
    }
}
