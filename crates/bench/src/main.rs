//! `fulgurite-bench`: the benchmarks of Fulgurite.

use std::process::ExitCode;

use fulgurite_bench::{Registry, command};

fn main() -> ExitCode {
    command::main("fulgurite-bench", Registry::default())
}
