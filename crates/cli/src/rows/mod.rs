//! Rows in the three formats: TSV, CSV and JSON lines.

mod csv;
mod header;
mod jsonl;
mod quotes;
mod tsv;
mod write;

use std::path::Path;

use clap::ValueEnum;

pub(crate) use self::csv::CsvRows;
pub(crate) use self::header::{Column, Columns, ValueColumn};
pub(crate) use self::jsonl::{JsonRows, bytes_field};
pub(crate) use self::tsv::TsvRows;
pub(crate) use self::write::RowWriter;

use crate::failure::Failure;

/// How rows are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns with tabs between them, a row a line.
    Tsv,
    /// Columns with commas between them, in quotes where need be (RFC 4180).
    Csv,
    /// A JSON object a line.
    Jsonl,
}

impl Format {
    /// What the name of a file says: `.csv`, `.jsonl` and `.ndjson`, each perhaps with `.gz`; all else is TSV.
    pub fn of(path: Option<&Path>) -> Format {
        let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy().to_ascii_lowercase());
        let name = name.unwrap_or_default();
        match name.strip_suffix(".gz").unwrap_or(&name).rsplit_once('.') {
            Some((_, "csv")) => Format::Csv,
            Some((_, "jsonl" | "ndjson")) => Format::Jsonl,
            _ => Format::Tsv,
        }
    }
}

/// A key and its value.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Row {
    fn clear(&mut self) {
        self.key.clear();
        self.value.clear();
    }
}

/// What comes next from [`Rows`].
pub(crate) enum Next {
    /// A row.
    Row,
    /// Something that is not a row, and why.
    Bad(String),
    /// Nothing for a while.
    Idle,
    /// A signal asked to end.
    Interrupted,
    /// That was all.
    End,
}

/// Rows of an input.
pub(crate) trait Rows {
    /// Takes the next row into `row`.
    fn next(&mut self, row: &mut Row) -> Result<Next, Failure>;
    /// Where the row given last begins: the number of its line, from 1.
    fn line(&self) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_format() {
        let of = |name: &str| Format::of(Some(Path::new(name)));
        assert_eq!(
            [of("a.csv"), of("A.CSV.GZ"), of("a.tsv"), of("csv")].map(|f| f == Format::Csv),
            [true, true, false, false]
        );
        assert_eq!(of("x/y.jsonl.gz"), Format::Jsonl);
        assert_eq!(Format::of(None), Format::Tsv);
    }
}
