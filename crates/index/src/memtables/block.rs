//! The versions that one commit adds to one table's memtables: a single allocation with all its nodes, prepared before
//! the commit has its CSN.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use fulgurite_types::{Csn, Lsn, TableId, limits, seal_checksum};

use super::node::{HEIGHT_MAX, LINK_BYTES, Node, NodeRef, key_prefix, node_words};
use super::shared::Shared;
use crate::memory::IndexMemory;
use crate::version::VersionFlags;
use fulgurite_types::sync::AtomicPtr;

/// The commit frame's body does not have the value.
const NO_OFFSET: u64 = u64::MAX;

/// The position of the checksum in an encoded out-of-line payload.
const OUT_OF_LINE_CHECKSUM: std::ops::Range<usize> = 8..12;

#[repr(C)]
pub(super) struct BlockHeader {
    /// Counts its memtable and the readers that pin it.
    references: AtomicUsize,
    table: TableId,
    entries: u32,
    len_words: usize,
    capacity_words: usize,
    /// The blocks that its memtable adopted before this one; the totals include them and this one.
    pub below: *mut BlockHeader,
    pub entries_total: u64,
    pub bytes_total: u64,
    /// Where it counts once its memtable is gone and a reader holds it; null before. Owns a reference.
    lent_in: *const IndexMemory,
}

const HEADER_WORDS: usize = size_of::<BlockHeader>() / 8;
const _: () = assert!(size_of::<BlockHeader>().is_multiple_of(8) && align_of::<BlockHeader>() == 8);

/// One operation of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct BlockOp<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its [`fulgurite_types::hash_key`].
    pub hash: u64,
    /// The kind of version that it makes.
    pub flags: VersionFlags,
    /// When it expires, in milliseconds since 1970-01-01 UTC; 0: never.
    pub expires_at_ms: u64,
    /// The value's bytes; with [`VersionFlags::OUT_OF_LINE`] an encoded [`crate::OutOfLine`], whose checksum is filled
    /// in when the block is applied.
    pub payload: &'a [u8],
    /// The offset of the value's bytes in the commit frame's body; `None` if they are not there.
    pub value_offset: Option<u32>,
    /// The value's [`fulgurite_types::value_checksum`], not sealed yet.
    pub checksum: u32,
}

/// The fields of a node, made by a transaction or by recovery.
pub(super) struct NodeFields<'a> {
    pub key: &'a [u8],
    pub hash: u64,
    pub csn: Csn,
    pub flags: VersionFlags,
    pub expires_at_ms: u64,
    pub payload: &'a [u8],
    pub value_lsn: u64,
    pub checksum: u32,
}

/// Collects the operations of one commit on one table.
pub struct BlockBuilder {
    words: Vec<u64>,
    table: TableId,
    entries: u32,
    heights: u64,
}

impl BlockBuilder {
    /// A builder with room for `ops_expected` operations whose keys and payloads have `bytes_expected` bytes together; it grows
    /// beyond that.
    pub fn new(table: TableId, ops_expected: usize, bytes_expected: usize) -> BlockBuilder {
        // On average a node has a link and a third, and half a word of padding. Its links vary: three standard deviations are added.
        let per_op = (size_of::<Node>() + 2 * LINK_BYTES) / 8;
        let words = ops_expected * per_op + 2 * ops_expected.isqrt() + 2;
        BlockBuilder::with_words(table, words + bytes_expected.div_ceil(8))
    }

    pub(super) fn with_words(table: TableId, node_words: usize) -> BlockBuilder {
        static BUILDERS: AtomicU64 = AtomicU64::new(0);
        let mut words = Vec::with_capacity(HEADER_WORDS + node_words);
        words.resize(HEADER_WORDS, 0);
        let seed = splitmix(BUILDERS.fetch_add(1, Ordering::Relaxed));
        BlockBuilder { words, table, entries: 0, heights: seed | 1 }
    }

    /// Adds an operation. Keys within a block are unique; pushed in ascending order they are applied fastest.
    ///
    /// # Panics
    /// If the key is longer than [`limits::KEY_BYTES_MAX`], the payload than 4 GiB, or an out-of-line payload too
    /// short to have a checksum.
    pub fn push(&mut self, op: BlockOp<'_>) {
        assert!(!op.flags.is_out_of_line() || op.payload.len() >= OUT_OF_LINE_CHECKSUM.end);
        self.push_fields(&NodeFields {
            key: op.key,
            hash: op.hash,
            csn: Csn::ZERO,
            flags: op.flags,
            expires_at_ms: op.expires_at_ms,
            payload: op.payload,
            value_lsn: op.value_offset.map_or(NO_OFFSET, u64::from),
            checksum: op.checksum,
        });
    }

    /// How many operations were added.
    pub fn len(&self) -> usize {
        self.entries as usize
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// How many bytes the block has so far.
    pub fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Whether a node of the greatest height still fits without moving the others.
    pub(super) fn has_room_for(&self, key_len: usize, payload_len: usize) -> bool {
        node_words(HEIGHT_MAX, key_len, payload_len) <= self.words.capacity() - self.words.len()
    }

    /// Appends a node; the pointer is valid until the next push moves the block.
    pub(super) fn push_fields(&mut self, fields: &NodeFields<'_>) -> NonNull<Node> {
        let height = self.next_height();
        self.push_fields_with_height(fields, height)
    }

    pub(super) fn push_fields_with_height(
        &mut self,
        fields: &NodeFields<'_>,
        height: usize,
    ) -> NonNull<Node> {
        let (key, payload) = (fields.key, fields.payload);
        assert!(key.len() <= limits::KEY_BYTES_MAX, "a key of {} bytes", key.len());
        assert!((1..=HEIGHT_MAX).contains(&height));
        let words = node_words(height, key.len(), payload.len());
        let start = self.words.len();
        self.words.reserve(words);
        let node = Node {
            older: AtomicPtr::new(ptr::null_mut()),
            prefix: key_prefix(key),
            csn: fields.csn.0,
            value_lsn: fields.value_lsn,
            expires_at_ms: fields.expires_at_ms,
            checksum: fields.checksum,
            payload_len: u32::try_from(payload.len()).expect("a payload has less than 4 GiB"),
            block_words: u32::try_from(start).expect("a block has less than 32 GiB"),
            key_len: key.len() as u16,
            flags: fields.flags.0,
            height: height as u8,
        };
        let first_link = ptr::without_provenance_mut(fields.hash as usize);
        // SAFETY: `reserve` made room for `words` words after `start`, and `node_words` counts everything that is
        // written: header, links, key, payload, and the padding, which the zeroed last word covers. All words are
        // initialised before `set_len`.
        unsafe {
            let first = self.words.as_mut_ptr().add(start);
            first.add(words - 1).write(0);
            let node_ptr = first.cast::<Node>();
            node_ptr.write(node);
            let links = node_ptr.add(1).cast::<AtomicPtr<Node>>();
            links.write(AtomicPtr::new(first_link));
            for level in 1..height {
                links.add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
            let bytes = links.add(height).cast::<u8>();
            ptr::copy_nonoverlapping(key.as_ptr(), bytes, key.len());
            ptr::copy_nonoverlapping(payload.as_ptr(), bytes.add(key.len()), payload.len());
            self.words.set_len(start + words);
            self.entries += 1;
            NonNull::new_unchecked(node_ptr)
        }
    }

    /// One in four nodes goes up a level (Pugh's p = 1/4), by xorshift64.
    fn next_height(&mut self) -> usize {
        self.heights ^= self.heights << 13;
        self.heights ^= self.heights >> 7;
        self.heights ^= self.heights << 17;
        let scrambled = self.heights.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        (scrambled.trailing_zeros() as usize / 2 + 1).min(HEIGHT_MAX)
    }

    /// The block, ready to be applied.
    pub fn finish(self) -> Block {
        let mut words = ManuallyDrop::new(self.words);
        let header = BlockHeader {
            references: AtomicUsize::new(1),
            table: self.table,
            entries: self.entries,
            len_words: words.len(),
            capacity_words: words.capacity(),
            below: ptr::null_mut(),
            entries_total: 0,
            bytes_total: 0,
            lent_in: ptr::null(),
        };
        let first = words.as_mut_ptr().cast::<BlockHeader>();
        // SAFETY: `with_words` kept the first HEADER_WORDS words for the header; the vector is not used again.
        unsafe {
            first.write(header);
            Block(NonNull::new_unchecked(first))
        }
    }
}

fn splitmix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The operations of one commit on one table, not applied yet: no other thread sees it.
pub struct Block(NonNull<BlockHeader>);

// SAFETY: a block owns its memory, which holds only plain bytes and atomics.
unsafe impl Send for Block {}
// SAFETY: through `&Block` only immutable fields are read.
unsafe impl Sync for Block {}

impl Block {
    fn header(&self) -> &BlockHeader {
        // SAFETY: the header was initialised by `finish`, and `self` owns the block.
        unsafe { self.0.as_ref() }
    }

    /// The table that it was built for.
    pub fn table(&self) -> TableId {
        self.header().table
    }

    /// How many operations it has.
    pub fn entries(&self) -> usize {
        self.header().entries as usize
    }

    /// How many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.header().capacity_words * 8
    }

    /// Writes into each node the commit's CSN and LSN, which are known only now, and the key's prefix in its memtable.
    pub(super) fn stamp(&mut self, csn: Csn, body_lsn: Lsn, shared: &Shared) {
        // SAFETY: the block is alive, and `&mut self` keeps all other threads away from its nodes until it is linked.
        for node in unsafe { node_pointers(self.0) } {
            let node = node.as_ptr();
            // SAFETY: as above; only this thread can reach the node. The payload is at least as long as the checksum's
            // range ends if it is out of line (asserted by `push`).
            unsafe {
                (*node).csn = csn.0;
                shared.set_prefix(NonNull::new_unchecked(node));
                let offset = (*node).value_lsn;
                (*node).value_lsn =
                    if offset == NO_OFFSET { Lsn::NULL.0 } else { body_lsn.0.wrapping_add(offset) };
                let out_of_line = VersionFlags((*node).flags).is_out_of_line();
                if out_of_line || offset != NO_OFFSET {
                    (*node).checksum = seal_checksum((*node).checksum, csn);
                }
                if out_of_line {
                    let skip = size_of::<Node>()
                        + usize::from((*node).height) * LINK_BYTES
                        + usize::from((*node).key_len)
                        + OUT_OF_LINE_CHECKSUM.start;
                    let checksum = (*node).checksum.to_le_bytes();
                    ptr::copy_nonoverlapping(checksum.as_ptr(), node.cast::<u8>().add(skip), checksum.len());
                }
            }
        }
    }

    /// Writes into each node the key's prefix in its memtable.
    pub(super) fn set_prefixes(&mut self, shared: &Shared) {
        // SAFETY: as in `stamp`.
        unsafe { node_pointers(self.0).for_each(|node| shared.set_prefix(node)) }
    }

    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn as_raw(&self) -> NonNull<BlockHeader> {
        self.0
    }

    /// Transfers the block's reference to the caller, which releases it later.
    pub(super) fn into_raw(self) -> NonNull<BlockHeader> {
        ManuallyDrop::new(self).0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `self` owns one reference and does not use it again.
        unsafe { release(self.0) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} entries, {} bytes)", self.entries(), self.bytes())
    }
}

/// Keeps a commit's block alive.
pub struct BlockRef(NonNull<BlockHeader>);

// SAFETY: the count is atomic, and any thread may free the block: the one that releases the last reference does.
unsafe impl Send for BlockRef {}
// SAFETY: as above.
unsafe impl Sync for BlockRef {}

impl BlockRef {
    /// How many bytes of memory the block takes.
    pub(crate) fn bytes(&self) -> usize {
        // SAFETY: `self` keeps the block alive; the capacity never changes.
        unsafe { (*self.0.as_ptr()).capacity_words * 8 }
    }

    /// # Safety
    /// The block must be alive during the call, and the pointer have the provenance of its allocation.
    pub(super) unsafe fn count(header: NonNull<BlockHeader>) -> BlockRef {
        // SAFETY: the block is alive, and its count is only touched atomically.
        let before = unsafe { (*header.as_ptr()).references.fetch_add(1, Ordering::Relaxed) };
        assert!(before < usize::MAX / 2, "more references to a block than memory can hold");
        BlockRef(header)
    }
}

impl Clone for BlockRef {
    fn clone(&self) -> BlockRef {
        // SAFETY: `self` keeps the block alive.
        unsafe { BlockRef::count(self.0) }
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        // SAFETY: `self` owns one reference and does not use it again.
        unsafe { release(self.0) }
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockRef({:p})", self.0)
    }
}

/// Gives one reference back; the last one frees the block.
///
/// # Safety
/// The caller owns a reference and does not use it again.
pub(super) unsafe fn release(header: NonNull<BlockHeader>) {
    // SAFETY: the reference that is given back kept the block alive until here. The call that gives back the last one
    // frees the vector that `finish` took apart, with the same length and capacity. Release and acquire order every
    // other thread's last use before that.
    unsafe {
        if (*header.as_ptr()).references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let lent_in = (*header.as_ptr()).lent_in;
        if !lent_in.is_null() {
            uncount(header, &Arc::from_raw(lent_in));
        }
        let (len, capacity) = ((*header.as_ptr()).len_words, (*header.as_ptr()).capacity_words);
        drop(Vec::from_raw_parts(header.as_ptr().cast::<u64>(), len, capacity));
    }
}

/// Gives the reference of a memtable back, whose block counts in `memory`: for as long as readers hold it.
///
/// # Safety
/// As of [`release`]; the block was counted, and the caller is the memtable that adopted it.
pub(super) unsafe fn release_counted(header: NonNull<BlockHeader>, memory: &Arc<IndexMemory>) {
    // SAFETY: the caller's reference keeps the block alive. It alone writes the field, before it gives its reference back,
    // and the field is read only by the one that gives back the last reference, after the acquire fence.
    unsafe {
        if (*header.as_ptr()).references.load(Ordering::Acquire) == 1 {
            uncount(header, memory);
        } else {
            (*header.as_ptr()).lent_in = Arc::into_raw(Arc::clone(memory));
        }
        release(header);
    }
}

/// # Safety
/// The block is alive.
unsafe fn uncount(header: NonNull<BlockHeader>, memory: &IndexMemory) {
    // SAFETY: the caller's promise; the capacity never changes.
    let bytes = unsafe { (*header.as_ptr()).capacity_words } * 8;
    memory.memtables().fetch_sub(bytes, Ordering::Relaxed);
    memory.left_memtables().fetch_sub(bytes, Ordering::Relaxed);
}

/// How many operations a block has, and how many bytes of memory it takes.
///
/// # Safety
/// The block is alive.
pub(super) unsafe fn counts(header: NonNull<BlockHeader>) -> (usize, usize) {
    // SAFETY: the caller's promise; neither changes after `finish`.
    unsafe { ((*header.as_ptr()).entries as usize, (*header.as_ptr()).capacity_words * 8) }
}

/// The nodes of an applied block in the order in which they were pushed.
///
/// # Safety
/// The block must stay alive for `'a`, and must not be stamped any more.
pub(super) unsafe fn nodes<'a>(header: NonNull<BlockHeader>) -> impl Iterator<Item = NodeRef<'a>> {
    // SAFETY: the caller promises this and the conditions of `NodeRef::new`; the pointers have the block's provenance.
    unsafe { node_pointers(header).map(|node| NodeRef::new(node)) }
}

/// # Safety
/// The block must stay alive while the iterator is used.
unsafe fn node_pointers(header: NonNull<BlockHeader>) -> impl Iterator<Item = NonNull<Node>> {
    // SAFETY: the block is alive; its length never changes after `finish`.
    let len_words = unsafe { (*header.as_ptr()).len_words };
    let mut word = HEADER_WORDS;
    std::iter::from_fn(move || {
        if word >= len_words {
            return None;
        }
        // SAFETY: `push_fields` put nodes one after the other from HEADER_WORDS to the end, each `node_words` long.
        unsafe {
            let node = header.cast::<u64>().add(word).cast::<Node>();
            let (height, key_len) = ((*node.as_ptr()).height, (*node.as_ptr()).key_len);
            let payload_len = (*node.as_ptr()).payload_len as usize;
            word += node_words(height.into(), key_len.into(), payload_len);
            Some(node)
        }
    })
}
