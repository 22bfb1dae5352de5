//! `fulgurite`: loads, reads, writes, exports, inspects and verifies databases from a shell.

#[cfg(feature = "jemalloc")]
mod allocator;
mod commands;
mod events;
mod failure;
mod input;
mod interrupt;
mod io;
mod keys;
mod load;
mod open;
mod output;
mod probe;
mod quantities;
mod rows;
mod stderr;
mod text;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, CommandFactory, Parser, Subcommand};

use crate::commands::probe as probe_command;
use crate::commands::{
    check, completions, delete, drop, dump, export, gc, get, man, put, rename, reset_clock, scan, serve,
    staging, stat, tables,
};
use crate::failure::{EXIT_CODES, Failure};

const EXAMPLES: &str = "\
EXAMPLES:
  fulgurite load --header shop.db products products.tsv.gz
  fulgurite get shop.db products socket
  fulgurite scan shop.db products --prefix so --limit 10
  fulgurite export --all shop.db backup.jsonl.gz
  fulgurite check shop.db
  fulgurite probe /var/lib/shop";

/// A transactional, ordered key-value store in which an acknowledged commit is permanent.
///
/// A database is a directory with tables in it; a table maps keys to values, both of them bytes, in the order of the
/// keys. One process at a time opens a database. Whatever a command reports as done survives a power cut.
#[derive(Parser)]
#[command(name = "fulgurite", version, max_term_width = 100)]
#[command(after_help = format!("{EXIT_CODES}\n\n{EXAMPLES}"))]
struct Cli {
    /// Print what the database does to standard error, not only warnings; -vv prints details, -vvv more of them. The
    /// variable RUST_LOG chooses by module and level: RUST_LOG=fulgurite_log=debug; RUST_LOG=off prints none.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// The memory that the database may take, for example 512MiB. A quarter of what the machine or the control group
    /// allows if it is not given; at least 32MiB.
    #[arg(long, value_name = "SIZE", global = true, value_parser = quantities::parse_size)]
    memory: Option<u64>,
    #[command(flatten)]
    staging: open::StagingArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Load(load::Args),
    Put(put::Args),
    Get(get::Args),
    Delete(delete::Args),
    Scan(scan::Args),
    Export(export::Args),
    Tables(tables::Args),
    Drop(drop::Args),
    Rename(rename::Args),
    ResetClock(reset_clock::Args),
    Stat(stat::Args),
    Gc(gc::Args),
    Serve(serve::Args),
    Staging(staging::Args),
    Check(check::Args),
    Dump(dump::Args),
    Probe(probe_command::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    fn run(&self) -> Result<(), Failure> {
        match self {
            Command::Load(args) => load::run(args),
            Command::Put(args) => put::run(args),
            Command::Get(args) => get::run(args),
            Command::Delete(args) => delete::run(args),
            Command::Scan(args) => scan::run(args),
            Command::Export(args) => export::run(args),
            Command::Tables(args) => tables::run(args),
            Command::Drop(args) => drop::run(args),
            Command::Rename(args) => rename::run(args),
            Command::ResetClock(args) => reset_clock::run(args),
            Command::Stat(args) => stat::run(args),
            Command::Gc(args) => gc::run(args),
            Command::Serve(args) => serve::run(args),
            Command::Staging(args) => staging::run(args),
            Command::Check(args) => check::run(args),
            Command::Dump(args) => dump::run(args),
            Command::Probe(args) => probe_command::run(args),
            Command::Completions(args) => completions::run(args, &mut Cli::command()),
            Command::Man(args) => man::run(args, Cli::command()),
        }
    }

    /// Whether a program reads the command's output, errors included.
    fn is_for_programs(&self) -> bool {
        match self {
            Command::Load(args) => args.json,
            Command::Put(args) => args.json,
            Command::Get(args) => args.json,
            Command::Delete(args) => args.json,
            Command::Scan(args) => args.json,
            Command::Export(args) => args.json,
            Command::Tables(args) => args.json,
            Command::Drop(args) => args.json,
            Command::Rename(args) => args.json,
            Command::ResetClock(args) => args.json,
            Command::Stat(args) => args.json,
            Command::Gc(args) => args.json,
            Command::Staging(args) => args.json(),
            Command::Check(args) => args.json,
            Command::Dump(args) => args.json,
            Command::Probe(args) => args.json,
            Command::Serve(_) | Command::Completions(_) | Command::Man(_) => false,
        }
    }
}

fn main() -> ExitCode {
    #[cfg(feature = "jemalloc")]
    allocator::begin();
    #[cfg(not(feature = "jemalloc"))]
    fulgurite::env::limit_arenas();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    stderr::set_for_programs(cli.command.is_for_programs());
    open::set_memory_bytes(cli.memory);
    let staging = open::set_staging(&cli.staging);
    let ran = staging.and_then(|()| events::show(cli.verbose)).and_then(|()| cli.command.run());
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The command line cannot be understood, or asks for help.
fn refuse(error: &clap::Error) -> ExitCode {
    stderr::set_for_programs(std::env::args_os().skip(1).any(|word| word == "--json"));
    if matches!(error.get(ContextKind::InvalidSubcommand), Some(ContextValue::String(name)) if name == "bench")
    {
        let text =
            "the benchmarks are a program of their own: run `fulgurite-bench` instead of `fulgurite bench`";
        return Failure::usage(text).report();
    }
    if error.use_stderr() && stderr::is_for_programs() {
        let text = error.to_string();
        let text = text.trim().trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
        return Failure::usage(text).report();
    }
    // Clap prints help to standard output, else to standard error; the exit code suffices if no process reads it.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
