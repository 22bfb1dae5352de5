//! Values: from memory as they are, or from the log, where those outside the leaves are; and finding the damage in one.
//!
//! **INV-MOVE-2.** *A reader whose snapshot sees a version reads its value, wherever that was moved meanwhile.* A reader may
//! hold the extents of a version for long: in a leaf that its cursor keeps, in a version that it found before. Garbage
//! collection moves the value, and the segment is freed, maybe used again. Then the read fails: the segment is gone, or other
//! bytes are there, which the value's checksum does not fit. The reader then looks the version up again, the same key and
//! CSN, within a read from disk: the extents that it finds stay until that has ended (INV-READ-1). A snapshot keeps the versions that
//! it sees, so it is there; if its extents are the same, the value is damaged.

use std::sync::Arc;

use fulgurite_index::table::ReadPoint;
use fulgurite_index::{Extent, IndexMemory, Io, LoadFor, OutOfLine, Pinned, ValueBytes, Version, size_class};
use fulgurite_log::{Log, LogError};
use fulgurite_types::{Csn, DiskReads, TableId, hash_key, seal_checksum, value_checksum};

use crate::catalog::Catalog;
use crate::error::CsnRange;
use crate::value_cache::{Found, ValueCache};
use crate::write_set::{WriteOp, WriteValue};
use crate::{Damage, Error, Missing, Result, Value};

/// Where nodes are evicted, values of up to so many bytes are copied out of their leaf of 8 KiB.
const COPIED_BYTES_MAX: usize = 512;

/// Reads values, and names the table in which one is damaged.
pub(crate) struct Values {
    log: Arc<Log>,
    tables: Arc<Catalog>,
    disk_reads: Arc<DiskReads>,
    pub cache: Arc<ValueCache>,
}

impl Values {
    pub fn new(
        log: Arc<Log>,
        tables: Arc<Catalog>,
        disk_reads: Arc<DiskReads>,
        memory: Arc<IndexMemory>,
    ) -> Values {
        Values { log, tables, disk_reads, cache: Arc::new(ValueCache::new(memory)) }
    }

    /// The value of a version if it is in memory, or the version.
    #[inline]
    pub fn in_memory(&self, version: Version) -> Result<Value, Version> {
        if !version.flags.is_out_of_line() {
            return Ok(self.inline(version.payload));
        }
        self.cached(&version.payload).ok_or(version)
    }

    /// The out-of-line value to which a payload refers, if it is in memory.
    pub fn cached(&self, payload: &[u8]) -> Option<Value> {
        let (lsn, checksum) = OutOfLine::identity(payload)?;
        self.cache.get(lsn, checksum).map(of_bytes)
    }

    /// The value of a version, but [`Error::WouldBlock`] instead of a read from disk.
    pub fn resident(&self, version: Version) -> Result<Value> {
        self.in_memory(version).map_err(|_| Error::WouldBlock(Missing::Value))
    }

    /// The value of a version.
    pub fn resolve(&self, table: TableId, key: &[u8], version: Version) -> Result<Value> {
        if !version.flags.is_out_of_line() {
            return Ok(self.inline(version.payload));
        }
        self.read(table, key, version.csn, &version.payload)
    }

    /// An out-of-line value: cached, or read from the log, verified and cached.
    pub fn read(&self, table: TableId, key: &[u8], csn: Csn, payload: &[u8]) -> Result<Value> {
        let identity = OutOfLine::identity(payload);
        let Some((lsn, checksum)) = identity.filter(|_| self.cache.takes(OutOfLine::len_of(payload))) else {
            return self.read_for(table, key, csn, payload).map(of_bytes);
        };
        let load = match self.cache.get_or_load(lsn, checksum) {
            Found::Value(value) => return Ok(of_bytes(value)),
            Found::Absent(load) => load,
        };
        let value = self.read_for(table, key, csn, payload)?;
        load.finish(&value);
        Ok(of_bytes(value))
    }

    /// Reads an out-of-line value for maintenance: that is no use of it, which would keep it in memory.
    pub fn verify(&self, table: TableId, key: &[u8], csn: Csn, payload: &[u8]) -> Result<u64> {
        self.read_for(table, key, csn, payload).map(|value| value.len() as u64)
    }

    fn read_for(&self, table: TableId, key: &[u8], csn: Csn, payload: &[u8]) -> Result<Arc<ValueBytes>> {
        self.cache.memory().wait_for_room(LoadFor::Read);
        let read = |payload: &[u8]| {
            decode(table, key, csn, payload).and_then(|at| self.read_at(table, key, &at, Some(csn)))
        };
        let value = read(payload)
            .or_else(|error| self.read_moved(table, key, csn, payload, read).unwrap_or(Err(error)));
        value.map_err(|error| self.in_table(table, error))
    }

    /// Reads a value that is not where `payload` says, where it is by now (INV-MOVE-2); `None` if it was not moved.
    #[cold]
    fn read_moved<R>(
        &self,
        table: TableId,
        key: &[u8],
        csn: Csn,
        payload: &[u8],
        read: impl Fn(&[u8]) -> Result<R>,
    ) -> Option<Result<R>> {
        let _read = self.disk_reads.begin();
        let index = &self.tables.by_id_or_dropped(table)?.index;
        let at = ReadPoint { csn, now_ms: 0 };
        let version = index.get(key, hash_key(table, key), at, Io::Allowed).ok()??;
        let has_moved = version.csn == csn && version.flags.is_out_of_line() && *version.payload != *payload;
        has_moved.then(|| read(&version.payload))
    }

    /// A value's bytes count from before they are read.
    fn read_at(
        &self,
        table: TableId,
        key: &[u8],
        at: &OutOfLine,
        csn: Option<Csn>,
    ) -> Result<Arc<ValueBytes>> {
        ValueBytes::filled(size_class(at.len as usize), self.cache.memory(), |bytes| {
            read(&self.log, table, key, at, csn, bytes)
        })
    }

    /// A value in a leaf or in a memtable, which it keeps there. A short one is copied out where memory is scarce: a program may hold
    /// many of them for long.
    #[inline]
    fn inline(&self, payload: Pinned) -> Value {
        let memory = self.cache.memory();
        if payload.len() > COPIED_BYTES_MAX || memory.batches() == 0 || payload.held_bytes() == 0 {
            return Value(payload);
        }
        of_bytes(ValueBytes::new(payload.to_vec(), memory))
    }

    /// The value that a transaction itself wrote to a key.
    pub fn own(&self, table: TableId, key: &[u8], op: &WriteOp, now_ms: u64) -> Result<Option<Value>> {
        if !op.is_live_at(now_ms) {
            return Ok(None);
        }
        match &op.value {
            WriteValue::Delete => Ok(None),
            WriteValue::Inline(bytes) => Ok(Some(Value(Pinned::copy_of(bytes)))),
            WriteValue::Chunks(spilled) => self.read_own(table, key, &spilled.1).map(Some),
        }
    }

    /// Reads a value that a transaction itself wrote ahead, and verifies its checksum.
    pub fn read_own(&self, table: TableId, key: &[u8], at: &OutOfLine) -> Result<Value> {
        let value = self.read_at(table, key, at, None);
        value.map(of_bytes).map_err(|error| self.in_table(table, error))
    }

    #[cold]
    fn in_table(&self, table: TableId, mut error: Error) -> Error {
        if let Error::Damaged(damage) = &mut error {
            damage.table = self.tables.by_id(table).map(|table| table.name().to_string());
        }
        error
    }
}

fn of_bytes(bytes: Arc<ValueBytes>) -> Value {
    Value(Pinned::from_value(bytes))
}

/// Reads the value that commit `csn` gave to `key`, and verifies its checksum.
pub(crate) fn read_value(log: &Log, table: TableId, key: &[u8], csn: Csn, payload: &[u8]) -> Result<Vec<u8>> {
    let at = decode(table, key, csn, payload)?;
    let mut bytes = Vec::with_capacity(at.len as usize);
    read(log, table, key, &at, Some(csn), &mut bytes)?;
    Ok(bytes)
}

fn decode(table: TableId, key: &[u8], csn: Csn, payload: &[u8]) -> Result<OutOfLine> {
    OutOfLine::decode(payload).map_err(|error| {
        let what = format!("the extents of a value in table {table} do not decode: {error}");
        Damage::new(what).of_key(key).of_commit(csn).into()
    })
}

/// Appends the value to `bytes`, which have room for it. `csn` is `None` for a value that a transaction, which has no number
/// yet, wrote ahead.
fn read(
    log: &Log,
    table: TableId,
    key: &[u8],
    at: &OutOfLine,
    csn: Option<Csn>,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    let failed = |error| damaged(log, key, at, csn, error);
    for extent in &at.extents {
        let chunk = log.read_bytes(extent.lsn, extent.len).map_err(|error| failed(Some((extent, error))))?;
        bytes.extend_from_slice(&chunk);
    }
    let checksum = value_checksum(table, key, &[bytes.as_slice()]);
    let checksum = csn.map_or(checksum, |csn| seal_checksum(checksum, csn));
    if checksum == at.checksum { Ok(()) } else { Err(failed(None)) }
}

/// Why a value cannot be read: `error` stopped the read of an extent, or the whole value fails its checksum. The
/// checksum covers all extents, which may be in several segments: the records around them show which extent is damaged.
#[cold]
fn damaged(
    log: &Log,
    key: &[u8],
    at: &OutOfLine,
    csn: Option<Csn>,
    error: Option<(&Extent, LogError)>,
) -> Error {
    let error = match error {
        Some((extent, LogError::Usage(what))) => log.damage_at(extent.lsn, what),
        Some((_, error)) => error,
        None => {
            let extents: Vec<_> = at.extents.iter().map(|extent| (extent.lsn, extent.len)).collect();
            let whole = || {
                let lsn = at.extents.first().map(|extent| extent.lsn).unwrap_or_default();
                log.damage_at(lsn, format!("the {} bytes of a value fail their checksum", at.len))
            };
            log.find_damaged_chunk(&extents).unwrap_or_else(whole)
        }
    };
    let mut error = Error::of_log(error);
    if let Error::Damaged(damage) = &mut error {
        damage.key = Some(key.into());
        damage.csns = csn.map(|csn| CsnRange { first: csn, last: csn });
    }
    error
}
