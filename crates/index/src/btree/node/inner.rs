//! Inner nodes: separators, and the children between them. In memory an inner node is the body of a record of version 1, with
//! [`Slot`]s instead of the children's LSNs, and heads after what all separators have in common; it never changes.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool};

use fulgurite_types::limits::KEY_BYTES_MAX;
use fulgurite_types::{Csn, DecodeError, Lsn, Reader, TableId, Writer};

use super::compact::WIDENED_BYTES_MAX;
use super::format::{
    self, COMPACT_VERSION, Fences, HEADER_BYTES, Header, SLOT_BYTES, WIDE_VERSION, common_prefix, expect,
    fence_prefix, len_u16, len_u32,
};
use super::leaf_check::{check_length, shift};
use super::search::{self, Samples, SlotBytes};
use crate::NodeKind;
use crate::btree::slot::{Residency, Slot};
use crate::memory::{COUNTS_BYTES, Charge, IndexMemory};
use crate::memtables::{LINE_BYTES, prefetch};

/// Bytes of a child's LSN.
const CHILD_BYTES: usize = 8;

/// Bytes of the time when a purge of a child is due.
const DUE_BYTES: usize = 4;

/// A resident inner node. A search needs the fields up to the samples.
#[repr(C)]
pub(crate) struct Inner {
    body: Box<[u8]>,
    children: Box<[Arc<Slot>]>,
    slots_at: u32,
    heap_at: u32,
    prefix_len: u32,
    /// So many bytes all separators share, as many as the fences or more: the root has no fences.
    common_len: u32,
    samples: Samples,
    level: u8,
    has_left: AtomicBool,
    /// Bytes of the body of the record that it was loaded from; 0 if it was not.
    loaded_len: usize,
    charge: Option<Charge>,
}

const _: () = assert!(size_of::<Inner>() + COUNTS_BYTES == 2 * LINE_BYTES);

/// A child on its way into an inner node.
#[derive(Clone)]
pub(crate) struct Child {
    /// Its lower fence.
    pub lower: Box<[u8]>,
    pub slot: Arc<Slot>,
    /// Whether it may have become so small that it should join a neighbour.
    pub may_be_small: bool,
}

/// How many bytes of a body a child with this lower fence takes.
pub(crate) fn child_weight(lower: &[u8]) -> usize {
    SLOT_BYTES + CHILD_BYTES + 2 + lower.len()
}

impl Inner {
    /// The node over `children`, which ascend and start at the node's lower fence.
    pub(crate) fn build(table: TableId, fences: Fences<'_>, level: u8, children: &[Child]) -> Inner {
        assert!(!children.is_empty() && *children[0].lower == *fences.lower, "children cover their parent");
        let prefix_len = fence_prefix(fences.lower, fences.upper);
        let upper = fences.upper.unwrap_or_default();
        let heap_len: usize = children[1..].iter().map(|child| 2 + child.lower.len()).sum();
        let header = Header {
            kind: NodeKind::Internal,
            version: WIDE_VERSION,
            level,
            ordinal: 0,
            bounded: fences.upper.is_some(),
            has_dues: false,
            table,
            count: len_u32(children.len()),
            max_csn: Csn::ZERO,
            extra: 0,
            lower_len: len_u16(fences.lower.len()),
            upper_len: len_u16(upper.len()),
            heap_len: len_u32(heap_len),
        };
        let slots_at = HEADER_BYTES + fences.lower.len() + upper.len();
        let children_at = slots_at + (children.len() - 1) * SLOT_BYTES;
        let heap_at = children_at + children.len() * CHILD_BYTES;
        let mut body = Vec::with_capacity(heap_at + heap_len);
        header.encode(&mut body);
        body.put_bytes(fences.lower);
        body.put_bytes(upper);
        let mut offset = 0;
        for child in &children[1..] {
            body.put_bytes(&search::element(0, offset));
            offset += len_u32(2 + child.lower.len());
        }
        body.resize(heap_at, 0);
        for child in &children[1..] {
            body.put_u16(len_u16(child.lower.len()));
            body.put_bytes(&child.lower);
        }
        let (common_len, samples) = set_heads(&mut body, slots_at, heap_at, children.len() - 1, prefix_len);
        let children = children.iter().map(|child| Arc::clone(&child.slot)).collect();
        Inner {
            body: body.into_boxed_slice(),
            level,
            slots_at: len_u32(slots_at),
            heap_at: len_u32(heap_at),
            prefix_len: len_u32(prefix_len),
            common_len,
            samples,
            loaded_len: 0,
            children,
            charge: None,
            has_left: AtomicBool::new(false),
        }
    }

    /// Decodes the body of the node with these fences and level; also returns the tree's entry count that it carries.
    pub(crate) fn decode(
        mut bytes: Vec<u8>,
        table: TableId,
        fences: &Fences<'_>,
        residency: &Arc<Residency>,
    ) -> Result<(Inner, u64), DecodeError> {
        let (header, slots_at) = format::open(&bytes, NodeKind::Internal, table, fences)?;
        expect(header.max_csn == Csn::ZERO, "max csn", 16)?;
        let (loaded_len, count) = (bytes.len(), header.count as usize);
        expect(count > 0, "child count", 12)?;
        let dues = if header.has_dues {
            let dues_at = count.checked_mul(DUE_BYTES).and_then(|dues| bytes.len().checked_sub(dues));
            format::set_dues(&mut bytes, false);
            let dues = bytes.split_off(dues_at.ok_or(format::at("child count", 12))?);
            expect(dues.iter().any(|byte| *byte != 0), "dues", bytes.len())?;
            dues
        } else {
            Vec::new()
        };
        if header.is_compact() {
            bytes = widen(&bytes, &header, slots_at, fences)?;
        } else {
            check(&bytes, &header, slots_at, fences)?;
        }
        let children_at = slots_at + (count - 1) * SLOT_BYTES;
        let heap_at = children_at + count * CHILD_BYTES;
        let named = bytes[children_at..heap_at].as_chunks::<CHILD_BYTES>().0.iter();
        let lsns = named.map(|lsn| Lsn(u64::from_le_bytes(*lsn)));
        let children: Box<[_]> = lsns.map(|lsn| Arc::new(Slot::on_disk(lsn, residency))).collect();
        for (child, due) in children.iter().zip(dues.as_chunks::<DUE_BYTES>().0) {
            child.set_due(u32::from_le_bytes(*due));
        }
        let prefix_len = fence_prefix(fences.lower, fences.upper);
        let (common_len, samples) = set_heads(&mut bytes, slots_at, heap_at, count - 1, prefix_len);
        let inner = Inner {
            body: bytes.into_boxed_slice(),
            level: header.level,
            slots_at: len_u32(slots_at),
            heap_at: len_u32(heap_at),
            prefix_len: len_u32(prefix_len),
            common_len,
            samples,
            loaded_len,
            children,
            charge: None,
            has_left: AtomicBool::new(false),
        };
        Ok((inner, header.extra))
    }

    /// The node leaves its slot, or its slot the tree.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, atomic::Ordering::SeqCst);
    }

    /// Whether the node has left the tree: readers that kept it may still use the children that are in memory.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(atomic::Ordering::SeqCst)
    }

    /// Charges its bytes to `memory` until it is dropped. Its slots are charged themselves.
    pub(crate) fn charge_to(&mut self, memory: &Arc<IndexMemory>) {
        let children = self.children.len() * size_of::<Arc<Slot>>();
        let bytes = size_of::<Inner>() + COUNTS_BYTES + self.body.len() + children;
        self.charge = Some(Charge::new(memory, bytes));
    }

    /// How many bytes of memory are charged for it.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    /// The body of this node's record, with `entries` as the tree's entry count, that names the children's records at
    /// `lsns`; `dues` are the times when a purge of each is due.
    pub(crate) fn encode(
        &self,
        entries: u64,
        lsns: impl ExactSizeIterator<Item = Lsn>,
        dues: &[u32],
    ) -> Vec<u8> {
        assert_eq!(lsns.len(), self.children.len(), "each child has a record");
        let has_dues = dues.iter().any(|due| *due != 0);
        let header = Header::decode(&self.body).expect("`build` encoded it, or it was validated");
        let header = Header { version: COMPACT_VERSION, has_dues, extra: entries, ..header };
        let mut body = Vec::with_capacity(self.body.len() + dues.len() * DUE_BYTES);
        header.encode(&mut body);
        body.put_bytes(&self.body[HEADER_BYTES..self.slots_at as usize]);
        let separators = self.slots().iter().map(|slot| self.separator_at(search::offset_of(slot)));
        for (lsn, separator) in lsns.zip(std::iter::once(None).chain(separators.map(Some))) {
            assert!(!lsn.is_null(), "children are written before their parents");
            if let Some(separator) = separator {
                body.put_prefixed(&separator[self.prefix_len as usize..]);
            }
            body.put_u64(lsn.0);
        }
        let heap_len = body.len() - self.slots_at as usize;
        format::set_lengths(&mut body, self.children.len(), heap_len);
        if has_dues {
            assert_eq!(dues.len(), self.children.len(), "each child has a due time, or none");
            dues.iter().for_each(|due| body.put_u32(*due));
        }
        body
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Bytes of the node, of which a record without dues has no more.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// Bytes of the body of the record that the node was loaded from.
    pub(crate) fn loaded_len(&self) -> usize {
        self.loaded_len
    }

    #[inline]
    pub(crate) fn children(&self) -> &[Arc<Slot>] {
        &self.children
    }

    /// Whether a child is in memory.
    pub(crate) fn has_resident_child(&self) -> bool {
        self.children.iter().any(|child| child.is_resident())
    }

    #[inline]
    fn slots(&self) -> &[SlotBytes] {
        search::slots(&self.body, self.slots_at as usize, self.children.len() - 1)
    }

    #[inline]
    fn separator_at(&self, offset: usize) -> &[u8] {
        checked_separator(&self.body[self.heap_at as usize..], offset).expect("separators were validated")
    }

    /// The index of the child whose range contains `key`.
    #[inline]
    pub(crate) fn child_index(&self, key: &[u8]) -> usize {
        self.count_below(key, |separator| separator <= key)
    }

    /// The index of the last child that may have keys below `end`; 0 if none may.
    pub(crate) fn child_index_before(&self, end: &[u8]) -> usize {
        self.count_below(end, |separator| separator < end)
    }

    /// Starts loading what [`Inner::child_index`] reads first of the slots, if `key` has what all separators share.
    #[inline]
    pub(crate) fn prefetch_search(&self, key: &[u8]) {
        self.samples.prefetch(self.slots(), self.head(key));
        if self.common_len > self.prefix_len {
            prefetch(self.body.as_ptr().wrapping_add(self.heap_at as usize));
        }
    }

    /// Starts loading which child has `key`.
    #[inline]
    pub(crate) fn prefetch_child(&self, key: &[u8]) -> &Arc<Slot> {
        let child = &self.children[self.child_index(key)];
        prefetch(child);
        child
    }

    /// How many separators are below `key`, which is between the fences, or the upper one; `is_below` decides for those that
    /// may be equal.
    #[inline]
    fn count_below(&self, key: &[u8], is_below: impl Fn(&[u8]) -> bool) -> usize {
        let slots = self.slots();
        if self.common_len > self.prefix_len {
            let common_len = self.common_len as usize;
            // The first separator is at the beginning of the heap.
            let common = &self.separator_at(0)[..common_len];
            match key[..key.len().min(common_len)].cmp(common) {
                Ordering::Less => return 0,
                Ordering::Equal => {}
                Ordering::Greater => return slots.len(),
            }
        }
        self.samples.count_below(slots, self.head(key), |offset| is_below(self.separator_at(offset)))
    }

    #[inline]
    fn head(&self, key: &[u8]) -> u32 {
        search::head(key, self.common_len as usize)
    }

    /// The fences.
    pub(crate) fn fences(&self) -> Fences<'_> {
        let len_at = |at: usize| usize::from(u16::from_le_bytes([self.body[at], self.body[at + 1]]));
        let lower_len = len_at(32);
        let bytes = &self.body[HEADER_BYTES..HEADER_BYTES + lower_len + len_at(34)];
        let (lower, upper) = bytes.split_at(lower_len);
        Fences { lower, upper: (self.body[3] != 0).then_some(upper), level: Some(self.level) }
    }

    /// The fences and level of child `index`.
    pub(crate) fn child_fences(&self, index: usize) -> Fences<'_> {
        let own = self.fences();
        let slots = self.slots();
        let separator = |slot: &SlotBytes| self.separator_at(search::offset_of(slot));
        let lower = if index == 0 { own.lower } else { separator(&slots[index - 1]) };
        let upper = slots.get(index).map(separator).or(own.upper);
        Fences { lower, upper, level: Some(self.level - 1) }
    }

    /// The children, ready to go into other nodes.
    pub(crate) fn to_children(&self) -> Vec<Child> {
        let child = |(index, slot): (usize, &Arc<Slot>)| Child {
            lower: self.child_fences(index).lower.into(),
            slot: Arc::clone(slot),
            may_be_small: false,
        };
        self.children.iter().enumerate().map(child).collect()
    }
}

/// Sets the heads of a body of version 1 to what follows the bytes that all separators share; returns how many these are, at least
/// `prefix_len`.
fn set_heads(
    body: &mut [u8],
    slots_at: usize,
    heap_at: usize,
    count: usize,
    prefix_len: usize,
) -> (u32, Samples) {
    let (before, heap) = body.split_at_mut(heap_at);
    let slots = before[slots_at..slots_at + count * SLOT_BYTES].as_chunks_mut::<SLOT_BYTES>().0;
    let separator = |slot: &SlotBytes| {
        checked_separator(heap, search::offset_of(slot)).expect("separators were validated")
    };
    let common_len = match slots {
        [first, .., last] => common_prefix(separator(first), separator(last)),
        _ => prefix_len,
    };
    for slot in &mut *slots {
        *slot = search::element(search::head(separator(slot), common_len), search::offset_of(slot) as u32);
    }
    (len_u32(common_len), Samples::of(slots))
}

/// Checks a body of version 1 whose slots start at `slots_at`.
fn check(bytes: &[u8], header: &Header, slots_at: usize, fences: &Fences<'_>) -> Result<(), DecodeError> {
    let count = header.count as usize;
    let heap_at = check_length(bytes, header, slots_at, count - 1 + count)?;
    let children_at = heap_at - count * CHILD_BYTES;
    let slots = search::slots(bytes, slots_at, count - 1);
    let heap = &bytes[heap_at..];
    let prefix_len = fence_prefix(fences.lower, fences.upper);
    let (mut next, mut last) = (0, fences.lower);
    for (index, slot) in slots.iter().enumerate() {
        let slot_at = slots_at + index * SLOT_BYTES;
        expect(search::offset_of(slot) == next, "separator offset", slot_at)?;
        let own = checked_separator(heap, next).ok_or(format::at("separator", heap_at + next))?;
        expect(own > last && fences.admits(own), "order of separators", heap_at + next)?;
        expect(search::head_of(slot) == search::head(own, prefix_len), "key head", slot_at)?;
        (next, last) = (next + 2 + own.len(), own);
    }
    expect(next == heap.len(), "heap length", 36)?;
    for (index, lsn) in bytes[children_at..heap_at].as_chunks::<CHILD_BYTES>().0.iter().enumerate() {
        expect(*lsn != [0; CHILD_BYTES], "child", children_at + index * CHILD_BYTES)?;
    }
    Ok(())
}

/// The body of version 1, checked and without heads, of the node with a body of version 2 whose heap starts at `compact_at`.
fn widen(
    body: &[u8],
    header: &Header,
    compact_at: usize,
    fences: &Fences<'_>,
) -> Result<Vec<u8>, DecodeError> {
    // The dues that were cut off may have been more than there was.
    let compact = body.get(compact_at..).ok_or(format::at("child count", 12))?;
    expect(header.heap_len as usize == compact.len(), "heap length", 36)?;
    let count = header.count as usize;
    expect(count <= compact.len() / CHILD_BYTES, "child count", 12)?;
    let prefix_len = fence_prefix(fences.lower, fences.upper);
    let (prefix, mut last) = fences.lower.split_at(prefix_len);
    let upper = fences.upper.map(|upper| &upper[prefix_len..]);
    let children_at = compact_at + (count - 1) * SLOT_BYTES;
    let heap_at = children_at + count * CHILD_BYTES;
    // Where a separator has its child's LSN on disk, and one byte for its length, it has the prefix here, and two.
    let separators = compact.len() - count * CHILD_BYTES + (count - 1) * (prefix_len + 1);
    let mut wide = Vec::with_capacity((heap_at + separators).min(WIDENED_BYTES_MAX));
    wide.extend_from_slice(&body[..compact_at]);
    wide[1] = WIDE_VERSION;
    wide.resize(heap_at, 0);
    let mut reader = Reader::new(compact);
    let shifted = |error| shift(error, compact_at);
    for index in 0..count {
        if index > 0 {
            let separator_at = compact_at + reader.position();
            let tail = reader.prefixed(KEY_BYTES_MAX - prefix_len, "separator").map_err(shifted)?;
            let is_between = tail > last && upper.is_none_or(|upper| tail < upper);
            expect(is_between && wide.len() <= WIDENED_BYTES_MAX, "order of separators", separator_at)?;
            let element = search::element(0, len_u32(wide.len() - heap_at));
            wide[compact_at + (index - 1) * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&element);
            wide.put_u16(len_u16(prefix_len + tail.len()));
            wide.put_bytes(prefix);
            wide.put_bytes(tail);
            last = tail;
        }
        let child_at = compact_at + reader.position();
        let lsn = reader.u64("child").map_err(shifted)?;
        expect(lsn != 0, "child", child_at)?;
        wide[children_at + index * CHILD_BYTES..][..CHILD_BYTES].copy_from_slice(&lsn.to_le_bytes());
    }
    reader.finish("heap length").map_err(shifted)?;
    let heap_len = wide.len() - heap_at;
    format::set_lengths(&mut wide, count, heap_len);
    Ok(wide)
}

#[inline]
fn checked_separator(heap: &[u8], offset: usize) -> Option<&[u8]> {
    let len = usize::from(u16::from_le_bytes(*heap.get(offset..)?.first_chunk::<2>()?));
    heap.get(offset + 2..offset + 2 + len)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(lower: &[u8], upper: Option<&[u8]>, separators: &[Vec<u8>]) -> Inner {
        let residency = Arc::new(Residency::new(TableId(1), None));
        let child = |lower: &[u8]| Child {
            lower: lower.into(),
            slot: Arc::new(Slot::on_disk(Lsn(8), &residency)),
            may_be_small: false,
        };
        let children: Vec<Child> =
            std::iter::once(lower).chain(separators.iter().map(Vec::as_slice)).map(child).collect();
        Inner::build(TableId(1), Fences { lower, upper, level: Some(1) }, 1, &children)
    }

    /// A text of a few bytes, the least and the greatest among them.
    fn text(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(b'a'), Just(b'b'), Just(255)];
        proptest::collection::vec(byte, len)
    }

    proptest! {
        /// Separators share more bytes than the fences do, or fewer than a head has; keys may have none of these, or end within them.
        #[test]
        fn finds_the_child_of_each_key(
            fenced in text(0..7),
            shared in text(0..7),
            tails in prop_oneof![
                proptest::collection::btree_set(text(1..8), 1..4),
                proptest::collection::btree_set(text(4..8), 700..1200),
            ],
            probes in proptest::collection::vec(text(0..15), 40),
            has_fences in any::<bool>(),
        ) {
            let separators: Vec<Vec<u8>> = tails.iter().map(|tail| [&fenced[..], &shared, tail].concat()).collect();
            let upper = [&fenced[..], &[255; 24]].concat();
            let inner = match has_fences {
                true => node(&fenced, Some(&upper), &separators),
                false => node(b"", None, &separators),
            };
            let after = |before: &[u8]| probes.iter().map(|probe| [before, probe].concat()).collect::<Vec<_>>();
            // A node with fences is searched for keys between them, and for the upper one.
            let mut keys = [after(&fenced), after(&[&fenced[..], &shared].concat()), separators.clone(), vec![upper]].concat();
            if !has_fences {
                keys.extend(after(b""));
            }
            for key in keys {
                inner.prefetch_search(&key);
                let index = separators.partition_point(|separator| *separator <= key);
                prop_assert_eq!(inner.child_index(&key), index);
                let before = separators.partition_point(|separator| *separator < key);
                prop_assert_eq!(inner.child_index_before(&key), before);
            }
        }
    }
}
