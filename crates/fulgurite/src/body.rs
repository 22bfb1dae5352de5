//! The body of a commit's frame: its operations, the same bytes on every replica. Grammar in `docs/format/frame.md`.

use fulgurite_log::SpillId;
use fulgurite_types::{DecodeError, Reader, TableId, Writer, limits, varint_len};

/// The frame's body is the operations themselves.
pub(crate) const KIND_COMMIT: u8 = 1;
/// The frame's body says in which chunks the operations are.
pub(crate) const KIND_COMMIT_IN_CHUNKS: u8 = 2;

const OP_PUT: u8 = 1;
const OP_PUT_EXPIRING: u8 = 2;
const OP_DELETE: u8 = 3;
const OP_DELETE_RANGE: u8 = 4;
const OP_PUT_IN_CHUNKS: u8 = 5;

/// A value, or an operation list, that was written ahead in chunks. All but the last have [`limits::CHUNK_BYTES_MAX`]
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunksRef {
    pub spill: SpillId,
    /// The ordinal of the first chunk; the others follow.
    pub ordinal: u32,
    pub len: u64,
    /// For a value the partial checksum over table, key and bytes; for operations the CRC-32C of the bytes.
    pub checksum: u32,
}

impl ChunksRef {
    /// How many chunks there are.
    pub fn count(&self) -> u32 {
        self.len.div_ceil(limits::CHUNK_BYTES_MAX as u64) as u32
    }

    /// The length of chunk `index`, counted from 0.
    pub fn chunk_len(&self, index: u32) -> u32 {
        let before = u64::from(index) * limits::CHUNK_BYTES_MAX as u64;
        (self.len - before).min(limits::CHUNK_BYTES_MAX as u64) as u32
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.spill.encode(out);
        out.put_varint(u64::from(self.ordinal));
        out.put_varint(self.len);
        out.put_u32(self.checksum);
    }

    /// `len_max` is [`limits::VALUE_BYTES_MAX`] for a value and [`limits::OPERATIONS_BYTES_MAX`] for an operation list:
    /// `check_value` and [`check_operations`] check them before anything is written.
    fn decode(reader: &mut Reader<'_>, len_max: usize) -> Result<ChunksRef, DecodeError> {
        let spill = SpillId::decode(reader)?;
        let ordinal =
            u32::try_from(reader.varint("chunk ordinal")?).map_err(|_| reader.error("chunk ordinal"))?;
        let len = reader.varint("length in chunks")?;
        if len > len_max as u64 {
            return Err(reader.error("length in chunks"));
        }
        let chunks = ChunksRef { spill, ordinal, len, checksum: reader.u32("checksum of chunks")? };
        let end = ordinal.checked_add(chunks.count());
        if end.is_none_or(|end| end > limits::LISTS_ORDINAL_MIN) {
            return Err(reader.error("chunk ordinal"));
        }
        Ok(chunks)
    }
}

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    Put { key: &'a [u8], value: &'a [u8], expires_at_ms: u64 },
    PutInChunks { key: &'a [u8], expires_at_ms: u64, chunks: ChunksRef },
    Delete { key: &'a [u8] },
    DeleteRange { start: &'a [u8], end: Option<&'a [u8]> },
}

/// Appends an operation. For a `Put` the value's bytes are the last ones appended.
pub(crate) fn encode_op(table: TableId, op: &Op<'_>, out: &mut Vec<u8>) {
    let mut head = |kind: u8, key: &[u8]| {
        out.put_u8(kind);
        out.put_varint(u64::from(table.0));
        out.put_prefixed(key);
    };
    match op {
        Op::Put { key, value, expires_at_ms: 0 } => {
            head(OP_PUT, key);
            out.put_prefixed(value);
        }
        Op::Put { key, value, expires_at_ms } => {
            head(OP_PUT_EXPIRING, key);
            out.put_varint(*expires_at_ms);
            out.put_prefixed(value);
        }
        Op::PutInChunks { key, expires_at_ms, chunks } => {
            head(OP_PUT_IN_CHUNKS, key);
            out.put_varint(*expires_at_ms);
            chunks.encode(out);
        }
        Op::Delete { key } => head(OP_DELETE, key),
        Op::DeleteRange { start, end } => {
            head(OP_DELETE_RANGE, start);
            out.put_u8(u8::from(end.is_some()));
            out.put_prefixed(end.unwrap_or_default());
        }
    }
}

/// An upper bound of the bytes that [`encode_op`] appends for a key and an inline value.
pub(crate) fn op_bytes_max(key: usize, value: usize) -> usize {
    1 + 5 + varint_len(key as u64) + key + 10 + varint_len(value as u64) + value
}

/// An upper bound of the bytes that [`encode_op`] appends for a key whose value is, or may yet be, in chunks.
pub(crate) fn chunks_op_bytes_max(key: usize) -> usize {
    op_bytes_max(key, CHUNKS_REF_BYTES_MAX)
}

/// An upper bound of what [`ChunksRef::encode`] appends.
const CHUNKS_REF_BYTES_MAX: usize = SpillId::BYTES + 5 + 10 + 4;

/// Fails for an operation list of so many bytes that [`decode_chunks_body`] would refuse it.
pub(crate) fn check_operations(bytes: usize) -> crate::Result<()> {
    let max = limits::OPERATIONS_BYTES_MAX;
    if bytes > max { Err(crate::Error::TooLarge { bytes, max }) } else { Ok(()) }
}

/// Reads the operations of a body, front to back.
pub(crate) struct Ops<'a> {
    reader: Reader<'a>,
}

impl<'a> Ops<'a> {
    pub fn new(body: &'a [u8]) -> Ops<'a> {
        Ops { reader: Reader::new(body) }
    }

    /// The next operation, its table, and the offset in the body just after it.
    pub fn next(&mut self) -> Result<Option<(TableId, Op<'a>, usize)>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let reader = &mut self.reader;
        let kind = reader.u8("operation kind")?;
        let table = TableId(u32::try_from(reader.varint("table")?).map_err(|_| reader.error("table"))?);
        let key = reader.prefixed(limits::KEY_BYTES_MAX, "key")?;
        let op = match kind {
            OP_PUT => {
                Op::Put { key, value: reader.prefixed(limits::VALUE_BYTES_MAX, "value")?, expires_at_ms: 0 }
            }
            OP_PUT_EXPIRING => {
                let expires_at_ms = reader.varint("expiry")?;
                Op::Put { key, value: reader.prefixed(limits::VALUE_BYTES_MAX, "value")?, expires_at_ms }
            }
            OP_DELETE => Op::Delete { key },
            OP_DELETE_RANGE => {
                let bounded = reader.u8("whether the range ends")? != 0;
                let end = reader.prefixed(limits::KEY_BYTES_MAX, "end of range")?;
                Op::DeleteRange { start: key, end: bounded.then_some(end) }
            }
            OP_PUT_IN_CHUNKS => {
                let expires_at_ms = reader.varint("expiry")?;
                let chunks = ChunksRef::decode(reader, limits::VALUE_BYTES_MAX)?;
                Op::PutInChunks { key, expires_at_ms, chunks }
            }
            _ => return Err(reader.error("operation kind")),
        };
        Ok(Some((table, op, reader.position())))
    }
}

/// The body of a [`KIND_COMMIT_IN_CHUNKS`] frame.
pub(crate) fn encode_chunks_body(chunks: &ChunksRef) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    chunks.encode(&mut out);
    out
}

/// The mirror of [`encode_chunks_body`].
pub(crate) fn decode_chunks_body(body: &[u8]) -> Result<ChunksRef, DecodeError> {
    let mut reader = Reader::new(body);
    let chunks = ChunksRef::decode(&mut reader, limits::OPERATIONS_BYTES_MAX)?;
    reader.finish("end of body")?;
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<(TableId, Op<'static>)> {
        let spill = SpillId { node: 0, epoch: fulgurite_types::Epoch(3), counter: 9 };
        vec![
            (TableId(7), Op::DeleteRange { start: b"a", end: Some(b"b") }),
            (TableId(7), Op::DeleteRange { start: b"x", end: None }),
            (TableId(7), Op::Put { key: b"", value: b"v", expires_at_ms: 0 }),
            (TableId(300), Op::Put { key: b"k", value: b"", expires_at_ms: 1_700_000_000_000 }),
            (TableId(300), Op::Delete { key: b"gone" }),
            (
                TableId(300),
                Op::PutInChunks {
                    key: b"big",
                    expires_at_ms: 0,
                    chunks: ChunksRef { spill, ordinal: 2, len: 1 << 20, checksum: 0xdead_beef },
                },
            ),
        ]
    }

    #[test]
    fn operations_come_back() {
        let mut body = Vec::new();
        for (table, op) in sample() {
            encode_op(table, &op, &mut body);
        }
        let mut ops = Ops::new(&body);
        for (table, op) in sample() {
            let (found_table, found, _) = ops.next().unwrap().unwrap();
            assert_eq!((found_table, found), (table, op));
        }
        assert!(ops.next().unwrap().is_none());
    }

    #[test]
    fn golden_bytes() {
        let mut body = Vec::new();
        for (table, op) in sample().into_iter().take(5) {
            encode_op(table, &op, &mut body);
        }
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "04070161010162040701780000010700017602ac02016b80d095ffbc310003ac0204676f6e65");
    }

    #[test]
    fn chunk_lengths_add_up() {
        let spill = SpillId { node: 0, epoch: fulgurite_types::Epoch(1), counter: 1 };
        let len = 2 * limits::CHUNK_BYTES_MAX as u64 + 5;
        let chunks = ChunksRef { spill, ordinal: 0, len, checksum: 0 };
        let total: u64 = (0..chunks.count()).map(|index| u64::from(chunks.chunk_len(index))).sum();
        assert_eq!((chunks.count(), total), (3, len));
    }

    /// Each limit of the decoder, at the limit and one above: a length that the encoder's check accepts decodes, one
    /// that it refuses does not. Tests lengths alone, because the bytes would be gigabytes.
    #[test]
    fn the_decoder_accepts_the_lengths_that_the_encoder_may_write_and_no_more() {
        let spill = SpillId { node: u32::MAX, epoch: fulgurite_types::Epoch(u32::MAX), counter: u64::MAX };
        let body =
            |len: usize| encode_chunks_body(&ChunksRef { spill, ordinal: 0, len: len as u64, checksum: 0 });
        for (len, is_fine) in
            [(limits::OPERATIONS_BYTES_MAX, true), (limits::OPERATIONS_BYTES_MAX + 1, false)]
        {
            assert_eq!(decode_chunks_body(&body(len)).is_ok(), is_fine, "an operation list of {len} bytes");
            assert_eq!(check_operations(len).is_ok(), is_fine, "an operation list of {len} bytes");
        }
        let put = |ordinal: u32, len: usize| {
            let chunks = ChunksRef { spill, ordinal, len: len as u64, checksum: 0 };
            let mut bytes = Vec::new();
            encode_op(
                TableId(u32::MAX),
                &Op::PutInChunks { key: b"k", expires_at_ms: u64::MAX, chunks },
                &mut bytes,
            );
            assert!(bytes.len() <= chunks_op_bytes_max(1));
            bytes
        };
        let is_fine = |bytes: &[u8]| Ops::new(bytes).next().is_ok();
        assert!(is_fine(&put(0, limits::VALUE_BYTES_MAX)));
        assert!(!is_fine(&put(0, limits::VALUE_BYTES_MAX + 1)));
        assert!(is_fine(&put(limits::LISTS_ORDINAL_MIN - 1, limits::CHUNK_BYTES_MAX)));
        assert!(!is_fine(&put(limits::LISTS_ORDINAL_MIN - 1, limits::CHUNK_BYTES_MAX + 1)));
        let keyed = |len: usize| {
            let mut bytes = Vec::new();
            encode_op(TableId(1), &Op::Delete { key: &vec![7; len] }, &mut bytes);
            bytes
        };
        assert!(is_fine(&keyed(limits::KEY_BYTES_MAX)));
        assert!(!is_fine(&keyed(limits::KEY_BYTES_MAX + 1)));
        let ranged = |len: usize| {
            let mut bytes = Vec::new();
            let end = vec![7; len];
            encode_op(TableId(1), &Op::DeleteRange { start: b"", end: Some(&end) }, &mut bytes);
            bytes
        };
        assert!(is_fine(&ranged(limits::KEY_BYTES_MAX)));
        assert!(!is_fine(&ranged(limits::KEY_BYTES_MAX + 1)));
    }

    proptest::proptest! {
        #[test]
        fn no_body_panics(bytes: Vec<u8>) {
            let mut ops = Ops::new(&bytes);
            while let Ok(Some(_)) = ops.next() {}
            let _ = decode_chunks_body(&bytes);
        }
    }
}
