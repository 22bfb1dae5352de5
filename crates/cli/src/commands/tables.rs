//! `fulgurite tables`: lists the tables.

use std::path::PathBuf;

use serde_json::json;

use crate::failure::Failure;
use crate::open::{entries_estimate, with_reader};
use crate::output::Output;
use crate::text;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite tables shop.db
  fulgurite tables shop.db --json";

/// List the tables of a database.
///
/// A line is a name and about how many entries the table has; `scan --count` counts them.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// Print a JSON object a line.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    with_reader(&args.dir, |db| {
        let mut output = Output::new();
        let mut tables = Vec::new();
        for table in db.tables()? {
            tables.push((table.name(), entries_estimate(&table)?));
        }
        if args.json {
            for (name, entries) in &tables {
                output.json(&json!({ "name": name, "entries_estimate": entries }))?;
            }
        } else {
            let columns = |(name, entries): &(String, u64)| {
                vec![text::printable(name.as_bytes()), format!("about {}", text::count(*entries, "entry"))]
            };
            let rows: Vec<_> = tables.iter().map(columns).collect();
            for line in text::aligned(&rows, &[]) {
                output.line(line)?;
            }
        }
        output.flush()
    })
}
