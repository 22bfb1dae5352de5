//! `fulgurite get`: reads one key.

use std::path::PathBuf;
use std::time::SystemTime;

use fulgurite::{Expiry, Snapshot, Table};

use crate::failure::Failure;
use crate::keys::KeyFormat;
use crate::open::with_reader;
use crate::output::Output;
use crate::rows::{Entry, Format, RowWriter};
use crate::text;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite get shop.db products socket
  fulgurite get shop.db pictures socket > socket.png
  fulgurite get shop.db counters 00ff12 --hex --json";

/// Print the value of a key.
///
/// Prints the bytes of the value as they are, and a line break after them if a terminal shows them. If there is no such
/// key, it says so on standard error and the exit code is 5.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table.
    table: String,
    /// The key.
    key: String,
    #[command(flatten)]
    format: KeyFormat,
    /// Print a JSON object with key and value, and expires_at_ms if it expires; bytes that are not UTF-8 are in base64,
    /// in key_base64 or value_base64.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let key = args.format.bytes(&args.key)?;
    with_reader(&args.dir, |db| {
        let (table, snapshot) = (db.open_table(&args.table)?, db.snapshot());
        // Not a range: a range reads the key's leaf, which may be damaged, even where the log has a newer version.
        let Some(value) = snapshot.get(&table, &key)? else {
            return Err(Failure::not_found(format!(
                "table `{}` has no key {}",
                args.table,
                text::quoted(&key)
            )));
        };
        let mut output = Output::new();
        if args.json {
            let expires_at = expires_at(&snapshot, &table, &key)?;
            let entry = Entry { key: &key, value: &value, expires_at };
            RowWriter::new(Format::Jsonl).write(entry, &mut output).map_err(Failure::output)?;
        } else {
            output.bytes(&value)?;
            if output.is_terminal() {
                output.line("")?;
            }
        }
        output.flush()
    })
}

/// When the key expires; `None`: never.
fn expires_at(snapshot: &Snapshot, table: &Table, key: &[u8]) -> Result<Option<SystemTime>, Failure> {
    Ok(match snapshot.expiry(table, key)? {
        Some(Expiry::At(time)) => Some(time),
        _ => None,
    })
}
