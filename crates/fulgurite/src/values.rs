//! Values in the log, outside their leaves: reading them, and finding the damage in one.

use fulgurite_index::{Extent, OutOfLine};
use fulgurite_log::{Log, LogError};
use fulgurite_types::{Csn, TableId, seal_checksum, value_checksum};

use crate::error::CsnRange;
use crate::{Damage, Error, Result, Value};

/// Reads the value that commit `csn` gave to `key`, and verifies its checksum.
pub(crate) fn read_value(log: &Log, table: TableId, key: &[u8], csn: Csn, payload: &[u8]) -> Result<Value> {
    let place = OutOfLine::decode(payload).map_err(|error| {
        let what = format!("the place of a value in table {table} does not decode: {error}");
        Damage::new(what).of_key(key).of_commit(csn)
    })?;
    read(log, table, key, &place, Some(csn))
}

/// Reads a value that a transaction, which has no number yet, wrote ahead, and verifies its checksum.
pub(crate) fn read_own_value(log: &Log, table: TableId, key: &[u8], place: &OutOfLine) -> Result<Value> {
    read(log, table, key, place, None)
}

fn read(log: &Log, table: TableId, key: &[u8], place: &OutOfLine, csn: Option<Csn>) -> Result<Value> {
    let failed = |error| damaged(log, key, place, csn, error);
    let mut bytes = Vec::with_capacity(place.len as usize);
    for extent in &place.extents {
        let chunk = log.read_bytes(extent.lsn, extent.len).map_err(|error| failed(Some((extent, error))))?;
        bytes.extend_from_slice(&chunk);
    }
    let checksum = value_checksum(table, key, &[&bytes]);
    let checksum = csn.map_or(checksum, |csn| seal_checksum(checksum, csn));
    if checksum == place.checksum { Ok(Value::from(bytes)) } else { Err(failed(None)) }
}

/// Why a value cannot be read: `error` stopped the read of an extent, or the whole value fails its checksum. The
/// checksum covers all extents, which may be in several segments: the records around them show which extent is damaged.
#[cold]
fn damaged(
    log: &Log,
    key: &[u8],
    place: &OutOfLine,
    csn: Option<Csn>,
    error: Option<(&Extent, LogError)>,
) -> Error {
    let error = match error {
        Some((extent, LogError::Usage(what))) => log.damage_at(extent.lsn, what),
        Some((_, error)) => error,
        None => {
            let places: Vec<_> = place.extents.iter().map(|extent| (extent.lsn, extent.len)).collect();
            let whole = || {
                let lsn = place.extents.first().map(|extent| extent.lsn).unwrap_or_default();
                log.damage_at(lsn, format!("the {} bytes of a value fail their checksum", place.len))
            };
            log.find_damaged_chunk(&places).unwrap_or_else(whole)
        }
    };
    let mut error = Error::of_log(error);
    if let Error::Damaged(damage) = &mut error {
        damage.key = Some(key.into());
        damage.csns = csn.map(|csn| CsnRange { first: csn, last: csn });
    }
    error
}
