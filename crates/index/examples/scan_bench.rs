//! Prints the cost of a table's merging cursor for each row of a scan over a base that costs next to nothing:
//! `cargo run --release -p fulgurite-index --example scan_bench`.

use std::sync::Arc;
use std::time::Instant;

use fulgurite_index::memtables::{BlockBuilder, BlockOp};
use fulgurite_index::table::{ReadPoint, Table, TableOptions};
use fulgurite_index::{
    Base, BaseCursor, IndexError, Io, MergeSource, OutOfLine, Owner, Pinned, PruneRules, Version,
    VersionFlags, VersionRef, WriteOut, WriteOutReport,
};
use fulgurite_types::{Csn, KeySpan, Lsn, TableId, hash_key};

const ROWS: u64 = 4_000_000;

/// The keys `0, 2, 4, ..`, big-endian, each its own value.
struct Numbers(Arc<Vec<[u8; 8]>>);

struct NumberCursor {
    keys: Arc<Vec<[u8; 8]>>,
    index: usize,
}

impl NumberCursor {
    fn pin(&self) -> Pinned {
        // SAFETY: the vector is never changed, and the owner keeps it.
        unsafe { Pinned::new(|| Owner::Shared(self.keys.clone()), &self.keys[self.index]) }
    }
}

impl BaseCursor for NumberCursor {
    fn seek(&mut self, start: &[u8]) -> Result<(), IndexError> {
        self.index = self.keys.partition_point(|k| &k[..] < start);
        Ok(())
    }
    fn seek_back(&mut self, _end: Option<&[u8]>) -> Result<(), IndexError> {
        self.index = usize::MAX;
        Ok(())
    }
    fn next(&mut self) -> Result<(), IndexError> {
        self.index += 1;
        Ok(())
    }
    fn prev(&mut self) -> Result<(), IndexError> {
        self.index = self.index.wrapping_sub(1);
        Ok(())
    }
    fn key(&self) -> Option<&[u8]> {
        self.keys.get(self.index).map(|key| &key[..])
    }
    fn pinned_key(&self) -> Pinned {
        self.pin()
    }
    fn version(&self) -> VersionRef<'_> {
        VersionRef { csn: Csn(1), flags: VersionFlags(0), expires_at_ms: 0, payload: &self.keys[self.index] }
    }
    fn pinned_payload(&self) -> Pinned {
        self.pin()
    }
}

impl Base for Numbers {
    type Cursor = NumberCursor;

    fn get(&self, _key: &[u8], _at: Csn, _io: Io) -> Result<Option<Version>, IndexError> {
        Ok(None)
    }
    fn newest_csn(&self, _key: &[u8], _io: Io) -> Result<Option<Csn>, IndexError> {
        Ok(None)
    }
    fn any_newer_in_range(&self, _range: KeySpan<&[u8]>, _than: Csn, _io: Io) -> Result<bool, IndexError> {
        Ok(false)
    }
    fn cursor(&self, _at: Csn) -> NumberCursor {
        NumberCursor { keys: self.0.clone(), index: usize::MAX }
    }
    fn merge_some(&self, _: &mut dyn MergeSource, _: &PruneRules, _: usize) -> Result<(), IndexError> {
        Ok(())
    }
    fn purge_some(&self, _: KeySpan<&[u8]>, _: &PruneRules, _: usize) -> Result<Option<Vec<u8>>, IndexError> {
        Ok(None)
    }
    fn finish_write_out(&self, _: WriteOut) -> Result<WriteOutReport, IndexError> {
        Ok(WriteOutReport::default())
    }
    fn dirty_bytes(&self) -> u64 {
        0
    }

    fn evict(&self, _resident_bytes_max: usize) -> usize {
        0
    }
    fn find_extent(&self, _key: &[u8], _lsn: Lsn) -> Result<Option<(Csn, OutOfLine)>, IndexError> {
        Ok(None)
    }
    fn relocate(&self, _key: &[u8], _csn: Csn, _from: Lsn, _to: Lsn) -> Result<bool, IndexError> {
        Ok(false)
    }
    fn len_estimate(&self) -> u64 {
        self.0.len() as u64
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn scan(table: &Arc<Table<Numbers>>, what: &str) {
    let mut cursor = table.cursor(ReadPoint { csn: Csn(2), now_ms: 1 });
    let start = Instant::now();
    let (mut rows, mut bytes) = (0u64, 0);
    cursor.seek(&[]).expect("the base does not fail");
    while cursor.key().is_some() {
        rows += 1;
        bytes += cursor.version().payload.len();
        cursor.next().expect("the base does not fail");
    }
    let ns = start.elapsed().as_nanos() as f64 / rows as f64;
    println!("{what:<40} {ns:>6.1} ns/row, {rows} rows, {bytes} bytes");
}

/// Over a table's memtables alone, both ways.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn scan_memtables(memtables: u64, rows: u64) {
    let keys = Arc::new(Vec::new());
    let table = Arc::new(Table::new(TableId(1), Numbers(keys), TableOptions { inline_max: 1024 }));
    for memtable in 0..memtables {
        for first in (memtable..rows).step_by(100 * memtables as usize) {
            let mut builder = BlockBuilder::new(TableId(1), 100, 1_600);
            for i in 0..100 {
                let key = (first + i * memtables).to_be_bytes();
                builder.push(BlockOp {
                    key: &key,
                    hash: hash_key(TableId(1), &key),
                    flags: VersionFlags(0),
                    expires_at_ms: 0,
                    payload: &key,
                    value_offset: None,
                    checksum: 0,
                });
            }
            table.apply(builder.finish(), Csn(memtable + 1), Lsn::NULL);
        }
        table.freeze(Csn(memtable + 1));
    }
    let at = ReadPoint { csn: Csn(memtables), now_ms: 1 };
    let report = |what: &str, start: Instant, rows: u64| {
        let ns = start.elapsed().as_nanos() as f64 / rows as f64;
        println!("{memtables} memtables, {what:<24} {ns:>6.1} ns/row, {rows} rows");
    };
    let mut cursor = table.cursor(at);
    for _ in 0..3 {
        let (start, mut seen) = (Instant::now(), 0);
        cursor.seek(&[]).expect("the base does not fail");
        while cursor.key().is_some() {
            seen += 1;
            cursor.next().expect("the base does not fail");
        }
        report("forward", start, seen);
    }
    let (start, mut seen) = (Instant::now(), 0);
    cursor.seek_back(None).expect("the base does not fail");
    while cursor.key().is_some() {
        seen += 1;
        cursor.prev().expect("the base does not fail");
    }
    report("backward", start, seen);
    let (start, short) = (Instant::now(), 200_000);
    for i in 0..short {
        let mut cursor = table.cursor(at);
        let key = (i * 7919 % rows).to_be_bytes();
        cursor.seek(&key).expect("the base does not fail");
        for _ in 0..10 {
            cursor.next().expect("the base does not fail");
        }
    }
    report("10 rows and a new cursor", start, short * 10);
}

fn main() {
    let keys = (0..ROWS).map(|i| (2 * i).to_be_bytes()).collect();
    let table = Arc::new(Table::new(TableId(1), Numbers(Arc::new(keys)), TableOptions { inline_max: 1024 }));
    scan(&table, "empty memtables");
    let mut builder = BlockBuilder::new(TableId(1), 40_000, 640_000);
    for i in 0..ROWS / 100 {
        let key = (200 * i + 1).to_be_bytes();
        builder.push(BlockOp {
            key: &key,
            hash: hash_key(TableId(1), &key),
            flags: VersionFlags(0),
            expires_at_ms: 0,
            payload: &key,
            value_offset: None,
            checksum: 0,
        });
    }
    table.apply(builder.finish(), Csn(2), Lsn::NULL);
    scan(&table, "one row in 100 from the memtables");
    table.apply_range_delete(KeySpan::from(b"\xff"), Csn(3), &Default::default());
    scan(&table, "and a range delete elsewhere");
    scan_memtables(1, 400_000);
    scan_memtables(4, 400_000);
}
