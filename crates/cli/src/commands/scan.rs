//! `fulgurite scan`: prints entries in order.

use std::path::PathBuf;

use fulgurite::Range;
use serde_json::json;

use crate::failure::Failure;
use crate::keys::{KeyFormat, RangeArgs, as_range, hex};
use crate::open::with_reader;
use crate::output::Output;
use crate::rows::{Entry, Format, RowWriter};
use crate::text;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite scan shop.db products --prefix so
  fulgurite scan shop.db log --from 2024-01 --to 2024-02 --limit 10
  fulgurite scan shop.db log --reverse --limit 1 --json
  fulgurite scan shop.db products --count";

/// Print entries in the order of their keys.
///
/// A line is a key, a tab and a value, as `export` writes them to TSV: \t, \n, \r and \\ stand for what would break the
/// line. On a terminal, bytes that it would not show are written as \xNN. All that is printed is of one moment.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table.
    table: String,
    #[command(flatten)]
    range: RangeArgs,
    /// Stop after this many entries.
    #[arg(long, value_name = "ENTRIES")]
    limit: Option<u64>,
    /// Begin at the end.
    #[arg(long)]
    reverse: bool,
    /// Leave the values out.
    #[arg(long)]
    keys_only: bool,
    /// Print how many entries there are, and nothing else.
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    format: KeyFormat,
    /// Print a JSON object a line, with expires_at_ms if the entry expires; bytes that are not UTF-8 are in base64, in
    /// key_base64 or value_base64.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let bounds = args.range.bounds(&args.format)?;
    with_reader(&args.dir, |db| {
        let range = db.open_table(&args.table)?.range(as_range(&bounds))?;
        let mut output = Output::new();
        if args.count {
            print_count(args, range, &mut output)?;
        } else {
            print_entries(args, range, &mut output)?;
        }
        output.flush()
    })
}

/// Shows the selected entries in the selected order.
fn for_each(
    args: &Args,
    mut range: Range<'_>,
    mut show: impl FnMut(Entry<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for _ in 0..args.limit.unwrap_or(u64::MAX) {
        let entry = match args.reverse {
            true => range.next_entry_back_with_expiry()?,
            false => range.next_entry_with_expiry()?,
        };
        let Some((key, value, expires_at)) = entry else { break };
        show(Entry { key, value, expires_at })?;
    }
    Ok(())
}

fn print_count(args: &Args, range: Range<'_>, output: &mut Output) -> Result<(), Failure> {
    let mut count: u64 = 0;
    for_each(args, range, |_| {
        count += 1;
        Ok(())
    })?;
    match (args.json, output.is_terminal()) {
        (true, _) => output.json(&json!({ "count": count })),
        (false, true) => output.line(text::number(count)),
        (false, false) => output.line(count.to_string()),
    }
}

fn print_entries(args: &Args, range: Range<'_>, output: &mut Output) -> Result<(), Failure> {
    let format = if args.json { Format::Jsonl } else { Format::Tsv };
    // Lines on a terminal or in a pipe show no expiry, and need not be loadable.
    let mut writer =
        RowWriter::new(format).hex(args.format.hex).keys_only(args.keys_only).without_expiry(!args.json);
    let for_people = output.is_terminal() && !args.json;
    for_each(args, range, |entry| {
        if !for_people {
            return writer.write(entry, output).map_err(Failure::output);
        }
        let show = |bytes: &[u8]| if args.format.hex { hex(bytes) } else { text::printable(bytes) };
        match args.keys_only {
            true => output.line(show(entry.key)),
            false => output.line(format!("{}\t{}", show(entry.key), show(entry.value))),
        }
    })
}
