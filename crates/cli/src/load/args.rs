//! The command line of `load`.

use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;

use crate::rows::{Column, Format, ValueColumn};

const EXAMPLES: &str = "\
EXAMPLES:
  Names and all that follows them, from a file whose first line names the columns:
    fulgurite load --header shop.db products products.tsv.gz

  One column of a CSV file, found by name:
    fulgurite load --key id --value price shop.db prices prices.csv

  Whole JSON objects under their id, from another program:
    curl -s https://example.org/users.jsonl |
      fulgurite load --format jsonl --key-field id --value-field . shop.db users

  For a program that follows along: a line {\"durable_rows\":N} for each step:
    fulgurite load --json shop.db products products.tsv";

/// Load rows from a file or standard input into a table.
///
/// Creates the database and the table if they do not exist; a row replaces what is stored under its key. Rows are
/// committed in batches, several at a time on their way to the disk, and counted once they are durable: whatever this
/// command reports as durable survives kill -9 and a power cut. A malformed row ends the load, unless --skip-bad. The
/// first SIGINT or SIGTERM ends it after the current batch.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    pub dir: PathBuf,
    /// The table.
    pub table: String,
    /// The file, plain or gzip; missing or `-`: standard input.
    pub file: Option<PathBuf>,
    /// How the rows are written [default: by the file's name, else TSV].
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// TSV and CSV: the column with the key, by number from 1 or by name, which implies --header.
    #[arg(long, value_name = "COLUMN", default_value = "1")]
    pub key: Column,
    /// TSV and CSV: the column with the value, by number or name; `rest` takes all but the key as it stands (of CSV,
    /// several columns as a CSV row).
    #[arg(long, value_name = "COLUMN|rest", default_value = "rest")]
    pub value: ValueColumn,
    /// TSV and CSV: the first line names the columns and is no row. Without this flag every line is a row.
    #[arg(long)]
    pub header: bool,
    /// TSV: \t, \n, \r and \\ stand for a tab, a line feed, a carriage return and a backslash, as `export` writes them.
    #[arg(long)]
    pub escaped: bool,
    /// JSON lines: the field with the key; a field of this name with _base64 behind it holds bytes in base64.
    #[arg(long, value_name = "FIELD", default_value = "key")]
    pub key_field: String,
    /// JSON lines: the field with the value, likewise; `.` takes the whole line.
    #[arg(long, value_name = "FIELD", default_value = "value")]
    pub value_field: String,
    /// Rows a commit; fewer if they are large (192 KiB make a commit).
    #[arg(long, value_name = "ROWS", default_value_t = 1000, value_parser = at_least_one())]
    pub batch: u64,
    /// Count malformed rows instead of ending at the first.
    #[arg(long)]
    pub skip_bad: bool,
    /// Print JSON: how many rows are durable, as often as that changes, and a summary.
    #[arg(long)]
    pub json: bool,
}

fn at_least_one() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..)
}

impl Args {
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub fn format(&self) -> Format {
        self.format.unwrap_or_else(|| Format::of(self.file()))
    }
}
