//! `fulgurite`: loads, reads, writes, exports, inspects and verifies databases from a shell.

mod bench;
mod commands;
mod duration;
mod failure;
mod input;
mod interrupt;
mod io;
mod keys;
mod load;
mod open;
mod output;
mod probe;
mod rows;
mod text;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::probe as probe_command;
use crate::commands::{check, delete, drop, dump, export, get, put, rename, scan, stat, tables};
use crate::failure::Failure;

const AFTER_HELP: &str = "\
EXIT CODES:
  0  success
  1  it failed at run time, or the key does not exist
  2  the command line is wrong
  3  the database is damaged
  4  another process has the database open

EXAMPLES:
  fulgurite load --header shop.db products products.tsv.gz
  fulgurite get shop.db products socket
  fulgurite scan shop.db products --prefix so --limit 10
  fulgurite check shop.db
  fulgurite probe /var/lib/shop";

/// A transactional, ordered key-value store in which an acknowledged commit is permanent.
///
/// A database is a directory with tables in it; a table maps keys to values, both of them bytes, in the order of the
/// keys. One process at a time opens a database. Whatever a command reports as done survives a power cut.
#[derive(Parser)]
#[command(name = "fulgurite", version, after_help = AFTER_HELP)]
struct Cli {
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
    Stat(stat::Args),
    Check(check::Args),
    Dump(dump::Args),
    Bench(bench::Args),
    Probe(probe_command::Args),
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
            Command::Stat(args) => stat::run(args),
            Command::Check(args) => check::run(args),
            Command::Dump(args) => dump::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Probe(args) => probe_command::run(args),
        }
    }
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
