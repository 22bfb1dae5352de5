//! What the bodies of the three node records have in common; the grammar is in `docs/format/node.md`.

use fulgurite_types::{Csn, DecodeError, Lsn, Reader, TableId, Writer};

use crate::NodeKind;

/// Bytes of the fixed header.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes of an element of a slot array.
pub(crate) const SLOT_BYTES: usize = 8;
/// The version of nodes in memory, and of records that were written until 2026-11-27: slots, and whole keys.
pub(crate) const WIDE_VERSION: u8 = 1;
/// The version of records since ([`super::compact`]).
pub(crate) const COMPACT_VERSION: u8 = 2;

/// Header flag: the node has an upper fence; without it the node has no upper bound.
const BOUNDED: u8 = 1;

/// Header flag of an inner node: after the heap it has a number for each child, when a purge below it is due.
const DUES: u8 = 2;

/// The first bytes of every node record's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: NodeKind,
    pub version: u8,
    pub level: u8,
    /// Of a leaf delta record: how many delta records of this full record came before it, plus one.
    pub ordinal: u8,
    pub bounded: bool,
    pub has_dues: bool,
    pub table: TableId,
    /// Entries of a leaf or a delta record, children of an inner node.
    pub count: u32,
    pub max_csn: Csn,
    /// Of a delta record: the full record that it changes. Of a root that is an inner node: about how many entries the
    /// tree has.
    pub extra: u64,
    pub lower_len: u16,
    pub upper_len: u16,
    pub heap_len: u32,
}

impl Header {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        out.put_u8(self.version);
        out.put_u8(self.level);
        let flags = if self.bounded { BOUNDED } else { 0 } | if self.has_dues { DUES } else { 0 };
        out.put_u8(flags);
        out.put_u8(0);
        out.put_u8(self.ordinal);
        out.put_u16(0);
        out.put_u32(self.table.0);
        out.put_u32(self.count);
        out.put_u64(self.max_csn.0);
        out.put_u64(self.extra);
        out.put_u16(self.lower_len);
        out.put_u16(self.upper_len);
        out.put_u32(self.heap_len);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = match reader.u8("kind")? {
            1 => NodeKind::Internal,
            2 => NodeKind::Leaf,
            3 => NodeKind::LeafDelta,
            _ => return Err(DecodeError { field: "kind", offset: 0 }),
        };
        let version = reader.u8("format version")?;
        expect([WIDE_VERSION, COMPACT_VERSION].contains(&version), "format version", 1)?;
        let level = reader.u8("level")?;
        expect((level == 0) == (kind != NodeKind::Internal), "level", 2)?;
        let flags = reader.u8("flags")?;
        let known = if kind == NodeKind::Internal { BOUNDED | DUES } else { BOUNDED };
        expect(flags & !known == 0, "flags", 3)?;
        expect(reader.u8("codec")? == 0, "codec", 4)?;
        let ordinal = reader.u8("ordinal")?;
        expect((ordinal != 0) == (kind == NodeKind::LeafDelta), "ordinal", 5)?;
        expect(reader.u16("reserved")? == 0, "reserved", 6)?;
        let header = Header {
            kind,
            version,
            level,
            ordinal,
            bounded: flags & BOUNDED != 0,
            has_dues: flags & DUES != 0,
            table: TableId(reader.u32("table")?),
            count: reader.u32("count")?,
            max_csn: Csn(reader.u64("max csn")?),
            extra: reader.u64("full record")?,
            lower_len: reader.u16("lower fence length")?,
            upper_len: reader.u16("upper fence length")?,
            heap_len: reader.u32("heap length")?,
        };
        expect(header.bounded || header.upper_len == 0, "upper fence length", 34)?;
        Ok(header)
    }

    /// Whether it is that of a record without slots, and with short numbers.
    pub(crate) fn is_compact(&self) -> bool {
        self.version == COMPACT_VERSION
    }

    /// The full record that a delta record changes.
    pub(crate) fn full(&self) -> Lsn {
        Lsn(self.extra)
    }
}

/// Fails with `field` unless `ok`.
pub(crate) fn expect(ok: bool, field: &'static str, offset: usize) -> Result<(), DecodeError> {
    if ok { Ok(()) } else { Err(DecodeError { field, offset }) }
}

/// A node's fences and level, as its parent knows them; the root's are fixed, but for the level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fences<'a> {
    pub lower: &'a [u8],
    pub upper: Option<&'a [u8]>,
    /// `None`: the root, whose level only its record knows.
    pub level: Option<u8>,
}

impl Fences<'_> {
    /// The root's fences.
    pub(crate) const ROOT: Fences<'static> = Fences { lower: &[], upper: None, level: None };

    /// Whether `key` is below the upper fence.
    pub(crate) fn admits(&self, key: &[u8]) -> bool {
        self.upper.is_none_or(|upper| key < upper)
    }
}

/// Notes in the body of an inner node's record whether the dues of its children follow.
pub(crate) fn set_dues(body: &mut [u8], has_dues: bool) {
    body[3] = body[3] & !DUES | if has_dues { DUES } else { 0 };
}

/// Notes in the body of a record how many entries it has, and the length of its heap.
pub(crate) fn set_lengths(body: &mut [u8], count: usize, heap_len: usize) {
    body[12..16].copy_from_slice(&len_u32(count).to_le_bytes());
    body[36..40].copy_from_slice(&len_u32(heap_len).to_le_bytes());
}

/// The fences of a body whose header is `header`, and where they end.
pub(crate) fn stored_fences<'a>(
    bytes: &'a [u8],
    header: &Header,
) -> Result<(Fences<'a>, usize), DecodeError> {
    let lower_end = HEADER_BYTES + usize::from(header.lower_len);
    let upper_end = lower_end + usize::from(header.upper_len);
    let lower = bytes.get(HEADER_BYTES..lower_end).ok_or(at("lower fence", HEADER_BYTES))?;
    let upper = bytes.get(lower_end..upper_end).ok_or(at("upper fence", lower_end))?;
    let upper = header.bounded.then_some(upper);
    expect(upper.is_none_or(|upper| lower < upper), "upper fence", lower_end)?;
    Ok((Fences { lower, upper, level: Some(header.level) }, upper_end))
}

/// The header of a record of the node with these fences and level, and where its fences end. Compares all that the
/// parent knows.
pub(crate) fn open(
    bytes: &[u8],
    kind: NodeKind,
    table: TableId,
    fences: &Fences<'_>,
) -> Result<(Header, usize), DecodeError> {
    let header = Header::decode(bytes)?;
    expect(header.kind == kind, "kind", 0)?;
    expect(fences.level.is_none_or(|level| level == header.level), "level", 2)?;
    expect(header.table == table, "table", 8)?;
    let (own, end) = stored_fences(bytes, &header)?;
    expect(own.lower == fences.lower, "lower fence", HEADER_BYTES)?;
    expect(own.upper == fences.upper, "upper fence", HEADER_BYTES + own.lower.len())?;
    Ok((header, end))
}

/// The error for a wrong `field` at `offset`.
pub(crate) fn at(field: &'static str, offset: usize) -> DecodeError {
    DecodeError { field, offset }
}

/// How many leading bytes two keys share.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// How many leading bytes every key between the fences has in common with them.
pub(crate) fn fence_prefix(lower: &[u8], upper: Option<&[u8]>) -> usize {
    upper.map_or(0, |upper| common_prefix(lower, upper))
}

/// The shortest key that is above `left` and not above `right`.
///
/// # Panics
/// Unless `left < right`.
pub(crate) fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    assert!(left < right, "keys must ascend");
    &right[..common_prefix(left, right) + 1]
}

/// A length that is stored in 16 bits.
pub(crate) fn len_u16(len: usize) -> u16 {
    u16::try_from(len).expect("keys have at most 65,535 bytes")
}

/// A length that is stored in 32 bits.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a node has less than 4 GiB")
}
