//! `fulgurite reset-clock`: sets the clock of a database to the machine's.

use std::path::PathBuf;

use fulgurite::Database;
use serde_json::json;

use crate::failure::Failure;
use crate::open::options;
use crate::output::Output;
use crate::text::utc;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite stat shop.db | grep clock
  fulgurite reset-clock shop.db";

/// Set the clock by which keys expire to the machine's.
///
/// A database does not believe every jump of the machine's clock, and its own never runs back. Where it has followed a
/// wrong one, set the machine's clock right, and then the database's with this command: keys that the wrong clock hid are
/// there again unless they were removed. `fulgurite stat` shows both clocks. No other program may have it open.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// Print a JSON object; times are milliseconds since 1970-01-01 UTC.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let reset = Database::reset_clock(&args.dir, options())?;
    let mut output = Output::new();
    if args.json {
        output.json(&json!({ "before_ms": reset.before_ms, "after_ms": reset.after_ms }))?;
    } else {
        output.line(format!("the clock showed {}, now {}", utc(reset.before_ms), utc(reset.after_ms)))?;
    }
    output.flush()
}
