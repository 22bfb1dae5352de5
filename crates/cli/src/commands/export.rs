//! `fulgurite export`: a table into a file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use fulgurite::Range;

use crate::failure::Failure;
use crate::interrupt;
use crate::io::OutputFile;
use crate::open::{Missing, with_database};
use crate::output::Output;
use crate::rows::{Format, RowWriter};
use crate::text;

const EXAMPLES: &str = "\
EXAMPLES:
  Everything, and back, whatever bytes it holds:
    fulgurite export shop.db products products.tsv.gz
    fulgurite load --escaped copy.db products products.tsv.gz

  Compare a table with the file that was loaded:
    fulgurite export --raw shop.db products | diff - <(LC_ALL=C sort products.tsv)

  For other programs:
    fulgurite export --format jsonl shop.db products | jq .key";

/// Write a table to a file or to standard output, in the order of its keys.
///
/// The mirror of `load`: TSV of `export` is read back by `load --escaped`, CSV and JSON lines by `load` as it is. A row
/// that needs no escapes is written to TSV as its key, a tab and its value, byte by byte. A file gets its name when it
/// is complete and durable. All that is written is of one moment; when an entry expires is not written.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table.
    table: String,
    /// The file, compressed if its name ends with .gz; missing or `-`: standard output.
    file: Option<PathBuf>,
    /// How to write the rows [default: by the file's name, else TSV].
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// TSV: write all bytes as they are, and fail at a row that `load` could not read back like that.
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let file = args.file.as_deref().filter(|path| *path != Path::new("-"));
    let format = args.format.unwrap_or_else(|| Format::of(file));
    if args.raw && format != Format::Tsv {
        return Err(Failure::usage("--raw goes with TSV only"));
    }
    let writer = RowWriter::new(format).raw(args.raw);
    with_database(&args.dir, Missing::Refuse, |db| {
        let range = db.open_table(&args.table)?.range(..)?;
        match file {
            None => {
                let mut output = Output::new();
                write_rows(range, writer, &mut output, &Failure::output)?;
                output.flush()
            }
            Some(path) => write_file(range, writer, path),
        }
    })
}

fn write_file(range: Range<'_>, writer: RowWriter, path: &Path) -> Result<(), Failure> {
    interrupt::listen()?;
    let name = path.display().to_string();
    let failed = |error: io::Error| Failure::file("writing", &name, &error);
    let mut file = OutputFile::create(path)?;
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
        let mut encoder = GzEncoder::new(file, Compression::default());
        write_rows(range, writer, &mut encoder, &failed)?;
        file = encoder.finish().map_err(failed)?;
    } else {
        write_rows(range, writer, &mut file, &failed)?;
    }
    file.finish()
}

fn write_rows(
    mut range: Range<'_>,
    mut writer: RowWriter,
    out: &mut impl Write,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    while let Some((key, value)) = range.next_entry()? {
        writer.write(key, value, out).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                Failure::new(format!("the row of key {} cannot be written: {error}", text::quoted(key)))
            }
            _ => failed(error),
        })?;
        if interrupt::asked() {
            return Err(Failure::interrupted_before("the export is not complete"));
        }
    }
    Ok(())
}
