//! `fulgurite bench`: measures this program on this machine.

use fulgurite_bench::Registry;
use fulgurite_bench::command::{AFTER_HELP, Program, What};

use crate::failure::Failure;
use crate::interrupt;

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite bench commit /mnt/disk
  fulgurite bench ycsb /mnt/disk --threads 1,16 --seconds 10 --html ycsb.html
  fulgurite bench compare before.json after.json";

/// Measure this program on this machine.
///
/// Each run is a process of its own with a fresh database, in a directory below DIR that is removed afterwards; what
/// was written is checked at its end. Runs are repeated in rounds, and tables show medians and how far apart the rounds
/// are. The first SIGINT or SIGTERM ends the run at hand and shows what there is, marked; a second one ends at once and
/// leaves the directory behind.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{AFTER_HELP}\n\n{EXAMPLES}"))]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let program = Program {
        name: "fulgurite bench",
        registry: Registry::default(),
        child_args: vec!["bench".to_string()],
        asked: interrupt::asked,
    };
    program.run(&args.what).map_err(|failure| match failure.text.is_empty() {
        true => Failure::Said { code: failure.code },
        false => Failure::with_code(failure.text, failure.code),
    })
}
