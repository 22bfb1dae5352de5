//! A leaf in memory is the body of a record of version 1, byte for byte, and never changes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use fulgurite_types::{Csn, Lsn, TableId, Writer};

use super::compact::{self, CsnSpan};
use super::entry::{Entry, PRUNABLE_FLAGS, SAME_KEY};
use super::format::{Fences, HEADER_BYTES, Header, SLOT_BYTES, WIDE_VERSION, fence_prefix, len_u16, len_u32};
use super::search::{self, Samples, SlotBytes};
use crate::memory::{COUNTS_BYTES, Charge, IndexMemory, in_size_class};
use crate::memtables::{LINE_BYTES, prefetch};
use crate::{NodeKind, VersionFlags, VersionRef};

/// A resident leaf: entries ordered by key, then by CSN, newest first.
///
/// A point read needs the first six fields. With the counts before them all of it is two cache lines.
#[repr(C)]
pub struct Leaf {
    /// In a buffer of a size class if it was loaded, or nodes are evicted.
    bytes: Vec<u8>,
    heap_at: u32,
    slots_at: u32,
    count: u32,
    prefix_len: u32,
    samples: Samples,
    may_be_pruned: bool,
    max_csn: Csn,
    origin: Option<Box<Origin>>,
    charge: Option<Charge>,
}

const _: () = assert!(size_of::<Leaf>() + COUNTS_BYTES == 2 * LINE_BYTES);

/// The records that a leaf was loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The full record.
    pub full: Lsn,
    /// Bytes of its body.
    pub full_len: usize,
    /// The leaf delta record that changes it, if there is one.
    pub delta: Option<DeltaOrigin>,
}

/// The delta record that a leaf was loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeltaOrigin {
    /// Bytes of its body.
    pub len: usize,
    /// The number of delta records since the full record, this one included.
    pub ordinal: u8,
    /// The keys that it holds, as in [`crate::btree::account::Changed`].
    pub keys: Vec<u8>,
}

impl Leaf {
    /// The leaf with the entries that start at `starts` in `heap`; the last one ends at `end`.
    pub(crate) fn build(table: TableId, fences: Fences<'_>, heap: &[u8], starts: &[u32], end: usize) -> Leaf {
        let first = starts.first().map_or(end, |start| *start as usize);
        let body = &heap[first..end];
        let prefix_len = fence_prefix(fences.lower, fences.upper);
        let upper = fences.upper.unwrap_or_default();
        let slots_at = HEADER_BYTES + fences.lower.len() + upper.len();
        let heap_at = slots_at + starts.len() * SLOT_BYTES;
        let mut header = Header {
            kind: NodeKind::Leaf,
            version: WIDE_VERSION,
            level: 0,
            ordinal: 0,
            bounded: fences.upper.is_some(),
            has_dues: false,
            table,
            count: len_u32(starts.len()),
            max_csn: Csn::ZERO,
            extra: 0,
            lower_len: len_u16(fences.lower.len()),
            upper_len: len_u16(upper.len()),
            heap_len: len_u32(body.len()),
        };
        let mut bytes = Vec::with_capacity(heap_at + body.len());
        bytes.resize(HEADER_BYTES, 0);
        bytes.put_bytes(fences.lower);
        bytes.put_bytes(upper);
        let mut flags = 0;
        for start in starts {
            let offset = start - first as u32;
            let (entry, _) = Entry::decode(body, offset as usize).expect("entries were just encoded");
            header.max_csn = header.max_csn.max(entry.csn);
            flags |= entry.flags;
            bytes.put_bytes(&search::element(search::head(entry.key, prefix_len), offset));
        }
        bytes.put_bytes(body);
        let mut encoded = Vec::with_capacity(HEADER_BYTES);
        header.encode(&mut encoded);
        bytes[..HEADER_BYTES].copy_from_slice(&encoded);
        let Header { max_csn, count, .. } = header;
        let may_be_pruned = flags & PRUNABLE_FLAGS != 0;
        let samples = Samples::of(search::slots(&bytes, slots_at, starts.len()));
        Leaf {
            bytes,
            heap_at: len_u32(heap_at),
            slots_at: len_u32(slots_at),
            count,
            prefix_len: len_u32(prefix_len),
            samples,
            max_csn,
            may_be_pruned,
            origin: None,
            charge: None,
        }
    }

    /// The leaf over a validated body ([`super::leaf_check`]) with this header, whose entries have all these flags together.
    pub(super) fn from_valid(bytes: Vec<u8>, header: &Header, slots_at: usize, flags: u8) -> Leaf {
        let samples = Samples::of(search::slots(&bytes, slots_at, header.count as usize));
        let mut leaf = Leaf {
            bytes,
            heap_at: len_u32(slots_at + header.count as usize * SLOT_BYTES),
            slots_at: len_u32(slots_at),
            count: header.count,
            prefix_len: 0,
            samples,
            max_csn: header.max_csn,
            may_be_pruned: flags & PRUNABLE_FLAGS != 0,
            origin: None,
            charge: None,
        };
        let fences = leaf.fences();
        leaf.prefix_len = len_u32(fence_prefix(fences.lower, fences.upper));
        leaf
    }

    /// The same leaf with another payload of an entry, which is as long as that one.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn with_payload(&self, index: usize, payload: &[u8]) -> Leaf {
        let (entry, end) = Entry::decode(self.heap(), self.start(index)).expect("entries were validated");
        assert_eq!(entry.payload.len(), payload.len(), "an entry keeps its length");
        let end = self.heap_at as usize + end;
        // The same size class.
        let mut bytes = Vec::with_capacity(self.bytes.capacity());
        bytes.extend_from_slice(&self.bytes);
        bytes[end - payload.len()..end].copy_from_slice(payload);
        let Leaf { heap_at, slots_at, count, prefix_len, samples, max_csn, may_be_pruned, .. } = *self;
        Leaf {
            bytes,
            heap_at,
            slots_at,
            count,
            prefix_len,
            samples,
            max_csn,
            may_be_pruned,
            origin: None,
            charge: None,
        }
    }

    /// The empty leaf of an empty tree.
    pub(crate) fn empty(table: TableId) -> Leaf {
        Leaf::build(table, Fences::ROOT, &[], &[], 0)
    }

    pub(crate) fn with_origin(mut self, origin: Origin) -> Leaf {
        self.origin = Some(Box::new(origin));
        self
    }

    /// Charges its bytes to `memory` until it is dropped. Its buffer gets a size class if it was loaded, or nodes are evicted. Not
    /// otherwise: leaves that a merge builds one after the other are neighbours then, and do not fill the holes of others; scans
    /// are a quarter faster.
    pub(crate) fn charge_to(&mut self, memory: &Arc<IndexMemory>) {
        if self.origin.is_some() || memory.batches() > 0 {
            self.bytes = in_size_class(std::mem::take(&mut self.bytes));
        } else {
            self.bytes.shrink_to_fit();
        }
        let origin = self.origin.as_ref().map_or(0, |origin| {
            size_of::<Origin>() + origin.delta.as_ref().map_or(0, |delta| delta.keys.capacity())
        });
        let bytes = size_of::<Leaf>() + COUNTS_BYTES + self.bytes.capacity() + origin;
        self.charge = Some(Charge::new(memory, bytes));
    }

    /// How many bytes of memory it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<Leaf>() + COUNTS_BYTES
    }

    /// How many bytes of memory are charged for it.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_deref()
    }

    /// Its bytes in memory. The body of its full record is no longer.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The body of its full record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let header = Header::decode(&self.bytes).expect("`build` encoded it, or it was validated");
        compact::encode(header, &self.fences(), self.csns(), self.bytes.len(), |entries| {
            self.push_to(entries);
        })
    }

    /// How many bytes that has.
    pub(crate) fn encoded_len(&self) -> usize {
        compact::encoded_len(&self.fences(), self.csns(), |entries| self.push_to(entries))
    }

    fn csns(&self) -> CsnSpan {
        CsnSpan::of((0..self.count()).map(|index| self.peek(index).0))
    }

    fn push_to<B: Writer>(&self, entries: &mut compact::Entries<B>) {
        for entry in self.entries() {
            entries.push(entry.key, &entry.stamped(), entry.flags & SAME_KEY);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    /// The greatest CSN of its entries.
    pub(crate) fn max_csn(&self) -> Csn {
        self.max_csn
    }

    /// Whether there is a version that may be pruned one day although its key does not change.
    pub(crate) fn may_be_pruned(&self) -> bool {
        self.may_be_pruned
    }

    /// The fences.
    pub(crate) fn fences(&self) -> Fences<'_> {
        let len_at = |at: usize| usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]));
        let (lower_len, upper_len) = (len_at(32), len_at(34));
        let bytes = &self.bytes[HEADER_BYTES..HEADER_BYTES + lower_len + upper_len];
        let (lower, upper) = bytes.split_at(lower_len);
        Fences { lower, upper: (self.bytes[3] != 0).then_some(upper), level: Some(0) }
    }

    #[inline]
    pub(super) fn slots(&self) -> &[SlotBytes] {
        search::slots(&self.bytes, self.slots_at as usize, self.count())
    }

    #[inline]
    pub(crate) fn heap(&self) -> &[u8] {
        &self.bytes[self.heap_at as usize..]
    }

    /// Where entry `index` starts in the heap; for `count`, where the heap ends.
    #[inline]
    pub(crate) fn start(&self, index: usize) -> usize {
        match self.slots().get(index) {
            Some(slot) => search::offset_of(slot),
            None => self.bytes.len() - self.heap_at as usize,
        }
    }

    /// # Panics
    /// If there is no such entry.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Entry<'_> {
        let (entry, _) = Entry::decode(self.heap(), self.start(index)).expect("entries were validated");
        entry
    }

    #[inline]
    fn peek(&self, index: usize) -> (Csn, bool) {
        Entry::peek(self.heap(), self.start(index))
    }

    /// How many entries have a key below `key`, which is between the fences, or the upper one.
    #[inline]
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        debug_assert!(
            key >= self.fences().lower && self.fences().upper.is_none_or(|upper| key <= upper),
            "searched outside the fences"
        );
        let heap = self.heap();
        self.samples.count_below(self.slots(), self.head(key), |offset| {
            let (entry, _) = Entry::decode(heap, offset).expect("entries were validated");
            entry.key < key
        })
    }

    #[inline]
    fn head(&self, key: &[u8]) -> u32 {
        search::head(key, self.prefix_len as usize)
    }

    /// Starts loading what [`Leaf::lower_bound`] reads first of the slots.
    pub(crate) fn prefetch_search(&self, key: &[u8]) {
        self.samples.prefetch(self.slots(), self.head(key));
    }

    /// Starts loading the entry that [`Leaf::lower_bound`] reads, or the one that it finds.
    pub(crate) fn prefetch_entry(&self, key: &[u8]) {
        let index = self.samples.count_below(self.slots(), self.head(key), |_| false);
        let entry = self.heap().as_ptr().wrapping_add(self.start(index));
        prefetch(entry);
        prefetch(entry.wrapping_add(LINE_BYTES));
    }

    /// The entries of `key`.
    pub(crate) fn group(&self, key: &[u8]) -> Range<usize> {
        let start = self.lower_bound(key);
        if start == self.count() || self.entry(start).key != key {
            return start..start;
        }
        start..self.group_end(start)
    }

    /// Where the versions of the key of entry `index` end.
    #[inline]
    pub(crate) fn group_end(&self, index: usize) -> usize {
        let mut end = index + 1;
        while end < self.count() && self.peek(end).1 {
            end += 1;
        }
        end
    }

    /// The newest entry of `key` at or below `at`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], at: Csn) -> Option<Entry<'_>> {
        self.find_from(self.lower_bound(key), key, at)
    }

    /// Whether the versions of `key` begin with entry `index`.
    pub(crate) fn begins_at(&self, index: usize, key: &[u8]) -> bool {
        index < self.count() && {
            let entry = self.entry(index);
            entry.key == key && !entry.is_same_key()
        }
    }

    /// The newest entry of `key` at or below `at`, if its versions begin with entry `index`.
    #[inline]
    pub(crate) fn find_from(&self, mut index: usize, key: &[u8], at: Csn) -> Option<Entry<'_>> {
        if index == self.count() {
            return None;
        }
        let mut entry = self.entry(index);
        if entry.key != key {
            return None;
        }
        while entry.csn > at {
            index += 1;
            if index == self.count() {
                return None;
            }
            entry = self.entry(index);
            if !entry.is_same_key() {
                return None;
            }
        }
        Some(entry)
    }

    /// The first entry that a reader at `at` sees, at or after entry `index`, which starts a key.
    #[inline]
    pub(crate) fn visible_from(&self, mut index: usize, at: Csn) -> Option<usize> {
        while index < self.count() {
            if self.peek(index).0 <= at {
                return Some(index);
            }
            index += 1;
        }
        None
    }

    /// The last entry that a reader at `at` sees among the keys before entry `end`, which starts a key.
    pub(crate) fn visible_before(&self, mut end: usize, at: Csn) -> Option<usize> {
        while end > 0 {
            let start = self.group_start(end - 1);
            if let Some(index) = (start..end).find(|index| self.peek(*index).0 <= at) {
                return Some(index);
            }
            end = start;
        }
        None
    }

    /// Where the versions of the key of entry `index` start.
    pub(crate) fn group_start(&self, mut index: usize) -> usize {
        while self.peek(index).1 {
            index -= 1;
        }
        index
    }

    /// All entries in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.count()).map(|index| self.entry(index))
    }
}

/// A decoded entry without a borrow of its leaf, which the caller passes again. Key and payload are its last bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CurrentEntry {
    csn: Csn,
    flags: VersionFlags,
    expires_at_ms: u64,
    key_len: usize,
    payload_len: usize,
    /// Where it ends in the leaf's bytes.
    end: usize,
}

impl CurrentEntry {
    /// Decodes entry `index` into it. In place: building one and copying it took as long as the rest of a cursor's
    /// step.
    #[inline]
    pub(crate) fn set(&mut self, leaf: &Leaf, index: usize) {
        let (entry, end) = Entry::decode(leaf.heap(), leaf.start(index)).expect("entries were validated");
        self.csn = entry.csn;
        self.flags = entry.version_flags();
        self.expires_at_ms = entry.expires_at_ms;
        self.key_len = entry.key.len();
        self.payload_len = entry.payload.len();
        self.end = leaf.heap_at as usize + end;
    }

    #[inline]
    pub(crate) fn key<'l>(&self, leaf: &'l Leaf) -> &'l [u8] {
        let payload_at = self.end - self.payload_len;
        &leaf.bytes[payload_at - self.key_len..payload_at]
    }

    #[inline]
    pub(crate) fn version<'l>(&self, leaf: &'l Leaf) -> VersionRef<'l> {
        let payload = &leaf.bytes[self.end - self.payload_len..self.end];
        VersionRef { csn: self.csn, flags: self.flags, expires_at_ms: self.expires_at_ms, payload }
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaf({} entries, {} bytes)", self.count, self.bytes.len())
    }
}
