//! A node of the skip list: one version of one key, inside a commit's block.
//!
//! ```text
//! node := header | height x link | key | payload | padding to 8 bytes
//! ```

use std::cmp::Ordering as Compare;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use fulgurite_types::{Csn, Lsn};

use super::block::{BlockHeader, BlockRef};
use crate::version::{Owner, Pinned, Version, VersionFlags, VersionRef};
use fulgurite_types::sync::AtomicPtr;

/// Most links of a node. With one in four nodes going up a level this is enough for 4^16 entries.
pub(super) const HEIGHT_MAX: usize = 16;

/// A node's fixed part. Before the block is applied, `value_lsn` holds an offset, `checksum` the unsealed one, and the
/// first link the key's hash.
#[repr(C)]
pub(super) struct Node {
    /// The version before this one of the same key, for [`super::key_index`].
    pub older: AtomicPtr<Node>,
    pub csn: u64,
    pub value_lsn: u64,
    pub expires_at_ms: u64,
    pub checksum: u32,
    pub payload_len: u32,
    /// The node's distance from the block's header, in words of eight bytes.
    pub block_words: u32,
    pub key_len: u16,
    pub flags: u8,
    pub height: u8,
    /// The key's prefix in its memtable, see [`Shared`]. Next to the links, so that a step of a search mostly touches one cache
    /// line.
    pub prefix: u64,
}

/// Two levels at once measured fastest.
const PREFETCHED_LEVELS: usize = 2;

const PREFIX_OFFSET: usize = std::mem::offset_of!(Node, prefix);

/// The size of a link in bytes.
pub(super) const LINK_BYTES: usize = size_of::<AtomicPtr<Node>>();

const _: () = assert!(align_of::<Node>() == 8 && align_of::<AtomicPtr<Node>>() == 8);
const _: () =
    assert!(size_of::<usize>() == 8, "the first link holds a 64-bit hash before the node is linked");

/// How many words of eight bytes a node occupies.
pub(super) fn node_words(height: usize, key_len: usize, payload_len: usize) -> usize {
    (size_of::<Node>() + height * LINK_BYTES + key_len + payload_len).div_ceil(8)
}

/// The first eight bytes of a key as a number that orders like them; short keys are padded with zeros.
pub(super) fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// A position in the order of the nodes of one memtable: key ascending, CSN descending.
#[derive(Clone, Copy)]
pub(super) struct Position<'k> {
    pub prefix: u64,
    pub key: &'k [u8],
    pub csn: Csn,
}

/// A node that stays in place, initialised, for `'a` (INV-IDX-4).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRef<'a>(NonNull<Node>, PhantomData<&'a Node>);

// SAFETY: a linked node is immutable except for its links, which are atomic; `'a` bounds its life on every thread.
unsafe impl Send for NodeRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for NodeRef<'_> {}

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `node` must point to an initialised node, with the provenance of its whole block, that lives for `'a`; during
    /// `'a` only its links may be written.
    pub unsafe fn new(node: NonNull<Node>) -> NodeRef<'a> {
        NodeRef(node, PhantomData)
    }

    /// # Safety
    /// The caller keeps the node's block alive for as long as it uses the result.
    pub unsafe fn detach(self) -> NodeRef<'static> {
        NodeRef(self.0, PhantomData)
    }

    pub fn as_ptr(self) -> *mut Node {
        self.0.as_ptr()
    }

    pub fn header(self) -> &'a Node {
        // SAFETY: the node is initialised and lives for `'a` (`new`).
        unsafe { self.0.as_ref() }
    }

    pub fn csn(self) -> Csn {
        Csn(self.header().csn)
    }

    /// The link to the version before it, in the index of the keys.
    pub fn older_link(self) -> &'a AtomicPtr<Node> {
        &self.header().older
    }

    /// The version before it, in the index of the keys.
    pub fn older(self) -> Option<NodeRef<'a>> {
        NonNull::new(self.older_link().load(Ordering::Acquire)).map(|node| NodeRef(node, PhantomData))
    }

    pub fn height(self) -> usize {
        usize::from(self.header().height)
    }

    /// The link at `level`.
    pub fn link(self, level: usize) -> &'a AtomicPtr<Node> {
        debug_assert!(level < self.height());
        // SAFETY: a node has `height` initialised links after its header, and `level` is below the height: the caller
        // reached the node through that level or a higher one, or has just read its height.
        unsafe { self.0.add(1).cast::<AtomicPtr<Node>>().add(level).as_ref() }
    }

    /// The next node at `level`.
    pub fn next(self, level: usize) -> Option<NodeRef<'a>> {
        NonNull::new(self.link(level).load(Ordering::Acquire)).map(|node| NodeRef(node, PhantomData))
    }

    /// Prefetches what a search needs of the next nodes at the levels below `level`, where it continues.
    #[inline]
    pub fn prefetch_below(self, level: usize) {
        for below in level.saturating_sub(PREFETCHED_LEVELS)..level {
            super::prefetch(self.link(below).load(Ordering::Relaxed).wrapping_byte_add(PREFIX_OFFSET));
        }
    }

    /// Prefetches what a step to the next node at `level` reads, wherever its cache lines begin.
    #[inline]
    pub fn prefetch_next(self, level: usize) {
        let next = self.link(level).load(Ordering::Relaxed);
        super::prefetch(next.wrapping_byte_add(PREFIX_OFFSET));
        super::prefetch(next.wrapping_byte_add(size_of::<Node>() + level * LINK_BYTES));
    }

    /// Prefetches the key and the begin of the payload.
    #[inline]
    pub fn prefetch_entry(self) {
        super::prefetch(self.as_ptr());
        super::prefetch(self.as_ptr().wrapping_byte_add(64));
    }

    /// The hash that the builder stored in the first link; meaningless once the node is linked.
    pub fn hash_before_linking(self) -> u64 {
        self.link(0).load(Ordering::Relaxed).addr() as u64
    }

    pub fn key(self) -> &'a [u8] {
        let header = self.header();
        let skip = size_of::<Node>() + usize::from(header.height) * LINK_BYTES;
        // SAFETY: the key follows the links, `key_len` bytes long, inside the block (`node_words`).
        unsafe { NonNull::slice_from_raw_parts(self.0.byte_add(skip).cast(), header.key_len.into()).as_ref() }
    }

    pub fn payload(self) -> &'a [u8] {
        let header = self.header();
        let skip = size_of::<Node>() + usize::from(header.height) * LINK_BYTES + usize::from(header.key_len);
        // SAFETY: the payload follows the key, `payload_len` bytes long, inside the block (`node_words`).
        unsafe {
            NonNull::slice_from_raw_parts(self.0.byte_add(skip).cast(), header.payload_len as usize).as_ref()
        }
    }

    pub fn value_lsn(self) -> Lsn {
        Lsn(self.header().value_lsn)
    }

    pub fn flags(self) -> VersionFlags {
        VersionFlags(self.header().flags)
    }

    pub fn has_key(self, prefix: u64, key: &[u8]) -> bool {
        self.header().prefix == prefix && self.key() == key
    }

    /// Whether both have the same key; they may be in different memtables, whose prefixes differ.
    pub fn has_key_of(self, other: NodeRef<'_>) -> bool {
        self.key() == other.key()
    }

    pub fn position(self) -> Position<'a> {
        Position { prefix: self.header().prefix, key: self.key(), csn: self.csn() }
    }

    /// The position before all versions of its key, in its memtable.
    pub fn position_of_newest(self) -> Position<'a> {
        Position { csn: Csn::MAX, ..self.position() }
    }

    /// Whether this node comes before the position.
    #[inline]
    pub fn is_before(self, position: &Position<'_>) -> bool {
        let prefix = self.header().prefix;
        if prefix != position.prefix {
            return prefix < position.prefix;
        }
        match self.key().cmp(position.key) {
            Compare::Equal => self.csn() > position.csn,
            order => order == Compare::Less,
        }
    }

    /// A new reference to the node's block.
    pub fn block(self) -> BlockRef {
        let words = self.header().block_words as usize;
        // SAFETY: the block's header is `block_words` words before the node, in the same allocation, whose provenance
        // the pointer has (`new`); the block is alive because the node is.
        unsafe { BlockRef::count(self.0.byte_sub(words * 8).cast::<BlockHeader>()) }
    }

    /// The node's version for a reader: it pins the commit's block, not the memtable, or copies a short payload.
    pub fn version(self) -> Version {
        let VersionRef { csn, flags, expires_at_ms, .. } = self.version_ref();
        Version { csn, flags, expires_at_ms, payload: self.pinned_payload() }
    }

    pub fn version_ref(self) -> VersionRef<'a> {
        let expires_at_ms = self.header().expires_at_ms;
        VersionRef { csn: self.csn(), flags: self.flags(), expires_at_ms, payload: self.payload() }
    }

    pub fn pinned_payload(self) -> Pinned {
        // SAFETY: the payload is in the block, which never moves or changes it while a reference exists.
        unsafe { Pinned::new(|| Owner::Block(self.block()), self.payload()) }
    }

    pub fn pinned_key(self) -> Pinned {
        // SAFETY: as for the payload.
        unsafe { Pinned::new(|| Owner::Block(self.block()), self.key()) }
    }
}
