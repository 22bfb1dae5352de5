//! The benchmarks with other stores beside Fulgurite.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use bench_peers::{engines, interpose};
use clap::Parser;
use fulgurite_bench::Registry;
use fulgurite_bench::command::{AFTER_HELP, Program, What};

/// Run the papers' workloads, and others, on Fulgurite and on other stores.
///
/// Each run is a process of its own with a fresh store, in a directory below DIR that is removed afterwards; what was
/// written is checked at its end. What an engine cannot do is `n/a`; nothing weaker is run in its place.
#[derive(Parser)]
#[command(name = "bench-peers", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

static ASKED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let what = Arguments::parse().what;
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("error: listening for signals: {error}");
        return ExitCode::FAILURE;
    }
    let program = Program {
        name: "bench-peers",
        registry: Registry::new(engines(), Some(interpose::counts)),
        child_args: Vec::new(),
        asked: || ASKED.load(Ordering::Relaxed),
    };
    match program.run(&what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.text.is_empty() {
                eprintln!("error: {}", failure.text);
            }
            ExitCode::from(failure.code)
        }
    }
}
