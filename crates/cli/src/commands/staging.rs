//! `fulgurite staging`: the file in which commits are staged.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use fulgurite::env::MemoryMedium;
use fulgurite::{Database, Options};
use serde_json::json;

use crate::failure::Failure;
use crate::open::{Missing, options, with_database, with_options};
use crate::output::Output;
use crate::text::size;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite staging status /mnt/pmem/shop.staging
  fulgurite staging drain shop.db --staging /mnt/pmem/shop.staging
  fulgurite staging adopt-loss shop.db";

/// Look at a staging file, empty it into the log, or open a database without the one that it lost.
///
/// With --staging FILE a database acknowledges commits in a file in memory that survives. Until it is closed that file may hold
/// commits that are nowhere else: keep it with the database.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Show what a staging file holds. Reads the file alone, which no process may have open.
    Status {
        /// The staging file.
        file: PathBuf,
        /// Print a JSON object; sizes are bytes.
        #[arg(long)]
        json: bool,
    },
    /// Write what the staging file holds to the log, and close the database: it does not need the file any more, and may be opened
    /// without it, with another one, or with other buffers.
    Drain {
        /// The database directory; --staging names the file.
        dir: PathBuf,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Open a database without the staging file that it lost, and close it. The commits that were only in that file are lost for good;
    /// those before them are kept. With --staging, of a file with damaged pages, what comes before them is kept; leave it out where the file is
    /// missing or cut short.
    AdoptLoss {
        /// The database directory.
        dir: PathBuf,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    /// Whether a program reads the output.
    pub fn json(&self) -> bool {
        match self.action {
            Action::Status { json, .. } | Action::Drain { json, .. } | Action::AdoptLoss { json, .. } => json,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.action {
        Action::Status { file, json } => status(file, *json),
        Action::Drain { dir, json } => {
            if options().staging.is_none() {
                return Err(Failure::usage("--staging has to name the file"));
            }
            with_database(dir, Missing::Refuse, |db| report(db, *json, "the log holds all commits up to"))
        }
        Action::AdoptLoss { dir, json } => {
            if let Some(staging) = options().staging
                && !staging.path.exists()
            {
                let file = staging.path.display();
                let what =
                    format!("there is no file {file}; to go on without what it held, leave --staging out");
                return Err(Failure::usage(what));
            }
            let options = Options { create: false, adopt_staging_loss: true, ..options() };
            with_options(dir, options, |db| report(db, *json, "the database goes on after commit"))
        }
    }
}

fn report(db: &Database, json: bool, what: &str) -> Result<(), Failure> {
    let last = db.stats().durable;
    let mut output = Output::new();
    match json {
        true => output.json(&json!({ "durable_csn": last.0 }))?,
        false => output.line(format!("{what} {last}"))?,
    }
    output.flush()
}

fn status(file: &Path, json: bool) -> Result<(), Failure> {
    let summary = Database::inspect_staging(file)?;
    let medium = medium_name(summary.medium);
    let mut output = Output::new();
    if json {
        output.json(&json!({
            "database": summary.database.to_string(),
            "id": summary.id.to_string(),
            "medium": medium,
            "buffers": summary.buffers,
            "buffer_bytes": summary.buffer_bytes,
            "epoch": summary.epoch.map(|epoch| epoch.0),
            "first_csn": summary.commits.map(|(first, _)| first.0),
            "last_csn": summary.commits.map(|(_, last)| last.0),
            "bytes": summary.bytes,
        }))?;
        return output.flush();
    }
    output.line(format!("database  {}", summary.database))?;
    output.line(format!("opening   {}", summary.id))?;
    output.line(format!("memory    {medium}"))?;
    let each = size(summary.buffer_bytes.into());
    output.line(format!("buffers   {} of {each}", summary.buffers))?;
    let holds = match (summary.commits, summary.epoch) {
        (Some((first, last)), Some(epoch)) => format!(
            "commits {first} to {last} of epoch {epoch}, {}; those that were written to the log are among them",
            size(summary.bytes)
        ),
        _ => "no commit".into(),
    };
    output.line(format!("holds     {holds}"))?;
    output.flush()
}

/// The word for a medium.
pub(crate) fn medium_name(medium: MemoryMedium) -> &'static str {
    match medium {
        MemoryMedium::Persistent => "persistent",
        MemoryMedium::Volatile => "volatile",
    }
}
