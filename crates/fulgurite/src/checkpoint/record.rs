//! The record of a checkpoint: roots, range tombstones, accounts. Grammar in
//! `docs/format/checkpoint.md`.

use std::collections::BTreeMap;

use fulgurite_index::range_delete::RangeDelete;
use fulgurite_log::{BulkKind, Log};
use fulgurite_types::{Csn, DecodeError, KeySpan, Lsn, Reader, TableId, Writer, crc32c, limits};

use crate::error::OrError;
use crate::{Error, Result};

const VERSION: u8 = 1;

/// One table of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct TableRecord {
    pub root: Lsn,
    pub range_deletes: Vec<RangeDelete>,
    pub accounts: BTreeMap<u32, i64>,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct CheckpointRecord {
    pub covered: Csn,
    pub next_table_id: u32,
    pub tables: BTreeMap<TableId, TableRecord>,
}

impl CheckpointRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(VERSION);
        out.put_u64(self.covered.0);
        out.put_u32(self.next_table_id);
        out.put_varint(self.tables.len() as u64);
        for (id, table) in &self.tables {
            out.put_u32(id.0);
            out.put_u64(table.root.0);
            out.put_varint(table.range_deletes.len() as u64);
            for range in &table.range_deletes {
                out.put_prefixed(&range.keys.start);
                out.put_u8(u8::from(range.keys.end.is_some()));
                out.put_prefixed(range.keys.end.as_deref().unwrap_or_default());
                out.put_u64(range.csn.0);
            }
            out.put_varint(table.accounts.len() as u64);
            for (segment, bytes) in &table.accounts {
                out.put_u32(*segment);
                out.put_u64(u64::try_from(*bytes).expect("live bytes are never negative"));
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<CheckpointRecord, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("version")? != VERSION {
            return Err(reader.error("version"));
        }
        let covered = Csn(reader.u64("covered")?);
        let next_table_id = reader.u32("next table id")?;
        let mut tables = BTreeMap::new();
        for _ in 0..reader.varint("table count")? {
            let id = TableId(reader.u32("table id")?);
            let root = Lsn(reader.u64("root")?);
            let mut table = TableRecord { root, ..TableRecord::default() };
            for _ in 0..reader.varint("range delete count")? {
                let start = reader.prefixed(limits::KEY_BYTES_MAX, "start of range")?;
                let bounded = reader.u8("whether the range ends")? != 0;
                let end = reader.prefixed(limits::KEY_BYTES_MAX, "end of range")?;
                let csn = Csn(reader.u64("csn of range delete")?);
                table
                    .range_deletes
                    .push(RangeDelete { csn, keys: KeySpan::new(start, bounded.then_some(end)).owned() });
            }
            for _ in 0..reader.varint("account count")? {
                let segment = reader.u32("segment")?;
                let bytes =
                    i64::try_from(reader.u64("live bytes")?).map_err(|_| reader.error("live bytes"))?;
                table.accounts.insert(segment, bytes);
            }
            tables.insert(id, table);
        }
        reader.finish("end of checkpoint")?;
        Ok(CheckpointRecord { covered, next_table_id, tables })
    }

    /// Appends the record to the bulk stream: its chunks, then an index of them. Returns the index's LSN and the
    /// segments of the record. Durable after the stream was synced.
    pub fn write(&self, log: &Log) -> Result<(Lsn, Vec<u32>)> {
        let bytes = self.encode();
        let mut chunks = Vec::new();
        for chunk in bytes.chunks(limits::CHUNK_BYTES_MAX) {
            chunks.push(log.append_bulk(BulkKind::Checkpoint, &[chunk]).or_error()?);
        }
        let lsn = log.append_bulk(BulkKind::Checkpoint, &[&encode_index(&bytes, &chunks)]).or_error()?;
        let mut segments: Vec<u32> = chunks.iter().chain([&lsn]).map(|lsn| lsn.segment()).collect();
        segments.dedup();
        Ok((lsn, segments))
    }

    /// Reads the record whose index is at `lsn`; also returns its segments.
    pub fn read(log: &Log, lsn: Lsn) -> Result<(CheckpointRecord, Vec<u32>)> {
        let damaged_at = |what: String| Error::of_log(log.damage_at(lsn, what));
        let damaged = |error: DecodeError| damaged_at(format!("the checkpoint: {error}"));
        let index = read_chunk(log, lsn)?;
        let mut reader = Reader::new(&index);
        let crc = reader.u32("checksum").map_err(damaged)?;
        let mut bytes = Vec::new();
        let mut segments = Vec::new();
        while !reader.is_empty() {
            let chunk = Lsn(reader.u64("place of chunk").map_err(damaged)?);
            bytes.extend_from_slice(&read_chunk(log, chunk)?);
            segments.push(chunk.segment());
        }
        if crc32c(&bytes) != crc {
            return Err(damaged_at("the checkpoint fails its checksum".to_string()));
        }
        segments.push(lsn.segment());
        segments.dedup();
        Ok((CheckpointRecord::decode(&bytes).map_err(damaged)?, segments))
    }
}

/// The index of a record's chunks: the checksum of the record's bytes, and the LSN of each chunk.
fn encode_index(bytes: &[u8], chunks: &[Lsn]) -> Vec<u8> {
    let mut index = Vec::new();
    index.put_u32(crc32c(bytes));
    chunks.iter().for_each(|lsn| index.put_u64(lsn.0));
    index
}

fn read_chunk(log: &Log, lsn: Lsn) -> Result<Vec<u8>> {
    let record = log.read_bulk(lsn).or_error()?;
    if record.kind != BulkKind::Checkpoint {
        let what = format!("the record is a {:?}, not a checkpoint", record.kind);
        return Err(Error::of_log(log.damage_at(lsn, what)));
    }
    Ok(record.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> CheckpointRecord {
        let table = TableRecord {
            root: Lsn::new(3, 4096),
            range_deletes: vec![
                RangeDelete { csn: Csn(7), keys: KeySpan::new(&b"a"[..], Some(b"b")).owned() },
                RangeDelete { csn: Csn(8), keys: KeySpan::ALL.owned() },
            ],
            accounts: BTreeMap::from([(3, 100), (9, 1 << 40)]),
        };
        CheckpointRecord {
            covered: Csn(9),
            next_table_id: 4,
            tables: BTreeMap::from([(TableId(0), TableRecord::default()), (TableId(3), table)]),
        }
    }

    #[test]
    fn a_record_comes_back() {
        assert_eq!(CheckpointRecord::decode(&sample().encode()).unwrap(), sample());
    }

    #[test]
    fn golden_bytes() {
        let hex: String = sample().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0109000000000000000400000002000000000000000000000000000003000000001000000300000002016101016207000000000000\
             00000000080000000000000002030000006400000000000000090000000000000000010000"
        );
    }

    /// Of the index record: the checksum of the joined chunks, then their LSNs.
    #[test]
    fn golden_bytes_of_the_index() {
        let index = encode_index(&sample().encode(), &[Lsn::new(3, 4096), Lsn::new(4, 8192)]);
        let hex: String = index.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "19fc24f000100000030000000020000004000000");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = CheckpointRecord::decode(&bytes);
        }
    }
}
