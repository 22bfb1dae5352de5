//! Inner nodes: separators, and the children between them. In memory an inner node is the body of its record, with
//! [`Slot`]s instead of the children's LSNs; it never changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_types::{Csn, DecodeError, Lsn, TableId, Writer};

use super::format::{self, Fences, HEADER_BYTES, Header, SLOT_BYTES, expect, fence_prefix, len_u16, len_u32};
use super::leaf_check::check_length;
use super::search::{self, SlotBytes};
use crate::NodeKind;
use crate::btree::slot::{Residency, Slot};
use crate::memory::{COUNTS_BYTES, Charge, IndexMemory};

/// Bytes of a child's LSN.
const CHILD_BYTES: usize = 8;

/// Bytes of the time when a purge of a child is due.
const DUE_BYTES: usize = 4;

/// A resident inner node.
pub(crate) struct Inner {
    body: Box<[u8]>,
    level: u8,
    slots_at: usize,
    heap_at: usize,
    prefix_len: usize,
    /// Bytes that its record has after the body: the dues of the children, as of the record that it was loaded from.
    dues_len: usize,
    children: Box<[Arc<Slot>]>,
    charge: Option<Charge>,
    has_left: AtomicBool,
}

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
            body.put_bytes(&search::element(search::head(&child.lower, prefix_len), offset));
            offset += len_u32(2 + child.lower.len());
        }
        body.resize(heap_at, 0);
        for child in &children[1..] {
            body.put_u16(len_u16(child.lower.len()));
            body.put_bytes(&child.lower);
        }
        let children = children.iter().map(|child| Arc::clone(&child.slot)).collect();
        Inner {
            body: body.into_boxed_slice(),
            level,
            slots_at,
            heap_at,
            prefix_len,
            dues_len: 0,
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
        let count = header.count as usize;
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
        let heap_at = check_length(&bytes, &header, slots_at, count - 1 + count)?;
        let children_at = heap_at - count * CHILD_BYTES;
        let slots = search::slots(&bytes, slots_at, count - 1);
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
        let mut children = Vec::with_capacity(count);
        for (index, lsn) in bytes[children_at..heap_at].as_chunks::<CHILD_BYTES>().0.iter().enumerate() {
            let lsn = Lsn(u64::from_le_bytes(*lsn));
            expect(!lsn.is_null(), "child", children_at + index * CHILD_BYTES)?;
            children.push(Arc::new(Slot::on_disk(lsn, residency)));
        }
        for (child, due) in children.iter().zip(dues.as_chunks::<DUE_BYTES>().0) {
            child.set_due(u32::from_le_bytes(*due));
        }
        let (level, entries) = (header.level, header.extra);
        let (body, children) = (bytes.into_boxed_slice(), children.into_boxed_slice());
        let charge = None;
        let has_left = AtomicBool::new(false);
        let dues_len = dues.len();
        let inner =
            Inner { body, level, slots_at, heap_at, prefix_len, dues_len, children, charge, has_left };
        Ok((inner, entries))
    }

    /// The node leaves its slot, or its slot the tree.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::SeqCst);
    }

    /// Whether the node has left the tree: readers that kept it may still use the children that are in memory.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::SeqCst)
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
        let mut body = self.body.to_vec();
        body[24..32].copy_from_slice(&entries.to_le_bytes());
        let children_at = self.heap_at - self.children.len() * CHILD_BYTES;
        let named = body[children_at..self.heap_at].as_chunks_mut::<CHILD_BYTES>().0;
        for (bytes, lsn) in named.iter_mut().zip(lsns) {
            assert!(!lsn.is_null(), "children are written before their parents");
            *bytes = lsn.0.to_le_bytes();
        }
        if dues.iter().any(|due| *due != 0) {
            assert_eq!(dues.len(), self.children.len(), "each child has a due time, or none");
            format::set_dues(&mut body, true);
            dues.iter().for_each(|due| body.put_u32(*due));
        }
        body
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Bytes of the body of this node's record, but for the dues.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// Bytes of the body of the record that the node was loaded from.
    pub(crate) fn loaded_len(&self) -> usize {
        self.body.len() + self.dues_len
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
        search::slots(&self.body, self.slots_at, self.children.len() - 1)
    }

    #[inline]
    fn separator_at(&self, offset: usize) -> &[u8] {
        checked_separator(&self.body[self.heap_at..], offset).expect("separators were validated")
    }

    /// The index of the child whose range contains `key`.
    #[inline]
    pub(crate) fn child_index(&self, key: &[u8]) -> usize {
        search::count_below(self.slots(), search::head(key, self.prefix_len), |offset| {
            self.separator_at(offset) <= key
        })
    }

    /// The index of the last child that may have keys below `end`; 0 if none may.
    pub(crate) fn child_index_before(&self, end: &[u8]) -> usize {
        search::count_below(self.slots(), search::head(end, self.prefix_len), |offset| {
            self.separator_at(offset) < end
        })
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

#[inline]
fn checked_separator(heap: &[u8], offset: usize) -> Option<&[u8]> {
    let len = usize::from(u16::from_le_bytes(*heap.get(offset..)?.first_chunk::<2>()?));
    heap.get(offset + 2..offset + 2 + len)
}
