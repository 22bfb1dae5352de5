//! Leaves and leaf delta records as they are on disk since version 2 of their format: an entry has neither the bytes that the fences
//! say already, nor the key of the version before, and short numbers. (Inner nodes: [`super::inner`].)
//!
//! ```text
//! heap  := span varint | entry*
//! entry := flags u8 | [tail length varint] | [payload length varint | step varint | [expiry u64]] | [tail] | payload
//! ```
//! CSNs are counted from the oldest of the record on, which is `span` below the newest: so a new version makes no other entry longer, and
//! what a leaf takes on disk grows by what is written to it at most (INV-SPACE-3).
//!
//! WiredTiger and RocksDB leave out what keys share, too, but from one key to the next; here each key stands by itself.

use fulgurite_types::limits::KEY_BYTES_MAX;
use fulgurite_types::{Csn, DecodeError, Reader, Writer, varint_len};

use super::entry::{self, REMOVED, SAME_KEY, Stamped};
use super::format::{
    self, COMPACT_VERSION, Fences, HEADER_BYTES, Header, WIDE_VERSION, at, expect, fence_prefix, len_u16,
    len_u32,
};
use super::leaf_check::shift;
use super::search;
use crate::VersionFlags;
use crate::memory::size_class;

/// Most entries have so many bytes before their key, or more.
const SHORT_BYTES: usize = 4;

/// A leaf is seldom longer than its record times this.
const WIDER_TIMES: usize = 8;

/// The longest node in memory. None that was written is close to it; a damaged record may say that its keys share much.
pub(crate) const WIDENED_BYTES_MAX: usize = 1 << 30;

/// Appends entries to the body of a record, or counts their bytes.
pub(super) struct Entries<B> {
    body: B,
    prefix_len: usize,
    oldest: Csn,
    count: usize,
}

/// Counts the bytes.
pub(super) struct ByteCount(usize);

impl Writer for ByteCount {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

impl<B: Writer> Entries<B> {
    /// Appends an entry; `mark` is [`SAME_KEY`], [`REMOVED`] or 0.
    pub(super) fn push(&mut self, key: &[u8], version: &Stamped<'_>, mark: u8) {
        self.count += 1;
        let tail = if mark & SAME_KEY != 0 { &[] } else { &key[self.prefix_len..] };
        let body = &mut self.body;
        body.put_u8(version.flags | mark);
        if mark & SAME_KEY == 0 {
            body.put_varint(tail.len() as u64);
        }
        if mark & REMOVED == 0 {
            body.put_varint(version.payload.len() as u64);
            body.put_varint(version.csn.0 - self.oldest.0);
            if version.flags & VersionFlags::EXPIRES != 0 {
                body.put_u64(version.expires_at_ms);
            }
        }
        body.put_bytes(tail);
        body.put_bytes(version.payload);
    }
}

/// The CSNs of the entries of a record.
#[derive(Clone, Copy)]
pub(super) struct CsnSpan {
    pub oldest: Csn,
    pub newest: Csn,
}

impl CsnSpan {
    /// Those of entries with these; (0, 0) if there are none.
    pub(super) fn of(csns: impl Iterator<Item = Csn>) -> CsnSpan {
        let spans = csns.map(|csn| CsnSpan { oldest: csn, newest: csn });
        let both = |a: CsnSpan, b: CsnSpan| CsnSpan {
            oldest: a.oldest.min(b.oldest),
            newest: a.newest.max(b.newest),
        };
        spans.reduce(both).unwrap_or(CsnSpan { oldest: Csn::ZERO, newest: Csn::ZERO })
    }
}

/// The body of a record of about so many bytes with this header, but for its version, the newest CSN, the count and the lengths, which
/// follow from the entries that `push` appends.
pub(super) fn encode(
    header: Header,
    fences: &Fences<'_>,
    csns: CsnSpan,
    about_bytes: usize,
    push: impl FnOnce(&mut Entries<Vec<u8>>),
) -> Vec<u8> {
    let upper = fences.upper.unwrap_or_default();
    let header = Header {
        version: COMPACT_VERSION,
        bounded: fences.upper.is_some(),
        max_csn: csns.newest,
        lower_len: len_u16(fences.lower.len()),
        upper_len: len_u16(upper.len()),
        ..header
    };
    let mut body = Vec::with_capacity(about_bytes);
    header.encode(&mut body);
    body.put_bytes(fences.lower);
    body.put_bytes(upper);
    let heap_at = body.len();
    body.put_varint(csns.newest.0 - csns.oldest.0);
    let prefix_len = fence_prefix(fences.lower, fences.upper);
    let mut entries = Entries { body, prefix_len, oldest: csns.oldest, count: 0 };
    push(&mut entries);
    let Entries { mut body, count, .. } = entries;
    let heap_len = body.len() - heap_at;
    format::set_lengths(&mut body, count, heap_len);
    body
}

/// How many bytes such a body has.
pub(super) fn encoded_len(
    fences: &Fences<'_>,
    csns: CsnSpan,
    push: impl FnOnce(&mut Entries<ByteCount>),
) -> usize {
    let fences_bytes = fences.lower.len() + fences.upper.unwrap_or_default().len();
    let before = HEADER_BYTES + fences_bytes + varint_len(csns.newest.0 - csns.oldest.0);
    let prefix_len = fence_prefix(fences.lower, fences.upper);
    let mut entries = Entries { body: ByteCount(before), prefix_len, oldest: csns.oldest, count: 0 };
    push(&mut entries);
    entries.body.0
}

/// The body of a record of version 1 with the same entries, and `slot_bytes` for a slot of each. The entries are not checked, but that
/// they are as many as the header says.
pub(super) fn widen(
    body: &[u8],
    header: &Header,
    fences_end: usize,
    fences: &Fences<'_>,
    slot_bytes: usize,
) -> Result<Vec<u8>, DecodeError> {
    let compact = &body[fences_end..];
    expect(header.heap_len as usize == compact.len(), "heap length", 36)?;
    // An entry has two bytes at least.
    let count = header.count as usize;
    expect(count <= compact.len() / 2, "entry count", 12)?;
    let prefix_len = fence_prefix(fences.lower, fences.upper);
    let heap_at = fences_end + count * slot_bytes;
    let about_bytes = heap_at + compact.len() + count * (prefix_len + entry::FIXED_BYTES - SHORT_BYTES);
    // A damaged record may say that it has many entries.
    let mut wide = Vec::with_capacity(size_class(about_bytes.min(heap_at + WIDER_TIMES * compact.len())));
    wide.extend_from_slice(&body[..fences_end]);
    wide[1] = WIDE_VERSION;
    wide.resize(heap_at, 0);
    let mut reader = Reader::new(compact);
    let oldest = oldest_csn(&mut reader, header).map_err(|error| shift(error, fences_end))?;
    let (mut index, mut key, mut found_oldest) = (0, 0..0, None::<Csn>);
    while !reader.is_empty() {
        let (entry_at, start) = (fences_end + reader.position(), wide.len());
        expect(index < count && start <= WIDENED_BYTES_MAX, "entry count", 12)?;
        let found = Compact::decode(&mut reader, oldest).map_err(|error| shift(error, fences_end))?;
        let key_len = found.tail.map_or(key.len(), |tail| prefix_len + tail.len());
        expect(key_len <= KEY_BYTES_MAX, "key length", entry_at)?;
        let Compact { flags, csn, expires_at_ms, payload, .. } = found;
        if flags & REMOVED == 0 {
            found_oldest = Some(found_oldest.map_or(csn, |oldest| oldest.min(csn)));
        }
        entry::encode_before_key(&mut wide, key_len, &Stamped { flags, csn, expires_at_ms, payload }, 0);
        let key_at = wide.len();
        match found.tail {
            Some(tail) => {
                wide.extend_from_slice(&fences.lower[..prefix_len]);
                wide.extend_from_slice(tail);
            }
            None => wide.extend_from_within(key),
        }
        key = key_at..wide.len();
        wide.extend_from_slice(payload);
        if slot_bytes > 0 {
            let head = search::head(&wide[key.clone()], prefix_len);
            let slot_at = fences_end + index * slot_bytes;
            wide[slot_at..][..slot_bytes].copy_from_slice(&search::element(head, len_u32(start - heap_at)));
        }
        index += 1;
    }
    expect(index == count, "entry count", 12)?;
    expect(found_oldest.unwrap_or(header.max_csn) == oldest, "csn span", fences_end)?;
    let heap_len = wide.len() - heap_at;
    format::set_lengths(&mut wide, count, heap_len);
    Ok(wide)
}

/// An error of the body that [`widen`] made, as one of the body that it was made from.
pub(super) fn as_of_compact(
    error: DecodeError,
    body: &[u8],
    header: &Header,
    fences_end: usize,
    fences: &Fences<'_>,
    slot_bytes: usize,
) -> DecodeError {
    let prefix_len = fence_prefix(fences.lower, fences.upper);
    let mut wide_at = fences_end + header.count as usize * slot_bytes;
    if error.offset < wide_at {
        return error;
    }
    let (mut reader, mut key_len) = (Reader::new(&body[fences_end..]), 0);
    let Ok(oldest) = oldest_csn(&mut reader, header) else { return error };
    loop {
        let offset = fences_end + reader.position();
        let Ok(found) = Compact::decode(&mut reader, oldest) else {
            return DecodeError { offset, ..error };
        };
        key_len = found.tail.map_or(key_len, |tail| prefix_len + tail.len());
        let expiry_bytes = if found.flags & VersionFlags::EXPIRES != 0 { 8 } else { 0 };
        wide_at += entry::FIXED_BYTES + expiry_bytes + key_len + found.payload.len();
        if error.offset < wide_at {
            return DecodeError { offset, ..error };
        }
    }
}

/// The oldest CSN that a record says it has.
fn oldest_csn(reader: &mut Reader<'_>, header: &Header) -> Result<Csn, DecodeError> {
    let start = reader.position();
    let span = reader.varint("csn span")?;
    Ok(Csn(header.max_csn.0.checked_sub(span).ok_or(at("csn span", start))?))
}

/// An entry of a record.
struct Compact<'a> {
    flags: u8,
    /// What its key has beyond the fences' common prefix; `None` if it has the key of the entry before.
    tail: Option<&'a [u8]>,
    csn: Csn,
    expires_at_ms: u64,
    payload: &'a [u8],
}

impl<'a> Compact<'a> {
    fn decode(reader: &mut Reader<'a>, oldest: Csn) -> Result<Compact<'a>, DecodeError> {
        let start = reader.position();
        let flags = reader.u8("entry flags")?;
        let tail_len = match flags & SAME_KEY {
            0 => Some(len(reader, KEY_BYTES_MAX, "key length")?),
            _ => None,
        };
        let mut found = Compact { flags, tail: None, csn: Csn::ZERO, expires_at_ms: 0, payload: &[] };
        let mut payload_len = 0;
        if flags & REMOVED == 0 {
            payload_len = len(reader, u32::MAX as usize, "payload length")?;
            let step = reader.varint("csn")?;
            found.csn = Csn(oldest.0.checked_add(step).ok_or(at("csn", start))?);
            if flags & VersionFlags::EXPIRES != 0 {
                found.expires_at_ms = reader.u64("expiry")?;
            }
        }
        found.tail = tail_len.map(|len| reader.bytes(len, "key")).transpose()?;
        found.payload = reader.bytes(payload_len, "payload")?;
        Ok(found)
    }
}

fn len(reader: &mut Reader<'_>, max: usize, field: &'static str) -> Result<usize, DecodeError> {
    let before = reader.clone();
    let len = reader.varint(field)?;
    usize::try_from(len).ok().filter(|len| *len <= max).ok_or(before.error(field))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fulgurite_types::{Lsn, TableId};
    use proptest::prelude::*;

    use super::*;
    use crate::btree::account::push_key;
    use crate::btree::node::delta::{self, LeafDelta};
    use crate::btree::node::leaf::Leaf;
    use crate::btree::node::leaf_writer::{Fill, LeafWriter};

    const TABLE: TableId = TableId(7);

    type Version = (u64, bool, Vec<u8>);

    /// Versions by CSN, of which some expire.
    type Versions = BTreeMap<u64, (bool, Vec<u8>)>;

    fn rows() -> impl Strategy<Value = BTreeMap<Vec<u8>, Versions>> {
        let tail = proptest::collection::vec(any::<u8>(), 0..20);
        let payload = proptest::collection::vec(any::<u8>(), 0..200);
        let versions = proptest::collection::btree_map(any::<u64>(), (any::<bool>(), payload), 1..4);
        proptest::collection::btree_map(tail, versions, 0..30)
    }

    fn leaf(rows: &BTreeMap<Vec<u8>, Vec<Version>>, fences: &Fences<'_>) -> Leaf {
        let mut writer = LeafWriter::new(TABLE, usize::MAX / 1024);
        writer.begin(fences.lower);
        for (key, versions) in rows {
            let mut stamped = Vec::new();
            for (csn, expires, payload) in versions {
                let (flags, expires_at_ms) = if *expires { (VersionFlags::EXPIRES, csn / 2) } else { (0, 0) };
                stamped.push(Stamped { flags, csn: Csn(*csn), expires_at_ms, payload });
            }
            writer.push(key, &stamped);
        }
        writer.finish(fences.upper, Fill::Even).pop().expect("there is a leaf").leaf
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_was_there(rows in rows(), prefix in "[a-c]{0,5}", is_bounded: bool) {
            let key = |tail: &[u8]| [prefix.as_bytes(), tail].concat();
            // All keys are between them.
            let upper = is_bounded.then(|| key(&[255; 21]));
            let fences = Fences { lower: &key(&[]), upper: upper.as_deref(), level: Some(0) };
            let newest_first = |versions: &Versions| {
                let versions = versions.iter().rev();
                versions.map(|(csn, (expires, payload))| (*csn, *expires, payload.clone())).collect()
            };
            let rows = rows.iter().map(|(tail, versions)| (key(tail), newest_first(versions))).collect();
            let leaf = leaf(&rows, &fences);
            let body = leaf.encode();
            prop_assert!(body.len() <= leaf.bytes().len() + 10, "a record is no longer than its leaf and a span");
            let again = Leaf::decode(body.clone(), TABLE, &fences).unwrap();
            prop_assert_eq!(again.bytes(), leaf.bytes());
            prop_assert_eq!(again.may_be_pruned(), leaf.may_be_pruned());

            // Every second key, and one that is gone.
            let mut keys = Vec::new();
            let gone = key(&[255; 20]);
            let chosen = rows.keys().step_by(2).filter(|key| **key < gone);
            chosen.chain([&gone]).for_each(|key| push_key(&mut keys, key));
            let delta = delta::encode(&leaf, TABLE, Lsn(64), 1, &keys).body;
            let delta_len = delta.len();
            let delta = LeafDelta::decode(delta, TABLE, &fences).unwrap();
            let applied = delta.apply(&leaf, body.len(), TABLE);
            prop_assert_eq!(applied.bytes(), leaf.bytes());
            let origin = applied.origin().expect("it has one");
            prop_assert_eq!(origin.full_len, body.len());
            prop_assert_eq!(origin.delta.as_ref().map(|delta| delta.len), Some(delta_len));

            // Cut short, or with another byte, it is refused or a leaf.
            for at in (0..body.len()).step_by(7) {
                prop_assert!(Leaf::decode(body[..at].to_vec(), TABLE, &fences).is_err());
                let mut damaged = body.clone();
                damaged[at] ^= 1 << (at % 8);
                if let Ok(leaf) = Leaf::decode(damaged, TABLE, &fences) {
                    prop_assert!(leaf.entries().count() == leaf.count());
                }
            }
        }
    }

    #[test]
    fn errors_name_the_field_and_its_byte_of_the_record() {
        let fences = Fences { lower: b"ka", upper: Some(b"kc"), level: Some(0) };
        let version = |csn| (csn, false, b"value".to_vec());
        let rows = [(b"ka".to_vec(), vec![version(3), version(2)]), (b"kb".to_vec(), vec![version(9)])];
        let body = leaf(&BTreeMap::from(rows), &fences).encode();
        let heap_at = HEADER_BYTES + 4;
        assert_eq!(body[heap_at..], *b"\x07\0\x01\x05\x01avalue\x80\x05\0value\0\x01\x05\x07bvalue");
        let refused = |at: usize, byte: u8| {
            let mut damaged = body.clone();
            damaged[heap_at + at] = byte;
            let error = Leaf::decode(damaged, TABLE, &fences).expect_err("it is damaged");
            (error.field, error.offset - heap_at)
        };
        assert_eq!(refused(1, 0x20), ("entry flags", 1), "there is no such flag");
        assert_eq!(refused(0, 10), ("csn span", 0), "it is below 0");
        assert_eq!(refused(4, 0), ("order of versions", 11));
        assert_eq!(refused(5, b'b'), ("order of keys", 19));
        assert_eq!(refused(5, b'c'), ("key", 1));
        let mut shorter = body.clone();
        shorter[12] = 2;
        assert_eq!(Leaf::decode(shorter, TABLE, &fences).unwrap_err().field, "entry count");
    }
}
