//! `fulgurite export`: tables into a file.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use fulgurite::{Database, LeftOut, Salvaged, Snapshot, Table};
use serde_json::{Map, Value, json};

use crate::failure::{self, Failure};
use crate::interrupt;
use crate::io::{OutputFile, refuse_inside};
use crate::open::with_reader;
use crate::output::Output;
use crate::rows::{Entry, Format, FormatArgs, RowWriter, bytes_field};
use crate::{stderr, text};

const EXAMPLES: &str = "\
EXAMPLES:
  A backup: all tables in one file, as of one moment, whatever bytes they hold, and back:
    fulgurite export --all shop.db backup.jsonl.gz
    fulgurite load --all copy.db backup.jsonl.gz

  One table, for other programs:
    fulgurite export --format jsonl shop.db products | jq .key
    fulgurite export --delimiter ';' shop.db products products.csv

  Compare a table with the file that was loaded:
    fulgurite export --raw shop.db products | diff - <(LC_ALL=C sort products.tsv)

  What is left of a damaged table:
    fulgurite export --skip-damaged shop.db products products.jsonl";

/// Write tables to a file or to standard output, in the order of their keys.
///
/// The mirror of `load`: TSV of `export` is read back by `load --escaped`, CSV and JSON lines by `load` as they are. A
/// row that needs no escapes is written to TSV as its key, a tab and its value, byte by byte. A file gets its name when
/// it is complete and durable, and replaces one of that name, whose mode it takes; standard error says how many rows it has.
/// A file in the directory of the database is refused. All that is written is of one moment, however many tables it is.
///
/// Only JSON lines say when an entry expires. A table with such entries is not written as TSV or CSV, unless
/// --without-expiry. Only JSON lines hold several tables (--all, --table): each line then names its table.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "fulgurite export [OPTIONS] <DIR> <TABLE> [FILE]
       fulgurite export [OPTIONS] --all <DIR> [FILE]
       fulgurite export --table <TABLE>... <DIR> [FILE]")]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table; not with --all or --table.
    table: Option<OsString>,
    /// The file, compressed if its name ends with .gz; missing or `-`: standard output.
    file: Option<PathBuf>,
    /// All tables, as JSON lines.
    #[arg(long, conflicts_with = "tables")]
    all: bool,
    /// This table, as JSON lines that name it; may be given several times.
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,
    #[command(flatten)]
    format: FormatArgs,
    /// TSV: write all bytes as they are, and fail at a row that `load` could not read back like that.
    #[arg(long)]
    raw: bool,
    /// Write entries that expire like those that never do.
    #[arg(long)]
    without_expiry: bool,
    /// Leave out what cannot be read, and name its keys on standard error. The exit code is 3 if there is any.
    #[arg(long)]
    skip_damaged: bool,
    /// Print what was left out, what was written to a file, and errors, as JSON objects on standard error.
    #[arg(long)]
    pub json: bool,
}

impl Args {
    fn names_tables(&self) -> bool {
        self.all || !self.tables.is_empty()
    }

    /// The file after the database, and the table if there is one.
    fn operands(&self) -> Result<(Option<&str>, Option<&Path>), Failure> {
        let file = self.file.as_deref();
        let (table, file) = match (self.names_tables(), &self.table) {
            (true, Some(_)) if file.is_some() => {
                return Err(Failure::usage("with --all or --table only a file follows the database"));
            }
            (true, operand) => (None, operand.as_deref().map(Path::new)),
            (false, None) => return Err(Failure::usage("which table? name one, or give --all")),
            (false, Some(table)) => {
                (Some(table.to_str().ok_or_else(|| Failure::usage("the table's name is not UTF-8"))?), file)
            }
        };
        Ok((table, file.filter(|path| *path != Path::new("-"))))
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (table, file) = args.operands()?;
    let otherwise = if args.names_tables() { Format::Jsonl } else { Format::Tsv };
    let format = args.format.resolve(file, otherwise)?;
    if args.raw && format != Format::Tsv {
        return Err(Failure::usage("--raw goes with TSV only: add --format tsv"));
    }
    if args.names_tables() && format != Format::Jsonl {
        return Err(Failure::usage("only JSON lines name the table of a row: give --format jsonl"));
    }
    let writer = RowWriter::new(format)
        .raw(args.raw)
        .delimiter(args.format.delimiter())
        .without_expiry(args.without_expiry);
    let left_out = with_reader(&args.dir, |db| {
        let tables = match table {
            Some(name) => vec![db.open_table(name)?],
            None => tables(args, db)?,
        };
        let mut export = Export { args, snapshot: db.snapshot(), tables, writer, rows: 0, left_out: 0 };
        match file {
            None => {
                let mut output = Output::new();
                export.write(&mut output, &Failure::output)?;
                output.flush()?;
            }
            Some(path) => export.write_file(path)?,
        }
        Ok(export.left_out)
    })?;
    match left_out {
        0 => Ok(()),
        ranges => Err(Failure::of_damage(format!(
            "the export is not complete: {} could not be read and {} named above",
            text::count(ranges, "range"),
            if ranges == 1 { "is" } else { "are" },
        ))),
    }
}

fn tables(args: &Args, db: &Database) -> Result<Vec<Table>, Failure> {
    if args.all {
        return Ok(db.tables()?);
    }
    Ok(args.tables.iter().map(|name| db.open_table(name)).collect::<Result<_, _>>()?)
}

struct Export<'a> {
    args: &'a Args,
    snapshot: Snapshot,
    tables: Vec<Table>,
    writer: RowWriter,
    rows: u64,
    /// How many ranges could not be read.
    left_out: u64,
}

impl Export<'_> {
    fn write_file(&mut self, path: &Path) -> Result<(), Failure> {
        refuse_inside(&self.args.dir, path)?;
        interrupt::listen()?;
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure::file("writing", &name, &error);
        let mut file = OutputFile::create(path)?;
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            let mut encoder = GzEncoder::new(file, Compression::default());
            self.write(&mut encoder, &failed)?;
            file = encoder.finish().map_err(failed)?;
        } else {
            self.write(&mut file, &failed)?;
        }
        let replaces = file.replaces();
        file.finish()?;
        if self.left_out == 0 {
            self.tell_written(&name, replaces);
        }
        Ok(())
    }

    /// Reports on standard error how many rows the file has.
    fn tell_written(&self, file: &str, replaces: bool) {
        let tables = self.tables.len() as u64;
        match self.args.json {
            true => {
                stderr::object(
                    &json!({ "file": file, "rows": self.rows, "tables": tables, "replaced": replaces }),
                );
            }
            false => {
                let instead = if replaces { ", instead of the file that was there" } else { "" };
                let (rows, tables) = (text::count(self.rows, "row"), text::count(tables, "table"));
                stderr::line(&format!("{rows} of {tables} written to {file}{instead}"));
            }
        }
    }

    fn write(&mut self, out: &mut impl Write, failed: &dyn Fn(io::Error) -> Failure) -> Result<(), Failure> {
        for table in self.tables.clone() {
            if self.args.names_tables() {
                self.writer.begin_table(&table.name(), out).map_err(failed)?;
            }
            if self.args.skip_damaged {
                self.write_what_is_left(&table, out, failed)?;
            } else {
                self.write_all(&table, out, failed)?;
            }
        }
        Ok(())
    }

    fn write_all(
        &mut self,
        table: &Table,
        out: &mut impl Write,
        failed: &dyn Fn(io::Error) -> Failure,
    ) -> Result<(), Failure> {
        let mut range = self.snapshot.range(table, ..)?;
        while let Some((key, value, expires_at)) = range.next_entry_with_expiry()? {
            write_row(&mut self.writer, Entry { key, value, expires_at }, out, failed)?;
            self.rows += 1;
        }
        Ok(())
    }

    fn write_what_is_left(
        &mut self,
        table: &Table,
        out: &mut impl Write,
        failed: &dyn Fn(io::Error) -> Failure,
    ) -> Result<(), Failure> {
        for item in self.snapshot.salvage(table, ..)? {
            match item? {
                Salvaged::Entry { key, value, expires_at } => {
                    let entry = Entry { key: &key, value: &value, expires_at };
                    write_row(&mut self.writer, entry, out, failed)?;
                    self.rows += 1;
                }
                Salvaged::LeftOut(left_out) => {
                    self.left_out += 1;
                    report(&table.name(), &left_out, self.args.json);
                }
            }
        }
        Ok(())
    }
}

fn write_row(
    writer: &mut RowWriter,
    entry: Entry<'_>,
    out: &mut impl Write,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    writer.write(entry, out).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            Failure::new(format!("the row of key {} cannot be written: {error}", text::quoted(entry.key)))
        }
        _ => failed(error),
    })?;
    match interrupt::asked() {
        true => Err(Failure::interrupted_before("the export is not complete")),
        false => Ok(()),
    }
}

/// Reports on standard error a range that was left out.
fn report(table: &str, left_out: &LeftOut, as_json: bool) {
    let error = failure::with_causes(&left_out.error);
    match as_json {
        true => stderr::object(&left_out_as_json(table, left_out, &error)),
        false => {
            let line = format!("left out of table `{table}`: {}: {error}", keys(left_out));
            stderr::line(&line.replace('\n', " "));
        }
    }
}

fn keys(left_out: &LeftOut) -> String {
    match &left_out.keys {
        (Bound::Included(one), Bound::Included(last)) if one == last => {
            format!("key {}", text::quoted(one))
        }
        (start, end) => {
            let from = match start {
                Bound::Included(key) | Bound::Excluded(key) if !key.is_empty() => text::quoted(key),
                _ => "the first".to_string(),
            };
            let to = match end {
                Bound::Included(key) => format!("to {}", text::quoted(key)),
                Bound::Excluded(key) => format!("to before {}", text::quoted(key)),
                Bound::Unbounded => "to the last".to_string(),
            };
            format!("keys from {from} {to}")
        }
    }
}

/// `from` and `to` are bytes, `to` is exclusive; a single key is `key`.
fn left_out_as_json(table: &str, left_out: &LeftOut, error: &str) -> Value {
    let mut object = Map::new();
    object.insert("left_out".into(), table.into());
    let mut put = |name: &str, bytes: &[u8]| {
        let (name, text) = bytes_field(name, bytes);
        object.insert(name, json!(text));
    };
    match &left_out.keys {
        (Bound::Included(one), Bound::Included(last)) if one == last => put("key", one),
        (start, end) => {
            if let Bound::Included(key) | Bound::Excluded(key) = start {
                put("from", key);
            }
            if let Bound::Included(key) | Bound::Excluded(key) = end {
                put("to", key);
            }
        }
    }
    object.insert("error".into(), error.into());
    Value::Object(object)
}
