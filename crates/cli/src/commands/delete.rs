//! `fulgurite delete`: deletes a key or a range of keys.

use std::path::PathBuf;

use clap::ArgGroup;
use serde_json::json;

use crate::failure::Failure;
use crate::keys::{KeyFormat, RangeArgs, as_range};
use crate::open::{Missing, with_database};
use crate::output::Output;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite delete shop.db products socket
  fulgurite delete shop.db sessions --prefix alice/
  fulgurite delete shop.db log --from 2023-01 --to 2024-01";

/// Delete a key, or all keys of a range.
///
/// It is durable when the command returns, and costs the same however many keys a range has. To delete what does not
/// exist is no error. To delete everything in a table, give an empty prefix; to delete the table itself, use `drop`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "fulgurite delete [OPTIONS] <DIR> <TABLE> <KEY>
       fulgurite delete [OPTIONS] <DIR> <TABLE> --prefix <PREFIX>
       fulgurite delete [OPTIONS] <DIR> <TABLE> [--from <FROM>] [--to <TO>]")]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["key", "prefix", "from", "to"]))]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table.
    table: String,
    /// The key.
    #[arg(conflicts_with_all = ["prefix", "from", "to"])]
    key: Option<String>,
    #[command(flatten)]
    range: RangeArgs,
    #[command(flatten)]
    format: KeyFormat,
    /// Print the number of the commit as JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let key = args.key.as_deref().map(|key| args.format.bytes(key)).transpose()?;
    let bounds = args.range.bounds(&args.format)?;
    let commit = with_database(&args.dir, Missing::Refuse, |db| {
        let table = db.open_table(&args.table)?;
        Ok(match &key {
            Some(key) => table.delete(key)?,
            None => table.delete_range(as_range(&bounds))?,
        })
    })?;
    if args.json {
        let mut output = Output::new();
        output.json(&json!({ "csn": commit.csn.0 }))?;
        output.flush()?;
    }
    Ok(())
}
