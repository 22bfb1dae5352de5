//! The command line of `load`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;

use crate::failure::Failure;
use crate::rows::{Column, Format, FormatArgs, ValueColumn};

const EXAMPLES: &str = "\
EXAMPLES:
  Names and all that follows them, from a file whose first line names the columns:
    fulgurite load --header shop.db products products.tsv.gz

  One column of a CSV file, found by name:
    fulgurite load --key id --value price shop.db prices prices.csv
    fulgurite load --key id --value price --delimiter ';' shop.db prices prices.csv

  Whole JSON objects under their id, from another program:
    curl -s https://example.org/users.jsonl |
      fulgurite load --format jsonl --key-field id --value-field . shop.db users

  A backup that `export --all` wrote:
    fulgurite load --all copy.db backup.jsonl.gz

  For a program that follows along: a line {\"durable_rows\":N} for each step:
    fulgurite load --json shop.db products products.tsv";

/// Load rows from a file or standard input into a table.
///
/// Creates the database and the table if they do not exist; a row replaces the entry under its key, and the summary
/// says how many did. Rows are committed in batches, several at a time on their way to the disk, and counted once they
/// are durable: whatever this command reports as durable survives kill -9 and a power cut. A malformed row ends the
/// load, unless --skip-bad. The first SIGINT or SIGTERM ends it after the current batch. With --atomic, all rows of the
/// input are in one commit, or none. An empty key is a key like others: so a line that begins with a tab is a row.
///
/// Above ten million rows, input in the order of its keys (as `LC_ALL=C sort` or `export` gives it) loads about ten
/// times as fast as input in any other order: sort it first.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "fulgurite load [OPTIONS] <DIR> <TABLE> [FILE]
       fulgurite load [OPTIONS] --all <DIR> [FILE]")]
pub(crate) struct Args {
    /// The database directory.
    pub dir: PathBuf,
    /// The table; not with --all.
    table: Option<OsString>,
    /// The file, plain or gzip; missing or `-`: standard input.
    file: Option<PathBuf>,
    /// JSON lines of `export --all`: each row goes into the table that its field "table" names.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub format: FormatArgs,
    /// TSV and CSV: the column with the key, by number from 1 or by name, which implies --header.
    #[arg(long, value_name = "COLUMN", default_value = "1")]
    pub key: Column,
    /// TSV and CSV: the column with the value, by number or name; `rest` takes all but the key as it is (of CSV,
    /// several columns as a CSV row).
    #[arg(long, value_name = "COLUMN|rest", default_value = "rest")]
    pub value: ValueColumn,
    /// TSV and CSV: the first line names the columns and is no row. Without this flag every line is a row.
    #[arg(long)]
    pub header: bool,
    /// TSV: \t, \n, \r and \\ stand for a tab, a line feed, a carriage return and a backslash, as `export` writes them.
    #[arg(long)]
    pub escaped: bool,
    /// JSON lines: the field with the key; a field of this name with _base64 after it holds bytes in base64.
    #[arg(long, value_name = "FIELD", default_value = "key")]
    pub key_field: String,
    /// JSON lines: the field with the value, likewise; `.` takes the whole line. A string is stored as its text, anything
    /// else (2, null, an object) as its JSON without blanks; keys likewise.
    #[arg(long, value_name = "FIELD", default_value = "value")]
    pub value_field: String,
    /// JSON lines: the field that says when the entry expires, in milliseconds since 1970-01-01 UTC [default:
    /// expires_at_ms; none if the whole line is the value].
    #[arg(long, value_name = "FIELD")]
    pub expiry_field: Option<String>,
    /// Rows a commit; fewer if they are large (192 KiB make a commit).
    #[arg(long, value_name = "ROWS", default_value_t = 1000, value_parser = at_least_one())]
    pub batch: u64,
    /// Load all rows in one commit, or none if anything fails; needs memory for all of them.
    #[arg(long, conflicts_with = "batch")]
    pub atomic: bool,
    /// Count malformed rows instead of ending at the first, which the summary names.
    #[arg(long)]
    pub skip_bad: bool,
    /// Print JSON: how many rows are durable, as often as that changes, and a summary; errors on standard error.
    #[arg(long)]
    pub json: bool,
}

/// The input of a load.
pub(crate) struct Input<'a> {
    /// The table of all rows; `None`: each row names its own.
    pub table: Option<&'a str>,
    pub file: Option<&'a Path>,
    pub format: Format,
}

fn at_least_one() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..)
}

impl Args {
    /// Takes the operands apart.
    pub fn input(&self) -> Result<Input<'_>, Failure> {
        let file = self.file.as_deref();
        let (table, file) = match (self.all, &self.table) {
            (true, Some(_)) if file.is_some() => {
                return Err(Failure::usage("with --all only a file follows the database"));
            }
            (true, operand) => (None, operand.as_deref().map(Path::new)),
            (false, None) => return Err(Failure::usage("which table? name one, or give --all")),
            (false, Some(operand)) if file.is_none() && Path::new(operand).is_file() => {
                return Err(Failure::usage(format!(
                    "which table? `{0}` is a file: name the table before it (a table of that name takes standard input \
                     with `{0} -`)",
                    operand.display()
                )));
            }
            (false, Some(table)) => {
                (Some(table.to_str().ok_or_else(|| Failure::usage("the table's name is not UTF-8"))?), file)
            }
        };
        let otherwise = if self.all { Format::Jsonl } else { Format::Tsv };
        let format = self.format.resolve(file.filter(|path| *path != Path::new("-")), otherwise)?;
        if self.all && format != Format::Jsonl {
            return Err(Failure::usage("only JSON lines name the table of a row: give --format jsonl"));
        }
        Ok(Input { table, file, format })
    }
}
