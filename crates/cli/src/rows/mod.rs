//! Rows in the three formats: TSV, CSV and JSON lines.

mod csv;
mod format;
mod header;
mod jsonl;
mod quotes;
mod tsv;
mod write;

pub(crate) use self::csv::CsvRows;
pub(crate) use self::format::{Format, FormatArgs};
pub(crate) use self::header::{Column, Columns, ValueColumn};
pub(crate) use self::jsonl::{JsonFields, JsonRows, bytes_field};
pub(crate) use self::tsv::TsvRows;
pub(crate) use self::write::{Entry, RowWriter};

use crate::failure::Failure;

/// An entry of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// The table that the row names; empty if the format names none.
    pub table: String,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970-01-01 UTC; `None`: never.
    pub expires_at_ms: Option<u64>,
}

impl Row {
    fn clear(&mut self) {
        self.table.clear();
        self.key.clear();
        self.value.clear();
        self.expires_at_ms = None;
    }
}

/// What comes next from [`Rows`].
pub(crate) enum Next {
    /// A row.
    Row,
    /// The name of a table without a row: the table may be empty.
    Table,
    /// A bad row, and why it is bad.
    Bad(String),
    /// No input for a while.
    Idle,
    /// A signal asked to end.
    Interrupted,
    /// The end of the input.
    End,
}

/// Rows of an input.
pub(crate) trait Rows {
    /// Takes the next row into `row`.
    fn next(&mut self, row: &mut Row) -> Result<Next, Failure>;
    /// The number of the line, from 1, in which the last row begins.
    fn line(&self) -> u64;
}
