//! `bench-peers`: the benchmarks, with other stores beside Fulgurite.

use std::process::ExitCode;

use bench_peers::{engines, interpose};
use fulgurite_bench::{Registry, command};

fn main() -> ExitCode {
    command::main("bench-peers", Registry::new(engines(), Some(interpose::counts)))
}
