//! Leaf delta records: the keys of a leaf that changed since its full record, each with all its current versions.

use fulgurite_types::{Csn, DecodeError, Lsn, TableId};

use super::compact::{self, CsnSpan};
use super::entry::{Entry, REMOVED, SAME_KEY, Stamped};
use super::format::{self, COMPACT_VERSION, Fences, Header, at, expect};
use super::leaf::{DeltaOrigin, Leaf, Origin};
use super::leaf_check::{Order, check_length, shift};
use super::leaf_writer::{Fill, LeafWriter};
use crate::NodeKind;
use crate::btree::account::{keys_iter, push_key};

/// The body of a new delta record, and how many entries it has.
pub(crate) struct EncodedDelta {
    pub body: Vec<u8>,
    pub entries: usize,
}

/// Encodes a delta record with the current versions of `keys`, which ascend.
pub(crate) fn encode(leaf: &Leaf, table: TableId, full: Lsn, ordinal: u8, keys: &[u8]) -> EncodedDelta {
    let groups = || keys_iter(keys).map(|key| (key, leaf.group(key)));
    let csns = CsnSpan::of(groups().flat_map(|(_, group)| group).map(|index| leaf.entry(index).csn));
    let header = Header {
        kind: NodeKind::LeafDelta,
        version: COMPACT_VERSION,
        level: 0,
        ordinal,
        bounded: false,
        has_dues: false,
        table,
        count: 0,
        max_csn: csns.newest,
        extra: full.0,
        lower_len: 0,
        upper_len: 0,
        heap_len: 0,
    };
    let mut count = 0;
    let body = compact::encode(header, &leaf.fences(), csns, 2 * keys.len(), |entries| {
        for (key, group) in groups() {
            count += group.len().max(1);
            if group.is_empty() {
                let gone = Stamped { flags: 0, csn: Csn::ZERO, expires_at_ms: 0, payload: &[] };
                entries.push(key, &gone, REMOVED);
            }
            for index in group.clone() {
                let mark = if index > group.start { SAME_KEY } else { 0 };
                entries.push(key, &leaf.entry(index).stamped(), mark);
            }
        }
    });
    EncodedDelta { body, entries: count }
}

/// A validated delta record.
pub(crate) struct LeafDelta {
    header: Header,
    /// Bytes of its body.
    len: usize,
    /// Its entries from `heap_at` on.
    bytes: Vec<u8>,
    heap_at: usize,
}

impl LeafDelta {
    /// Decodes the body of a delta record of the leaf with these fences.
    pub(crate) fn decode(
        bytes: Vec<u8>,
        table: TableId,
        fences: &Fences<'_>,
    ) -> Result<LeafDelta, DecodeError> {
        let (header, fences_end) = format::open(&bytes, NodeKind::LeafDelta, table, fences)?;
        expect(!header.full().is_null(), "full record", 24)?;
        let len = bytes.len();
        if header.is_compact() {
            let wide = compact::widen(&bytes, &header, fences_end, fences, 0)?;
            return LeafDelta::check(wide, len, fences_end, fences)
                .map_err(|error| compact::as_of_compact(error, &bytes, &header, fences_end, fences, 0));
        }
        LeafDelta::check(bytes, len, fences_end, fences)
    }

    /// The delta record of a body of version 1 whose entries start at `heap_at`; of one of `len` bytes as it is on disk.
    fn check(
        bytes: Vec<u8>,
        len: usize,
        heap_at: usize,
        fences: &Fences<'_>,
    ) -> Result<LeafDelta, DecodeError> {
        let header = Header::decode(&bytes)?;
        let heap_at = check_length(&bytes, &header, heap_at, 0)?;
        let heap = &bytes[heap_at..];
        let mut order = Order::new(fences);
        let (mut next, mut count) = (0, 0u32);
        while next < heap.len() {
            let (_, end) = order.next(heap, next, REMOVED).map_err(|error| shift(error, heap_at))?;
            next = end;
            count = count.checked_add(1).ok_or(at("entry count", 12))?;
        }
        expect(count == header.count, "entry count", 12)?;
        expect(order.max_csn == header.max_csn, "max csn", 16)?;
        Ok(LeafDelta { header, len, bytes, heap_at })
    }

    /// The full record that this delta record changes.
    pub(crate) fn full(&self) -> Lsn {
        self.header.full()
    }

    /// Its entries, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let heap = &self.bytes[self.heap_at..];
        let mut next = 0;
        std::iter::from_fn(move || {
            let (entry, end) = Entry::decode(heap, next).filter(|_| next < heap.len())?;
            next = end;
            Some(entry)
        })
    }

    /// The leaf that results from applying this delta record to `full`, whose record has a body of `full_len` bytes.
    pub(crate) fn apply(&self, full: &Leaf, full_len: usize, table: TableId) -> Leaf {
        let fences = full.fences();
        // The leaf was cut before it was written, so applying its delta record cuts nothing.
        let mut writer = LeafWriter::new(table, usize::MAX / 1024);
        writer.begin(fences.lower);
        writer.reserve(full.heap().len() + self.bytes.len(), full.count() + self.header.count as usize);
        let heap = &self.bytes[self.heap_at..];
        let mut keys = Vec::new();
        let mut versions = Vec::new();
        let (mut next, mut copied) = (0, 0);
        while next < heap.len() {
            let (first, mut end) = Entry::decode(heap, next).expect("entries were validated");
            versions.clear();
            if first.flags & REMOVED == 0 {
                versions.push(first.stamped());
            }
            while let Some((same, after)) = Entry::decode(heap, end).filter(|(same, _)| same.is_same_key()) {
                versions.push(same.stamped());
                end = after;
            }
            let group = full.group(first.key);
            writer.copy(full, copied..group.start);
            writer.push(first.key, &versions);
            push_key(&mut keys, first.key);
            (next, copied) = (end, group.end);
        }
        writer.copy(full, copied..full.count());
        let piece = writer.finish(fences.upper, Fill::Even).pop().expect("there is a leaf");
        piece.leaf.with_origin(Origin {
            full: self.full(),
            full_len,
            delta: Some(DeltaOrigin { len: self.len, ordinal: self.header.ordinal, keys }),
        })
    }
}
