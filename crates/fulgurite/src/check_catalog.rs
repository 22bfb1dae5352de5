//! Verification of the catalog: reads every row as opening does, which needs the rows before anything else.

use fulgurite_index::VersionRef;
use fulgurite_index::btree::EntryInfo;

use crate::catalog::{NEXT_ID_KEY, decode_row};
use crate::check::CheckReport;
use crate::engine::Engine;
use crate::error::readable;
use crate::recovery::row_of;

impl CheckReport {
    /// Verifies a version of a row of the catalog.
    pub(crate) fn catalog_row(&mut self, engine: &Engine, entry: &EntryInfo<'_>) {
        if entry.flags.is_tombstone() || entry.key == NEXT_ID_KEY {
            return;
        }
        let &EntryInfo { csn, flags, expires_at_ms, payload, .. } = entry;
        let version = VersionRef { csn, flags, expires_at_ms, payload };
        let name = readable(entry.key);
        match row_of(&engine.log, entry.key, version).and_then(|row| decode_row(&row)) {
            Err(error) => self.problem(format!("the catalog's row of table {name}: {error}")),
            Ok(_) if flags.is_out_of_line() => self.notes.push(format!(
                "the catalog's row of table {name} is outside its leaf, where a former version of this program wrote it \
                 with an inline_bytes_max below 7"
            )),
            Ok(_) => {}
        }
    }
}
