//! `fulgurite put`: writes one key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fulgurite::limits::VALUE_BYTES_MAX;
use fulgurite::{Commit, Database, Error, Table};
use serde_json::json;

use crate::failure::Failure;
use crate::io::open_input;
use crate::keys::KeyFormat;
use crate::open::{Missing, with_database};
use crate::output::Output;
use crate::quantities::parse_duration;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite put --create shop.db products socket '{\"price\": 3}'
  fulgurite put shop.db pictures socket - < socket.png
  fulgurite put shop.db sessions 8f31 alice --expires-in 30m";

/// Write a value under a key.
///
/// Replaces the value stored under the key, and its time of expiry. The table has to exist, unless --create. The value
/// is durable when the command returns.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table.
    table: String,
    /// The key.
    key: String,
    /// The value; missing or `-`: all of standard input, as it is.
    value: Option<String>,
    /// Create the database and the table if they do not exist.
    #[arg(long)]
    create: bool,
    /// The entry vanishes after this long: a number and ms, s, m, h or d.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    expires_in: Option<Duration>,
    #[command(flatten)]
    format: KeyFormat,
    /// Print the number of the commit, and errors, as JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let key = args.format.bytes(&args.key)?;
    let value = match args.value.as_deref() {
        None | Some("-") => read_value()?,
        Some(value) => value.as_bytes().to_vec(),
    };
    let missing = if args.create { Missing::Create } else { Missing::Refuse };
    let commit = with_database(&args.dir, missing, |db| put(args, db, &key, &value));
    let commit = commit.map_err(|failure| match args.create || args.dir.exists() {
        true => failure,
        false => failure.and("--create makes it"),
    })?;
    if args.json {
        let mut output = Output::new();
        output.json(&json!({ "csn": commit.csn.0 }))?;
        output.flush()?;
    }
    Ok(())
}

fn put(args: &Args, db: &Database, key: &[u8], value: &[u8]) -> Result<Commit, Failure> {
    match db.open_table(&args.table) {
        Ok(table) => Ok(write(args, &table, key, value)?),
        Err(Error::UnknownTable { name }) if args.create => {
            let written = write(args, &db.create_table(&name)?, key, value);
            if written.is_err() {
                // The user has to see why the write failed, not why the drop did.
                let _ = db.drop_table(&name);
            }
            Ok(written?)
        }
        Err(error @ Error::UnknownTable { .. }) => Err(Failure::from(error).and("--create makes it")),
        Err(error) => Err(error.into()),
    }
}

fn write(args: &Args, table: &Table, key: &[u8], value: &[u8]) -> fulgurite::Result<Commit> {
    match args.expires_in {
        None => table.put(key, value),
        Some(after) => table.put_expiring(key, value, after),
    }
}

fn read_value() -> Result<Vec<u8>, Failure> {
    use std::io::Read;
    let input = open_input(Some(Path::new("-")))?;
    let mut value = Vec::new();
    // One byte more than the limit is enough for the database to refuse the value.
    let mut reader = input.reader.take(VALUE_BYTES_MAX as u64 + 1);
    reader.read_to_end(&mut value).map_err(|error| Failure::file("reading", &input.name, &error))?;
    Ok(value)
}
