//! The record of a checkpoint: roots, range tombstones, accounts; of all tables, or of those that changed since a full
//! record. Grammar in `docs/format/checkpoint.md`.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_index::DATA_ACCOUNT;
use fulgurite_index::range_delete::RangeDelete;
use fulgurite_log::{BulkKind, Log, ReadBulk};
use fulgurite_types::{Csn, DecodeError, KeySpan, Lsn, Reader, TableId, Writer, crc32c, limits};

use crate::error::OrError;
use crate::{Error, Result};

/// The versions of a record.
const FULL: u8 = 1;
const INCREMENT: u8 = 2;

/// One table of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct TableRecord {
    pub root: Lsn,
    pub range_deletes: Vec<RangeDelete>,
    pub accounts: BTreeMap<u32, i64>,
    /// The bytes of its keys and their newest values; unknown in records from before these were counted.
    pub data_bytes: Option<u64>,
}

impl TableRecord {
    /// Whether it says nothing: then it is left out.
    pub fn is_empty(&self) -> bool {
        let TableRecord { root, range_deletes, accounts, data_bytes: _ } = self;
        root.is_null() && range_deletes.is_empty() && accounts.is_empty()
    }
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct CheckpointRecord {
    pub covered: Csn,
    pub next_table_id: u32,
    pub tables: BTreeMap<TableId, TableRecord>,
}

/// What changed since a full record.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Increment {
    /// The index of the full record on which it is based.
    pub base: Lsn,
    /// The bytes of the increments that were written on that base before.
    pub earlier_bytes: u64,
    /// The tables that changed; `covered` and `next_table_id` are those of now.
    pub changed: CheckpointRecord,
    /// The tables that are gone, or empty again.
    pub gone: BTreeSet<TableId>,
}

/// A record as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Full(CheckpointRecord),
    Increment(Increment),
}

impl Increment {
    /// The checkpoint, whose full record is `base`.
    fn apply_to(self, base: CheckpointRecord) -> CheckpointRecord {
        let Increment { changed, gone, .. } = self;
        let mut tables = base.tables;
        tables.retain(|id, _| !gone.contains(id));
        tables.extend(changed.tables);
        CheckpointRecord { tables, ..changed }
    }
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Record::Full(record) => {
                out.put_u8(FULL);
                encode_tables(record, &mut out);
            }
            Record::Increment(Increment { base, earlier_bytes, changed, gone }) => {
                out.put_u8(INCREMENT);
                out.put_u64(base.0);
                out.put_u64(*earlier_bytes);
                encode_tables(changed, &mut out);
                out.put_varint(gone.len() as u64);
                gone.iter().for_each(|id| out.put_u32(id.0));
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
        let mut reader = Reader::new(bytes);
        let record = match reader.u8("version")? {
            FULL => Record::Full(decode_tables(&mut reader)?),
            INCREMENT => {
                let base = Lsn(reader.u64("base")?);
                let earlier_bytes = reader.u64("bytes of earlier increments")?;
                let changed = decode_tables(&mut reader)?;
                let mut gone = BTreeSet::new();
                for _ in 0..reader.varint("count of tables that are gone")? {
                    gone.insert(TableId(reader.u32("table id")?));
                }
                Record::Increment(Increment { base, earlier_bytes, changed, gone })
            }
            _ => return Err(reader.error("version")),
        };
        reader.finish("end of checkpoint")?;
        Ok(record)
    }
}

fn encode_tables(record: &CheckpointRecord, out: &mut Vec<u8>) {
    out.put_u64(record.covered.0);
    out.put_u32(record.next_table_id);
    out.put_varint(record.tables.len() as u64);
    for (id, table) in &record.tables {
        out.put_u32(id.0);
        out.put_u64(table.root.0);
        out.put_varint(table.range_deletes.len() as u64);
        for range in &table.range_deletes {
            out.put_prefixed(&range.keys.start);
            out.put_u8(u8::from(range.keys.end.is_some()));
            out.put_prefixed(range.keys.end.as_deref().unwrap_or_default());
            out.put_u64(range.csn.0);
        }
        let data_bytes = table.data_bytes.map(|bytes| (DATA_ACCOUNT, bytes));
        out.put_varint((table.accounts.len() + data_bytes.iter().count()) as u64);
        for (segment, bytes) in &table.accounts {
            out.put_u32(*segment);
            out.put_u64(u64::try_from(*bytes).expect("live bytes are never negative"));
        }
        if let Some((account, bytes)) = data_bytes {
            out.put_u32(account);
            out.put_u64(bytes);
        }
    }
}

fn decode_tables(reader: &mut Reader<'_>) -> Result<CheckpointRecord, DecodeError> {
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
            let keys = KeySpan::new(start, bounded.then_some(end)).owned();
            table.range_deletes.push(RangeDelete { csn, keys });
        }
        for _ in 0..reader.varint("account count")? {
            let segment = reader.u32("segment")?;
            let bytes = i64::try_from(reader.u64("live bytes")?).map_err(|_| reader.error("live bytes"))?;
            if segment == DATA_ACCOUNT {
                table.data_bytes = Some(bytes as u64);
            } else {
                table.accounts.insert(segment, bytes);
            }
        }
        tables.insert(id, table);
    }
    Ok(CheckpointRecord { covered, next_table_id, tables })
}

/// Where a record is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Its index.
    pub lsn: Lsn,
    /// Its length, the index not counted.
    pub bytes: u64,
    /// Its segments.
    pub segments: Vec<u32>,
}

/// A checkpoint as it was read.
#[derive(Debug, Default)]
pub(crate) struct ReadRecord {
    pub record: CheckpointRecord,
    /// Its full record.
    pub base: Placed,
    /// The increment, if the checkpoint has one; `earlier_bytes` of it, and the tables that it names.
    pub increment: Option<(Placed, u64, BTreeSet<TableId>)>,
}

impl ReadRecord {
    /// The segments that hold any of it.
    pub fn segments(&self) -> Vec<u32> {
        let increment = self.increment.iter().flat_map(|(placed, ..)| &placed.segments);
        self.base.segments.iter().chain(increment).copied().collect()
    }
}

/// Appends an encoded record to the bulk stream: its chunks, then an index of them. Durable after the stream was synced.
pub(super) fn append(log: &Log, bytes: &[u8]) -> Result<Placed> {
    let mut chunks = Vec::new();
    for chunk in bytes.chunks(limits::CHUNK_BYTES_MAX) {
        chunks.push(log.append_bulk(BulkKind::Checkpoint, &[chunk]).or_error()?);
    }
    let lsn = log.append_bulk(BulkKind::Checkpoint, &[&encode_index(bytes, &chunks)]).or_error()?;
    let mut segments: Vec<u32> = chunks.iter().chain([&lsn]).map(|lsn| lsn.segment()).collect();
    segments.dedup();
    Ok(Placed { lsn, bytes: bytes.len() as u64, segments })
}

/// Reads the checkpoint whose index is at `lsn`: its record, and the one on which it is based.
pub(crate) fn read(log: &dyn ReadBulk, lsn: Lsn) -> Result<ReadRecord> {
    let (record, placed) = read_one(log, lsn)?;
    let increment = match record {
        Record::Full(record) => return Ok(ReadRecord { record, base: placed, increment: None }),
        Record::Increment(increment) => increment,
    };
    let (Record::Full(full), base) = read_one(log, increment.base)? else {
        let what = format!("the checkpoint is based on {}, which is no full record", increment.base);
        return Err(Error::of_log(log.damage_at(lsn, what)));
    };
    let named = increment.changed.tables.keys().chain(&increment.gone).copied().collect();
    let earlier_bytes = increment.earlier_bytes;
    let record = increment.apply_to(full);
    Ok(ReadRecord { record, base, increment: Some((placed, earlier_bytes, named)) })
}

fn read_one(log: &dyn ReadBulk, lsn: Lsn) -> Result<(Record, Placed)> {
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
    let placed = Placed { lsn, bytes: bytes.len() as u64, segments };
    Ok((Record::decode(&bytes).map_err(damaged)?, placed))
}

/// The index of a record's chunks: the checksum of the record's bytes, and the LSN of each chunk.
fn encode_index(bytes: &[u8], chunks: &[Lsn]) -> Vec<u8> {
    let mut index = Vec::new();
    index.put_u32(crc32c(bytes));
    chunks.iter().for_each(|lsn| index.put_u64(lsn.0));
    index
}

fn read_chunk(log: &dyn ReadBulk, lsn: Lsn) -> Result<Vec<u8>> {
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
            data_bytes: None,
        };
        CheckpointRecord {
            covered: Csn(9),
            next_table_id: 4,
            tables: BTreeMap::from([(TableId(0), TableRecord::default()), (TableId(3), table)]),
        }
    }

    fn full() -> Record {
        Record::Full(sample())
    }

    fn increment() -> Increment {
        let table = TableRecord { root: Lsn::new(9, 8192), ..TableRecord::default() };
        let changed = CheckpointRecord {
            covered: Csn(12),
            next_table_id: 6,
            tables: BTreeMap::from([(TableId(3), table)]),
        };
        let gone = BTreeSet::from([TableId(0), TableId(5)]);
        Increment { base: Lsn::new(5, 4096), earlier_bytes: 70, changed, gone }
    }

    #[test]
    fn a_record_comes_back() {
        for record in [full(), Record::Increment(increment())] {
            assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        }
    }

    #[test]
    fn an_increment_replaces_adds_and_removes_tables() {
        let mut base = sample();
        base.tables.insert(TableId(4), TableRecord { root: Lsn::new(1, 4096), ..TableRecord::default() });
        let record = increment().apply_to(base.clone());
        assert_eq!((record.covered, record.next_table_id), (Csn(12), 6));
        let roots: Vec<_> = record.tables.iter().map(|(id, table)| (id.0, table.root)).collect();
        assert_eq!(roots, [(3, Lsn::new(9, 8192)), (4, Lsn::new(1, 4096))]);
        assert_eq!(record.tables[&TableId(3)], increment().changed.tables[&TableId(3)]);
    }

    #[test]
    fn golden_bytes() {
        let hex: String = full().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0109000000000000000400000002000000000000000000000000000003000000001000000300000002016101016207000000000000\
             00000000080000000000000002030000006400000000000000090000000000000000010000"
        );
    }

    #[test]
    fn golden_bytes_of_an_increment() {
        let hex: String =
            Record::Increment(increment()).encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "02001000000500000046000000000000000c000000000000000600000001030000000020000009000000000002000000000\
             5000000"
        );
    }

    #[test]
    fn the_bytes_of_data_are_an_account() {
        let table = TableRecord { root: Lsn::new(2, 4096), data_bytes: Some(77), ..TableRecord::default() };
        let mut record = CheckpointRecord::default();
        record.tables.insert(TableId(1), table);
        let record = Record::Full(record);
        let bytes = record.encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "010000000000000000000000000101000000001000000200000000\
             01ffffffff4d00000000000000"
        );
        assert_eq!(Record::decode(&bytes).unwrap(), record);
    }

    /// Of the index record: the checksum of the joined chunks, then their LSNs.
    #[test]
    fn golden_bytes_of_the_index() {
        let index = encode_index(&full().encode(), &[Lsn::new(3, 4096), Lsn::new(4, 8192)]);
        let hex: String = index.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "19fc24f000100000030000000020000004000000");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, version: u8) {
            if let Some(first) = bytes.first_mut() {
                *first = version % 3;
            }
            let _ = Record::decode(&bytes);
        }
    }
}
