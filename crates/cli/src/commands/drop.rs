//! `fulgurite drop`: drops a table.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::open::{Missing, with_database};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite drop shop.db sessions";

/// Drop a table with all that is in it.
///
/// It is durable when the command returns and cannot be undone. The space on disk returns later, as segments of the
/// log become free.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table.
    table: String,
    /// Print errors as JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    with_database(&args.dir, Missing::Refuse, |db| Ok(db.drop_table(&args.table)?))
}
