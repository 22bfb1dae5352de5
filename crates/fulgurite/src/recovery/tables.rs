//! The tables of a checkpoint: the catalog's rows and the roots of the trees.

use std::borrow::Cow;
use std::sync::Arc;

use fulgurite_index::VersionRef;
use fulgurite_index::range_delete::Readers;
use fulgurite_index::table::ReadPoint;
use fulgurite_log::Log;
use fulgurite_types::{Csn, Lsn, TableId};

use crate::catalog::{Catalog, NEXT_ID_KEY, TableState, decode_row};
use crate::checkpoint::record::CheckpointRecord;
use crate::error::OrError;
use crate::values::read_value;
use crate::{Error, Result};

/// Enters the tables of a checkpoint into the catalog; the root of the catalog's own tree is from the same record.
pub(crate) fn restore_tables(log: &Log, catalog: &Arc<Catalog>, record: &CheckpointRecord) -> Result<()> {
    catalog.raise_next_id(record.next_table_id);
    restore_range_deletes(&catalog.root, record);
    let mut cursor = catalog.root.index.cursor(ReadPoint { csn: Csn::MAX, now_ms: 0 });
    cursor.seek(&[]).or_error()?;
    while let Some(key) = cursor.key() {
        if key != NEXT_ID_KEY {
            let name = std::str::from_utf8(key).map_err(|_| Error::damaged("a table's name is not UTF-8"))?;
            let id = decode_row(&row_of(log, key, cursor.version())?)?;
            let root = record.tables.get(&id).map_or(Lsn::NULL, |table| table.root);
            let table = catalog.prepare(id, name, root);
            restore_range_deletes(&table, record);
            catalog.restore(table);
        }
        cursor.next().or_error()?;
    }
    Ok(())
}

/// The row in a version of the catalog. It is in the leaf, unless an earlier version of this program wrote it with a
/// small [`inline_bytes_max`](crate::Options::inline_bytes_max): then the leaf has its extents in the log.
pub(crate) fn row_of<'v>(log: &Log, name: &[u8], version: VersionRef<'v>) -> Result<Cow<'v, [u8]>> {
    if !version.flags.is_out_of_line() {
        return Ok(Cow::Borrowed(version.payload));
    }
    Ok(Cow::Owned(read_value(log, TableId::CATALOG, name, version.csn, version.payload)?))
}

fn restore_range_deletes(table: &TableState, record: &CheckpointRecord) {
    let ranges = record.tables.get(&table.id).map(|table| table.range_deletes.as_slice()).unwrap_or_default();
    for range in ranges {
        table.index.apply_range_delete(range.keys.borrowed(), range.csn, &Readers::NONE_YET);
    }
}
