//! Decodes and validates leaf records: afterwards no read of the leaf can panic or go out of bounds, whatever the bytes
//! were.

use fulgurite_types::{Csn, DecodeError, TableId};

use super::compact;
use super::entry::{Entry, REMOVED, SAME_KEY, VERSION_FLAGS};
use super::format::{self, Fences, Header, SLOT_BYTES, at, expect, fence_prefix};
use super::leaf::Leaf;
use super::search;
use crate::{NodeKind, OutOfLine, VersionFlags};

impl Leaf {
    /// Decodes the body of the leaf with these fences.
    pub(crate) fn decode(bytes: Vec<u8>, table: TableId, fences: &Fences<'_>) -> Result<Leaf, DecodeError> {
        let (header, slots_at) = format::open(&bytes, NodeKind::Leaf, table, fences)?;
        expect(header.extra == 0, "full record", 24)?;
        if header.is_compact() {
            let wide = compact::widen(&bytes, &header, slots_at, fences, SLOT_BYTES)?;
            return Leaf::check(wide, slots_at, fences).map_err(|error| {
                compact::as_of_compact(error, &bytes, &header, slots_at, fences, SLOT_BYTES)
            });
        }
        Leaf::check(bytes, slots_at, fences)
    }

    /// The leaf of a body of version 1 whose fences end at `slots_at`, and are these.
    fn check(bytes: Vec<u8>, slots_at: usize, fences: &Fences<'_>) -> Result<Leaf, DecodeError> {
        let header = Header::decode(&bytes)?;
        let heap_at = check_length(&bytes, &header, slots_at, header.count as usize)?;
        let slots = search::slots(&bytes, slots_at, header.count as usize);
        let heap = &bytes[heap_at..];
        let prefix_len = fence_prefix(fences.lower, fences.upper);
        let mut order = Order::new(fences);
        let (mut next, mut flags) = (0, 0);
        for (index, slot) in slots.iter().enumerate() {
            let slot_at = slots_at + index * SLOT_BYTES;
            expect(search::offset_of(slot) == next, "entry offset", slot_at)?;
            let (entry, end) = order.next(heap, next, 0).map_err(|error| shift(error, heap_at))?;
            expect(search::head_of(slot) == search::head(entry.key, prefix_len), "key head", slot_at)?;
            flags |= entry.flags;
            next = end;
        }
        expect(next == heap.len(), "heap length", 36)?;
        expect(order.max_csn == header.max_csn, "max csn", 16)?;
        Ok(Leaf::from_valid(bytes, &header, slots_at, flags))
    }
}

/// Where the heap starts; fails unless the body is exactly header, fences, `slots` slots and heap.
pub(super) fn check_length(
    bytes: &[u8],
    header: &Header,
    slots_at: usize,
    slots: usize,
) -> Result<usize, DecodeError> {
    let heap_at = slots.checked_mul(SLOT_BYTES).and_then(|bytes| bytes.checked_add(slots_at));
    let heap_at = heap_at.ok_or(at("entry count", 12))?;
    let end = heap_at.checked_add(header.heap_len as usize);
    expect(end == Some(bytes.len()), "heap length", 36)?;
    Ok(heap_at)
}

/// Moves an error's offset from the heap to the body.
pub(super) fn shift(error: DecodeError, heap_at: usize) -> DecodeError {
    DecodeError { offset: error.offset + heap_at, ..error }
}

/// Checks entries one after the other: order, fences, and valid fields.
pub(super) struct Order<'a> {
    fences: Fences<'a>,
    last: Option<(&'a [u8], Csn, u8)>,
    pub(super) max_csn: Csn,
}

impl<'a> Order<'a> {
    pub(super) fn new(fences: &Fences<'a>) -> Order<'a> {
        Order { fences: *fences, last: None, max_csn: Csn::ZERO }
    }

    /// The entry at `offset`, and where it ends. Besides a version's flags, those in `allowed` may be set.
    pub(super) fn next(
        &mut self,
        heap: &'a [u8],
        offset: usize,
        allowed: u8,
    ) -> Result<(Entry<'a>, usize), DecodeError> {
        let (entry, end) = Entry::decode(heap, offset).ok_or(at("entry", offset))?;
        expect(entry.flags & !(VERSION_FLAGS | SAME_KEY | allowed) == 0, "entry flags", offset)?;
        match self.last {
            Some((key, csn, flags)) if entry.is_same_key() => {
                let versions = (flags | entry.flags) & REMOVED == 0;
                expect(versions && entry.key == key && entry.csn < csn, "order of versions", offset)?;
            }
            Some((key, ..)) => expect(entry.key > key, "order of keys", offset)?,
            None => expect(!entry.is_same_key(), "entry flags", offset)?,
        }
        expect(entry.key >= self.fences.lower && self.fences.admits(entry.key), "key", offset)?;
        if entry.flags & REMOVED != 0 {
            expect(entry.flags == REMOVED && entry.payload.is_empty(), "removed key", offset)?;
        }
        if entry.flags & VersionFlags::OUT_OF_LINE != 0 {
            expect(OutOfLine::decode(entry.payload).is_ok(), "value reference", offset)?;
        }
        self.last = Some((entry.key, entry.csn, entry.flags));
        self.max_csn = self.max_csn.max(entry.csn);
        Ok((entry, end))
    }
}
