//! `fulgurite rename`: renames a table.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::open::{Missing, with_database};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite load shop.db products.new products.tsv
  fulgurite rename shop.db products products.old
  fulgurite rename shop.db products.new products
  fulgurite drop shop.db products.old";

/// Rename a table.
///
/// It is durable when the command returns. The new name must be free.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The database directory.
    dir: PathBuf,
    /// The table.
    from: String,
    /// Its new name.
    to: String,
    /// Print errors as JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    with_database(&args.dir, Missing::Refuse, |db| Ok(db.rename_table(&args.from, &args.to)?))
}
